/* Reference kernels for the optimisers and for the norm by which gradients are clipped.
 *
 * A multi-tensor step is one call over many entries. Each is f32, and computed here in double
 * with one rounding when a number is stored. The norm's sum is the fixed tree over all rows of
 * all entries, so it does not depend on how rows are distributed over ranks. */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"
#include "device/queue.h"

static double param_of(const choir__opt_entry *e, int64_t i)
{
    return e->half ? get(e->half, i, e->half_dtype) : (double)e->param[i];
}

static void set_param(const choir__opt_entry *e, int64_t i, double p)
{
    if (e->half)
        put(e->half, i, e->half_dtype, p);
    else
        e->param[i] = (float)p;
}

static double clipped(const choir__k_optim *k, const choir__opt_entry *e, int64_t i)
{
    double g = (double)e->grad[i];
    if (k->hyper[e->group].maximize)
        g = -g;
    return k->clip ? g * (double)*k->clip : g;
}

/* Returns the step's direction with momentum, and updates the buffer m. */
static double with_momentum(const choir__opt_hyper *h, float *m, double g)
{
    double momentum = (double)h->momentum;
    double next = h->first ? g : momentum * (double)*m + (1 - (double)h->dampening) * g;
    *m = (float)next;
    return h->nesterov ? g + momentum * next : next;
}

void choir__reference_sgd(const choir__k_sgd *k)
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        for (int64_t i = 0; i < e->n; i++) {
            double p = param_of(e, i);
            double g = clipped(k, e, i) + (double)h->weight_decay * p;
            if (h->momentum != 0)
                g = with_momentum(h, &e->m[i], g);
            set_param(e, i, p - (double)h->lr * g);
        }
    }
}

void choir__reference_adam(const choir__k_adam *k)
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        double b1 = (double)h->beta1, b2 = (double)h->beta2;
        for (int64_t i = 0; i < e->n; i++) {
            double p = param_of(e, i), g = clipped(k, e, i);
            if (h->decoupled)
                p -= (double)h->lr * (double)h->weight_decay * p;
            else
                g += (double)h->weight_decay * p;
            double m = b1 * (double)e->m[i] + (1 - b1) * g;
            double v = b2 * (double)e->v[i] + (1 - b2) * g * g;
            double top = e->top && (double)e->top[i] > v ? (double)e->top[i] : v;
            if (e->top)
                e->top[i] = (float)top;
            double root = sqrt(top) * (double)h->rsqrt_bias2 + (double)h->eps;
            e->m[i] = (float)m;
            e->v[i] = (float)v;
            set_param(e, i, p - (double)h->step_size * m / root);
        }
    }
}

/* Returns element i's update, and updates its moments. */
static double lamb_update(const choir__k_lamb *k, const choir__opt_entry *e, int64_t i)
{
    const choir__opt_hyper *h = &k->hyper[e->group];
    double p = (double)e->param[i], g = clipped(k, e, i), decay = (double)h->weight_decay * p;
    if (!h->decoupled)
        g += decay;
    double m = (double)h->beta1 * (double)e->m[i] + (double)h->take1 * g;
    double v = (double)h->beta2 * (double)e->v[i] + (1 - (double)h->beta2) * g * g;
    double u = m * (double)h->inv_bias1 / (sqrt(v * (double)h->inv_bias2) + (double)h->eps);
    e->m[i] = (float)m;
    e->v[i] = (float)v;
    return h->decoupled ? u + decay : u;
}

void choir__reference_lamb(const choir__k_lamb *k)
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        double *u = malloc((size_t)(e->n + 1) * sizeof *u), pp = 0, uu = 0;
        for (int64_t i = 0; u && i < e->n; i++) {
            u[i] = lamb_update(k, e, i);
            pp += (double)e->param[i] * (double)e->param[i];
            uu += u[i] * u[i];
        }
        double rate = (double)h->lr * (h->trust && pp != 0 && uu != 0 ? sqrt(pp / uu) : 1);
        for (int64_t i = 0; u && i < e->n; i++)
            e->param[i] = (float)((double)e->param[i] - rate * u[i]);
        free(u);
    }
}

/* Writes an entry's sums of squares, one per row; returns their number. */
static int64_t row_sums(const choir__opt_entry *e, double *rows)
{
    int64_t count = e->row > 0 ? e->n / e->row : 0;
    for (int64_t r = 0; r < count; r++) {
        rows[r] = 0;
        for (int64_t i = r * e->row; i < (r + 1) * e->row; i++)
            rows[r] += (double)e->grad[i] * (double)e->grad[i];
    }
    return count;
}

static double tree_sum(const double *leaf, int64_t n)
{
    if (n <= 1)
        return n ? leaf[0] : 0;
    int64_t left = left_leaves(n);
    return tree_sum(leaf, left) + tree_sum(leaf + left, n - left);
}

void choir__reference_grad_norm(const choir__k_grad_norm *k)
{
    int64_t rows = k->given;
    for (int64_t j = 0; j < k->count; j++)
        rows += row_sums(&k->entries[j], k->rows + rows);
    if (!k->norm)
        return;
    double sum = tree_sum(k->rows, rows), inverse = k->inverse ? (double)*k->inverse : 1;
    double norm = sqrt(sum) * inverse, clip = 1;
    if (k->max_norm > 0)
        clip = (double)k->max_norm / (norm + 1e-6);
    *k->norm = (float)norm;
    /* NaN spreads to all gradients, as in PyTorch */
    *k->clip = (float)((clip > 1 ? 1 : clip) * inverse);
    if (!k->inverse)
        return;
    k->clip[1] = isfinite(sum) ? 0 : 1;
    k->clip[2] += k->clip[1];
}

void choir__reference_optim_skipped(const choir__k_optim_skipped *k)
{
    for (int g = 0; g < k->groups; g++)
        choir__opt_correct(&k->hyper[g], k->bias, k->steps - (int64_t)*k->skipped);
}

void choir__reference_unscale(const choir__k_unscale *k)
{
    for (int64_t j = 0; j < k->count; j++)
        for (int64_t i = 0; i < k->entries[j].n; i++) {
            float *grad = (float *)k->entries[j].grad + i;
            *grad = (float)((double)*grad * (double)*k->inverse);
        }
}

void choir__reference_scaler_update(const choir__k_scaler_update *k)
{
    choir__scaler_numbers *s = k->numbers;
    double found = 0, scale = (double)s->scale;
    for (int i = 0; i < k->count; i++)
        found += (double)*k->found[i];
    s->in_a_row = found != 0 ? s->in_a_row + 1 : 0;
    s->clean = found != 0 ? 0 : s->clean + 1;
    if (found != 0)
        scale *= (double)k->backoff;
    else if (s->clean >= (float)k->interval && isfinite(scale * (double)k->growth))
        scale *= (double)k->growth;
    if (s->clean >= (float)k->interval)
        s->clean = 0;
    s->scale = (float)scale;
    s->inverse = (float)(1 / scale);
    if (s->in_a_row >= (float)k->patience)
        choir__queue_fail(CHOIR_ERR_NONFINITE, "gradients were infinite or NaN in %lld steps",
            (long long)k->patience);
}
