/* Reference kernels of connectionist temporal classification: device/kernels/ctc.h has the
 * formulas. */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"
#include "device/queue.h"

/* One sequence. */
typedef struct sequence {
    const choir__k_ctc *k;
    int64_t b, steps, states, width;
} sequence;

static bool find(const choir__k_ctc *k, int64_t b, sequence *q)
{
    int64_t value, limit;
    choir__ctc_part part = choir__ctc_check(k, b, &value, &limit);
    *q = (sequence){k, b, k->input_lengths[b], 2 * k->target_lengths[b] + 1, 2 * k->most + 1};
    if (part != CHOIR__CTC_PARTS)
        choir__queue_fail(CHOIR_ERR_RANGE, CHOIR__CTC_FAULT, choir__ctc_part_text(part),
            (long long)limit, (long long)value, (long long)b);
    return part == CHOIR__CTC_PARTS;
}

static int64_t label_of(const sequence *q, int64_t s)
{
    return s % 2 ? q->k->targets[q->b * q->k->most + s / 2] : q->k->blank;
}

/* True if a path may go from state s - 2 to s. */
static bool skips(const sequence *q, int64_t s)
{
    return s % 2 && s >= 3 && s < q->states && label_of(q, s) != label_of(q, s - 2);
}

static int64_t x_at(const sequence *q, int64_t t, int64_t label)
{
    return (t * q->k->batch + q->b) * q->k->classes + label;
}

static double x_of(const sequence *q, int64_t t, int64_t s)
{
    return get(q->k->x, x_at(q, t, label_of(q, s)), q->k->dtype);
}

static double alpha_of(const sequence *q, int64_t t, int64_t s)
{
    return s < 0 ? -INFINITY
                 : get(q->k->alpha, (q->b * q->k->steps + t) * q->width + s, q->k->dtype);
}

static double log_sum_exp(double a, double b, double c)
{
    double top = fmax(fmax(a, b), c);
    top = top > -INFINITY ? top : 0;
    return top + choir__log(choir__exp(a - top) + choir__exp(b - top) + choir__exp(c - top));
}

/* Returns the greatest value of a row; 0 if all are -inf. */
static double top_of(const double *row, int64_t n)
{
    double top = -INFINITY;
    for (int64_t s = 0; s < n; s++)
        top = fmax(top, row[s]);
    return top > -INFINITY ? top : 0;
}

/* Writes alpha and returns the loss. */
static double forward(const sequence *q)
{
    const choir__k_ctc *k = q->k;
    double *row = choir__alloc((size_t)q->width * sizeof *row), offset = 0, top = 0;
    for (int64_t t = 0; t < k->steps; t++) {
        for (int64_t s = 0; s < q->width; s++) {
            row[s] = -INFINITY;
            if (t >= q->steps || s >= q->states)
                continue;
            if (t == 0 && s < 2)
                row[s] = x_of(q, t, s);
            if (t > 0)
                row[s] = x_of(q, t, s) - top +
                         log_sum_exp(alpha_of(q, t - 1, s), alpha_of(q, t - 1, s - 1),
                             skips(q, s) ? alpha_of(q, t - 1, s - 2) : -INFINITY);
        }
        for (int64_t s = 0; s < q->width; s++)
            put(k->alpha, (q->b * k->steps + t) * q->width + s, k->dtype, row[s]);
        offset += t < q->steps ? top : 0;
        top = top_of(row, q->states);
    }
    free(row);
    if (q->steps == 0)
        return q->states == 1 ? 0 : INFINITY;
    return -(offset + log_sum_exp(alpha_of(q, q->steps - 1, q->states - 1),
                          alpha_of(q, q->steps - 1, q->states - 2), -INFINITY));
}

void choir__reference_ctc(const choir__k_ctc *k)
{
    sequence q;
    for (int64_t b = 0; b < k->batch; b++) {
        if (!find(k, b, &q))
            return;
        double loss = forward(&q);
        put(k->loss, b, k->dtype, k->zero_infinity && isinf(loss) ? 0 : loss);
    }
}

/* The gradient of step t, from after[s] = log of the probability of all ends from state s on
 * (step t's own excluded), up to a factor that cancels. */
static void step_backward(const sequence *q, int64_t t, const double *after, double *p)
{
    const choir__k_ctc *k = q->k;
    double g = get(k->gloss, q->b, k->dtype), sum = 0;
    for (int64_t s = 0; s < q->states; s++)
        p[s] = alpha_of(q, t, s) + after[s];
    double top = top_of(p, q->states);
    for (int64_t s = 0; s < q->states; s++)
        sum += p[s] = choir__exp(p[s] - top);
    for (int64_t s = 0; s < q->states; s++) {
        int64_t at = x_at(q, t, label_of(q, s));
        put(k->gx, at, k->dtype, get(k->gx, at, k->dtype) - g * p[s] / sum);
    }
}

/* Goes from the ends of step t + 1 to the ends of step t. */
static void go_back(const sequence *q, int64_t t, double *after, double *p)
{
    for (int64_t s = 0; s < q->states; s++)
        p[s] = after[s] + x_of(q, t + 1, s);
    double top = top_of(p, q->states);
    for (int64_t s = 0; s < q->states; s++)
        after[s] = log_sum_exp(p[s], s + 1 < q->states ? p[s + 1] : -INFINITY,
                       skips(q, s + 2) ? p[s + 2] : -INFINITY) -
                   top;
}

static void backward(const sequence *q)
{
    const choir__k_ctc *k = q->k;
    double *after = choir__alloc((size_t)q->states * sizeof *after);
    double *p = choir__alloc((size_t)q->states * sizeof *p);
    int64_t last = q->steps - 1;
    bool none = last >= 0 && alpha_of(q, last, q->states - 1) == -INFINITY &&
                alpha_of(q, last, q->states - 2) == -INFINITY;
    for (int64_t s = 0; s < q->states; s++)
        after[s] = s >= q->states - 2 ? 0 : -INFINITY;
    for (int64_t t = last; t >= 0; t--) {
        if (!none)
            step_backward(q, t, after, p);
        else if (!k->zero_infinity)
            for (int64_t c = 0; c < k->classes; c++)
                put(k->gx, x_at(q, t, c), k->dtype, NAN);
        if (t > 0)
            go_back(q, t - 1, after, p);
    }
    free(after);
    free(p);
}

void choir__reference_ctc_backward(const choir__k_ctc *k)
{
    sequence q;
    for (int64_t i = 0; i < k->steps * k->batch * k->classes; i++)
        put(k->gx, i, k->dtype, 0);
    for (int64_t b = 0; b < k->batch; b++)
        if (find(k, b, &q))
            backward(&q);
}
