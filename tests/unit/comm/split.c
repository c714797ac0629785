/* Cuts of batches: torch.chunk's rule, shares by the largest remainder, runs of devices. */

#include "check.h"
#include "base/base.h"
#include "parallel/shards.h"

enum { MOST = 64 };

static void check(int64_t batch, int64_t pieces, int devices, const double *weights,
    const int64_t *length, const int *device, int count)
{
    choir__batch_share part[MOST];
    int64_t start = 0;
    assert_int_equal(choir__split(batch, pieces, devices, weights, part), count);
    assert_true(count <= choir__split_most(batch, pieces, devices));
    for (int i = 0; i < count; i++) {
        assert_int_equal(part[i].start, start);
        assert_int_equal(part[i].length, length[i]);
        assert_int_equal(part[i].device, device[i]);
        start += length[i];
    }
    assert_int_equal(start, batch);
}

#define L (const int64_t[])
#define D (const int[])
#define W (const double[])

static void test_chunks(void **state)
{
    check(30, 0, 1, NULL, L{30}, D{0}, 1);
    check(30, 0, 2, NULL, L{15, 15}, D{0, 1}, 2);
    check(10, 0, 3, NULL, L{4, 4, 2}, D{0, 1, 2}, 3);
    check(30, 0, 8, NULL, L{4, 4, 4, 4, 4, 4, 4, 2}, D{0, 1, 2, 3, 4, 5, 6, 7}, 8);
    check(10, 0, 8, NULL, L{2, 2, 2, 2, 2}, D{0, 1, 2, 3, 4}, 5); /* three devices idle */
    check(10, 0, 4, NULL, L{3, 3, 3, 1}, D{0, 1, 2, 3}, 4);
    check(6, 0, 4, NULL, L{2, 2, 2}, D{0, 1, 2}, 3);
    check(1, 0, 8, NULL, L{1}, D{0}, 1);
}

static void test_runs(void **state)
{
    check(12, 6, 2, NULL, L{2, 2, 2, 2, 2, 2}, D{0, 0, 0, 1, 1, 1}, 6);
    check(12, 6, 4, NULL, L{2, 2, 2, 2, 2, 2}, D{0, 0, 1, 1, 2, 3}, 6);
    check(12, 3, 8, NULL, L{4, 4, 4}, D{0, 1, 2}, 3);
    check(5, 4, 2, NULL, L{2, 2, 1}, D{0, 0, 1}, 3);
    check(12, 6, 3, W{1, 4, 1}, L{2, 2, 2, 2, 2, 2}, D{0, 1, 1, 1, 1, 2}, 6);
    check(12, 6, 3, W{0, 1, 1}, L{2, 2, 2, 2, 2, 2}, D{1, 1, 1, 2, 2, 2}, 6);
}

static void test_weights(void **state)
{
    check(70, 0, 4, W{1, 2, 2, 2}, L{10, 20, 20, 20}, D{0, 1, 2, 3}, 4);
    check(8, 0, 3, W{0.5, 1, 1}, L{2, 3, 3}, D{0, 1, 2}, 3);
    check(2, 0, 3, W{0.1, 1, 1}, L{1, 1}, D{1, 2}, 2); /* nothing left for the first */
    check(7, 0, 2, W{1, 1}, L{4, 3}, D{0, 1}, 2);
}

static void shares(int64_t total, const double *weights, int n, const int64_t *want)
{
    int64_t got[MOST];
    choir__split_shares(total, weights, n, got);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
}

static void test_largest_remainder(void **state)
{
    shares(10, NULL, 4, L{3, 3, 2, 2});
    shares(9, NULL, 3, L{3, 3, 3});
    shares(10, W{5, 3, 2}, 3, L{5, 3, 2});
    shares(101, W{41, 33, 27}, 3, L{41, 33, 27});
    shares(100, W{41, 33, 27}, 3, L{40, 33, 27}); /* 40.59, 32.67, 26.73: two to the last */
    shares(1, W{1, 1, 1.5}, 3, L{0, 0, 1});
    shares(3, W{1, 1, 1}, 3, L{1, 1, 1});
    shares(0, W{1, 2}, 2, L{0, 0});
    for (int64_t total = 0; total < 200; total++) { /* nothing lost, nothing far from its due */
        int64_t got[5], sum = 0;
        const double w[5] = {0.3, 1.7, 0, 2.2, 0.8};
        choir__split_shares(total, w, 5, got);
        for (int i = 0; i < 5; i++) {
            double due = (double)total * w[i] / 5;
            assert_true((double)got[i] > due - 1 && (double)got[i] < due + 1);
            sum += got[i];
        }
        assert_int_equal(sum, total);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_runs), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_largest_remainder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
