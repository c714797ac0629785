/* Strategies within strategies: how one that wraps another leaves the work to it.
 *
 * A pipeline whose replicas reduce gradients does so itself, stage by stage, whichever of DDP,
 * FSDP and the pipeline wraps which. The outer module then only forwards. Neither knows the
 * other: an outer strategy asks the inner one to replicate, an inner one lends its group to the
 * outer, and both by this struct. */
#ifndef CHOIR_REPLICATION_H
#define CHOIR_REPLICATION_H

#include <choir/group.h>
#include "nn/module.h"

/* Distributes the rows of a book's parameters over the ranks of a group (FSDP). */
typedef struct choir__sharder choir__sharder;
struct choir__sharder {
    /* The book's parameters become each rank's rows, and the book's reducer the sharder's. The
     * book of a device that is another rank's is laid out as there, without a reducer.
     * Collective. */
    choir_status (*adopt)(choir__sharder *s, choir__book *book, choir_group *group);
    const choir__reducer_ops *reducer; /* that adopt sets */
};

typedef struct choir__replication {
    choir_group *group;   /* ranks with a replica each */
    int64_t microbatches; /* of the job; 0: as the run says */
    double first_bucket_mb, bucket_cap_mb;
    const char *algorithm;   /* NULL: the group's choice */
    choir__sharder *sharder; /* NULL: replicas hold whole parameters */
} choir__replication;

/* The strategy that replicates by itself, in module or in what it wraps; NULL: none. A wrapper
 * has one child, under its own name. */
choir__strategy *choir__strategy_within(const choir_module *module);

/* A strategy in m, or in a module inside of it, that places the work of what it wraps; NULL:
 * none. */
const choir_module *choir__strategy_module(const choir_module *m);

#endif
