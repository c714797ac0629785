/* The linear layer of GPT-2's files, "Conv1D": x W + b with a weight of (in, out). */
#include "nn/module.h"

typedef struct linear_in_out {
    choir_module base;
    choir_tensor *weight, *bias; /* (in, out), (out) */
} linear_in_out;

static choir_tensor *forward(choir_module *self, choir_tensor *const *in, int count)
{
    linear_in_out *l = (linear_in_out *)self;
    (void)count;
    return choir__linear_in_out(in[0], l->weight, l->bias);
}

static const choir_module_class this_class = {
    "linear_in_out", sizeof(linear_in_out), forward, 1};

choir_module *choir__linear_in_out_new(
    choir_scope *run, int64_t in, int64_t out, double deviation)
{
    linear_in_out *l = choir_module_new(run, &this_class);
    choir_module_param(
        &l->base, "weight", &l->weight, choir_dims(in, out), choir_init_normal(0, deviation));
    choir_module_param(&l->base, "bias", &l->bias, choir_dims(out), choir_init_constant(0));
    return &l->base;
}

bool choir__linear_in_out_weights(
    const choir_module *m, choir_tensor **weight, choir_tensor **bias)
{
    const linear_in_out *l = (const linear_in_out *)m;
    if (m->type != &this_class)
        return false;
    *weight = l->weight;
    *bias = l->bias;
    return true;
}
