/* Products of training, launched twenty times: equal bits, whichever way the library splits
 * their sums, with the epilogues that Choir asks for. None is left to the plain kernel. */
#include <stdio.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "conformance/dense_product.h"
#include "cuda/first_gpu.h"
#include "sample.h"

typedef enum form { GRADIENT_OF_WEIGHT, GRADIENT_OF_GELU, FORWARD } form;

typedef struct product {
    const char *name;
    form form;
    int64_t m, n, k; /* on a real GPU */
} product;

static const product products[] = {
    {"a weight's gradient and its bias's", GRADIENT_OF_WEIGHT, 768, 768, 32768},
    {"a wide weight's gradient", GRADIENT_OF_WEIGHT, 3072, 768, 8192},
    {"a gradient times GELU's slope", GRADIENT_OF_GELU, 8192, 3072, 768},
    {"a product with a bias", FORWARD, 8192, 2304, 768},
    {"scores", FORWARD, 2048, 50304, 768},
};

enum { LAUNCHES = 20, MOST = 4, SMALL = 64 };

static on_device numbers(int64_t n, uint64_t call)
{
    uint16_t *x = uniform_bf16(n, call, -1, 1);
    on_device d = to_device(device, x, (size_t)n * sizeof *x);
    free(x);
    return d;
}

/* Describes a product of dense row-major matrices in bf16; a weight's gradient reads a
 * transposed. */
static choir__k_matmul describe(const product *p, int64_t m, int64_t n, int64_t k)
{
    bool gradient = p->form == GRADIENT_OF_WEIGHT;
    choir__k_matmul d = dense_product(CHOIR_BF16, NULL, NULL, NULL, m, n, k);
    if (gradient)
        d.a_row = 1, d.a_col = m;
    d.wide = gradient;
    return d;
}

static void expect_equal_launches(const product *p, const choir__k_matmul *args,
    const on_device *out, int count, int launches)
{
    char *first[MOST] = {NULL};
    for (int n = 0; n < launches; n++) {
        call_on_device(device, offsetof(choir__kernels, matmul), args, sizeof *args);
        for (int i = 0; i < count; i++) {
            char *now = malloc(out[i].bytes);
            ok(device->far->get(now, choir__block_data(out[i].block), out[i].bytes));
            if (first[i] && memcmp(first[i], now, out[i].bytes) != 0)
                fail_msg("%s: launch %d has other bits", p->name, n + 1);
            if (first[i])
                free(now);
            else
                first[i] = now;
        }
    }
    for (int i = 0; i < count; i++)
        free(first[i]);
}

static void repeat(const product *p, bool soft)
{
    int64_t m = soft ? SMALL : p->m, n = soft ? SMALL : p->n, k = soft ? SMALL : p->k;
    choir__k_matmul args = describe(p, m, n, k);
    on_device all[] = {numbers(m * k, 1), numbers(k * n, 2), room(m * n, args.wide ? 4 : 2),
        p->form == GRADIENT_OF_WEIGHT ? room(m, 4)
        : p->form == FORWARD          ? numbers(n, 3)
                                      : numbers(m * n, 3)};
    void *more = choir__block_data(all[3].block);
    args.a = choir__block_data(all[0].block), args.b = choir__block_data(all[1].block);
    args.c = choir__block_data(all[2].block);
    switch (p->form) {
    case GRADIENT_OF_WEIGHT: args.a_sums = more; break;
    case GRADIENT_OF_GELU: args.gelu_in = more; break;
    case FORWARD: args.bias = more, args.half_bias = true; break;
    }
    expect_equal_launches(
        p, &args, all + 2, p->form == GRADIENT_OF_WEIGHT ? 2 : 1, soft ? 2 : LAUNCHES);
    for (size_t i = 0; i < CHOIR_COUNT(all); i++)
        choir__block_free(all[i].block);
}

static void launches_are_equal(void **state)
{
    choir__library_use use[CHOIR__LIBRARIES];
    for (size_t i = 0; i < CHOIR_COUNT(products); i++)
        repeat(&products[i], on_soft_gpu());
    choir__device_libraries(device, use);
    const choir__library_use *blas = &use[CHOIR__CUBLASLT];
    printf("cuBLASLt %zu: %ld plans; none for %ld problems; %ld products without it\n",
        blas->version, blas->made, blas->none, blas->without);
    assert_int_equal(blas->refused, 0);
    assert_int_equal(blas->without, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(launches_are_equal)};
    return cmocka_run_group_tests_name("repeated products", tests, find_device, NULL);
}
