/* Pooling to a given size over channels-last images. A thread has a pack of an output pixel's
 * channels, whose window it sums row by row. In the backward it has a pack of an input pixel's
 * channels, and adds the gradients of all windows that contain the pixel, in the order of the
 * output's pixels. */
#include "device/cuda/kit/pack.cuh"

/* Output place i takes input places [*first, *end). */
__device__ static inline void window(
    int64_t i, int64_t in, int64_t out, int64_t *first, int64_t *end)
{
    *first = divide(i * in, out);
    *end = divide((i + 1) * in + out - 1, out);
}

/* Input place h is in the windows of output places [*first, *end). */
__device__ static inline void windows_over(
    int64_t h, int64_t in, int64_t out, int64_t *first, int64_t *end)
{
    *first = divide(h * out, in);
    *end = divide((h + 1) * out + in - 1, in);
}

template <class T> __global__ void adaptive_forward(in_packs<choir__k_pool> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_pool &k = args.k;
    const int64_t packs = packs_of<T>(k.s.c), all = k.s.n * k.s.oh * k.s.ow * packs;
    const int64_t at = first_thread();
    if (at >= all)
        return;
    int64_t out = divide(at, packs), row = divide(out, k.s.ow), n = divide(row, k.s.oh);
    int64_t c = (at - out * packs) * N, left = k.s.c - c, h0, h1, w0, w1;
    window(row - n * k.s.oh, k.s.h, k.s.oh, &h0, &h1);
    window(out - row * k.s.ow, k.s.w, k.s.ow, &w0, &w1);
    W y[N];
    int32_t index[N];
    for (int e = 0; e < N; e++)
        y[e] = 0, index[e] = 0;
    for (int64_t h = h0; h < h1; h++) {
        W sum[N];
        for (int e = 0; e < N; e++)
            sum[e] = 0;
        for (int64_t w = w0; w < w1; w++) {
            W x[N];
            load_wide(x, (const T *)k.x + ((n * k.s.h + h) * k.s.w + w) * k.s.c + c, left,
                args.whole, W(0));
            for (int e = 0; e < N; e++) {
                bool more = (h == h0 && w == w0) || CHOIR__SURPASSES(x[e], y[e]);
                sum[e] += x[e];
                if (k.max && more)
                    y[e] = x[e], index[e] = (int32_t)(h * k.s.w + w);
            }
        }
        for (int e = 0; e < N && !k.max; e++)
            y[e] += sum[e];
    }
    for (int e = 0; e < N && !k.max; e++)
        y[e] /= (W)((h1 - h0) * (w1 - w0));
    store_wide((T *)k.y + out * k.s.c + c, y, left, args.whole);
    for (int e = 0; e < N && k.max && k.index; e++)
        if (e < left)
            ((int32_t *)k.index)[out * k.s.c + c + e] = index[e];
}

template <class T> __global__ void adaptive_backward(in_packs<choir__k_pool> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_pool &k = args.k;
    const int64_t packs = packs_of<T>(k.s.c), all = k.s.n * k.s.h * k.s.w * packs;
    const int64_t at = first_thread();
    if (at >= all)
        return;
    int64_t in = divide(at, packs), row = divide(in, k.s.w), n = divide(row, k.s.h);
    int64_t c = (at - in * packs) * N, left = k.s.c - c, here = in - n * k.s.h * k.s.w;
    int64_t oh0, oh1, ow0, ow1, h0, h1, w0, w1;
    windows_over(row - n * k.s.h, k.s.h, k.s.oh, &oh0, &oh1);
    windows_over(in - row * k.s.w, k.s.w, k.s.ow, &ow0, &ow1);
    W gx[N];
    for (int e = 0; e < N; e++)
        gx[e] = 0;
    for (int64_t oh = oh0; oh < oh1; oh++)
        for (int64_t ow = ow0; ow < ow1; ow++) {
            int64_t out = ((n * k.s.oh + oh) * k.s.ow + ow) * k.s.c + c;
            W gy[N];
            load_wide(gy, (const T *)k.gy + out, left, args.whole, W(0));
            window(oh, k.s.h, k.s.oh, &h0, &h1);
            window(ow, k.s.w, k.s.ow, &w0, &w1);
            for (int e = 0; e < N; e++)
                if (!k.max)
                    gx[e] += gy[e] / (W)((h1 - h0) * (w1 - w0));
                else if (e < left && ((const int32_t *)k.index)[out + e] == here)
                    gx[e] += gy[e];
        }
    store_wide((T *)k.gx + in * k.s.c + c, gx, left, args.whole);
}

extern "C" void choir__cuda_adaptive_pool(const choir__k_pool *k)
{
    choose(k->dtype, [&](auto t) {
        launch_pixels<decltype(t)>(
            adaptive_forward<decltype(t)>, *k, k->s.n * k->s.oh * k->s.ow, aligned(k->x, k->y));
    });
}

extern "C" void choir__cuda_adaptive_pool_backward(const choir__k_pool *k)
{
    choose(k->dtype, [&](auto t) {
        launch_pixels<decltype(t)>(adaptive_backward<decltype(t)>, *k, k->s.n * k->s.h * k->s.w,
            aligned(k->gy, k->gx));
    });
}
