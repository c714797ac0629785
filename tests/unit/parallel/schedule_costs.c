/* Schedules cost what the literature says: steps (rounds in which any rank sends) and bytes
 * (here: elements), counted on the schedules of 1 to 64 ranks.
 *
 *   ring, exchange, halving     2 (p-1)/p n elements per rank
 *   their steps                 2 (p-1), 2, 2 log2 p
 *   double tree                 at most 2 n per rank, in pieces; as many rounds as pieces, and
 *                               twice the trees' depth
 *   hierarchical                2 (N-1)/N n elements between N nodes, per node */

#include "check.h"
#include "base/base.h"
#include "comm/pattern/build.h"

enum { WORLD = 64, ROUNDS = 4096 };

typedef struct cost {
    int steps, rounds;
    int64_t most, least; /* sent per rank */
    int64_t total, messages;
    int64_t largest; /* message */
    int64_t between; /* nodes: the most that a node sends to others */
} cost;

static cost cost_of(choir__pattern_collective collective)
{
    static bool busy[ROUNDS];
    cost c = {.least = INT64_MAX};
    int64_t nodes[WORLD] = {0};
    for (int i = 0; i < ROUNDS; i++)
        busy[i] = false;
    for (collective.rank = 0; collective.rank < collective.world; collective.rank++) {
        choir__move_schedule s;
        int64_t sent = 0;
        ok(choir__move_schedule_make(&collective, &s));
        assert_true(s.rounds <= ROUNDS);
        c.rounds = (int)choir__max(c.rounds, s.rounds);
        for (int i = 0; i < s.count; i++) {
            const choir__move *m = &s.moves[i];
            if (m->kind != CHOIR__MOVE_SEND)
                continue;
            c.steps += !busy[m->round];
            busy[m->round] = true;
            sent += m->count;
            c.messages++;
            c.largest = choir__max(c.largest, m->count);
            if (collective.nodes &&
                collective.nodes[collective.rank] != collective.nodes[m->peer])
                nodes[collective.nodes[collective.rank]] += m->count;
        }
        c.total += sent;
        c.most = choir__max(c.most, sent);
        c.least = choir__min(c.least, sent);
        choir__move_schedule_free(&s);
    }
    for (int i = 0; i < WORLD; i++)
        c.between = choir__max(c.between, nodes[i]);
    return c;
}

static choir__pattern_collective collective_of(
    choir__algorithm algorithm, choir__kind kind, int world, int64_t count)
{
    return (choir__pattern_collective){.algorithm = algorithm,
        .kind = kind,
        .world = world,
        .count = count,
        .align = 1,
        .in_place = kind == CHOIR__ALL_REDUCE};
}

static cost cost_by(choir__algorithm algorithm, choir__kind kind, int world, int64_t count)
{
    return cost_of(collective_of(algorithm, kind, world, count));
}

static void test_ring(void **state)
{
    for (int p = 1; p <= WORLD; p++) {
        const int64_t part = 1000, n = part * p;
        cost c = cost_by(CHOIR__RING, CHOIR__ALL_REDUCE, p, n);
        assert_int_equal(c.steps, 2 * (p - 1));
        assert_int_equal(c.rounds, c.steps);
        assert_int_equal(c.most, 2 * (p - 1) * part);
        assert_int_equal(c.least, c.most);
        assert_int_equal(c.largest, p > 1 ? part : 0);
        choir__kind halves[] = {CHOIR__REDUCE_SCATTER, CHOIR__ALL_GATHER};
        for (int h = 0; h < 2; h++) {
            c = cost_by(CHOIR__RING, halves[h], p, part);
            assert_int_equal(c.steps, p - 1);
            assert_int_equal(c.most, (p - 1) * part);
            assert_int_equal(c.least, c.most);
        }
        /* Not divisible: chunks differ by one element, the sum is the same. */
        c = cost_by(CHOIR__RING, CHOIR__ALL_REDUCE, p, n + p / 2);
        assert_int_equal(c.total, 2 * (p - 1) * (n + p / 2));
        assert_in_range(c.largest, 0, part + 1);
    }
}

static void test_exchange(void **state)
{
    for (int p = 1; p <= WORLD; p++) {
        const int64_t part = 5000, n = part * p;
        cost c = cost_by(CHOIR__EXCHANGE, CHOIR__ALL_REDUCE, p, n);
        assert_int_equal(c.steps, p > 1 ? 2 : 0);
        assert_int_equal(c.most, 2 * (p - 1) * part);
        assert_int_equal(c.least, c.most);
        c = cost_by(CHOIR__EXCHANGE, CHOIR__ALL_REDUCE, p, 8);
        assert_int_equal(c.steps, p > 1);
        assert_int_equal(c.most, (p - 1) * 8);
        c = cost_by(CHOIR__EXCHANGE, CHOIR__REDUCE_SCATTER, p, part);
        assert_int_equal(c.steps, p > 1);
        assert_int_equal(c.most, (p - 1) * part);
        c = cost_by(CHOIR__EXCHANGE, CHOIR__ALL_TO_ALL, p, part);
        assert_int_equal(c.most, (p - 1) * part);
        if (p < 3)
            continue;
        c = cost_by(CHOIR__EXCHANGE, CHOIR__BROADCAST, p, n); /* the root: twice, no more */
        assert_int_equal(c.most, 2 * (p - 1) * part);
        c = cost_by(CHOIR__EXCHANGE, CHOIR__REDUCE, p, n);
        assert_int_equal(c.most, p * part);
    }
}

static void test_halving(void **state)
{
    for (int p = 2, k = 1; p <= WORLD; p *= 2, k++) {
        cost c = cost_by(CHOIR__HALVING, CHOIR__ALL_REDUCE, p, 1024 * p);
        assert_int_equal(c.steps, 2 * k);
        assert_int_equal(c.most, 2 * (p - 1) * 1024);
        assert_int_equal(c.least, c.most);
        assert_int_equal(c.messages, 2 * k * p);
    }
    for (int p = 1; p <= WORLD; p++) { /* folds, where p is no power of two */
        cost c = cost_by(CHOIR__HALVING, CHOIR__ALL_REDUCE, p, 1024 * 64);
        int levels = 31 - __builtin_clz((unsigned)p), folds = __builtin_popcount((unsigned)p);
        assert_int_equal(c.steps, 2 * levels + 2 * (folds - 1));
        assert_in_range(c.most, 0, 4 * 1024 * 64);
        c = cost_by(CHOIR__HALVING, CHOIR__ALL_GATHER, p, 10);
        assert_int_equal(c.steps, choir__log2_ceil(p));
        assert_int_equal(c.most, (p - 1) * 10);
    }
}

static void test_binomial(void **state)
{
    static const choir__kind kinds[] = {
        CHOIR__REDUCE, CHOIR__BROADCAST, CHOIR__GATHER, CHOIR__SCATTER};
    for (int p = 1; p <= WORLD; p++) {
        const int levels = choir__log2_ceil(p);
        for (size_t k = 0; k < CHOIR_COUNT(kinds); k++) {
            choir__pattern_collective collective =
                collective_of(CHOIR__BINOMIAL, kinds[k], p, 10);
            collective.root = p / 2;
            cost c = cost_of(collective);
            assert_int_equal(c.steps, levels);
            assert_int_equal(c.messages, p - 1);
        }
        cost c = cost_by(CHOIR__BINOMIAL, CHOIR__ALL_REDUCE, p, 10);
        assert_int_equal(c.steps, 2 * levels);
        assert_int_equal(c.messages, 2 * (p - 1));
    }
}

static void test_double_tree(void **state)
{
    for (int p = 2; p <= WORLD; p++) {
        const int64_t n = 40 * 1024;
        const int pieces = 20, depth = choir__log2_ceil(p);
        cost c = cost_by(CHOIR__DOUBLE_TREE, CHOIR__BROADCAST, p, n);
        assert_in_range(c.steps, pieces, pieces + depth);
        assert_int_equal(c.total, (p - 1) * n);
        assert_in_range(c.most, n / 2, n); /* one tree would take 2 n of the inner ranks */
        c = cost_by(CHOIR__DOUBLE_TREE, CHOIR__ALL_REDUCE, p, n);
        assert_in_range(c.steps, pieces, pieces + 2 * depth);
        assert_int_equal(c.total, 2 * (p - 1) * n);
        assert_in_range(c.most, 0, 2 * n);
    }
}

static void test_hierarchical(void **state)
{
    int nodes[WORLD];
    for (int each = 1; each <= 16; each *= 2)
        for (int count = 1; count * each <= WORLD; count++) {
            const int p = count * each;
            const int64_t n = 64 * p;
            for (int r = 0; r < p; r++)
                nodes[r] = r / each;
            choir__pattern_collective collective =
                collective_of(CHOIR__HIERARCHICAL, CHOIR__ALL_REDUCE, p, n);
            collective.nodes = nodes;
            cost c = cost_of(collective);
            assert_int_equal(c.between, 2 * (count - 1) * n / count);
            assert_in_range(c.steps, 0, 4);
            collective.algorithm = CHOIR__EXCHANGE; /* for comparison: each rank for itself */
            collective.count = 64 * 64 * p;
            c = cost_of(collective);
            if (count > 1 && each > 1)
                assert_true(c.between > 2 * (count - 1) * collective.count / count);
        }
}

/* The gradients of p ranks with one micro-batch each cost no more than an all-reduce. */
static void test_micro_batches(void **state)
{
    for (int p = 1; p <= WORLD; p++) {
        choir__pattern_collective collective =
            collective_of(CHOIR__EXCHANGE, CHOIR__TREE_REDUCE, p, 5000 * p);
        collective.leaves = p;
        cost c = cost_of(collective);
        assert_int_equal(c.most, 2 * (p - 1) * 5000);
        collective.leaves = 4 * p; /* whole blocks of four: still one node per rank */
        assert_int_equal(cost_of(collective).most, 2 * (p - 1) * 5000);
    }
}

/* The automatic choice keeps the fixed tree; a named algorithm that cannot do the job is
 * replaced. */
static void test_choice(void **state)
{
    int nodes[WORLD];
    for (int r = 0; r < WORLD; r++)
        nodes[r] = r / 8;
    choir__pattern_collective collective =
        collective_of(CHOIR__AUTO, CHOIR__ALL_REDUCE, 64, 16);
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__BINOMIAL);
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_BF16), CHOIR__EXCHANGE);
    collective.count = 1024;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__HALVING);
    collective.world = 4;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__EXCHANGE);
    collective.world = 64;
    collective.count = 1 << 20;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__EXCHANGE);
    collective.nodes = nodes;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__HIERARCHICAL);
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F16), CHOIR__EXCHANGE);
    nodes[0] = 3; /* a node's ranks are not neighbors */
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__EXCHANGE);
    collective.algorithm = CHOIR__RING;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__RING);
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_BF16), CHOIR__RING);
    collective.kind = CHOIR__BROADCAST;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_BF16), CHOIR__RING);
    collective.kind = CHOIR__ALL_TO_ALL;
    assert_int_equal(choir__move_schedule_choose(&collective, CHOIR_F32), CHOIR__EXCHANGE);

    choir__move_schedule s;
    assert_fails(choir__move_schedule_make(&collective, &s), CHOIR_ERR_UNSUPPORTED,
        "all_to_all: the ring algorithm");
    collective.algorithm = CHOIR__HIERARCHICAL, collective.kind = CHOIR__ALL_REDUCE;
    assert_int_equal(choir__move_schedule_make(&collective, &s), CHOIR_ERR_UNSUPPORTED);
}

/* The automatic choice never changes the tree's bits, whatever the nodes, the kind and the
 * size. */
static void test_choices_keep_the_tree(void **state)
{
    int nodes[WORLD];
    for (int world = 1; world <= WORLD; world++)
        for (int each = 1; each <= world; each += 3)
            for (int kind = 0; kind <= CHOIR__ALL_TO_ALL; kind++)
                for (int64_t count = 1; count < 1 << 20; count *= 16) {
                    for (int r = 0; r < world; r++)
                        nodes[r] = r / each;
                    choir__pattern_collective collective =
                        collective_of(CHOIR__AUTO, (choir__kind)kind, world, count);
                    collective.nodes = nodes;
                    choir__algorithm chosen =
                        choir__move_schedule_choose(&collective, CHOIR_F32);
                    assert_true(chosen == CHOIR__EXCHANGE || chosen == CHOIR__BINOMIAL ||
                                chosen == CHOIR__HALVING || chosen == CHOIR__HIERARCHICAL);
                    assert_true(choir__move_schedule_does(&collective, chosen));
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_binomial),
        cmocka_unit_test(test_double_tree),
        cmocka_unit_test(test_hierarchical),
        cmocka_unit_test(test_micro_batches),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_choices_keep_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
