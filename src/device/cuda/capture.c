/* Capturing a part of a recorded step as one CUDA graph (device/graphs.c). Work that is issued
 * to a stream meanwhile is stored and not run. Work that cannot be stored makes the capture of
 * the whole part fail; the part is then issued task by task. */
#include "device/cuda/stream_run.h"

#include <stdlib.h>

#include "device/plugin.h"

struct choir__graph {
    cudaGraphExec_t exec;
};

/* Copies from or to host memory run when they are issued, so they cannot be part of a graph. */
bool choir__cuda_capturable(choir__queue_task *fn, const void *args)
{
    if (fn == choir__cuda_transfer) {
        const choir__cuda_transfer_args *t = args;
        return choir__cuda_gpu_of(t->to) >= 0 && choir__cuda_gpu_of(t->from) >= 0;
    }
    if (fn != (choir__queue_task *)choir__cuda_copy)
        return true;
    const choir__k_copy *k = args;
    return choir__cuda_gpu_of(k->x.p) >= 0 && choir__cuda_gpu_of(k->y.p) >= 0;
}

/* Sets whether the stream captures, under the lock, because other threads read it before they
 * make marks. */
static void set_capturing(cuda_stream *s, bool now)
{
    pthread_mutex_lock(&s->lock);
    s->cuda.capturing = now;
    pthread_mutex_unlock(&s->lock);
}

bool choir__cuda_begin(choir__gpu_stream *first)
{
    cuda_stream *s = (cuda_stream *)first;
    if (choir__cuda_synchronous())
        return false;
    cudaSetDevice(s->cuda.gpu);
    s->cuda.refused = false;
    bool begun =
        cudaStreamBeginCapture(s->cuda.stream, cudaStreamCaptureModeRelaxed) == cudaSuccess;
    cudaGetLastError(); /* belongs to no kernel */
    set_capturing(s, begun);
    return begun;
}

void choir__cuda_drop(void *place)
{
    if (place)
        cudaEventDestroy(place);
}

void *choir__cuda_place(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaEvent_t event = NULL;
    cudaSetDevice(s->cuda.gpu);
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess &&
        cudaEventRecord(event, s->cuda.stream) == cudaSuccess)
        return event;
    cudaGetLastError();
    s->cuda.refused = true;
    choir__cuda_drop(event);
    return NULL;
}

/* A stream joins a capture by its first wait for captured work. */
bool choir__cuda_behind(choir__gpu_stream *stream, void *place)
{
    cuda_stream *s = (cuda_stream *)stream;
    cudaSetDevice(s->cuda.gpu);
    if (!place || cudaStreamWaitEvent(s->cuda.stream, place, 0) != cudaSuccess) {
        cudaGetLastError();
        s->cuda.refused = true;
    } else if (!s->cuda.capturing) {
        s->cuda.refused = false;
        set_capturing(s, true);
    }
    return s->cuda.capturing;
}

choir__graph *choir__cuda_end(choir__gpu_stream *first)
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

bool choir__cuda_refuse(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    if (!s->cuda.capturing)
        return false;
    cudaGetLastError();
    return s->cuda.refused = true;
}

bool choir__cuda_captured(choir__gpu_stream *stream)
{
    cuda_stream *s = (cuda_stream *)stream;
    set_capturing(s, false);
    return !s->cuda.refused;
}

void choir__cuda_launch(choir__gpu_stream *stream, choir__graph *graph)
{
    cuda_stream *s = (cuda_stream *)stream;
    choir__cuda_ok(cudaGraphLaunch(graph->exec, s->cuda.stream), "a recorded step");
}

void choir__cuda_forget(choir__graph *graph)
{
    cudaGraphExecDestroy(graph->exec);
    free(graph);
}
