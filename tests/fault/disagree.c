/* Ranks that disagree on a call: one of them calls another collective, count, type, operation
 * or root. All ranks get an error that shows both sides, for every kind of collective, small
 * and large, and only that group is lost. Where an algorithm chosen by name uses messages, a
 * rank that only sends finishes before the mismatch can be known: a later call reports it, and
 * the sentence may name that call instead. */
#include "fault/notes.h"

#include <stdlib.h>
#include <string.h>

#include "comm/group.h"
#include "multi/ranks.h"

enum { LARGE = 60000, ROOM = (LARGE + 1) * 8 * 8 };

static const choir__kind kinds[] = {CHOIR__BARRIER, CHOIR__BROADCAST, CHOIR__REDUCE,
    CHOIR__ALL_REDUCE, CHOIR__GATHER, CHOIR__ALL_GATHER, CHOIR__SCATTER, CHOIR__REDUCE_SCATTER,
    CHOIR__ALL_TO_ALL, CHOIR__SHARE};

static const char *const ways[] = {NULL, "exchange", "ring", "binomial", "halving"};

typedef struct place {
    const char *way;
    choir_group *group;
    char *in, *out; /* (ROOM) */
} place;

static bool has_root(choir__kind kind)
{
    return kind == CHOIR__BROADCAST || kind == CHOIR__REDUCE || kind == CHOIR__GATHER ||
           kind == CHOIR__SCATTER;
}

static bool has_op(choir__kind kind)
{
    return kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE || kind == CHOIR__REDUCE_SCATTER;
}

static bool has_count(choir__kind kind)
{
    return kind != CHOIR__BARRIER && kind != CHOIR__SHARE;
}

static choir_status call(const place *p, const choir__stamp *s)
{
    choir_group *g = p->group;
    choir_dtype dtype = (choir_dtype)s->dtype;
    choir_reduce_op op = (choir_reduce_op)s->op;
    int64_t n = (int64_t)s->count;
    choir__shared *shared = NULL;
    choir_status status;
    switch ((choir__kind)s->kind) {
    case CHOIR__BARRIER: return choir_group_barrier(g, NULL);
    case CHOIR__BROADCAST: return choir_group_broadcast(g, p->in, n, dtype, s->root, NULL);
    case CHOIR__REDUCE: return choir_group_reduce(g, p->in, n, dtype, op, s->root, NULL);
    case CHOIR__ALL_REDUCE: return choir_group_all_reduce(g, p->in, n, dtype, op, NULL);
    case CHOIR__GATHER: return choir_group_gather(g, p->in, p->out, n, dtype, s->root, NULL);
    case CHOIR__ALL_GATHER: return choir_group_all_gather(g, p->in, p->out, n, dtype, NULL);
    case CHOIR__SCATTER: return choir_group_scatter(g, p->in, p->out, n, dtype, s->root, NULL);
    case CHOIR__REDUCE_SCATTER:
        return choir_group_reduce_scatter(g, p->in, p->out, n, dtype, op, NULL);
    case CHOIR__ALL_TO_ALL: return choir_group_all_to_all(g, p->in, p->out, n, dtype, NULL);
    default:
        status = choir__shared_new(g, 4096, &shared);
        choir__shared_free(shared);
        return status;
    }
}

/* All ranks but `odd` make the one call, `odd` the other. Returns 0 if all errors are as
 * expected. */
static int disagree(
    choir_group *world, place *p, const choir__stamp *ours, const choir__stamp *theirs, int odd)
{
    char here[CHOIR__STAMP_TEXT], there[CHOIR__STAMP_TEXT];
    int me = choir_group_rank(world);
    if (choir_group_split(world, 0, me, &p->group) || choir_group_algorithm(p->group, p->way)) {
        fprintf(stderr, "no sub-group: %s\n", choir_error_message());
        return 1;
    }
    choir_status status = call(p, me == odd ? theirs : ours);
    for (int later = 0; later < 2 && p->way && status == CHOIR_OK; later++)
        status = choir_group_barrier(p->group, NULL);
    const char *text = choir_error_message();
    choir__stamp_text(ours, here);
    choir__stamp_text(theirs, there);
    bool shown = strstr(text, here) && strstr(text, there);
    bool good = status == CHOIR_ERR_MISMATCH && strstr(text, " while rank ");
    good = good && (p->way || shown);
    if (!good)
        fprintf(stderr, "%s, way %s: rank %d of %d, rank %d calls %s: %s '%s'\n", here,
            p->way ? p->way : "-", me, choir_group_world(world), odd, there,
            choir_status_name(status), status ? text : "");
    bool sticks = choir_group_barrier(p->group, NULL) == status;
    choir_group_free(p->group);
    return !good || !sticks;
}

/* Every way in which another call can differ from this one. */
static int all_differences(choir_group *world, place *p, choir__stamp ours, size_t kind)
{
    int bad = 0, ranks = choir_group_world(world), odd = (int)kind % ranks;
    choir__stamp theirs = ours;
    theirs.kind = kinds[(kind + 1) % CHOIR_COUNT(kinds)];
    if (!has_root((choir__kind)theirs.kind))
        theirs.root = 0;
    if (!has_count((choir__kind)theirs.kind))
        theirs.count = theirs.dtype = 0;
    else if (!has_count((choir__kind)ours.kind))
        theirs.count = 3;
    bad += disagree(world, p, &ours, &theirs, odd);
    if (has_count((choir__kind)ours.kind)) {
        theirs = ours;
        theirs.count++;
        bad += disagree(world, p, &ours, &theirs, odd);
        theirs = ours;
        theirs.dtype = CHOIR_I64;
        bad += disagree(world, p, &ours, &theirs, odd);
    }
    if (has_op((choir__kind)ours.kind)) {
        theirs = ours;
        theirs.op = CHOIR_MAX;
        bad += disagree(world, p, &ours, &theirs, odd);
    }
    if (has_root((choir__kind)ours.kind)) {
        theirs = ours;
        theirs.root = ranks - 1;
        bad += disagree(world, p, &ours, &theirs, odd);
    }
    return bad;
}

static int in_every_kind(int rank, int world, void *arg)
{
    int bad = 0;
    choir_group *group;
    choir_group_opts opts = choir_group_defaults();
    place p = {.in = calloc(1, ROOM), .out = calloc(1, ROOM)};
    opts.timeout_s = 30;
    CHECK_OK(choir_group_init(NULL, opts, &group));
    for (size_t w = 0; w < CHOIR_COUNT(ways); w++)
        for (size_t k = 0; k < CHOIR_COUNT(kinds); k++)
            for (int large = 0; large < 2; large++) {
                choir__stamp ours = {.kind = (uint8_t)kinds[k]};
                if (has_count(kinds[k])) {
                    ours.count = large ? LARGE / (unsigned)world : 3;
                    ours.dtype = CHOIR_F32;
                }
                p.way = ways[w];
                if (!large || has_count(kinds[k]))
                    bad += all_differences(group, &p, ours, k);
            }
    CHECK_OK(choir_group_barrier(group, NULL)); /* the group they came from lives */
    choir_group_free(group);
    free(p.in);
    free(p.out);
    return bad > 0;
}

static void test_every_kind(void **state)
{
    for (int world = 2; world <= 5; world += world == 3 ? 2 : 1)
        if (choir_spawn(world, in_every_kind, NULL) != CHOIR_OK)
            fail_msg("world %d: %s", world, choir_error_message());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_kind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
