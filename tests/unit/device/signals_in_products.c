/* Signals during products. A library's kernel may use the stack pointer for a block of the
 * heap; a handler's frame would then overwrite the memory before it. So the handler, which a
 * timer calls often while products run, must always find itself on this thread's own stack. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/time.h>

#include <choir/device.h>
#include "check.h"
#include "conformance/dense_product.h"
#include "device/cpu/context.h"
#include "device/kernels.h"

enum { SIGNALS = 200, EVERY_US = 500 };

static uintptr_t low, high; /* this thread's stack */
static volatile sig_atomic_t came, astray;

static void on_signal(int number)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    came++;
    astray += here < low || here >= high;
}

static void find_stack(void)
{
    pthread_attr_t attr;
    void *from;
    size_t bytes;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstack(&attr, &from, &bytes), 0);
    low = (uintptr_t)from, high = low + bytes;
    pthread_attr_destroy(&attr);
}

static void tick(long us)
{
    struct itimerval every = {{0, us}, {0, us}};
    assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

/* Multiplies (m, k) by (k, n) until enough signals have come. */
static void multiply(int64_t m, int64_t k, int64_t n)
{
    const choir__kernels *kernels = choir__cpu_kernels(choir_cpu_isa());
    float *a = calloc((size_t)(m * k), sizeof *a), *b = calloc((size_t)(k * n), sizeof *b),
          *c = calloc((size_t)(m * n), sizeof *c);
    const choir__k_matmul product = dense_product(CHOIR_F32, a, b, c, m, n, k);
    kernels->matmul(&product); /* makes what products need */
    for (came = 0, tick(EVERY_US); came < SIGNALS;)
        kernels->matmul(&product);
    tick(0);
    free(a);
    free(b);
    free(c);
}

static void handlers_run_on_the_stack(void **state)
{
    static const int64_t shapes[][3] = {
        {128, 128, 512}, {128, 512, 128}, {64, 128, 256}, {128, 1024, 384}};
    struct sigaction ours = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    find_stack();
    sigaction(SIGALRM, &ours, &before);
    for (size_t i = 0; i < CHOIR_COUNT(shapes); i++)
        multiply(shapes[i][0], shapes[i][1], shapes[i][2]);
    sigaction(SIGALRM, &before, NULL);
    assert_int_equal(astray, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(handlers_run_on_the_stack)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
