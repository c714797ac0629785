/* The yardstick: the rate of one matrix product of 1024 x 1024 x 1024 on one core, f32 or (with
 * the argument bf16) bf16 in and out, through the same kernel that training uses. Prints
 * GFLOP/s, the median of a second of runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "median.h"

enum { N = 1024, RUNS = 100 };

/* Zeros and ones: the bits of both types are easily written. */
static void *matrix(choir_dtype dtype)
{
    size_t size = choir_dtype_size(dtype);
    char *p = aligned_alloc(64, (size_t)N * N * size);
    uint32_t one = dtype == CHOIR_BF16 ? 0x3f80 : 0x3f800000, zero = 0;
    for (size_t i = 0; i < (size_t)N * N; i++)
        memcpy(p + i * size, i % 3 ? &one : &zero, size);
    return p;
}

int main(int argc, char **argv)
{
    choir_dtype dtype = argc > 1 && !strcmp(argv[1], "bf16") ? CHOIR_BF16 : CHOIR_F32;
    choir_device *device = choir_device_find("cpu:0");
    void *a = matrix(dtype), *b = matrix(dtype), *c = matrix(dtype);
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
        .dtype = dtype};
    double times[RUNS];
    for (int i = 0; i < RUNS; i++) {
        double start = choir__now();
        choir__launch(device, dtype, matmul, &args);
        choir_check(choir_device_sync(device));
        times[i] = choir__now() - start;
    }
    printf("%.1f\n", 2.0 * N * N * N / median(times, RUNS) * 1e-9);
    free(a);
    free(b);
    free(c);
    return 0;
}
