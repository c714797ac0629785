/* Collectives over messages: every kind by every algorithm, small and cut into segments, on
 * ranks that are threads with mailboxes between them. */

#include "base/hash.h"
#include "check.h"
#include "collectives_fixture.h"
#include "comm/pattern/schedule.h"
#include "mailbox.h"

static const choir__algorithm algorithms[] = {CHOIR__AUTO, CHOIR__EXCHANGE, CHOIR__BINOMIAL,
    CHOIR__HALVING, CHOIR__HIERARCHICAL, CHOIR__RING, CHOIR__DOUBLE_TREE};

static bool keeps_tree(choir__algorithm algorithm)
{
    return algorithm != CHOIR__RING && algorithm != CHOIR__DOUBLE_TREE;
}

/* Runs one call of a trial. *bits: a digest of the result. */
static int run_trial(choir__engine *engine, const trial *t, choir__algorithm algorithm,
    uint32_t seq, uint64_t *bits)
{
    char why[400];
    int64_t counts[2][MAILBOX_WORLD];
    trial_memory m = trial_open(t, engine->rank);
    choir__call call = {.stamp = {.count = t->uneven ? 0 : (uint64_t)t->count,
                            .seq = seq,
                            .kind = (uint8_t)t->kind,
                            .dtype = (uint8_t)t->dtype,
                            .op = (uint8_t)t->op,
                            .algorithm = (uint8_t)algorithm,
                            .root = t->root,
                            .layout = t->uneven},
        .in = m.in,
        .out = m.out};
    for (int r = 0; r < t->world && t->uneven; r++) {
        counts[0][r] = uneven_count(t, engine->rank, r);
        counts[1][r] = uneven_count(t, r, engine->rank);
    }
    call.in_counts = t->uneven ? counts[0] : NULL;
    call.out_counts = t->uneven ? counts[1] : NULL;
    choir_status status = choir__message_run(engine, &call);
    const char *wrong = status ? engine->message : trial_check(&m, t, engine->rank, why);
    if (wrong)
        fprintf(stderr, "%s: %s\n", choir__algorithm_name(algorithm), wrong);
    size_t bytes = (size_t)m.out_count * choir_dtype_size(t->dtype);
    *bits = choir__hash_bytes(0, m.out, bytes);
    trial_close(&m);
    return wrong != NULL;
}

typedef struct plenty {
    const int64_t *counts;
    int count_count;
    bool all_types, cut; /* cut: only the kinds that are cut into segments */
} plenty;

/* Runs all types and operations, or only sums of f32 and means of bytes, which travel as
 * i32. */
static int each_type(
    choir__engine *engine, trial t, choir__algorithm a, bool all, uint32_t *seq)
{
    uint64_t bits, again;
    for (int d = 0; d < CHOIR_DTYPE_COUNT; d++)
        for (int op = 0; op < CHOIR_REDUCE_OP_COUNT; op++) {
            t.dtype = (choir_dtype)d;
            t.op = (choir_reduce_op)op;
            bool main = op == CHOIR_SUM && d == CHOIR_F32;
            bool odd = op == CHOIR_MEAN && d == CHOIR_U8;
            if ((!all && !main && !odd) || !trial_possible(t.dtype, t.op) ||
                (!trial_reduces(&t) && op))
                continue;
            if (run_trial(engine, &t, a, ++*seq, &bits))
                return 1;
            bool again_too = !t.tree && t.count < 1000; /* the same bits a second time */
            if (again_too && (run_trial(engine, &t, a, ++*seq, &again) || bits != again))
                return 1;
        }
    return 0;
}

static int everything(choir__engine *engine, void *arg)
{
    const plenty *p = arg;
    uint32_t seq = 0;
    for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++)
        for (size_t k = 0; k < CHOIR_COUNT(trial_kinds); k++)
            for (int c = 0; c < p->count_count; c++)
                for (int way = 0; way < 3; way++) {
                    trial t = {.kind = trial_kinds[k],
                        .count = p->counts[c],
                        .world = engine->world,
                        .root = (int)((k + (size_t)c) % (size_t)engine->world),
                        .in_place = way == 1,
                        .uneven = way == 2,
                        .tree = keeps_tree(algorithms[a])};
                    bool cut = trial_reduces(&t) || t.kind == CHOIR__BROADCAST;
                    if ((t.kind == CHOIR__ALL_TO_ALL ? t.in_place : t.uneven) ||
                        (p->cut && !cut))
                        continue;
                    if (each_type(engine, t, algorithms[a], p->all_types, &seq))
                        return 1;
                }
    return 0;
}

static void test_small(void **state)
{
    static const int64_t few[] = {0, 1, 7, 300}, main[] = {65};
    plenty some = {few, CHOIR_COUNT(few), false, false},
           all = {main, CHOIR_COUNT(main), true, false};
    for (int world = 1; world <= 6; world++)
        assert_int_equal(mailbox_run(world, 0, everything, &some), 0);
    assert_int_equal(mailbox_run(3, 0, everything, &all), 0);
    assert_int_equal(mailbox_run(8, 3, everything, &some), 0); /* nodes of 3, 3 and 2 ranks */
}

/* Data are cut into more segments than there are lanes; the last one is smaller. */
static void test_segments(void **state)
{
    static const int64_t counts[] = {65537 * 10};
    plenty p = {counts, CHOIR_COUNT(counts), false, true};
    assert_int_equal(mailbox_run(2, 0, everything, &p), 0);
    assert_int_equal(mailbox_run(3, 2, everything, &p), 0);
}

/* The gradients' tree over micro-batches, of which each rank has a run, against the sum by
 * definition. */
static int trees(choir__engine *engine, void *arg)
{
    static const int64_t leaves[] = {1, 2, 5, 8, 13}, counts[] = {1, 100, 70001};
    uint32_t seq = 0;
    for (size_t l = 0; l < CHOIR_COUNT(leaves); l++)
        for (size_t c = 0; c < CHOIR_COUNT(counts); c++)
            for (size_t a = 0; a < CHOIR_COUNT(algorithms); a++) {
                int64_t lo, hi, n = counts[c], stride = n + 16;
                choir__node nodes[CHOIR__MAX_NODES];
                choir__tree_run(leaves[l], engine->rank, engine->world, &lo, &hi);
                int count = choir__tree_nodes(lo, hi, nodes);
                float *data = calloc((size_t)(count + 1) * (size_t)stride, sizeof *data);
                float values[16];
                if (!keeps_tree(algorithms[a])) {
                    free(data);
                    continue;
                }
                for (int k = 0; k < count; k++)
                    for (int64_t i = 0; i < n; i++) {
                        for (int64_t b = 0; b < nodes[k].leaves; b++)
                            values[b] = value(CHOIR_F32, (int)(nodes[k].start + b), i).f32;
                        data[k * stride + i] = choir__tree_sum(values, nodes[k].leaves, 1);
                    }
                choir__call call = {.stamp = {.count = (uint64_t)n,
                                        .seq = ++seq,
                                        .kind = CHOIR__TREE_REDUCE,
                                        .algorithm = (uint8_t)algorithms[a],
                                        .leaves = (int32_t)leaves[l]},
                    .in = data,
                    .out = data,
                    .node_stride = (size_t)stride * sizeof *data,
                    .scale = 1.0f / (float)leaves[l]};
                int bad = choir__message_run(engine, &call) != CHOIR_OK;
                for (int64_t i = 0; i < n && !bad; i++) {
                    for (int64_t b = 0; b < leaves[l]; b++)
                        values[b] = value(CHOIR_F32, (int)b, i).f32;
                    bad = data[i] != choir__tree_sum(values, leaves[l], call.scale);
                }
                free(data);
                if (bad) {
                    fprintf(stderr, "tree of %d leaves, %d, %s: %s\n", (int)leaves[l], (int)n,
                        choir__algorithm_name(algorithms[a]), engine->message);
                    return 1;
                }
            }
    return 0;
}

static void test_trees(void **state)
{
    static const int worlds[] = {1, 2, 3, 5, 8};
    for (size_t w = 0; w < CHOIR_COUNT(worlds); w++)
        assert_int_equal(mailbox_run(worlds[w], 3, trees, NULL), 0);
}

/* Every rank sends every other several messages, of different sizes, some empty: they arrive in
 * order. */
static int messages(choir__engine *engine, void *arg)
{
    enum { EACH = 3, ROOM = 1000 };
    int world = engine->world, count = 0;
    choir__call *calls = calloc((size_t)(2 * EACH * world), sizeof *calls);
    int32_t *data = calloc((size_t)(2 * EACH * world), ROOM * sizeof *data);
    for (int r = 0; r < world; r++)
        for (int k = 0; k < EACH && r != engine->rank; k++)
            for (int way = 0; way < 2; way++) {
                int32_t *place = data + (ptrdiff_t)count * ROOM;
                int n = k * (way ? r + 2 * engine->rank : engine->rank + 2 * r) * 10;
                for (int i = 0; i < n && !way; i++)
                    place[i] = (int32_t)value(CHOIR_I32, engine->rank, k * ROOM + i).i32;
                calls[count++] = (choir__call){.stamp = {.count = (uint64_t)n,
                                                   .kind = way ? CHOIR__RECEIVE : CHOIR__SEND,
                                                   .dtype = CHOIR_I32,
                                                   .peer = r},
                    .in = place,
                    .out = place};
            }
    int bad = choir__message_batch(engine, calls, count) != CHOIR_OK;
    for (int c = 0; c < count && !bad; c++)
        if (calls[c].stamp.kind == CHOIR__RECEIVE)
            for (uint64_t i = 0; i < calls[c].stamp.count; i++)
                bad |=
                    ((int32_t *)calls[c].out)[i] !=
                    value(CHOIR_I32, calls[c].stamp.peer, c / 2 % EACH * ROOM + (int64_t)i).i32;
    free(calls);
    free(data);
    return bad;
}

static void test_messages(void **state)
{
    assert_int_equal(mailbox_run(2, 0, messages, NULL), 0);
    assert_int_equal(mailbox_run(5, 0, messages, NULL), 0);
}

/* Arguments that differ between ranks, and a lack of memory, are errors on all ranks. */
static int disagreement(choir__engine *engine, void *arg)
{
    float x[64] = {0};
    choir__call call = {.stamp = {.count = engine->rank == 1 ? 63 : 64,
                            .seq = 1,
                            .kind = CHOIR__ALL_REDUCE,
                            .dtype = CHOIR_F32},
        .in = x,
        .out = x};
    choir_status status = choir__message_run(engine, &call);
    choir_status again = choir__message_run(engine, &call);
    return !(status && again == status && engine->failed == status);
}

static int too_much(choir__engine *engine, void *arg)
{
    float x = 0;
    choir__call call = {.stamp = {.count = UINT64_C(1) << 55,
                            .seq = 1,
                            .kind = CHOIR__REDUCE_SCATTER,
                            .dtype = CHOIR_F32,
                            .algorithm = CHOIR__BINOMIAL},
        .in = &x,
        .out = &x + 1};
    return choir__message_run(engine, &call) != CHOIR_ERR_MEMORY ||
           !strstr(engine->message, "bytes");
}

static void test_errors(void **state)
{
    assert_int_equal(mailbox_run(3, 0, disagreement, NULL), 0);
    assert_int_equal(mailbox_run(2, 0, too_much, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_trees),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
