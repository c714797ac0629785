/* Memory of a group, one region a rank: where the engine can share memory, every rank reads and
 * writes all of them; elsewhere a rank has its own alone. Zero-filled. */
#ifndef CHOIR_COMM_SHARED_H
#define CHOIR_COMM_SHARED_H

#include "comm/engine.h"

struct choir__shared {
    choir__engine *engine; /* NULL once the group is gone */
    choir_group *group;    /* whose tasks use the memory; NULL once it is gone */
    choir__shared *other;  /* the group's others */
    choir__shared *next;   /* the engine's others */
    uint64_t id;           /* the same on all ranks, from 1; 0: private memory */
    int rank, world;
    void (*unmap)(choir__shared *shared); /* and takes it off the engine's list */
    struct choir__shared_region {
        char *at; /* NULL: out of reach, or empty */
        size_t bytes;
    } regions[]; /* (world) */
};

/* An empty one, on the heap. */
choir__shared *choir__shared_make(choir__engine *engine);

/* Private memory, for engines without shared memory. Not collective. */
choir_status choir__shared_private(choir__engine *engine, size_t bytes, choir__shared **shared);

#endif
