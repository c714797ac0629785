/* Failures that NCCL does not detect, and the end of a group over NCCL.
 *
 * The communicator does not block: its calls return at once, and their results are polled. A
 * thread that calls NCCL holds the group's lock, and releases it between polls, so that the
 * watcher can abort at any time. */
#include "comm/nccl/nccl.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "device/queue.h"
#include "device/stream.h"

static const double look_s = 0.1, left_s = 2;
enum { NAP_MS = 20, ASK_US = 20, END_S = 10, QUICK_ASKS = 4000 /* a millisecond or so */ };

/* --- the communicator's end --- */

typedef struct ending {
    ncclComm_t comm;
    int gpu;
    bool aborts;
} ending;

static void *end_comm(void *arg)
{
    ending e = *(ending *)arg;
    free(arg);
    cudaSetDevice(e.gpu);
    if (e.aborts)
        choir__nccl_calls.CommAbort(e.comm);
    else
        choir__nccl_calls.CommDestroy(e.comm);
    return NULL;
}

/* NCCL's destroy and abort return only when no graph is left that captured one of the
 * communicator's calls: never, while a recorded step exists that is not replayed any more. So
 * they run on a separate thread, without the lock. */
void choir__nccl_end_comm(choir__nccl *n, ncclComm_t comm, bool aborts)
{
    ending *e = choir__alloc(sizeof *e);
    *e = (ending){comm, n->gpu, aborts};
    n->ending = pthread_create(&n->ender, NULL, end_comm, e) == 0;
    if (!n->ending)
        end_comm(e);
}

void choir__nccl_await_end(choir__nccl *n)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += END_S;
    if (!n->ending)
        return;
    n->ending = false;
    if (pthread_clockjoin_np(n->ender, NULL, CLOCK_MONOTONIC, &until) == 0)
        return;
    pthread_detach(n->ender);
    fprintf(stderr,
        "choir: rank %d: NCCL keeps its communicator on %s: a graph that captured its calls is "
        "not freed\n",
        n->base.rank, choir_device_name(n->device));
}

/* An abort makes NCCL's kernels return, which wakes the threads that wait for the stream, with
 * incomplete data. The queue must have failed before that. */
void choir__nccl_go_down(choir__nccl *n, choir_status status, const char *sentence)
{
    pthread_mutex_lock(&n->lock);
    bool first = n->down == CHOIR_OK;
    ncclComm_t comm = n->comm;
    if (first) {
        n->down = status;
        snprintf(n->sentence, sizeof n->sentence, "%s", sentence);
        n->comm = NULL;
        if (n->base.queue)
            choir__queue_break(n->base.queue, status, n->sentence);
    }
    pthread_mutex_unlock(&n->lock);
    if (!first)
        return;
    if (n->host->ops->abort)
        n->host->ops->abort(n->host, status, n->sentence);
    if (n->watch && n->watch->ops->abort)
        n->watch->ops->abort(n->watch, status, n->sentence);
    if (comm)
        choir__nccl_end_comm(n, comm, true);
}

choir_status choir__nccl_status(choir__nccl *n)
{
    pthread_mutex_lock(&n->lock);
    if (n->down != CHOIR_OK)
        choir__engine_fail(&n->base, n->down, "%s", n->sentence);
    pthread_mutex_unlock(&n->lock);
    return n->base.failed;
}

bool choir__nccl_refused(choir__nccl *n)
{
    n->refused |= n->base.stream->ops->refuse(n->base.stream);
    return n->refused;
}

choir_status choir__nccl_stopped(const choir__nccl *n)
{
    return n->base.failed != CHOIR_OK ? n->base.failed
           : n->refused               ? CHOIR_ERR_STATE
                                      : CHOIR_OK;
}

choir_status choir__nccl_cuda(choir__nccl *n, cudaError_t error, const char *what)
{
    char text[200];
    if (error == cudaSuccess || choir__nccl_refused(n))
        return choir__nccl_stopped(n);
    snprintf(text, sizeof text, "rank %d: %s on %s: %s", n->base.rank, what,
        choir_device_name(n->device), cudaGetErrorString(error));
    choir__nccl_go_down(n, CHOIR_ERR_DEVICE, text);
    return choir__nccl_status(n);
}

static void say_trouble(choir__nccl *n, ncclResult_t result, const char *what)
{
    char text[400];
    snprintf(text, sizeof text, "rank %d: NCCL: %s on %s: %s; NCCL_DEBUG=WARN says more",
        n->base.rank, what, choir_device_name(n->device),
        choir__nccl_calls.GetErrorString(result));
    choir__nccl_go_down(
        n, result == ncclRemoteError ? CHOIR_ERR_PEER_LOST : CHOIR_ERR_DEVICE, text);
}

choir_status choir__nccl_done(choir__nccl *n, ncclResult_t result, const char *what)
{
    /* A group of calls takes NCCL's thread some 100 us to launch, and a sleep lasts 70 or more:
     * short waits ask again at once. A yield leaves the core to a thread that has work. */
    double until = choir__now() + n->base.timeout_s;
    for (int asked = 0; result == ncclInProgress && n->comm; asked++) {
        if (choir__nccl_calls.CommGetAsyncError(n->comm, &result) != ncclSuccess)
            result = ncclInternalError;
        if (result != ncclInProgress)
            break;
        pthread_mutex_unlock(&n->lock);
        if (asked < QUICK_ASKS)
            sched_yield();
        else
            usleep(ASK_US);
        pthread_mutex_lock(&n->lock);
        if (choir__now() > until) {
            char text[300];
            snprintf(text, sizeof text,
                "rank %d: NCCL: %s on %s did not begin within %g s: are all ranks there?",
                n->base.rank, what, choir_device_name(n->device), n->base.timeout_s);
            choir__nccl_go_down(n, CHOIR_ERR_TIMEOUT, text);
        }
    }
    if (n->comm && result != ncclSuccess && !choir__nccl_refused(n))
        say_trouble(n, result, what);
    choir__nccl_status(n);
    return choir__nccl_stopped(n);
}

choir_status choir__nccl_settle(choir__engine *engine)
{
    choir__nccl *n = (choir__nccl *)engine;
    cudaStreamSynchronize(n->stream); /* returns, too, when the watcher aborts */
    cudaGetLastError();               /* the device's own errors are reported by its queue */
    return choir__nccl_status(n);
}

/* --- the watcher --- */

typedef struct vigil {
    double looked; /* time of the last check of the peers */
    double since;  /* time of the last change of the marks */
    uint32_t begun, ended;
} vigil;

/* Returns for how long the GPU has been in one call; 0: in none. */
static double stuck_for(choir__nccl *n, vigil *v)
{
    uint32_t begun = n->seen->begun, ended = n->seen->ended;
    double now = choir__now();
    if (begun != v->begun || ended != v->ended || begun == ended) {
        v->begun = begun;
        v->ended = ended;
        v->since = now;
    }
    return now - v->since;
}

static void look_at_nccl(choir__nccl *n)
{
    ncclResult_t result = ncclSuccess;
    pthread_mutex_lock(&n->lock);
    if (n->comm && choir__nccl_calls.CommGetAsyncError(n->comm, &result) == ncclSuccess &&
        result != ncclSuccess && result != ncclInProgress)
        say_trouble(n, result, "a call");
    pthread_mutex_unlock(&n->lock);
}

static void look_at_peers(choir__nccl *n, const choir__stamp *during, bool needed)
{
    n->watch->role = n->base.role;
    choir_status status = n->watch->ops->look(n->watch, during, needed);
    if (status != CHOIR_OK)
        choir__nccl_go_down(n, status, n->watch->message);
}

static void give_up_on(choir__nccl *n, const choir__stamp *during)
{
    char text[CHOIR__SILENT_TEXT];
    int others[CHOIR__NCCL_SOURCES], count = 0;
    for (int r = 0; r < n->base.world && count < CHOIR__NCCL_SOURCES; r++)
        if (r != n->base.rank)
            others[count++] = r;
    choir__engine_silent(&n->base, others, count, true, during, text);
    choir__nccl_go_down(n, CHOIR_ERR_TIMEOUT, text);
}

static void *watch(void *arg)
{
    choir__nccl *n = arg;
    vigil v = {.looked = choir__now(), .since = choir__now()};
    const struct timespec nap = {0, NAP_MS * 1000000};
    while (!atomic_load(&n->stop)) {
        nanosleep(&nap, NULL);
        pthread_mutex_lock(&n->lock);
        choir__stamp during = n->now;
        bool over = n->down != CHOIR_OK;
        pthread_mutex_unlock(&n->lock);
        if (over)
            break;
        double stuck = stuck_for(n, &v);
        look_at_nccl(n);
        if (choir__now() - v.looked > look_s) {
            v.looked = choir__now();
            look_at_peers(n, &during, stuck > left_s);
        }
        if (stuck > n->base.timeout_s)
            give_up_on(n, &during);
    }
    return NULL;
}

choir_status choir__nccl_watch(choir__nccl *n)
{
    n->watching = pthread_create(&n->watcher, NULL, watch, n) == 0;
    return n->watching ? CHOIR_OK
                       : choir__error(CHOIR_ERR_MEMORY,
                             "cannot start a thread that watches a group of NCCL");
}

void choir__nccl_unwatch(choir__nccl *n)
{
    atomic_store(&n->stop, true);
    if (n->watching)
        pthread_join(n->watcher, NULL);
    n->watching = false;
}
