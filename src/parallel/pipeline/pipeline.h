/* Inside a pipeline.
 *
 *   measure.c   the first steps, on one device: what each op takes, and what it uses
 *   cut.c       deals the ops among the stages
 *   placement.c moves parameters and buffers to their stages, gives them books and replicas
 *   place.c     while a micro-batch runs: which stage an op belongs to, and its operands there
 *   pipeline.c  runs a plan's actions
 *   report.c    tells what was found
 *   ranks.c     over ranks: what they agree on, and what all of them get
 *   remote.c    devices that are others', and what goes between them
 *   data.c      replicas of the pipeline, which reduce gradients stage by stage */
#ifndef CHOIR_PIPELINE_INTERNAL_H
#define CHOIR_PIPELINE_INTERNAL_H

#include <choir/pipeline.h>
#include "autograd/walk.h"
#include "base/fiber.h"
#include "nn/module.h"
#include "parallel/pipeline/remote.h"
#include "parallel/replication.h"

typedef struct choir__pipeline choir__pipeline;
typedef struct choir__pipeline_data choir__pipeline_data;

typedef struct choir__micro choir__micro;
typedef bool choir__place_fn(
    choir__micro *m, choir_scope *scope, const char *op, choir_tensor **in, int count);

/* One micro-batch on its way through the stages. */
struct choir__micro {
    choir__placement placement; /* first: of its scope */
    choir__place_fn *place;     /* how its ops are placed */
    choir__pipeline *pipeline;
    choir_scope *scope;
    choir__fiber *fiber;
    int64_t index;
    int ops;          /* begun so far */
    bool suspended;   /* between two stages */
    choir_module *at; /* the module it was suspended in */
    choir_tensor *loss;
    choir__walk walk;
    choir__event *done; /* (stages): of its forwards */
    int left;           /* actions */
    double noted;       /* when the op before was done, while measuring */
    size_t bytes_noted; /* live on the device then */
};

/* A parameter or buffer is an operand of an op. */
typedef struct choir__op_use {
    choir_tensor *tensor;
    int op;
    bool rows; /* as a table: its gradient is rows */
} choir__op_use;

struct choir__pipeline {
    choir_module base;
    choir__strategy strategy;
    choir_module *module;
    choir_device **devices; /* (device_count) */
    int device_count, chunks, stages;
    const char *schedule;
    const char *cuts;           /* as they were given; NULL: by measuring */
    choir__remote *remote;      /* the devices are ranks; NULL: they are this process's */
    choir__pipeline_data *data; /* the pipeline has replicas; NULL: it is the only one */
    /* measured */
    int measured; /* steps */
    bool placed;
    int gathered; /* not placed any more: the stage where all is; -1: the run's device */
    choir__op_cost *costs, *now; /* (ops): the least so far; of this micro-batch */
    double *held;                /* (ops): bytes that its forward leaves for backward */
    double *crossing;   /* (ops): bytes of activations that op and those after it read of
                           the ones before */
    const char **paths; /* (ops): of the module that issued it */
    int ops, room;
    choir__op_use *uses; /* of the first micro-batch, in order */
    int use_count, use_room;
    /* placed */
    char **cut_names; /* (stages - 1), by hand; or NULL */
    int *first;       /* (stages + 1): op that begins a stage; the last: ops */
    choir_stage_cost *stage_costs;
    choir_pipeline_plan *plan;
    const char *planned;  /* its schedule */
    bool fresh;           /* no step has run since parameters were placed */
    choir__micro *micros; /* (micro_count) */
    int64_t micro_count;
    choir_tensor **kept; /* (kept_count): losses, handles of the run */
    int64_t kept_count;
    choir_micro_fn *fn; /* of the step at hand */
    void *arg;
    choir_tensor *losses; /* (micro_count) of it, on the last stage's device, where that is a
                             rank's; NULL: none so far */
};

/* What choir_pipeline made, maybe wrapped by choir_ddp. NULL: the module is another one. */
choir__pipeline *choir__pipeline_of(const choir_module *module);

static inline choir_device *choir__stage_device(const choir__pipeline *p, int stage)
{
    return p->devices[stage % p->device_count];
}

/* The loss of a micro-batch, in a handle of the run that every step uses again. */
choir_tensor *choir__pipeline_keep(choir__pipeline *p, int64_t micro, choir_tensor *loss);

enum { CHOIR__MEASURED_STEPS = 2 }; /* the first makes what kernels keep for later */

/* measure.c: all micro-batches of a step, one after another, on the run's device; measured, if
 * the step is one of the first. */
choir_status choir__pipeline_measure(
    choir__pipeline *p, choir_scope *step, int64_t count, choir_tensor **losses);

/* cut.c: fills in first and stage_costs, for steps of so many micro-batches. */
choir_status choir__pipeline_cut(choir__pipeline *p, int64_t micros);

/* placement.c */
choir_status choir__pipeline_place(choir__pipeline *p, int64_t micros);
/* All parameters and buffers to the device of a stage; -1: the run's. */
choir_status choir__pipeline_unplace(choir__pipeline *p, int stage);
/* Of p on another stage than its own; NULL: there is none. */
choir__param *choir__pipeline_replica(const choir__param *p, int stage);

/* ranks.c; collective */

/* The devices are the group's ranks. All are to have been given the same. */
choir_status choir__pipeline_over_ranks(choir__pipeline *p, choir_pipeline_opts opts);
/* Have all measured the same ops, and the same losses (count)? They take rank 0's times. */
choir_status choir__pipeline_agree(
    choir__pipeline *p, choir_tensor *const *losses, int64_t count);
/* A micro-batch is done: its loss is put beside the others'. */
choir_status choir__pipeline_put_loss(choir__pipeline *p, const choir__micro *m);
/* The plan is done: the losses on the run's device, on every rank. */
choir_status choir__pipeline_bring_losses(
    choir__pipeline *p, choir_scope *step, choir_tensor **losses, int64_t count);

/* What ranks and replicas must have been given alike. */
typedef struct choir__digest {
    uint64_t value;
    const char *what;
} choir__digest;
enum { CHOIR__DIGESTS = 4 };
void choir__pipeline_digests(const choir__pipeline *p, choir__digest digests[CHOIR__DIGESTS]);

/* data.c */

/* The book of a stage (-1: of all of the model): its gradients are summed over the replicas, if
 * the stage is here; under FSDP its parameters become rows. */
/* The strategy's replicate: how->group's ranks have replicas of the pipeline, the same stages
 * each. Collective. */
choir_status choir__pipeline_replicate(choir__pipeline *p, const choir__replication *how);

choir_status choir__data_adopt(choir__pipeline_data *d, choir__book *book, int stage);
/* Parameters are about to move to other stages, and to new books: unless a step is half done.
 */
void choir__data_leave_books(choir__pipeline_data *d);
/* Parameters are in rows, and cannot move. */
bool choir__data_sharded(const choir__pipeline_data *d);
/* Before a step's first forward. */
void choir__data_sync_buffers(choir__pipeline_data *d, const choir_scope *step);
/* Micro-batches of the replica that has most; cuts are made for it. */
int64_t choir__data_longest(const choir__pipeline_data *d);
/* Of which gradients are reduced here. */
int choir__data_stages(const choir__pipeline_data *d);
choir_status choir__data_check_count(const choir__pipeline_data *d, int64_t count);
/* Collective over the replicas, waits: replica 0's bytes. */
choir_status choir__data_share(choir__pipeline_data *d, void *data, size_t bytes);
/* This rank has failed, or one of its replica: all replicas end with the sentence. */
void choir__data_abort(choir__pipeline_data *d, choir_status status, const char *sentence);
void choir__data_close(choir__pipeline_data *d); /* NULL is fine */

/* place.c: micro's ops are placed by this function from now on. */
void choir__pipeline_place_by(choir__micro *m, choir__place_fn *place);
/* place.c: makes micro's placement follow the cuts, or one that follows parameters. */
void choir__pipeline_place_ops(choir__micro *micro);
void choir__pipeline_follow(choir__micro *micro);

#endif
