/* Streams of GPUs behind the queue's interface, and what goes wrong on them.
 *
 * Marks are CUDA events in a small ring, oldest first. If the ring is full the newest is
 * recorded again, later: who waits for it waits a little longer, and for nothing that could
 * wait for him.
 *
 * An error of the GPU's shows long after the kernel that made it was launched, and takes the
 * whole process's use of the GPU with it. So that it can be named, the stream keeps the last
 * tasks, and after each of them the GPU writes the task's number to host memory
 * (cuStreamWriteValue32): the first one whose number is missing did it. CHOIR_CUDA_SYNC=1 waits
 * after every task instead. Work that was captured has no numbers. */
#include "device/cuda/stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/memory.h"
#include "device/plugin.h"

enum { MARKS = 64, LAST = 64, WORKSPACE = 32 << 20 };

typedef struct mark {
    cudaEvent_t event;
    uint64_t seq;
} mark;

typedef struct ran_task {
    choir__task *fn;
    unsigned char args[CHOIR__TASK_MAX];
} ran_task;

/* What the GPU writes to: pinned host memory, seen at the same address. */
typedef struct seen {
    choir__cuda_fault fault;
    volatile uint32_t number; /* of the last task that is done */
} seen;

typedef struct cuda_stream {
    choir__stream base;
    choir__cuda cuda;
    pthread_mutex_t lock;
    mark marks[MARKS];
    int first, count;
    _Atomic uint64_t reached;
    bool broken; /* CUDA reports an error that stays */
    seen *seen;
    ran_task *last; /* (LAST) */
    uint32_t number;
    bool numbered;
    /* time: from when it was idle until a wait finds it idle again */
    cudaEvent_t began;
    bool working;
    uint64_t turns; /* how often it began */
    double busy_s;
} cuda_stream;

static _Thread_local choir__cuda *here;

choir__cuda *choir__cuda_here(void)
{
    return here;
}

choir__cuda *choir__cuda_context_of(choir__stream *stream)
{
    return &((cuda_stream *)stream)->cuda;
}

/* --- entering --- */

static void enter(choir__stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    here = &s->cuda;
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

static void *handle(choir__stream *stream)
{
    return ((cuda_stream *)stream)->cuda.stream;
}

/* --- what went wrong --- */

const char *choir__cuda_fault_text(const choir__cuda_fault *f, char *text, size_t bytes)
{
    long long value = (long long)f->value, limit = (long long)f->limit, at = (long long)f->at;
    switch ((choir__cuda_wrong)f->what) {
    case CHOIR__BAD_ID:
        snprintf(text, bytes,
            "embedding: id %lld at position %lld is outside [0, %lld); the table is too small or "
            "the data was tokenized otherwise",
            value, at, limit);
        break;
    case CHOIR__BAD_TARGET:
    case CHOIR__BAD_NLL_TARGET:
        snprintf(text, bytes,
            "%s: target %lld of row %lld is outside [0, %lld); fix the labels or set "
            "ignore_index",
            f->what == CHOIR__BAD_TARGET ? "cross_entropy" : "nll_loss", value, at, limit);
        break;
    case CHOIR__BAD_PROBABILITY:
        snprintf(text, bytes,
            "bce_loss: %g, element %lld, is no probability; bce_with_logits_loss takes scores",
            f->number, at);
        break;
    case CHOIR__STUCK_SCALER:
        snprintf(text, bytes,
            "gradients were infinite or NaN in %lld steps in a row, down to a loss scale of %g: "
            "it is not the scale; a lower --lr, a warm-up, or bf16, which needs none, may help",
            value, f->number);
        break;
    default: snprintf(text, bytes, "fault %d", f->what); break;
    }
    return text;
}

/* "matmul 64x10x128", or what is known of it. */
static void name_task(const cuda_stream *s, const ran_task *t, char *text, size_t bytes)
{
    if (s->cuda.device)
        choir__work_text(s->cuda.device, t->fn, t->args, text, bytes);
    else
        snprintf(text, bytes, "a collective");
}

/* A fault of the GPU's stays and is what every call returns from then on: the first task that
 * is not done did it, or a task of another stream. */
static choir_status say_error(cuda_stream *s, cudaError_t error)
{
    char text[160] = "work of another stream";
    uint32_t behind = s->number - s->seen->number;
    if (!s->numbered || behind > LAST)
        snprintf(text, sizeof text, "one of the last kernels");
    else if (behind > 0)
        name_task(s, &s->last[(s->seen->number + 1) % LAST], text, sizeof text);
    return choir__error(CHOIR_ERR_DEVICE,
        "%s failed on GPU %d: %s; with CHOIR_CUDA_SYNC=1 each kernel is waited for, and named",
        text, s->cuda.gpu, cudaGetErrorString(error));
}

static bool sticks(cuda_stream *s)
{
    cudaError_t now = cudaStreamQuery(s->cuda.stream);
    cudaGetLastError();
    return now != cudaSuccess && now != cudaErrorNotReady;
}

static cuda_stream *stream_here(void)
{
    return (cuda_stream *)((char *)here - offsetof(cuda_stream, cuda));
}

bool choir__cuda_ok(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return true;
    cudaGetLastError();
    if (here && here->capturing) { /* then the list is issued as it is */
        here->refused = true;
        return false;
    }
    if (here && sticks(stream_here())) {
        say_error(stream_here(), error);
        choir__queue_fail(CHOIR_ERR_DEVICE, "%s", choir_error_message());
        return false;
    }
    choir__queue_fail(error == cudaErrorMemoryAllocation ? CHOIR_ERR_MEMORY : CHOIR_ERR_DEVICE,
        "%s: %s", what, cudaGetErrorString(error));
    return false;
}

/* Under lock, after a wait. */
static choir_status findings(cuda_stream *s, cudaError_t error)
{
    char text[256];
    if (error != cudaSuccess)
        s->broken = true;
    if (error != cudaSuccess)
        return say_error(s, error);
    choir__cuda_fault *f = &s->seen->fault;
    if (!*(volatile int32_t *)&f->what)
        return CHOIR_OK;
    choir_status status =
        choir__error(f->what == CHOIR__STUCK_SCALER ? CHOIR_ERR_NONFINITE : CHOIR_ERR_RANGE,
            "%s", choir__cuda_fault_text(f, text, sizeof text));
    *f = (choir__cuda_fault){0};
    return status;
}

/* The number of the task is written when the GPU has done what was launched until now. */
typedef int write_value_fn(cudaStream_t stream, uintptr_t at, uint32_t value, unsigned flags);

static write_value_fn *write_value(void)
{
    static _Atomic(write_value_fn *) found;
    static _Atomic bool looked;
    if (!atomic_load(&looked)) {
        void *fn = NULL;
        enum cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &fn, 12000,
                cudaEnableDefault, &result) != cudaSuccess ||
            result != cudaDriverEntryPointSuccess)
            fn = NULL;
        cudaGetLastError();
        atomic_store(&found, (write_value_fn *)fn);
        atomic_store(&looked, true);
    }
    return atomic_load(&found);
}

static bool synchronous(void)
{
    const char *wanted = getenv("CHOIR_CUDA_SYNC");
    return wanted && *wanted && strcmp(wanted, "0") != 0;
}

static void ran(choir__stream *stream, choir__task *fn, const void *args, size_t bytes)
{
    cuda_stream *s = (cuda_stream *)stream;
    ran_task *t = &s->last[(s->number + 1) % LAST];
    cudaError_t error = cudaGetLastError();
    t->fn = fn;
    memcpy(t->args, args, bytes);
    if (!s->cuda.capturing) {
        s->number++;
        if (s->numbered)
            write_value()(s->cuda.stream, (uintptr_t)&s->seen->number, s->number, 0);
        if (error == cudaSuccess && synchronous())
            error = cudaStreamSynchronize(s->cuda.stream);
    }
    s->cuda.refused |= error != cudaSuccess;
    if (error == cudaSuccess || s->cuda.capturing)
        return;
    char text[512];
    if (sticks(s)) {
        say_error(s, error);
        snprintf(text, sizeof text, "%s", choir_error_message());
        choir__queue_fail(CHOIR_ERR_DEVICE, "%s", text);
        return;
    }
    name_task(s, t, text, sizeof text);
    choir__queue_fail(CHOIR_ERR_DEVICE, "%s: %s", text, cudaGetErrorString(error));
}

/* --- marks --- */

static mark *at(cuda_stream *s, int i)
{
    return &s->marks[(s->first + i) % MARKS];
}

/* Under lock: the first mark at or behind seq; made at `launched` if there is none. */
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

static void make_mark(choir__stream *stream, uint64_t seq)
{
    cuda_stream *s = (cuda_stream *)stream;
    pthread_mutex_lock(&s->lock);
    if (!s->broken && !s->cuda.capturing && atomic_load(&s->reached) < seq)
        mark_of(s, seq, seq);
    pthread_mutex_unlock(&s->lock);
}

/* Under lock: marks that are over go. */
static void look(cuda_stream *s)
{
    while (s->count && !s->broken && !s->cuda.capturing) {
        cudaError_t error = cudaEventQuery(at(s, 0)->event);
        if (error == cudaErrorNotReady) {
            cudaGetLastError(); /* some versions keep it as an error */
            break;
        }
        if (error != cudaSuccess) {
            s->broken = true; /* nobody is to wait for what will not come */
            break;
        }
        atomic_store(&s->reached, at(s, 0)->seq);
        s->first = (s->first + 1) % MARKS;
        s->count--;
    }
}

static uint64_t reached(choir__stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    pthread_mutex_lock(&s->lock);
    look(s);
    uint64_t place = s->broken ? UINT64_MAX : atomic_load(&s->reached);
    pthread_mutex_unlock(&s->lock);
    return place;
}

/* Under lock: everything launched in a turn is done, by the mark's event. */
static void count_time(cuda_stream *s, uint64_t turn, cudaEvent_t ended)
{
    float ms = 0;
    if (!s->working || s->turns != turn)
        return; /* somebody else has counted it, and it goes on */
    if (cudaEventElapsedTime(&ms, s->began, ended) == cudaSuccess)
        s->busy_s += (double)ms * 1e-3;
    cudaGetLastError();
    s->working = false;
}

static choir_status look_op(choir__stream *stream, uint64_t launched)
{
    cuda_stream *s = (cuda_stream *)stream;
    pthread_mutex_lock(&s->lock);
    look(s);
    if (!s->count && !s->broken && !s->cuda.capturing && atomic_load(&s->reached) < launched)
        mark_of(s, launched, launched); /* for the next look */
    cudaError_t error = s->broken ? cudaStreamQuery(s->cuda.stream) : cudaSuccess;
    choir_status status = findings(s, error);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static choir_status wait(choir__stream *stream, uint64_t seq, uint64_t launched)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaError_t error = cudaSuccess;
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
    choir_status status = findings(s, error);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void follow(choir__stream *stream, choir__stream *other, uint64_t seq, uint64_t launched)
{
    cuda_stream *s = (cuda_stream *)stream, *o = (cuda_stream *)other;
    pthread_mutex_lock(&o->lock);
    if (!o->broken && atomic_load(&o->reached) < seq)
        cudaStreamWaitEvent(s->cuda.stream, mark_of(o, seq, launched)->event, 0);
    pthread_mutex_unlock(&o->lock);
}

static double busy_s(choir__stream *stream)
{
    return ((cuda_stream *)stream)->busy_s;
}

/* --- capturing: a part of a recorded step as one CUDA graph --- */

struct choir__graph {
    cudaGraphExec_t exec;
};

/* A copy from or to the host's memory is made when it is launched: no part of a graph. */
static bool capturable(choir__task *fn, const void *args)
{
    if (fn == choir__cuda_transfer) {
        const choir__cuda_transfer_args *t = args;
        return choir__cuda_gpu_of(t->to) >= 0 && choir__cuda_gpu_of(t->from) >= 0;
    }
    if (fn != (choir__task *)choir__cuda_copy)
        return true;
    const choir__k_copy *k = args;
    return choir__cuda_gpu_of(k->x.p) >= 0 && choir__cuda_gpu_of(k->y.p) >= 0;
}

static bool begin(choir__stream *first)
{
    cuda_stream *s = (cuda_stream *)first;
    if (synchronous())
        return false;
    cudaSetDevice(s->cuda.gpu);
    s->cuda.refused = false;
    s->cuda.capturing =
        cudaStreamBeginCapture(s->cuda.stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
    cudaGetLastError(); /* no kernel's */
    return s->cuda.capturing;
}

static void *place(choir__stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaEvent_t event = NULL;
    cudaSetDevice(s->cuda.gpu);
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess)
        cudaEventRecord(event, s->cuda.stream);
    return event; /* NULL: end finds a branch that came to nothing */
}

static void behind(choir__stream *stream, void *place)
{
    cuda_stream *s = (cuda_stream *)stream;
    s->cuda.refused &= s->cuda.capturing; /* since it joined */
    s->cuda.capturing = true;
    cudaSetDevice(s->cuda.gpu);
    if (place)
        cudaStreamWaitEvent(s->cuda.stream, place, 0);
    else
        s->cuda.refused = true;
}

static void drop(void *place)
{
    if (place)
        cudaEventDestroy(place);
}

static choir__graph *end(choir__stream *first)
{
    cuda_stream *s = (cuda_stream *)first;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    cudaError_t error = cudaStreamEndCapture(s->cuda.stream, &graph);
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(&exec, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    cudaGetLastError();
    if (error != cudaSuccess || s->cuda.refused) {
        if (exec)
            cudaGraphExecDestroy(exec);
        return NULL;
    }
    choir__graph *g = choir__alloc(sizeof *g);
    g->exec = exec;
    return g;
}

static bool refuse(choir__stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    if (!s->cuda.capturing)
        return false;
    cudaGetLastError();
    return s->cuda.refused = true;
}

static bool captured(choir__stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    s->cuda.capturing = false;
    return !s->cuda.refused;
}

static void launch(choir__stream *stream, choir__graph *graph)
{
    cuda_stream *s = (cuda_stream *)stream;
    choir__cuda_ok(cudaGraphLaunch(graph->exec, s->cuda.stream), "a recorded step");
}

static void forget(choir__graph *graph)
{
    cudaGraphExecDestroy(graph->exec);
    free(graph);
}

/* --- life --- */

static void free_stream(choir__stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaSetDevice(s->cuda.gpu);
    cudaStreamSynchronize(s->cuda.stream);
    for (int i = 0; i < MARKS; i++)
        if (s->marks[i].event)
            cudaEventDestroy(s->marks[i].event);
    if (s->began)
        cudaEventDestroy(s->began);
    choir__cuda_scratch_free(&s->cuda);
    choir__cuda_plans_free(&s->cuda);
    choir__cuda_dnn_free(&s->cuda);
    if (s->cuda.blas)
        cublasLtDestroy(s->cuda.blas);
    choir__cuda_memory.put(&s->cuda, s->cuda.workspace, WORKSPACE);
    if (s->seen)
        cudaFreeHost(s->seen);
    cudaStreamDestroy(s->cuda.stream);
    pthread_mutex_destroy(&s->lock);
    free(s->last);
    free(s);
    here = NULL;
}

static const choir__stream_ops ops = {
    .free = free_stream,
    .enter = enter,
    .handle = handle,
    .mark = make_mark,
    .reached = reached,
    .look = look_op,
    .wait = wait,
    .follow = follow,
    .ran = ran,
    .busy_s = busy_s,
    .capturable = capturable,
    .begin = begin,
    .place = place,
    .behind = behind,
    .drop = drop,
    .end = end,
    .refuse = refuse,
    .captured = captured,
    .launch = launch,
    .forget = forget,
};

static cudaError_t make(cuda_stream *s)
{
    cudaError_t error = cudaSetDevice(s->cuda.gpu);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&s->cuda.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreate(&s->began);
    for (int i = 0; i < MARKS && error == cudaSuccess; i++)
        error = cudaEventCreate(&s->marks[i].event);
    if (error == cudaSuccess)
        error = cudaHostAlloc(
            (void **)&s->seen, sizeof *s->seen, cudaHostAllocPortable | cudaHostAllocMapped);
    if (error != cudaSuccess)
        return error;
    memset(s->seen, 0, sizeof *s->seen);
    s->cuda.fault = &s->seen->fault;
    s->cuda.workspace = choir__cuda_get(&s->cuda, WORKSPACE);
    return s->cuda.workspace ? cudaSuccess : cudaErrorMemoryAllocation;
}

choir__stream *choir__cuda_stream_new(int gpu, choir_device *device)
{
    cuda_stream *s = choir__calloc(1, sizeof *s);
    s->base.ops = &ops;
    s->cuda = (choir__cuda){.device = device, .gpu = gpu, .workspace_bytes = WORKSPACE};
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, gpu);
    cudaDeviceGetAttribute(&s->cuda.multiprocessors, cudaDevAttrMultiProcessorCount, gpu);
    cudaDeviceGetAttribute(&s->cuda.most_shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, gpu);
    s->cuda.capability = 10 * major + minor;
    pthread_mutex_init(&s->lock, NULL);
    s->last = choir__calloc(LAST, sizeof *s->last);
    s->numbered = write_value() != NULL;
    cudaError_t error = make(s);
    if (error == cudaSuccess && cublasLtCreate(&s->cuda.blas) == CUBLAS_STATUS_SUCCESS)
        return &s->base;
    choir__error(error == cudaErrorMemoryAllocation ? CHOIR_ERR_MEMORY : CHOIR_ERR_DEVICE,
        "a stream on GPU %d can't be made: %s", gpu,
        error == cudaSuccess ? "cuBLASLt does not start" : cudaGetErrorString(error));
    free_stream(&s->base);
    return NULL;
}
