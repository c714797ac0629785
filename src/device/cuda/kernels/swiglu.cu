/* SwiGLU: one operand gates the other. One thread per pack of a row; rows may have gaps. */
#include "device/cuda/kit/pack.cuh"

template <class T> __global__ void forward(in_packs<choir__k_swiglu> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_swiglu &k = args.k;
    const int64_t packs = packs_of<T>(k.cols), all = k.rows * packs;
    const int64_t i = first_thread();
    if (i >= all)
        return;
    int64_t r = divide(i, packs), c = (i - r * packs) * N, left = k.cols - c;
    W a[N], b[N];
    load_wide(a, (const T *)k.a + r * k.a_row + c, left, args.whole, W(0));
    load_wide(b, (const T *)k.b + r * k.b_row + c, left, args.whole, W(0));
    for (int e = 0; e < N; e++)
        a[e] = a[e] * sigmoid(a[e]) * b[e];
    store_wide((T *)k.y + r * k.cols + c, a, left, args.whole);
}

/* silu'(x) = s + x s (1 - s), with s the sigmoid. */
template <class T> __global__ void backward(in_packs<choir__k_swiglu_backward> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_swiglu_backward &k = args.k;
    const int64_t packs = packs_of<T>(k.cols), all = k.rows * packs;
    const int64_t i = first_thread();
    if (i >= all)
        return;
    int64_t r = divide(i, packs), c = (i - r * packs) * N, left = k.cols - c;
    W a[N], b[N], gy[N];
    load_wide(a, (const T *)k.a + r * k.a_row + c, left, args.whole, W(0));
    load_wide(gy, (const T *)k.gy + r * k.cols + c, left, args.whole, W(0));
    load_wide(b, k.ga ? (const T *)k.b + r * k.b_row + c : NULL, left, args.whole, W(0));
    for (int e = 0; e < N; e++) {
        W s = sigmoid(a[e]), x = a[e];
        a[e] = gy[e] * b[e] * (s + x * s * (1 - s));
        b[e] = gy[e] * (x * s);
    }
    if (k.ga)
        store_wide((T *)k.ga + r * k.ga_row + c, a, left, args.whole);
    if (k.gb)
        store_wide((T *)k.gb + r * k.gb_row + c, b, left, args.whole);
}

extern "C" void choir__cuda_swiglu(const choir__k_swiglu *k)
{
    if (k->rows == 0 || k->cols == 0)
        return;
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool whole =
            (k->cols | k->a_row | k->b_row) % pack<T>::N == 0 && aligned(k->a, k->b, k->y);
        launch(forward<T>, blocks_for(k->rows * packs_of<T>(k->cols)), BLOCK, 0,
            in_packs<choir__k_swiglu>{*k, whole});
    });
}

extern "C" void choir__cuda_swiglu_backward(const choir__k_swiglu_backward *k)
{
    if (k->rows == 0 || k->cols == 0)
        return;
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        int64_t strides =
            k->cols | k->a_row | k->b_row | (k->ga ? k->ga_row : 0) | (k->gb ? k->gb_row : 0);
        bool whole = strides % pack<T>::N == 0 && aligned(k->a, k->b, k->gy, k->ga, k->gb);
        launch(backward<T>, blocks_for(k->rows * packs_of<T>(k->cols)), BLOCK, 0,
            in_packs<choir__k_swiglu_backward>{*k, whole});
    });
}
