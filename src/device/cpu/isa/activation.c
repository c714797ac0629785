/* Functions of one element, forward and backward. Each op is one small function on a vector;
 * `map` inlines it into the loop. */
#include "device/cpu/isa/vector_math.h"

/* The tanh form of GELU is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). GELU_1 is 2
 * sqrt(2/pi), and GELU_3 is that times 0.044715. Beyond x = +-10, where exp(-2u) would leave
 * the floats, nothing changes. */
#define GELU_1 1.5957691216057308f
#define GELU_3 0.0713548162726009f

typedef vec unary(vec x, float a, float b);

INLINE vec op_neg(vec x, float a, float b)
{
    (void)a, (void)b;
    return -x;
}
INLINE vec op_exp(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_exp(x);
}
INLINE vec op_log(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_log(x);
}
INLINE vec op_sqrt(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_sqrt(x);
}
INLINE vec op_tanh(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_tanh(x);
}
INLINE vec op_sigmoid(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_sigmoid(x);
}
INLINE vec op_relu(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_max(v_set(0.0f), x); /* NaN stays */
}
INLINE vec op_gelu(vec x, float a, float b)
{
    (void)a, (void)b;
    x = v_max(v_set(-14.0f), x); /* almost 0, not -inf * 0 */
    return x * v_phi(x);
}
INLINE vec op_gelu_tanh(vec x, float a, float b)
{
    (void)a, (void)b;
    x = v_max(v_set(-10.0f), x);
    vec t = v_min(v_set(10.0f), x);
    return x / (1.0f + v_exp_within(-t * (t * t * GELU_3 + GELU_1)));
}
INLINE vec op_silu(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_silu(x);
}
INLINE vec op_square(vec x, float a, float b)
{
    (void)a, (void)b;
    return x * x;
}
INLINE vec op_abs(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_abs(x);
}
INLINE vec op_sin(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_sin(x);
}
INLINE vec op_cos(vec x, float a, float b)
{
    (void)a, (void)b;
    return v_cos(x);
}
INLINE vec op_affine(vec x, float a, float b)
{
    return x * a + b;
}
INLINE vec op_pow(vec x, float a, float b)
{
    (void)b;
    for (int j = 0; j < W; j++)
        x[j] = (float)pow((double)x[j], (double)a);
    return x;
}
INLINE vec op_clamp(vec x, float a, float b)
{
    return v_min(v_set(b), v_max(v_set(a), x)); /* NaN stays */
}

INLINE void map(const choir__k_unary *k, unary *op)
{
    const float *x = k->x;
    float *y = k->y, a = (float)k->a, b = (float)k->b;
    for (int64_t i = 0; i < k->n; i += W)
        v_put(y + i, op(v_get(x + i, k->n - i), a, b), k->n - i);
}

void KERNEL(unary)(const choir__k_unary *k)
{
    F32_ONLY(unary, k);
    switch (k->op) {
    case CHOIR__NEG: map(k, op_neg); break;
    case CHOIR__EXP: map(k, op_exp); break;
    case CHOIR__LOG: map(k, op_log); break;
    case CHOIR__SQRT: map(k, op_sqrt); break;
    case CHOIR__TANH: map(k, op_tanh); break;
    case CHOIR__SIGMOID: map(k, op_sigmoid); break;
    case CHOIR__RELU: map(k, op_relu); break;
    case CHOIR__GELU: map(k, op_gelu); break;
    case CHOIR__GELU_TANH: map(k, op_gelu_tanh); break;
    case CHOIR__SILU: map(k, op_silu); break;
    case CHOIR__SQUARE: map(k, op_square); break;
    case CHOIR__ABS: map(k, op_abs); break;
    case CHOIR__SIN: map(k, op_sin); break;
    case CHOIR__COS: map(k, op_cos); break;
    case CHOIR__AFFINE: map(k, op_affine); break;
    case CHOIR__POW: map(k, op_pow); break;
    case CHOIR__CLAMP: map(k, op_clamp); break;
    case CHOIR__UNARY_COUNT: break;
    }
}

/* --- backward: gx from gy and t, which is y for the ops that are cheaper from it, else x
 * --- */

typedef vec unary_gradient(vec t, vec gy, float a, float b);

INLINE vec d_neg(vec x, vec gy, float a, float b)
{
    (void)x, (void)a, (void)b;
    return -gy;
}
INLINE vec d_exp(vec y, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * y;
}
INLINE vec d_log(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy / x;
}
INLINE vec d_sqrt(vec y, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * 0.5f / y;
}
INLINE vec d_tanh(vec y, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * (1.0f - y * y);
}
INLINE vec d_sigmoid(vec y, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * (y * (1.0f - y));
}
INLINE vec d_relu(vec y, vec gy, float a, float b)
{
    (void)a, (void)b;
    return v_sel(v_gt(y, v_set(0.0f)), gy, v_set(0.0f));
}
INLINE vec d_gelu(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    vec t = v_min(v_set(14.0f), v_max(v_set(-14.0f), x)); /* 0 or 1 beyond, not inf * 0 */
    vec density = v_exp_within(t * t * -0.5f) * 0.398942280401432678f;
    return gy * (v_phi(t) + t * density);
}
/* s + x s (1 - s) 2u' with s = 1 / (1 + e), e = exp(-2u), so 1 - s = e s does not cancel. */
INLINE vec d_gelu_tanh(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    vec t = v_min(v_set(10.0f), v_max(v_set(-10.0f), x)), z = t * t;
    vec e = v_exp_within(-t * (z * GELU_3 + GELU_1));
    vec s = 1.0f / (1.0f + e);
    return gy * (s + t * s * (e * s) * (z * (3.0f * GELU_3) + GELU_1));
}
INLINE vec d_silu(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * v_silu_slope(x);
}
INLINE vec d_square(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * (x + x);
}
INLINE vec d_abs(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    vec g = v_sel(v_lt(x, v_set(0.0f)), -gy, v_set(0.0f));
    return v_sel(v_gt(x, v_set(0.0f)), gy, g);
}
INLINE vec d_sin(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    return gy * v_cos(x);
}
INLINE vec d_cos(vec x, vec gy, float a, float b)
{
    (void)a, (void)b;
    return -gy * v_sin(x);
}
INLINE vec d_affine(vec x, vec gy, float a, float b)
{
    (void)x, (void)b;
    return gy * a;
}
INLINE vec d_pow(vec x, vec gy, float a, float b)
{
    return a == 0 ? v_set(0.0f) : gy * a * op_pow(x, a - 1, b);
}
INLINE vec d_clamp(vec x, vec gy, float a, float b)
{
    vec g = v_sel(v_lt(x, v_set(a)), v_set(0.0f), gy);
    g = v_sel(v_gt(x, v_set(b)), v_set(0.0f), g);
    return v_sel(v_eq(x, x), g, v_set(0.0f));
}

INLINE void map_gradient(const choir__k_unary_backward *k, const float *t, unary_gradient *op)
{
    const float *gy = k->gy;
    float *gx = k->gx, a = (float)k->a, b = (float)k->b;
    for (int64_t i = 0; i < k->n; i += W) {
        vec ti = t ? v_get(t + i, k->n - i) : (vec){0};
        v_put(gx + i, op(ti, v_get(gy + i, k->n - i), a, b), k->n - i);
    }
}

void KERNEL(unary_backward)(const choir__k_unary_backward *k)
{
    F32_ONLY(unary_backward, k);
    switch (k->op) {
    case CHOIR__NEG: map_gradient(k, NULL, d_neg); break;
    case CHOIR__EXP: map_gradient(k, k->y, d_exp); break;
    case CHOIR__LOG: map_gradient(k, k->x, d_log); break;
    case CHOIR__SQRT: map_gradient(k, k->y, d_sqrt); break;
    case CHOIR__TANH: map_gradient(k, k->y, d_tanh); break;
    case CHOIR__SIGMOID: map_gradient(k, k->y, d_sigmoid); break;
    case CHOIR__RELU: map_gradient(k, k->y, d_relu); break;
    case CHOIR__GELU: map_gradient(k, k->x, d_gelu); break;
    case CHOIR__GELU_TANH: map_gradient(k, k->x, d_gelu_tanh); break;
    case CHOIR__SILU: map_gradient(k, k->x, d_silu); break;
    case CHOIR__SQUARE: map_gradient(k, k->x, d_square); break;
    case CHOIR__ABS: map_gradient(k, k->x, d_abs); break;
    case CHOIR__SIN: map_gradient(k, k->x, d_sin); break;
    case CHOIR__COS: map_gradient(k, k->x, d_cos); break;
    case CHOIR__AFFINE: map_gradient(k, NULL, d_affine); break;
    case CHOIR__POW: map_gradient(k, k->x, d_pow); break;
    case CHOIR__CLAMP: map_gradient(k, k->x, d_clamp); break;
    case CHOIR__UNARY_COUNT: break;
    }
}
