/* Functions of one element, and their gradients.
 *
 * For f32 each function is exact to a few units in the last place; for 16-bit memory exp and
 * quotients use the fast units (kit/vector.cuh). Arguments far from 0 are clamped where the
 * result would be inf * 0. */
#include "device/cuda/kit/vector.cuh"

template <class T> __device__ inline wide<T> sigmoid_for(wide<T> x)
{
    typedef wide<T> V;
    return ratio_for<T>(V(1), V(1) + exp_for<T>(-x));
}

/* In f32 almost 0 below -14; NaN stays. */
template <class V> __device__ inline V gelu(V x)
{
    V least = sizeof(V) == 8 ? V(-40) : V(-14);
    x = x < least ? least : x;
    return V(0.5) * x * erfc(x * V(-0.70710678118654752440));
}

/* (x Phi(x))' = Phi(x) + x phi(x) */
template <class T> __device__ inline wide<T> gelu_slope(wide<T> x)
{
    typedef wide<T> V;
    V most = sizeof(V) == 8 ? V(40) : V(14), t = x < -most ? -most : x > most ? most : x;
    V density = V(0.39894228040143267794) * exp_for<T>(V(-0.5) * t * t);
    return V(0.5) * erfc(t * V(-0.70710678118654752440)) + t * density;
}

/* 0.5 (1 + tanh u) is sigmoid(2 u): 2 sqrt(2/pi), and that times 0.044715. */
template <class V> __device__ inline V gelu_tanh_2u(V x)
{
    return x * (x * x * V(0.07135481627159927) + V(1.59576912160573071));
}

template <class V> __device__ inline V within_tanh_range(V x)
{
    V most = sizeof(V) == 8 ? V(22) : V(10);
    return x < -most ? -most : x > most ? most : x;
}

template <class T> __device__ inline wide<T> gelu_tanh(wide<T> x)
{
    typedef wide<T> V;
    V t = within_tanh_range(x);
    return ratio_for<T>(x < t ? t : x, V(1) + exp_for<T>(-gelu_tanh_2u(t)));
}

/* s + x s (1 - s) 2u' with s = 1 / (1 + e), e = exp(-2u), so 1 - s = e s does not cancel. */
template <class T> __device__ inline wide<T> gelu_tanh_slope(wide<T> x)
{
    typedef wide<T> V;
    V t = within_tanh_range(x), e = exp_for<T>(-gelu_tanh_2u(t));
    V s = ratio_for<T>(V(1), V(1) + e);
    return s + t * s * (e * s) * (t * t * V(3 * 0.07135481627159927) + V(1.59576912160573071));
}

template <class V> __device__ inline V within_silu_range(V x)
{
    V most = sizeof(V) == 8 ? V(700) : V(87);
    return x < -most ? -most : x > most ? most : x;
}

template <class T> __device__ inline wide<T> silu(wide<T> x)
{
    typedef wide<T> V;
    V t = within_silu_range(x);
    return ratio_for<T>(x < t ? t : x, V(1) + exp_for<T>(-t));
}

template <class T> __device__ inline wide<T> silu_slope(wide<T> x)
{
    typedef wide<T> V;
    V t = within_silu_range(x), e = exp_for<T>(-t), s = ratio_for<T>(V(1), V(1) + e);
    return s + t * s * (e * s);
}

/* NaN stays. */
template <class V> __device__ inline V clamp(V x, V a, V b)
{
    V least = x < a ? a : x;
    return least > b ? b : least;
}

template <class T>
__device__ inline wide<T> softplus(wide<T> x, wide<T> beta, wide<T> threshold)
{
    typedef wide<T> V;
    V z = x * beta, above = z < V(0) ? V(0) : z;
    return z > threshold ? x : (above + log1p(exp_for<T>(-fabs(z)))) / beta;
}

/* v[j] = expression, for each j. */
#define EACH(expression)                                                                       \
    _Pragma("unroll") for (int j = 0; j < A::N; j++) v[j] = (expression);                      \
    break

template <class A> __global__ void unary(flat<choir__k_unary> f)
{
    typedef typename A::T T;
    typedef typename A::V V;
    int64_t slots = slots_of<A>(f);
    V a = V(f.k.a), b = V(f.k.b), v[A::N];
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * A::N - f.lead;
        load<A>(v, f.k.x, c, f.k.n, 1);
        switch (f.k.op) {
        case CHOIR__NEG: EACH(-v[j]);
        case CHOIR__EXP: EACH(exp_for<T>(v[j]));
        case CHOIR__LOG: EACH(log(v[j]));
        case CHOIR__SQRT: EACH(sqrt(v[j]));
        case CHOIR__TANH: EACH(tanh(v[j]));
        case CHOIR__SIGMOID: EACH(sigmoid_for<T>(v[j]));
        case CHOIR__RELU: EACH(v[j] < V(0) ? V(0) : v[j]);
        case CHOIR__GELU: EACH(gelu(v[j]));
        case CHOIR__GELU_TANH: EACH(gelu_tanh<T>(v[j]));
        case CHOIR__SILU: EACH(silu<T>(v[j]));
        case CHOIR__SQUARE: EACH(v[j] * v[j]);
        case CHOIR__ABS: EACH(fabs(v[j]));
        case CHOIR__SIN: EACH(sin(v[j]));
        case CHOIR__COS: EACH(cos(v[j]));
        case CHOIR__SIGN: EACH(V((v[j] > V(0)) - (v[j] < V(0))));
        case CHOIR__FLOOR: EACH(floor(v[j]));
        case CHOIR__CEIL: EACH(ceil(v[j]));
        case CHOIR__ROUND: EACH(rint(v[j]));
        case CHOIR__LOG1P: EACH(log1p(v[j]));
        case CHOIR__EXPM1: EACH(expm1(v[j]));
        case CHOIR__ERF: EACH(erf(v[j]));
        case CHOIR__AFFINE: EACH(v[j] * a + b);
        case CHOIR__POW: EACH(pow(v[j], a));
        case CHOIR__CLAMP: EACH(clamp(v[j], a, b));
        case CHOIR__LEAKY: EACH(v[j] > V(0) ? v[j] : v[j] * a);
        case CHOIR__ELU: EACH(v[j] > V(0) ? v[j] : a * expm1(v[j]));
        case CHOIR__SOFTPLUS: EACH(softplus<T>(v[j], a, b));
        case CHOIR__UNARY_COUNT: break;
        }
        store<A>(f.k.y, c, f.k.n, v);
    }
}

extern "C" void choir__cuda_unary(const choir__k_unary *k)
{
    int lead = lead_of(choir_dtype_size(k->dtype), k->x, k->y);
    choose_access(k->dtype, lead,
        [&](auto a) { launch_flat<decltype(a)>(unary<decltype(a)>, *k, lead); });
}

/* --- backward: gx from gy and t, which is y for the ops that are cheaper from it, else x, or
 * NULL --- */

struct slopes {
    const void *t, *gy;
    void *gx;
    int64_t n;
    double a, b;
    choir__unary_op op;
};

template <class A> __global__ void unary_backward(flat<slopes> f)
{
    typedef typename A::T T;
    typedef typename A::V V;
    int64_t slots = slots_of<A>(f);
    V a = V(f.k.a), b = V(f.k.b), v[A::N], t[A::N] = {};
    for (int64_t i = first_thread(); i < slots; i += all_threads()) {
        int64_t c = i * A::N - f.lead;
        load<A>(v, f.k.gy, c, f.k.n);
        if (f.k.t)
            load<A>(t, f.k.t, c, f.k.n, 1);
        switch (f.k.op) {
        case CHOIR__NEG: EACH(-v[j]);
        case CHOIR__EXP: EACH(v[j] * t[j]);
        case CHOIR__LOG: EACH(v[j] / t[j]);
        case CHOIR__SQRT: EACH(v[j] * V(0.5) / t[j]);
        case CHOIR__TANH: EACH(v[j] * (V(1) - t[j] * t[j]));
        case CHOIR__SIGMOID: EACH(v[j] * (t[j] * (V(1) - t[j])));
        case CHOIR__RELU: EACH(t[j] > V(0) ? v[j] : V(0));
        case CHOIR__GELU: EACH(v[j] * gelu_slope<T>(t[j]));
        case CHOIR__GELU_TANH: EACH(v[j] * gelu_tanh_slope<T>(t[j]));
        case CHOIR__SILU: EACH(v[j] * silu_slope<T>(t[j]));
        case CHOIR__SQUARE: EACH(v[j] * (t[j] + t[j]));
        case CHOIR__ABS: EACH(t[j] > V(0) ? v[j] : t[j] < V(0) ? -v[j] : V(0));
        case CHOIR__SIN: EACH(v[j] * cos(t[j]));
        case CHOIR__COS: EACH(-v[j] * sin(t[j]));
        case CHOIR__SIGN:
        case CHOIR__FLOOR:
        case CHOIR__CEIL:
        case CHOIR__ROUND: EACH(V(0));
        case CHOIR__LOG1P: EACH(v[j] / (V(1) + t[j]));
        case CHOIR__EXPM1: EACH(v[j] * exp_for<T>(t[j]));
        case CHOIR__ERF: EACH(v[j] * V(1.12837916709551257390) * exp_for<T>(-t[j] * t[j]));
        case CHOIR__AFFINE: EACH(v[j] * a);
        case CHOIR__POW: EACH(a == V(0) ? V(0) : v[j] * a * pow(t[j], a - V(1)));
        case CHOIR__CLAMP: EACH(t[j] >= a && t[j] <= b ? v[j] : V(0));
        case CHOIR__LEAKY: EACH(t[j] > V(0) ? v[j] : v[j] * a);
        case CHOIR__ELU: EACH(t[j] > V(0) ? v[j] : v[j] * a * exp_for<T>(t[j]));
        case CHOIR__SOFTPLUS: EACH(t[j] * a > b ? v[j] : v[j] * sigmoid_for<T>(t[j] * a));
        case CHOIR__UNARY_COUNT: break;
        }
        store<A>(f.k.gx, c, f.k.n, v);
    }
}

/* Returns x or y, from which an op's gradient is computed. */
static const void *made_from(const choir__k_unary_backward *k)
{
    switch (k->op) {
    case CHOIR__NEG:
    case CHOIR__SIGN:
    case CHOIR__FLOOR:
    case CHOIR__CEIL:
    case CHOIR__ROUND:
    case CHOIR__AFFINE: return NULL;
    case CHOIR__EXP:
    case CHOIR__SQRT:
    case CHOIR__TANH:
    case CHOIR__SIGMOID:
    case CHOIR__RELU: return k->y;
    default: return k->x;
    }
}

extern "C" void choir__cuda_unary_backward(const choir__k_unary_backward *k)
{
    slopes s = {made_from(k), k->gy, k->gx, k->n, k->a, k->b, k->op};
    int lead = lead_of(choir_dtype_size(k->dtype), s.t, s.gy, s.gx);
    choose_access(k->dtype, lead,
        [&](auto a) { launch_flat<decltype(a)>(unary_backward<decltype(a)>, s, lead); });
}
