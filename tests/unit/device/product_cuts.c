/* Ranks that have some leaves of a cut K compute nodes of the tree; added in the tree, they are
 * the product of one device, bit for bit. The design of sliced strategies rests on it. */
#include "conformance/dense_product.h"
#include "products_fixture.h"
#include "sample.h"

/* Returns the terms of leaves [lo, hi) of `entries` rows of x, dense. */
static void *own_terms(const choir__k_matmul *k, const void *x, int64_t entries, int64_t lo,
    int64_t hi, int64_t *terms)
{
    const size_t size = choir_dtype_size(k->dtype);
    const int64_t outer = choir__cut_outer(k->cut), block = k->k / outer;
    int64_t from, to, unused, run;
    choir__cut_leaf(k->cut, k->k, lo, &from, &unused);
    choir__cut_leaf(k->cut, k->k, hi - 1, &unused, &to);
    run = to - from, *terms = run * outer;
    char *y = malloc((size_t)(entries * *terms + 1) * size);
    for (int64_t i = 0; i < entries * outer; i++)
        memcpy(y + (size_t)(i * run) * size,
            (const char *)x + (size_t)(i * block + from) * size, (size_t)run * size);
    return y;
}

static void add_stack(float *sums, choir__node *nodes, int *top, int64_t n, bool all)
{
    while (*top > 1 && (all || choir__tree_siblings(nodes[*top - 2], nodes[*top - 1]))) {
        for (int64_t i = 0; i < n; i++)
            sums[(*top - 2) * n + i] += sums[(*top - 1) * n + i];
        nodes[*top - 2].leaves += nodes[*top - 1].leaves;
        --*top;
    }
}

/* Ranks with leaves of their own, in memory of their own. */
static void try_ranks(size_t set, const choir__k_matmul *whole, int ranks)
{
    const int64_t n = whole->m * whole->n, leaves = whole->cut.leaves;
    float *sums = malloc(sizeof(float) * (size_t)n * CHOIR__MAX_NODES);
    choir__node stack[CHOIR__MAX_NODES], nodes[CHOIR__MAX_NODES];
    int top = 0;
    for (int r = 0; r < ranks; r++) {
        int64_t lo, hi;
        choir__k_matmul k = *whole;
        choir__tree_run(leaves, r, ranks, &lo, &hi);
        void *a = own_terms(whole, whole->a, k.m, lo, hi, &k.k);
        void *b = own_terms(whole, whole->b, k.n, lo, hi, &k.k);
        k.a = a, k.b = b, k.wide = true;
        k.a_row = k.b_col = k.k;
        k.cut.leaves = hi - lo;
        for (int i = 0, count = choir__tree_nodes(lo, hi, nodes); i < count; i++) {
            k.node = (choir__node){nodes[i].start - lo, nodes[i].leaves};
            k.c = sums + top * n;
            multiply_by(set, &k);
            stack[top++] = nodes[i];
            add_stack(sums, stack, &top, n, false);
        }
        free(a);
        free(b);
    }
    add_stack(sums, stack, &top, n, true);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&sums[i], (const float *)whole->c + i, sizeof *sums))
            fail_msg("%s, %d ranks, K = %lld in %lld blocks, %lld leaves: element %lld is %a, "
                     "not %a",
                sets[set].isa, ranks, (long long)whole->k, (long long)whole->cut.outer,
                (long long)leaves, (long long)i, (double)sums[i],
                (double)((const float *)whole->c)[i]);
    free(sums);
}

static void nodes_make_the_whole(void **unused)
{
    enum { M = 35, N = 50 };
    for (int i = 0; i < 24; i++) {
        const choir__cut cut = {1 + i % 3, 1 + below(8)};
        const int64_t depth = cut.outer * (cut.leaves + below(i < 4 ? 2000 : 100));
        pairs = i % 2;
        const choir_dtype dtype = pairs ? CHOIR_BF16 : CHOIR_F32;
        void *a = numbers(M * depth, dtype, 0), *b = numbers(N * depth, dtype, 0);
        void *c = malloc(M * N * sizeof(float));
        choir__k_matmul k = dense_product(dtype, a, b, c, M, N, depth);
        k.b_row = 1, k.b_col = depth;
        k.wide = true, k.cut = cut;
        for (size_t set = 0; set < CHOIR_COUNT(sets); set++)
            if (choir__cpu_kernels(sets[set].isa)) {
                multiply_by(set, &k);
                for (int ranks = 1; ranks <= cut.leaves; ranks++)
                    try_ranks(set, &k, ranks);
            }
        free(a);
        free(b);
        free(c);
    }
    pairs = false;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nodes_make_the_whole)};
    setenv("CHOIR_MATH", "chain", 1); /* own_matmul's class; pairs are tried by themselves */
    if (!sample_seed("CHOIR_TEST_SAMPLE", &state))
        state = 36;
    print_message("seed %llu (CHOIR_TEST_SAMPLE)\n", (unsigned long long)state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
