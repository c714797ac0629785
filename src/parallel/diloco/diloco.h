/* Inside local SGD and DiLoCo: the workers of a rank, their turns, and the work where all meet.
 */
#ifndef CHOIR_PARALLEL_DILOCO_H
#define CHOIR_PARALLEL_DILOCO_H

#include <choir/diloco.h>
#include "comm/group.h"
#include "nn/module.h"
#include "optim/optim.h"

/* A trained parameter. Its share of a message begins at element `at` of a row of `flat`. */
typedef struct choir__worker_piece {
    const choir__param *param;
    choir_tensor *outer, *momentum; /* DiLoCo only: laid out as the parameter; else NULL */
    int64_t at;
} choir__worker_piece;

/* The values that a worker of this rank has of its own. While it has the module, `values` are
 * NULL and the optimizer has the state. */
typedef struct choir__worker_set {
    choir__storage **values; /* (tensor_count) storages of choir__diloco.tensors */
    choir__optim_set *optim; /* NULL also without choir_workers_train */
    choir_tensor *scale;     /* (CHOIR__SCALER_KEPT) between turns; NULL: no scaler */
} choir__worker_set;

typedef struct choir__worker_turn {
    struct choir__diloco *workers;
    int turn;
} choir__worker_turn;

typedef struct choir__diloco {
    choir_module base;
    choir_module *module; /* the module to be trained */
    choir_module *warm;   /* choir_ddp around the module during the warm-up; else NULL */
    const char *name;     /* "diloco", for messages */
    choir_group *group, *near;
    int64_t every, near_every, warmup;
    bool diloco, bf16;      /* diloco: else local SGD; bf16: differences are sent as bf16 */
    bool recut;             /* a checkpoint of another number of workers is taken */
    choir__opt_hyper hyper; /* hyper-parameters of the outer step */
    int64_t steps, apart, meetings;

    int64_t count; /* workers of the job */
    bool given;    /* the number of workers was given; otherwise each rank is one worker */
    int64_t first; /* this rank's first worker */
    int here;      /* this rank's number of workers, which take turns */
    int shown;     /* the turn whose worker has the module; 0 between steps */
    bool updated;  /* the optimizer has stepped in this turn */
    choir__worker_set *sets;   /* (here) */
    choir__worker_turn *turns; /* (here) arguments of recorded host calls */
    choir_optim *optim;        /* as choir_workers_train gives them, or NULL */
    choir_scaler *scaler;
    int64_t optim_steps;   /* the optimizer's steps when this step began */
    choir_tensor *counted; /* () i64: number of workers, as checkpoints have it */

    choir__worker_piece *pieces;
    int piece_count;
    /* (tensor_count) tensors whose values each worker has of its own: the parameters of the
     * pieces, in order, then the buffers */
    choir_tensor **tensors;
    int tensor_count;
    /* (levels, row) f32: sums of the workers' values, as messages; row 0 receives the mean */
    choir_tensor *flat;
    int64_t row;
    choir_tensor *short_flat; /* (row) bf16, for row 0; NULL: rows are sent as they are */
    choir__storage *entries, *hypers; /* tables of the outer step, in device memory */
    choir__strategy strategy;
} choir__diloco;

/* --- fit.c --- */

/* Check the options, and whether they fit the module. Errors: argument. */
choir_status choir__diloco_check(const choir__diloco *workers);
choir_status choir__diloco_check_outer(const choir__diloco *workers, choir_dtype wire);
/* Checks that the ranks have the same model and the same options. Collective. Errors: device,
 * unsupported, mismatch, the group's. */
choir_status choir__diloco_compare(choir__diloco *workers);

/* --- turns.c --- */

/* Makes the workers' values, copies of the module's. Errors: memory. */
choir_status choir__diloco_make_sets(choir__diloco *workers);
void choir__diloco_free_sets(choir__diloco *workers);
/* Gives each worker a state of the optimizer, and of the scaler, which may be NULL. */
choir_status choir__diloco_have(
    choir__diloco *workers, choir_optim *optim, choir_scaler *scaler);
/* Begins a turn; may be recorded. */
choir_status choir__diloco_take_turn(choir__diloco *workers, int turn);
/* Gives the module and the optimizer to the worker of a turn. Not recorded: replays call it
 * again through a host call. */
void choir__diloco_show(choir__diloco *workers, int turn);
/* Returns the address of tensors[index]'s values for the worker of a turn. */
void *choir__diloco_values(const choir__diloco *workers, int turn, int index);
/* Copy the first worker's values of tensors [from, tensor_count), or its optimizer's state, to
 * the others of this rank, in queue order. */
void choir__diloco_spread(choir__diloco *workers, int from);
void choir__diloco_spread_state(choir__diloco *workers);

/* --- worker_state.c --- */

void choir__diloco_visit_state(choir__strategy *s, choir__state_visit_fn *visit, void *to);
bool choir__diloco_visit_optim(
    choir__strategy *s, choir_optim *optim, choir__state_visit_fn *visit, void *to);
/* Completes what a checkpoint of another number of workers has restored. Collective. Errors:
 * argument (refused), the group's. */
choir_status choir__diloco_recut(choir__diloco *workers);

/* --- meet.c --- */

/* Allocates the memory that meetings need. Errors stick to the run. */
choir_status choir__diloco_lay_out(choir__diloco *workers);
/* Queue a meeting of all workers, or of the near ones: after all work that the device has been
 * given so far, and before all later work. */
choir_status choir__diloco_meet(choir__diloco *workers);
choir_status choir__diloco_meet_near(choir__diloco *workers);
/* Sets the outer weights, and the weights of all workers here, to the module's, which have been
 * changed alike on all ranks. */
void choir__diloco_restart(choir__diloco *workers);

#endif
