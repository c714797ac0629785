/* Groups over NCCL: one GPU per rank.
 *
 * The engine is a layer over a host engine (shm, ucx), which carries data in host memory: the
 * messages of strategies to each other, losses, checkpoints. Data in GPU memory travel over
 * NCCL, on a stream that the group owns and shares with its queue. So nothing waits on the
 * host, and a recorded step becomes one CUDA graph.
 *
 *     far data    queue's stream:  mark | send, receive | add in the tree's order | mark
 *     near data   host engine                                 (add.cu)
 *
 * NCCL by itself does not report a process that dies: its kernels wait forever. So each group
 * has a *watcher* (watch.c), a thread that checks the peers through a sub-group of the host
 * engine, and the marks, which the GPU writes to host memory. When it finds a failure, it
 * aborts the communicator. Then the kernels return, and the group fails with the same sentence
 * on all ranks.
 *
 *   engine.c   opening, sub-groups, the end        carry.c     data moved
 *   watch.c    failures                            sum.c       data added, exactly or natively
 *   library.c  NCCL's functions                    exchange.c  sends, receives, scratch
 *   add.cu     the sum of several arrays in the fixed tree */
#ifndef CHOIR_NCCL_H
#define CHOIR_NCCL_H

#include <nccl.h>
#include <pthread.h>

#include "base/plugin/library.h"
#include "comm/engine.h"
#include "comm/nccl/add.h"
#include "comm/reduce.h"
#include "comm/rows.h"

/* NCCL's functions, opened with the first group (library.c). */
#define CHOIR__NCCL_CALLS(X)                                                                   \
    X(nccl, AllGather)                                                                         \
    X(nccl, AllReduce)                                                                         \
    X(nccl, Broadcast)                                                                         \
    X(nccl, CommAbort)                                                                         \
    X(nccl, CommDestroy)                                                                       \
    X(nccl, CommFinalize)                                                                      \
    X(nccl, CommGetAsyncError)                                                                 \
    X(nccl, CommInitRankConfig)                                                                \
    X(nccl, GetErrorString)                                                                    \
    X(nccl, GetUniqueId)                                                                       \
    X(nccl, GroupEnd)                                                                          \
    X(nccl, GroupStart)                                                                        \
    X(nccl, Recv)                                                                              \
    X(nccl, Reduce)                                                                            \
    X(nccl, ReduceScatter)                                                                     \
    X(nccl, Send)
extern struct choir__nccl_calls {
    CHOIR__NCCL_CALLS(CHOIR__LIBRARY_CALL)
} choir__nccl_calls;

/* Opens NCCL once per process. Error: unsupported, which says where it was looked for. */
choir_status choir__nccl_library(void);

/* Cuts of rows per NCCL group, which has limited room. */
enum { CHOIR__NCCL_CUTS = 32 };

typedef struct choir__nccl {
    choir__engine base;
    choir__engine *host;  /* engine of the same group for host memory */
    choir__engine *watch; /* the watcher's own sub-group */
    choir_device *device;
    int gpu; /* CUDA's number */
    cudaStream_t stream;
    char *scratch; /* on the GPU: the peers' data, until they are added */
    size_t scratch_bytes;
    void **outgrown; /* earlier scratch, which captured graphs may still use */
    int outgrown_count;

    pthread_mutex_t lock; /* guards comm and the members below */
    ncclComm_t comm;      /* NULL: aborted */
    /* the capture of the current call was refused, and its rest is not issued */
    bool refused;
    choir_status down; /* why the communicator was aborted, and the message */
    char sentence[512];
    choir__stamp now;   /* the call that was issued to the stream last */
    choir__marks *seen; /* host memory that the GPU writes to */
    pthread_t watcher;
    pthread_t ender; /* ends the communicator */
    bool watching, ending;
    _Atomic bool stop;
} choir__nccl;

/* --- watch.c --- */
choir_status choir__nccl_watch(choir__nccl *n); /* starts the watcher */
void choir__nccl_unwatch(choir__nccl *n);
/* Aborts the communicator, unless it already is, and notifies all waiters, on this rank and
 * others. Any thread. */
void choir__nccl_go_down(choir__nccl *n, choir_status status, const char *sentence);
/* Aborts or destroys the communicator on a separate thread, because that may wait for
 * graphs. */
void choir__nccl_end_comm(choir__nccl *n, ncclComm_t comm, bool aborts);
/* Waits for that thread. If it takes too long, prints a line and leaves it running. */
void choir__nccl_await_end(choir__nccl *n);
/* Returns the engine's failure if the communicator was aborted. On the queue's thread. */
choir_status choir__nccl_status(choir__nccl *n);
/* Called after an error. Returns true if a step is being captured: that is no failure, as the
 * step is then issued as it was recorded. */
bool choir__nccl_refused(choir__nccl *n);
/* Not CHOIR_OK if the rest of the call must not be issued: the call failed or was refused. */
choir_status choir__nccl_stopped(const choir__nccl *n);
/* Handles CUDA's result; an error stops the call. */
choir_status choir__nccl_cuda(choir__nccl *n, cudaError_t error, const char *what);
/* Waits for NCCL's result of a call, since calls of a non-blocking communicator return at
 * once. */
choir_status choir__nccl_done(choir__nccl *n, ncclResult_t result, const char *what);
/* Waits until the stream has finished. */
choir_status choir__nccl_settle(choir__engine *engine);

/* --- exchange.c, carry.c, sum.c: far data; on the queue's thread --- */

/* Returns GPU memory, valid until the next call. NULL: the engine has failed. */
char *choir__nccl_scratch(choir__nccl *n, size_t bytes);

/* Called between ncclGroupStart and choir__nccl_end; 0 bytes send nothing. */
void choir__nccl_send(choir__nccl *n, const void *at, size_t bytes, int peer);
void choir__nccl_receive(choir__nccl *n, void *at, size_t bytes, int peer);
choir_status choir__nccl_end(choir__nccl *n);
choir_status choir__nccl_copy(choir__nccl *n, void *to, const void *from, size_t bytes);

bool choir__nccl_takes(const choir__engine *engine, const choir__call *call);
choir_status choir__nccl_carry(choir__nccl *n, const choir__call *call);
choir_status choir__nccl_sum(choir__nccl *n, const choir__call *call);
choir_status choir__nccl_tree_scatter(choir__nccl *n, const choir__call *call);

#endif
