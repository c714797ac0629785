/* Gradients: for every number of micro-batches and ranks, the reduction has the bits that one
 * process gets by adding all micro-batches in the order of the tree. */
#include <stdlib.h>
#include <choir/group.h>

#include "check.h"
#include "base/base.h"
#include "comm/group.h"
#include "base/tree.h"
#include "multi/ranks.h"

enum { LEAVES_MAX = 17, NODES_MAX = 8, ROOM = 3000 };

/* Element i of micro-batch m: magnitudes apart enough that the order of additions shows. */
static float gradient(int64_t m, int64_t i)
{
    uint32_t z = (uint32_t)(m * 7919 + i) * 2654435761u;
    z = (z ^ (z >> 15)) * 2246822519u;
    z ^= z >> 13;
    return (float)(int32_t)z * (z % 3 ? 1e-9f : 1e-5f);
}

/* The node's sum as computed by the rank that holds its micro-batches. */
static float node_sum(choir__node node, int64_t i)
{
    float leaves[LEAVES_MAX];
    for (int64_t k = 0; k < node.leaves; k++)
        leaves[k] = gradient(node.start + k, i);
    return choir__tree_sum(leaves, node.leaves, 1);
}

static int reduce(choir_group *group, choir__shared *shared, int64_t leaves, int64_t count,
    size_t offset, float scale)
{
    int64_t lo, hi;
    choir__node nodes[CHOIR__MAX_NODES];
    int rank = choir_group_rank(group), world = choir_group_world(group);
    char *mine = (char *)choir__shared_at(shared, rank) + offset;
    const choir__tree_reduce args = {
        mine, ROOM * sizeof(float), count, leaves, scale, CHOIR__AUTO, CHOIR_F32};
    choir__tree_run(leaves, rank, world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, nodes);
    CHECK(n <= NODES_MAX);
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < count; i++)
            ((float *)(void *)(mine + (size_t)k * args.node_stride))[i] = node_sum(nodes[k], i);
    choir__group_tree_reduce(group, &args);
    CHECK_OK(choir__queue_wait(choir__group_queue(group)));
    for (int64_t i = 0; i < count; i++) {
        float all[LEAVES_MAX], want;
        for (int64_t m = 0; m < leaves; m++)
            all[m] = gradient(m, i);
        want = choir__tree_sum(all, leaves, scale);
        CHECK(memcmp(&want, mine + (size_t)i * sizeof want, sizeof want) == 0);
    }
    return 0;
}

static int all_trees(int rank, int world, void *arg)
{
    static const int64_t counts[] = {0, 1, 15, 16, 1000, 2999};
    choir_group *group;
    choir__shared *shared;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, NODES_MAX * ROOM * sizeof(float), &shared));
    for (int64_t leaves = 1; leaves <= LEAVES_MAX; leaves++) /* also fewer than ranks */
        for (size_t c = 0; c < CHOIR_COUNT(counts); c++) {
            float scale = 1.0f / (float)leaves;
            if (reduce(group, shared, leaves, counts[c], 0, scale) ||
                reduce(group, shared, leaves, choir__min(counts[c], 2900), 4 * 19, 1))
                return 1;
        }
    CHECK(world == 1 || choir_group_bytes(group) > 0);
    choir__shared_free(shared);
    choir_group_free(group);
    return 0;
}

static int too_big(int rank, int world, void *arg)
{
    choir_group *group;
    choir__shared *shared;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, 4096, &shared));
    void *mine = choir__shared_at(shared, rank); /* a run of 3: two nodes */
    choir__group_tree_reduce(
        group, &(choir__tree_reduce){mine, 4000, 100, 3 * world, 1, CHOIR__AUTO, CHOIR_F32});
    CHECK(choir__queue_wait(choir__group_queue(group)) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "do not fit"));
    choir__shared_free(shared);
    choir_group_free(group);
    return 0;
}

static int layouts_differ(int rank, int world, void *arg)
{
    choir_group *group;
    choir__shared *shared;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir__shared_new(group, 4096, &shared));
    void *mine = choir__shared_at(shared, rank);
    choir__group_tree_reduce(
        group, &(choir__tree_reduce){mine, rank ? 64 : 128, 10, 2, 1, CHOIR__AUTO, CHOIR_F32});
    CHECK(choir__queue_wait(choir__group_queue(group)) == CHOIR_ERR_MISMATCH);
    choir__shared_free(shared);
    choir_group_free(group);
    return 0;
}

/* A tree reduction in an open batch is refused: the device would wait for a sum that comes too
 * late. */
static void test_open_batch(void **state)
{
    choir_group *group;
    float x = 1;
    unsetenv("RANK");
    ok(choir_group_init(NULL, choir_group_defaults(), &group));
    choir_group_batch_begin(group);
    assert_int_equal(choir__group_tree_reduce(
                         group, &(choir__tree_reduce){&x, 64, 1, 1, 1, CHOIR__AUTO, CHOIR_F32}),
        CHOIR_ERR_ARGUMENT);
    choir_group_free(group);
}

static void test_bits(void **state)
{
    for (int world = 1; world <= 8; world++)
        if (choir_spawn(world, all_trees, NULL))
            fail_msg("world %d: %s", world, choir_error_message());
}

static void test_too_big(void **state)
{
    ok(choir_spawn(2, too_big, NULL));
}

static void test_layouts(void **state)
{
    ok(choir_spawn(2, layouts_differ, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_batch),
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
