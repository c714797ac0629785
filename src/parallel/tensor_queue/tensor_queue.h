/* Inside a tensor queue. */
#ifndef CHOIR_PARALLEL_TENSOR_QUEUE_H
#define CHOIR_PARALLEL_TENSOR_QUEUE_H

#include <poll.h>
#include <pthread.h>
#include <choir/tensor_queue.h>
#include "launch/spawn.h"
#include "device/far.h"
#include "tensor/tensor.h"

/* --- items: tensor_queue_item.c --- */

typedef struct choir__queue_tensor {
    int32_t dtype, ndim;
    int64_t dim[CHOIR_MAX_DIMS], stride[CHOIR_MAX_DIMS], offset; /* elements, of the storage */
    uint64_t at, bytes; /* the storage, in its mapping */
    int64_t memory;     /* which of the item's memories */
} choir__queue_tensor;

/* What goes with a descriptor. Of shared memory that says it all: owner is 0. */
typedef struct choir__queue_memory {
    int32_t owner;      /* the process whose device's memory this is */
    uint64_t loan;      /* its own number for it */
    uint64_t at, bytes; /* in what the handle opens */
    choir__far_handle handle;
} choir__queue_memory;

/* A message of the queue's socket, which carries a descriptor a mapping. */
typedef struct choir__queue_item {
    int32_t count, memories;
    choir__queue_tensor t[CHOIR_TENSOR_QUEUE_ITEM];
    choir__queue_memory memory[CHOIR_TENSOR_QUEUE_ITEM];
} choir__queue_item;

/* Describes tensors, whose values are there then; those in private memory are copied to a
 * mapping of their own. mapping (item->memories of them): references, the caller's to drop. */
choir_status choir__queue_pack(choir_tensor_queue *q, choir_tensor *const *t, int count,
    choir__queue_item *item, choir__mapping *mapping[CHOIR_TENSOR_QUEUE_ITEM]);
/* The other way round; fds (count) are closed, or a mapping's. */
choir_status choir__queue_unpack(const choir__queue_item *item, const int *fds, int fd_count,
    choir_scope *scope, choir_tensor **t, int count);

/* --- devices' memory, lent to other processes: tensor_queue_loans.c --- */

/* Lends what is not another process's, and says how others open it; *mapping's descriptor keeps
 * the loan. */
choir_status choir__loan_new(choir_tensor_queue *q, choir__storage *storage,
    choir__queue_memory *memory, choir__mapping **mapping);
/* Such memory of another process, opened for device; fd is the mapping's, or closed. NULL: a
 * device error. */
choir__mapping *choir__loan_open(
    choir_device *device, const choir__queue_memory *memory, int fd);
/* What this process itself has lent; NULL: no such thing is under way. */
choir__storage *choir__loan_find(uint64_t loan);
/* What others have let go of is its owner's again. Whether this queue has loans out. */
bool choir__loans_collect(const choir_tensor_queue *q);
/* The queue's loans end, whoever has them. */
void choir__loans_end(const choir_tensor_queue *q);

/* --- users: tensor_queue_users.c --- */

enum { CHOIR__QUEUE_USERS = 256 };

typedef enum choir__queue_state {
    CHOIR__NOBODY,   /* the place is free */
    CHOIR__TAKEN,    /* it is about to be somebody's */
    CHOIR__EXPECTED, /* a rank that is being started */
    CHOIR__USING,
    CHOIR__DONE, /* puts no more */
    CHOIR__LEFT,
    CHOIR__DIED
} choir__queue_state;

typedef struct choir__queue_user {
    _Atomic int32_t state, pid; /* pid 0: not started yet */
    _Atomic int32_t rank;       /* -1: not one that choir_spawn started */
    _Atomic int32_t family;     /* the process that starts it */
} choir__queue_user;

/* In memory that all share. */
typedef struct choir__queue_control {
    _Atomic int32_t closed;
    choir__queue_user users[CHOIR__QUEUE_USERS];
} choir__queue_control;

struct choir_tensor_queue {
    choir__mapping *mapping;
    choir__queue_control *control;
    int in, out; /* the ends of a socket pair, whose messages are the items */
    int room;    /* an eventfd that counts free places */
    int over;    /* an eventfd that is readable once the queue is closed */
    choir__spawn_watcher spawns;
    pthread_mutex_t lock;             /* guards what follows */
    int family;                       /* of this process: who started it, and waits for it */
    int me;                           /* this process's place among the users; -1: none yet */
    int pidfds[CHOIR__QUEUE_USERS];   /* of the others; -1: not looked for yet */
    int32_t pids[CHOIR__QUEUE_USERS]; /* whose they are */
};

void choir__queue_users_open(choir_tensor_queue *q);
void choir__queue_users_close(choir_tensor_queue *q);

/* This process is a user from now on. */
choir_status choir__queue_use(choir_tensor_queue *q);
/* Whether another user may still put (or, with getters, get). */
bool choir__queue_others(const choir_tensor_queue *q, bool getters);
/* An error that names a user who died; OK: none has. */
choir_status choir__queue_check(choir_tensor_queue *q);
/* Adds the other users' deaths to what is polled; returns how many there are then. */
int choir__queue_poll(choir_tensor_queue *q, struct pollfd *polled, int count);

#endif
