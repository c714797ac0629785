/* Collectives on memory that the CPU cannot read, over every engine that needs host memory:
 * src/comm/far stages the data. The test replaces GPU memory by ordinary memory that it names
 * by addresses outside the address space, so an access without a staging copy crashes. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"

/* Beyond what a process can map. */
#define AWAY ((uintptr_t)1 << 47)

static inline void *far_at(const void *p)
{
    return p ? (void *)((uintptr_t)p + AWAY) : NULL;
}
#define SUITE_AT(p) far_at(p)

#include "comm/plugin.h"
#include "conformance/collectives.h"
#include "device/far.h"
#include "rows_fixture.h"

/* --- the memory --- */

static _Atomic int copies, pins;
static _Atomic bool out_of_memory, broken;

static bool owns(const void *p)
{
    return (uintptr_t)p >= AWAY;
}

static void *near_of(const void *far)
{
    return (void *)((uintptr_t)far - AWAY);
}

static choir_status get(void *host, const void *far, size_t bytes)
{
    if (broken)
        return choir__error(CHOIR_ERR_DEVICE, "the card has fallen off the bus");
    atomic_fetch_add(&copies, 1);
    memcpy(host, near_of(far), bytes);
    return CHOIR_OK;
}

static choir_status put(void *far, const void *host, size_t bytes)
{
    atomic_fetch_add(&copies, 1);
    memcpy(near_of(far), host, bytes);
    return CHOIR_OK;
}

static choir_status move(void *to, const void *from, size_t bytes)
{
    memmove(near_of(to), near_of(from), bytes);
    return CHOIR_OK;
}

static void *pinned(size_t bytes)
{
    atomic_fetch_add(&pins, 1);
    return out_of_memory ? NULL : aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void unpin(void *p)
{
    atomic_fetch_sub(&pins, 1);
    free(p);
}

static const choir__far card = {
    .owns = owns, .get = get, .put = put, .move = move, .pinned = pinned, .unpin = unpin};

const choir__far *__wrap_choir__far_of(const void *p);
const choir__far *__wrap_choir__far_of(const void *p)
{
    return owns(p) ? &card : NULL;
}

/* --- ranks --- */

static choir_status join(const char *backend, choir_group **group)
{
    choir_group_opts opts = choir_group_defaults();
    opts.backend = backend;
    opts.timeout_s = 60;
    return choir_group_init(NULL, opts, group);
}

static int whole_suite(int rank, int world, void *arg)
{
    choir_group *group;
    CHECK_OK(join(arg, &group));
    if (suite(group, false))
        return 1;
    choir_group_free(group);
    CHECK(copies > 100);
    CHECK(pins == 0); /* all given back */
    return 0;
}

/* Larger than a piece, the last one shorter: every kind of call. */
static int in_pieces(int rank, int world, void *arg)
{
    static const suite_algorithm fixed = {NULL, true};
    choir_group *group;
    CHECK_OK(join(arg, &group));
    for (size_t k = 0; k < CHOIR_COUNT(trial_kinds); k++) {
        trial t = {.kind = trial_kinds[k],
            .dtype = CHOIR_F64,
            .op = CHOIR_SUM,
            .count = 4300019,
            .world = world,
            .root = 1,
            .tree = true};
        bool parts = t.kind != CHOIR__BROADCAST && t.kind != CHOIR__REDUCE &&
                     t.kind != CHOIR__ALL_REDUCE;
        t.in_place = !parts;
        t.count = parts ? 2000003 : t.count;
        int before = copies;
        if (suite_trial(group, t, &fixed))
            return 1;
        CHECK(t.kind == CHOIR__BARRIER || copies - before > 1);
    }
    choir_group_free(group);
    return 0;
}

static int rows(int rank, int world, void *arg)
{
    choir_group *group;
    CHECK_OK(join(arg, &group));
    for (int64_t times = 1; times <= 6000; times += 5999) { /* the second: many pieces */
        const rows_layout l = rows_lay_out(world, times);
        int64_t room = l.whole + 64, own = l.own + 64;
        float *nodes = calloc((size_t)(8 * room), sizeof *nodes);
        float *out = calloc((size_t)(8 * own), sizeof *out);
        for (int64_t total = 1; total <= (times == 1 ? 17 : 2); total++) {
            rows_trial t = {group, NULL, &l, nodes, out, room, own, 0, total, total, 0.25f};
            if (rows_scatter(&t) || rows_against_reduce(&t))
                return 1;
        }
        if (rows_gather(group, &l, (void *)out, (void *)nodes, 3))
            return 1;
        free(nodes);
        free(out);
    }
    choir_group_free(group);
    return 0;
}

/* Partial sums that some ranks compute and others continue from. */
static int rows_in_groups(int rank, int world, void *arg)
{
    choir_group *all, *group, *across;
    CHECK_OK(join(arg, &all));
    CHECK_OK(choir_group_split(all, rank / 2, rank, &group));
    CHECK_OK(choir_group_split(all, rank % 2, rank, &across));
    const rows_layout l = rows_lay_out(2, 1);
    float *nodes = calloc((size_t)(8 * l.whole), sizeof *nodes);
    float *out = calloc((size_t)(8 * l.own), sizeof *out);
    for (int64_t total = world; total <= ROWS_LEAVES; total++) {
        int64_t lo, hi;
        choir__tree_run(total, rank / 2, world / 2, &lo, &hi);
        rows_trial t = {group, across, &l, nodes, out, l.whole, l.own, lo, hi - lo, total, 1};
        if (rows_scatter(&t))
            return 1;
    }
    free(nodes);
    free(out);
    choir_group_free(across);
    choir_group_free(group);
    choir_group_free(all);
    return 0;
}

/* Gradients with algorithms that have no such call: each rank adds its own nodes first. */
static int trees_by_name(int rank, int world, void *arg)
{
    choir_group *group;
    enum { COUNT = 1000 };
    static float nodes[4 * COUNT];
    CHECK_OK(join(arg, &group));
    for (int by = CHOIR__AUTO; by < CHOIR__ALGORITHM_COUNT; by++) {
        int64_t lo, hi, leaves = 3 * world;
        choir__node mine[CHOIR__MAX_NODES];
        choir__tree_run(leaves, rank, world, &lo, &hi);
        int n = choir__tree_nodes(lo, hi, mine);
        for (int k = 0; k < n; k++)
            for (int i = 0; i < COUNT; i++)
                nodes[k * COUNT + i] = (float)mine[k].leaves * (float)i;
        CHECK_OK(choir__group_tree_reduce(
            group, &(choir__tree_reduce){SUITE_AT(nodes), COUNT * sizeof(float), COUNT, leaves,
                       0.5f, (choir__algorithm)by, CHOIR_F32}));
        CHECK_OK(choir__queue_wait(choir__group_queue(group)));
        for (int i = 0; i < COUNT; i++)
            CHECK(nodes[i] == 0.5f * (float)leaves * (float)i);
    }
    choir_group_free(group);
    return 0;
}

/* Only one rank's memory is far. */
static int mixed(int rank, int world, void *arg)
{
    choir_group *group;
    float x[100], *at = rank ? x : SUITE_AT(x);
    CHECK_OK(join(arg, &group));
    for (int i = 0; i < 100; i++)
        x[i] = (float)(i + rank);
    CHECK_OK(choir_group_all_reduce(group, at, 100, CHOIR_F32, CHOIR_SUM, NULL));
    for (int i = 0; i < 100; i++)
        CHECK(x[i] == (float)(world * i + world * (world - 1) / 2));
    choir_group_free(group);
    return 0;
}

/* Data of several pieces: the ranks issue different calls then, and get an error that says
 * why. */
static int mixed_in_pieces(int rank, int world, void *arg)
{
    choir_group *group;
    enum { COUNT = 12000000 };
    float *x = calloc(COUNT, sizeof *x), *at = rank ? x : SUITE_AT(x);
    CHECK_OK(join(arg, &group));
    CHECK(choir_group_all_reduce(group, at, COUNT, CHOIR_F32, CHOIR_SUM, NULL) ==
          CHOIR_ERR_MISMATCH);
    CHECK(strstr(choir_error_message(), "of data on a GPU"));
    choir_group_free(group);
    free(x);
    return 0;
}

static int no_memory(int rank, int world, void *arg)
{
    choir_group *group;
    float x[100] = {0};
    CHECK_OK(join(arg, &group));
    out_of_memory = rank == 1;
    choir_status status =
        choir_group_all_reduce(group, SUITE_AT(x), 100, CHOIR_F32, CHOIR_SUM, NULL);
    CHECK(status == CHOIR_ERR_MEMORY);
    CHECK(strstr(choir_error_message(), "rank 1 cannot have"));
    CHECK(strstr(choir_error_message(), "pinned memory"));
    choir_group_free(group);
    return 0;
}

static int card_fails(int rank, int world, void *arg)
{
    choir_group *group;
    float x[100] = {0};
    CHECK_OK(join(arg, &group));
    broken = rank == 1;
    CHECK(choir_group_all_reduce(group, SUITE_AT(x), 100, CHOIR_F32, CHOIR_SUM, NULL) ==
          CHOIR_ERR_DEVICE);
    CHECK(strstr(choir_error_message(), "rank 1: "));
    CHECK(strstr(choir_error_message(), "fallen off the bus"));
    choir_group_free(group);
    return 0;
}

/* --- tests --- */

static void on_all(int world, choir_spawn_fn *fn)
{
    static const char *const backends[] = {"shm", "ucx"};
    for (size_t i = 0; i < CHOIR_COUNT(backends); i++) {
        char *plugin = i ? choir__plugin_find(backends[i], NULL) : NULL;
        if (i && !plugin)
            continue;
        free(plugin);
        if (choir_spawn(world, fn, (void *)(uintptr_t)backends[i]) != CHOIR_OK)
            fail_msg("%s, world %d: %s", backends[i], world, choir_error_message());
    }
}

static void test_suite(void **state)
{
    on_all(1, whole_suite);
    on_all(3, whole_suite);
}

static void test_pieces(void **state)
{
    (void)state; /* the engine does not influence how data is cut into pieces */
    ok(choir_spawn(2, in_pieces, (void *)(uintptr_t) "shm"));
}

static void test_rows(void **state)
{
    on_all(1, rows);
    on_all(3, rows);
    on_all(4, rows_in_groups);
}

static void test_trees_by_name(void **state)
{
    on_all(2, trees_by_name);
    on_all(3, trees_by_name);
}

static void test_mixed(void **state)
{
    on_all(3, mixed);
    on_all(2, mixed_in_pieces);
}

static void test_failures(void **state)
{
    on_all(2, no_memory);
    on_all(2, card_fails);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_suite),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_trees_by_name),
        cmocka_unit_test(test_mixed),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
