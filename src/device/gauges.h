/* The figures of a device that other processes can read: a record on the board
 * (base/board/board.h), which the pool and the queue update with plain stores. */
#ifndef CHOIR_GAUGES_H
#define CHOIR_GAUGES_H

#include <stdatomic.h>
#include <stdint.h>

/* The kinds of data that fill memory. */
typedef enum choir__memory_kind {
    CHOIR__MEMORY_OTHER, /* activations, batches, work space */
    CHOIR__MEMORY_WEIGHTS,
    CHOIR__MEMORY_GRADIENTS,
    CHOIR__MEMORY_OPTIMIZER,
    CHOIR__MEMORY_KINDS
} choir__memory_kind;

/* Written by the pool, under its lock. */
typedef struct choir__pool_gauges {
    _Atomic uint64_t now, peak, reserved, limit; /* bytes: see choir_device_stats */
    _Atomic uint64_t of_kind[CHOIR__MEMORY_KINDS];
} choir__pool_gauges;

/* Written by the issuing thread and by the runner: one cache line for each. */
typedef struct choir__queue_gauges {
    _Atomic uint64_t issued;
    char apart[56];
    _Atomic uint64_t finished;     /* tasks finished; with a stream: launched */
    _Atomic uint64_t busy_ns;      /* up to busy_since */
    _Atomic int64_t busy_since_ns; /* choir__now(); 0: idle, or waiting for another queue */
} choir__queue_gauges;

typedef struct choir__gauges {
    char name[16]; /* "cpu:0" */
    choir__pool_gauges pool;
    char apart[48];
    choir__queue_gauges queue;
} choir__gauges;

#endif
