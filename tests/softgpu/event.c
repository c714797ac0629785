/* Events: places in streams. Recording an event is an operation, which notes the time. Waiting
 * for the event waits for that operation, whatever is recorded later. */
#include "gpu.h"

#include <stdatomic.h>

enum { EVENT = 0x64e47001 };

static void event_let_go(cudaEvent_t e)
{
    if (e->gone && e->stamps == 0) {
        free(e->after);
        free(e);
    }
}

void softgpu_stamp(cudaEvent_t e, uint64_t seq)
{
    if (e->seq == seq)
        e->at = softgpu_clock();
    e->stamps--;
    event_let_go(e);
}

static cudaError_t check_event(cudaEvent_t e)
{
    return e && e->magic == EVENT && !e->gone ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

static atomic_uint blocking;

unsigned softgpu_blocking_events(void)
{
    return atomic_load(&blocking);
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
        atomic_fetch_add(&blocking, flags & cudaEventBlockingSync ? 1 : 0);
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
    cudaError_t error = softgpu_keep_legacy_order(s);
    if (error)
        return error;
    softgpu_op *op = softgpu_op_new(SOFTGPU_STAMP, NULL, NULL, 0, 0, false);
    op->event = e;
    e->stamps++;
    e->capture = NULL;
    e->recorded = true;
    softgpu_append(s, op);
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
    bool kept = !error && (s->capture || softgpu_capture_alive(e));
    if (kept && !softgpu_failing(SOFTGPU_FAIL_WAIT, &error))
        error = softgpu_capture_wait(s, e);
    else if (!error && e->recorded)
        softgpu_append_wait(s, e->stream, e->seq);
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
