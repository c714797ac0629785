/* The linear layer of GPT-2's files, "Conv1D": x W + b with a weight of (in, out). */
#include "nn/module.h"

typedef struct conv1d {
    choir_module base;
    choir_tensor *weight, *bias; /* (in, out), (out) */
} conv1d;

static choir_tensor *conv1d_forward(choir_module *self, choir_tensor *const *in, int count)
{
    conv1d *c = (conv1d *)self;
    (void)count;
    return choir__linear_in_out(in[0], c->weight, c->bias);
}

static const choir_module_class conv1d_class = {"conv1d", sizeof(conv1d), conv1d_forward, 1};

choir_module *choir__conv1d_new(choir_scope *run, int64_t in, int64_t out, double deviation)
{
    conv1d *c = choir_module_new(run, &conv1d_class);
    choir_module_param(
        &c->base, "weight", &c->weight, choir_dims(in, out), choir_init_normal(0, deviation));
    choir_module_param(&c->base, "bias", &c->bias, choir_dims(out), choir_init_constant(0));
    return &c->base;
}

bool choir__conv1d_weights(const choir_module *m, choir_tensor **weight, choir_tensor **bias)
{
    const conv1d *c = (const conv1d *)m;
    if (m->type != &conv1d_class)
        return false;
    *weight = c->weight;
    *bias = c->bias;
    return true;
}
