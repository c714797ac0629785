/* Rotary positions: rotates the halves of a vector against each other by the position's angles.
 * A thread has a pack of both halves. */
#include "device/cuda/kit/pack.cuh"

template <class T> __global__ void turn(in_packs<choir__k_rotary> args)
{
    typedef wide<T> W;
    enum { N = pack<T>::N };
    const choir__k_rotary &k = args.k;
    const int64_t half = k.d / 2, packs = packs_of<T>(half), all = k.b * k.t * k.h * packs;
    const int64_t i = first_thread();
    if (i >= all)
        return;
    int64_t vector = divide(i, packs), position = divide(vector, k.h);
    int64_t b = divide(position, k.t), t = position - b * k.t, h = vector - position * k.h;
    int64_t c = (i - vector * packs) * N, left = half - c;
    const T *x =
        (const T *)k.x.p + b * k.x.stride[0] + t * k.x.stride[1] + h * k.x.stride[2] + c;
    T *y = (T *)k.y.p + b * k.y.stride[0] + t * k.y.stride[1] + h * k.y.stride[2] + c;
    const int64_t angle = b * k.table_b + t * k.d + c;
    W one[N], two[N], cosine[N], sine[N];
    load_wide(one, x, left, args.whole, W(0));
    load_wide(two, x + half, left, args.whole, W(0));
    load_weights<T>(cosine, k.table, angle, left, args.whole, W(0));
    load_weights<T>(sine, k.table, angle + half, left, args.whole, W(0));
    for (int e = 0; e < N; e++) {
        W s = k.back ? -sine[e] : sine[e], a = one[e], b2 = two[e];
        one[e] = a * cosine[e] - b2 * s;
        two[e] = b2 * cosine[e] + a * s;
    }
    store_wide(y, one, left, args.whole);
    store_wide(y + half, two, left, args.whole);
}

extern "C" void choir__cuda_rotary(const choir__k_rotary *k)
{
    int64_t vectors = k->b * k->t * k->h, steps = k->d / 2;
    for (int d = 0; d < 3; d++)
        steps |= k->x.stride[d] | k->y.stride[d];
    if (vectors == 0 || k->d < 2)
        return;
    choose(k->dtype, [&](auto t) {
        typedef decltype(t) T;
        bool whole = steps % pack<T>::N == 0 && aligned(k->x.p, k->y.p, k->table);
        launch(turn<T>, blocks_for(vectors * packs_of<T>(k->d / 2)), BLOCK, 0,
            in_packs<choir__k_rotary>{*k, whole});
    });
}
