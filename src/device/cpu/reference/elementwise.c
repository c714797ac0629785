/* Reference kernels, element by element: y[i] depends on x[i] alone.
 *
 * op() and op_derivative() contain the mathematics; the rest is loops. A backward kernel may
 * get x or y as NULL if its op does not need it, so each is read only where it is used. */
#include "device/cpu/reference/reference.h"

static const double sqrt_half = 0.70710678118654752440;      /* 1 / sqrt 2 */
static const double sqrt_2_over_pi = 0.79788456080286535588; /* factor of GELU's tanh form */
static const double inv_sqrt_2_pi = 0.39894228040143267794;  /* the normal density at 0 */
static const double gelu_cubic = 0.044715;
static const double inv_sqrt_pi = 0.56418958354775628695; /* 1 / sqrt pi */

static double sigmoid(double x)
{
    if (x >= 0)
        return 1 / (1 + choir__exp(-x));
    double e = choir__exp(x); /* NaN also gets here, and stays */
    return e / (1 + e);
}

/* x times the share of the normal distribution below x. erfc stays accurate where x is far
 * below 0; there the limit is 0, while -inf * 0 would be NaN. */
static double gelu(double x)
{
    return x == -INFINITY ? 0 : 0.5 * x * choir__erfc(-x * sqrt_half);
}

/* 0.5 (1 + tanh u) is sigmoid(2 u), which stays accurate below 0. */
static double gelu_tanh(double x)
{
    return x == -INFINITY ? 0 : x * sigmoid(2 * sqrt_2_over_pi * (x + gelu_cubic * x * x * x));
}

static double silu(double x)
{
    return x == -INFINITY ? 0 : x * sigmoid(x);
}

static double clamp(double x, double a, double b)
{
    double least = x < a ? a : x; /* NaN stays */
    return least > b ? b : least;
}

static double softplus(double x, double beta, double threshold)
{
    double z = x * beta;
    return z > threshold ? x : ((z < 0 ? 0 : z) + choir__log1p(choir__exp(-fabs(z)))) / beta;
}

static double op(choir__unary_op kind, double x, double a, double b)
{
    switch (kind) {
    case CHOIR__NEG: return -x;
    case CHOIR__EXP: return choir__exp(x);
    case CHOIR__LOG: return choir__log(x);
    case CHOIR__SQRT: return sqrt(x);
    case CHOIR__TANH: return choir__tanh(x);
    case CHOIR__SIGMOID: return sigmoid(x);
    case CHOIR__RELU: return x < 0 ? 0 : x; /* NaN stays NaN */
    case CHOIR__GELU: return gelu(x);
    case CHOIR__GELU_TANH: return gelu_tanh(x);
    case CHOIR__SILU: return silu(x);
    case CHOIR__SQUARE: return x * x;
    case CHOIR__ABS: return fabs(x);
    case CHOIR__SIN: return choir__sin(x);
    case CHOIR__COS: return choir__cos(x);
    case CHOIR__SIGN: return (x > 0) - (x < 0);
    case CHOIR__FLOOR: return floor(x);
    case CHOIR__CEIL: return ceil(x);
    case CHOIR__ROUND: return rint(x);
    case CHOIR__LOG1P: return choir__log1p(x);
    case CHOIR__EXPM1: return choir__expm1(x);
    case CHOIR__ERF: return choir__erf(x);
    case CHOIR__AFFINE: return a * x + b;
    case CHOIR__POW: return choir__pow(x, a);
    case CHOIR__CLAMP: return clamp(x, a, b);
    case CHOIR__LEAKY: return x > 0 ? x : a * x;
    case CHOIR__ELU: return x > 0 ? x : a * choir__expm1(x);
    case CHOIR__SOFTPLUS: return softplus(x, a, b);
    case CHOIR__UNARY_COUNT: break;
    }
    return NAN;
}

/* (x Phi(x))' = Phi(x) + x phi(x) */
static double gelu_derivative(double x)
{
    double share = 0.5 * choir__erfc(-x * sqrt_half);
    return isinf(x) ? share : share + x * inv_sqrt_2_pi * choir__exp(-0.5 * x * x);
}

/* With s = sigmoid(2 u(x)): (x s)' = s + x s (1 - s) 2 u'(x) */
static double gelu_tanh_derivative(double x)
{
    double s = sigmoid(2 * sqrt_2_over_pi * (x + gelu_cubic * x * x * x));
    double u1 = sqrt_2_over_pi * (1 + 3 * gelu_cubic * x * x);
    double bell = s * (1 - s);
    return bell == 0 ? s : s + x * bell * 2 * u1;
}

static double silu_derivative(double x)
{
    double s = sigmoid(x);
    return isinf(x) ? s : s + x * s * (1 - s);
}

static double op_derivative(const choir__k_unary_backward *k, int64_t i)
{
    choir__unary_op kind = k->op;
    bool from_y = kind == CHOIR__EXP || kind == CHOIR__SQRT || kind == CHOIR__TANH ||
                  kind == CHOIR__SIGMOID || kind == CHOIR__RELU;
    bool constant = kind == CHOIR__NEG || kind == CHOIR__AFFINE;
    double x = from_y || constant ? 0 : get(k->x, i, k->dtype);
    double y = from_y ? get(k->y, i, k->dtype) : 0;
    switch (kind) {
    case CHOIR__NEG: return -1;
    case CHOIR__EXP: return y;
    case CHOIR__LOG: return 1 / x;
    case CHOIR__SQRT: return 0.5 / y;
    case CHOIR__TANH: return 1 - y * y;
    case CHOIR__SIGMOID: return y * (1 - y);
    case CHOIR__RELU: return y > 0 ? 1 : 0;
    case CHOIR__GELU: return gelu_derivative(x);
    case CHOIR__GELU_TANH: return gelu_tanh_derivative(x);
    case CHOIR__SILU: return silu_derivative(x);
    case CHOIR__SQUARE: return 2 * x;
    case CHOIR__ABS: return (x > 0) - (x < 0);
    case CHOIR__SIN: return choir__cos(x);
    case CHOIR__COS: return -choir__sin(x);
    case CHOIR__SIGN:
    case CHOIR__FLOOR:
    case CHOIR__CEIL:
    case CHOIR__ROUND: return 0;
    case CHOIR__LOG1P: return 1 / (1 + x);
    case CHOIR__EXPM1: return choir__exp(x);
    case CHOIR__ERF: return 2 * inv_sqrt_pi * choir__exp(-x * x);
    case CHOIR__AFFINE: return k->a;
    case CHOIR__POW: return k->a == 0 ? 0 : k->a * choir__pow(x, k->a - 1);
    case CHOIR__CLAMP: return x >= k->a && x <= k->b;
    case CHOIR__LEAKY: return x > 0 ? 1 : k->a;
    case CHOIR__ELU: return x > 0 ? 1 : k->a * choir__exp(x);
    case CHOIR__SOFTPLUS: return x * k->a > k->b ? 1 : sigmoid(x * k->a);
    case CHOIR__UNARY_COUNT: break;
    }
    return NAN;
}

void choir__reference_unary(const choir__k_unary *k)
{
    for (int64_t i = 0; i < k->n; i++)
        put(k->y, i, k->dtype, op(k->op, get(k->x, i, k->dtype), k->a, k->b));
}

/* Ops that pass nothing on where their slope is 0, not even NaN. */
static bool shuts(choir__unary_op kind)
{
    return kind == CHOIR__RELU || kind == CHOIR__CLAMP ||
           (kind >= CHOIR__SIGN && kind <= CHOIR__ROUND);
}

void choir__reference_unary_backward(const choir__k_unary_backward *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        double gy = get(k->gy, i, k->dtype), slope = op_derivative(k, i);
        bool shut = slope == 0 && shuts(k->op);
        put(k->gx, i, k->dtype, shut ? 0 : gy * slope);
    }
}

static double join(choir__binary_op kind, double a, double b)
{
    switch (kind) {
    case CHOIR__ADD: return a + b;
    case CHOIR__SUB: return a - b;
    case CHOIR__MUL: return a * b;
    case CHOIR__DIV: return a / b;
    case CHOIR__POWER: return choir__pow(a, b);
    case CHOIR__MAXIMUM: return isnan(a) || a > b ? a : b;
    case CHOIR__MINIMUM: return isnan(a) || a < b ? a : b;
    case CHOIR__PORTION: return a < b ? 0 : a == b ? 0.5 : 1;
    case CHOIR__BINARY_COUNT: break;
    }
    return NAN;
}

void choir__reference_binary(const choir__k_binary *k)
{
    int64_t index[CHOIR__MAX_DIMS] = {0};
    if (is_empty(k->shape, k->ndim))
        return;
    do {
        double a = get(k->a.p, offset_of(&k->a, index, k->ndim), k->dtype);
        double b = get(k->b.p, offset_of(&k->b, index, k->ndim), k->dtype);
        put(k->y.p, offset_of(&k->y, index, k->ndim), k->dtype, join(k->op, a, b));
    } while (next_index(index, k->shape, k->ndim));
}

void choir__reference_round(const choir__k_round *k)
{
    for (int32_t r = 0; r < k->count; r++)
        for (int64_t i = 0; i < k->run[r].n; i++)
            put(k->run[r].y, i, k->dtype, (double)k->run[r].x[i]);
}

/* A node of the gradient tree is defined bit by bit, so f32 is added in f32. */
void choir__reference_add_scaled(const choir__k_add_scaled *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        choir_dtype b_dtype = k->b_half ? (choir_dtype)k->b_half : k->dtype;
        double a = get(k->a, i, k->dtype), b = get_or(k->b, i, b_dtype, 0);
        double sum = k->b ? a + b : a;
        if (k->dtype == CHOIR_F32)
            sum = (float)sum; /* a double sum of two floats, rounded, is their float sum */
        put(k->y, i, k->dtype, sum * (double)k->scale);
    }
}

void choir__reference_swiglu(const choir__k_swiglu *k)
{
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t c = 0; c < k->cols; c++) {
            double a = get(k->a, r * k->a_row + c, k->dtype);
            double b = get(k->b, r * k->b_row + c, k->dtype);
            put(k->y, r * k->cols + c, k->dtype, silu(a) * b);
        }
}

void choir__reference_swiglu_backward(const choir__k_swiglu_backward *k)
{
    for (int64_t r = 0; r < k->rows; r++)
        for (int64_t c = 0; c < k->cols; c++) {
            double a = get(k->a, r * k->a_row + c, k->dtype);
            double b = get(k->b, r * k->b_row + c, k->dtype);
            double gy = get(k->gy, r * k->cols + c, k->dtype);
            if (k->ga)
                put(k->ga, r * k->ga_row + c, k->dtype, gy * b * silu_derivative(a));
            if (k->gb)
                put(k->gb, r * k->gb_row + c, k->dtype, gy * silu(a));
        }
}
