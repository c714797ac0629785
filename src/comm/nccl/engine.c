/* The engine "nccl": checks that each rank has its own GPU, makes the communicator, and chooses
 * how a call travels.
 *
 * All messages on the way go over the host engine, so there is nothing to configure: each
 * rank's GPU, NCCL's id of the communicator, success or failure. A sub-group is made in the
 * same way over a sub-group of the host engine. */
#include "comm/nccl/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/plugin.h"
#include "device/cuda/cuda.h"
#include "device/device.h"
#include "device/stream.h"

/* --- over the host engine --- */

static choir_status adopt_host(choir__nccl *n, choir_status status)
{
    if (status == CHOIR_OK)
        return CHOIR_OK;
    choir__nccl_go_down(n, status, n->host->message);
    return choir__nccl_status(n);
}

static choir_status run_on_host(choir__nccl *n, choir__call call)
{
    n->host->name = n->base.name;
    call.stamp.seq = ++n->host->seq;
    choir_status status = n->host->ops->run(n->host, &call);
    atomic_fetch_add(&n->base.bytes, atomic_exchange(&n->host->bytes, 0));
    return adopt_host(n, status);
}

static choir_status all_gather(choir__nccl *n, const void *mine, void *all, size_t bytes)
{
    return run_on_host(n,
        (choir__call){.stamp = {.count = bytes, .kind = CHOIR__ALL_GATHER, .dtype = CHOIR_U8},
            .in = mine,
            .out = all});
}

/* --- each rank's GPU --- */

typedef struct report {
    int32_t status;
    char bus[64], machine[80], text[900];
} report;

static void name_gpu(int gpu, char bus[64])
{
    if (cudaDeviceGetPCIBusId(bus, 64, gpu) != cudaSuccess)
        snprintf(bus, 64, "?");
}

/* Reports this rank's device. An error is only reported here, so that all ranks fail
 * together. */
static report look_here(choir__nccl *n, const char *name)
{
    report mine;
    memset(&mine, 0, sizeof mine);
    n->device = choir_device_find(name);
    if (!n->device || strcmp(n->device->kind, "cuda") != 0) {
        mine.status = CHOIR_ERR_DEVICE;
        snprintf(mine.text, sizeof mine.text, "%s",
            n->device ? "NCCL carries data of GPUs, and this rank's device is a CPU: take "
                        "another backend"
                      : choir_error_message());
        return mine;
    }
    mine.status = choir__nccl_library();
    if (mine.status != CHOIR_OK) {
        snprintf(mine.text, sizeof mine.text, "%s", choir_error_message());
        return mine;
    }
    n->gpu = ((const choir__cuda *)n->device->backend)->gpu;
    name_gpu(n->gpu, mine.bus);
    if (n->base.members)
        snprintf(
            mine.machine, sizeof mine.machine, "%s", n->base.members[n->base.rank].machine);
    return mine;
}

static choir_status judge(const choir__nccl *n, const report *all)
{
    for (int r = 0; r < n->base.world; r++)
        if (all[r].status)
            return choir__error((choir_status)all[r].status, "backend nccl%s: %s",
                strncmp(all[r].text, "rank ", 5) ? ", one of the ranks" : "", all[r].text);
    for (int r = 1; r < n->base.world; r++)
        for (int s = 0; s < r; s++)
            if (!strcmp(all[r].bus, all[s].bus) && !strcmp(all[r].machine, all[s].machine))
                return choir__error(CHOIR_ERR_DEVICE,
                    "backend nccl: expected a GPU for each rank, got ranks %d and %d on "
                    "GPU %s: start fewer ranks, or take --backend shm, by which ranks "
                    "share a card",
                    s, r, all[r].bus);
    return CHOIR_OK;
}

static choir_status compare(choir__nccl *n, const char *name)
{
    report mine = look_here(n, name);
    report *all = choir__calloc((size_t)n->base.world, sizeof *all);
    choir_status status = all_gather(n, &mine, all, sizeof mine);
    if (status != CHOIR_OK)
        choir__error(status, "%s", n->base.message);
    else
        status = judge(n, all);
    free(all);
    return status;
}

/* --- the communicator --- */

static choir_status open_comm(choir__nccl *n)
{
    ncclUniqueId id;
    memset(&id, 0, sizeof id);
    ncclResult_t result = n->base.rank ? ncclSuccess : choir__nccl_calls.GetUniqueId(&id);
    choir__call call = {
        .stamp = {.count = sizeof id, .kind = CHOIR__BROADCAST, .dtype = CHOIR_U8},
        .in = &id,
        .out = &id};
    if (result == ncclSuccess && run_on_host(n, call) != CHOIR_OK)
        return n->base.failed;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    cudaSetDevice(n->gpu);
    pthread_mutex_lock(&n->lock);
    if (result == ncclSuccess)
        result = choir__nccl_calls.CommInitRankConfig(
            &n->comm, n->base.world, id, n->base.rank, &config);
    choir_status status = choir__nccl_done(n, result, "a communicator");
    if (status == CHOIR_OK && result != ncclSuccess &&
        result != ncclInProgress) /* there is no communicator to query */
        status = choir__error(CHOIR_ERR_DEVICE,
            "backend nccl: rank %d has no communicator on %s: %s; NCCL_DEBUG=WARN says more",
            n->base.rank, choir_device_name(n->device),
            choir__nccl_calls.GetErrorString(result));
    pthread_mutex_unlock(&n->lock);
    return status;
}

static choir_status open_watch(choir__nccl *n)
{
    int *ranks = choir__calloc((size_t)n->base.world, sizeof *ranks);
    for (int r = 0; r < n->base.world; r++)
        ranks[r] = r;
    choir_status status =
        n->host->ops->split(n->host, ranks, n->base.world, n->base.rank, INT16_MAX, &n->watch);
    free(ranks);
    if (status != CHOIR_OK)
        return status;
    if (!n->watch->ops->look)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "backend nccl: ranks cannot look after each other over backend %s: name no backend "
            "but nccl, or start them by choir run",
            n->host->ops->name);
    if (cudaHostAlloc((void **)&n->seen, sizeof *n->seen,
            cudaHostAllocPortable | cudaHostAllocMapped) != cudaSuccess) {
        cudaGetLastError();
        n->seen = NULL;
        return choir__error(CHOIR_ERR_MEMORY, "no pinned memory for a group over NCCL");
    }
    memset((void *)n->seen, 0, sizeof *n->seen);
    return choir__nccl_watch(n);
}

static const choir__engine_ops nccl_ops;

static void close_engine(choir__engine *engine);

/* Opens over a host engine, which the group owns from now on, even after a failure. */
static choir_status open_over(choir__engine *host, const char *device, choir__engine **engine)
{
    choir__nccl *n = choir__calloc(1, sizeof *n);
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&n->lock, &again);
    n->base = (choir__engine){.ops = &nccl_ops,
        .rank = host->rank,
        .world = host->world,
        .timeout_s = host->timeout_s,
        .nodes = host->nodes};
    n->host = host;
    if (host->members) {
        size_t bytes = (size_t)host->world * sizeof *host->members;
        n->base.members = memcpy(choir__alloc(bytes), host->members, bytes);
    }
    choir_status status = compare(n, device);
    if (status == CHOIR_OK) {
        n->base.stream = choir__device_stream(n->device);
        status = n->base.stream ? CHOIR_OK : CHOIR_ERR_DEVICE;
    }
    if (status == CHOIR_OK) {
        n->stream = n->base.stream->ops->handle(n->base.stream);
        status = open_watch(n);
    }
    if (status == CHOIR_OK)
        status = open_comm(n);
    if (status == CHOIR_OK) {
        *engine = &n->base;
        return CHOIR_OK;
    }
    if (n->base.failed != CHOIR_OK)
        choir__error(status, "%s", n->base.message);
    else
        choir__nccl_go_down(n, status, choir_error_message());
    if (n->base.stream)
        n->base.stream->ops->free(n->base.stream);
    char *why = strdup(choir_error_message());
    close_engine(&n->base);
    choir__error(status, "%s", why ? why : "backend nccl");
    free(why);
    return status;
}

/* If all is well, all ranks finalize, which waits for the others; the watcher runs until
 * then. */
static void close_comm(choir__nccl *n)
{
    pthread_mutex_lock(&n->lock);
    if (n->comm && n->base.failed == CHOIR_OK) {
        ncclResult_t result = choir__nccl_calls.CommFinalize(n->comm);
        choir__nccl_done(n, result, "the end");
    }
    ncclComm_t comm = n->comm;
    n->comm = NULL;
    pthread_mutex_unlock(&n->lock);
    if (comm)
        choir__nccl_end_comm(n, comm, n->base.failed != CHOIR_OK);
}

static void close_engine(choir__engine *engine)
{
    choir__nccl *n = (choir__nccl *)engine;
    close_comm(n);
    choir__nccl_unwatch(n);
    choir__nccl_await_end(n);
    if (n->watch)
        n->watch->ops->close(n->watch);
    n->host->ops->close(n->host);
    cudaFree(n->scratch);
    for (int i = 0; i < n->outgrown_count; i++)
        cudaFree(n->outgrown[i]);
    if (n->seen)
        cudaFreeHost((void *)n->seen);
    free(n->outgrown);
    pthread_mutex_destroy(&n->lock);
    choir__engine_free(engine);
}

/* --- calls --- */

/* A minimal all-reduce: a rank that waits for its stream waits for all ranks. */
static choir_status barrier(choir__nccl *n)
{
    char *at = choir__nccl_scratch(n, 64);
    return at ? choir__nccl_done(n,
                    choir__nccl_calls.AllReduce(
                        at, at, 1, ncclUint8, ncclMax, n->comm, n->stream),
                    "a barrier")
              : choir__nccl_stopped(n);
}

static choir_status mark(choir__nccl *n, volatile uint32_t *count)
{
    return choir__nccl_cuda(n, choir__nccl_launch_mark(count, n->stream), "a mark");
}

static uint64_t bytes_of(const choir__call *call)
{
    return call->stamp.count * choir_dtype_size((choir_dtype)call->stamp.dtype);
}

/* calls (count): a single call, or several messages. */
static choir_status run_on_gpu(choir__nccl *n, const choir__call *calls, int count)
{
    pthread_mutex_lock(&n->lock);
    choir_status status = choir__nccl_status(n);
    n->now = calls->stamp;
    n->refused = false;
    if (status == CHOIR_OK)
        status = mark(n, &n->seen->begun);
    bool messages = calls->stamp.kind == CHOIR__SEND || calls->stamp.kind == CHOIR__RECEIVE;
    if (status == CHOIR_OK && calls->stamp.kind == CHOIR__BARRIER)
        status = barrier(n);
    else if (status == CHOIR_OK && !messages)
        status = choir__nccl_carry(n, calls);
    if (status == CHOIR_OK && messages) {
        choir__nccl_calls.GroupStart();
        for (int i = 0; i < count; i++)
            if (calls[i].stamp.kind == CHOIR__SEND)
                choir__nccl_send(n, calls[i].in, bytes_of(&calls[i]), calls[i].stamp.peer);
            else
                choir__nccl_receive(n, calls[i].out, bytes_of(&calls[i]), calls[i].stamp.peer);
        status = choir__nccl_end(n);
    }
    if (status == CHOIR_OK)
        status = mark(n, &n->seen->ended);
    if (n->refused)
        status = n->base.failed;
    for (int i = 0; i < count; i++)
        atomic_fetch_add_explicit(&n->base.bytes, bytes_of(&calls[i]), memory_order_relaxed);
    pthread_mutex_unlock(&n->lock);
    return status;
}

static bool takes(const choir__engine *engine, const choir__call *call)
{
    return call->stamp.kind == CHOIR__BARRIER ||
           (choir__call_is_far(call) && choir__nccl_takes(engine, call));
}

static choir_status run(choir__engine *engine, const choir__call *call)
{
    choir__nccl *n = (choir__nccl *)engine;
    return takes(engine, call) ? run_on_gpu(n, call, 1) : run_on_host(n, *call);
}

/* A message whose data are far on one end is far on the other. */
static choir_status run_batch(choir__engine *engine, const choir__call *calls, int count)
{
    choir__nccl *n = (choir__nccl *)engine;
    choir__call *part = choir__calloc((size_t)count, sizeof *part);
    choir_status status = CHOIR_OK;
    for (int far = 0; far < 2 && status == CHOIR_OK; far++) {
        int found = 0;
        for (int i = 0; i < count; i++)
            if (choir__call_is_far(&calls[i]) == (far != 0))
                part[found++] = calls[i];
        if (found && far)
            status = run_on_gpu(n, part, found);
        else if (found)
            status = adopt_host(n, n->host->ops->run_batch(n->host, part, found));
    }
    free(part);
    return status;
}

static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    choir__nccl *n = (choir__nccl *)engine;
    choir__engine *host;
    uint32_t seq = n->host->seq;
    n->host->seq = engine->seq; /* names are made from it */
    choir_status status = n->host->ops->split(n->host, ranks, count, rank, color, &host);
    n->host->seq = seq;
    if (status != CHOIR_OK)
        return n->host->failed != CHOIR_OK ? adopt_host(n, status) : status;
    return open_over(host, choir_device_name(n->device), child);
}

/* --- failures --- */

static choir_status fail(choir__engine *engine, choir_status status, const char *sentence)
{
    choir__nccl *n = (choir__nccl *)engine;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    if (n->host->ops->fail)
        n->host->ops->fail(n->host, status, sentence);
    choir__nccl_go_down(n, n->host->failed != CHOIR_OK ? n->host->failed : status,
        n->host->failed != CHOIR_OK ? n->host->message : sentence);
    return choir__nccl_status(n);
}

static void abort_calls(choir__engine *engine, choir_status status, const char *sentence)
{
    choir__nccl_go_down(
        (choir__nccl *)engine, status, sentence ? sentence : "this rank leaves");
}

static const choir__engine_ops nccl_ops = {
    .name = "nccl",
    .close = close_engine,
    .run = run,
    .run_batch = run_batch,
    .split = split,
    .fail = fail,
    .abort = abort_calls,
    .takes = takes,
    .settle = choir__nccl_settle,
};

/* Copies entry number `local` of a list, which repeats from its start. */
static void choose_device(const char *list, int local, char name[64])
{
    int count = 1;
    for (const char *c = list; *c; c++)
        count += *c == ',';
    for (int i = local % count; i > 0; i--)
        list = strchr(list, ',') + 1;
    snprintf(name, 64, "%.*s", (int)strcspn(list, ","), list);
}

/* *engine: on entry, the host's engine. */
choir_status choir__plugin_open(choir__meeting *meeting, choir__engine **engine)
{
    char name[64];
    int local = meeting->members ? meeting->members[meeting->rank].local_rank : meeting->rank;
    /* counted in a child process, if need be */
    int count = meeting->device ? 0 : choir_device_count("cuda");
    snprintf(name, sizeof name, "cuda:%d", count ? local % count : local);
    if (meeting->device)
        choose_device(meeting->device, local, name);
    choir__engine *host = *engine;
    *engine = NULL;
    return open_over(host, name, engine);
}
