/* --strategy auto: how many of the machine's cores, or GPUs, a job gains from. */
#ifndef CHOIR_JOB_AUTO_RULE_H
#define CHOIR_JOB_AUTO_RULE_H

#include <stdbool.h>
#include <stdint.h>

/* A job as far as the choice depends on it. */
typedef struct choir__auto_case {
    int devices;          /* GPUs, or cores that the process may use */
    int64_t batch;        /* samples of the global batch */
    int64_t microbatches; /* micro-batches as given; 0: not given */
    double flop;          /* FLOPs of a step, roughly */
    int64_t parameters;
    double memory; /* bytes of all devices; 0: not shared, as on GPUs */
    bool batch_norm;
    double cap; /* bytes that a device may take; 0: no limit */
} choir__auto_case;

/* Returns whether a device may be too small for the whole model with its gradients, an
 * optimizer's state and results, so that ranks should share these (fsdp). */
bool choir__auto_shards(const choir__auto_case *c);

/* Returns the number of ranks, 1 for no others. It follows from the case alone, so that a
 * command has the same bits each time that it runs on a machine. */
int choir__auto_ranks(const choir__auto_case *c);
/* Returns the number of cores of each rank, on which the bits do not depend. */
int choir__auto_threads(const choir__auto_case *c, int ranks);

#endif
