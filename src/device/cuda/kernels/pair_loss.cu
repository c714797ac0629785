/* Losses of pairs, element by element, and their gradients. */
#include "device/cuda/kit/vector.cuh"

/* log(1 + exp(-x)) */
template <class V> __device__ inline V softplus_of_minus(V x)
{
    return log1p(exp(-fabs(x))) + (x < V(0) ? -x : V(0));
}

template <class V> __device__ inline V log_or_100(V log)
{
    return log < V(-100) ? V(-100) : log; /* NaN stays */
}

/* A pair, its weight, and the parameters of all pairs. */
template <class V> struct pair {
    V x, y, w, a, b;
};

template <class V> __device__ inline V loss_of(choir__pair_kind kind, const pair<V> &p)
{
    V d = fabs(p.x - p.y);
    switch (kind) {
    case CHOIR__HUBER:
        return d < p.a ? p.b * d * d / (V(2) * p.a) : p.b * (d - V(0.5) * p.a);
    case CHOIR__BCE:
        return -p.y * log_or_100(log(p.x)) - (V(1) - p.y) * log_or_100(log1p(-p.x));
    case CHOIR__BCE_LOGITS:
        return (V(1) - p.y) * p.x + (V(1) + (p.w - V(1)) * p.y) * softplus_of_minus(p.x);
    case CHOIR__KL: return p.y == V(0) ? V(0) : p.y * (log(p.y) - p.x);
    default: return exp(p.y) * (p.y - p.x);
    }
}

/* At d = 0 the slope of |d| is 0; NaN stays. */
template <class V>
__device__ inline void slopes_of(choir__pair_kind kind, const pair<V> &p, V *dx, V *dy)
{
    V d = p.x - p.y, least = V(1e-12), spread = (V(1) - p.x) * p.x;
    switch (kind) {
    case CHOIR__HUBER:
        *dx = fabs(d) < p.a ? p.b * d / p.a : d > V(0) ? p.b : d < V(0) ? -p.b : d;
        *dy = -*dx;
        break;
    case CHOIR__BCE:
        *dx = d / (spread < least ? least : spread);
        *dy = log_or_100(log1p(-p.x)) - log_or_100(log(p.x));
        break;
    case CHOIR__BCE_LOGITS:
        *dx = (V(1) - p.y) - (V(1) + (p.w - V(1)) * p.y) / (V(1) + exp(p.x));
        *dy = (p.w - V(1)) * softplus_of_minus(p.x) - p.x;
        break;
    case CHOIR__KL:
        *dx = -p.y;
        *dy = log(p.y) + V(1) - p.x;
        break;
    default: {
        V e = exp(p.y);
        *dx = -e;
        *dy = e * (p.y - p.x + V(1));
    }
    }
}

/* Returns element i's weight; `period` weights repeat. */
template <class T>
__device__ inline wide<T> weight_at(const void *weight, int64_t i, int64_t period)
{
    if (!weight || i < 0)
        return 1;
    if (i >= period) /* in 32 bits if that is enough, which is several times as fast */
        i = (i | period) >> 32 ? i % period : (int64_t)((uint32_t)i % (uint32_t)period);
    return get((const T *)weight + i);
}

struct pairs {
    choir__k_pair_loss k;
    int64_t n;
    choir__cuda_fault *fault;
};

template <class A> __global__ void pair_loss(flat<pairs> f)
{
    typedef typename A::T T;
    typedef typename A::V V;
    const choir__k_pair_loss &k = f.k.k;
    int64_t slots = slots_of<A>(f);
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * A::N - f.lead;
        V x[A::N], y[A::N];
        load<A>(x, k.x, c, k.n);
        load<A>(y, k.y, c, k.n);
#pragma unroll
        for (int j = 0; j < A::N; j++) {
            if (k.kind == CHOIR__BCE && (x[j] < V(0) || x[j] > V(1)))
                raise_fault(f.k.fault, CHOIR__BAD_PROBABILITY, 0, 0, c + j, x[j]);
            V w = weight_at<T>(k.weight, c + j, k.period);
            y[j] = loss_of(k.kind, pair<V>{x[j], y[j], w, V(k.a), V(k.b)});
        }
        store<A>(k.loss, c, k.n, y);
    }
}

extern "C" void choir__cuda_pair_loss(const choir__k_pair_loss *k)
{
    int lead = lead_of(choir_dtype_size(k->dtype), k->x, k->y, k->loss);
    pairs p = {*k, k->n, choir__cuda_here()->fault};
    choose_access(k->dtype, lead,
        [&](auto a) { launch_flat<decltype(a)>(pair_loss<decltype(a)>, p, lead); });
}

template <class A> __global__ void pair_loss_backward(flat<choir__k_pair_loss_backward> f)
{
    typedef typename A::T T;
    typedef typename A::V V;
    const choir__k_pair_loss_backward &k = f.k;
    int64_t slots = slots_of<A>(f);
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * A::N - f.lead;
        V x[A::N], y[A::N], g[A::N];
        load<A>(x, k.x, c, k.n);
        load<A>(y, k.y, c, k.n);
        load<A>(g, k.gloss, c, k.n);
#pragma unroll
        for (int j = 0; j < A::N; j++) {
            V w = weight_at<T>(k.weight, c + j, k.period), dx, dy;
            slopes_of(k.kind, pair<V>{x[j], y[j], w, V(k.a), V(k.b)}, &dx, &dy);
            x[j] = g[j] * dx;
            y[j] = g[j] * dy;
        }
        if (k.gx)
            store<A>(k.gx, c, k.n, x);
        if (k.gy)
            store<A>(k.gy, c, k.n, y);
    }
}

extern "C" void choir__cuda_pair_loss_backward(const choir__k_pair_loss_backward *k)
{
    int lead = lead_of(choir_dtype_size(k->dtype), k->x, k->y, k->gloss, k->gx, k->gy);
    choose_access(k->dtype, lead, [&](auto a) {
        launch_flat<decltype(a)>(pair_loss_backward<decltype(a)>, *k, lead);
    });
}
