/* Inside a tensor queue. */
#ifndef CHOIR_PARALLEL_TENSOR_QUEUE_H
#define CHOIR_PARALLEL_TENSOR_QUEUE_H

#include <poll.h>
#include <pthread.h>
#include <choir/tensor_queue.h>
#include "launch/spawn.h"
#include "device/far.h"
#include "tensor/tensor.h"

/* --- items: item.c --- */

typedef struct choir__queue_tensor {
    int32_t dtype, ndim;
    /* in elements; offset from the storage's beginning */
    int64_t dim[CHOIR_MAX_DIMS], stride[CHOIR_MAX_DIMS], offset;
    uint64_t at, bytes; /* place of the storage within its mapping */
    int64_t memory;     /* index into the item's memories */
} choir__queue_tensor;

/* Describes the memory behind a descriptor. For shared memory the descriptor is enough: owner
 * is 0. */
typedef struct choir__queue_memory {
    int32_t owner;      /* pid of the process that owns the device memory */
    uint64_t loan;      /* number of the loan in its owner */
    uint64_t at, bytes; /* position in the memory that the handle opens */
    choir__far_handle handle;
} choir__queue_memory;

/* A message of the queue's socket, which carries one descriptor per mapping. */
typedef struct choir__queue_item {
    int32_t count, memories;
    choir__queue_tensor t[CHOIR_TENSOR_QUEUE_ITEM];
    choir__queue_memory memory[CHOIR_TENSOR_QUEUE_ITEM];
} choir__queue_item;

/* Describes tensors in *item, once their values have been computed; tensors in private memory
 * are copied to a new mapping. mapping (item->memories of them): references that the caller
 * drops. */
choir_status choir__queue_pack(choir_tensor_queue *q, choir_tensor *const *t, int count,
    choir__queue_item *item, choir__mapping *mapping[CHOIR_TENSOR_QUEUE_ITEM]);
/* Makes tensors of an item. Closes fds (count), or hands them over to mappings. */
choir_status choir__queue_unpack(const choir__queue_item *item, const int *fds, int fd_count,
    choir_scope *scope, choir_tensor **t, int count);

/* --- device memory, lent to other processes: loans.c --- */

/* Lends device memory, or passes on a loan of another process; *memory describes it to others.
 * The descriptor of *mapping keeps the loan alive. */
choir_status choir__loan_new(choir_tensor_queue *q, choir__storage *storage,
    choir__queue_memory *memory, choir__mapping **mapping);
/* Opens memory that another process lends, for device. Takes over fd. NULL: a device error. */
choir__mapping *choir__loan_open(
    choir_device *device, const choir__queue_memory *memory, int fd);
/* Returns the storage of a loan of this process; NULL: there is no such loan. */
choir__storage *choir__loan_find(uint64_t loan);
/* Ends the loans that all borrowers have released. Returns true if this queue still has
 * loans. */
bool choir__loans_collect(const choir_tensor_queue *q);
/* Ends all loans of the queue, even if other processes still use them. */
void choir__loans_end(const choir_tensor_queue *q);

/* --- users: users.c --- */

enum { CHOIR__QUEUE_USERS = 256 };

typedef enum choir__queue_state {
    CHOIR__NOBODY,   /* free place */
    CHOIR__TAKEN,    /* a process is filling in the place */
    CHOIR__EXPECTED, /* a rank that is being started */
    CHOIR__USING,
    CHOIR__DONE, /* puts no more items */
    CHOIR__LEFT,
    CHOIR__DIED
} choir__queue_state;

typedef struct choir__queue_user {
    _Atomic int32_t state, pid; /* pid 0: not started yet */
    _Atomic int32_t rank;       /* -1: choir_spawn did not start it */
    _Atomic int32_t family;     /* pid of the process that starts it */
} choir__queue_user;

/* The state of the queue, in memory that all users share. */
typedef struct choir__queue_control {
    _Atomic int32_t closed;
    choir__queue_user users[CHOIR__QUEUE_USERS];
} choir__queue_control;

struct choir_tensor_queue {
    choir__mapping *mapping;
    choir__queue_control *control;
    int in, out; /* the ends of a socket pair; each message is an item */
    int room;    /* an eventfd that counts free places */
    int over;    /* an eventfd that is readable once the queue is closed */
    choir__spawn_watcher spawns;
    pthread_mutex_t lock; /* guards the members below */
    int family; /* pid of the process that started this one and waits for it; -1: none */
    int me;     /* this process's place among the users; -1: none yet */
    int pidfds[CHOIR__QUEUE_USERS];   /* pidfds of the other users; -1: not opened */
    int32_t pids[CHOIR__QUEUE_USERS]; /* the processes of the pidfds */
};

void choir__queue_users_open(choir_tensor_queue *q);
void choir__queue_users_close(choir_tensor_queue *q);

/* Makes this process a user of the queue, if it is not a user yet. */
choir_status choir__queue_use(choir_tensor_queue *q);
/* Returns true if another user may still put (or, with getters, put or get). */
bool choir__queue_others(const choir_tensor_queue *q, bool getters);
/* Returns an error that names a user that has died; CHOIR_OK if no user has died. */
choir_status choir__queue_check(choir_tensor_queue *q);
/* Adds the other users' pidfds to `polled`; returns the new count. */
int choir__queue_poll(choir_tensor_queue *q, struct pollfd *polled, int count);

#endif
