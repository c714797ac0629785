/* Losses of pairs, element by element: a function for the loss and one for its slopes per kind,
 * which two loops inline. Logarithms near 1 are corrected for the rounding of 1 + z, as in
 * Kahan's log1p. */
#include "device/cpu/isa/vector_math.h"
#include "device/queue.h"

/* log(1 + z), z > -1: the factor z / (u - 1) corrects the rounding of u = 1 + z (Kahan). */
INLINE vec v_log1p(vec z)
{
    vec u = 1.0f + z, lost = u - 1.0f;
    vec y = v_log(u) * (z / lost);
    y = v_sel(v_eq(lost, v_set(0.0f)), z, y);
    return v_sel(v_eq(u, v_set(0.0f)), v_set(-INFINITY), y);
}

/* log(1 + exp(-x)) */
INLINE vec v_softplus_of_minus(vec x)
{
    return v_log1p(v_exp_below(-v_abs(x))) + v_max(v_set(0.0f), -x);
}

/* The values of a kernel's arguments that all elements share. */
typedef struct shared {
    vec a, b;
} shared;

typedef vec loss_fn(shared s, vec x, vec y, vec w);
typedef void slope_fn(shared s, vec x, vec y, vec w, vec *dx, vec *dy);

INLINE vec huber(shared s, vec x, vec y, vec w)
{
    vec d = v_abs(x - y);
    (void)w;
    return v_sel(v_lt(d, s.a), s.b * d * d / (2.0f * s.a), s.b * (d - 0.5f * s.a));
}

INLINE void huber_slope(shared s, vec x, vec y, vec w, vec *dx, vec *dy)
{
    vec d = x - y, far = v_sel(v_eq(d, v_set(0.0f)), d, v_sign(s.b, d));
    (void)w;
    far = v_sel(v_eq(d, d), far, d); /* NaN */
    *dx = v_sel(v_lt(v_abs(d), s.a), s.b * d / s.a, far);
    *dy = -*dx;
}

INLINE vec log_or_100(vec log)
{
    return v_max(v_set(-100.0f), log); /* v_max returns its second operand if one is NaN */
}

INLINE vec bce(shared s, vec x, vec y, vec w)
{
    (void)s, (void)w;
    return -y * log_or_100(v_log(x)) - (1.0f - y) * log_or_100(v_log1p(-x));
}

INLINE void bce_slope(shared s, vec x, vec y, vec w, vec *dx, vec *dy)
{
    (void)s, (void)w;
    *dx = (x - y) / v_max(v_set(1e-12f), (1.0f - x) * x);
    *dy = log_or_100(v_log1p(-x)) - log_or_100(v_log(x));
}

INLINE vec bce_logits(shared s, vec x, vec y, vec w)
{
    (void)s;
    return (1.0f - y) * x + (1.0f + (w - 1.0f) * y) * v_softplus_of_minus(x);
}

INLINE void bce_logits_slope(shared s, vec x, vec y, vec w, vec *dx, vec *dy)
{
    (void)s;
    *dx = (1.0f - y) - (1.0f + (w - 1.0f) * y) / (1.0f + v_exp(x));
    *dy = (w - 1.0f) * v_softplus_of_minus(x) - x;
}

INLINE vec kl(shared s, vec x, vec y, vec w)
{
    (void)s, (void)w;
    return v_sel(v_eq(y, v_set(0.0f)), v_set(0.0f), y * (v_log(y) - x));
}

INLINE void kl_slope(shared s, vec x, vec y, vec w, vec *dx, vec *dy)
{
    (void)s, (void)w;
    *dx = -y;
    *dy = v_log(y) + 1.0f - x;
}

INLINE vec kl_log(shared s, vec x, vec y, vec w)
{
    (void)s, (void)w;
    return v_exp(y) * (y - x);
}

INLINE void kl_log_slope(shared s, vec x, vec y, vec w, vec *dx, vec *dy)
{
    vec p = v_exp(y);
    (void)s, (void)w;
    *dx = -p;
    *dy = p * (y - x + 1.0f);
}

/* Returns the weights of elements i ... i + W - 1. */
INLINE vec weights_at(const float *weight, int64_t period, int64_t i, int64_t left)
{
    if (!weight)
        return v_set(1.0f);
    int64_t at = i % period;
    if (at + W <= period)
        return v_load(weight + at);
    vec w = v_set(1.0f);
    for (int64_t j = 0; j < choir__min(left, W); j++)
        w[j] = weight[(at + j) % period];
    return w;
}

INLINE void forward(const choir__k_pair_loss *k, loss_fn *loss)
{
    const float *x = k->x, *y = k->y;
    shared s = {v_set(k->a), v_set(k->b)};
    for (int64_t i = 0, left = k->n; left > 0; i += W, left -= W)
        v_put((float *)k->loss + i,
            loss(s, v_get(x + i, left), v_get(y + i, left),
                weights_at(k->weight, k->period, i, left)),
            left);
}

INLINE void backward(const choir__k_pair_loss_backward *k, slope_fn *slope)
{
    const float *x = k->x, *y = k->y, *gloss = k->gloss;
    float *gx = k->gx, *gy = k->gy;
    shared s = {v_set(k->a), v_set(k->b)};
    for (int64_t i = 0, left = k->n; left > 0; i += W, left -= W) {
        vec g = v_get(gloss + i, left), dx, dy;
        slope(s, v_get(x + i, left), v_get(y + i, left),
            weights_at(k->weight, k->period, i, left), &dx, &dy);
        if (gx)
            v_put(gx + i, g * dx, left);
        if (gy)
            v_put(gy + i, g * dy, left);
    }
}

static bool probabilities(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] < 0 || x[i] > 1) {
            choir__queue_fail(CHOIR_ERR_RANGE,
                "bce_loss: expected a probability, got %g, element %lld; "
                "bce_with_logits_loss takes scores",
                (double)x[i], (long long)i);
            return false;
        }
    return true;
}

void KERNEL(pair_loss)(const choir__k_pair_loss *k)
{
    F32_ONLY(pair_loss, k);
    switch (k->kind) {
    case CHOIR__HUBER: forward(k, huber); break;
    case CHOIR__BCE:
        if (probabilities(k->x, k->n))
            forward(k, bce);
        break;
    case CHOIR__BCE_LOGITS: forward(k, bce_logits); break;
    case CHOIR__KL: forward(k, kl); break;
    case CHOIR__KL_LOG: forward(k, kl_log); break;
    }
}

void KERNEL(pair_loss_backward)(const choir__k_pair_loss_backward *k)
{
    F32_ONLY(pair_loss_backward, k);
    switch (k->kind) {
    case CHOIR__HUBER: backward(k, huber_slope); break;
    case CHOIR__BCE: backward(k, bce_slope); break;
    case CHOIR__BCE_LOGITS: backward(k, bce_logits_slope); break;
    case CHOIR__KL: backward(k, kl_slope); break;
    case CHOIR__KL_LOG: backward(k, kl_log_slope); break;
    }
}
