/* Linear layers: x W^T + b, and x W + b as in GPT-2's files, each with an adapter if choir_lora
 * has added one. */
#include "nn/linear.h"

#include "tensor/handle.h"

static choir_tensor *linear_forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__linear *l = (choir__linear *)self;
    (void)count;
    choir_tensor *y = choir_linear(in[0], l->weight, l->bias);
    return l->adapter.a ? choir__adapted(l, in[0], y) : y;
}

static const choir_module_class linear_class = {
    "linear", sizeof(choir__linear), linear_forward, 1};

choir_module *choir_nn_linear_with(
    choir_scope *run, int64_t in, int64_t out, bool bias, choir_init weight)
{
    run = choir__open_scope(run, __func__);
    choir__linear *l = choir_module_new(run, &linear_class);
    if (!choir__sizes_positive(run, "linear", in, out))
        in = out = 1;
    choir_module_param(&l->base, "weight", &l->weight, choir_dims(out, in), weight);
    if (bias)
        choir_module_param(&l->base, "bias", &l->bias, choir_dims(out),
            weight.kind == CHOIR_INIT_UNIFORM ? weight : choir_init_constant(0));
    return &l->base;
}

choir_module *choir_nn_linear(choir_scope *run, int64_t in, int64_t out)
{
    run = choir__open_scope(run, __func__);
    return choir_nn_linear_with(run, in, out, true, choir__fan_in_init(in > 0 ? in : 1));
}

static choir_tensor *in_out_forward(choir_module *self, choir_tensor *const *in, int count)
{
    choir__linear *l = (choir__linear *)self;
    (void)count;
    choir_tensor *y = choir__linear_in_out(in[0], l->weight, l->bias);
    return l->adapter.a ? choir__adapted(l, in[0], y) : y;
}

static const choir_module_class in_out_class = {
    "linear_in_out", sizeof(choir__linear), in_out_forward, 1};

choir_module *choir__linear_in_out_new(
    choir_scope *run, int64_t in, int64_t out, double deviation)
{
    choir__linear *l = choir_module_new(run, &in_out_class);
    choir_module_param(
        &l->base, "weight", &l->weight, choir_dims(in, out), choir_init_normal(0, deviation));
    choir_module_param(&l->base, "bias", &l->bias, choir_dims(out), choir_init_constant(0));
    return &l->base;
}

choir__linear *choir__linear_of_module(choir_module *m, bool *in_out)
{
    *in_out = m->type == &in_out_class;
    return *in_out || m->type == &linear_class ? (choir__linear *)m : NULL;
}

bool choir__linear_layer(
    const choir_module *m, choir_tensor **weight, choir_tensor **bias, bool *in_out)
{
    const choir__linear *l = choir__linear_of_module((choir_module *)(uintptr_t)m, in_out);
    if (!l)
        return false;
    *weight = l->weight;
    *bias = l->bias;
    return true;
}
