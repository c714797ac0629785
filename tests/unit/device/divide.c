/* Kernels on several cores have the bits of one: each divided kernel, and products in shapes
 * where oneDNN's threads would share a sum, on 1, 2, 3 and 5 threads. */
#include <stdlib.h>

#include <choir/device.h>
#include "check.h"
#include "conformance/dense_product.h"
#include "device/cpu/context.h"

enum { ROWS = 301, COLS = 97, N = ROWS * COLS, BUFFERS = 10, MOST = 1 << 18 };

static float *buffer[BUFFERS]; /* the first is the output, and its rest shows stray writes */
static const choir__kernels *kernels;

static void fill(void)
{
    uint32_t seed = 1;
    for (int b = 0; b < BUFFERS; b++)
        for (int i = 0; i < MOST; i++) {
            seed = seed * 1664525 + 1013904223;
            buffer[b][i] = (float)(seed >> 8) / 0x1p24f + 0.01f;
        }
}

/* Runs fn on one core, and on several, and compares all memory. */
static void compare(const char *what, void (*fn)(void))
{
    static const int threads[] = {1, 2, 3, 5};
    float *expected = malloc(sizeof(float) * MOST * BUFFERS);
    for (size_t t = 0; t < CHOIR_COUNT(threads); t++) {
        const choir__kernels *one = choir__cpu_kernels(choir_cpu_isa());
        choir__cpu_context *context = choir__cpu_context_new(threads[t]);
        choir__cpu_context_enter(context);
        kernels = threads[t] > 1 ? choir__cpu_divided(one) : one;
        fill();
        fn();
        for (int b = 0; b < BUFFERS; b++) {
            size_t bytes = sizeof(float) * MOST;
            if (t == 0)
                memcpy(expected + (size_t)b * MOST, buffer[b], bytes);
            else if (memcmp(expected + (size_t)b * MOST, buffer[b], bytes))
                fail_msg("%s on %d threads: buffer %d differs", what, threads[t], b);
        }
        choir__cpu_context_free(context);
    }
    free(expected);
}

#define B(i) ((void *)buffer[i])

static void elements(void)
{
    choir_dtype f = CHOIR_F32;
    kernels->unary(
        &(choir__k_unary){.x = B(1), .y = B(0), .n = N, .op = CHOIR__GELU, .dtype = f});
    kernels->unary_backward(&(choir__k_unary){B(1), B(2), B(0), B(3), N, 0, 0, CHOIR__GELU, f});
    kernels->add_scaled(&(choir__k_add_scaled){B(1), B(2), B(4), N, 0.3f, f, 0});
    kernels->add_scaled(&(choir__k_add_scaled){B(1), NULL, B(5), N, 0.3f, f, 0});
    kernels->fill(&(choir__k_fill){B(6), N, 2.5, f});
    kernels->fill(&(choir__k_fill){B(7), N, 0, CHOIR_I64});
}

static void strided(void)
{
    choir__k_binary k = {.y = {B(0), {COLS, 1}},
        .a = {B(1), {COLS, 1}},
        .b = {B(2), {0, 1}}, /* a row for all */
        .shape = {ROWS, COLS},
        .ndim = 2,
        .op = CHOIR__DIV,
        .dtype = CHOIR_F32};
    kernels->binary(&k);
    k = (choir__k_binary){.y = {B(3), {N, N, 1}},
        .a = {B(1), {N, N, 1}},
        .b = {B(2), {0, 0, 0}},
        .shape = {1, 1, N},
        .ndim = 3,
        .op = CHOIR__MUL,
        .dtype = CHOIR_F32};
    kernels->binary(&k);
    kernels->copy(&(choir__k_copy){.y = {B(4), {ROWS, 1}}, /* a transpose */
        .x = {B(1), {1, COLS}},
        .shape = {COLS, ROWS},
        .ndim = 2,
        .y_dtype = CHOIR_F32,
        .x_dtype = CHOIR_F32});
    kernels->copy(&(choir__k_copy){.y = {B(5), {COLS, 1}},
        .x = {B(1), {COLS, 1}},
        .shape = {ROWS, COLS},
        .ndim = 2,
        .y_dtype = CHOIR_BF16,
        .x_dtype = CHOIR_F32});
}

static void rows(void)
{
    static int64_t targets[ROWS];
    choir_dtype f = CHOIR_F32;
    for (int i = 0; i < ROWS; i++)
        targets[i] = i % 7 ? i % COLS : -100;
    kernels->softmax(&(choir__k_softmax){B(1), NULL, B(0), NULL, ROWS, COLS, false, f});
    kernels->softmax_backward(
        &(choir__k_softmax){NULL, B(2), B(0), B(3), ROWS, COLS, false, f});
    kernels->cross_entropy_backward(&(choir__k_cross_entropy){.logits = B(1),
        .lse = B(2),
        .count = B(3),
        .gloss = B(4),
        .targets = targets,
        .glogits = B(5),
        .rows = ROWS,
        .cols = COLS,
        .ignore_index = -100,
        .losses = CHOIR__ROWS_EACH,
        .dtype = f});
    kernels->sum(
        &(choir__k_sum){B(1), B(6), ROWS, COLS, 0.5, false, false, false, f, 0, {0, 0}});
    kernels->sum(
        &(choir__k_sum){B(1), B(7), ROWS, COLS, 0.5, true, false, false, f, 0, {0, 0}});
    kernels->swiglu(&(choir__k_swiglu){
        B(1), B(2), NULL, B(8), NULL, NULL, ROWS, COLS, 2 * COLS, COLS, 0, 0, f});
    kernels->swiglu_backward(&(choir__k_swiglu){
        B(1), B(2), B(3), NULL, B(8), B(9), ROWS, COLS, COLS, COLS, 2 * COLS, COLS, f});
}

static void norms(void)
{
    choir_dtype f = CHOIR_F32;
    kernels->layer_norm(&(choir__k_layer_norm){B(1), B(2), B(3), B(4), B(0), B(5), B(6), B(7),
        NULL, ROWS, COLS, 1e-5f, f, f, false, false});
    kernels->layer_norm_backward(&(choir__k_layer_norm_backward){B(1), B(3), B(5), B(6), B(2),
        B(4), B(8), NULL, NULL, NULL, ROWS, COLS, f, f, false, {0, 0}});
}

/* Two query heads for each of two heads of keys, with a bias that samples share. */
static void attention(void)
{
    enum { BATCH = 3, H = 4, G = 2, T = 20, D = 16 };
    const choir__attention_shape n = {
        .b = BATCH, .h = H, .g = G, .t = T, .s = T, .d = D, .scale = 0.25f, .causal = true};
    const choir__heads q = {B(1), T * H * D, D, H * D}, k = {B(2), T * G * D, D, G * D};
    choir__heads v = k, y = q, gy = q, gq = q, gk = k, gv = k;
    choir__attention_bias bias = {B(9), 1, {0, T * T, T}};
    v.p = B(3), y.p = B(0), gy.p = B(5), gq.p = B(6), gk.p = B(7), gv.p = B(8);
    choir__k_attention args = {.q = q,
        .k = k,
        .v = v,
        .y = y,
        .gy = gy,
        .gq = gq,
        .gk = gk,
        .gv = gv,
        .bias = bias,
        .lse = B(4),
        .n = n,
        .dtype = CHOIR_F32};
    kernels->attention(&args);
    kernels->attention_backward(&args);
}

static void optimizers(void)
{
    static double sums[1024];
    choir__opt_entry entries[] = {
        {.param = B(0), .grad = B(1), .m = B(2), .v = B(3), .n = N, .row = COLS},
        {.param = B(4), .grad = B(5), .m = B(6), .v = B(7), .n = 5, .row = 5},
        {.param = B(4), .grad = B(5), .m = B(6), .v = B(7)}, /* an empty shard */
        {.param = buffer[4] + 64,
            .grad = buffer[5] + 64,
            .m = buffer[6] + 64,
            .v = buffer[7] + 64,
            .n = N - 1,
            .row = COLS,
            .group = 1},
    };
    choir__opt_hyper hyper[2] = {{.lr = 0.1f,
        .beta1 = 0.9f,
        .beta2 = 0.99f,
        .eps = 1e-8f,
        .momentum = 0.9f,
        .step_size = 0.1f,
        .rsqrt_bias2 = 1,
        .decoupled = 1}};
    hyper[1] = hyper[0];
    hyper[1].lr = 0.2f;
    choir__k_optim k = {.entries = entries, .count = 4, .hyper = hyper};
    memset(sums, 0, sizeof sums);
    kernels->grad_norm(&(choir__k_grad_norm){.entries = entries,
        .count = 4,
        .given = 2,
        .rows = sums,
        .norm = B(8),
        .clip = buffer[8] + 8,
        .max_norm = 1});
    memcpy(buffer[9], sums, sizeof sums);
    kernels->adam(&k);
    kernels->sgd(&k);
}

static void hashes(void)
{
    uint64_t sums[2] = {0};
    kernels->hash(&(choir__k_hash){.x = B(0), .sum = &sums[0], .rows = 1, .cols = N, .at = 3});
    kernels->hash(&(choir__k_hash){.x = B(1),
        .sum = &sums[1],
        .rows = N / COLS,
        .cols = COLS - 1,
        .row = COLS,
        .at_row = 7});
    memcpy(buffer[8], sums, sizeof sums);
}

/* (64, 3072) by (3072, 64): threads that share the sum over 3072 would have other bits. */
static void products(void)
{
    choir__k_matmul k = dense_product(CHOIR_F32, B(1), B(2), B(0), 64, 64, 3072);
    k.a_row = 1, k.a_col = 64;
    kernels->matmul(&k);
    k = dense_product(CHOIR_F32, B(1), B(2), B(4), 128, 96, 80);
    k.b_row = 1, k.b_col = 80;
    k.bias = B(3), k.accumulate = true;
    kernels->matmul(&k);
}

static void convolutions(void)
{
    choir__conv_shape s = {.n = 4,
        .c = 16,
        .h = 12,
        .w = 12,
        .o = 16,
        .oh = 12,
        .ow = 12,
        .kh = 3,
        .kw = 3,
        .stride_h = 1,
        .stride_w = 1,
        .pad_h = 1,
        .pad_w = 1,
        .dilation_h = 1,
        .dilation_w = 1,
        .groups = 1};
    kernels->conv(
        &(choir__k_conv){.x = B(1), .w = B(2), .y = B(0), .s = s, .dtype = CHOIR_F32});
    kernels->conv_backward_input(&(choir__k_conv_backward_input){
        .gy = B(3), .w = B(2), .gx = B(4), .s = s, .dtype = CHOIR_F32});
    kernels->conv_backward_weight(&(choir__k_conv_backward_weight){
        .gy = B(3), .x = B(1), .gw = B(5), .s = s, .dtype = CHOIR_F32});
}

static void bits_do_not_depend_on_threads(void **state)
{
    for (int b = 0; b < BUFFERS; b++)
        buffer[b] = aligned_alloc(64, sizeof(float) * MOST);
    compare("elements", elements);
    compare("strided", strided);
    compare("rows", rows);
    compare("norms", norms);
    compare("attention", attention);
    compare("optimizers", optimizers);
    compare("hashes", hashes);
    compare("products", products);
    compare("convolutions", convolutions);
    for (int b = 0; b < BUFFERS; b++)
        free(buffer[b]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_do_not_depend_on_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
