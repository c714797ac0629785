/* Convolutions of signals, images and volumes as modules. They differ in the kernel's
 * dimensions, one to three, and in the op that forward calls. */
#include "nn/module.h"
#include "tensor/handle.h"

typedef struct conv {
    choir_module base;
    choir_tensor *weight,
        *bias;                /* (out, in/groups, kernel...), channels last in memory; (out) */
    choir_conv_opts opts;     /* options for signals and images */
    choir_conv3d_opts opts3d; /* options for volumes */
} conv;

static choir_tensor *signal_forward(choir_module *self, choir_tensor *const *in, int count)
{
    conv *c = (conv *)self;
    (void)count;
    return choir_conv1d(in[0], c->weight, c->bias, c->opts);
}

static choir_tensor *image_forward(choir_module *self, choir_tensor *const *in, int count)
{
    conv *c = (conv *)self;
    (void)count;
    return choir_conv2d(in[0], c->weight, c->bias, c->opts);
}

static choir_tensor *transpose_forward(choir_module *self, choir_tensor *const *in, int count)
{
    conv *c = (conv *)self; /* weight (in, out/groups, kh, kw) */
    (void)count;
    return choir_conv_transpose2d(in[0], c->weight, c->bias, c->opts);
}

static choir_tensor *volume_forward(choir_module *self, choir_tensor *const *in, int count)
{
    conv *c = (conv *)self;
    (void)count;
    return choir_conv3d(in[0], c->weight, c->bias, c->opts3d);
}

static const choir_module_class conv1d_class = {"conv1d", sizeof(conv), signal_forward, 1};
static const choir_module_class conv2d_class = {"conv2d", sizeof(conv), image_forward, 1};
static const choir_module_class conv3d_class = {"conv3d", sizeof(conv), volume_forward, 1};
static const choir_module_class transpose_class = {
    "conv_transpose2d", sizeof(conv), transpose_forward, 1};

/* --- construction --- */

/* A layer to be: its class, its kernel, and what the caller's options say of its parameters. */
typedef struct plan {
    const choir_module_class *type;
    const char *defaults; /* the function that such options begin from */
    choir_shape kernel;   /* (k), (kh, kw) or (kd, kh, kw) */
    int groups;           /* 0: 1 */
    bool no_bias;
    const choir_init *weight;
} plan;

static plan plan_of(const choir_module_class *type, choir_shape kernel, choir_nn_conv_opts o)
{
    return (plan){type, "choir_nn_conv_defaults()", kernel, o.conv.groups, o.no_bias, o.weight};
}

/* Checks the sizes of a weight of (rows, cols/groups, kernel...). */
static bool sensible(
    choir_scope *run, const plan *p, int64_t rows, int64_t cols, int64_t groups)
{
    bool empty = false;
    for (int d = 0; d < p->kernel.ndim; d++)
        empty = empty || p->kernel.dim[d] < 1;
    if (groups < 1 || rows % groups || cols % groups)
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "%s: %lld groups do not divide the channels, %lld and %lld", p->type->name,
            (long long)groups, (long long)rows, (long long)cols);
    else if (choir__sizes_positive(run, p->type->name, rows, cols) && empty)
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "%s: expected a kernel of 1 or more, got %s; begin with %s", p->type->name,
            choir__shape_text(p->kernel), p->defaults);
    return choir__scope_status(run) == CHOIR_OK;
}

/* weight: (rows, cols/groups, kernel...). One of rows and cols is the layer's input channels,
 * the other `out`. */
static conv *new_conv(choir_scope *run, plan p, int64_t rows, int64_t cols, int64_t out)
{
    conv *c = choir_module_new(run, p.type);
    int64_t groups = p.groups ? p.groups : 1;
    bool usable = sensible(run, &p, rows, cols, groups);
    choir_shape shape = usable ? choir_dims(rows, cols / groups) : choir_dims(1, 1);
    int64_t fan_in = shape.dim[1];
    for (int d = 0; d < p.kernel.ndim; d++) {
        shape.dim[shape.ndim++] = usable ? p.kernel.dim[d] : 1;
        fan_in *= shape.dim[shape.ndim - 1];
    }
    choir_module_param(&c->base, "weight", &c->weight, shape,
        p.weight ? *p.weight : choir__fan_in_init(fan_in));
    choir__set_channels_last(c->weight);
    if (!p.no_bias)
        choir_module_param(&c->base, "bias", &c->bias, choir_dims(usable ? out : 1),
            choir__fan_in_init(fan_in));
    return c;
}

/* --- options --- */

choir_nn_conv_opts choir_nn_conv_defaults(int kernel)
{
    return (choir_nn_conv_opts){
        .kernel_h = kernel, .kernel_w = kernel, .conv = choir_conv_defaults()};
}

choir_nn_conv3d_opts choir_nn_conv3d_defaults(int kernel)
{
    return (choir_nn_conv3d_opts){
        .kernel = {kernel, kernel, kernel}, .conv = choir_conv3d_defaults()};
}

static choir_nn_conv_opts with_defaults(int kernel, choir_conv_opts opts)
{
    choir_nn_conv_opts o = choir_nn_conv_defaults(kernel);
    o.conv = opts;
    return o;
}

/* --- the layers --- */

choir_module *choir_nn_conv1d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts o)
{
    run = choir__open_scope(run, __func__);
    conv *c = new_conv(run, plan_of(&conv1d_class, choir_dims(o.kernel_h), o), out, in, out);
    c->opts = o.conv;
    return &c->base;
}

choir_module *choir_nn_conv1d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts)
{
    run = choir__open_scope(run, __func__);
    return choir_nn_conv1d_with(run, in, out, with_defaults(kernel, opts));
}

choir_module *choir_nn_conv2d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts o)
{
    run = choir__open_scope(run, __func__);
    choir_shape kernel = choir_dims(o.kernel_h, o.kernel_w);
    conv *c = new_conv(run, plan_of(&conv2d_class, kernel, o), out, in, out);
    c->opts = o.conv;
    return &c->base;
}

choir_module *choir_nn_conv2d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts)
{
    run = choir__open_scope(run, __func__);
    return choir_nn_conv2d_with(run, in, out, with_defaults(kernel, opts));
}

choir_module *choir_nn_conv_transpose2d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv_opts o)
{
    run = choir__open_scope(run, __func__);
    choir_shape kernel = choir_dims(o.kernel_h, o.kernel_w);
    conv *c = new_conv(run, plan_of(&transpose_class, kernel, o), in, out, out);
    c->opts = o.conv;
    return &c->base;
}

choir_module *choir_nn_conv_transpose2d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv_opts opts)
{
    run = choir__open_scope(run, __func__);
    return choir_nn_conv_transpose2d_with(run, in, out, with_defaults(kernel, opts));
}

choir_module *choir_nn_conv3d_with(
    choir_scope *run, int64_t in, int64_t out, choir_nn_conv3d_opts o)
{
    run = choir__open_scope(run, __func__);
    plan p = {&conv3d_class, "choir_nn_conv3d_defaults()",
        choir_dims(o.kernel[0], o.kernel[1], o.kernel[2]), o.conv.groups, o.no_bias, o.weight};
    conv *c = new_conv(run, p, out, in, out);
    c->opts3d = o.conv;
    return &c->base;
}

choir_module *choir_nn_conv3d(
    choir_scope *run, int64_t in, int64_t out, int kernel, choir_conv3d_opts opts)
{
    run = choir__open_scope(run, __func__);
    choir_nn_conv3d_opts o = choir_nn_conv3d_defaults(kernel);
    o.conv = opts;
    return choir_nn_conv3d_with(run, in, out, o);
}
