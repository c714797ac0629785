/* --strategy auto, inside: the cut that a job gets where none is declared, the placements
 * that are looked at, and the one that is chosen. */
#ifndef CHOIR_JOB_AUTO_H
#define CHOIR_JOB_AUTO_H

#include "job/job.h"

/* --- microbatches.c: what follows from the job alone, whatever the machine --- */

/* A job as far as its cut depends on it. */
typedef struct choir__auto_case {
    int64_t batch; /* samples of the global batch */
    double flop;   /* FLOPs of a step, roughly */
    int64_t parameters;
    bool batch_norm;
    double cap; /* bytes that a device may take, as --mem-cap says; 0: no limit */
} choir__auto_case;

/* Returns the number of micro-batches of a job that declares none. */
int64_t choir__auto_cut(const choir__auto_case *c);
/* Returns the number of cores of each rank, on which the bits do not depend, where `devices`
 * cores are free for `ranks` ranks. */
int64_t choir__auto_threads(double flop, int devices, int ranks);
/* Returns the share of a step's time that `threads` cores leave of it: an estimate. */
double choir__auto_speed(int64_t threads);

/* --- the choice --- */

/* A placement: a strategy, its mesh, its ranks. */
typedef struct choir__auto_form {
    char strategy[96], mesh[32]; /* mesh "": none */
    int ranks;
} choir__auto_form;

/* The result, without pointers, so that another process can tell it. */
struct choir__auto_choice {
    choir_status status; /* memory: nothing fits, as `words` says */
    int64_t microbatches, threads;
    choir__auto_form form;
    char words[1024]; /* why, or the error */
};

/* candidates.c: writes the placements of all of `ranks` ranks that the job's cut allows, at
 * most `room`, and returns their number. The first is plain ddp or, if the cut does not allow
 * it, whatever comes next. */
int choir__auto_forms(
    const choir__job_training *training, int ranks, choir__auto_form *forms, int room);

/* choose.c rehearses placements of a prepared job, whose cut is set, on at most `devices`
 * devices or, unless `ranks` is 0, with exactly as many ranks; fills in *choice. flop: FLOPs
 * per step. */
void choir__auto_choose(const choir__job *job, int devices, int ranks, double flop,
    struct choir__auto_choice *choice);

#endif
