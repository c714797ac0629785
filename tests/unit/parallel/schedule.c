/* Schedules without any I/O: all ranks' schedules of every algorithm and collective, for every
 * world from 1 to 64, run in one process, round by round (tests/schedule_fixture.h).
 *
 * Reductions use an operation that is neither commutative nor associative, so an algorithm that
 * keeps the fixed tree must give exactly the tree's bits. */
#include "schedule_fixture.h"

/* Runs some of the counts for each world, a few roots, both in place and not, and slices of one
 * element and of whole lines, in turn. */
static void everything(choir__pattern_collective collective)
{
    static const choir__kind kinds[] = {CHOIR__BROADCAST, CHOIR__REDUCE, CHOIR__ALL_REDUCE,
        CHOIR__GATHER, CHOIR__ALL_GATHER, CHOIR__SCATTER, CHOIR__REDUCE_SCATTER,
        CHOIR__ALL_TO_ALL};
    int turn = 0;
    for (size_t k = 0; k < CHOIR_COUNT(kinds); k++) {
        collective.kind = kinds[k];
        if (!choir__move_schedule_does(&collective, collective.algorithm))
            continue;
        int64_t counts[] = {0, 1, collective.world - 1, collective.world, 37, 1301};
        for (size_t c = 0; c < CHOIR_COUNT(counts) - has_parts(collective.kind); c++, turn++) {
            collective.count = counts[c];
            collective.root = turn % 2 ? collective.world - 1 - turn % collective.world
                                       : turn % collective.world;
            collective.in_place = (turn + collective.world) % 2;
            collective.align = turn / 2 % 2 ? 16 : 1;
            collective.mean = reduces(collective.kind) && turn / 4 % 2;
            run_and_check(&collective);
        }
    }
}

static void all_worlds(choir__algorithm algorithm)
{
    for (int size = 1; size <= WORLD; size++)
        everything((choir__pattern_collective){.algorithm = algorithm, .world = size});
}

static void test_exchange(void **state)
{
    all_worlds(CHOIR__EXCHANGE);
}

static void test_ring(void **state)
{
    all_worlds(CHOIR__RING);
}

static void test_binomial(void **state)
{
    all_worlds(CHOIR__BINOMIAL);
}

static void test_halving(void **state)
{
    all_worlds(CHOIR__HALVING);
}

static void test_double_tree(void **state)
{
    all_worlds(CHOIR__DOUBLE_TREE);
    for (int size = 2; size <= WORLD; size += 5)
        for (int k = 0; k < 3; k++) { /* many pieces */
            static const choir__kind kinds[] = {
                CHOIR__BROADCAST, CHOIR__REDUCE, CHOIR__ALL_REDUCE};
            choir__pattern_collective collective = {.algorithm = CHOIR__DOUBLE_TREE,
                .kind = kinds[k],
                .world = size,
                .root = size / 3,
                .count = 20011,
                .align = 1,
                .in_place = size % 2};
            run_and_check(&collective);
        }
}

/* Distributes ranks over nodes: 4 per node; 1, 2, 3, ... per node; all but one on one node; one
 * per node; else 3 per node. */
static void deal(int how, int size, int nodes[WORLD])
{
    for (int r = 0, node = 0, left = 1; r < size; r++) {
        if (left == 0) {
            node++;
            left = how == 1 ? node + 1 : 0;
        }
        left--;
        nodes[r] = how == 0   ? r / 4
                   : how == 1 ? node
                   : how == 2 ? r == size - 1
                   : how == 3 ? r
                              : r / 3;
    }
}

static void test_hierarchical(void **state)
{
    int nodes[WORLD];
    for (int how = 0; how <= 4; how++)
        for (int size = 1; size <= WORLD; size += 1 + how) {
            deal(how, size, nodes);
            everything((choir__pattern_collective){
                .algorithm = CHOIR__HIERARCHICAL, .world = size, .nodes = nodes});
        }
}

/* The gradients' tree over micro-batches: several nodes per rank, or none. */
static void test_micro_batches(void **state)
{
    static const int64_t totals[] = {1, 3, 8, 13, 64, 100, 200};
    int nodes[WORLD];
    for (int size = 1; size <= WORLD; size++)
        for (size_t l = 0; l < CHOIR_COUNT(totals); l++) {
            bool in_place = (size + (int)l) % 2;
            int64_t count = l % 2 ? 1301 : 9;
            choir__pattern_collective collective = {.kind = CHOIR__TREE_REDUCE,
                .algorithm = CHOIR__EXCHANGE,
                .world = size,
                .count = count,
                .leaves = totals[l],
                .node_stride = count + 3,
                .align = 16,
                .in_place = in_place};
            run_and_check(&collective);
            collective.algorithm = CHOIR__HIERARCHICAL;
            collective.nodes = nodes;
            deal(size % 5, size, nodes);
            run_and_check(&collective);
        }
}

static void test_uneven(void **state)
{
    for (int size = 1; size <= WORLD; size++) {
        static world w;
        int64_t in[WORLD][WORLD], out[WORLD][WORLD];
        w = (world){.collective = {.kind = CHOIR__ALL_TO_ALL,
                        .algorithm = CHOIR__EXCHANGE,
                        .world = size,
                        .align = 1}};
        for (int r = 0; r < size; r++) {
            for (int other = 0; other < size; other++) {
                in[r][other] = (r * 3 + other) % 5;
                out[r][other] = (other * 3 + r) % 5;
            }
            w.collective.in_counts = in[r], w.collective.out_counts = out[r];
            machine_init(&w, r);
        }
        run(&w);
        check(&w);
        for (int r = 0; r < size; r++)
            machine_free(&w.ranks[r]);
    }
}

/* No rank leaves a barrier before all have entered it. */
static void test_barrier(void **state)
{
    for (int size = 1; size <= WORLD; size++) {
        choir__move_schedule schedules[WORLD];
        uint64_t heard[WORLD], next[WORLD];
        for (int r = 0; r < size; r++) {
            choir__pattern_collective collective = {
                .kind = CHOIR__BARRIER, .world = size, .rank = r, .align = 1};
            ok(choir__move_schedule_make(&collective, &schedules[r]));
            assert_int_equal(schedules[r].rounds, choir__log2_ceil(size));
            heard[r] = UINT64_C(1) << r;
        }
        for (int round = 0; round < choir__log2_ceil(size); round++) {
            memcpy(next, heard, sizeof next);
            for (int r = 0; r < size; r++)
                for (int i = 0; i < schedules[r].count; i++) {
                    const choir__move *move = &schedules[r].moves[i];
                    if (move->kind == CHOIR__MOVE_SEND && move->round == round)
                        next[move->peer] |= heard[r];
                }
            memcpy(heard, next, sizeof next);
        }
        for (int r = 0; r < size; r++) {
            assert_true(heard[r] == UINT64_MAX >> (64 - size));
            choir__move_schedule_free(&schedules[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_binomial),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_double_tree),
        cmocka_unit_test(test_hierarchical),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
