/* Streams: lists of operations, run when a thread waits.
 *
 * A stream's operations are numbered; `issued` and `done` count them. A wait for an operation
 * runs the stream up to it. Where the stream itself waits for another stream's operation, that
 * stream is run up to that operation first. An operation waits only for earlier ones, so this
 * ends. */
#include "gpu.h"

enum { STREAM = 0x57e4b001 };

static cudaStream_t streams;
static cudaStream_t legacy[SOFTGPU_MAX_GPUS];
static pthread_cond_t host_returned = PTHREAD_COND_INITIALIZER;

/* --- running --- */

softgpu_op *softgpu_op_new(softgpu_op_kind kind, softgpu_task *fn, const void *args,
    size_t bytes, unsigned touches, bool kernel)
{
    softgpu_op *op = malloc(sizeof *op + bytes);
    *op = (softgpu_op){
        .kind = kind, .fn = fn, .touches = touches, .kernel = kernel, .bytes = bytes};
    if (bytes)
        memcpy(op->args, args, bytes);
    return op;
}

void softgpu_run_op(softgpu_op *op)
{
    cudaError_t error;
    if (softgpu_broken())
        return;
    if (op->kind == SOFTGPU_HOST) {
        softgpu_open_memory(0);
        softgpu_unlock();
        op->fn(op->args);
        softgpu_lock();
        return;
    }
    if ((op->kernel || op->touches) && /* not a graph, whose nodes come here themselves */
        softgpu_failing(op->kernel ? SOFTGPU_FAIL_KERNEL : SOFTGPU_FAIL_COPY, &error)) {
        softgpu_break(error);
        return;
    }
    if (!(op->touches & SOFTGPU_BY_THE_BACK))
        softgpu_open_memory(op->touches);
    op->fn(op->args);
}

/* Runs the first of a stream's operations. The operations that it waits for have been run. */
static void run_head(cudaStream_t s)
{
    softgpu_op *op = s->head;
    if (op->kind == SOFTGPU_STAMP) {
        softgpu_stamp(op->event, s->done + 1);
    } else if (op->kind != SOFTGPU_WAIT) {
        s->in_host = op->kind == SOFTGPU_HOST;
        softgpu_run_op(op);
        if (s->in_host)
            pthread_cond_broadcast(&host_returned);
        s->in_host = false;
    }
    s->head = op->next;
    s->tail = s->head ? s->tail : NULL;
    s->done++;
    free(op);
}

static void wait_for_host(void)
{
    pthread_cond_wait(&host_returned, softgpu_mutex());
}

cudaError_t softgpu_run_until(cudaStream_t s, uint64_t seq)
{
    while (s->done < seq) {
        softgpu_op *op = s->head;
        if (s->in_host) {
            wait_for_host();
        } else if (op->kind == SOFTGPU_WAIT && op->other->done < op->seq) {
            (void)softgpu_run_until(op->other, op->seq);
            /* and look again: a host function on the way may have let others run */
        } else {
            run_head(s);
        }
    }
    return softgpu_broken();
}

cudaError_t softgpu_run_all(int gpu)
{
    for (cudaStream_t s = streams; s; s = s->next)
        if (s->gpu == gpu)
            (void)softgpu_run_until(s, s->issued);
    return softgpu_broken();
}

/* The next operation that can be run on the way to s's first. */
void softgpu_run_one(cudaStream_t s)
{
    while (s->head && !s->in_host && s->head->kind == SOFTGPU_WAIT &&
           s->head->other->done < s->head->seq)
        s = s->head->other;
    if (s->head && !s->in_host)
        run_head(s);
}

/* --- issuing --- */

void softgpu_append(cudaStream_t s, softgpu_op *op)
{
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    s->issued++;
}

void softgpu_append_wait(cudaStream_t s, cudaStream_t other, uint64_t seq)
{
    if (other == s || other->done >= seq)
        return;
    softgpu_op *op = softgpu_op_new(SOFTGPU_WAIT, NULL, NULL, 0, 0, false);
    op->other = other;
    op->seq = seq;
    softgpu_append(s, op);
}

/* Orders the legacy stream after all blocking streams, and them after it. */
cudaError_t softgpu_keep_legacy_order(cudaStream_t s)
{
    if (s != legacy[s->gpu]) {
        if (s->blocking && legacy[s->gpu])
            softgpu_append_wait(s, legacy[s->gpu], legacy[s->gpu]->issued);
        return cudaSuccess;
    }
    if (softgpu_capture_of_blocking(s->gpu)) {
        softgpu_capture_spoil_all();
        return cudaErrorStreamCaptureImplicit;
    }
    for (cudaStream_t other = streams; other; other = other->next)
        if (other->gpu == s->gpu && other->blocking && other->magic == STREAM)
            softgpu_append_wait(s, other, other->issued);
    return cudaSuccess;
}

cudaError_t softgpu_issue(cudaStream_t s, softgpu_op_kind kind, softgpu_task *fn,
    const void *args, size_t bytes, unsigned touches, bool kernel)
{
    if (!s)
        return cudaErrorInvalidResourceHandle;
    cudaError_t error = s->capture ? cudaSuccess : softgpu_keep_legacy_order(s);
    if (error)
        return error;
    softgpu_op *op = softgpu_op_new(kind, fn, args, bytes, touches, kernel);
    if (s->capture)
        return softgpu_capture_add(s, op);
    softgpu_append(s, op);
    return softgpu_now() ? softgpu_run_until(s, s->issued) : cudaSuccess;
}

/* --- streams --- */

static cudaStream_t new_stream(int gpu, bool blocking)
{
    cudaStream_t s = calloc(1, sizeof *s);
    s->magic = STREAM;
    s->gpu = gpu;
    s->blocking = blocking;
    s->next = streams;
    streams = s;
    return s;
}

cudaStream_t softgpu_stream(cudaStream_t handle)
{
    if (handle == NULL || handle == cudaStreamLegacy) {
        int gpu = softgpu_current();
        if (!legacy[gpu])
            legacy[gpu] = new_stream(gpu, false);
        return legacy[gpu];
    }
    for (cudaStream_t s = streams; s; s = s->next)
        if (s == handle)
            return s->magic == STREAM ? s : NULL;
    return NULL; /* cudaStreamPerThread among them */
}

cudaStream_t softgpu_legacy(int gpu)
{
    return legacy[gpu];
}

cudaStream_t softgpu_streams(void)
{
    return streams;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    cudaError_t error = softgpu_enter();
    (void)priority;
    if (!error && flags != cudaStreamDefault && flags != cudaStreamNonBlocking)
        error = cudaErrorInvalidValue;
    *stream = error ? NULL : new_stream(softgpu_current(), flags == cudaStreamDefault);
    return softgpu_leave(error);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* Runs the stream's remaining work. The object stays, as events and waits refer to its
 * operations. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = handle ? softgpu_stream(handle) : NULL;
    if (!s && !error)
        error = cudaErrorInvalidResourceHandle;
    if (s && s->capture)
        softgpu_capture_spoil(s->capture);
    if (s) {
        (void)softgpu_run_until(s, s->issued);
        s->magic = 0;
    }
    return softgpu_leave(error);
}

/* Begins a call that waits, on a stream that may be captured. */
static cudaError_t begin_wait(cudaStream_t handle, cudaStream_t *s)
{
    cudaError_t error = softgpu_enter();
    *s = error ? NULL : softgpu_stream(handle);
    if (!error && !*s)
        return cudaErrorInvalidResourceHandle;
    if (!error && ((*s)->capture || softgpu_capture_forbids())) {
        if ((*s)->capture)
            softgpu_capture_spoil((*s)->capture);
        softgpu_capture_spoil_all();
        return cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    cudaStream_t s;
    cudaError_t error = begin_wait(handle, &s);
    if (!error)
        error = softgpu_run_until(s, s->issued);
    return softgpu_leave(error);
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    cudaStream_t s;
    cudaError_t error = begin_wait(handle, &s);
    if (!error) {
        softgpu_run_one(s);
        error = softgpu_broken();
        error = error ? error : s->done < s->issued ? cudaErrorNotReady : cudaSuccess;
    }
    return softgpu_leave(error);
}

typedef struct host_call {
    cudaHostFn_t fn;
    void *arg;
} host_call;

static void call_host(const void *args)
{
    const host_call *call = args;
    call->fn(call->arg);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *arg)
{
    host_call call = {.fn = fn, .arg = arg};
    cudaError_t error = softgpu_enter();
    if (!error)
        error = softgpu_issue(
            softgpu_stream(handle), SOFTGPU_HOST, call_host, &call, sizeof call, 0, false);
    return softgpu_leave(error);
}
