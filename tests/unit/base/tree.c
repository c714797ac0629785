/* The arithmetic of the tree: runs cover the leaves, nodes are nodes of the recursive tree, and
 * adding in pieces gives the bits of adding at once. */

#include "check.h"
#include "base/tree.h"

static int64_t left_half(int64_t n)
{
    int64_t half = 1;
    while (2 * half < n)
        half *= 2;
    return half;
}

/* The tree's sum by definition. */
static float recursive(const float *values, int64_t n)
{
    int64_t half = left_half(n);
    return n == 1 ? values[0] : recursive(values, half) + recursive(values + half, n - half);
}

/* Returns whether [start, start + leaves) is a node of the tree over [lo, lo + n). */
static int is_node(int64_t lo, int64_t n, int64_t start, int64_t leaves)
{
    if (lo == start && n == leaves)
        return 1;
    if (n == 1)
        return 0;
    int64_t half = left_half(n);
    return start < lo + half ? is_node(lo, half, start, leaves)
                             : is_node(lo + half, n - half, start, leaves);
}

static void fill(float *values, int64_t n)
{
    uint32_t z = 12345;
    for (int64_t i = 0; i < n; i++) {
        z = z * 1664525 + 1013904223;
        values[i] = (float)(int32_t)z * 1e-6f;
    }
}

static void test_sum(void **state)
{
    float values[300];
    fill(values, 300);
    for (int64_t n = 1; n <= 300; n++) {
        float want = recursive(values, n) * (1.0f / (float)n);
        float got = choir__tree_sum(values, n, 1.0f / (float)n);
        assert_memory_equal(&want, &got, sizeof want);
    }
    assert_true(choir__tree_sum(values, 0, 1) == 0);
}

static void test_runs(void **state)
{
    for (int world = 1; world <= 20; world++)
        for (int64_t leaves = 0; leaves <= 50; leaves++) {
            int64_t at = 0, lo, hi;
            for (int r = 0; r < world; r++) {
                choir__tree_run(leaves, r, world, &lo, &hi);
                assert_int_equal(lo, at);
                assert_true(hi - lo == leaves / world || hi - lo == leaves / world + 1);
                at = hi;
            }
            assert_int_equal(at, leaves);
        }
}

static void test_nodes(void **state)
{
    choir__node nodes[CHOIR__MAX_NODES];
    for (int64_t n = 1; n <= 70; n++)
        for (int64_t lo = 0; lo <= n; lo++)
            for (int64_t hi = lo; hi <= n; hi++) {
                int count = choir__tree_nodes(lo, hi, nodes);
                int64_t at = lo;
                for (int k = 0; k < count; k++) {
                    assert_int_equal(nodes[k].start, at);
                    assert_true(is_node(0, n, at, nodes[k].leaves));
                    assert_true(k == 0 || !choir__tree_siblings(nodes[k - 1], nodes[k]));
                    at += nodes[k].leaves;
                }
                assert_int_equal(at, hi);
            }
    int64_t huge = (INT64_C(1) << 62) - 1; /* as many nodes as there can be */
    assert_true(choir__tree_nodes(1, huge, nodes) <= CHOIR__MAX_NODES);
}

static void test_siblings(void **state)
{
    assert_true(choir__tree_siblings((choir__node){0, 2}, (choir__node){2, 2}));
    assert_false(choir__tree_siblings((choir__node){2, 2}, (choir__node){4, 2}));
    assert_false(choir__tree_siblings((choir__node){0, 4}, (choir__node){4, 2}));
    assert_false(choir__tree_siblings((choir__node){0, 1}, (choir__node){2, 1}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum),
        cmocka_unit_test(test_runs),
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_siblings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
