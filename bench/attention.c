/* Attention, forward and backward, on one core: GFLOP/s, counted by the visible pairs of a
 * query and a key (4 D operations forward, 10 D backward), beside the rate of a large product.
 *
 *     choir_bench_attention [HEADS TOKENS D [full]]...    default: a table of shapes, causal
 *
 * A line has H, T, D and the two rates. bench/attention.sh adds PyTorch's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/device.h>

#include "device/cpu/context.h"
#include "median.h"

enum { MAX_RUNS = 20000 };
static const double SECONDS = 0.4;

static float *values(int64_t n)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) & ~(size_t)63);
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-23f - 1;
    }
    return x;
}

/* As views into a (T, 3, H, D) matrix, the result of one product: those of a transformer. */
static choir__heads heads(float *p, int64_t h, int64_t d, int of, int part)
{
    return (choir__heads){p + part * h * d, 0, d, of * h * d};
}

static double seconds_of(
    const choir__kernels *kernels, const choir__k_attention *a, bool backward)
{
    double times[MAX_RUNS], end = choir__now() + SECONDS;
    int runs = 0;
    while (runs < 3 || (runs < MAX_RUNS && choir__now() < end)) {
        double start = choir__now();
        if (backward)
            kernels->attention_backward(a);
        else
            kernels->attention(a);
        times[runs++] = choir__now() - start;
    }
    return median(times, runs);
}

static void line(const choir__kernels *kernels, int64_t h, int64_t t, int64_t d, bool causal)
{
    choir__attention_shape n = {.b = 1,
        .h = h,
        .g = h,
        .t = t,
        .s = t,
        .d = d,
        .scale = 1 / sqrtf((float)d),
        .causal = causal};
    float *qkv = values(3 * h * t * d), *gqkv = values(3 * h * t * d), *y = values(h * t * d),
          *gy = values(h * t * d), *lse = values(h * t);
    choir__heads q = heads(qkv, h, d, 3, 0), k = heads(qkv, h, d, 3, 1),
                 v = heads(qkv, h, d, 3, 2), to = heads(y, h, d, 1, 0);
    choir__k_attention forward = {.q = q, .k = k, .v = v, .y = to, .lse = lse, .n = n};
    choir__k_attention backward = forward;
    backward.gy = heads(gy, h, d, 1, 0);
    backward.gq = heads(gqkv, h, d, 3, 0);
    backward.gk = heads(gqkv, h, d, 3, 1);
    backward.gv = heads(gqkv, h, d, 3, 2);
    forward.dtype = backward.dtype = CHOIR_F32;
    double pairs = (double)h * (double)t * (causal ? (double)(t + 1) / 2 : (double)t);
    double there = seconds_of(kernels, &forward, false),
           back = seconds_of(kernels, &backward, true);
    printf("%lld %lld %lld %s %.1f %.1f\n", (long long)h, (long long)t, (long long)d,
        causal ? "causal" : "full", 4e-9 * pairs * (double)d / there,
        10e-9 * pairs * (double)d / back);
    float *blocks[] = {qkv, gqkv, y, gy, lse};
    for (size_t i = 0; i < CHOIR_COUNT(blocks); i++)
        free(blocks[i]);
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][3] = {{4, 64, 32}, {12, 64, 64}, {4, 256, 64}, {12, 256, 64},
        {12, 1024, 64}, {64, 1024, 64}, {4, 4096, 64}, {16, 1024, 128}};
    const choir__kernels *kernels = choir__cpu_kernels(choir_cpu_isa());
    for (size_t i = 0; argc < 4 && i < CHOIR_COUNT(shapes); i++)
        line(kernels, shapes[i][0], shapes[i][1], shapes[i][2], true);
    for (int i = 1; i + 2 < argc; i += 3) {
        bool full = i + 3 < argc && !strcmp(argv[i + 3], "full");
        line(kernels, atoll(argv[i]), atoll(argv[i + 1]), atoll(argv[i + 2]), !full);
        i += full;
    }
    return 0;
}
