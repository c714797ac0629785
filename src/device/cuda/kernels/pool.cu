/* Max and average pooling over channels-last images. A thread has a pack of an output pixel's
 * channels. In the backward it has a pack of an input pixel's channels, and adds the gradients
 * of all windows that contain the pixel, in the order of the output's pixels, so no two threads
 * add to one place. */
#include "device/cuda/kit/pack.cuh"

/* The pack of an image (h, w) that a thread has. */
struct pixel {
    int64_t n, h, w, c;
};

template <class T>
__device__ static inline pixel pixel_of(int64_t i, int64_t h, int64_t w, int64_t packs)
{
    pixel p;
    int64_t at = divide(i, packs), row = divide(at, w);
    p.c = (i - at * packs) * pack<T>::N;
    p.w = at - row * w;
    p.n = divide(row, h);
    p.h = row - p.n * h;
    return p;
}

template <class T> __global__ void forward(in_packs<choir__k_pool> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_pool &k = args.k;
    const choir__conv_shape &s = k.s;
    const int64_t packs = packs_of<T>(s.c), all = s.n * s.oh * s.ow * packs;
    const int64_t at = first_thread();
    if (at >= all)
        return;
    const pixel p = pixel_of<T>(at, s.oh, s.ow, packs);
    const int64_t left = s.c - p.c, out = ((p.n * s.oh + p.h) * s.ow + p.w) * s.c + p.c;
    W y[N];
    int index[N];
    bool any = false;
    for (int e = 0; e < N; e++)
        y[e] = 0, index[e] = 0;
    for (int i = 0; i < s.kh; i++)
        for (int j = 0; j < s.kw; j++) {
            int64_t h = p.h * s.stride_h - s.pad_h + i * s.dilation_h;
            int64_t w = p.w * s.stride_w - s.pad_w + j * s.dilation_w;
            if (h < 0 || h >= s.h || w < 0 || w >= s.w)
                continue;
            W x[N];
            load_wide(x, (const T *)k.x + ((p.n * s.h + h) * s.w + w) * s.c + p.c, left,
                args.whole, W(0));
            for (int e = 0; e < N; e++) {
                bool more = !any || CHOIR__SURPASSES(x[e], y[e]);
                if (!k.max)
                    y[e] += x[e];
                else if (more)
                    y[e] = x[e], index[e] = (int)(i * s.kw + j);
            }
            any = true;
        }
    for (int e = 0; e < N && !k.max; e++)
        y[e] /= (W)(s.kh * s.kw);
    store_wide((T *)k.y + out, y, left, args.whole);
    for (int e = 0; e < N && k.max && k.index; e++)
        if (e < left)
            ((uint8_t *)k.index)[out + e] = (uint8_t)index[e];
}

/* The outputs [*first, *end) whose windows may reach input place h. */
__device__ static inline void windows(int64_t h, int64_t places, int64_t step, int64_t stride,
    int64_t pad, int64_t out, int64_t *first, int64_t *end)
{
    int64_t from = h + pad - (places - 1) * step, last = divide(h + pad, stride) + 1;
    *first = from > 0 ? divide(from + stride - 1, stride) : 0;
    *end = last < out ? last : out;
}

/* Returns the place of h in the window of output o, or -1 if h is between two places. */
__device__ static inline int64_t place_in(
    int64_t h, int64_t o, int64_t step, int64_t stride, int64_t pad)
{
    int64_t away = h + pad - o * stride;
    if (step == 1)
        return away;
    int64_t at = divide(away, step);
    return at * step == away ? at : -1;
}

template <class T> __global__ void backward(in_packs<choir__k_pool> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_pool &k = args.k;
    const choir__conv_shape &s = k.s;
    const int64_t packs = packs_of<T>(s.c), all = s.n * s.h * s.w * packs;
    const W share = 1 / (W)(s.kh * s.kw);
    const int64_t at = first_thread();
    if (at >= all)
        return;
    const pixel p = pixel_of<T>(at, s.h, s.w, packs);
    const int64_t left = s.c - p.c, in = ((p.n * s.h + p.h) * s.w + p.w) * s.c + p.c;
    int64_t h0, h1, w0, w1;
    windows(p.h, s.kh, s.dilation_h, s.stride_h, s.pad_h, s.oh, &h0, &h1);
    windows(p.w, s.kw, s.dilation_w, s.stride_w, s.pad_w, s.ow, &w0, &w1);
    W gx[N];
    for (int e = 0; e < N; e++)
        gx[e] = 0;
    for (int64_t oh = h0; oh < h1; oh++)
        for (int64_t ow = w0; ow < w1; ow++) {
            int64_t i = place_in(p.h, oh, s.dilation_h, s.stride_h, s.pad_h);
            int64_t j = place_in(p.w, ow, s.dilation_w, s.stride_w, s.pad_w);
            int64_t out = ((p.n * s.oh + oh) * s.ow + ow) * s.c + p.c;
            W gy[N];
            if (i < 0 || j < 0)
                continue;
            load_wide(gy, (const T *)k.gy + out, left, args.whole, W(0));
            for (int e = 0; e < N; e++)
                if (!k.max)
                    gx[e] += gy[e] * share;
                else if (e < left && ((const uint8_t *)k.index)[out + e] == i * s.kw + j)
                    gx[e] += gy[e];
        }
    store_wide((T *)k.gx + in, gx, left, args.whole);
}

extern "C" void choir__cuda_pool(const choir__k_pool *k)
{
    choose(k->dtype, [&](auto t) {
        launch_pixels<decltype(t)>(
            forward<decltype(t)>, *k, k->s.n * k->s.oh * k->s.ow, aligned(k->x, k->y));
    });
}

extern "C" void choir__cuda_pool_backward(const choir__k_pool *k)
{
    choose(k->dtype, [&](auto t) {
        launch_pixels<decltype(t)>(
            backward<decltype(t)>, *k, k->s.n * k->s.h * k->s.w, aligned(k->gy, k->gx));
    });
}
