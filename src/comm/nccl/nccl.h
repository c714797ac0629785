/* Groups over NCCL: one GPU a rank.
 *
 * The engine is a layer over one of the host's (shm, ucx), which carries what lies in the
 * host's memory: the messages of strategies to each other, losses, checkpoints. Data in the
 * GPU's memory go over NCCL, on a stream of the group's own that its queue has, so that
 * nothing waits on the host and a recorded step becomes one CUDA graph.
 *
 *     far data    queue's stream:  mark | send, receive | add in the tree's order | mark
 *     near data   host engine                                 (add.cu)
 *
 * NCCL by itself says nothing when a process dies: its kernels wait for ever. So each group has
 * a *watcher* (watch.c), a thread that looks after the peers through a sub-group of the host
 * engine, and after the marks, which the GPU writes to host memory. What it finds makes it
 * abort the communicator, upon which the kernels return, and the group fails with the sentence
 * that all ranks have.
 *
 *   engine.c   opening, sub-groups, the end        carry.c   data moved
 *   watch.c    failures                            sum.c     data added, exactly or natively
 *   add.cu     the sum of several arrays in the fixed tree */
#ifndef CHOIR_NCCL_H
#define CHOIR_NCCL_H

#include <nccl.h>
#include <pthread.h>

#include "comm/engine.h"
#include "comm/nccl/add.h"
#include "comm/reduce.h"
#include "comm/rows.h"

/* Of rows' cuts, so many are in a group of NCCL's, which has room for so much at a time. */
enum { CHOIR__NCCL_CUTS = 32 };

typedef struct choir__nccl {
    choir__engine base;
    choir__engine *host;  /* this group's, for the host's memory */
    choir__engine *watch; /* the watcher's own */
    choir_device *device;
    int gpu; /* CUDA's number */
    cudaStream_t stream;
    char *scratch; /* on the GPU: what comes from the peers, until it is added */
    size_t scratch_bytes;
    void **outgrown; /* scratch that captured graphs may know */
    int outgrown_count;

    pthread_mutex_t lock; /* guards comm, and what follows */
    ncclComm_t comm;      /* NULL: aborted */
    bool refused;         /* in the call: its capture. Then nothing more of it is given. */
    choir_status down;    /* why it is aborted, and in words */
    char sentence[512];
    choir__stamp now;   /* the call that was given to the stream last */
    choir__marks *seen; /* host memory that the GPU writes to */
    pthread_t watcher;
    pthread_t ender; /* ends the communicator */
    bool watching, ending;
    _Atomic bool stop;
} choir__nccl;

/* --- watch.c --- */
choir_status choir__nccl_watch(choir__nccl *n); /* starts the watcher */
void choir__nccl_unwatch(choir__nccl *n);
/* Aborts the communicator, unless it is, and tells all who may wait, here and elsewhere. Any
 * thread. */
void choir__nccl_go_down(choir__nccl *n, choir_status status, const char *sentence);
/* Aborts or destroys it, on a thread of its own: that may wait for graphs. */
void choir__nccl_end_comm(choir__nccl *n, ncclComm_t comm, bool aborts);
/* Until it has ended; if it does not, a line says so, and it is left to itself. */
void choir__nccl_await_end(choir__nccl *n);
/* The engine's failure, if the communicator was aborted. On the queue's thread. */
choir_status choir__nccl_status(choir__nccl *n);
/* An error while a step is captured is no failure: the step is issued as it was recorded. */
bool choir__nccl_refused(choir__nccl *n);
/* Whether no more of the call is to be given to the stream: it failed, or was refused. */
choir_status choir__nccl_stopped(const choir__nccl *n);
/* CUDA's answer: stopped, where it is an error. */
choir_status choir__nccl_cuda(choir__nccl *n, cudaError_t error, const char *what);
/* NCCL's answer to a call, once it is there: calls of such a communicator return at once. */
choir_status choir__nccl_done(choir__nccl *n, ncclResult_t result, const char *what);
/* Waits for all that the stream has been given. */
choir_status choir__nccl_settle(choir__engine *engine);

/* --- carry.c, sum.c: far data; on the queue's thread --- */

/* Memory on the GPU until the next call. NULL: the engine has failed. */
char *choir__nccl_scratch(choir__nccl *n, size_t bytes);

/* Between ncclGroupStart and choir__nccl_end; nothing of 0 bytes. */
void choir__nccl_send(choir__nccl *n, const void *at, size_t bytes, int peer);
void choir__nccl_receive(choir__nccl *n, void *at, size_t bytes, int peer);
choir_status choir__nccl_end(choir__nccl *n);
choir_status choir__nccl_copy(choir__nccl *n, void *to, const void *from, size_t bytes);

bool choir__nccl_takes(const choir__engine *engine, const choir__call *call);
choir_status choir__nccl_carry(choir__nccl *n, const choir__call *call);
choir_status choir__nccl_sum(choir__nccl *n, const choir__call *call);
choir_status choir__nccl_tree_scatter(choir__nccl *n, const choir__call *call);

#endif
