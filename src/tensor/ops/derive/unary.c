/* Second derivatives of functions of one element: gy times the slope, written in ops of x, or
 * of y where that is simpler. */
#include <math.h>

#include <choir/select.h>

#include "tensor/ops/derive/derive.h"

/* 1 - y^2 */
static choir_tensor *one_less_square(choir_tensor *y)
{
    return choir_affine(choir_square(y), -1, 1);
}

/* Phi(x) + x phi(x) */
static choir_tensor *gelu_slope(choir_tensor *x)
{
    choir_tensor *share =
        choir_affine(choir_erf(choir_scale(x, 0.70710678118654752440)), 0.5, 0.5);
    choir_tensor *density =
        choir_scale(choir_exp(choir_scale(choir_square(x), -0.5)), 0.39894228040143267794);
    return choir_add(share, choir_mul(x, density));
}

/* (1 + t) / 2 + x (1 - t^2) u' / 2, with t = tanh u, u = sqrt(2/pi) (x + 0.044715 x^3) */
static choir_tensor *gelu_tanh_slope(choir_tensor *x)
{
    const double root = 0.79788456080286535588, cubic = 0.044715;
    choir_tensor *z = choir_square(x);
    choir_tensor *t = choir_tanh(choir_mul(x, choir_affine(z, root * cubic, root)));
    choir_tensor *rise = choir_affine(z, 3 * root * cubic, root);
    choir_tensor *bend = choir_mul(choir_mul(x, one_less_square(t)), rise);
    return choir_affine(choir_add(t, bend), 0.5, 0.5);
}

/* s + x s (1 - s) */
static choir_tensor *silu_slope(choir_tensor *x)
{
    choir_tensor *s = choir_sigmoid(x);
    return choir_add(s, choir_mul(x, choir_sub(s, choir_square(s))));
}

/* gy where x is greater than 0, and gy times `slope` elsewhere */
static choir_tensor *bent(choir_tensor *x, choir_tensor *gy, choir_tensor *slope)
{
    return choir_where(choir_compare(x, CHOIR_GT, 0), gy, choir_mul(gy, slope));
}

/* a exp(x), where x is not above 0 */
static choir_tensor *elu_slope(choir_tensor *x, double a)
{
    return choir_scale(choir_exp(choir_clamp(x, -INFINITY, 0)), a);
}

static choir_tensor *clamped(const choir__k_unary *k, choir_tensor *x, choir_tensor *gy)
{
    choir_tensor *inside =
        choir_logical_and(choir_compare(x, CHOIR_GE, k->a), choir_compare(x, CHOIR_LE, k->b));
    return choir_masked_fill(gy, choir_logical_not(inside), 0);
}

static choir_tensor *softplus(const choir__k_unary *k, choir_tensor *x, choir_tensor *gy)
{
    choir_tensor *z = choir_scale(x, k->a);
    return choir_where(choir_compare(z, CHOIR_GT, k->b), gy, choir_mul(gy, choir_sigmoid(z)));
}

static choir_tensor *derived(
    const choir__k_unary *k, choir_tensor *x, choir_tensor *y, choir_tensor *gy)
{
    switch (k->op) {
    case CHOIR__NEG: return choir_neg(gy);
    case CHOIR__EXP: return choir_mul(gy, y);
    case CHOIR__LOG: return choir_div(gy, x);
    case CHOIR__SQRT: return choir_div(choir_scale(gy, 0.5), y);
    case CHOIR__TANH: return choir_mul(gy, one_less_square(y));
    case CHOIR__SIGMOID: return choir_mul(gy, choir_sub(y, choir_square(y)));
    case CHOIR__RELU: return choir_masked_fill(gy, choir_compare(y, CHOIR_LE, 0), 0);
    case CHOIR__GELU: return choir_mul(gy, gelu_slope(x));
    case CHOIR__GELU_TANH: return choir_mul(gy, gelu_tanh_slope(x));
    case CHOIR__SILU: return choir_mul(gy, silu_slope(x));
    case CHOIR__SQUARE: return choir_mul(gy, choir_scale(x, 2));
    case CHOIR__ABS: return choir_mul(gy, choir_sign(x));
    case CHOIR__SIN: return choir_mul(gy, choir_cos(x));
    case CHOIR__COS: return choir_neg(choir_mul(gy, choir_sin(x)));
    case CHOIR__SIGN:
    case CHOIR__FLOOR:
    case CHOIR__CEIL:
    case CHOIR__ROUND: return NULL;
    case CHOIR__LOG1P: return choir_div(gy, choir_affine(x, 1, 1));
    case CHOIR__EXPM1: return choir_mul(gy, choir_affine(y, 1, 1));
    case CHOIR__ERF:
        return choir_mul(
            gy, choir_scale(choir_exp(choir_neg(choir_square(x))), 1.12837916709551257390));
    case CHOIR__AFFINE: return choir_scale(gy, k->a);
    case CHOIR__POW:
        return k->a == 0 ? NULL : choir_mul(gy, choir_scale(choir_pow(x, k->a - 1), k->a));
    case CHOIR__CLAMP: return clamped(k, x, gy);
    case CHOIR__LEAKY:
        return choir_where(choir_compare(x, CHOIR_GT, 0), gy, choir_scale(gy, k->a));
    case CHOIR__ELU: return bent(x, gy, elu_slope(x, k->a));
    case CHOIR__SOFTPLUS: return softplus(k, x, gy);
    case CHOIR__UNARY_COUNT: break;
    }
    return NULL;
}

void choir__derive_unary(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    const choir__unary *u = r->attrs;
    choir__k_unary k = {.op = u->op, .a = u->a, .b = u->b};
    gx[0] = derived(&k, choir__derive_in(r, 0, gy), r->out, gy);
}
