/* Strategies within strategies: how a strategy leaves the reduction of gradients to another one
 * around it or inside it.
 *
 * A pipeline with replicas reduces gradients itself, stage by stage, in whichever order DDP,
 * FSDP and the pipeline wrap each other. The outer module then only forwards. Neither knows the
 * other's type: an outer strategy asks the inner one to replicate, or an inner one lends its
 * group to the outer one. Both pass a choir__replication. */
#ifndef CHOIR_REPLICATION_H
#define CHOIR_REPLICATION_H

#include <choir/group.h>
#include "nn/module.h"

/* The bytes that a rank holds for each byte of a stage's parameters: of their values, and of
 * sums of gradients beside the gradients' own levels. by_unit: values are on the device while
 * their unit runs, and those outside all units always.
 * outside: gradients and the optimizer's state are not on the device. */
typedef struct choir__shares {
    double values, sums;
    bool by_unit, outside;
} choir__shares;

/* Distributes the rows of a book's parameters over the ranks of a group (FSDP). */
typedef struct choir__sharder choir__sharder;
struct choir__sharder {
    /* Distributes the book's parameters as rows over the group, and makes the sharder's reducer
     * the book's. The book of a device that is another rank's is laid out as on that rank,
     * without a reducer. Collective. */
    choir_status (*adopt)(choir__sharder *s, choir__book *book, choir_group *group);
    /* Frees the memory that adopt made. Each rank keeps its rows of each parameter, in memory
     * of their own on the parameter's device, until the parameter moves and is adopted again.
     * The books are without reducers already. */
    choir_status (*release)(choir__sharder *s);
    /* Returns the bytes of weights on the device that were gathered and will be dropped. */
    size_t (*gathered)(const choir__sharder *s, const choir_device *device);
    const choir__reducer_ops *reducer; /* the one that adopt sets */
    choir__shares shares;
};

typedef struct choir__replication {
    choir_group *group;   /* the ranks that have one replica each */
    int64_t microbatches; /* micro-batches of the job; 0: the run's number */
    double first_bucket_mb, bucket_cap_mb;
    const char *algorithm;   /* NULL: the group chooses */
    choir__sharder *sharder; /* NULL: replicas hold whole parameters */
} choir__replication;

/* Returns the strategy with a `replicate` entry, in module or in a module that it wraps; NULL:
 * none. A wrapper has exactly one child, whose name is empty. */
choir__strategy *choir__strategy_within(const choir_module *module);

/* Returns the module with a strategy that places the work of the module it wraps: m or a module
 * inside m; NULL: none. */
const choir_module *choir__strategy_module(const choir_module *m);

#endif
