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

template <class T> __global__ void forward(in_packs<choir__k_adaptive_pool> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_adaptive_pool &k = args.k;
    const int64_t packs = packs_of<T>(k.c), all = k.n * k.oh * k.ow * packs;
    const int64_t at = first_thread();
    if (at >= all)
        return;
    int64_t out = divide(at, packs), row = divide(out, k.ow), n = divide(row, k.oh);
    int64_t c = (at - out * packs) * N, left = k.c - c, h0, h1, w0, w1;
    window(row - n * k.oh, k.h, k.oh, &h0, &h1);
    window(out - row * k.ow, k.w, k.ow, &w0, &w1);
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
            load_wide(x, (const T *)k.x + ((n * k.h + h) * k.w + w) * k.c + c, left, args.whole,
                W(0));
            for (int e = 0; e < N; e++) {
                bool more = (h == h0 && w == w0) || x[e] > y[e];
                sum[e] += x[e];
                if (k.max && more)
                    y[e] = x[e], index[e] = (int32_t)(h * k.w + w);
            }
        }
        for (int e = 0; e < N && !k.max; e++)
            y[e] += sum[e];
    }
    for (int e = 0; e < N && !k.max; e++)
        y[e] /= (W)((h1 - h0) * (w1 - w0));
    store_wide((T *)k.y + out * k.c + c, y, left, args.whole);
    for (int e = 0; e < N && k.max && k.index; e++)
        if (e < left)
            k.index[out * k.c + c + e] = index[e];
}

template <class T> __global__ void backward(in_packs<choir__k_adaptive_pool_backward> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_adaptive_pool_backward &k = args.k;
    const int64_t packs = packs_of<T>(k.c), all = k.n * k.h * k.w * packs;
    const int64_t at = first_thread();
    if (at >= all)
        return;
    int64_t in = divide(at, packs), row = divide(in, k.w), n = divide(row, k.h);
    int64_t c = (at - in * packs) * N, left = k.c - c, here = in - n * k.h * k.w;
    int64_t oh0, oh1, ow0, ow1, h0, h1, w0, w1;
    windows_over(row - n * k.h, k.h, k.oh, &oh0, &oh1);
    windows_over(in - row * k.w, k.w, k.ow, &ow0, &ow1);
    W gx[N];
    for (int e = 0; e < N; e++)
        gx[e] = 0;
    for (int64_t oh = oh0; oh < oh1; oh++)
        for (int64_t ow = ow0; ow < ow1; ow++) {
            int64_t out = ((n * k.oh + oh) * k.ow + ow) * k.c + c;
            W gy[N];
            load_wide(gy, (const T *)k.gy + out, left, args.whole, W(0));
            window(oh, k.h, k.oh, &h0, &h1);
            window(ow, k.w, k.ow, &w0, &w1);
            for (int e = 0; e < N; e++)
                if (!k.max)
                    gx[e] += gy[e] / (W)((h1 - h0) * (w1 - w0));
                else if (e < left && k.index[out + e] == here)
                    gx[e] += gy[e];
        }
    store_wide((T *)k.gx + in * k.c + c, gx, left, args.whole);
}

extern "C" void choir__cuda_adaptive_pool(const choir__k_adaptive_pool *k)
{
    int64_t pixels = k->n * k->oh * k->ow;
    if (pixels == 0 || k->c == 0)
        return;
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool whole = k->c % pack<T>::N == 0 && aligned(k->x, k->y);
        launch(forward<T>, blocks_for(pixels * packs_of<T>(k->c)), BLOCK, 0,
            in_packs<choir__k_adaptive_pool>{*k, whole});
    });
}

extern "C" void choir__cuda_adaptive_pool_backward(const choir__k_adaptive_pool_backward *k)
{
    int64_t pixels = k->n * k->h * k->w;
    if (pixels == 0 || k->c == 0)
        return;
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool whole = k->c % pack<T>::N == 0 && aligned(k->gy, k->gx);
        launch(backward<T>, blocks_for(pixels * packs_of<T>(k->c)), BLOCK, 0,
            in_packs<choir__k_adaptive_pool_backward>{*k, whole});
    });
}
