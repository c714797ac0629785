/* Streams, events, and kernels on their way: lists of operations, run when somebody waits.
 *
 * A stream's operations have numbers; `issued` and `done` count them. Whoever waits for one has
 * the stream run up to it, and before that, where the stream waits for another's operation,
 * that one. An operation waits for earlier ones only, so this comes to an end. */
#include "gpu.h"

#include <sys/mman.h>

enum { STREAM = 0x57e4b001, EVENT = 0xe4e47001 };

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
    softgpu_open_memory(op->touches);
    op->fn(op->args);
}

static void event_let_go(cudaEvent_t e)
{
    if (e->gone && e->stamps == 0) {
        free(e->after);
        free(e);
    }
}

static void stamp(softgpu_op *op, uint64_t seq)
{
    cudaEvent_t e = op->event;
    if (e->seq == seq)
        e->at = softgpu_clock();
    e->stamps--;
    event_let_go(e);
}

/* Runs the first of a stream's operations; what it waits for has been run. */
static void run_head(cudaStream_t s)
{
    softgpu_op *op = s->head;
    if (op->kind == SOFTGPU_STAMP) {
        stamp(op, s->done + 1);
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

static void append(cudaStream_t s, softgpu_op *op)
{
    if (s->tail)
        s->tail->next = op;
    else
        s->head = op;
    s->tail = op;
    s->issued++;
}

static void append_wait(cudaStream_t s, cudaStream_t other, uint64_t seq)
{
    if (other == s || other->done >= seq)
        return;
    softgpu_op *op = softgpu_op_new(SOFTGPU_WAIT, NULL, NULL, 0, 0, false);
    op->other = other;
    op->seq = seq;
    append(s, op);
}

/* The legacy stream comes behind all streams that do not say no, and they behind it. */
static cudaError_t keep_legacy_order(cudaStream_t s)
{
    if (s != legacy[s->gpu]) {
        if (s->blocking && legacy[s->gpu])
            append_wait(s, legacy[s->gpu], legacy[s->gpu]->issued);
        return cudaSuccess;
    }
    if (softgpu_capture_of_blocking(s->gpu)) {
        softgpu_capture_spoil_all();
        return cudaErrorStreamCaptureImplicit;
    }
    for (cudaStream_t other = streams; other; other = other->next)
        if (other->gpu == s->gpu && other->blocking && other->magic == STREAM)
            append_wait(s, other, other->issued);
    return cudaSuccess;
}

cudaError_t softgpu_issue(cudaStream_t s, softgpu_op_kind kind, softgpu_task *fn,
    const void *args, size_t bytes, unsigned touches, bool kernel)
{
    if (!s)
        return cudaErrorInvalidResourceHandle;
    cudaError_t error = s->capture ? cudaSuccess : keep_legacy_order(s);
    if (error)
        return error;
    softgpu_op *op = softgpu_op_new(kind, fn, args, bytes, touches, kernel);
    if (s->capture)
        return softgpu_capture_add(s, op);
    append(s, op);
    return softgpu_now() ? softgpu_run_until(s, s->issued) : cudaSuccess;
}

static cudaError_t check_shape(const softgpu_kernel *k)
{
    uint64_t threads = (uint64_t)k->threads.x * k->threads.y * k->threads.z;
    uint64_t blocks = (uint64_t)k->blocks.x * k->blocks.y * k->blocks.z;
    if (threads == 0 || threads > 1024 || k->threads.z > 64 || blocks == 0 ||
        k->blocks.x > 0x7fffffffu || k->blocks.y > 65535 || k->blocks.z > 65535)
        return cudaErrorInvalidConfiguration;
    return cudaSuccess;
}

/* --- kernels --- */

enum { PLAIN_SHARED = 48 << 10, MOST_SHARED = 227 << 10, MOST_ARGS = 4096, KERNELS = 512 };

static struct {
    const void *kernel;
    size_t shared;
} allowed[KERNELS]; /* by cudaFuncSetAttribute */
static int allowed_count;

static size_t shared_of(const void *kernel)
{
    for (int i = 0; i < allowed_count; i++)
        if (allowed[i].kernel == kernel)
            return allowed[i].shared;
    return PLAIN_SHARED;
}

cudaError_t cudaFuncSetAttribute(
    const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t error = softgpu_enter();
    if (!error && attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        int i = 0;
        while (i < allowed_count && allowed[i].kernel != kernel)
            i++;
        if (value < 0 || value > MOST_SHARED || i == KERNELS) {
            error = cudaErrorInvalidValue;
        } else {
            allowed_count += i == allowed_count;
            allowed[i].kernel = kernel;
            allowed[i].shared = (size_t)value;
        }
    }
    return softgpu_leave(error);
}

static void run_kernel(const void *args)
{
    softgpu_kernel k;
    memcpy(&k, args, sizeof k);
    softgpu_run_kernel(&k, (const char *)args + (sizeof k + 15) / 16 * 16);
}

/* A word of the arguments that leads to memory of the host's that no GPU reaches. What a GPU
 * would do with it depends on the machine; here it ends the program. */
static void check_pointers(const void *args, size_t bytes)
{
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uintptr_t word;
        int gpu;
        unsigned char there;
        memcpy(&word, (const char *)args + i, sizeof word);
        if (word < (uintptr_t)1 << 40 || word >> 47)
            continue;
        void *page = (void *)(word & ~(uintptr_t)4095);
        if (softgpu_kind_of((void *)word, &gpu) == SOFTGPU_PAGEABLE &&
            mincore(page, 4096, &there) == 0)
            softgpu_wrong("a kernel's arguments have, at byte %zu, a pointer to the host's "
                          "pageable memory, %p",
                i, (void *)word);
    }
}

cudaError_t softgpu_issue_kernel(
    const softgpu_kernel *k, cudaStream_t handle, const void *args, size_t bytes)
{
    struct {
        softgpu_kernel kernel __attribute__((aligned(16)));
        unsigned char args[MOST_ARGS];
    } all;
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    if (!error)
        error = check_shape(k);
    if (!error && (!s || s->gpu != softgpu_current()))
        error = cudaErrorInvalidResourceHandle;
    if (!error &&
        (bytes > MOST_ARGS || k->shared > shared_of((const void *)(uintptr_t)k->kernel)))
        error = cudaErrorInvalidValue;
    if (!error && softgpu_capability() < 75)
        error = cudaErrorNoKernelImageForDevice;
    if (!error && !softgpu_failing(SOFTGPU_FAIL_LAUNCH, &error)) {
        if (softgpu_strict())
            check_pointers(args, bytes);
        all.kernel = *k;
        memcpy(all.args, args, bytes);
        error = softgpu_issue(s, SOFTGPU_TASK, run_kernel, &all,
            offsetof(__typeof__(all), args) + bytes, softgpu_reachable(s->gpu), true);
    }
    return softgpu_leave(error);
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

/* Its work is still done; what is left of it answers for its operations. */
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

/* A call that waits, on a stream that may be captured. */
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

/* --- events --- */

static cudaError_t check_event(cudaEvent_t e)
{
    return e && e->magic == EVENT && !e->gone ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    cudaError_t error = softgpu_enter();
    *event = NULL;
    if (!error) {
        cudaEvent_t e = calloc(1, sizeof *e);
        e->magic = EVENT;
        e->gpu = softgpu_current();
        e->timed = !(flags & cudaEventDisableTiming);
        *event = e;
    }
    return softgpu_leave(error);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    cudaError_t error = softgpu_enter();
    if (!error)
        error = check_event(e);
    if (e && e->magic == EVENT && !e->gone) {
        e->gone = true;
        event_let_go(e);
    }
    return softgpu_leave(error);
}

static cudaError_t record(cudaEvent_t e, cudaStream_t s)
{
    if (e->gpu != s->gpu)
        return cudaErrorInvalidResourceHandle;
    if (s->capture)
        return softgpu_capture_record(s, e);
    cudaError_t error = keep_legacy_order(s);
    if (error)
        return error;
    softgpu_op *op = softgpu_op_new(SOFTGPU_STAMP, NULL, NULL, 0, 0, false);
    op->event = e;
    e->stamps++;
    e->capture = NULL;
    e->recorded = true;
    append(s, op);
    e->stream = s;
    e->seq = s->issued;
    return softgpu_now() ? softgpu_run_until(s, s->issued) : cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t handle)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    if (!error)
        error = s ? check_event(e) : cudaErrorInvalidResourceHandle;
    if (!error)
        error = record(e, s);
    return softgpu_leave(error);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t e, unsigned flags)
{
    cudaError_t error = softgpu_enter();
    cudaStream_t s = error ? NULL : softgpu_stream(handle);
    (void)flags;
    if (!error)
        error = s ? check_event(e) : cudaErrorInvalidResourceHandle;
    if (!error && (s->capture || softgpu_capture_alive(e)))
        error = softgpu_capture_wait(s, e);
    else if (!error && e->recorded)
        append_wait(s, e->stream, e->seq);
    return softgpu_leave(error);
}

static cudaError_t begin_event_wait(cudaEvent_t e)
{
    cudaError_t error = softgpu_enter();
    if (!error)
        error = check_event(e);
    if (!error && softgpu_capture_alive(e)) {
        softgpu_capture_spoil(e->capture);
        return cudaErrorCapturedEvent;
    }
    if (!error && softgpu_capture_forbids()) {
        softgpu_capture_spoil_all();
        return cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    cudaError_t error = begin_event_wait(e);
    if (!error && e->recorded)
        error = softgpu_run_until(e->stream, e->seq);
    return softgpu_leave(error);
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    cudaError_t error = begin_event_wait(e);
    if (!error && e->recorded && e->stream->done < e->seq) {
        softgpu_run_one(e->stream);
        error = softgpu_broken();
        error = error ? error : e->stream->done < e->seq ? cudaErrorNotReady : cudaSuccess;
    }
    return softgpu_leave(error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    cudaError_t error = softgpu_enter();
    if (!error && (check_event(start) || check_event(end) || !start->timed || !end->timed ||
                      !start->recorded || !end->recorded || start->gpu != end->gpu))
        error = cudaErrorInvalidResourceHandle;
    if (!error && (start->stream->done < start->seq || end->stream->done < end->seq))
        error = cudaErrorNotReady;
    if (!error)
        *ms = (float)(1e3 * (end->at - start->at));
    return softgpu_leave(error);
}
