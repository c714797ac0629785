/* Copies. As with CUDA, the effect of a copy between the host's pageable memory and a GPU's
 * depends on its direction: bytes to a GPU are taken at once and arrive in stream order; bytes
 * from a GPU are there when the call returns. A copy between pinned memory and a GPU is an
 * operation like others, and reads the host's memory when it runs. */
#include "gpu.h"

typedef struct copy_args {
    void *to;
    const void *from; /* NULL: the bytes follow */
    size_t bytes;
} copy_args;

typedef struct fill_args {
    void *to;
    int value;
    size_t bytes;
} fill_args;

static void copy(const void *args)
{
    const copy_args *c = args;
    (void)softgpu_runs(); /* it also carries lists of addresses, so it is never left out */
    memmove(
        softgpu_back(c->to), c->from ? softgpu_back(c->from) : (const void *)(c + 1), c->bytes);
}

static void fill(const void *args)
{
    const fill_args *f = args;
    if (softgpu_runs())
        memset(softgpu_back(f->to), f->value, f->bytes);
}

static bool fits(enum cudaMemcpyKind kind, softgpu_kind to, softgpu_kind from)
{
    bool to_device = to == SOFTGPU_DEVICE, from_device = from == SOFTGPU_DEVICE;
    switch (kind) {
    case cudaMemcpyHostToHost: return !to_device && !from_device;
    case cudaMemcpyHostToDevice: return to_device && !from_device;
    case cudaMemcpyDeviceToHost: return !to_device && from_device;
    case cudaMemcpyDeviceToDevice: return to_device && from_device;
    default: return true;
    }
}

/* Issues a copy from pageable memory: the bytes travel with the operation. */
static cudaError_t issue_taken(cudaStream_t s, copy_args c, unsigned touches)
{
    char *all = malloc(sizeof c + c.bytes);
    memcpy(all + sizeof c, c.from, c.bytes);
    c.from = NULL;
    memcpy(all, &c, sizeof c);
    cudaError_t error =
        softgpu_issue(s, SOFTGPU_TASK, copy, all, sizeof c + c.bytes, touches, false);
    free(all);
    return error;
}

static cudaError_t issue_copy(
    cudaStream_t s, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    int to_gpu, from_gpu;
    softgpu_kind t = softgpu_kind_of(to, &to_gpu), f = softgpu_kind_of(from, &from_gpu);
    unsigned touches = SOFTGPU_BY_THE_BACK | (to_gpu >= 0 ? 1u << to_gpu : 0) |
                       (from_gpu >= 0 ? 1u << from_gpu : 0);
    copy_args c = {.to = to, .from = from, .bytes = bytes};
    if (!s)
        return cudaErrorInvalidResourceHandle;
    if (!fits(kind, t, f))
        return cudaErrorInvalidMemcpyDirection;
    if (!softgpu_within(to, bytes) || !softgpu_within(from, bytes))
        return cudaErrorInvalidValue;
    if (s->capture && (t == SOFTGPU_PAGEABLE || f == SOFTGPU_PAGEABLE)) {
        softgpu_capture_spoil(s->capture);
        return cudaErrorStreamCaptureUnsupported;
    }
    if (f == SOFTGPU_PAGEABLE && t == SOFTGPU_DEVICE)
        return issue_taken(s, c, touches);
    cudaError_t error = softgpu_issue(s, SOFTGPU_TASK, copy, &c, sizeof c, touches, false);
    if (!error && (t == SOFTGPU_PAGEABLE || f == SOFTGPU_PAGEABLE))
        error = softgpu_run_until(s, s->issued);
    return error;
}

cudaError_t cudaMemcpyAsync(
    void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t handle)
{
    cudaError_t error = softgpu_enter();
    if (!error && bytes > 0)
        error = issue_copy(softgpu_stream(handle), to, from, bytes, kind);
    return softgpu_leave(error);
}

/* Copies through the legacy stream, which does not wait for non-blocking streams. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    cudaError_t error = softgpu_enter_unsafe();
    if (!error && bytes > 0) {
        cudaStream_t s = softgpu_stream(NULL);
        error = issue_copy(s, to, from, bytes, kind);
        if (!error)
            error = softgpu_run_until(s, s->issued);
    }
    return softgpu_leave(error);
}

cudaError_t cudaMemcpyPeerAsync(
    void *to, int to_gpu, const void *from, int from_gpu, size_t bytes, cudaStream_t handle)
{
    int t, f;
    cudaError_t error = softgpu_enter();
    if (!error && (softgpu_kind_of(to, &t) != SOFTGPU_DEVICE || t != to_gpu ||
                      softgpu_kind_of(from, &f) != SOFTGPU_DEVICE || f != from_gpu))
        error = cudaErrorInvalidValue;
    if (!error && bytes > 0)
        error = issue_copy(softgpu_stream(handle), to, from, bytes, cudaMemcpyDeviceToDevice);
    return softgpu_leave(error);
}

static cudaError_t issue_fill(cudaStream_t s, void *to, int value, size_t bytes)
{
    int gpu;
    fill_args f = {.to = to, .value = value, .bytes = bytes};
    softgpu_kind kind = softgpu_kind_of(to, &gpu);
    if (kind == SOFTGPU_PAGEABLE || !softgpu_within(to, bytes))
        return cudaErrorInvalidValue;
    return softgpu_issue(s, SOFTGPU_TASK, fill, &f, sizeof f, SOFTGPU_BY_THE_BACK, false);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t handle)
{
    cudaError_t error = softgpu_enter();
    if (!error && bytes > 0)
        error = issue_fill(softgpu_stream(handle), to, value, bytes);
    return softgpu_leave(error);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    return cudaMemsetAsync(to, value, bytes, NULL);
}

/* --- rows with gaps between them --- */

typedef struct rows_args {
    char *to;
    const char *from;
    size_t to_pitch, from_pitch, width, height;
} rows_args;

static void copy_rows(const void *args)
{
    const rows_args *r = args;
    for (size_t i = 0; i < r->height; i++)
        memmove(softgpu_back(r->to + i * r->to_pitch),
            softgpu_back(r->from + i * r->from_pitch), r->width);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
    size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t handle)
{
    rows_args r = {to, from, to_pitch, from_pitch, width, height};
    int t, f;
    cudaError_t error = softgpu_enter();
    if (error || width == 0 || height == 0)
        return softgpu_leave(error);
    softgpu_kind to_kind = softgpu_kind_of(to, &t), from_kind = softgpu_kind_of(from, &f);
    unsigned touches = SOFTGPU_BY_THE_BACK | (t >= 0 ? 1u << t : 0) | (f >= 0 ? 1u << f : 0);
    if (width > to_pitch || width > from_pitch)
        error = cudaErrorInvalidPitchValue;
    else if (!fits(kind, to_kind, from_kind))
        error = cudaErrorInvalidMemcpyDirection;
    else if (!softgpu_within(to, (height - 1) * to_pitch + width) ||
             !softgpu_within(from, (height - 1) * from_pitch + width))
        error = cudaErrorInvalidValue;
    else if (to_kind == SOFTGPU_PAGEABLE || from_kind == SOFTGPU_PAGEABLE)
        error = cudaErrorNotSupported; /* Choir never does this */
    else
        error = softgpu_issue(
            softgpu_stream(handle), SOFTGPU_TASK, copy_rows, &r, sizeof r, touches, false);
    return softgpu_leave(error);
}
