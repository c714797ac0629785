/* Reference kernels for losses of pairs: device/kernels.h has the formulas. */
#include "device/cpu/reference/reference.h"
#include "device/queue.h"

static double softplus_of_minus(double x)
{
    return choir__log1p(choir__exp(-fabs(x))) + fmax(-x, 0);
}

static double clamped_log(double x)
{
    return fmax(choir__log(x), -100);
}

static double weight_of(const void *weight, int64_t i, int64_t period, choir_dtype dtype)
{
    return weight ? get(weight, i % period, dtype) : 1;
}

static double loss_of(const choir__k_pair_loss *k, int64_t i, double x, double y)
{
    double d = fabs(x - y), a = (double)k->a, b = (double)k->b;
    switch (k->kind) {
    case CHOIR__HUBER: return d < a ? b * d * d / (2 * a) : b * (d - a / 2);
    case CHOIR__BCE: return -y * clamped_log(x) - (1 - y) * fmax(choir__log1p(-x), -100);
    case CHOIR__BCE_LOGITS: {
        double w = weight_of(k->weight, i, k->period, k->dtype);
        return (1 - y) * x + (1 + (w - 1) * y) * softplus_of_minus(x);
    }
    case CHOIR__KL: return y > 0 ? y * (choir__log(y) - x) : isnan(y) ? y : 0;
    case CHOIR__KL_LOG: return choir__exp(y) * (y - x);
    }
    return NAN;
}

void choir__reference_pair_loss(const choir__k_pair_loss *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        double x = get(k->x, i, k->dtype), y = get(k->y, i, k->dtype);
        if (k->kind == CHOIR__BCE && (x < 0 || x > 1)) {
            choir__queue_fail(CHOIR_ERR_RANGE,
                "bce_loss: expected a probability, got %g, element %lld; "
                "bce_with_logits_loss takes scores",
                x, (long long)i);
            return;
        }
        put(k->loss, i, k->dtype, loss_of(k, i, x, y));
    }
}

/* Computes both derivatives. */
static void slopes(
    const choir__k_pair_loss_backward *k, int64_t i, double x, double y, double *dx, double *dy)
{
    double d = x - y, a = (double)k->a, b = (double)k->b, w;
    switch (k->kind) {
    case CHOIR__HUBER:
        *dx = fabs(d) < a ? b * d / a : d > 0 ? b : d < 0 ? -b : d;
        *dy = -*dx;
        break;
    case CHOIR__BCE:
        *dx = (x - y) / fmax((1 - x) * x, 1e-12);
        *dy = fmax(choir__log1p(-x), -100) - clamped_log(x);
        break;
    case CHOIR__BCE_LOGITS:
        w = weight_of(k->weight, i, k->period, k->dtype);
        *dx = (1 - y) - (1 + (w - 1) * y) / (1 + choir__exp(x));
        *dy = (w - 1) * softplus_of_minus(x) - x;
        break;
    case CHOIR__KL:
        *dx = -y;
        *dy = choir__log(y) + 1 - x;
        break;
    case CHOIR__KL_LOG:
        *dx = -choir__exp(y);
        *dy = choir__exp(y) * (y - x + 1);
        break;
    }
}

void choir__reference_pair_loss_backward(const choir__k_pair_loss_backward *k)
{
    for (int64_t i = 0; i < k->n; i++) {
        double dx = NAN, dy = NAN, g = get(k->gloss, i, k->dtype);
        slopes(k, i, get(k->x, i, k->dtype), get(k->y, i, k->dtype), &dx, &dy);
        if (k->gx)
            put(k->gx, i, k->dtype, g * dx);
        if (k->gy)
            put(k->gy, i, k->dtype, g * dy);
    }
}
