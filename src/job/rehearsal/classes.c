/* Which ranks do the same, and need one rehearsal.
 *
 * Ranks differ by their place along each dimension of the mesh. Stages, slices and chunks are
 * different work, so along their dimensions each place is rehearsed. Along the one dimension
 * that deals micro-batches out, most places are alike:
 *
 *     ddp+pipeline, 6x2        stage 0   stage 1
 *     micro-batches 0-3          0         1        rehearsed, each for
 *                   4-7          0         1        five more ranks
 *                   ...
 *
 * Two of these places are alike if what depends on the place is equal: the nodes of the tree
 * that its run of micro-batches completes, the groups of micro-batches that it shares, the rows
 * that it holds of sharded weights, the nodes over which copies of a model are
 * added, and whether it has batches of a validation. A program that depends on its rank in
 * another way would need a line in `describe` here; random jobs in tests/unit/job/classes.c
 * compare with rehearsals of all ranks. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/hash.h"
#include "base/tree.h"
#include "comm/rows.h"
#include "job/rehearsal/rehearsal.h"

enum {
    BATCHES = 2, /* more batches of a validation take no more memory */
    MOST_MICRO_BATCHES = 1024
};

/* The dimension that deals micro-batches out: rank / stride % size is the place on it. */
typedef struct dealer {
    const choir__job_strategy *strategy;
    const void *keys;
    int size, stride;
} dealer;

/* The numbers that depend on a place. */
typedef struct description {
    int64_t *values;
    int count;
    uint64_t hash;
} description;

static bool find_dealer(const choir__job_placement *p, dealer *found)
{
    const choir__composition *c = &p->composition;
    int stride = 1;
    for (int d = c->count - 1 - choir__composition_inside(c); d >= 0; d--) {
        const int size = choir__composition_ranks(c, d, p->nproc);
        *found = (dealer){c->dims[d].strategy, c->dims[d].keys, size, stride};
        if (found->strategy->spread == CHOIR__DEVICE_A_RANK)
            return true;
        stride *= size;
    }
    return false;
}

static void add(description *d, int64_t value)
{
    CHOIR__GROW(d->values, d->count);
    d->values[d->count++] = value;
    d->hash = choir__hash_step(d->hash, (uint64_t)value);
}

static void add_nodes(description *d, int64_t lo, int64_t hi)
{
    choir__node nodes[CHOIR__MAX_NODES];
    const int count = choir__tree_nodes(lo, hi, nodes);
    add(d, hi - lo);
    for (int i = 0; i < count; i++)
        add(d, nodes[i].leaves);
}

/* Adds the place's rows of each weight, and the sums that it holds for the other copies of its
 * model. */
static void add_shares(description *d, const choir__job_training *t, const dealer *of,
    const choir__rehearsal *r, int place)
{
    const int sharers = of->strategy->sharers(of->keys, of->size), copies = of->size / sharers;
    int64_t lo, hi;
    for (int i = 0; i < r->row_count; i++)
        add(d, choir__cut_part(&(choir__rows_cut){.rows = r->rows[i], .row = 1},
                   place % sharers, sharers, &lo));
    if (copies == 1)
        return;
    choir__tree_run(t->microbatches, place / sharers, copies, &lo, &hi);
    add_nodes(d, lo, hi);
}

/* Returns a rank's number among those that share the batches of a validation, and their
 * count. */
static int evaluates_as(const choir__composition *c, int ranks, int rank, int *count)
{
    int place = 0, stride = ranks;
    *count = 1;
    for (int d = 0; d < c->count - choir__composition_inside(c); d++) {
        const choir__job_strategy *s = c->dims[d].strategy;
        const int size = choir__composition_ranks(c, d, ranks);
        stride /= size;
        if (!choir__job_strategy_deals(s))
            continue;
        place = place * size + rank / stride % size;
        *count *= size;
    }
    return place;
}

static void add_validation(
    description *d, const choir__job_placement *p, int64_t batches, int rank)
{
    int count, place = evaluates_as(&p->composition, p->nproc, rank, &count);
    int64_t lo, hi;
    choir__tree_run(batches, place, count, &lo, &hi);
    add(d, choir__min(hi - lo, BATCHES));
}

static description describe(const choir__job *j, const dealer *of, const choir__rehearsal *r,
    int64_t batches, int place)
{
    description d = {0};
    const int64_t units = choir__job_strategy_units(j), unit = j->training.microbatches / units;
    int64_t lo, hi;
    choir__tree_run(units, place, of->size, &lo, &hi);
    add_nodes(&d, lo * unit, hi * unit);
    const int64_t groups =
        of->strategy->meet_by ? of->strategy->meet_by(of->keys, of->size, units) : 1;
    for (int64_t m = lo; m < hi && groups > 1; m++)
        add(&d, m % groups);
    if (of->strategy->sharers)
        add_shares(&d, &j->training, of, r, place);
    for (int inner = 0; inner < of->stride; inner++)
        add_validation(&d, &j->placement, batches, place * of->stride + inner);
    return d;
}

/* Returns the batches of a validation, cut to what takes memory. */
int64_t choir__rehearsal_batches(const choir__job *j)
{
    const int64_t each = j->training.batch_size / choir__max(1, j->training.microbatches),
                  samples = j->data.validation ? choir_dataset_length(j->data.validation) : 0;
    int64_t batches = (samples + each - 1) / choir__max(1, each);
    int ranks;
    evaluates_as(&j->placement.composition, j->placement.nproc, 0, &ranks);
    if (j->training.eval_batches)
        batches = choir__min(batches, j->training.eval_batches);
    return choir__min(batches, (int64_t)BATCHES * ranks);
}

/* Numbers the places by their kind, in kinds (size); returns the number of kinds. */
static int sort_places(
    const choir__job *j, const dealer *of, const choir__rehearsal *r, int *kinds)
{
    description *known = NULL;
    int count = 0, last = 0;
    const int64_t batches = choir__rehearsal_batches(j);
    for (int place = 0; place < of->size; place++) {
        description d = describe(j, of, r, batches, place);
        int k = last, tried = 0;
        for (; tried < count; tried++, k = (k + 1) % count)
            if (known[k].hash == d.hash && known[k].count == d.count &&
                !memcmp(known[k].values, d.values, (size_t)d.count * sizeof *d.values))
                break;
        if (tried < count) {
            free(d.values);
        } else {
            CHOIR__GROW(known, count);
            known[k = count++] = d;
        }
        kinds[place] = last = k;
    }
    for (int k = 0; k < count; k++)
        free(known[k].values);
    free(known);
    return count;
}

/* A rank's own micro-batches all run, as each adds to sums of its own. With many devices some
 * strategies would have far too many, as one device for the batch of a cluster. */
static choir_status check_micro_batches(const choir__job *j)
{
    const int64_t each =
        j->training.microbatches / choir__max(1, choir__job_strategy_dealt(&j->placement));
    return each <= MOST_MICRO_BATCHES || j->placement.device_count <= CHOIR__MAX_DEVICES
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "a plan follows at most %d micro-batches of a rank, and these are %lld",
                     MOST_MICRO_BATCHES, (long long)each);
}

choir_status choir__rehearsal_classify(choir__rehearsal *r, const choir__job *j)
{
    choir_status status = check_micro_batches(j);
    if (status != CHOIR_OK)
        return status;

    dealer of;
    const bool deals = find_dealer(&j->placement, &of) && !j->placement.all_live;
    int kinds = 0, *kind = choir__calloc((size_t)r->world, sizeof *kind);
    if (deals)
        kinds = sort_places(j, &of, r, kind);
    const int64_t others = deals ? r->world / of.size : r->world;
    r->classes = (int)choir__min(others * choir__max(kinds, 1), CHOIR__MOST_CLASSES + 1);
    free(r->class_of);
    r->class_of = choir__calloc((size_t)r->world, sizeof *r->class_of);
    for (int rank = 0; rank < r->world && r->classes <= CHOIR__MOST_CLASSES; rank++) {
        const int outer = deals ? rank / of.stride / of.size : 0,
                  inner = deals ? rank % of.stride : rank;
        r->class_of[rank] =
            deals ? (outer * kinds + kind[rank / of.stride % of.size]) * of.stride + inner
                  : rank;
    }
    free(kind);
    return r->classes <= CHOIR__MOST_CLASSES
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "a plan follows at most %d ranks whose work differs, and these are %lld",
                     CHOIR__MOST_CLASSES, (long long)(others * choir__max(kinds, 1)));
}
