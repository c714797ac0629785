/* Layers of image networks: pooling, and the norms over channels. */
#include "nn/module.h"
#include "tensor/handle.h"

/* --- pooling --- */

typedef struct pool {
    choir_module base;
    int kernel, stride;
    int64_t height, width; /* size of adaptive pooling's result */
} pool;

static choir_tensor *max_pool_forward(choir_module *self, choir_tensor *const *in, int count)
{
    pool *p = (pool *)self;
    (void)count;
    return choir_max_pool2d(in[0], p->kernel, p->stride, 0);
}

static choir_tensor *avg_pool_forward(choir_module *self, choir_tensor *const *in, int count)
{
    pool *p = (pool *)self;
    (void)count;
    return choir_avg_pool2d(in[0], p->kernel, p->stride, 0);
}

static choir_tensor *adaptive_avg_forward(
    choir_module *self, choir_tensor *const *in, int count)
{
    pool *p = (pool *)self;
    (void)count;
    return choir_adaptive_avg_pool2d(in[0], p->height, p->width);
}

static choir_tensor *adaptive_max_forward(
    choir_module *self, choir_tensor *const *in, int count)
{
    pool *p = (pool *)self;
    (void)count;
    return choir_adaptive_max_pool2d(in[0], p->height, p->width);
}

static const choir_module_class max_pool_class = {
    "max_pool2d", sizeof(pool), max_pool_forward, 1};
static const choir_module_class avg_pool_class = {
    "avg_pool2d", sizeof(pool), avg_pool_forward, 1};
static const choir_module_class adaptive_avg_class = {
    "adaptive_avg_pool2d", sizeof(pool), adaptive_avg_forward, 1};
static const choir_module_class adaptive_max_class = {
    "adaptive_max_pool2d", sizeof(pool), adaptive_max_forward, 1};

static choir_module *new_pool(
    choir_scope *run, const choir_module_class *type, int kernel, int stride)
{
    pool *p = choir_module_new(run, type);
    p->kernel = kernel;
    p->stride = stride;
    return &p->base;
}

choir_module *choir_nn_max_pool2d(choir_scope *run, int kernel, int stride)
{
    run = choir__open_scope(run, __func__);
    return new_pool(run, &max_pool_class, kernel, stride);
}

choir_module *choir_nn_avg_pool2d(choir_scope *run, int kernel, int stride)
{
    run = choir__open_scope(run, __func__);
    return new_pool(run, &avg_pool_class, kernel, stride);
}

static choir_module *new_adaptive(
    choir_scope *run, const choir_module_class *type, int64_t height, int64_t width)
{
    pool *p = choir_module_new(run, type);
    p->height = height;
    p->width = width;
    choir__sizes_positive(run, type->name, height, width);
    return &p->base;
}

choir_module *choir_nn_adaptive_avg_pool2d(choir_scope *run, int64_t height, int64_t width)
{
    run = choir__open_scope(run, __func__);
    return new_adaptive(run, &adaptive_avg_class, height, width);
}

choir_module *choir_nn_adaptive_max_pool2d(choir_scope *run, int64_t height, int64_t width)
{
    run = choir__open_scope(run, __func__);
    return new_adaptive(run, &adaptive_max_class, height, width);
}

/* --- norms over channels --- */

typedef struct batch_norm {
    choir_module base;
    choir_tensor *weight, *bias, *running_mean, *running_var; /* (channels) */
    choir_tensor *batches;                                    /* () i64 */
    choir_batch_norm_opts opts;
    choir__strategy *shared; /* shared with other ranks; NULL: statistics are its own */
} batch_norm;

static choir_tensor *batch_norm_forward(choir_module *self, choir_tensor *const *in, int count)
{
    batch_norm *b = (batch_norm *)self;
    choir_batch_norm_opts o = b->opts;
    o.training = self->training;
    o.residual = count > 1 ? in[1] : NULL;
    self->inside->fused = o.relu || o.residual;
    o.batches = b->batches;
    return choir__batch_norm(
        in[0], b->weight, b->bias, b->running_mean, b->running_var, o, b->shared);
}

static const choir_module_class batch_norm_class = {
    "batch_norm", sizeof(batch_norm), batch_norm_forward, 2};

void choir__batch_norms_share(choir_module *m, choir__strategy *shared)
{
    if (m->type == &batch_norm_class)
        ((batch_norm *)m)->shared = shared;
    for (const choir__module_entry *e = m->inside->entries; e; e = e->next)
        if (e->kind == CHOIR__CHILD)
            choir__batch_norms_share(e->child, shared);
}

choir_module *choir_nn_batch_norm_with(
    choir_scope *run, int64_t channels, choir_batch_norm_opts opts)
{
    run = choir__open_scope(run, __func__);
    batch_norm *b = choir_module_new(run, &batch_norm_class);
    if (!choir__sizes_positive(run, "batch_norm", channels, 1))
        channels = 1;
    b->opts = opts;
    choir_shape c = choir_dims(channels);
    choir_module_param(&b->base, "weight", &b->weight, c, choir_init_constant(1));
    choir_module_param(&b->base, "bias", &b->bias, c, choir_init_constant(0));
    choir_module_buffer(&b->base, "running_mean", &b->running_mean, c, 0);
    choir_module_buffer(&b->base, "running_var", &b->running_var, c, 1);
    choir_module_counter(&b->base, "num_batches_tracked", &b->batches);
    return &b->base;
}

choir_module *choir_nn_batch_norm(choir_scope *run, int64_t channels)
{
    run = choir__open_scope(run, __func__);
    return choir_nn_batch_norm_with(run, channels, choir_batch_norm_defaults());
}

typedef struct group_norm {
    choir_module base;
    choir_tensor *weight, *bias; /* (channels) */
    int64_t groups;
} group_norm;

static choir_tensor *group_norm_forward(choir_module *self, choir_tensor *const *in, int count)
{
    group_norm *g = (group_norm *)self;
    (void)count;
    return choir_group_norm(in[0], g->groups, g->weight, g->bias, 1e-5f);
}

static const choir_module_class group_norm_class = {
    "group_norm", sizeof(group_norm), group_norm_forward, 1};

choir_module *choir_nn_group_norm(choir_scope *run, int64_t groups, int64_t channels)
{
    run = choir__open_scope(run, __func__);
    group_norm *g = choir_module_new(run, &group_norm_class);
    if (!choir__sizes_positive(run, "group_norm", groups, channels))
        groups = channels = 1;
    if (channels % groups) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "group_norm: %lld groups do not divide %lld channels", (long long)groups,
            (long long)channels);
        groups = 1;
    }
    g->groups = groups;
    choir_shape c = choir_dims(channels);
    choir_module_param(&g->base, "weight", &g->weight, c, choir_init_constant(1));
    choir_module_param(&g->base, "bias", &g->bias, c, choir_init_constant(0));
    return &g->base;
}
