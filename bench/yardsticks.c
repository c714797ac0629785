/* Yardsticks of script/bench guard that need nothing of Choir: how fast one core adds numbers
 * in memory, and calls functions that do nothing. Prints a line of JSON; each figure is the
 * best of many runs, since a machine is never faster than it is. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 200, CALLS = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the microseconds in which one core adds `bytes` of floats to as many others. */
static double add_us(size_t bytes)
{
    size_t n = bytes / sizeof(float), times = (1 << 20) / bytes;
    float *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
    double best = 1;
    for (int r = 0; r < RUNS && a && b; r++) {
        double start = now();
        for (size_t k = 0; k < times; k++) {
            for (size_t i = 0; i < n; i++)
                a[i] += b[i];
            __asm__ volatile("" ::"r"(a) : "memory"); /* each pass is made */
        }
        double took = (now() - start) / (double)times;
        best = took < best ? took : best;
    }
    free(a);
    free(b);
    return best * 1e6;
}

static void nothing(const void *args)
{
    __asm__ volatile("" ::"r"(args));
}

/* Returns the microseconds that a list of 64 calls of an empty function takes. */
static double calls_us(void)
{
    void (*volatile list[CALLS])(const void *);
    double best = 1;
    for (int i = 0; i < CALLS; i++)
        list[i] = nothing;
    for (int r = 0; r < RUNS; r++) {
        double start = now();
        for (int k = 0; k < 100; k++)
            for (int i = 0; i < CALLS; i++)
                list[i](NULL);
        double took = (now() - start) / 100;
        best = took < best ? took : best;
    }
    return best * 1e6;
}

int main(void)
{
    printf("{\"add_1k_us\":%.4f,\"add_1m_us\":%.4f,\"calls_us\":%.5f}\n", add_us(1 << 10),
        add_us(1 << 20), calls_us());
    return 0;
}
