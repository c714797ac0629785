/* Inside FSDP: what the module, its units, its weights and its reducer share. */
#ifndef CHOIR_FSDP_INTERNAL_H
#define CHOIR_FSDP_INTERNAL_H

#include <choir/fsdp.h>
#include "comm/rows.h"
#include "parallel/group_memory.h"
#include "parallel/ranks.h"
#include "parallel/replication.h"

/* Memory that the peers read, for a bucket of gradients at a time. */
typedef struct choir__fsdp_slot {
    choir__group_memory memory;
    size_t bytes;
    int bucket;        /* that it holds; -1: free */
    uint64_t turn;     /* when it was given back, counted */
    choir__event read; /* the peers have read what was in it */
    struct choir__fsdp_slot *next;
} choir__fsdp_slot;

typedef struct choir__fsdp_gather choir__fsdp_gather;

typedef struct choir__fsdp choir__fsdp;
struct choir__fsdp {
    choir_module base;
    choir__strategy strategy;
    choir__sharder sharder; /* of a pipeline's stages */
    choir__fsdp *stages;    /* one per stage that has been adopted, in order */
    choir__fsdp *next;      /* the next of those */
    choir_module *module;
    choir_device *device;   /* the run's; of a pipeline's stage, the stage's */
    bool staged;            /* params are those of a stage, whose uses elsewhere have copies */
    choir_group *group;     /* all ranks */
    choir_group *shard;     /* those that share a model; group itself unless hybrid */
    choir_group *replicate; /* those that have the same share of other copies; NULL: none */
    choir_fsdp_opts opts;
    bool lent;             /* a pipeline shards its stages, each by one of these */
    choir__param **params; /* (count) in order of registration */
    int count;
    uint64_t synced; /* one more than the step whose buffers are rank 0's */

    /* weights.c */
    choir__shared *shared;      /* stage 3: all weights, in rank 0's region */
    choir__storage *whole;      /* stages 1 and 2: all weights of this rank */
    choir__cut *weight_cuts;    /* (count) of a flat array of all weights */
    size_t charged;             /* bytes, to the device's pool, for shared */
    choir__fsdp_gather *gather; /* stage 3 where ranks share no memory; else NULL */

    /* reducer.c */
    choir__fsdp_slot *slots;
    uint64_t turns;
    choir__cut **cuts; /* (bucket_count) each (cut_count[bucket]) */
    int *cut_count;
    int bucket_count;
    choir__storage *sums;          /* gradients of what this rank has */
    choir__group_memory copy_sums; /* the same of hybrid sharding, of all copies' ranks */
    size_t sums_stride;            /* between nodes of a hybrid's */
    int64_t *sums_at, *sums_count; /* (bucket_count) elements of a bucket in it */
};

/* units.c: numbers the units of the parameters. Errors: argument. */
choir_status choir__fsdp_units(choir__fsdp *f);

/* weights.c: memory and values for the parameters, and which part of each is this rank's.
 * Collective. */
choir_status choir__fsdp_shard(choir__fsdp *f);
/* p->local: this rank's rows of p's tensor, from element `at` of storage on. */
void choir__fsdp_take_rows(choir__fsdp *f, choir__param *p, const choir__cut *cut,
    choir__storage *storage, int64_t at);
/* The same where the stage is another rank's: no memory, and the rows of its rank. */
choir_status choir__fsdp_shard_away(choir__fsdp *f);
/* Behind the optimizer's step: all ranks' rows are everybody's. */
choir_status choir__fsdp_publish(choir__fsdp *f);
void choir__fsdp_free_weights(choir__fsdp *f);

/* gather.c: the same where ranks share no memory. */
choir_status choir__fsdp_gather_new(choir__fsdp *f);
void choir__fsdp_gather_free(choir__fsdp_gather *g); /* NULL is fine */
/* The strategy's bring: gathers a unit whose weights are asked for. */
void choir__fsdp_gather_bring(choir__strategy *s, void *unit);
/* A forward pass begins: it gathers in the order of the last one of its kind. */
void choir__fsdp_gather_forward(choir__fsdp_gather *g, bool training);
void choir__fsdp_gather_backward(choir__fsdp_gather *g);
/* The step's last backward is over; other ranks have `more` micro-batches than this one. */
void choir__fsdp_gather_finish(choir__fsdp_gather *g, int64_t more);
/* The optimizer has changed this rank's rows. */
void choir__fsdp_gather_updated(choir__fsdp_gather *g);
/* A step begins, perhaps after one that was given up: nothing is here. */
void choir__fsdp_gather_reset(choir__fsdp_gather *g);
choir_status choir__fsdp_gather_status(const choir__fsdp_gather *g);

/* reducer.c */
extern const choir__reducer_ops choir__fsdp_reducer;

/* The device goes on when the devices of all ranks that share the weights are here. */
choir_status choir__fsdp_fence(choir__fsdp *f);

#endif
