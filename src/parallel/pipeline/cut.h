/* The seconds and bytes of a stage, for each run of ops that it could be.
 *
 *     stage_bytes.c   sums them up
 *     cut.c           chooses the runs */
#ifndef CHOIR_PIPELINE_CUT_H
#define CHOIR_PIPELINE_CUT_H

#include "parallel/pipeline/pipeline.h"

/* Sums over the ops before i: seconds; bytes kept for backward; bytes of the gradients that W
 * reads; bytes of the rows that lookups give as gradients; bytes of parameters with their
 * moments, and of the gradients of parameters; uses of parameters. */
typedef struct choir__cut_before {
    double seconds, held, late, rows, params, grads;
    int layers;
} choir__cut_before;

/* The limits of a stage: its part of the device's bytes (0: no limit), and the bytes that any
 * stage takes; its micro-batches at a time, the ones that wait for W, all of a step's; the
 * levels of its gradients, with the sums beside them. */
typedef struct choir__cut_room {
    double bytes, taken, micros, late, all, levels;
} choir__cut_room;

/* A use of a tensor: the use whose stage stores it (choir__pipeline_home_use); the bytes that
 * it brings to the buckets of gradients, and whether they are a bucket of their own. */
typedef struct choir__cut_use {
    int home;
    double bytes;
    bool alone;
} choir__cut_use;

typedef struct choir__cut_costs {
    const choir__pipeline *pipeline;
    choir__cut_before *sum; /* (ops + 1) */
    choir__cut_room *rooms; /* (stages) */
    choir__cut_use *uses;   /* (use_count) */
    int *first_use;         /* (ops + 1) the first use of this op or of a later one */
    choir__bucket_caps caps;
    bool passes; /* gradients of a micro-batch are stored until they are added */
} choir__cut_costs;

/* The ops of a stage from op j on, which grow by op j - 1: what crosses to one of them at most;
 * and their buckets of gradients, which fill from the last parameter on (autograd/layout.c). */
typedef struct choir__cut_ops {
    double widest;
    double open, largest; /* bytes of the last bucket and of the largest one */
    int buckets, unit;    /* number so far; unit of the last one */
} choir__cut_ops;

/* Sums up the costs of steps of `micros` micro-batches. The caller closes them, also after an
 * error. */
choir_status choir__cut_costs_open(
    choir__cut_costs *costs, const choir__pipeline *p, int64_t micros);
void choir__cut_costs_close(choir__cut_costs *costs);

/* Adds op j in front. */
void choir__cut_add_op(const choir__cut_costs *costs, choir__cut_ops *ops, int j);
/* Returns the bytes of a stage of ops j to i - 1, which `ops` describes. */
double choir__cut_stage_bytes(
    const choir__cut_costs *costs, int stage, int j, int i, const choir__cut_ops *ops);
/* Returns the seconds that an op's operands take to the stage that begins with it. */
double choir__cut_transfer_seconds(const choir__pipeline *p, int op);

#endif
