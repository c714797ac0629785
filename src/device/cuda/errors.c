/* Errors on a GPU, and the tasks that caused them.
 *
 * An error appears long after the kernel that caused it was launched, and the whole process can
 * no longer use the GPU. To name the cause, the stream keeps its last tasks, and after each of
 * them the GPU writes the task's number to host memory (cuStreamWriteValue32): the first task
 * whose number is missing caused the error. CHOIR_CUDA_SYNC=1 waits after every task instead.
 * Captured work has no numbers. */
#include "device/cuda/stream_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/plugin.h"

/* Writes a fault as a sentence. */
static const char *fault_text(const choir__cuda_fault *f, char *text, size_t bytes)
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
            "bce_loss: expected a probability, got %g, element %lld; bce_with_logits_loss "
            "takes scores",
            f->number, at);
        break;
    case CHOIR__BAD_INDEX:
        snprintf(text, bytes, "%s: index %lld at position %lld is outside [0, %lld)",
            choir__lookup_name((choir__lookup)f->number), value, at, limit);
        break;
    case CHOIR__BAD_CTC:
        snprintf(text, bytes, CHOIR__CTC_FAULT,
            choir__ctc_part_text((choir__ctc_part)f->number), limit, value, at);
        break;
    case CHOIR__BAD_PIVOT:
        snprintf(text, bytes, CHOIR__CHOLESKY_FAULT, at, value, f->number);
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

/* Writes "matmul 64x10x128", or as much as is known of the task. */
static void name_task(const cuda_stream *s, const ran_task *t, char *text, size_t bytes)
{
    if (s->cuda.device)
        choir__kernel_work_text(s->cuda.device, t->fn, t->args, text, bytes);
    else
        snprintf(text, bytes, "a collective");
}

/* Reports an error of the GPU. It persists, and every later call returns it. Its cause is the
 * first unfinished task, or a task of another stream. */
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

bool choir__cuda_ok(cudaError_t error, const char *what)
{
    choir__cuda *here = choir__cuda_here();
    if (error == cudaSuccess)
        return true;
    cudaGetLastError();
    if (here && here->capturing) { /* the list is then issued task by task */
        here->refused = true;
        return false;
    }
    if (here && sticks(choir__cuda_stream_here())) {
        say_error(choir__cuda_stream_here(), error);
        choir__queue_fail(CHOIR_ERR_DEVICE, "%s", choir_error_message());
        return false;
    }
    choir__queue_fail(error == cudaErrorMemoryAllocation ? CHOIR_ERR_MEMORY : CHOIR_ERR_DEVICE,
        "%s: %s", what, cudaGetErrorString(error));
    return false;
}

/* Called under lock, after a wait. */
choir_status choir__cuda_findings(cuda_stream *s, cudaError_t error)
{
    char text[256];
    if (!s->seen)
        return CHOIR_OK;
    if (error != cudaSuccess) {
        s->broken = true;
        return say_error(s, error);
    }
    choir__cuda_fault *f = &s->seen->fault;
    if (!*(volatile int32_t *)&f->what)
        return CHOIR_OK;
    choir_status status =
        choir__error(f->what == CHOIR__STUCK_SCALER ? CHOIR_ERR_NONFINITE : CHOIR_ERR_RANGE,
            "%s", fault_text(f, text, sizeof text));
    *f = (choir__cuda_fault){0};
    return status;
}

/* Writes the task's number once the GPU has finished all work launched so far. */
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

/* Returns whether the driver writes numbers from a stream. Drivers of WSL and of virtual GPUs
 * have the function but refuse it, or accept it and never write. */
bool choir__cuda_numbers(cudaStream_t stream, volatile uint32_t *number)
{
    const uint32_t written = 0x50be;
    bool works = write_value() && write_value()(stream, (uintptr_t)number, written, 0) == 0 &&
                 cudaStreamSynchronize(stream) == cudaSuccess && *number == written;
    *number = 0;
    cudaGetLastError();
    return works;
}

bool choir__cuda_synchronous(void)
{
    const char *wanted = getenv("CHOIR_CUDA_SYNC");
    return wanted && *wanted && strcmp(wanted, "0") != 0;
}

void choir__cuda_ran(
    choir__gpu_stream *stream, choir__queue_task *fn, const void *args, size_t bytes)
{
    cuda_stream *s = (cuda_stream *)stream;
    ran_task *t = &s->last[(s->number + 1) % LAST];
    cudaError_t error = s->cuda.launched;
    s->cuda.launched = cudaSuccess;
    cudaGetLastError(); /* a library may have left one behind, which is no task's */
    choir__cuda_scratch_all_done(&s->cuda);
    t->fn = fn;
    memcpy(t->args, args, bytes);
    if (!s->cuda.capturing) {
        s->number++;
        if (s->numbered)
            write_value()(s->cuda.stream, (uintptr_t)&s->seen->number, s->number, 0);
        if (error == cudaSuccess && choir__cuda_synchronous())
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
