/* Times one training step of ResNet-50, kernel by kernel, on one core:
 *
 *     choir_bench_conv [--batch 8] [--isa avx512] [--filter "3x3"] [--rounds 5] [--cold 1]
 *
 * It runs every distinct convolution (at 224 x 224; `count` is its number in the network) in
 * its three passes, and prints the rate next to that of a 1024^3 matrix product measured
 * between the runs; then batch norm, pooling and AdamW next to a memcpy. The sum is the
 * duration of a step that consists of these kernels alone. Depthwise convolutions (one channel
 * a group) of MobileNetV2 and ConvNeXt come last and are not counted. FLOPs are 2 per
 * multiply-add; the first convolution has no backward input. Times are the thread's CPU time,
 * the minimum of the rounds, so that other load on the machine matters little and affects the
 * yardstick equally. Operands stay in the caches as the last call left them; with --cold 1 they
 * are in memory, beyond all caches. A real step is between the two. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "base/rng.h"
#include "device/cpu/context.h"

typedef struct layer {
    int count, kernel, stride, in, c, o; /* in: pixels per side */
} layer;

static const layer layers[] = {
    {1, 7, 2, 224, 3, 64},
    {1, 1, 1, 56, 64, 64},
    {2, 1, 1, 56, 256, 64},
    {3, 3, 1, 56, 64, 64},
    {4, 1, 1, 56, 64, 256},
    {1, 1, 1, 56, 256, 128},
    {1, 3, 2, 56, 128, 128},
    {1, 1, 2, 56, 256, 512},
    {4, 1, 1, 28, 128, 512},
    {3, 1, 1, 28, 512, 128},
    {3, 3, 1, 28, 128, 128},
    {1, 1, 1, 28, 512, 256},
    {1, 3, 2, 28, 256, 256},
    {1, 1, 2, 28, 512, 1024},
    {6, 1, 1, 14, 256, 1024},
    {5, 1, 1, 14, 1024, 256},
    {5, 3, 1, 14, 256, 256},
    {1, 1, 1, 14, 1024, 512},
    {1, 3, 2, 14, 512, 512},
    {1, 1, 2, 14, 1024, 2048},
    {3, 1, 1, 7, 512, 2048},
    {2, 1, 1, 7, 2048, 512},
    {2, 3, 1, 7, 512, 512},
};

/* One channel a group. Their limit is memory: 0.75 to 5 multiply-adds a byte of one pass. */
static const layer depthwise[] = {
    {0, 3, 1, 112, 32, 32},
    {0, 3, 2, 112, 96, 96},
    {0, 3, 1, 28, 192, 192},
    {0, 3, 1, 14, 576, 576},
    {0, 7, 1, 56, 96, 96},
    {0, 7, 1, 14, 384, 384},
};

/* Batch norms, by the pixels per side and the channels of their convolutions' outputs. */
static const struct {
    int relu, merged, plain, side, c;
} norms[] = {
    {1, 0, 0, 112, 64},
    {6, 0, 0, 56, 64},
    {0, 3, 1, 56, 256},
    {1, 0, 0, 56, 128},
    {7, 0, 0, 28, 128},
    {0, 4, 1, 28, 512},
    {1, 0, 0, 28, 256},
    {11, 0, 0, 14, 256},
    {0, 6, 1, 14, 1024},
    {1, 0, 0, 14, 512},
    {5, 0, 0, 7, 512},
    {0, 3, 1, 7, 2048},
};

enum { PARAMETERS = 25557032, N = 1024 };

static const choir__kernels *kernels;
static const char *filter = "";
static int rounds = 5;
static bool cold; /* empty the caches before each timed call */

/* --- operands --- */

typedef struct block {
    float *p;
    size_t bytes;
} block;

static block blocks[32];
static int block_count;

/* Numbers in [low, 1), in memory as the devices' pools have it. */
static float *floats_from(int64_t n, float low)
{
    size_t bytes = ((size_t)n * sizeof(float) + (2 << 20) - 1) & ~(size_t)((2 << 20) - 1);
    float *x = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (x == MAP_FAILED || block_count == CHOIR_COUNT(blocks)) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    madvise(x, bytes, MADV_HUGEPAGE);
    blocks[block_count++] = (block){x, bytes};
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = low + (1 - low) * choir__unit(state);
    }
    return x;
}

static float *floats(int64_t n)
{
    return floats_from(n, -1);
}

static void free_to(int count)
{
    while (block_count > count) {
        block *b = &blocks[--block_count];
        munmap(b->p, b->bytes);
    }
}

/* --- timing --- */

typedef void kernel_fn(const void *args);

static double cpu_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void call(size_t kernel, const void *args)
{
    kernel_fn *fn;
    memcpy(&fn, (const char *)kernels + kernel, sizeof fn);
    fn(args);
}

/* Writes more memory than the last-level cache holds. */
static void empty_caches(void)
{
    static float *big;
    enum { FLOATS = 160 << 20 };
    if (!cold)
        return;
    if (!big)
        big = floats(FLOATS);
    for (int64_t i = 0; i < FLOATS; i += 16)
        big[i] += 1;
}

#define TIMED(best, what)                                                                      \
    do {                                                                                       \
        double start_ = cpu_time();                                                            \
        what;                                                                                  \
        double time_ = cpu_time() - start_;                                                    \
        best = best > 0 && best < time_ ? best : time_;                                        \
    } while (0)

/* The yardsticks: a matrix product's FLOP/s, and the bytes a second that memcpy reads and
 * writes of memory beyond the second-level cache. */
static choir__k_matmul product;
static float *from, *to;
enum { COPY = 32 << 20 };

static double product_time(void)
{
    double best = 0;
    TIMED(best, kernels->matmul(&product));
    return best;
}

static void make_yardsticks(void)
{
    product = (choir__k_matmul){.a = floats(N * N),
        .b = floats(N * N),
        .c = floats(N * N),
        .batch0 = 1,
        .batch1 = 1,
        .m = N,
        .n = N,
        .k = N,
        .a_row = N,
        .a_col = 1,
        .b_row = N,
        .b_col = 1,
        .c_row = N};
    empty_caches();
    from = floats(COPY / 4);
    to = floats(COPY / 4);
    product_time();
}

static struct {
    double seconds, flops, at_peak; /* at_peak: seconds those flops would take a product */
    double pass[3], pass_flops[3];  /* seconds and flops per pass of the convolutions */
} sum;

static double time_pass(size_t kernel, const void *args, int count, double flops, int pass)
{
    double best = 0, yard = 0;
    call(kernel, args);
    for (int i = 0; i < rounds; i++) {
        double t = product_time();
        yard = yard > 0 && yard < t ? yard : t;
        empty_caches();
        TIMED(best, call(kernel, args));
    }
    double peak = 2.0 * N * N * N / yard;
    sum.seconds += count * best;
    sum.flops += count * flops;
    sum.at_peak += count * flops / peak;
    sum.pass[pass] += count * best;
    sum.pass_flops[pass] += count * flops / peak;
    printf("  %8.2f %6.1f %4.0f%%", 1e3 * best, 1e-9 * flops / best, 100 * flops / best / peak);
    fflush(stdout);
    return best;
}

#define PASS(kernel, pass, ...)                                                                \
    time_pass(offsetof(choir__kernels, kernel), &(choir__k_##kernel){__VA_ARGS__}, l->count,   \
        flops, pass)

static void bench_layer(const layer *l, int groups, int64_t batch)
{
    char name[64];
    const int64_t in = l->c / groups;
    snprintf(name, sizeof name, "%dx%d/%d %d>%d @%d", l->kernel, l->kernel, l->stride, l->c,
        l->o, l->in);
    if (!strstr(name, filter))
        return;
    int64_t k = l->kernel, out = l->in / l->stride;
    choir__conv_shape s = {.n = batch,
        .h = l->in,
        .w = l->in,
        .c = l->c,
        .oh = out,
        .ow = out,
        .o = l->o,
        .kh = k,
        .kw = k,
        .groups = groups,
        .stride_h = l->stride,
        .stride_w = l->stride,
        .pad_h = k / 2,
        .pad_w = k / 2,
        .dilation_h = 1,
        .dilation_w = 1};
    int64_t x = batch * l->in * l->in * l->c, y = batch * out * out * l->o,
            w = l->o * k * k * in;
    double flops = 2.0 * (double)y * (double)(k * k * in), total = 0;
    int mark = block_count;
    float *image = floats(x), *weights = floats(w), *result = floats(y);
    printf("%-22s %2d", name, l->count);
    total += PASS(conv, 0, .x = image, .w = weights, .y = result, .s = s);
    if (l->c > 3)
        total += PASS(conv_backward_input, 1, .gy = result, .w = weights, .gx = image, .s = s);
    else
        printf("  %8s %6s %5s", "", "", "");
    total += PASS(conv_backward_weight, 2, .gy = result, .x = image, .gw = weights, .s = s);
    printf("  %8.1f\n", 1e3 * l->count * total);
    free_to(mark);
}

/* Prints a line for a memory-bound kernel: the bytes that must move, and memcpy's rate. */
static void memory_line(
    const char *name, int count, size_t kernel, const void *args, double bytes)
{
    double best = 0, copy = 0;
    if (!strstr(name, filter))
        return;
    call(kernel, args);
    for (int i = 0; i < rounds; i++) {
        TIMED(copy, memcpy(to, from, COPY));
        empty_caches();
        TIMED(best, call(kernel, args));
    }
    sum.seconds += count * best;
    printf("%-34s %2d  %8.2f %6.1f GB/s  memcpy %5.1f  %8.1f\n", name, count, 1e3 * best,
        1e-9 * bytes / best, 2e-9 * COPY / copy, 1e3 * count * best);
}

#define MEMORY(name, count, kernel, bytes, ...)                                                \
    memory_line(name, count, offsetof(choir__kernels, kernel),                                 \
        &(choir__k_##kernel){__VA_ARGS__}, (double)(bytes))

/* The op after a batch norm: ReLU for most; the shortcut's sum and ReLU for the last of a block
 * (merged); none for the shortcut's own, one per stage. */
typedef enum after { RELU, MERGED, PLAIN } after;

static void bench_norm(int count, int64_t rows, int64_t c, after kind)
{
    static const char *const kinds[] = {"relu", "sum", ""};
    char name[64];
    int mark = block_count;
    int64_t n = rows * c;
    bool relu = kind != PLAIN, merged = kind == MERGED;
    float *x = floats(n), *y = floats(n), *g = floats(n), *gamma = floats(c), *beta = floats(c),
          *mean = floats(c), *rstd = floats_from(c, 0.5f), *more = merged ? floats(n) : NULL;
    snprintf(
        name, sizeof name, "norm %lld x %lld %s", (long long)rows, (long long)c, kinds[kind]);
    MEMORY(name, count, batch_norm, (merged ? 12 : 8) * n, .x = x, .y = y, .gamma = gamma,
        .beta = beta, .mean = mean, .rstd = rstd, .running_mean = floats(c),
        .running_var = floats_from(c, 0.5f), .rows = rows, .cols = c, .eps = 1e-5f,
        .momentum = 0.1f, .train = true, .update = true, .relu = relu, .residual = more);
    snprintf(name, sizeof name, "norm back %lld x %lld %s", (long long)rows, (long long)c,
        kinds[kind]);
    MEMORY(name, count, batch_norm_backward, (merged ? 20 : 12) * n, .x = x, .gy = y, .gx = g,
        .gamma = gamma, .beta = beta, .mean = mean, .rstd = rstd, .ggamma = floats(c),
        .gbeta = floats(c), .rows = rows, .cols = c, .train = true, .relu = relu, .y = more,
        .gresidual = merged ? y : NULL);
    free_to(mark);
}

/* The stem's 3x3 stride 2 maximum, and the average of the last 7x7 pixels. */
static void bench_pools(int64_t batch)
{
    int mark = block_count;
    choir__conv_shape s = {.n = batch,
        .h = 112,
        .w = 112,
        .c = 64,
        .o = 64,
        .oh = 56,
        .ow = 56,
        .kh = 3,
        .kw = 3,
        .groups = 1,
        .stride_h = 2,
        .stride_w = 2,
        .pad_h = 1,
        .pad_w = 1,
        .dilation_h = 1,
        .dilation_w = 1};
    int64_t in = batch * 112 * 112 * 64, out = in / 4;
    float *x = floats(in), *y = floats(out);
    uint8_t *index = (uint8_t *)floats(out);
    MEMORY("max pool 3x3/2", 1, pool, 4 * in + 5 * out, .x = x, .y = y, .index = index, .s = s,
        .max = true);
    MEMORY("max pool back 3x3/2", 1, pool_backward, 4 * in + 5 * out, .gx = x, .gy = y,
        .index = index, .s = s, .max = true);
    s.h = s.w = s.kh = s.kw = 7, s.c = s.o = 2048, s.oh = s.ow = 1, s.pad_h = s.pad_w = 0;
    in = batch * 49 * 2048, out = batch * 2048;
    MEMORY("average pool 7x7", 1, pool, 4 * (in + out), .x = x, .y = y, .s = s);
    MEMORY("average pool back 7x7", 1, pool_backward, 4 * (in + out), .gx = x, .gy = y, .s = s);
    free_to(mark);
}

static void bench_adamw(void)
{
    int mark = block_count;
    static float clip = 1;
    choir__opt_hyper h = {.lr = 1e-4f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .eps = 1e-8f,
        .weight_decay = 0.01f,
        .step_size = 1e-4f,
        .rsqrt_bias2 = 1,
        .decoupled = 1};
    choir__opt_entry e = {.param = floats(PARAMETERS),
        .grad = floats(PARAMETERS),
        .m = floats(PARAMETERS),
        .v = floats_from(PARAMETERS, 0),
        .n = PARAMETERS,
        .row = 2048};
    MEMORY("adamw", 1, adam, 28.0 * PARAMETERS, .entries = &e, .count = 1, .hyper = &h,
        .clip = &clip);
    free_to(mark);
}

static void print_sum(void)
{
    static const char *const passes[] = {"forward", "backward input", "backward weight"};
    for (int i = 0; i < 3; i++)
        if (sum.pass[i] > 0)
            printf("convolutions, %-16s %8.1f ms  %4.0f%% of the matrix product's rate\n",
                passes[i], 1e3 * sum.pass[i], 100 * sum.pass_flops[i] / sum.pass[i]);
    if (sum.flops > 0)
        printf("all: %.1f GFLOP in %.1f ms, %.0f%% of the matrix product's rate\n",
            1e-9 * sum.flops, 1e3 * sum.seconds, 100 * sum.at_peak / sum.seconds);
}

int main(int argc, char **argv)
{
    const char *isa = NULL;
    int64_t batch = 8;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--isa"))
            isa = argv[i + 1];
        else if (!strcmp(argv[i], "--filter"))
            filter = argv[i + 1];
        else if (!strcmp(argv[i], "--batch"))
            batch = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--cold"))
            cold = atoi(argv[i + 1]);
        else if (!strcmp(argv[i], "--rounds"))
            rounds = atoi(argv[i + 1]);
    }
    const char *all[] = {"avx512", "avx2", "baseline"};
    for (size_t i = 0; i < CHOIR_COUNT(all) && !kernels; i++)
        if (!isa || !strcmp(isa, all[i]))
            kernels = choir__cpu_kernels(all[i]);
    if (!kernels) {
        fprintf(stderr, "this machine has no %s\n", isa);
        return 1;
    }
    make_yardsticks();
    printf("1024^3 matrix product: %.1f GFLOP/s\n", 2e-9 * N * N * N / product_time());
    printf("%-22s %2s  %8s %6s %5s  %8s %6s %5s  %8s %6s %5s  %8s\n", "convolution", "n",
        "forward", "GF/s", "", "input", "GF/s", "", "weight", "GF/s", "", "ms a step");
    for (size_t i = 0; i < CHOIR_COUNT(layers); i++)
        bench_layer(&layers[i], 1, batch);
    for (size_t i = 0; i < CHOIR_COUNT(norms); i++) {
        int64_t rows = batch * norms[i].side * norms[i].side;
        int counts[] = {norms[i].relu, norms[i].merged, norms[i].plain};
        for (int j = 0; j < 3; j++)
            if (counts[j])
                bench_norm(counts[j], rows, norms[i].c, (after)j);
    }
    bench_pools(batch);
    bench_adamw();
    print_sum();
    for (size_t i = 0; i < CHOIR_COUNT(depthwise); i++)
        bench_layer(&depthwise[i], depthwise[i].c, batch);
    return 0;
}
