/* y = x where at least one of them is not in this GPU's memory: on the host or another GPU.
 *
 * Such *far* memory is reached only by plain copies of bytes. So a far side whose elements fill
 * a stretch of memory is copied whole, to or from scratch memory of the same dtype and strides
 * here; one with gaps on the host is packed there first. */
#include <stdlib.h>

#include "device/cuda/kit/copy.cuh"

/* True if operand o's elements fill a stretch of memory, in any order. */
static bool fills(const walk *w, int o)
{
    int64_t expected = 1;
    for (int done = 0; done < w->ndim; done++) {
        int d = 0;
        while (d < w->ndim && w->stride[d][o] != expected)
            d++;
        if (d == w->ndim)
            return false;
        expected *= w->shape[d];
    }
    return true;
}

/* Returns the length from an operand's first element through its last. */
static int64_t span(const walk *w, int o)
{
    int64_t last = 0;
    for (int d = 0; d < w->ndim; d++)
        last += (w->shape[d] - 1) * w->stride[d][o];
    return last + 1;
}

/* Makes operand o one run in the order of the walk. */
static void make_row_major(walk *w, int o)
{
    int64_t stride = 1;
    for (int d = w->ndim - 1; d >= 0; d--) {
        w->stride[d][o] = stride;
        stride *= w->shape[d];
    }
}

/* Calls f(i, off) for each row of operand o, with the walk's index of its first element and its
 * offset. Rows are the last dimension if that is contiguous, else single elements. */
template <class F> static void each_row(const walk *w, int o, F f)
{
    int rows = w->stride[w->ndim - 1][o] == 1 ? w->ndim - 1 : w->ndim;
    int64_t at[CHOIR__MAX_DIMS] = {0}, off = 0, i = 0;
    int64_t length = rows < w->ndim ? w->shape[rows] : 1;
    for (;;) {
        int d = rows - 1;
        f(i, off, length);
        i += length;
        for (; d >= 0; d--) {
            off += w->stride[d][o];
            if (++at[d] < w->shape[d])
                break;
            off -= w->stride[d][o] * w->shape[d];
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}

static char *temporary(int64_t bytes)
{
    char *p = (char *)malloc((size_t)bytes);
    if (!p)
        choir__queue_fail(
            CHOIR_ERR_MEMORY, "a copy has no %lld bytes of the host's memory", (long long)bytes);
    return p;
}

static bool wait_stream(void)
{
    return choir__cuda_ok(cudaStreamSynchronize(choir__cuda_here()->stream), "a copy's wait");
}

/* Copies x to scratch memory here, and makes it w's operand 1 and *x. */
static bool fetch(walk *w, side *x)
{
    bool gaps = !fills(w, 1), host = choir__cuda_gpu_of(x->p) < 0;
    int64_t n = walk_count(w), count = gaps && !host ? span(w, 1) : n;
    char *here = (char *)choir__cuda_scratch(2, (size_t)(count * x->size)), *packed = x->p;
    if (!here)
        return false;
    if (gaps && host) {
        if (!(packed = temporary(n * x->size)))
            return false;
        each_row(w, 1, [&](int64_t i, int64_t off, int64_t length) {
            memcpy(packed + i * x->size, x->p + off * x->size, (size_t)(length * x->size));
        });
        make_row_major(w, 1);
    }
    bool ok = copy_bytes(here, packed, count * x->size);
    if (packed != x->p) {
        ok = wait_stream() && ok;
        free(packed);
    }
    x->p = here;
    return ok;
}

/* Copies n packed elements here to a far y with gaps. */
static void spread(const walk *w, const side *y, char *packed, int64_t n)
{
    if (choir__cuda_gpu_of(y->p) >= 0) {
        each_row(w, 0, [&](int64_t i, int64_t off, int64_t length) {
            copy_bytes(y->p + off * y->size, packed + i * y->size, length * y->size);
        });
        return;
    }
    char *host = temporary(n * y->size);
    if (host && copy_bytes(host, packed, n * y->size) && wait_stream())
        each_row(w, 0, [&](int64_t i, int64_t off, int64_t length) {
            memcpy(y->p + off * y->size, host + i * y->size, (size_t)(length * y->size));
        });
    free(host);
}

void choir__cuda_copy_far(const walk *as_given, const side *y, const side *x_as_given)
{
    walk w = *as_given;
    side x = *x_as_given;
    int gpu = choir__cuda_here()->gpu;
    bool y_far = choir__cuda_gpu_of(y->p) != gpu, x_far = choir__cuda_gpu_of(x.p) != gpu;
    int64_t n = walk_count(&w);
    if (is_run(&w) && y->dtype == x.dtype) {
        copy_bytes(y->p, x.p, n * y->size);
        return;
    }
    if (x_far && !fetch(&w, &x))
        return;
    if (!y_far) {
        choir__cuda_copy_here(&w, y, &x);
        return;
    }
    side here = *y;
    walk near = w;
    if (!(here.p = (char *)choir__cuda_scratch(3, (size_t)(n * y->size))))
        return;
    bool gaps = !fills(&w, 0);
    if (gaps)
        make_row_major(&near, 0);
    choir__cuda_copy_here(&near, &here, &x);
    if (gaps)
        spread(&w, y, here.p, n);
    else
        copy_bytes(y->p, here.p, n * y->size);
}
