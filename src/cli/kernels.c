/* See kernels.h. The table is observed, not written down: each op runs on small operands of
 * each dtype, forward and backward, and the kernels of the device note the way they took
 * (device/cpu/ways.h). An op is as slow as its slowest kernel; that its operands were
 * converted to f32 counts as "widened". */
#include "base/text.h"
#include "cli/kernels.h"

#include <stdio.h>
#include <string.h>

#include <choir/choir.h>
#include "line/say.h"
#include "device/cpu/ways.h"

enum { PASSES = 3 };

static const char *const pass_names[PASSES] = {
    "forward", "input's gradient", "weights' gradient"};
static const char *const way_names[] = {
    [CHOIR__OWN] = "own", [CHOIR__WIDENED] = "widened", [CHOIR__REFERENCE] = "reference"};
static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_F16, CHOIR_F64};

/* An op on x, and on w unless its shape is a scalar's. The sizes are those from which on
 * products are not small. */
typedef struct probe {
    const char *name;
    choir_shape x, w;
    choir_tensor *(*op)(choir_tensor *x, choir_tensor *w);
} probe;

/* --- the ops --- */

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

static const probe probes[] = {
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
};

/* --- running them --- */

static choir_tensor *operand(
    choir_scope *step, choir_shape shape, const char *name, choir_dtype dtype, bool leaf)
{
    choir_tensor *x = choir_rand(step, shape, name, -1, 1);
    return choir_cast(leaf ? choir_require_grad(x) : x, dtype);
}

/* Returns the slowest way that any kernel took, but for copies, which convert. */
static choir__way slowest(choir_dtype dtype)
{
    choir__way way = CHOIR__OWN;
    for (int k = 0; k < CHOIR__KERNEL_COUNT; k++)
        if (k != CHOIR__KERNEL_copy && choir__noted_way((choir__kernel_id)k, dtype) > way)
            way = choir__noted_way((choir__kernel_id)k, dtype);
    return way;
}

/* Waits for the device, and forgets how it computed so far. */
static choir_status begin(choir_device *device)
{
    choir_status status = choir_device_sync(device);
    choir__forget_ways();
    return status;
}

/* Stores the way of one pass; 0: forward, 1: the gradient of x, 2: the gradient of w. An op
 * that converts its operands before it computes does so backward, too. */
static choir_status observe(
    choir_scope *step, const probe *p, choir_dtype dtype, int pass, choir__way *way)
{
    choir_device *device = choir_scope_device(step);
    choir_tensor *x = operand(step, p->x, "x", dtype, pass == 1), *w = NULL;
    if (p->w.ndim)
        w = operand(step, p->w, "w", dtype, pass == 2);
    choir_status status = begin(device);
    choir_tensor *y = p->op(x, w);
    if (status == CHOIR_OK)
        status = choir_device_sync(device);
    *way = choir__noted_way(CHOIR__KERNEL_copy, dtype);
    if (status == CHOIR_OK && pass > 0) {
        choir_tensor *loss = choir_sum(y);
        status = begin(device);
        if (status == CHOIR_OK)
            status = choir_backward(loss);
        if (status == CHOIR_OK)
            status = choir_device_sync(device);
    }
    if (slowest(dtype) > *way)
        *way = slowest(dtype);
    return status == CHOIR_OK ? choir_scope_status(step) : status;
}

static void print_row(const probe *p, int pass, const choir__way *ways, bool json)
{
    choir__text_buffer t = {0};
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "op", p->name);
    choir__text_string(&t, "pass", pass_names[pass]);
    for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++)
        choir__text_string(&t, choir_dtype_name(dtypes[d]), way_names[ways[d]]);
    choir__text_close(&t, '}');
    if (json) {
        choir__text_print(&t, stdout);
    } else {
        printf("%-24s %-18s", p->name, pass_names[pass]);
        for (size_t d = 0; d < CHOIR_COUNT(dtypes); d++)
            printf(d + 1 < CHOIR_COUNT(dtypes) ? " %-9s" : " %s", way_names[ways[d]]);
        printf("\n");
    }
    choir__text_buffer_free(&t);
}

static choir_status print_probe(choir_scope *run, const probe *p, uint64_t *number, bool json)
{
    choir_status status = CHOIR_OK;
    for (int pass = 0; pass < (p->w.ndim ? PASSES : PASSES - 1); pass++) {
        choir__way ways[CHOIR_COUNT(dtypes)] = {0};
        for (size_t d = 0; d < CHOIR_COUNT(dtypes) && status == CHOIR_OK; d++) {
            choir_scope *step = choir_step_open(run, (*number)++);
            status = observe(step, p, dtypes[d], pass, &ways[d]);
            choir_status closed = choir_scope_close(step);
            status = status == CHOIR_OK ? closed : status;
        }
        if (status != CHOIR_OK)
            return status;
        print_row(p, pass, ways, json);
    }
    return CHOIR_OK;
}

int choir__cli_print_kernels(bool json)
{
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_status status = choir_scope_status(run);
    uint64_t number = 0;
    if (!json && status == CHOIR_OK)
        printf("kernels of cpu:0: %s, %s\n\n%-24s %-18s %-9s %-9s %-9s %s\n", choir_cpu_isa(),
            choir__cpu_multiplier(), "op", "pass", "f32", "bf16", "f16", "f64");
    for (size_t i = 0; i < CHOIR_COUNT(probes) && status == CHOIR_OK; i++)
        status = print_probe(run, &probes[i], &number, json);
    choir_status closed = choir_scope_close(run);
    status = status == CHOIR_OK ? closed : status;
    if (status != CHOIR_OK)
        return choir__cli_fail();
    if (!json)
        printf("\nown: a kernel for this dtype. widened: operands become f32. reference: slow, "
               "for checks alone.\n");
    return CHOIR__EXIT_OK;
}
