/* Memory of a group, one region per rank. If the engine can share memory, every rank reads and
 * writes all regions; else a rank has only its own. Zero-filled. */
#ifndef CHOIR_COMM_SHARED_H
#define CHOIR_COMM_SHARED_H

#include "comm/engine.h"

struct choir__shared {
    choir__engine *engine; /* NULL once the group is gone */
    choir_group *group;    /* the group whose tasks use the memory; NULL once it is gone */
    choir__shared *other;  /* next in the group's list */
    choir__shared *next;   /* next in the engine's list */
    uint64_t id;           /* the same on all ranks, from 1; 0: private memory */
    int rank, world;
    int count;    /* regions */
    int *holders; /* (count) the ranks that have regions, in rising order; NULL: all */
    /* unmaps the region, and takes it off the engine's list */
    void (*unmap)(choir__shared *shared);
    struct choir__shared_region {
        char *at; /* NULL: out of reach, or empty */
        size_t bytes;
    } regions[]; /* (count) */
};

/* Returns an empty choir__shared on the heap, with a region for each of the ranks (count), or,
 * if `holders` is NULL, for all. */
choir__shared *choir__shared_make(choir__engine *engine, const int *holders, int count);

/* Allocates private memory, for engines without shared memory. Not collective. */
choir_status choir__shared_private(choir__engine *engine, size_t bytes, choir__shared **shared);

#endif
