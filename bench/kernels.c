/* Times the CPU kernels at the sizes of a small GPT and of GPT-2 124M:
 *
 *     choir_bench_kernels [--isa avx512] [--filter adam]
 *
 * Each kernel has one line: its best time of many calls, and the resulting memory traffic or
 * arithmetic. A kernel's operands stay where the last call left them, so small ones are timed
 * in cache. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rng.h"
#include "device/cpu/context.h"

static const choir__kernels *kernels;
static const char *filter = "";

/* Floats in [-1, 1), or zeros; freed with all others at the end of a line. */
static void *blocks[32];
static int block_count;

static float *floats(int64_t n)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) & ~(size_t)63);
    if (!x) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    blocks[block_count++] = x;
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = 2 * choir__unit(state) - 1;
    }
    return x;
}

static float *positive(int64_t n)
{
    float *x = floats(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = 0.5f * (x[i] + 1.001f);
    return x;
}

static int64_t *ids(int64_t n, int64_t below)
{
    float *x = floats(2 * n);
    int64_t *id = (int64_t *)x;
    for (int64_t i = 0; i < n; i++)
        id[i] = i * 7919 % below;
    return id;
}

typedef void kernel_fn(const void *args);

/* Calls fn for about a fifth of a second and returns the best time of a call. Short calls are
 * timed several in a row, for at least 5 us. */
static double best_time(kernel_fn *fn, const void *args)
{
    double best = 1e9, start = choir__now(), end = start + 0.2;
    fn(args);
    double once = choir__now() - start;
    int inner = once > 5e-6 ? 1 : (int)(5e-6 / once) + 1;
    for (double now = 0; now < end;) {
        double t0 = choir__now();
        for (int i = 0; i < inner; i++)
            fn(args);
        now = choir__now();
        if ((now - t0) / inner < best)
            best = (now - t0) / inner;
    }
    return best;
}

/* Prints a line: work is bytes moved, or flops, of one call. */
static void line(const char *name, const char *size, double work, const char *unit,
    size_t kernel, const void *args, double elements)
{
    kernel_fn *fn;
    memcpy(&fn, (const char *)kernels + kernel, sizeof fn);
    double t = best_time(fn, args);
    printf("%-22s %-22s %10.2f %9.1f %-8s", name, size, 1e6 * t, work / t * 1e-9, unit);
    if (elements > 0)
        printf(" %7.3f", 1e9 * t / elements);
    printf("\n");
    while (block_count > 0)
        free(blocks[--block_count]);
}

#define WANTED(name) (strstr(name, filter) != NULL)
#define BYTES(name, kernel, size, bytes, elements, ...)                                        \
    do {                                                                                       \
        if (WANTED(name))                                                                      \
            line(name, size, (double)(bytes), "GB/s", offsetof(choir__kernels, kernel),        \
                &(choir__k_##kernel){__VA_ARGS__}, (double)(elements));                        \
    } while (0)
#define FLOPS(name, kernel, size, flops, ...)                                                  \
    do {                                                                                       \
        if (WANTED(name))                                                                      \
            line(name, size, (double)(flops), "GFLOP/s", offsetof(choir__kernels, kernel),     \
                &(choir__k_##kernel){__VA_ARGS__}, 0);                                         \
    } while (0)

/* Element by element and row by row, at rows x cols. */
static void bench_rows(int64_t rows, int64_t cols)
{
    char size[64];
    int64_t n = rows * cols;
    snprintf(size, sizeof size, "%lld x %lld", (long long)rows, (long long)cols);
    BYTES("gelu_tanh", unary, size, 8 * n, n, .x = floats(n), .y = floats(n), .n = n,
        .op = CHOIR__GELU_TANH);
    BYTES("gelu_tanh_backward", unary_backward, size, 12 * n, n, .x = floats(n),
        .gy = floats(n), .gx = floats(n), .n = n, .op = CHOIR__GELU_TANH);
    BYTES("gelu", unary, size, 8 * n, n, .x = floats(n), .y = floats(n), .n = n,
        .op = CHOIR__GELU);
    BYTES("relu", unary, size, 8 * n, n, .x = floats(n), .y = floats(n), .n = n,
        .op = CHOIR__RELU);
    BYTES("add_scaled", add_scaled, size, 12 * n, n, .a = floats(n), .b = floats(n),
        .y = floats(n), .n = n, .scale = 0.5f);
    BYTES("add", binary, size, 12 * n, n, .a = {floats(n), {cols, 1}},
        .b = {floats(n), {cols, 1}}, .y = {floats(n), {cols, 1}}, .shape = {rows, cols},
        .ndim = 2, .op = CHOIR__ADD);
    BYTES("add_row", binary, size, 8 * n, n, .a = {floats(n), {cols, 1}},
        .b = {floats(cols), {0, 1}}, .y = {floats(n), {cols, 1}}, .shape = {rows, cols},
        .ndim = 2, .op = CHOIR__ADD);
    BYTES("sum_columns", sum, size, 4 * n, n, .x = floats(n), .y = floats(cols), .rows = rows,
        .cols = cols, .scale = 1, .over_rows = true);
    BYTES("sum_rows", sum, size, 4 * n, n, .x = floats(n), .y = floats(rows), .rows = rows,
        .cols = cols, .scale = 1);
    BYTES("layer_norm", layer_norm, size, 8 * n, n, .x = floats(n), .gamma = floats(cols),
        .beta = floats(cols), .y = floats(n), .mean = floats(rows), .rstd = floats(rows),
        .rows = rows, .cols = cols, .eps = 1e-5f);
    BYTES("layer_norm_backward", layer_norm_backward, size, 16 * n, n, .x = floats(n),
        .gamma = floats(cols), .mean = floats(rows), .rstd = positive(rows), .gy = floats(n),
        .gx_add = floats(n), .gx = floats(n), .rows = rows, .cols = cols);
    BYTES("layer_norm_weights", layer_norm_weights, size, 8 * n, n, .x = floats(n),
        .mean = floats(rows), .rstd = positive(rows), .gy = floats(n), .ggamma = floats(cols),
        .gbeta = floats(cols), .rows = rows, .cols = cols);
    BYTES("transpose", copy, size, 8 * n, n, .x = {floats(n), {1, cols}},
        .y = {floats(n), {rows, 1}}, .shape = {cols, rows}, .ndim = 2);
    BYTES("f32 to bf16", copy, size, 6 * n, n, .x = {floats(n), {1}}, .y = {floats(n), {1}},
        .shape = {n}, .ndim = 1, .y_dtype = CHOIR_BF16);
    BYTES("bf16 to f32", copy, size, 6 * n, n, .x = {floats(n), {1}}, .y = {floats(n), {1}},
        .shape = {n}, .ndim = 1, .x_dtype = CHOIR_BF16);
    BYTES("f32 to f16", copy, size, 6 * n, n, .x = {floats(n), {1}}, .y = {floats(n), {1}},
        .shape = {n}, .ndim = 1, .y_dtype = CHOIR_F16);
    BYTES("f16 to f32", copy, size, 6 * n, n, .x = {floats(n), {1}}, .y = {floats(n), {1}},
        .shape = {n}, .ndim = 1, .x_dtype = CHOIR_F16);
    static uint64_t step = 3;
    BYTES("dropout", dropout, size, 8 * n, n, .x = floats(n), .y = floats(n), .step = &step,
        .n = n, .key = 42, .p = 0.1f);
}

/* q, k and v are the thirds of (B, T, 3C); y (B, T, C). FLOPs count all keys, visible or not.
 */
static void bench_attention(int64_t b, int64_t h, int64_t t, int64_t hd)
{
    char size[64];
    int64_t c = h * hd, rows = b * h * t;
    snprintf(size, sizeof size, "%lldx%lldx%lld hd %lld", (long long)b, (long long)h,
        (long long)t, (long long)hd);
    BYTES("softmax", softmax, size, 8 * rows * t, rows * t, .x = floats(rows * t),
        .y = floats(rows * t), .rows = rows, .cols = t);
    BYTES("softmax_backward", softmax_backward, size, 12 * rows * t, rows * t,
        .y = floats(rows * t), .gy = floats(rows * t), .gx = floats(rows * t), .rows = rows,
        .cols = t);
    double flops = 4.0 * (double)rows * (double)t * (double)hd;
    choir__attention_shape n = {
        .b = b, .h = h, .g = h, .t = t, .s = t, .d = hd, .scale = 0.125f, .causal = true};
    choir__heads x = {floats(3 * b * t * c), t * 3 * c, hd, 3 * c};
    choir__heads y = {floats(b * t * c), t * c, hd, c};
    float *lse = floats(rows);
    for (int64_t i = 0; i < rows; i++)
        lse[i] = 1; /* scores are small */
    FLOPS("attention causal", attention, size, flops, .q = x, .k = x, .v = x, .y = y,
        .lse = floats(rows), .n = n);
    choir__heads g = {floats(3 * b * t * c), t * 3 * c, hd, 3 * c};
    FLOPS("attention_backward causal", attention_backward, size, 2.5 * flops, .q = x, .k = x,
        .v = x, .gy = y, .gq = g, .gk = g, .gv = g, .lse = lse, .n = n);
}

/* A linear layer's three products: y = x W^T + b, gx = gy W, gW = gy^T x. W is (n, k). */
static void bench_linear(int64_t m, int64_t n, int64_t k)
{
    char size[64];
    double flops = 2.0 * (double)m * (double)n * (double)k;
    snprintf(size, sizeof size, "%lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    FLOPS("linear", matmul, size, flops, .a = floats(m * k), .b = floats(n * k),
        .bias = floats(n), .c = floats(m * n), .batch0 = 1, .batch1 = 1, .m = m, .n = n, .k = k,
        .a_row = k, .a_col = 1, .b_row = 1, .b_col = k, .c_row = n);
    FLOPS("linear input", matmul, size, flops, .a = floats(m * n), .b = floats(n * k),
        .c = floats(m * k), .batch0 = 1, .batch1 = 1, .m = m, .n = k, .k = n, .a_row = n,
        .a_col = 1, .b_row = k, .b_col = 1, .c_row = k);
    FLOPS("linear weight", matmul, size, flops, .a = floats(m * n), .b = floats(m * k),
        .c = floats(n * k), .batch0 = 1, .batch1 = 1, .m = n, .n = k, .k = m, .a_row = 1,
        .a_col = n, .b_row = k, .b_col = 1, .c_row = k);
}

static void bench_loss(int64_t rows, int64_t cols)
{
    char size[64];
    int64_t n = rows * cols;
    snprintf(size, sizeof size, "%lld x %lld", (long long)rows, (long long)cols);
    BYTES("cross_entropy", cross_entropy, size, 4 * n, n, .logits = floats(n),
        .targets = ids(rows, cols), .loss = floats(1), .lse = floats(rows), .count = floats(1),
        .rows = rows, .cols = cols, .ignore_index = -100);
    BYTES("cross_entropy_back", cross_entropy_backward, size, 8 * n, n, .logits = floats(n),
        .lse = positive(rows), .count = positive(1), .gloss = positive(1),
        .targets = ids(rows, cols), .glogits = floats(n), .rows = rows, .cols = cols,
        .ignore_index = -100);
    BYTES("max_rows", max_rows, size, 4 * n, n, .x = floats(n), .y = floats(rows),
        .index = ids(rows, cols), .rows = rows, .cols = cols);
}

static void bench_optim(int64_t n)
{
    char size[64];
    static float clip = 0.9f;
    snprintf(size, sizeof size, "%lld", (long long)n);
    choir__opt_hyper h = {.lr = 1e-4f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-8f,
        .weight_decay = 0.1f,
        .momentum = 0.9f,
        .step_size = 1e-4f,
        .rsqrt_bias2 = 1,
        .decoupled = 1};
    const char *names[] = {"adam", "sgd momentum", "grad_norm"};
    for (int i = 0; i < 3; i++) {
        if (!WANTED(names[i]))
            continue;
        choir__opt_entry e = {.param = floats(n),
            .grad = floats(n),
            .m = floats(n),
            .v = positive(n),
            .n = n,
            .row = 768};
        if (i == 0)
            BYTES("adam", adam, size, 28 * n, n, .entries = &e, .count = 1, .hyper = &h,
                .clip = &clip);
        else if (i == 1)
            BYTES("sgd momentum", sgd, size, 20 * n, n, .entries = &e, .count = 1, .hyper = &h,
                .clip = &clip);
        else
            BYTES("grad_norm", grad_norm, size, 4 * n, n, .entries = &e, .count = 1,
                .rows = (double *)floats(2 * (n / 768 + 1)), .norm = floats(1),
                .clip = floats(1), .max_norm = 1);
    }
}

static void bench_embedding(int64_t n, int64_t rows, int64_t cols)
{
    char size[64];
    snprintf(size, sizeof size, "%lld of %lld x %lld", (long long)n, (long long)rows,
        (long long)cols);
    BYTES("embedding", embedding, size, 8 * n * cols, n * cols, .table = floats(rows * cols),
        .ids = ids(n, rows), .y = floats(n * cols), .n = n, .rows = rows, .cols = cols);
    if (!WANTED("embedding_backward"))
        return;
    const int64_t *leaf_ids[1] = {ids(n, rows)};
    const void *grads[1] = {floats(n * cols)};
    BYTES("embedding_backward", embedding_backward, size, 4 * (n + rows) * cols, n * cols,
        .ids = leaf_ids, .grads = grads, .counts = &n, .leaves = 1, .y = floats(rows * cols),
        .rows = rows, .cols = cols, .scale = 1);
}

static void bench_images(int64_t n, int64_t hw, int64_t c, int64_t o, int64_t k)
{
    char size[64];
    snprintf(size, sizeof size, "%lldx%lldx%lld>%lld %lldx%lld", (long long)n, (long long)hw,
        (long long)c, (long long)o, (long long)k, (long long)k);
    choir__conv_shape s = {.n = n,
        .h = hw,
        .w = hw,
        .c = c,
        .oh = hw,
        .ow = hw,
        .o = o,
        .kh = k,
        .kw = k,
        .groups = 1,
        .stride_h = 1,
        .stride_w = 1,
        .pad_h = k / 2,
        .pad_w = k / 2,
        .dilation_h = 1,
        .dilation_w = 1};
    int64_t pixels = n * hw * hw, w = o * k * k * c;
    double flops = 2.0 * (double)pixels * (double)w;
    FLOPS("conv", conv, size, flops, .x = floats(pixels * c), .w = floats(w), .bias = floats(o),
        .y = floats(pixels * o), .s = s);
    FLOPS("conv input", conv_backward_input, size, flops, .gy = floats(pixels * o),
        .w = floats(w), .gx = floats(pixels * c), .s = s);
    FLOPS("conv weight", conv_backward_weight, size, flops, .gy = floats(pixels * o),
        .x = floats(pixels * c), .gw = floats(w), .gbias = floats(o), .s = s);
    BYTES("batch_norm", batch_norm, size, 12 * pixels * o, pixels * o, .x = floats(pixels * o),
        .gamma = floats(o), .beta = floats(o), .y = floats(pixels * o), .mean = floats(o),
        .rstd = floats(o), .running_mean = floats(o), .running_var = positive(o),
        .rows = pixels, .cols = o, .eps = 1e-5f, .momentum = 0.1f, .train = true,
        .update = true);
    BYTES("batch_norm_backward", batch_norm_backward, size, 20 * pixels * o, pixels * o,
        .x = floats(pixels * o), .gamma = floats(o), .mean = floats(o), .rstd = positive(o),
        .gy = floats(pixels * o), .gx = floats(pixels * o), .ggamma = floats(o),
        .gbeta = floats(o), .rows = pixels, .cols = o, .train = true);
    s.o = c, s.kh = s.kw = s.stride_h = s.stride_w = 2, s.pad_h = s.pad_w = 0;
    s.oh = s.ow = hw / 2;
    BYTES("max pool 2x2", pool, size, 5 * pixels * c, pixels * c, .x = floats(pixels * c),
        .y = floats(pixels * c), .index = (uint8_t *)floats(pixels * c), .s = s, .max = true);
    if (WANTED("max pool backward")) {
        uint8_t *index = memset(floats(pixels * c), 0, (size_t)(pixels * c));
        BYTES("max pool backward", pool_backward, size, 5 * pixels * c, pixels * c,
            .gy = floats(pixels * c), .gx = floats(pixels * c), .index = index, .s = s,
            .max = true);
    }
}

int main(int argc, char **argv)
{
    const char *isa = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--isa"))
            isa = argv[i + 1];
        else if (!strcmp(argv[i], "--filter"))
            filter = argv[i + 1];
    }
    const char *all[] = {"avx512", "avx2", "baseline"};
    for (size_t i = 0; i < CHOIR_COUNT(all) && !kernels; i++)
        if (!isa || !strcmp(isa, all[i]))
            kernels = choir__cpu_kernels(all[i]);
    if (!kernels) {
        fprintf(stderr, "this machine has no %s\n", isa);
        return 1;
    }
    printf("%-22s %-22s %10s %9s %-8s %7s\n", "kernel", "size", "us", "rate", "", "ns/elt");
    bench_rows(768, 128);
    bench_rows(768, 512);
    bench_rows(256, 3072);
    bench_attention(12, 4, 64, 32);
    bench_attention(4, 12, 64, 64);
    bench_linear(768, 384, 128);
    bench_linear(768, 128, 512);
    bench_linear(768, 65, 128);
    bench_linear(256, 3072, 768);
    bench_linear(256, 50257, 768);
    bench_loss(768, 65);
    bench_loss(256, 50257);
    bench_embedding(768, 65, 128);
    bench_embedding(256, 50257, 768);
    bench_optim(800000);
    bench_optim(124439808);
    bench_images(64, 28, 16, 32, 3);
    bench_images(64, 28, 1, 32, 3);
    bench_images(16, 14, 256, 256, 3);
    return 0;
}
