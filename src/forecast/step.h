/* A recorded step as data: what each class of equal ranks enqueues, in the order in which its
 * program issues it. Nothing here runs; replay.h says how long it takes.
 *
 * A class is a set of ranks whose programs are equal up to their place in a group, so a world
 * of 100,000 ranks is a few programs. A program has queues. The entries of one queue execute in
 * their order; an event is a place in a queue, and a wait makes a queue wait for it.
 *
 *     entries (issue order)      queue 0 (device)     queue 1 (group)
 *     kernel   q0                matmul
 *     event 0  q0                *
 *     wait 0   q1                                     waits for *
 *     collective q1                                   all-reduce
 *     kernel   q0                matmul               :   (both at a time)
 *     host     q1                the program issues nothing more until queue 1 has ended */
#ifndef CHOIR_FORECAST_STEP_H
#define CHOIR_FORECAST_STEP_H

#include <choir/dtype.h>

#include "comm/call.h"

enum { CHOIR__STEP_DIMS = 4, CHOIR__STEP_HELD = 6 };

typedef enum choir__step_kind {
    CHOIR__ENTRY_KERNEL,
    CHOIR__ENTRY_COPY,
    CHOIR__ENTRY_COLLECTIVE, /* also a send and a receive */
    CHOIR__ENTRY_EVENT,
    CHOIR__ENTRY_WAIT,
    CHOIR__ENTRY_HOST, /* the host waits until the queue has ended */
} choir__step_kind;

/* The ranks of a collective: first + i * stride, i in [0, size), where `first` is the member
 * with the lowest rank. A mesh's dimension, a world (stride 1) and a sub-group of consecutive
 * ranks have this form. All groups of the dimension work at the same time. Any other group
 * lists its ranks, and as many groups of its kind work at the same time as have room. */
typedef struct choir__step_group {
    int64_t size, stride;
    int *ranks; /* (size) in the group's order, or NULL */
} choir__step_group;

typedef struct choir__step_entry {
    choir__step_kind kind;
    int queue;
    union {
        struct {
            int id;                         /* number in CHOIR__KERNEL_LIST */
            double flops, bytes;            /* bytes: read and written, each operand once */
            int64_t dims[CHOIR__STEP_DIMS]; /* as in choir__kernel_work */
            choir_dtype dtype;
        } kernel;
        struct {
            int from; /* queue of the device whose memory is read; -1: the host */
            double bytes;
        } copy;
        struct {
            choir__kind kind;
            choir__algorithm algorithm; /* AUTO: as the library chooses */
            choir_dtype dtype;
            int64_t count;  /* elements, as choir__pattern_collective counts them */
            int64_t leaves; /* TREE_REDUCE: micro-batches of the job */
            int group;      /* index in choir__step.groups */
            /* broadcast and its like: member of the group. SEND, RECEIVE: the distance in ranks
             * to the peer, which is another class of the same group */
            int root;
        } collective;
        int event; /* EVENT, WAIT: number in the program */
    } as;
} choir__step_entry;

typedef struct choir__step_queue {
    int device; /* device of the rank; -1: none (a group's queue) */
    int runner; /* in [0, queues): queues with equal runners share a core */
} choir__step_queue;

typedef struct choir__step_program {
    choir__step_entry *entries;
    int64_t entry_count;
    /* (entries, CHOIR__STEP_HELD) bytes of the device at each kernel: parameters, gradients,
     * optimizer, activations, work space, messages; NULL: unknown */
    int64_t *held;
    choir__step_queue *queues;
    int queue_count, event_count;
    int64_t first; /* one of the ranks that run it, which stands for all of them */
    int64_t ranks; /* number of ranks */
} choir__step_program;

typedef struct choir__step {
    choir__step_program *programs;
    int program_count;
    int *program_of; /* (world) the program of each rank; NULL: consecutive ranks */
    int64_t world;   /* ranks */
    choir__step_group *groups;
    int group_count;
} choir__step;

/* Returns the index of a rank's program. Without program_of, the ranks of a program are
 * consecutive, from its `first` to the next program's. */
int choir__step_program_of(const choir__step *step, int64_t rank);

/* Returns an error if an entry names a queue, an event or a group that the step has not, or
 * waits for an event that is recorded later. */
choir_status choir__step_check(const choir__step *step);

/* Build a step; the arrays grow. choir__step_add returns the new entry, zeroed but for its kind
 * and queue, valid until the next call. */
choir__step_program *choir__step_add_program(choir__step *step, int64_t first, int64_t ranks);
int choir__step_add_queue(choir__step_program *program, int device, int runner);
choir__step_entry *choir__step_add(
    choir__step_program *program, choir__step_kind kind, int queue);
/* Returns the index of the group, which is added unless the step has it. */
int choir__step_group_of(choir__step *step, int64_t size, int64_t stride);
/* Returns the index of the group of these ranks, (size) in its order, likewise. */
int choir__step_group_by(choir__step *step, const int *ranks, int64_t size);
/* Frees the arrays, and zeroes the step. */
void choir__step_free(choir__step *step);

#endif
