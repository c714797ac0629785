/* Inside local SGD and DiLoCo: a worker, and what it does where ranks meet. */
#ifndef CHOIR_PARALLEL_DILOCO_H
#define CHOIR_PARALLEL_DILOCO_H

#include <choir/diloco.h>
#include "comm/group.h"
#include "nn/module.h"

/* The outer momentum of a parameter in checkpoints, before its name. */
#define CHOIR__OUTER_MOMENTUM CHOIR__KEPT "momentum."

/* A trained parameter. What of it travels lies at `at` (elements) in the worker's flat memory.
 */
typedef struct choir__worker_piece {
    const choir__param *param;
    choir_tensor *outer, *momentum; /* of DiLoCo, laid out as the parameter; else NULL */
    int64_t at;
} choir__worker_piece;

typedef struct choir__worker {
    choir_module base;
    choir_module *module; /* what is trained */
    choir_module *warm;   /* choir_ddp around it, during the warm-up; else NULL */
    const char *name;     /* "diloco", for messages */
    choir_group *group, *near;
    int64_t every, near_every, warmup;
    bool diloco, bf16;      /* else local SGD; differences travel as bf16 */
    choir__opt_hyper hyper; /* of the outer step */
    int64_t steps, apart, meetings;
    choir__worker_piece *pieces;
    int count;
    choir_tensor *flat;       /* (n) f32: what is averaged, as one message */
    choir_tensor *short_flat; /* (n) bf16, which travels in its place; NULL: flat does */
    choir__storage *entries, *hypers; /* the outer step's, in device memory */
    choir__strategy strategy;
} choir__worker;

/* --- diloco_meet.c --- */

/* Memory for what meetings need. Error: the run's. */
choir_status choir__worker_lay_out(choir__worker *worker);
/* Queues a meeting of all ranks, or of those near: behind what the device was given so far, and
 * before what it is given from now on. */
choir_status choir__worker_meet(choir__worker *worker);
choir_status choir__worker_meet_near(choir__worker *worker);
/* The weights were changed alike on all ranks: the outer ones are these. */
void choir__worker_restart(choir__worker *worker);

/* --- diloco.c --- */

#endif
