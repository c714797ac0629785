/* The suite that every engine must pass: all collectives, types, operations and algorithms, in
 * one group. Each kind of group runs it: ranks as threads, as processes, under mpirun, on
 * different hosts. */
#ifndef CHOIR_TESTS_CONFORMANCE_COLLECTIVES_H
#define CHOIR_TESTS_CONFORMANCE_COLLECTIVES_H

#include "base/hash.h"
#include "collectives_fixture.h"
#include "multi/ranks.h"

/* Translates a pointer for the calls under test: comm/far/far.c stores data where processors
 * cannot read them. */
#ifndef SUITE_AT
#define SUITE_AT(p) (p)
#endif

/* Moves a trial's memory to the place where a call finds it, and back: in multi/cuda_groups.c
 * this is a GPU. */
#ifndef SUITE_LEND
#define SUITE_LEND(m) (*(m))
#define SUITE_TAKE_BACK(m)
#endif

enum { SUITE_WORLD = 64, SUITE_WORKS = 6 };

static inline uint64_t digest_of(const void *data, size_t bytes)
{
    return choir__hash_bytes(CHOIR__HASH_SEED, data, bytes);
}

/* Names that a group accepts; NULL: the group's own choice. `tree`: the algorithm gives the
 * bits of the fixed tree. */
typedef struct suite_algorithm {
    const char *name;
    bool tree;
} suite_algorithm;

static const suite_algorithm suite_algorithms[] = {{NULL, true}, {"exchange", true},
    {"direct", true}, {"binomial", true}, {"halving", true}, {"hierarchical", true},
    {"ring", false}, {"double_tree", false}, {"native", false}};

static inline choir_status suite_call(
    choir_group *g, const trial *t, trial_memory *m, choir_work *w)
{
    int64_t give[SUITE_WORLD], take[SUITE_WORLD];
    int rank = choir_group_rank(g);
    trial_memory there = SUITE_LEND(m);
    void *in = SUITE_AT(there.in), *out = SUITE_AT(there.out);
    switch (t->kind) {
    case CHOIR__BARRIER: return choir_group_barrier(g, w);
    case CHOIR__BROADCAST: return choir_group_broadcast(g, out, t->count, t->dtype, t->root, w);
    case CHOIR__REDUCE:
        return choir_group_reduce(g, out, t->count, t->dtype, t->op, t->root, w);
    case CHOIR__ALL_REDUCE: return choir_group_all_reduce(g, out, t->count, t->dtype, t->op, w);
    case CHOIR__GATHER: return choir_group_gather(g, in, out, t->count, t->dtype, t->root, w);
    case CHOIR__ALL_GATHER: return choir_group_all_gather(g, in, out, t->count, t->dtype, w);
    case CHOIR__SCATTER: return choir_group_scatter(g, in, out, t->count, t->dtype, t->root, w);
    case CHOIR__REDUCE_SCATTER:
        return choir_group_reduce_scatter(g, in, out, t->count, t->dtype, t->op, w);
    default: break;
    }
    if (!t->uneven)
        return choir_group_all_to_all(g, in, out, t->count, t->dtype, w);
    for (int r = 0; r < t->world; r++) {
        give[r] = uneven_count(t, rank, r);
        take[r] = uneven_count(t, r, rank);
    }
    return choir_group_all_to_all_uneven(g, in, give, out, take, t->dtype, w);
}

/* The public functions take one buffer for these kinds. */
static inline bool suite_in_place_only(choir__kind kind)
{
    return kind == CHOIR__BROADCAST || kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE;
}

static inline int suite_wrong(const trial *t, const char *algorithm, const char *why)
{
    char text[200];
    fprintf(
        stderr, "%s by %s: %s\n", trial_text(t, text), algorithm ? algorithm : "choice", why);
    return 1;
}

/* Runs one trial; twice if its bits are only promised to be the same each time. */
static inline int suite_trial(choir_group *g, trial t, const suite_algorithm *a)
{
    int rank = choir_group_rank(g), bad = 0;
    uint64_t bits[2] = {0, 0};
    char why[400];
    t.tree = a->tree;
    trial_memory m = trial_open(&t, rank);
    for (int round = 0; round < (a->tree || !trial_reduces(&t) ? 1 : 2) && !bad; round++) {
        trial_fill(&m, &t, rank);
        choir_status status = suite_call(g, &t, &m, NULL);
        SUITE_TAKE_BACK(&m);
        const char *wrong = status ? choir_error_message() : trial_check(&m, &t, rank, why);
        if (wrong)
            bad = suite_wrong(&t, a->name, wrong);
        bits[round] = digest_of(m.out, (size_t)m.out_count * choir_dtype_size(t.dtype));
        if (!bad && round && bits[0] != bits[1])
            bad = suite_wrong(&t, a->name, "other bits the second time");
    }
    if (!bad && !a->tree && t.kind == CHOIR__ALL_REDUCE) {
        uint64_t all[SUITE_WORLD];
        if (choir_group_all_gather(g, bits, all, 1, CHOIR_I64, NULL))
            bad = suite_wrong(&t, a->name, choir_error_message());
        for (int r = 1; r < t.world && !bad; r++)
            if (all[r] != all[0])
                bad = suite_wrong(&t, a->name, "other bits on another rank");
    }
    trial_close(&m);
    return bad;
}

/* Runs a trial in place and not, with even parts and uneven ones. */
static inline int suite_ways(choir_group *g, trial t, const suite_algorithm *a)
{
    for (int way = 0; way < 2; way++) {
        t.uneven = way && t.kind == CHOIR__ALL_TO_ALL;
        t.in_place = suite_in_place_only(t.kind) || (way && !t.uneven);
        if (way && (suite_in_place_only(t.kind) || t.kind == CHOIR__BARRIER))
            continue;
        if (suite_trial(g, t, a))
            return 1;
    }
    return 0;
}

/* Runs every type with every operation, at one small size. */
static inline int suite_types(choir_group *g, const suite_algorithm *a)
{
    int world = choir_group_world(g);
    for (size_t k = 0; k < CHOIR_COUNT(trial_kinds); k++)
        for (int d = 0; d < CHOIR_DTYPE_COUNT; d++)
            for (int op = 0; op < CHOIR_REDUCE_OP_COUNT; op++) {
                trial t = {.kind = trial_kinds[k],
                    .dtype = (choir_dtype)d,
                    .op = (choir_reduce_op)op,
                    .count = 45,
                    .world = world,
                    .root = (d + op) % world};
                if (trial_reduces(&t) ? !trial_possible(t.dtype, t.op) : op != 0)
                    continue;
                if (suite_ways(g, t, a))
                    return 1;
            }
    return 0;
}

/* Runs every size, with types and operations in turn. */
static inline int suite_sizes(
    choir_group *g, const suite_algorithm *a, const int64_t *sizes, int size_count)
{
    static const struct {
        choir_dtype dtype;
        choir_reduce_op op;
    } turns[] = {{CHOIR_F32, CHOIR_SUM}, {CHOIR_BF16, CHOIR_MEAN}, {CHOIR_F32, CHOIR_MEAN},
        {CHOIR_I64, CHOIR_MAX}, {CHOIR_F16, CHOIR_SUM}, {CHOIR_U8, CHOIR_BXOR},
        {CHOIR_F64, CHOIR_SUM}};
    int world = choir_group_world(g);
    size_t turn = 0;
    for (size_t k = 0; k < CHOIR_COUNT(trial_kinds); k++)
        for (int s = 0; s < size_count; s++, turn++) {
            trial t = {.kind = trial_kinds[k],
                .dtype = turns[turn % CHOIR_COUNT(turns)].dtype,
                .op = turns[turn % CHOIR_COUNT(turns)].op,
                .count = sizes[s],
                .world = world,
                .root = (int)(turn % (size_t)world)};
            if (suite_ways(g, t, a))
                return 1;
        }
    return 0;
}

/* Runs several calls of different kinds at the same time, alone or as one batch; the last is
 * waited for first. Some neighbours are of a kind that a batch may combine. */
static inline int suite_several(choir_group *g, const suite_algorithm *a, bool batch)
{
    static const choir__kind kinds[SUITE_WORKS] = {CHOIR__ALL_REDUCE, CHOIR__ALL_REDUCE,
        CHOIR__ALL_GATHER, CHOIR__ALL_GATHER, CHOIR__BROADCAST, CHOIR__REDUCE_SCATTER};
    int world = choir_group_world(g), rank = choir_group_rank(g), bad = 0;
    trial trials[SUITE_WORKS];
    trial_memory memory[SUITE_WORKS];
    choir_work works[SUITE_WORKS], all;
    char why[400];
    if (batch)
        choir_group_batch_begin(g);
    for (int i = 0; i < SUITE_WORKS; i++) {
        trials[i] = (trial){.kind = kinds[i],
            .count = 700 * i + 3,
            .world = world,
            .root = i % world,
            .in_place = suite_in_place_only(kinds[i]),
            .tree = a->tree};
        memory[i] = trial_open(&trials[i], rank);
        bad |= suite_call(g, &trials[i], &memory[i], batch ? NULL : &works[i]) != CHOIR_OK;
    }
    if (batch) {
        bad |= choir_group_batch_end(g, &all) != CHOIR_OK;
        bad |= choir_work_wait(all) != CHOIR_OK || !choir_work_done(all);
    }
    for (int i = SUITE_WORKS - 1; i >= 0; i--) {
        if (!batch)
            bad |= choir_work_wait(works[i]) != CHOIR_OK || !choir_work_done(works[i]);
        SUITE_TAKE_BACK(&memory[i]);
        const char *wrong =
            bad ? choir_error_message() : trial_check(&memory[i], &trials[i], rank, why);
        if (wrong)
            bad = suite_wrong(&trials[i], a->name, wrong);
        trial_close(&memory[i]);
    }
    return bad;
}

/* Sends from every rank to every other in one batch, with a sum among them; then around the
 * ring, one by one. */
static inline int suite_messages(choir_group *g, int64_t most)
{
    int world = choir_group_world(g), rank = choir_group_rank(g), bad = 0;
    int32_t sum = rank, token = 0;
    int32_t *data = calloc((size_t)(2 * world) * (size_t)(most + 1), sizeof *data);
    choir_group_batch_begin(g);
    for (int r = 0; r < world; r++) {
        int32_t *out = data + 2 * r * most, *in = out + most;
        int64_t gives = most * (rank + r) / (2 * world), takes = gives;
        for (int64_t i = 0; i < gives; i++)
            out[i] = value(CHOIR_I32, rank, r + i).i32;
        if (r == rank)
            bad |= choir_group_all_reduce(g, &sum, 1, CHOIR_I32, CHOIR_SUM, NULL) != CHOIR_OK;
        else
            bad |= choir_group_send(g, SUITE_AT(out), gives, CHOIR_I32, r, NULL) != CHOIR_OK ||
                   choir_group_receive(g, SUITE_AT(in), takes, CHOIR_I32, r, NULL) != CHOIR_OK;
    }
    bad |= choir_group_batch_end(g, NULL) != CHOIR_OK;
    bad |= sum != world * (world - 1) / 2;
    for (int r = 0; r < world && !bad; r++)
        for (int64_t i = 0; i < most * (rank + r) / (2 * world) && r != rank; i++)
            bad |= data[(2 * r + 1) * most + i] != value(CHOIR_I32, r, rank + i).i32;
    free(data);
    if (world > 1 && rank)
        bad |= choir_group_receive(g, &token, 1, CHOIR_I32, rank - 1, NULL) != CHOIR_OK;
    bad |= token != rank;
    token++;
    if (world > 1)
        bad |= choir_group_send(g, &token, 1, CHOIR_I32, (rank + 1) % world, NULL) != CHOIR_OK;
    if (world > 1 && !rank)
        bad |= choir_group_receive(g, &token, 1, CHOIR_I32, world - 1, NULL) != CHOIR_OK ||
               token != world;
    if (bad)
        fprintf(stderr, "messages: %s\n", choir_error_message());
    return bad;
}

/* Sub-groups, with ranks in another order, work at the same time as their parent. */
static inline int suite_split(choir_group *g, const suite_algorithm *a)
{
    int world = choir_group_world(g), rank = choir_group_rank(g), bad = 0;
    choir_group *child;
    choir_work works[8];
    float sums[8][300];
    if (choir_group_split(g, rank % 2, -rank, &child)) {
        fprintf(stderr, "split: %s\n", choir_error_message());
        return 1;
    }
    int half = choir_group_world(child);
    bad |= half != (world + 1 - rank % 2) / 2;
    for (int i = 0; i < 8; i++) {
        for (int k = 0; k < 300; k++)
            sums[i][k] = (float)(rank + i);
        bad |= choir_group_all_reduce(i % 2 ? g : child, sums[i], 300, CHOIR_F32, CHOIR_SUM,
                   &works[i]) != CHOIR_OK;
    }
    for (int i = 7; i >= 0; i--)
        bad |= choir_work_wait(works[i]) != CHOIR_OK;
    for (int i = 0; i < 8; i++) {
        int of_all = world * (world - 1) / 2 + i * world;
        int of_half = half * (half - 1) + (rank % 2 + i) * half;
        bad |= sums[i][299] != (float)(i % 2 ? of_all : of_half);
    }
    if (bad)
        fprintf(
            stderr, "split by %s: %s\n", a->name ? a->name : "choice", choir_error_message());
    choir_group_free(child);
    if (choir_group_split(g, rank ? -1 : 0, 0, &child)) /* the other ranks are in no group */
        return 1;
    bad |= (child != NULL) != (rank == 0);
    choir_group_free(child);
    return bad;
}

/* Runs the suite. thorough: every type, operation and size with every algorithm; else types and
 * operations with the group's own choice, and a few sizes. */
static inline int suite(choir_group *g, bool thorough)
{
    static const int64_t sizes[] = {0, 1, 7, 1000, 20011, 70001}, few[] = {0, 3, 20011};
    for (size_t i = 0; i < CHOIR_COUNT(suite_algorithms); i++) {
        const suite_algorithm *a = &suite_algorithms[i];
        CHECK_OK(choir_group_algorithm(g, a->name));
        int bad = thorough ? suite_sizes(g, a, sizes, (int)CHOIR_COUNT(sizes))
                           : suite_sizes(g, a, few, (int)CHOIR_COUNT(few));
        if (bad || ((thorough || !i) && suite_types(g, a)) || suite_several(g, a, false) ||
            suite_several(g, a, true) || ((thorough || !i) && suite_split(g, a)))
            return 1;
    }
    CHECK_OK(choir_group_algorithm(g, NULL));
    return suite_messages(g, 10) || suite_messages(g, 30000);
}

#endif
