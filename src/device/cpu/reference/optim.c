/* Reference kernels for the optimisers and the norm that gradients are clipped by.
 *
 * A multi-tensor step is one call over many entries; each is f32, and computed here in double
 * with one rounding when a number is stored. The norm's sum is the fixed tree over all rows of
 * all entries, so that whoever holds which rows cannot change it. */
#include <stdlib.h>

#include "device/cpu/reference/reference.h"

static double clipped(const choir__k_optim *k, const choir__opt_entry *e, int64_t i)
{
    double g = (double)e->grad[i];
    if (k->hyper[e->group].maximize)
        g = -g;
    return k->clip ? g * (double)*k->clip : g;
}

/* The step's direction with momentum; keeps the buffer m. */
static double with_momentum(const choir__opt_hyper *h, float *m, double g)
{
    double momentum = (double)h->momentum;
    double next = h->first ? g : momentum * (double)*m + (1 - (double)h->dampening) * g;
    *m = (float)next;
    return h->nesterov ? g + momentum * next : next;
}

void choir__reference_sgd(const choir__k_sgd *k)
{
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        for (int64_t i = 0; i < e->n; i++) {
            double p = (double)e->param[i];
            double g = clipped(k, e, i) + (double)h->weight_decay * p;
            if (h->momentum != 0)
                g = with_momentum(h, &e->m[i], g);
            e->param[i] = (float)(p - (double)h->lr * g);
        }
    }
}

void choir__reference_adam(const choir__k_adam *k)
{
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        double b1 = (double)h->beta1, b2 = (double)h->beta2;
        for (int64_t i = 0; i < e->n; i++) {
            double p = (double)e->param[i], g = clipped(k, e, i);
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
            e->param[i] = (float)(p - (double)h->step_size * m / root);
        }
    }
}

/* Element i's update; moves its moments. */
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

/* Writes an entry's sums of squares, one for each row; returns how many. */
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
    double norm = sqrt(tree_sum(k->rows, rows));
    double clip = 1;
    if (k->max_norm > 0)
        clip = (double)k->max_norm / (norm + 1e-6);
    *k->norm = (float)norm;
    *k->clip = (float)(clip > 1 ? 1 : clip); /* NaN, as in PyTorch, poisons the step */
}
