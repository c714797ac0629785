/* Reference kernels for the optimisers and for the norm that clips gradients.
 *
 * A multi-tensor step is one call over many entries. Each is f32, and computed here in double
 * with one rounding when a number is stored. The norm's sum is the fixed tree over all rows of
 * all entries, so it does not depend on how rows are distributed over ranks. */
#include <stdlib.h>

#include "device/code_map.h"
#include "device/cpu/reference/reference.h"
#include "device/kernels/arithmetic.h"
#include "device/queue.h"

/* True if the parameter and its numbers are f64. */
static bool is_wide(const choir__opt_entry *e)
{
    return !e->half && e->half_dtype == CHOIR_F64;
}

/* Return and set number i of an entry's array, f64 or f32. */
static double number_of(const choir__opt_entry *e, const float *x, int64_t i)
{
    return get(x, i, is_wide(e) ? CHOIR_F64 : CHOIR_F32);
}

static void set_number(const choir__opt_entry *e, float *x, int64_t i, double value)
{
    put(x, i, is_wide(e) ? CHOIR_F64 : CHOIR_F32, value);
}

static double param_of(const choir__opt_entry *e, int64_t i)
{
    return e->half ? get(e->half, i, e->half_dtype) : number_of(e, e->param, i);
}

static void set_param(const choir__opt_entry *e, int64_t i, double p)
{
    if (e->half)
        put(e->half, i, e->half_dtype, p);
    else
        set_number(e, e->param, i, p);
}

static double clipped(const choir__k_optim *k, const choir__opt_entry *e, int64_t i)
{
    double g = number_of(e, e->grad, i);
    if (k->hyper[e->group].maximize)
        g = -g;
    return k->clip ? g * (double)*k->clip : g;
}

/* Returns the step's direction with momentum, and updates the buffer m. */
static double with_momentum(
    const choir__opt_entry *e, const choir__opt_hyper *h, int64_t i, double g)
{
    double momentum = (double)h->momentum;
    double next =
        h->first ? g : momentum * number_of(e, e->m, i) + (1 - (double)h->dampening) * g;
    set_number(e, e->m, i, next);
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
                g = with_momentum(e, h, i, g);
            set_param(e, i, p - (double)h->lr * g);
        }
    }
}

static void adam_entry(const choir__k_adam *k, const choir__opt_entry *e)
{
    const choir__opt_hyper *h = &k->hyper[e->group];
    double b1 = (double)h->beta1, b2 = (double)h->beta2;
    double step_size = (double)h->step_size + (is_wide(e) ? (double)h->inv_bias1 : 0);
    double rsqrt_bias2 = (double)h->rsqrt_bias2 + (is_wide(e) ? (double)h->inv_bias2 : 0);
    for (int64_t i = 0; i < e->n; i++) {
        double p = param_of(e, i), g = clipped(k, e, i);
        if (h->decoupled)
            p -= (double)h->lr * (double)h->weight_decay * p;
        else
            g += (double)h->weight_decay * p;
        double m = b1 * number_of(e, e->m, i) + (1 - b1) * g;
        double v = b2 * number_of(e, e->v, i) + (1 - b2) * g * g;
        double top = e->top && number_of(e, e->top, i) > v ? number_of(e, e->top, i) : v;
        if (e->top)
            set_number(e, e->top, i, top);
        double root = sqrt(top) * rsqrt_bias2 + (double)h->eps;
        set_number(e, e->m, i, m);
        set_number(e, e->v, i, v);
        set_param(e, i, p - step_size * m / root);
    }
}

/* Returns the code whose number is nearest to x, which is at most 1. */
static uint8_t nearest(const float *value, double x)
{
    int best = 0;
    for (int i = 1; i < 256; i++)
        if (fabs((double)value[i] - x) < fabs((double)value[best] - x))
            best = i;
    return (uint8_t)best;
}

/* Stores n numbers as codes; with signs kept, even where zero is nearer. */
static void encode(uint8_t *codes, float *most, const float *x, int64_t n, const float *value)
{
    *most = 0;
    for (int64_t i = 0; i < n; i++)
        *most = CHOIR__SURPASSES(fabsf(x[i]), *most) ? fabsf(x[i]) : *most;
    for (int64_t i = 0; i < n; i++) {
        codes[i] = nearest(value, *most > 0 ? (double)x[i] / (double)*most : 0);
        if (x[i] < 0 && value[codes[i]] >= 0)
            codes[i]--;
        if (x[i] > 0 && value[codes[i]] < 0)
            codes[i]++;
    }
}

/* Adam on elements [at, at + n) of an entry, whose state is the codes of a block. */
static void coded_block(
    const choir__k_adam *k, const choir__opt_entry *e, int64_t at, int64_t block, int64_t n)
{
    const choir__code_maps *maps = choir__code_maps_get();
    float m[CHOIR__CODED_BLOCK], v[CHOIR__CODED_BLOCK];
    choir__opt_entry part = {.param = e->half ? NULL : e->param + at,
        .grad = e->grad + at,
        .m = m,
        .v = v,
        .n = n,
        .group = e->group,
        .half = e->half ? e->half + at : NULL,
        .half_dtype = e->half_dtype};
    for (int64_t i = 0; i < n; i++) {
        m[i] = maps->m.value[e->m_codes[at + i]] * e->m_most[block];
        v[i] = maps->v.value[e->v_codes[at + i]] * e->v_most[block];
    }
    adam_entry(k, &part);
    encode(e->m_codes + at, &e->m_most[block], m, n, maps->m.value);
    encode(e->v_codes + at, &e->v_most[block], v, n, maps->v.value);
}

static void coded_entry(const choir__k_adam *k, const choir__opt_entry *e)
{
    int64_t block = 0;
    for (int64_t row = 0; row < e->n; row += e->row)
        for (int64_t c = 0; c < e->row; c += CHOIR__CODED_BLOCK)
            coded_block(k, e, row + c, block++, choir__min(CHOIR__CODED_BLOCK, e->row - c));
}

void choir__reference_adam(const choir__k_adam *k)
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        if (e->apart)
            continue;
        if (e->m_codes)
            coded_entry(k, e);
        else
            adam_entry(k, e);
    }
}

void choir__reference_lion(const choir__k_lion *k)
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        double b1 = (double)h->beta1, b2 = (double)h->beta2, lr = (double)h->lr;
        for (int64_t i = 0; i < e->n; i++) {
            double p = param_of(e, i), g = clipped(k, e, i), m = number_of(e, e->m, i);
            double c = b1 * m + (1 - b1) * g, sign = c > 0 ? 1 : c < 0 ? -1 : c;
            set_number(e, e->m, i, b2 * m + (1 - b2) * g);
            set_param(e, i, p - lr * (sign + (double)h->weight_decay * p));
        }
    }
}

void choir__reference_rmsprop(const choir__k_rmsprop *k)
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        const choir__opt_hyper *h = &k->hyper[e->group];
        double b = (double)h->beta2;
        for (int64_t i = 0; i < e->n; i++) {
            double p = param_of(e, i), g = clipped(k, e, i) + (double)h->weight_decay * p;
            double v = b * number_of(e, e->v, i) + (1 - b) * g * g, w = v;
            set_number(e, e->v, i, v);
            if (e->top) {
                double mean = b * number_of(e, e->top, i) + (1 - b) * g;
                set_number(e, e->top, i, mean);
                w -= mean * mean;
            }
            double u = g / (sqrt(w) + (double)h->eps);
            if (e->m) {
                u += (double)h->momentum * number_of(e, e->m, i);
                set_number(e, e->m, i, u);
            }
            set_param(e, i, p - (double)h->lr * u);
        }
    }
}

void choir__reference_average(const choir__k_average *k)
{
    double take = (double)k->hyper->take;
    for (int64_t j = 0; j < k->count; j++) {
        const choir__opt_entry *e = &k->entries[j];
        for (int64_t i = 0; i < e->n && e->average && take != 0; i++) {
            double p = (double)e->param[i], a = (double)e->average[i];
            e->average[i] = (float)(take == 1 ? p : a + (p - a) * take);
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
            rows[r] += number_of(e, e->grad, i) * number_of(e, e->grad, i);
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
