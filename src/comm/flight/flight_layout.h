/* The layout of a group's log on the board. */
#ifndef CHOIR_RECORDER_LAYOUT_H
#define CHOIR_RECORDER_LAYOUT_H

#include <assert.h>
#include <stdatomic.h>
#include "comm/flight/flight.h"

/* One cache line. Call n of the group is stored in entry (n - 1) % CHOIR__FLIGHT_ENTRIES. */
typedef struct choir__flight_entry {
    _Atomic uint64_t number; /* 0: being written */
    choir__stamp stamp;
    int64_t issued_ns, begun_ns; /* choir__now(); 0: unknown */
    _Atomic int64_t ended_ns;    /* 0: still running */
    int32_t status;              /* valid once the call has ended */
    int32_t unused;
} choir__flight_entry;

typedef struct choir__flight_page {
    char name[48], backend[16];
    int32_t rank, world;
    _Atomic uint64_t begun, ended; /* calls */
    _Atomic int64_t waited_ns;     /* ns in ended calls; overlapping calls count once */
    int32_t aside;                 /* the group's thread is not the training's */
    char apart[28];
    choir__queue_gauges queue;
    char apart_too[40];
    choir__flight_entry entries[CHOIR__FLIGHT_ENTRIES];
} choir__flight_page;

/* The machines of the job. */
typedef struct choir__machines_page {
    int32_t count;
    char names[CHOIR__FLIGHT_MACHINES][64];
} choir__machines_page;

static_assert(sizeof(choir__flight_entry) == 64, "an entry is a cache line");
static_assert(sizeof(choir__flight_page) % 64 == 0, "and begins one");

#endif
