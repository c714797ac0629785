/* The table of ops that `choir info --kernels` and `choir check` call, and how each is
 * called on two operands x and w. An answer's number follows from its op's row, so a new op
 * is a row at the end. */
#include "cli/check/probes.h"

static choir_tensor *linear(choir_tensor *x, choir_tensor *w)
{
    return choir_linear(x, w, NULL);
}

static choir_tensor *convolve(choir_tensor *x, choir_tensor *w, int stride, int groups)
{
    choir_conv_opts opts = choir_conv_defaults();
    opts.stride = stride;
    opts.groups = groups;
    return choir_conv2d(x, w, NULL, opts);
}

static choir_tensor *conv(choir_tensor *x, choir_tensor *w)
{
    return convolve(x, w, 1, 1);
}

static choir_tensor *conv_stride(choir_tensor *x, choir_tensor *w)
{
    return convolve(x, w, 2, 1);
}

static choir_tensor *conv_groups(choir_tensor *x, choir_tensor *w)
{
    return convolve(x, w, 1, 4);
}

static choir_tensor *conv_depthwise(choir_tensor *x, choir_tensor *w)
{
    return convolve(x, w, 1, 16);
}

static choir_tensor *conv_transpose(choir_tensor *x, choir_tensor *w)
{
    return choir_conv_transpose2d(x, w, NULL, choir_conv_defaults());
}

/* w (2, 4 H, H): the two matrices of an LSTM, without biases. */
static choir_tensor *lstm(choir_tensor *x, choir_tensor *w)
{
    choir_shape matrix = choir_dims(128, 32);
    choir_cell_weights weights = {.w_ih = choir_reshape(choir_narrow(w, 0, 0, 1), matrix),
        .w_hh = choir_reshape(choir_narrow(w, 0, 1, 1), matrix)};
    return choir_recurrent(CHOIR_LSTM, x, &weights, 1, (choir_cell_state){NULL, NULL}, NULL);
}

/* w (2, 3 H, H) */
static choir_tensor *gru(choir_tensor *x, choir_tensor *w)
{
    choir_shape matrix = choir_dims(96, 32);
    choir_cell_weights weights = {.w_ih = choir_reshape(choir_narrow(w, 0, 0, 1), matrix),
        .w_hh = choir_reshape(choir_narrow(w, 0, 1, 1), matrix)};
    return choir_recurrent(CHOIR_GRU, x, &weights, 1, (choir_cell_state){NULL, NULL}, NULL);
}

static choir_tensor *attention(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_self_attention(x, 2, true);
}

static choir_tensor *layer_norm(choir_tensor *x, choir_tensor *w)
{
    return choir_layer_norm(x, w, NULL, 1e-5f);
}

static choir_tensor *rms_norm(choir_tensor *x, choir_tensor *w)
{
    return choir_rms_norm(x, w, 1e-5f);
}

static choir_tensor *group_norm(choir_tensor *x, choir_tensor *w)
{
    return choir_group_norm(x, 4, w, NULL, 1e-5f);
}

static choir_tensor *batch_norm(choir_tensor *x, choir_tensor *w)
{
    choir_scope *step = choir_tensor_scope(x);
    choir_dtype dtype = choir_tensor_dtype(x) == CHOIR_F64 ? CHOIR_F64 : CHOIR_F32;
    choir_tensor *running[] = {
        choir_zeros(step, dtype, choir_dims(16)), choir_full(step, dtype, choir_dims(16), 1)};
    choir_tensor *beta = choir_zeros(step, choir_tensor_dtype(w), choir_dims(16));
    return choir_batch_norm(x, w, beta, running[0], running[1], true, 0.1f, 1e-5f);
}

static choir_tensor *softmax(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_softmax(x);
}

static choir_tensor *gelu(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_gelu(x);
}

static choir_tensor *max_pool(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_max_pool2d(x, 2, 2, 0);
}

static choir_tensor *mean_pool(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_adaptive_avg_pool2d(x, 1, 1);
}

/* The table is x. */
static choir_tensor *embedding(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_embedding(x, choir_zeros(choir_tensor_scope(x), CHOIR_I64, choir_dims(4)));
}

static choir_tensor *cross_entropy(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_cross_entropy(x, choir_zeros(choir_tensor_scope(x), CHOIR_I64, choir_dims(8)));
}

static choir_tensor *sum_rows(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_sum_dim(x, 1);
}

static choir_tensor *dropout(choir_tensor *x, choir_tensor *w)
{
    (void)w;
    return choir_dropout(x, 0.5f, "dropout");
}

const choir__probe choir__probes[] = {
    {"matmul", {2, {64, 64}}, {2, {64, 64}}, choir_matmul},
    {"matmul, batched", {3, {4, 32, 64}}, {3, {4, 64, 32}}, choir_matmul},
    {"linear", {2, {64, 64}}, {2, {64, 64}}, linear},
    {"conv2d 3x3", {4, {2, 16, 12, 12}}, {4, {16, 16, 3, 3}}, conv},
    {"conv2d 1x1", {4, {2, 16, 12, 12}}, {4, {32, 16, 1, 1}}, conv},
    {"conv2d 3x3, 3 channels", {4, {2, 3, 12, 12}}, {4, {16, 3, 3, 3}}, conv},
    {"conv2d 3x3, stride 2", {4, {2, 16, 13, 13}}, {4, {16, 16, 3, 3}}, conv_stride},
    {"conv2d 3x3, 4 groups", {4, {2, 16, 12, 12}}, {4, {16, 4, 3, 3}}, conv_groups},
    {"conv2d 3x3, depthwise", {4, {2, 16, 12, 12}}, {4, {16, 1, 3, 3}}, conv_depthwise},
    {"conv_transpose2d 2x2", {4, {2, 16, 12, 12}}, {4, {16, 16, 2, 2}}, conv_transpose},
    {"lstm", {3, {4, 16, 32}}, {3, {2, 128, 32}}, lstm},
    {"gru", {3, {4, 16, 32}}, {3, {2, 96, 32}}, gru},
    {"attention", {3, {2, 16, 3 * 32}}, {0}, attention},
    {"layer_norm", {2, {8, 64}}, {1, {64}}, layer_norm},
    {"rms_norm", {2, {8, 64}}, {1, {64}}, rms_norm},
    {"batch_norm", {4, {2, 16, 4, 4}}, {1, {16}}, batch_norm},
    {"group_norm", {4, {2, 16, 4, 4}}, {1, {16}}, group_norm},
    {"softmax", {2, {8, 64}}, {0}, softmax},
    {"gelu", {2, {8, 64}}, {0}, gelu},
    {"add", {2, {8, 64}}, {1, {64}}, choir_add},
    {"mul", {2, {8, 64}}, {1, {64}}, choir_mul},
    {"swiglu", {2, {8, 64}}, {2, {8, 64}}, choir_swiglu},
    {"max_pool2d", {4, {2, 16, 12, 12}}, {0}, max_pool},
    {"adaptive_avg_pool2d", {4, {2, 16, 12, 12}}, {0}, mean_pool},
    {"dropout", {2, {8, 64}}, {0}, dropout},
    {"embedding", {2, {8, 64}}, {0}, embedding},
    {"sum_dim", {2, {8, 64}}, {0}, sum_rows},
    {"cross_entropy", {2, {8, 64}}, {0}, cross_entropy},
    {NULL},
};

const choir_dtype choir__probe_dtypes[CHOIR__PROBE_DTYPES] = {
    CHOIR_F32, CHOIR_BF16, CHOIR_F16, CHOIR_F64};

choir_tensor *choir__probe_operand(choir_scope *step, choir_shape shape, const char *name,
    choir_dtype dtype, bool leaf, choir_tensor **source)
{
    choir_tensor *x = choir_rand(step, shape, name, -1, 1);
    x = leaf ? choir_require_grad(x) : x;
    if (source)
        *source = x;
    return choir_cast(x, dtype);
}
