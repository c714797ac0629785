/* Inside local SGD and DiLoCo: a worker, and its work where ranks meet. */
#ifndef CHOIR_PARALLEL_DILOCO_H
#define CHOIR_PARALLEL_DILOCO_H

#include <choir/diloco.h>
#include "comm/group.h"
#include "nn/module.h"

/* The prefix of a parameter's outer momentum in checkpoints. */
#define CHOIR__OUTER_MOMENTUM CHOIR__KEPT "momentum."

/* A trained parameter. Its share of a message begins at element `at` of the worker's flat
 * memory. */
typedef struct choir__worker_piece {
    const choir__param *param;
    choir_tensor *outer, *momentum; /* DiLoCo only: laid out as the parameter; else NULL */
    int64_t at;
} choir__worker_piece;

typedef struct choir__worker {
    choir_module base;
    choir_module *module; /* the module to be trained */
    choir_module *warm;   /* choir_ddp around the module during the warm-up; else NULL */
    const char *name;     /* "diloco", for messages */
    choir_group *group, *near;
    int64_t every, near_every, warmup;
    bool diloco, bf16;      /* diloco: else local SGD; bf16: differences are sent as bf16 */
    choir__opt_hyper hyper; /* hyper-parameters of the outer step */
    int64_t steps, apart, meetings;
    choir__worker_piece *pieces;
    int count;
    choir_tensor *flat;               /* (n) f32: the values to be averaged, as one message */
    choir_tensor *short_flat;         /* (n) bf16, sent in place of flat; NULL: flat is sent */
    choir__storage *entries, *hypers; /* tables of the outer step, in device memory */
    choir__strategy strategy;
} choir__worker;

/* --- meet.c --- */

/* Allocates the memory that meetings need. Errors stick to the run. */
choir_status choir__worker_lay_out(choir__worker *worker);
/* Queue a meeting of all ranks, or of the near ones: after all work that the device has been
 * given so far, and before all later work. */
choir_status choir__worker_meet(choir__worker *worker);
choir_status choir__worker_meet_near(choir__worker *worker);
/* Sets the outer weights to the current weights, which have been changed alike on all ranks. */
void choir__worker_restart(choir__worker *worker);

/* --- diloco.c --- */

#endif
