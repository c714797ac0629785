/* Rows that are distributed over the ranks. The reduce-scatter of the gradients' tree has the
 * bits of the tree reduction, and the all-gather returns every row, on every engine, in shared
 * and private memory, in groups and sub-groups. */
#include <choir/group.h>

#include "over_ucx.h"
#include "comm/plugin.h"
#include "rows_fixture.h"

enum { NODES = 8, STRIDE = 320, OUT = 320 };

/* Memory of a group that is shared where its engine can share. */
typedef struct memory {
    choir__shared *shared;
    float *nodes, *out;
} memory;

static int open_memory(choir_group *group, memory *m, size_t nodes, size_t out)
{
    CHECK_OK(choir__shared_new(group, (nodes + out) * sizeof(float), &m->shared));
    m->nodes = choir__shared_at(m->shared, choir_group_rank(group));
    m->out = m->nodes + nodes;
    return 0;
}

static int trees(choir_group *group, memory *m, const rows_layout *layout)
{
    for (int64_t total = 1; total <= 17; total++) { /* also fewer than ranks */
        rows_trial t = {.group = group,
            .layout = layout,
            .nodes = m->nodes,
            .out = m->out,
            .stride = STRIDE,
            .out_stride = OUT,
            .leaves = total,
            .total = total,
            .scale = 1.0f / (float)total};
        if (rows_scatter(&t) || rows_against_reduce(&t))
            return 1;
    }
    return 0;
}

/* arg: the backend. */
static int everything(int rank, int world, void *arg)
{
    choir_group *group;
    memory shared, private = {.nodes = calloc(NODES * STRIDE + NODES * OUT, sizeof(float))};
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    private.out = private.nodes + NODES * STRIDE;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    if (open_memory(group, &shared, NODES * STRIDE, NODES * OUT))
        return 1;
    const rows_layout layout = rows_lay_out(world, 1);
    CHECK(layout.whole <= STRIDE && layout.own <= OUT);
    if (trees(group, &shared, &layout) || trees(group, &private, &layout))
        return 1;
    for (int i = 0; i < 3; i++)
        if (rows_gather(group, &layout, (void *)shared.out, (void *)shared.nodes, i) ||
            rows_gather(group, &layout, (void *)private.out, (void *)private.nodes, i))
            return 1;
    for (int by = CHOIR__EXCHANGE; by < CHOIR__ALGORITHM_COUNT; by++) { /* bits stay */
        CHECK_OK(choir_group_algorithm(group, choir__algorithm_name((choir__algorithm)by)));
        rows_trial t = {
            group, NULL, &layout, shared.nodes, shared.out, STRIDE, OUT, 0, 11, 11, 0.25f};
        if (rows_scatter(&t) ||
            rows_gather(group, &layout, (void *)shared.out, (void *)shared.nodes, by))
            return 1;
    }
    choir__shared_free(shared.shared);
    free(private.nodes);
    choir_group_free(group);
    return 0;
}

/* Each group of `each` ranks has a part of the micro-batches, and distributes the rows; then
 * the ranks with equal rows add the results of the groups. */
static int in_groups(choir_group *world, int each)
{
    choir_group *group, *across;
    memory m;
    int rank = choir_group_rank(world), groups = choir_group_world(world) / each;
    CHECK_OK(choir_group_split(world, rank / each, rank, &group));
    CHECK_OK(choir_group_split(world, rank % each, rank, &across));
    const rows_layout layout = rows_lay_out(each, 1);
    if (open_memory(group, &m, NODES * STRIDE, NODES * OUT))
        return 1;
    for (int64_t total = 1; total <= ROWS_LEAVES; total++) {
        int64_t lo, hi;
        choir__tree_run(total, rank / each, groups, &lo, &hi);
        if (groups > total)
            continue;
        rows_trial t = {group, across, &layout, m.nodes, m.out, STRIDE, OUT, lo, hi - lo, total,
            groups > 1 ? 1 : 0.375f};
        if (rows_scatter(&t))
            return 1;
    }
    if (rows_gather(group, &layout, (void *)m.out, (void *)m.nodes, each))
        return 1;
    choir__shared_free(m.shared);
    choir_group_free(across);
    choir_group_free(group);
    return 0;
}

static int sub_groups(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    for (int each = 1; each <= world; each++)
        if (world % each == 0 && in_groups(group, each))
            return 1;
    choir_group_free(group);
    return 0;
}

/* More than messages carry in one piece, from private memory. */
static int in_pieces(int rank, int world, void *arg)
{
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    const rows_layout l = rows_lay_out(world, 12000);
    float *nodes = calloc((size_t)(2 * l.whole), sizeof *nodes);
    float *out = calloc((size_t)l.own, sizeof *out);
    rows_trial t = {
        group, NULL, &l, nodes, out, l.whole, l.own, 0, 2 * world - 1, 2 * world - 1, 0.5f};
    if (rows_scatter(&t) || rows_gather(group, &l, (void *)out, (void *)nodes, 1))
        return 1;
    free(nodes);
    free(out);
    choir_group_free(group);
    return 0;
}

/* One rank's memory serves all. */
static int one_region(int rank, int world, void *arg)
{
    choir_group *group, *half;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    CHECK_OK(choir_group_split(group, rank % 2, rank, &half));
    choir_group *groups[] = {group, half};
    for (int g = 0; g < 2; g++) {
        choir__shared *shared;
        int me = choir_group_rank(groups[g]), n = choir_group_world(groups[g]);
        CHECK_OK(choir__shared_new(groups[g], me ? 0 : 4096, &shared));
        int *at = choir__shared_at(shared, 0);
        CHECK(at && choir__shared_bytes(shared, 0) == 4096);
        CHECK(!me || !choir__shared_at(shared, me));
        at[me] = 100 * g + rank;
        CHECK_OK(choir_group_barrier(groups[g], NULL));
        for (int r = 0; r < n; r++)
            CHECK(at[r] == 100 * g + (g ? 2 * r + rank % 2 : r));
        choir__shared_free(shared);
    }
    choir_group_free(half);
    choir_group_free(group);
    return 0;
}

/* Ranks whose cuts, layouts or micro-batches differ get an error that says so. */
static int disagree(int rank, int world, void *arg)
{
    static const char *const what[] = {"rows", "stride", "leaves", "place"};
    choir_group_opts opts = choir_group_defaults();
    opts.backend = arg;
    for (size_t i = 0; i < CHOIR_COUNT(what); i++) {
        choir_group *group;
        memory m;
        CHECK_OK(choir_group_init(NULL, opts, &group));
        if (open_memory(group, &m, 200, 200))
            return 1;
        const choir__rows_cut cut = {.rows = i == 0 && rank ? 5 : 4,
            .row = i == 0 && rank ? 4 : 5,
            .out = i == 3 ? rank : 0};
        const choir__tree_scatter a = {.nodes = m.nodes,
            .node_stride = i == 1 && rank ? 400 : 80,
            .cuts = &cut,
            .cut_count = 1,
            .count = 20,
            .leaves = i == 2 && rank ? 4 : 3,
            .total = i == 2 && rank ? 4 : 3,
            .out = m.out,
            .scale = 1};
        const choir__gather_rows g = {m.nodes, m.out, &cut, 1, CHOIR_F32};
        CHECK_OK(
            i < 3 ? choir__group_tree_scatter(group, &a) : choir__group_gather_rows(group, &g));
        CHECK(choir__queue_wait(choir__group_queue(group)) == CHOIR_ERR_MISMATCH);
        CHECK(strstr(choir_error_message(),
            i < 3 ? "called tree_scatter of 20 f32 over" : "called gather_rows of"));
        choir__shared_free(m.shared);
        choir_group_free(group);
    }
    return 0;
}

static int too_big(int rank, int world, void *arg)
{
    choir_group *group;
    memory m;
    CHECK_OK(choir_group_init(NULL, choir_group_defaults(), &group));
    if (open_memory(group, &m, 512, 0))
        return 1;
    const choir__rows_cut cut = {.rows = 4, .row = 5};
    choir__group_tree_scatter(group, &(choir__tree_scatter){.nodes = m.nodes,
                                         .node_stride = 2040, /* and a run of 3: two nodes */
                                         .cuts = &cut,
                                         .cut_count = 1,
                                         .count = 20,
                                         .leaves = 3 * world,
                                         .total = 3 * world,
                                         .out = m.nodes,
                                         .scale = 1});
    CHECK(choir__queue_wait(choir__group_queue(group)) == CHOIR_ERR_ARGUMENT);
    CHECK(strstr(choir_error_message(), "does not fit"));
    choir__shared_free(m.shared);
    choir_group_free(group);
    return 0;
}

/* --- */

static void everywhere(const char *backend, const int *worlds, int count)
{
    static int (*const tests[])(int, int, void *) = {everything, sub_groups};
    for (int w = 0; w < count; w++)
        for (size_t i = 0; i < CHOIR_COUNT(tests); i++)
            if (choir_spawn(worlds[w], tests[i], (void *)(uintptr_t)backend))
                fail_msg("%s, world %d: %s", backend, worlds[w], choir_error_message());
    if (choir_spawn(3, in_pieces, (void *)(uintptr_t)backend) ||
        choir_spawn(2, disagree, (void *)(uintptr_t)backend))
        fail_msg("%s: %s", backend, choir_error_message());
}

static void test_shm(void **state)
{
    static const int worlds[] = {1, 2, 3, 4, 8};
    everywhere("shm", worlds, CHOIR_COUNT(worlds));
}

static void test_ucx(void **state)
{
    static const int worlds[] = {1, 2, 3, 4};
    skip_without_ucx();
    everywhere("ucx", worlds, CHOIR_COUNT(worlds));
}

static void test_shared(void **state)
{
    ok(choir_spawn(4, one_region, NULL));
    ok(choir_spawn(2, too_big, NULL));
}

/* Invalid calls are not issued. */
static void test_arguments(void **state)
{
    choir_group *group;
    float x[8] = {0};
    unsetenv("RANK");
    ok(choir_group_init(NULL, choir_group_defaults(), &group));
    const choir__rows_cut cut = {.rows = 2, .row = 4}, far = {.at = 1, .rows = 2, .row = 4};
    choir__tree_scatter a = {x, 32, &cut, 1, 8, 0, 1, 1, x, 0, 1, CHOIR_F32};
    choir__gather_rows g = {x, NULL, &cut, 1, CHOIR_F32};
    choir_group_batch_begin(group);
    assert_int_equal(choir__group_tree_scatter(group, &a), CHOIR_ERR_ARGUMENT);
    ok(choir_group_batch_end(group, NULL));
    a.cuts = &far;
    assert_fails(
        choir__group_tree_scatter(group, &a), CHOIR_ERR_ARGUMENT, "got 2 rows of 4 from 1 on");
    a.cuts = &cut;
    a.leaves = 2;
    assert_int_equal(choir__group_tree_scatter(group, &a), CHOIR_ERR_ARGUMENT);
    /* a part, times 0.5 */
    a = (choir__tree_scatter){x, 32, &cut, 1, 8, 1, 1, 2, x, 0, 0.5, CHOIR_F32};
    assert_int_equal(choir__group_tree_scatter(group, &a), CHOIR_ERR_ARGUMENT);
    a = (choir__tree_scatter){NULL, 32, &cut, 1, 8, 0, 1, 1, x, 0, 1, CHOIR_F32};
    assert_int_equal(choir__group_tree_scatter(group, &a), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir__group_gather_rows(group, &g), CHOIR_ERR_ARGUMENT);
    g.dtype = (choir_dtype)99;
    assert_int_equal(choir__group_gather_rows(group, &g), CHOIR_ERR_DTYPE);
    choir_group_free(group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_shm),
        cmocka_unit_test(test_ucx),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
