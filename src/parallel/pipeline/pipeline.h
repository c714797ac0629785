/* Inside a pipeline.
 *
 *   spread.c    before there are cuts: the stage of each module, by its size or by hand
 *   measure.c   the first steps, without cuts: time and operands of each op
 *   cut.c       distributes the ops over the stages; stage_bytes.c: what a stage holds
 *   by_hand.c   the caller's cuts
 *   param_stage.c moves parameters and buffers to their stages; makes books and replicas
 *   op_stage.c     while a micro-batch runs: the stage of an op, and its operands there
 *   pipeline.c  runs a plan's actions
 *   losses.c    keeps the losses of a step
 *   report.c    reports stages, costs and the plan
 *   ranks.c     over ranks: checks that they agree, and distributes the losses
 *   remote.c    devices of other ranks, and copies between them
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

/* A micro-batch on its way through the stages. */
struct choir__micro {
    choir__placement placement; /* first member: the placement of its scope */
    choir__place_fn *place;     /* places the micro-batch's ops */
    choir__pipeline *pipeline;
    choir_scope *scope;
    choir__fiber *fiber;
    int64_t index;
    int ops;          /* ops begun so far */
    bool suspended;   /* true while it waits between two stages */
    choir_module *at; /* module in which it was suspended */
    choir_tensor *loss;
    choir__walk walk;
    choir__event *done; /* (stages) events: the forward in each stage is complete */
    int left;           /* actions still to run */
    /* while measuring: device of the current op (NULL: no op), time when the op began, and
     * bytes in use on the device at that time */
    choir_device *on;
    double noted;
    double bytes_noted;
};

/* One use of a parameter or buffer as an operand of an op. */
typedef struct choir__op_use {
    choir_tensor *tensor;
    int op;
    /* used as a lookup table: the gradient consists of as many rows, of all ranks that have
     * chunks of the sequences; else 0 */
    int64_t rows;
} choir__op_use;

struct choir__pipeline {
    choir_module base;
    choir__strategy strategy;
    choir_module *module;
    choir_device **devices; /* (device_count) */
    int device_count, chunks, stages;
    const char *schedule;
    const char *cuts;           /* the caller's cuts; NULL: found by measuring */
    choir__remote *remote;      /* the devices are other ranks; NULL: devices of this process */
    choir__pipeline_data *data; /* replicas of the pipeline; NULL: the only one */
    double *limits;             /* (device_count) limit of bytes per device; 0: no limit */
    /* --- measured --- */
    int measured; /* steps measured so far */
    bool clocked; /* the clock is read; else work is counted */
    bool spread;  /* the parameters are where choir__pipeline_spread put them */
    bool placed;  /* the parameters are where the cuts put them */
    /* if neither spread nor placed: stage that has all parameters; -1: the run's device has
     * them */
    int gathered;
    uint64_t data_seen;          /* over ranks: a hash of the data that came to the stages */
    choir__op_cost *costs, *now; /* (ops): minimum so far; costs of the current micro-batch */
    double *held;                /* (ops): bytes that the op's forward keeps for backward */
    double *made;                /* (ops): bytes of the op's result, as later ops read it */
    int *ran_on;                 /* (ops): stage whose device measured the op */
    double *crossing;   /* (ops): bytes of earlier activations that this or later ops read */
    const char **paths; /* (ops): path of the module that issued it */
    int ops, room;
    choir__op_use *uses; /* uses in the first micro-batch, in order */
    int use_count;
    /* --- placed --- */
    char **cut_names; /* (stages - 1) the caller's cuts; or NULL */
    int *first;       /* (stages + 1): first op of each stage; the last entry is ops */
    choir_stage_cost *stage_costs;
    double *bytes; /* (stages): bytes that each stage is expected to hold */
    choir_pipeline_plan *plan;
    const char *planned;  /* the plan's schedule */
    bool fresh;           /* no step has run since the parameters were placed */
    choir__event *before; /* (device_count) events: work before the step is complete */
    uint64_t step_begun;  /* choir__storage_now() before these events */
    choir__micro *micros; /* (micro_count) */
    int64_t micro_count;
    choir_tensor **kept; /* (kept_count) losses, as handles of the run */
    int64_t kept_count;
    choir_micro_fn *fn; /* function of the current step */
    void *arg;
    /* (micro_count) losses of the current step, on the last stage's device, if the devices are
     * ranks; NULL: no losses so far */
    choir_tensor *losses;
};

/* Returns the pipeline that choir_pipeline made, which choir_ddp may have wrapped; NULL if
 * module is not one. */
choir__pipeline *choir__pipeline_of(const choir_module *module);

static inline choir_device *choir__stage_device(const choir__pipeline *p, int stage)
{
    return p->devices[stage % p->device_count];
}

/* Returns the loss of a micro-batch in a handle of the run, which every step reuses. */
choir_tensor *choir__pipeline_keep(choir__pipeline *p, int64_t micro, choir_tensor *loss);

/* Returns an error of the function if the module is no pipeline. */
choir_status choir__pipeline_check(const choir_module *module, const char *function);
/* Reports a failure to the other ranks and replicas, which may be waiting for this rank. */
void choir__pipeline_tell(choir__pipeline *p, choir_status status);
/* Frees the micro-batches of a plan. */
void choir__pipeline_free_micros(choir__pipeline *p);

/* two, because kernels prepare for later calls in the first step */
enum { CHOIR__MEASURED_STEPS = 2 };

/* spread.c: gives every stage its share of parameters and buffers before the cuts are known.
 * Collective over ranks. */
choir_status choir__pipeline_spread(choir__pipeline *p);
/* replicate.c: the strategy's replicate. Makes the pipeline one of several replicas. The ranks
 * of how->group have one replica each, and the same stages. Collective. */
choir_status choir__pipeline_replicate(choir__pipeline *p, const choir__replication *how);

/* measure.c: runs all micro-batches of a step one after another, each op where its parameters
 * are, and measures them if the step is one of the first. */
choir_status choir__pipeline_measure(
    choir__pipeline *p, choir_scope *step, int64_t count, choir_tensor **losses);

/* cut.c: fills in first, bytes and stage_costs, for steps of `micros` micro-batches. */
choir_status choir__pipeline_cut(choir__pipeline *p, int64_t micros);
/* stage_bytes.c: returns the use of t whose stage stores t: the first dense use, else the first
 * use; -1 without a use. */
int choir__pipeline_home_use(const choir__pipeline *p, const choir_tensor *t);
/* by_hand.c: writes the ops that the caller's cuts name to p->first. */
choir_status choir__pipeline_cut_by_hand(choir__pipeline *p);
/* Checks the cuts' names, before any op is known. */
choir_status choir__pipeline_check_cuts(const choir__pipeline *p);
/* Reads a cut "PATH+N": returns N (0 without '+') and the length of PATH; -1 if the cut is the
 * number of an op, -2 if it is malformed. */
int choir__pipeline_cut_path(const char *cut, size_t *length);
/* Returns whether path is, or is inside, the module named by the first `length` characters of
 * name. */
bool choir__pipeline_is_inside(const char *path, const char *name, size_t length);

/* param_stage.c: cuts the model and moves each parameter and buffer to its stage. */
choir_status choir__pipeline_place(choir__pipeline *p, int64_t micros);
/* Makes a book of the parameters in each stage, and one of its replicas. */
choir_status choir__pipeline_make_books(choir__pipeline *p);
/* Moves all parameters and buffers to the device of `stage`; -1: the run's device. */
choir_status choir__pipeline_unplace(choir__pipeline *p, int stage);
/* Returns p's replica in `stage`; NULL if p has no replica there. */
choir__param *choir__pipeline_replica(const choir__param *p, int stage);

/* --- ranks.c; collective --- */

/* Takes the group's ranks as devices, and checks that all ranks have the same options and
 * model. */
choir_status choir__pipeline_over_ranks(choir__pipeline *p, choir_pipeline_opts opts);
/* Collects the limits of all ranks' devices. */
choir_status choir__pipeline_share_limits(choir__pipeline *p);
/* Checks that all ranks issue the same ops. */
choir_status choir__pipeline_agree_on_ops(choir__pipeline *p);
/* Adds the bytes of x to the hash of the data, if every rank has made x for itself. */
choir_status choir__pipeline_note_data(choir__pipeline *p, choir_tensor *x);
/* Checks that all ranks have seen the same data. Every rank then has the measurements of all
 * ops, from the ranks that ran them. */
choir_status choir__pipeline_agree(choir__pipeline *p);
/* Stores the loss of a finished micro-batch beside the others'. */
choir_status choir__pipeline_put_loss(choir__pipeline *p, const choir__micro *m);
/* After the plan has run: copies the losses to the run's device on every rank. */
choir_status choir__pipeline_bring_losses(
    choir__pipeline *p, choir_scope *step, choir_tensor **losses, int64_t count);

/* A value that must be equal on all ranks or replicas. */
typedef struct choir__pipeline_digest {
    uint64_t value;
    const char *what;
} choir__pipeline_digest;
enum { CHOIR__DIGESTS = 4 };
void choir__pipeline_digests(
    const choir__pipeline *p, choir__pipeline_digest digests[CHOIR__DIGESTS]);

/* --- data.c --- */

/* Makes the pipeline one of several replicas, without parameters yet: opens the groups and
 * compares options. A sharder distributes the parameters of every stage. Collective. */
choir_status choir__data_open(choir__pipeline *p, const choir__replication *how);
/* Takes over the book of a stage (-1: of the whole model). If the stage is on this rank, the
 * book's gradients are summed over the replicas. With FSDP, its parameters become rows. */
choir_status choir__data_adopt(choir__pipeline_data *d, choir__book *book, int stage);
/* Detaches the books from their reducers before parameters or their rows move to other stages
 * and new books. Does nothing in the middle of a step. */
choir_status choir__data_leave_books(choir__pipeline_data *d);
/* Returns true if parameters are distributed as rows. */
bool choir__data_sharded(const choir__pipeline_data *d);
/* Broadcasts the buffers of replica 0. Called before a step's first forward. */
void choir__data_sync_buffers(choir__pipeline_data *d, const choir_scope *step);
/* Returns the number of micro-batches of the job; 0: d is NULL. */
int64_t choir__data_total(const choir__pipeline_data *d);
/* Returns the largest number of micro-batches of any replica; cuts are made for it. */
int64_t choir__data_longest(const choir__pipeline_data *d);
/* Returns the largest number of levels of a replica's gradients; d may be NULL, for one replica
 * of `micros` micro-batches. */
int choir__data_levels(const choir__pipeline_data *d, int64_t micros);
/* Returns the shares of a stage's parameters that this rank holds; d may be NULL. */
choir__shares choir__data_shares(const choir__pipeline_data *d);
/* The bytes from which on a bucket of gradients is full: the first one, and others. by_unit:
 * only units end one. */
typedef struct choir__bucket_caps {
    double first, others;
    bool by_unit;
} choir__bucket_caps;
/* Returns the caps of a stage's book; d may be NULL. */
choir__bucket_caps choir__data_bucket_caps(const choir__pipeline_data *d);
/* Returns the bytes of weights that a sharder has gathered on the device; d may be NULL. */
size_t choir__data_gathered(const choir__pipeline_data *d, const choir_device *device);
choir_status choir__data_check_count(const choir__pipeline_data *d, int64_t count);
/* The strategy's gather, over the replicas. */
choir_tensor *choir__data_gather(const choir__pipeline_data *d, choir_tensor *numbers);
/* Copies replica 0's bytes to all replicas. Collective over the replicas; waits. */
choir_status choir__data_share(choir__pipeline_data *d, void *data, size_t bytes);
/* Ends all replicas with this sentence: this rank, or another one of its replica, has
 * failed. */
void choir__data_abort(choir__pipeline_data *d, choir_status status, const char *sentence);
void choir__data_close(choir__pipeline_data *d); /* d may be NULL */

/* op_stage.c: uses `place` for all further ops of the micro-batch. */
void choir__pipeline_place_by(choir__micro *m, choir__place_fn *place);
/* op_stage.c: choir__pipeline_place_ops places the micro-batch's ops by the cuts;
 * choir__pipeline_follow places each op where its parameters are. */
void choir__pipeline_place_ops(choir__micro *micro);
/* Places one op where its parameters are. */
bool choir__pipeline_follow_op(
    choir__micro *m, choir_scope *scope, choir_tensor **in, int count);
void choir__pipeline_follow(choir__micro *micro);

#endif
