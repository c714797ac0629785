/* Streams of GPUs behind the queue's interface.
 *
 * Marks are CUDA events in a small ring, oldest first. If the ring is full, the newest mark is
 * recorded again at a later place. Its waiters then wait a little longer, but only for work
 * that cannot depend on them. */
#include "device/cuda/stream_run.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/memory.h"
#include "device/plugin.h"

/* --- entering --- */

static void enter(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    choir__cuda_set_here(&s->cuda);
    cudaSetDevice(s->cuda.gpu);
    if (s->cuda.capturing)
        return;
    pthread_mutex_lock(&s->lock);
    if (!s->working) {
        cudaEventRecord(s->began, s->cuda.stream);
        s->working = true;
        s->turns++;
    }
    pthread_mutex_unlock(&s->lock);
}

static void *handle(choir__gpu_stream *stream)
{
    return ((cuda_stream *)stream)->cuda.stream;
}

/* --- marks --- */

static mark *at(cuda_stream *s, int i)
{
    return &s->marks[(s->first + i) % MARKS];
}

/* Returns the first mark at or after seq, or else a new one at `launched`. Under lock. */
static mark *mark_of(cuda_stream *s, uint64_t seq, uint64_t launched)
{
    for (int i = 0; i < s->count; i++)
        if (at(s, i)->seq >= seq)
            return at(s, i);
    if (s->count < MARKS)
        s->count++;
    mark *m = at(s, s->count - 1);
    m->seq = launched;
    cudaEventRecord(m->event, s->cuda.stream);
    return m;
}

static void make_mark(choir__gpu_stream *stream, uint64_t seq)
{
    cuda_stream *s = (cuda_stream *)stream;
    choir__cuda_settle();
    pthread_mutex_lock(&s->lock);
    if (!s->broken && !s->cuda.capturing && atomic_load(&s->reached) < seq)
        mark_of(s, seq, seq);
    pthread_mutex_unlock(&s->lock);
}

/* Removes marks that have been reached. Under lock. */
static void look(cuda_stream *s)
{
    while (s->count && !s->broken && !s->cuda.capturing) {
        cudaError_t error = cudaEventQuery(at(s, 0)->event);
        if (error == cudaErrorNotReady) {
            cudaGetLastError(); /* some versions keep it as an error */
            break;
        }
        if (error != cudaSuccess) {
            s->broken = true; /* waiters must not wait for marks that will never be reached */
            break;
        }
        atomic_store(&s->reached, at(s, 0)->seq);
        s->first = (s->first + 1) % MARKS;
        s->count--;
    }
}

static uint64_t reached(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    choir__cuda_settle();
    pthread_mutex_lock(&s->lock);
    look(s);
    uint64_t place = s->broken ? UINT64_MAX : atomic_load(&s->reached);
    pthread_mutex_unlock(&s->lock);
    return place;
}

/* Adds the time of a turn, whose work is all done, up to the mark's event. Under lock. */
static void count_time(cuda_stream *s, uint64_t turn, cudaEvent_t ended)
{
    float ms = 0;
    if (!s->working || s->turns != turn)
        return; /* another thread has counted it, and a new turn began */
    if (cudaEventElapsedTime(&ms, s->began, ended) == cudaSuccess)
        s->busy_s += (double)ms * 1e-3;
    cudaGetLastError();
    s->working = false;
}

static choir_status look_op(choir__gpu_stream *stream, uint64_t launched)
{
    cuda_stream *s = (cuda_stream *)stream;
    choir__cuda_settle();
    pthread_mutex_lock(&s->lock);
    look(s);
    if (!s->count && !s->broken && !s->cuda.capturing && atomic_load(&s->reached) < launched)
        mark_of(s, launched, launched); /* for the next look */
    cudaError_t error = s->broken ? cudaStreamQuery(s->cuda.stream) : cudaSuccess;
    choir_status status = choir__cuda_findings(s, error);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static choir_status wait(choir__gpu_stream *stream, uint64_t seq, uint64_t launched)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaError_t error = cudaSuccess;
    choir__cuda_settle();
    pthread_mutex_lock(&s->lock);
    if (s->broken) {
        error = cudaStreamQuery(s->cuda.stream);
        error = error == cudaSuccess ? cudaErrorUnknown : error;
    } else if (atomic_load(&s->reached) < seq) {
        mark m = *mark_of(s, seq, launched);
        uint64_t turn = s->turns;
        pthread_mutex_unlock(&s->lock);
        error = cudaEventSynchronize(m.event);
        pthread_mutex_lock(&s->lock);
        if (error == cudaSuccess && m.seq == launched && !s->cuda.capturing)
            count_time(s, turn, m.event);
        look(s);
    }
    choir_status status = choir__cuda_findings(s, error);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void follow(
    choir__gpu_stream *stream, choir__gpu_stream *other, uint64_t seq, uint64_t launched)
{
    cuda_stream *s = (cuda_stream *)stream, *o = (cuda_stream *)other;
    cudaError_t error = cudaSuccess;
    pthread_mutex_lock(&o->lock);
    if (!o->broken && atomic_load(&o->reached) < seq)
        error = cudaStreamWaitEvent(s->cuda.stream, mark_of(o, seq, launched)->event, 0);
    pthread_mutex_unlock(&o->lock);
    choir__cuda_ok(error, "waiting for another stream");
}

static double busy_s(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    pthread_mutex_lock(&s->lock);
    double busy = s->busy_s;
    pthread_mutex_unlock(&s->lock);
    return busy;
}

/* --- life --- */

/* Events stay until `free`: another thread may just be returning from a wait for one. */
static void close_stream(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaSetDevice(s->cuda.gpu);
    cudaStreamSynchronize(s->cuda.stream);
    pthread_mutex_lock(&s->lock);
    choir__cuda_scratch_free(&s->cuda);
    choir__cuda_plans_free(&s->cuda);
    choir__cuda_dnn_free(&s->cuda);
    if (s->cuda.blas)
        cublasLtDestroy(s->cuda.blas);
    if (s->cuda.workspace)
        choir__cuda_memory.put(&s->cuda, s->cuda.workspace, WORKSPACE);
    if (s->seen)
        cudaFreeHost(s->seen);
    cudaStreamDestroy(s->cuda.stream);
    cudaGetLastError(); /* belongs to no caller any more */
    s->seen = NULL;
    s->count = 0;
    s->broken = false;
    s->closed = true;
    atomic_store(&s->reached, UINT64_MAX);
    pthread_mutex_unlock(&s->lock);
    if (choir__cuda_here() == &s->cuda)
        choir__cuda_set_here(NULL);
}

static void free_stream(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    if (!s->closed)
        close_stream(stream);
    choir__cuda_settle();
    for (int i = 0; i < MARKS; i++)
        if (s->marks[i].event)
            cudaEventDestroy(s->marks[i].event);
    if (s->began)
        cudaEventDestroy(s->began);
    pthread_mutex_destroy(&s->lock);
    free(s->last);
    free(s);
}

static const choir__gpu_stream_ops ops = {
    .close = close_stream,
    .free = free_stream,
    .enter = enter,
    .handle = handle,
    .mark = make_mark,
    .reached = reached,
    .look = look_op,
    .wait = wait,
    .follow = follow,
    .ran = choir__cuda_ran,
    .busy_s = busy_s,
    .capturable = choir__cuda_capturable,
    .begin = choir__cuda_begin,
    .place = choir__cuda_place,
    .behind = choir__cuda_behind,
    .drop = choir__cuda_drop,
    .end = choir__cuda_end,
    .refuse = choir__cuda_refuse,
    .captured = choir__cuda_captured,
    .launch = choir__cuda_launch,
    .forget = choir__cuda_forget,
};

/* Returns true if the ranks of this machine outnumber the cores that this one may use: a wait
 * that spins would then take a core from a rank that has work. */
static bool crowded(void)
{
    const char *ranks = getenv("LOCAL_WORLD_SIZE");
    cpu_set_t cores;
    return ranks && sched_getaffinity(0, sizeof cores, &cores) == 0 &&
           atoi(ranks) > CPU_COUNT(&cores);
}

static cudaError_t make(cuda_stream *s)
{
    unsigned waits = crowded() ? cudaEventBlockingSync : cudaEventDefault;
    cudaError_t error = cudaSetDevice(s->cuda.gpu);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&s->cuda.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreate(&s->began);
    for (int i = 0; i < MARKS && error == cudaSuccess; i++)
        error = cudaEventCreateWithFlags(&s->marks[i].event, waits);
    if (error == cudaSuccess)
        error = cudaHostAlloc(
            (void **)&s->seen, sizeof *s->seen, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess)
        return error;
    memset(s->seen, 0, sizeof *s->seen);
    s->numbered = choir__cuda_numbers(s->cuda.stream, &s->seen->number);
    s->cuda.fault = &s->seen->fault;
    s->cuda.workspace = choir__cuda_get(&s->cuda, WORKSPACE);
    return s->cuda.workspace ? cudaSuccess : cudaErrorMemoryAllocation;
}

choir__gpu_stream *choir__cuda_stream_new(int gpu, choir_device *device)
{
    cuda_stream *s = choir__calloc(1, sizeof *s);
    choir__cuda_use(gpu);
    s->base.ops = &ops;
    s->cuda = (choir__cuda){.device = device, .gpu = gpu, .workspace_bytes = WORKSPACE};
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
    cudaDeviceGetAttribute(&s->cuda.multiprocessors, cudaDevAttrMultiProcessorCount, gpu);
    cudaDeviceGetAttribute(&s->cuda.most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
    s->cuda.capability = 10 * major + minor;
    size_t left;
    if (cudaMemGetInfo(&left, &s->cuda.memory) != cudaSuccess)
        s->cuda.memory = 0;
    pthread_mutex_init(&s->lock, NULL);
    s->last = choir__calloc(LAST, sizeof *s->last);
    cudaError_t error = make(s);
    if (error == cudaSuccess && cublasLtCreate(&s->cuda.blas) == CUBLAS_STATUS_SUCCESS)
        return &s->base;
    choir__error(error == cudaErrorMemoryAllocation ? CHOIR_ERR_MEMORY : CHOIR_ERR_DEVICE,
        "a stream on GPU %d can't be made: %s", gpu,
        error == cudaSuccess ? "cuBLASLt does not start" : cudaGetErrorString(error));
    free_stream(&s->base);
    return NULL;
}
