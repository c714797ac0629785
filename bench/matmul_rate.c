/* The yardstick: the f32 rate of one matrix product of 1024 x 1024 x 1024 on one core, through
 * the same kernel that training uses. Prints GFLOP/s, the median of a second of runs. */
#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"

enum { N = 1024, RUNS = 100 };

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static float *matrix(void)
{
    float *p = aligned_alloc(64, (size_t)N * N * sizeof *p);
    for (int i = 0; i < N * N; i++)
        p[i] = (float)(i % 7) * 0.1f;
    return p;
}

int main(void)
{
    choir_device *device = choir_device_find("cpu:0");
    float *a = matrix(), *b = matrix(), *c = matrix();
    choir__k_matmul args = {.a = a,
        .b = b,
        .c = c,
        .batch0 = 1,
        .batch1 = 1,
        .m = N,
        .n = N,
        .k = N,
        .a_row = N,
        .a_col = 1,
        .b_row = N,
        .b_col = 1,
        .c_row = N,
        .dtype = CHOIR_F32};
    double times[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double start = choir__now();
        choir__launch(device, CHOIR_F32, matmul, &args);
        choir_check(choir_device_sync(device));
        times[i] = choir__now() - start;
    }
    qsort(times, RUNS, sizeof *times, by_value);
    printf("%.1f\n", 2.0 * N * N * N / times[RUNS / 2] * 1e-9);
    free(a);
    free(b);
    free(c);
    return 0;
}
