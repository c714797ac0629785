/* One optimizer step over all parameters in one call, and the norm of all gradients. */
#include "device/cpu/isa/isa.h"

static float clip_of(const choir__k_optim *k)
{
    return k->clip ? *k->clip : 1.0f;
}

static void sgd_plain(const choir__opt_entry *e, const choir__opt_hyper *h, float clip)
{
    for (int64_t i = 0; i < e->n; i += W) {
        int64_t left = e->n - i;
        vec p = v_get(e->param + i, left);
        vec g = v_get(e->grad + i, left) * clip + p * h->weight_decay;
        v_put(e->param + i, p - g * h->lr, left);
    }
}

static void sgd_momentum(const choir__opt_entry *e, const choir__opt_hyper *h, float clip)
{
    float take = 1.0f - h->dampening;
    for (int64_t i = 0; i < e->n; i += W) {
        int64_t left = e->n - i;
        vec p = v_get(e->param + i, left);
        vec g = v_get(e->grad + i, left) * clip + p * h->weight_decay;
        vec m = h->first ? g : v_get(e->m + i, left) * h->momentum + g * take;
        v_put(e->m + i, m, left);
        g = h->nesterov ? g + m * h->momentum : m;
        v_put(e->param + i, p - g * h->lr, left);
    }
}

void KERNEL(sgd)(const choir__k_sgd *k)
{
    float clip = clip_of(k);
    for (int64_t i = 0; i < k->count; i++) {
        const choir__opt_entry *e = &k->entries[i];
        const choir__opt_hyper *h = &k->hyper[e->group];
        if (h->momentum != 0)
            sgd_momentum(e, h, clip);
        else
            sgd_plain(e, h, clip);
    }
}

INLINE void adam_entry(
    const choir__opt_entry *e, const choir__opt_hyper *hyper, float clip, bool decoupled)
{
    const choir__opt_hyper h = *hyper; /* no store can change it: it stays in registers */
    float *p = e->param, *m = e->m, *v = e->v;
    const float *grad = e->grad;
    float take1 = 1.0f - h.beta1, take2 = 1.0f - h.beta2, decay = h.lr * h.weight_decay;
    for (int64_t i = 0, n = e->n; i < n; i += W) {
        int64_t left = n - i;
        vec pi = v_get(p + i, left), g = v_get(grad + i, left) * clip;
        if (decoupled)
            pi -= pi * decay;
        else
            g += pi * h.weight_decay;
        vec mi = v_get(m + i, left) * h.beta1 + g * take1;
        vec vi = v_get(v + i, left) * h.beta2 + g * g * take2;
        v_put(m + i, mi, left);
        v_put(v + i, vi, left);
        v_put(p + i, pi - mi * h.step_size / (v_sqrt(vi) * h.rsqrt_bias2 + h.eps), left);
    }
}

void KERNEL(adam)(const choir__k_adam *k)
{
    float clip = clip_of(k);
    for (int64_t i = 0; i < k->count; i++) {
        const choir__opt_entry *e = &k->entries[i];
        const choir__opt_hyper *h = &k->hyper[e->group];
        if (h->decoupled)
            adam_entry(e, h, clip, true);
        else
            adam_entry(e, h, clip, false);
    }
}

/* Sum of squares of a row in f64: 16 lanes, the lanes joined by the fixed tree. */
static double squares(const float *x, int64_t n)
{
    double lane[16] = {0};
    int64_t c = 0;
    for (; c + 16 <= n; c += 16)
        for (int i = 0; i < 16; i++)
            lane[i] += (double)x[c + i] * (double)x[c + i];
    for (int i = 0; i < n - c; i++)
        lane[i] += (double)x[c + i] * (double)x[c + i];
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* The tree whose nodes of n leaves split at the largest power of two below n: join neighbours,
 * carry an odd one, repeat. */
static double tree_sum(double *x, int64_t n)
{
    if (n == 0)
        return 0;
    for (; n > 1; n = (n + 1) / 2) {
        for (int64_t i = 0; i < n / 2; i++)
            x[i] = x[2 * i] + x[2 * i + 1];
        if (n % 2)
            x[n / 2] = x[n - 1];
    }
    return x[0];
}

void KERNEL(grad_norm)(const choir__k_grad_norm *k)
{
    int64_t rows = 0;
    for (int64_t i = 0; i < k->count; i++) {
        const choir__opt_entry *e = &k->entries[i];
        for (int64_t at = 0; at < e->n; at += e->row)
            k->rows[rows++] = squares(e->grad + at, choir__min(e->row, e->n - at));
    }
    float norm = (float)sqrt(tree_sum(k->rows, rows));
    *k->norm = norm;
    float clip = k->max_norm / (norm + 1e-6f);
    *k->clip = k->max_norm > 0 && !(clip >= 1.0f) ? clip : 1.0f; /* NaN stays */
}
