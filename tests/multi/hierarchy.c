/* Layers of engines: ranks of this machine act as nodes, and the result has the bits of one
 * engine. */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "comm/openers.h"
#include "base/tree.h"
#include "comm/shm/shm.h"
#include "multi/ranks.h"
#include "rows_fixture.h"

enum { ROOM = 20000, LEAVES_MAX = 16 };

static choir__meeting meeting_of(int rank, int world, int nodes)
{
    choir__meeting m = {.rank = rank,
        .world = world,
        .nodes = nodes,
        .timeout_s = 60,
        .members = choir__calloc((size_t)world, sizeof *m.members)};
    snprintf(m.job, sizeof m.job, "%s/hierarchy", getenv("CHOIR_JOB"));
    for (int r = 0; r < world; r++)
        m.members[r] =
            (choir__member){.node = r * nodes / world, .local_rank = r % (world / nodes)};
    return m;
}

static float leaf(int64_t m, int64_t i)
{
    uint32_t z = (uint32_t)(m * 7919 + i) * 2654435761u;
    z = (z ^ (z >> 15)) * 2246822519u;
    return (float)(int32_t)(z ^ (z >> 13)) * 1e-7f;
}

static int sums(choir__engine *e, int64_t count, choir_reduce_op op)
{
    static float x[ROOM];
    choir__call call = {.stamp = {.count = (uint64_t)count,
                            .seq = ++e->seq,
                            .kind = CHOIR__ALL_REDUCE,
                            .dtype = CHOIR_F32,
                            .op = (uint8_t)op},
        .in = x,
        .out = x};
    for (int64_t i = 0; i < count; i++)
        x[i] = leaf(e->rank, i);
    CHECK_OK(e->ops->run(e, &call));
    for (int64_t i = 0; i < count; i++) {
        float all[LEAVES_MAX];
        for (int r = 0; r < e->world; r++)
            all[r] = leaf(r, i);
        float want =
            choir__tree_sum(all, e->world, op == CHOIR_MEAN ? (float)(1.0 / e->world) : 1);
        CHECK(memcmp(&want, &x[i], sizeof want) == 0);
    }
    return 0;
}

/* All ranks hold equally many leaves, so one or two nodes of the tree. */
static int trees(choir__engine *e, int64_t leaves, int64_t count)
{
    int64_t lo, hi;
    choir__node nodes[CHOIR__MAX_NODES];
    choir__tree_run(leaves, e->rank, e->world, &lo, &hi);
    int n = choir__tree_nodes(lo, hi, nodes);
    float *x = calloc((size_t)n * ROOM, sizeof *x);
    choir__call call = {.stamp = {.count = (uint64_t)count,
                            .seq = ++e->seq,
                            .kind = CHOIR__TREE_REDUCE,
                            .dtype = CHOIR_F32,
                            .leaves = (int32_t)leaves},
        .in = x,
        .out = x,
        .node_stride = ROOM * sizeof *x,
        .scale = 1.0f / (float)leaves};
    for (int k = 0; k < n; k++)
        for (int64_t i = 0; i < count; i++) {
            float own[LEAVES_MAX];
            for (int64_t m = 0; m < nodes[k].leaves; m++)
                own[m] = leaf(nodes[k].start + m, i);
            x[k * ROOM + i] = choir__tree_sum(own, nodes[k].leaves, 1);
        }
    CHECK_OK(e->ops->run(e, &call));
    for (int64_t i = 0; i < count; i++) {
        float all[LEAVES_MAX];
        for (int64_t m = 0; m < leaves; m++)
            all[m] = leaf(m, i);
        float want = choir__tree_sum(all, leaves, call.scale);
        CHECK(memcmp(&want, &x[i], sizeof want) == 0);
    }
    free(x);
    return 0;
}

static int layers(int rank, int world, void *arg)
{
    static const int64_t counts[] = {1, 1000, 4097, 19999};
    choir__engine *whole, *e;
    choir__meeting m = meeting_of(rank, world, *(int *)arg);
    CHECK(choir__hierarchy_fits(&m));
    CHECK_OK(choir__shm_open(&m, &whole));
    CHECK_OK(choir__hierarchy_open(whole, &m, &e));
    for (size_t c = 0; c < CHOIR_COUNT(counts); c++) {
        CHECK(sums(e, counts[c], CHOIR_SUM) == 0);
        CHECK(sums(e, counts[c], CHOIR_MEAN) == 0);
        for (int64_t leaves = world; leaves <= LEAVES_MAX; leaves += world)
            CHECK(trees(e, leaves, counts[c]) == 0);
    }
    e->ops->close(e);
    choir__meeting_free(&m);
    return 0;
}

/* Distributes rows over all ranks, then over those of a node, whose results are sent to the
 * other nodes. */
static int rows(int rank, int world, void *arg)
{
    int nodes = *(int *)arg, each = world / nodes;
    choir__engine *whole, *e;
    choir__group_job *job = choir__calloc(1, sizeof *job);
    choir_group *group, *near, *across;
    job->meeting = meeting_of(rank, world, nodes);
    CHECK_OK(choir__shm_open(&job->meeting, &whole));
    CHECK_OK(choir__hierarchy_open(whole, &job->meeting, &e));
    group = choir__group_new(e, job, "world");
    CHECK_OK(choir_group_split(group, choir_group_node(group, -1), rank, &near));
    CHECK_OK(choir_group_split(group, choir_group_local_rank(group, -1), rank, &across));
    CHECK(choir_group_world(near) == each && choir_group_world(across) == nodes);
    const rows_layout all = rows_lay_out(world, 1), node = rows_lay_out(each, 1);
    float *x = calloc(8 * ROOM, sizeof *x), *out = x + 4 * ROOM;
    for (int64_t total = world; total <= ROWS_LEAVES; total += world) {
        rows_trial t = {group, NULL, &all, x, out, ROOM, ROOM, 0, total, total, 0.25f};
        rows_trial n = {near, across, &node, x, out, ROOM, ROOM, rank / each * (total / nodes),
            total / nodes, total, 1};
        CHECK(rows_scatter(&t) == 0 && rows_scatter(&n) == 0);
        CHECK(rows_gather(group, &all, (void *)out, (void *)x, 2) == 0);
        CHECK(rows_gather(near, &node, (void *)out, (void *)x, 1) == 0);
    }
    free(x);
    choir_group_free(across);
    choir_group_free(near);
    choir_group_free(group);
    return 0;
}

static void test_layers(void **state)
{
    static const int shapes[][2] = {{4, 2}, {6, 3}, {8, 2}, {8, 4}}; /* ranks, nodes */
    for (size_t i = 0; i < CHOIR_COUNT(shapes); i++) {
        int nodes = shapes[i][1];
        ok(choir_spawn(shapes[i][0], layers, &nodes));
        ok(choir_spawn(shapes[i][0], rows, &nodes));
    }
}

/* --- one sentence on all nodes, and ranks by their own numbers --- */

static choir_status one_call(choir__engine *e, choir__kind kind, float *x, int64_t count)
{
    choir__call call = {.stamp = {.count = (uint64_t)count,
                            .seq = ++e->seq,
                            .kind = (uint8_t)kind,
                            .dtype = CHOIR_F32},
        .in = x,
        .out = x};
    return e->ops->run(e, &call);
}

typedef enum trouble { LEAVES, OTHER_CALL, OTHER_WHOLE_CALL, TROUBLES } trouble;

/* Rank 3 calls something else; the others call all-reduce or broadcast. */
static int in_trouble(int rank, int world, void *arg)
{
    static float x[ROOM];
    const trouble what = *(trouble *)arg;
    choir__engine *whole, *e;
    choir__meeting m = meeting_of(rank, world, 2);
    CHECK_OK(choir__shm_open(&m, &whole));
    CHECK_OK(choir__hierarchy_open(whole, &m, &e));
    choir__meeting_free(&m);
    CHECK_OK(one_call(e, CHOIR__ALL_REDUCE, x, ROOM));
    CHECK_OK(one_call(e, CHOIR__BROADCAST, x, 100));
    CHECK(e->bytes > whole->bytes && whole->bytes > 0);
    if (rank == 3 && what == LEAVES) {
        e->ops->close(e);
        return 0;
    }
    choir_status status = rank != 3            ? one_call(e, CHOIR__ALL_REDUCE, x, ROOM)
                          : what == OTHER_CALL ? one_call(e, CHOIR__BARRIER, x, 0)
                                               : one_call(e, CHOIR__BROADCAST, x, 10);
    CHECK(status == (what == LEAVES ? CHOIR_ERR_PEER_LOST : CHOIR_ERR_MISMATCH));
    CHECK(e->failed == status);
    CHECK(strstr(e->message, "rank 3 "));
    CHECK(!strstr(e->message, "rank 1 ") && !strstr(e->message, "rank 0 (pid"));
    if (what != LEAVES)
        CHECK(strstr(e->message, "while rank 2 called all_reduce"));
    if (what == OTHER_WHOLE_CALL)
        CHECK(strstr(e->message, "rank 3 called broadcast of 10 f32 from rank 0 "));
    e->ops->close(e);
    return 0;
}

static void test_trouble(void **state)
{
    for (trouble t = 0; t < TROUBLES; t++)
        ok(choir_spawn(4, in_trouble, &t));
}

/* Splits off the ranks of one node, which use shared memory; several times in a row. */
static int halves(int rank, int world, void *arg)
{
    float x = 1;
    int mine[2] = {rank / 2 * 2, rank / 2 * 2 + 1};
    choir__engine *whole, *e, *child[2];
    choir__meeting m = meeting_of(rank, world, 2);
    CHECK_OK(choir__shm_open(&m, &whole));
    CHECK_OK(choir__hierarchy_open(whole, &m, &e));
    choir__meeting_free(&m);
    for (int i = 0; i < 2; i++) {
        CHECK_OK(one_call(e, CHOIR__BARRIER, &x, 0)); /* as choir_group_split numbers them */
        CHECK_OK(e->ops->split(e, mine, 2, rank % 2, rank / 2, &child[i]));
        CHECK(strcmp(child[i]->ops->name, "shm") == 0 && child[i]->nodes == 1);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_OK(one_call(child[i], CHOIR__ALL_REDUCE, &x, 1));
        child[i]->ops->close(child[i]);
    }
    CHECK(x == 4);
    e->ops->close(e);
    return 0;
}

static void test_halves(void **state)
{
    ok(choir_spawn(4, halves, NULL));
}

static void test_fits(void **state)
{
    setenv("CHOIR_JOB", "x", 1);
    for (int nodes = 1; nodes <= 8; nodes++)
        for (int each = 1; each <= 8; each++) {
            choir__meeting m = meeting_of(0, nodes * each, nodes);
            bool power = (each & (each - 1)) == 0;
            assert_int_equal(choir__hierarchy_fits(&m), nodes > 1 && each > 1 && power);
            if (nodes > 1) { /* ranks distributed round-robin */
                for (int r = 0; r < m.world; r++)
                    m.members[r].node = r % nodes;
                assert_false(choir__hierarchy_fits(&m));
            }
            choir__meeting_free(&m);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_trouble),
        cmocka_unit_test(test_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
