/* Inside FSDP: the state that the module, its units, its weights and its reducer share. */
#ifndef CHOIR_FSDP_INTERNAL_H
#define CHOIR_FSDP_INTERNAL_H

#include <choir/fsdp.h>
#include "comm/rows.h"
#include "parallel/group_memory.h"
#include "parallel/ranks.h"
#include "parallel/replication.h"

/* Memory that the peers read; holds one bucket of gradients at a time. */
typedef struct choir__fsdp_slot {
    choir__group_memory memory;
    size_t bytes;
    int bucket;        /* the bucket in this slot; -1: free */
    uint64_t turn;     /* ordinal of its last release among all releases */
    choir__event read; /* the peers have read its content */
    struct choir__fsdp_slot *next;
} choir__fsdp_slot;

typedef struct choir__fsdp_gather choir__fsdp_gather;

typedef struct choir__fsdp choir__fsdp;
struct choir__fsdp {
    choir_module base;
    choir__strategy strategy;
    choir__sharder sharder; /* shards the stages of a pipeline */
    choir__fsdp *stages;    /* one per adopted stage, in order */
    choir__fsdp *next;      /* the next stage in that list */
    choir_module *module;
    choir_device *device; /* the run's device; for a stage of a pipeline, the stage's */
    bool staged;        /* params belong to one stage; other stages that use them have copies */
    choir_group *group; /* all ranks */
    choir_group *shard; /* ranks that share one model; equals group unless hybrid */
    choir_group *turned; /* turn.c: the ranks by their present micro-batches; NULL: their own */
    int turn;            /* rank r has the micro-batches of rank r + turn */
    choir__kept_buffers *kept; /* buffers before the step; NULL: ranks were never turned */
    choir_group *replicate;    /* ranks with the same share of the other copies; NULL: none */
    choir_fsdp_opts opts;
    bool lent;             /* a pipeline shards its stages: one choir__fsdp per stage */
    bool joined;           /* if lent: the strategy is one of the run's */
    choir__param **params; /* (count) in order of registration; without ignored ones */
    int count;
    choir_dtype dtype;      /* f32 or f64: of all sharded parameters, and of their sums */
    choir__param **ignored; /* (ignored_count) see ignored.c */
    int ignored_count;
    choir__offload_store *outside; /* the place of the shards; NULL: the device's pool */
    uint64_t synced; /* one more than the step whose buffers have been broadcast from rank 0 */

    /* --- weights.c --- */
    choir__shared *shared;        /* stage 3: all weights, in rank 0's region */
    choir__storage *whole;        /* stages 1 and 2: all weights, this rank's copy */
    choir__rows_cut *weight_cuts; /* (count) cuts of a flat array of all weights */
    size_t charged;               /* bytes of shared that are charged to the device's pool */
    choir__fsdp_gather *gather;   /* stage 3 if ranks share no memory; else NULL */

    /* --- reducer.c --- */
    choir__fsdp_slot *slots;
    uint64_t turns;
    choir__rows_cut **cuts; /* (bucket_count) arrays of cut_count[bucket] */
    int *cut_count;
    int bucket_count;
    choir__storage *sums; /* gradients of this rank's rows */
    /* (before_count) turn.c: memory of sums that is held until new sums have theirs */
    choir__storage **before;
    int before_count;
    /* the same sums, if they are off-loaded, or reduced with the ranks of the other copies;
     * group_before: turn.c, if they are off-loaded */
    choir__group_memory group_sums, group_before;
    size_t sums_stride;            /* bytes between nodes in group_sums */
    int64_t *sums_at, *sums_count; /* (bucket_count) elements of each bucket in the sums */
};

/* weights.c. choir__fsdp_micros returns the number of micro-batches of the job. */
int64_t choir__fsdp_micros(const choir__fsdp *f);
bool choir__fsdp_offloads(const choir__fsdp *f);

/* stages.c. choir__fsdp_shard_stages makes f the sharder of a pipeline's stages.
 * choir__fsdp_stages_evaluate begins a forward pass in evaluation. */
choir_status choir__fsdp_shard_stages(choir__fsdp *f, choir__strategy *pipeline);
void choir__fsdp_stages_evaluate(const choir__fsdp *f);

/* units.c: numbers the units and assigns the parameters to them. Error: argument. */
choir_status choir__fsdp_units(choir__fsdp *f);

/* ignored.c. choir__fsdp_ignore moves the parameters that opts.ignored matches from params to
 * ignored; error: argument. choir__fsdp_ignored_book makes their book, with its reducer. */
choir_status choir__fsdp_ignore(choir__fsdp *f);
choir__book *choir__fsdp_ignored_book(choir__fsdp *f);

/* weights.c: allocates the parameters' memory, initializes it, and determines this rank's rows
 * of each. Collective. */
choir_status choir__fsdp_shard(choir__fsdp *f);
/* True if weights are gathered before they are used (gather.c). */
bool choir__fsdp_gathers(const choir__fsdp *f);
/* Returns an error if another strategy has taken p over. */
choir_status choir__fsdp_is_free(const choir__fsdp *f, const choir__param *p);
/* rows.c: sets p->local to this rank's rows of p's tensor, which begin at element `at` of
 * storage. */
void choir__fsdp_take_rows(choir__fsdp *f, choir__param *p, const choir__rows_cut *cut,
    choir__storage *storage, int64_t at);
/* Like choir__fsdp_shard, for a stage that another rank runs: uses no memory, and takes the
 * rows of that rank. */
choir_status choir__fsdp_shard_away(choir__fsdp *f);
/* Undoes choir__fsdp_shard: frees the weights, but this rank keeps its rows, which become
 * p->local in memory of their own; p->tensor has none until it is sharded again. */
choir_status choir__fsdp_release(choir__fsdp *f);
/* Called after the optimizer's step: makes the rows of all ranks visible to all ranks. */
choir_status choir__fsdp_publish(choir__fsdp *f);
void choir__fsdp_free_weights(choir__fsdp *f);

/* gather.c: like choir__fsdp_shard, for stage 3 if ranks share no memory. */
choir_status choir__fsdp_gather_new(choir__fsdp *f);
void choir__fsdp_gather_free(choir__fsdp_gather *g); /* g may be NULL */
/* The strategy's bring: gathers a unit whose weights are about to be used. */
void choir__fsdp_gather_bring(choir__strategy *s, void *unit);
/* Begins a forward pass, which gathers units in the order of the last pass of its kind. */
void choir__fsdp_gather_forward(choir__fsdp_gather *g, bool training);
void choir__fsdp_gather_backward(choir__fsdp_gather *g);
/* Called after the step's last backward. The longest rank has `more` micro-batches more than
 * this one. */
void choir__fsdp_gather_finish(choir__fsdp_gather *g, int64_t more);
/* Called after the optimizer has changed this rank's rows: drops all gathered weights. */
void choir__fsdp_gather_updated(choir__fsdp_gather *g);
/* Called at the beginning of a step, which may follow an aborted one: drops all gathered
 * weights. */
void choir__fsdp_gather_reset(choir__fsdp_gather *g);
choir_status choir__fsdp_gather_status(const choir__fsdp_gather *g);
/* Returns the bytes of gathered weights in the device's pool. */
size_t choir__fsdp_gather_bytes(const choir__fsdp_gather *g);

/* Returns the group in which sums are formed: ranks in the order of their micro-batches. */
static inline choir_group *choir__fsdp_adders(const choir__fsdp *f)
{
    return f->turned ? f->turned : f->shard;
}

/* fsdp.c: lets the book plan this rank's micro-batches. */
void choir__fsdp_plan(const choir__fsdp *f, choir__book *book, int64_t total);

/* turn.c: the strategy's ranks_turned. */
choir_status choir__fsdp_turned(
    choir__strategy *s, choir_group *group, int by, uint64_t undone);
/* rows.c: frees f->before; returns whether there was something. */
bool choir__fsdp_let_sums_go(choir__fsdp *f);

/* --- reducer.c --- */
extern const choir__reducer_ops choir__fsdp_reducer;

/* rows.c: the device waits until the devices of all ranks that share the weights have
 * arrived. */
choir_status choir__fsdp_fence(choir__fsdp *f);

#endif
