/* Functions of one element, forward and backward. value_of and gradient_of are inlined into the
 * loops with an op that the compiler knows, so each op has a loop of its own. 16-bit operands
 * are widened a run at a time. */
#include "device/cpu/isa/halves.h"
#include "device/cpu/isa/vector_math.h"

enum { RUN = 512 }; /* elements */

/* The tanh form of GELU is x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). GELU_1 is 2
 * sqrt(2/pi), and GELU_3 is that times 0.044715. Beyond x = +-10, where exp(-2u) would leave
 * the floats, nothing changes. */
#define GELU_1 1.5957691216057308f
#define GELU_3 0.0713548162726009f

INLINE vec gelu(vec x)
{
    x = v_max(v_set(-14.0f), x); /* almost 0, not -inf * 0 */
    return x * v_phi(x);
}

INLINE vec gelu_tanh(vec x)
{
    x = v_max(v_set(-10.0f), x);
    vec t = v_min(v_set(10.0f), x);
    return x / (1.0f + v_exp_within(-t * (t * t * GELU_3 + GELU_1)));
}

INLINE vec power(vec x, float a)
{
    for (int j = 0; j < W; j++)
        x[j] = choir__powf(x[j], a);
    return x;
}

/* f of each lane, for C's functions whose results are exact. */
#define EACH_LANE(f)                                                                           \
    for (int j = 0; j < W; j++)                                                                \
        x[j] = f(x[j]);                                                                        \
    return x

INLINE vec sign_of(vec x) /* 0 for NaN */
{
    vec below = v_sel(v_lt(x, v_set(0.0f)), v_set(-1.0f), v_set(0.0f));
    return v_sel(v_gt(x, v_set(0.0f)), v_set(1.0f), below);
}

INLINE vec elu(vec x, float a)
{
    return v_sel(v_gt(x, v_set(0.0f)), x, v_expm1(v_min(v_set(0.0f), x)) * a);
}

INLINE vec softplus(vec x, float beta, float threshold)
{
    vec z = x * beta;
    vec y = (v_max(v_set(0.0f), z) + v_log_1_plus(v_exp_below(-v_abs(z)))) / beta;
    return v_sel(v_gt(z, v_set(threshold)), x, y);
}

INLINE vec value_of(choir__unary_op op, vec x, float a, float b)
{
    switch (op) {
    case CHOIR__NEG: return -x;
    case CHOIR__EXP: return v_exp(x);
    case CHOIR__LOG: return v_log(x);
    case CHOIR__SQRT: return v_sqrt(x);
    case CHOIR__TANH: return v_tanh(x);
    case CHOIR__SIGMOID: return v_sigmoid(x);
    case CHOIR__RELU: return v_max(v_set(0.0f), x); /* NaN stays */
    case CHOIR__GELU: return gelu(x);
    case CHOIR__GELU_TANH: return gelu_tanh(x);
    case CHOIR__SILU: return v_silu(x);
    case CHOIR__SQUARE: return x * x;
    case CHOIR__ABS: return v_abs(x);
    case CHOIR__SIN: return v_sin(x);
    case CHOIR__COS: return v_cos(x);
    case CHOIR__SIGN: return sign_of(x);
    case CHOIR__FLOOR: EACH_LANE(floorf);
    case CHOIR__CEIL: EACH_LANE(ceilf);
    case CHOIR__ROUND: EACH_LANE(rintf);
    case CHOIR__LOG1P: return v_log_1_plus(x);
    case CHOIR__EXPM1: return v_expm1(x);
    case CHOIR__ERF: return v_erf(x);
    case CHOIR__AFFINE: return x * a + b;
    case CHOIR__POW: return power(x, a);
    case CHOIR__CLAMP: return v_min(v_set(b), v_max(v_set(a), x)); /* NaN stays */
    case CHOIR__LEAKY: return v_sel(v_gt(x, v_set(0.0f)), x, x * a);
    case CHOIR__ELU: return elu(x, a);
    case CHOIR__SOFTPLUS: return softplus(x, a, b);
    case CHOIR__UNARY_COUNT: break;
    }
    return x;
}

INLINE void map(const choir__k_unary *k, choir__unary_op op)
{
    const float *x = k->x;
    float *y = k->y, a = (float)k->a, b = (float)k->b;
    for (int64_t i = 0; i < k->n; i += W)
        v_put(y + i, value_of(op, v_get(x + i, k->n - i), a, b), k->n - i);
}

static void values(const choir__k_unary *k)
{
    switch (k->op) {
    case CHOIR__NEG: map(k, CHOIR__NEG); break;
    case CHOIR__EXP: map(k, CHOIR__EXP); break;
    case CHOIR__LOG: map(k, CHOIR__LOG); break;
    case CHOIR__SQRT: map(k, CHOIR__SQRT); break;
    case CHOIR__TANH: map(k, CHOIR__TANH); break;
    case CHOIR__SIGMOID: map(k, CHOIR__SIGMOID); break;
    case CHOIR__RELU: map(k, CHOIR__RELU); break;
    case CHOIR__GELU: map(k, CHOIR__GELU); break;
    case CHOIR__GELU_TANH: map(k, CHOIR__GELU_TANH); break;
    case CHOIR__SILU: map(k, CHOIR__SILU); break;
    case CHOIR__SQUARE: map(k, CHOIR__SQUARE); break;
    case CHOIR__ABS: map(k, CHOIR__ABS); break;
    case CHOIR__SIN: map(k, CHOIR__SIN); break;
    case CHOIR__COS: map(k, CHOIR__COS); break;
    case CHOIR__SIGN: map(k, CHOIR__SIGN); break;
    case CHOIR__FLOOR: map(k, CHOIR__FLOOR); break;
    case CHOIR__CEIL: map(k, CHOIR__CEIL); break;
    case CHOIR__ROUND: map(k, CHOIR__ROUND); break;
    case CHOIR__LOG1P: map(k, CHOIR__LOG1P); break;
    case CHOIR__EXPM1: map(k, CHOIR__EXPM1); break;
    case CHOIR__ERF: map(k, CHOIR__ERF); break;
    case CHOIR__AFFINE: map(k, CHOIR__AFFINE); break;
    case CHOIR__POW: map(k, CHOIR__POW); break;
    case CHOIR__CLAMP: map(k, CHOIR__CLAMP); break;
    case CHOIR__LEAKY: map(k, CHOIR__LEAKY); break;
    case CHOIR__ELU: map(k, CHOIR__ELU); break;
    case CHOIR__SOFTPLUS: map(k, CHOIR__SOFTPLUS); break;
    case CHOIR__UNARY_COUNT: break;
    }
}

void KERNEL(unary)(const choir__k_unary *k)
{
    float x[RUN], y[RUN];
    choir__k_unary part = *k;
    if (!is_half(k->dtype)) {
        F32_ONLY(unary, k);
        values(k);
        return;
    }
    for (int64_t i = 0; i < k->n; i += RUN) {
        part.n = choir__min(RUN, k->n - i);
        part.x = wide_part(k->x, i, part.n, k->dtype, x);
        part.y = y;
        values(&part);
        put_part(k->y, i, part.n, k->dtype, y);
    }
}

/* --- backward: gx from gy and t, which is y for the ops that are cheaper from it, else x
 * --- */

INLINE vec gelu_slope(vec x)
{
    vec t = v_min(v_set(14.0f), v_max(v_set(-14.0f), x)); /* 0 or 1 beyond, not inf * 0 */
    vec density = v_exp_within(t * t * -0.5f) * 0.398942280401432678f;
    return v_phi(t) + t * density;
}

/* s + x s (1 - s) 2u' with s = 1 / (1 + e), e = exp(-2u), so 1 - s = e s does not cancel. */
INLINE vec gelu_tanh_slope(vec x)
{
    vec t = v_min(v_set(10.0f), v_max(v_set(-10.0f), x)), z = t * t;
    vec e = v_exp_within(-t * (z * GELU_3 + GELU_1));
    vec s = 1.0f / (1.0f + e);
    return s + t * s * (e * s) * (z * (3.0f * GELU_3) + GELU_1);
}

INLINE vec abs_gradient(vec x, vec gy)
{
    vec g = v_sel(v_lt(x, v_set(0.0f)), -gy, v_set(0.0f));
    return v_sel(v_gt(x, v_set(0.0f)), gy, g);
}

INLINE vec clamp_gradient(vec x, vec gy, float a, float b)
{
    vec g = v_sel(v_lt(x, v_set(a)), v_set(0.0f), gy);
    g = v_sel(v_gt(x, v_set(b)), v_set(0.0f), g);
    return v_sel(v_eq(x, x), g, v_set(0.0f));
}

INLINE vec gradient_of(choir__unary_op op, vec t, vec gy, float a, float b)
{
    switch (op) {
    case CHOIR__NEG: return -gy;
    case CHOIR__EXP: return gy * t;
    case CHOIR__LOG: return gy / t;
    case CHOIR__SQRT: return gy * 0.5f / t;
    case CHOIR__TANH: return gy * (1.0f - t * t);
    case CHOIR__SIGMOID: return gy * (t * (1.0f - t));
    case CHOIR__RELU: return v_sel(v_gt(t, v_set(0.0f)), gy, v_set(0.0f));
    case CHOIR__GELU: return gy * gelu_slope(t);
    case CHOIR__GELU_TANH: return gy * gelu_tanh_slope(t);
    case CHOIR__SILU: return gy * v_silu_slope(t);
    case CHOIR__SQUARE: return gy * (t + t);
    case CHOIR__ABS: return abs_gradient(t, gy);
    case CHOIR__SIN: return gy * v_cos(t);
    case CHOIR__COS: return -gy * v_sin(t);
    case CHOIR__SIGN:
    case CHOIR__FLOOR:
    case CHOIR__CEIL:
    case CHOIR__ROUND: return v_set(0.0f);
    case CHOIR__LOG1P: return gy / (1.0f + t);
    case CHOIR__EXPM1: return gy * v_exp(t);
    case CHOIR__ERF: return gy * v_exp_below(-t * t) * 1.1283791670955126f; /* 2 / sqrt pi */
    case CHOIR__AFFINE: return gy * a;
    case CHOIR__POW: return a == 0 ? v_set(0.0f) : gy * a * power(t, a - 1);
    case CHOIR__CLAMP: return clamp_gradient(t, gy, a, b);
    case CHOIR__LEAKY: return v_sel(v_gt(t, v_set(0.0f)), gy, gy * a);
    case CHOIR__ELU: return v_sel(v_gt(t, v_set(0.0f)), gy, gy * a * v_exp(t));
    case CHOIR__SOFTPLUS: return v_sel(v_gt(t * a, v_set(b)), gy, gy * v_sigmoid(t * a));
    case CHOIR__UNARY_COUNT: break;
    }
    return gy;
}

INLINE void map_gradient(const choir__k_unary *k, const float *t, choir__unary_op op)
{
    const float *gy = k->gy;
    float *gx = k->gx, a = (float)k->a, b = (float)k->b;
    for (int64_t i = 0; i < k->n; i += W) {
        vec ti = t ? v_get(t + i, k->n - i) : (vec){0};
        v_put(gx + i, gradient_of(op, ti, v_get(gy + i, k->n - i), a, b), k->n - i);
    }
}

static void gradients(const choir__k_unary_backward *k)
{
    switch (k->op) {
    case CHOIR__NEG: map_gradient(k, NULL, CHOIR__NEG); break;
    case CHOIR__EXP: map_gradient(k, k->y, CHOIR__EXP); break;
    case CHOIR__LOG: map_gradient(k, k->x, CHOIR__LOG); break;
    case CHOIR__SQRT: map_gradient(k, k->y, CHOIR__SQRT); break;
    case CHOIR__TANH: map_gradient(k, k->y, CHOIR__TANH); break;
    case CHOIR__SIGMOID: map_gradient(k, k->y, CHOIR__SIGMOID); break;
    case CHOIR__RELU: map_gradient(k, k->y, CHOIR__RELU); break;
    case CHOIR__GELU: map_gradient(k, k->x, CHOIR__GELU); break;
    case CHOIR__GELU_TANH: map_gradient(k, k->x, CHOIR__GELU_TANH); break;
    case CHOIR__SILU: map_gradient(k, k->x, CHOIR__SILU); break;
    case CHOIR__SQUARE: map_gradient(k, k->x, CHOIR__SQUARE); break;
    case CHOIR__ABS: map_gradient(k, k->x, CHOIR__ABS); break;
    case CHOIR__SIN: map_gradient(k, k->x, CHOIR__SIN); break;
    case CHOIR__COS: map_gradient(k, k->x, CHOIR__COS); break;
    case CHOIR__SIGN:
    case CHOIR__FLOOR:
    case CHOIR__CEIL:
    case CHOIR__ROUND: map_gradient(k, NULL, CHOIR__SIGN); break;
    case CHOIR__LOG1P: map_gradient(k, k->x, CHOIR__LOG1P); break;
    case CHOIR__EXPM1: map_gradient(k, k->x, CHOIR__EXPM1); break;
    case CHOIR__ERF: map_gradient(k, k->x, CHOIR__ERF); break;
    case CHOIR__AFFINE: map_gradient(k, NULL, CHOIR__AFFINE); break;
    case CHOIR__POW: map_gradient(k, k->x, CHOIR__POW); break;
    case CHOIR__CLAMP: map_gradient(k, k->x, CHOIR__CLAMP); break;
    case CHOIR__LEAKY: map_gradient(k, k->x, CHOIR__LEAKY); break;
    case CHOIR__ELU: map_gradient(k, k->x, CHOIR__ELU); break;
    case CHOIR__SOFTPLUS: map_gradient(k, k->x, CHOIR__SOFTPLUS); break;
    case CHOIR__UNARY_COUNT: break;
    }
}

void KERNEL(unary_backward)(const choir__k_unary_backward *k)
{
    float x[RUN], y[RUN], gy[RUN], gx[RUN];
    choir__k_unary_backward part = *k;
    if (!is_half(k->dtype)) {
        F32_ONLY(unary_backward, k);
        gradients(k);
        return;
    }
    for (int64_t i = 0; i < k->n; i += RUN) {
        part.n = choir__min(RUN, k->n - i);
        part.y = wide_part(k->x, i, part.n, k->dtype, x);
        part.x = part.y;
        if (k->y != k->x)
            part.y = wide_part(k->y, i, part.n, k->dtype, y);
        part.gy = wide_part(k->gy, i, part.n, k->dtype, gy);
        part.gx = gx;
        gradients(&part);
        put_part(k->gx, i, part.n, k->dtype, gx);
    }
}

/* --- SwiGLU: one operand gates the other, element by element --- */

void KERNEL(swiglu)(const choir__k_swiglu *k)
{
    F32_ONLY(swiglu, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *a = (const float *)k->a + r * k->a_row;
        const float *b = (const float *)k->b + r * k->b_row;
        float *y = (float *)k->y + r * k->cols;
        for (int64_t c = 0; c < k->cols; c += W) {
            int64_t left = k->cols - c;
            v_put(y + c, v_silu(v_get(a + c, left)) * v_get(b + c, left), left);
        }
    }
}

void KERNEL(swiglu_backward)(const choir__k_swiglu_backward *k)
{
    F32_ONLY(swiglu_backward, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *a = (const float *)k->a + r * k->a_row;
        const float *b = (const float *)k->b + r * k->b_row;
        const float *gy = (const float *)k->gy + r * k->cols;
        float *ga = k->ga ? (float *)k->ga + r * k->ga_row : NULL;
        float *gb = k->gb ? (float *)k->gb + r * k->gb_row : NULL;
        for (int64_t c = 0; c < k->cols; c += W) {
            int64_t left = k->cols - c;
            vec x = v_get(a + c, left), g = v_get(gy + c, left);
            if (ga)
                v_put(ga + c, g * v_get(b + c, left) * v_silu_slope(x), left);
            if (gb)
                v_put(gb + c, g * v_silu(x), left);
        }
    }
}
