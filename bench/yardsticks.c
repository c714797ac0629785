/* Yardsticks of script/bench guard that need nothing of Choir: how long one core takes to
 * call functions that do nothing, and a cache line from one core to another and back. Prints a
 * line of JSON; each figure is the best of many runs, since a machine is never faster than it
 * is. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RUNS = 200, CALLS = 64, TURNS = 200 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
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

/* --- a line between two cores --- */

static _Alignas(128) atomic_int line;

static void on_core(int nth)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &all) && nth-- == 0)
            CPU_SET(i, &one);
    if (CPU_COUNT(&one))
        sched_setaffinity(0, sizeof one, &one);
}

/* Answers each odd number by the next even one. */
static void *answer(void *arg)
{
    on_core(1);
    for (int next = 1; next < 2 * TURNS * RUNS; next += 2) {
        while (atomic_load_explicit(&line, memory_order_acquire) != next)
            ;
        atomic_store_explicit(&line, next + 1, memory_order_release);
    }
    return arg;
}

/* Returns the microseconds from a store on one core to the sight of the other core's answer. */
static double there_and_back_us(void)
{
    pthread_t other;
    double best = 1;
    int number = 0;
    if (pthread_create(&other, NULL, answer, NULL) != 0)
        return 0;
    on_core(0);
    for (int r = 0; r < RUNS; r++) {
        double start = now();
        for (int i = 0; i < TURNS; i++) {
            atomic_store_explicit(&line, ++number, memory_order_release);
            number++;
            while (atomic_load_explicit(&line, memory_order_acquire) != number)
                ;
        }
        double took = (now() - start) / TURNS;
        best = took < best ? took : best;
    }
    pthread_join(other, NULL);
    return best * 1e6;
}

int main(void)
{
    printf("{\"calls_us\":%.5f,", calls_us());
    printf("\"line_us\":%.4f}\n", there_and_back_us());
    return 0;
}
