/* One optimizer step over all parameters in one call, and the norm of all gradients. */
#include "base/half.h"
#include "device/code_map.h"
#include "device/cpu/isa/hash_sum.h"

/* Returns the factor for a group's gradients. */
static float clip_of(const choir__k_optim *k, const choir__opt_hyper *h)
{
    float clip = k->clip ? *k->clip : 1.0f;
    return h->maximize ? -clip : clip;
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

typedef void step_fn(const choir__opt_entry *e, const choir__opt_hyper *h, float clip);

static void sgd_entry(const choir__opt_entry *e, const choir__opt_hyper *h, float clip)
{
    if (h->momentum != 0)
        sgd_momentum(e, h, clip);
    else
        sgd_plain(e, h, clip);
}

/* Updates a 16-bit parameter as f32, one block at a time. */
static void step_half(
    const choir__opt_entry *e, const choir__opt_hyper *h, float clip, step_fn *step)
{
    float p[1024];
    bool bf16 = e->half_dtype == CHOIR_BF16;
    for (int64_t at = 0; at < e->n; at += 1024) {
        uint16_t *half = e->half + at;
        choir__opt_entry part = {.param = p,
            .grad = e->grad + at,
            .m = e->m ? e->m + at : NULL,
            .v = e->v ? e->v + at : NULL,
            .top = e->top ? e->top + at : NULL,
            .n = choir__min(e->n - at, 1024)};
        for (int64_t i = 0; i < part.n; i++)
            p[i] = bf16 ? choir__f32_from_bf16(half[i]) : choir__f32_from_f16(half[i]);
        step(&part, h, clip);
        for (int64_t i = 0; i < part.n; i++)
            half[i] = bf16 ? choir__bf16_from_f32(p[i]) : choir__f16_from_f32(p[i]);
    }
}

static void step_coded(
    const choir__opt_entry *e, const choir__opt_hyper *h, float clip, step_fn *step);

/* --- a step with hashes --- */

enum { HASH_AHEAD = 256 }; /* elements */

/* A part of an entry: numbers of its places, and elements from its first one on. */
typedef struct hashed_part {
    const uint64_t *numbers;
    uint64_t place;
    int64_t room;
} hashed_part;

/* Adds the hashes of tensors of an entry's part to sums, in the order of choir__opt_of; reads:
 * the gradient, too. */
INLINE void hash_entry(
    const choir__opt_entry *e, const hashed_part *p, bool reads, uint64_t sums[CHOIR__OPT_READ])
{
    const float *const all[] = {e->param, e->m, e->v, e->top, e->grad};
    const float *x[CHOIR__OPT_READ] = {0};
    uint64_t *to[CHOIR__OPT_READ] = {0};
    int count = 0, ahead = reads ? HASH_AHEAD : 0;
    for (int i = 0; i < (reads ? CHOIR__OPT_READ : CHOIR__OPT_LEFT); i++)
        if (all[i]) {
            x[count] = all[i];
            to[count++] = &sums[i];
        }
    switch (count) {
    case 1: add_beside(to, x, 1, e->n, p->room, p->place, p->numbers, ahead); break;
    case 2: add_beside(to, x, 2, e->n, p->room, p->place, p->numbers, ahead); break;
    case 3: add_beside(to, x, 3, e->n, p->room, p->place, p->numbers, ahead); break;
    default:
        add_beside(to, x, 4, e->n, p->room, p->place, p->numbers, ahead);
        if (count > 4)
            add_beside(to + 4, x + 4, 1, e->n, p->room, p->place, p->numbers, ahead);
    }
}

/* The step runs over a few elements at a time, between the hashes of its operands and of its
 * results, so memory delivers each number once. */
static void step_hashed(
    const choir__opt_entry *e, const choir__opt_hyper *h, float clip, step_fn *step)
{
    uint64_t read[CHOIR__OPT_READ] = {0}, left[CHOIR__OPT_READ] = {0};
    uint64_t place = (uint64_t)(e->sums->at + e->from);
    uint64_t numbers[BESIDE / 2];
    for (int64_t at = 0, n; at < e->n; at += n, place += (uint64_t)n) {
        n = choir__min(e->n - at, BESIDE - (int64_t)(place & 1));
        const hashed_part places = {numbers, place, e->n - at};
        numbers_from(place + (place & 1), n, numbers);
        const choir__opt_entry part = {.param = e->param + at,
            .grad = e->grad + at,
            .m = e->m ? e->m + at : NULL,
            .v = e->v ? e->v + at : NULL,
            .top = e->top ? e->top + at : NULL,
            .n = n};
        hash_entry(&part, &places, true, read);
        step(&part, h, clip);
        hash_entry(&part, &places, false, left);
    }
    for (int i = 0; i < CHOIR__OPT_READ; i++)
        __atomic_fetch_add(&e->sums->read[i], read[i], __ATOMIC_RELAXED);
    for (int i = 0; i < CHOIR__OPT_LEFT; i++)
        __atomic_fetch_add(&e->sums->left[i], left[i], __ATOMIC_RELAXED);
    __atomic_fetch_add(&e->sums->counted, e->n, __ATOMIC_RELAXED);
}

/* --- f64 --- */

/* True if the parameter and its numbers are f64. */
static bool is_wide(const choir__opt_entry *e)
{
    return !e->half && e->half_dtype == CHOIR_F64;
}

/* Runs the reference kernel of the rule on an f64 entry: it computes in f64, as it is. */
static void step_wide(const choir__k_optim *k, const choir__opt_entry *e, choir__kernel_id id,
    void (*rule)(const choir__k_optim *k))
{
    choir__k_optim one = *k;
    one.entries = e;
    one.count = 1;
    choir__note_way(id, CHOIR_F64, CHOIR__REFERENCE);
    rule(&one);
}

#define STEP_ALL(k, step, name)                                                                \
    step_all(k, step, CHOIR__KERNEL_##name, choir__cpu_reference.name)

static void step_all(const choir__k_optim *k, step_fn *step, choir__kernel_id id,
    void (*rule)(const choir__k_optim *k))
{
    if (k->found && *k->found != 0)
        return;
    for (int64_t i = 0; i < k->count; i++) {
        const choir__opt_entry *e = &k->entries[i];
        const choir__opt_hyper *h = &k->hyper[e->group];
        if (e->apart)
            continue;
        if (is_wide(e))
            step_wide(k, e, id, rule);
        else if (e->m_codes)
            step_coded(e, h, clip_of(k, h), step);
        else if (e->half)
            step_half(e, h, clip_of(k, h), step);
        else if (h->hash && e->sums && e->sums->at >= 0)
            step_hashed(e, h, clip_of(k, h), step);
        else
            step(e, h, clip_of(k, h));
    }
}

void KERNEL(sgd)(const choir__k_sgd *k)
{
    STEP_ALL(k, sgd_entry, sgd);
}

/* The moments, gradients and parameters stream from memory, and the processor's own prefetching
 * is too slow for that. */
enum { AHEAD = 512 }; /* elements */

INLINE void ask_ahead(const float *p, const float *g, const float *m, const float *v)
{
    __builtin_prefetch(p + AHEAD, 1);
    __builtin_prefetch(g + AHEAD, 0);
    __builtin_prefetch(m + AHEAD, 1);
    __builtin_prefetch(v + AHEAD, 1);
}

INLINE void adam_entry(const choir__opt_entry *e, const choir__opt_hyper *hyper, float clip,
    bool decoupled, bool amsgrad)
{
    /* a copy that no store can change, so that it stays in registers */
    const choir__opt_hyper h = *hyper;
    float *p = e->param, *m = e->m, *v = e->v, *top = e->top;
    const float *grad = e->grad;
    float take1 = 1.0f - h.beta1, take2 = 1.0f - h.beta2, decay = h.lr * h.weight_decay;
    for (int64_t i = 0, n = e->n; i < n; i += W) {
        int64_t left = n - i;
        if (i % 16 == 0)
            ask_ahead(p + i, grad + i, m + i, v + i);
        vec pi = v_get(p + i, left), g = v_get(grad + i, left) * clip;
        if (decoupled)
            pi -= pi * decay;
        else
            g += pi * h.weight_decay;
        vec mi = v_get(m + i, left) * h.beta1 + g * take1;
        vec vi = v_get(v + i, left) * h.beta2 + g * g * take2;
        v_put(m + i, mi, left);
        v_put(v + i, vi, left);
        if (amsgrad) {
            vi = v_max(v_get(top + i, left), vi); /* NaN stays: the second operand */
            v_put(top + i, vi, left);
        }
        v_put(p + i, pi - mi * h.step_size / (v_sqrt(vi) * h.rsqrt_bias2 + h.eps), left);
    }
}

static void adam_step(const choir__opt_entry *e, const choir__opt_hyper *h, float clip)
{
    if (e->top && h->decoupled)
        adam_entry(e, h, clip, true, true);
    else if (e->top)
        adam_entry(e, h, clip, false, true);
    else if (h->decoupled)
        adam_entry(e, h, clip, true, false);
    else
        adam_entry(e, h, clip, false, false);
}

void KERNEL(adam)(const choir__k_adam *k)
{
    STEP_ALL(k, adam_step, adam);
}

/* --- Adam with 8-bit state --- */

static void decode(
    float *to, const uint8_t *codes, float most, const choir__code_map *map, int n)
{
    for (int i = 0; i < n; i++)
        to[i] = map->value[codes[i]] * most;
}

/* Stores the codes of the numbers that are nearest to from / most. */
static void nearest(
    uint8_t *codes, const float *from, float most, const choir__code_map *map, int n)
{
    for (int i = 0; i < n; i++)
        codes[i] = choir__code_of(map, most > 0 ? from[i] / most : 0);
}

/* Returns the largest magnitude; NaN if any value is NaN. */
static float most_of(const float *x, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = CHOIR__SURPASSES(fabsf(x[i]), most) ? fabsf(x[i]) : most;
    return most;
}

/* A number keeps its sign, even where zero is nearer. */
static void keep_signs(uint8_t *codes, const float *m, const choir__code_map *map, int n)
{
    for (int i = 0; i < n; i++) {
        bool below = map->value[codes[i]] < 0;
        if (m[i] < 0 && !below)
            codes[i]--;
        else if (m[i] > 0 && below)
            codes[i]++;
    }
}

/* Updates elements [at, at + n) of an entry, which share the block's magnitudes. */
static void step_block(const choir__opt_entry *e, const choir__opt_hyper *h, float clip,
    step_fn *step, int64_t at, int64_t block, int n)
{
    const choir__code_maps *maps = choir__code_maps_get();
    float m[CHOIR__CODED_BLOCK], v[CHOIR__CODED_BLOCK];
    uint8_t *m_codes = e->m_codes + at, *v_codes = e->v_codes + at;
    choir__opt_entry part = {.param = e->half ? NULL : e->param + at,
        .grad = e->grad + at,
        .m = m,
        .v = v,
        .n = n,
        .half = e->half ? e->half + at : NULL,
        .half_dtype = e->half_dtype};
    decode(m, m_codes, e->m_most[block], &maps->m, n);
    decode(v, v_codes, e->v_most[block], &maps->v, n);
    if (e->half)
        step_half(&part, h, clip, step);
    else
        step(&part, h, clip);
    e->m_most[block] = most_of(m, n);
    e->v_most[block] = most_of(v, n);
    nearest(m_codes, m, e->m_most[block], &maps->m, n);
    nearest(v_codes, v, e->v_most[block], &maps->v, n);
    keep_signs(m_codes, m, &maps->m, n);
}

static void step_coded(
    const choir__opt_entry *e, const choir__opt_hyper *h, float clip, step_fn *step)
{
    int64_t block = 0;
    for (int64_t row = 0; row < e->n; row += e->row)
        for (int64_t c = 0; c < e->row; c += CHOIR__CODED_BLOCK)
            step_block(e, h, clip, step, row + c, block++,
                (int)choir__min(CHOIR__CODED_BLOCK, e->row - c));
}

/* --- Lion and RMSprop --- */

static void lion_step(const choir__opt_entry *e, const choir__opt_hyper *h, float clip)
{
    float take1 = 1.0f - h->beta1, take2 = 1.0f - h->beta2, decay = h->lr * h->weight_decay;
    vec up = v_set(h->lr), down = v_set(-h->lr), zero = {0};
    for (int64_t i = 0; i < e->n; i += W) {
        int64_t left = e->n - i;
        vec p = v_get(e->param + i, left), g = v_get(e->grad + i, left) * clip;
        vec m = v_get(e->m + i, left), c = m * h->beta1 + g * take1;
        p -= p * decay;
        p -= v_sel(v_gt(c, zero), up, v_sel(v_lt(c, zero), down, c)); /* 0 or NaN: c */
        v_put(e->m + i, m * h->beta2 + g * take2, left);
        v_put(e->param + i, p, left);
    }
}

void KERNEL(lion)(const choir__k_lion *k)
{
    STEP_ALL(k, lion_step, lion);
}

static void rmsprop_step(const choir__opt_entry *e, const choir__opt_hyper *h, float clip)
{
    float take = 1.0f - h->beta2;
    for (int64_t i = 0; i < e->n; i += W) {
        int64_t left = e->n - i;
        vec p = v_get(e->param + i, left);
        vec g = v_get(e->grad + i, left) * clip + p * h->weight_decay;
        vec w = v_get(e->v + i, left) * h->beta2 + g * g * take;
        v_put(e->v + i, w, left);
        if (e->top) {
            vec mean = v_get(e->top + i, left) * h->beta2 + g * take;
            v_put(e->top + i, mean, left);
            w -= mean * mean;
        }
        vec u = g / (v_sqrt(w) + h->eps);
        if (e->m) {
            u = v_get(e->m + i, left) * h->momentum + u;
            v_put(e->m + i, u, left);
        }
        v_put(e->param + i, p - u * h->lr, left);
    }
}

void KERNEL(rmsprop)(const choir__k_rmsprop *k)
{
    STEP_ALL(k, rmsprop_step, rmsprop);
}

/* --- averages of parameters --- */

static void average_entry(const choir__opt_entry *e, float take)
{
    for (int64_t i = 0; i < e->n; i += W) {
        int64_t left = e->n - i;
        vec p = v_get(e->param + i, left), a = v_get(e->average + i, left);
        v_put(e->average + i, take == 1 ? p : a + (p - a) * take, left);
    }
}

void KERNEL(average)(const choir__k_average *k)
{
    for (int64_t i = 0; i < k->count; i++)
        if (k->entries[i].average && k->hyper->take != 0)
            average_entry(&k->entries[i], k->hyper->take);
}

static double join_lanes(double lane[16])
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* Returns the sum of squares of a row in f64: 16 lanes, joined by the fixed tree. */
static double squares(const float *x, int64_t n)
{
    double lane[16] = {0};
    int64_t c = 0;
    for (; c + 16 <= n; c += 16)
        for (int i = 0; i < 16; i++)
            lane[i] += (double)x[c + i] * (double)x[c + i];
    for (int i = 0; i < n - c; i++)
        lane[i] += (double)x[c + i] * (double)x[c + i];
    return join_lanes(lane);
}

static double squares_wide(const double *x, int64_t n)
{
    double lane[16] = {0};
    for (int64_t c = 0; c < n; c++)
        lane[c % 16] += x[c] * x[c];
    return join_lanes(lane);
}

/* Returns the sum of squares of the entry's gradient in the row that begins at element `at`. */
static double row_squares(const choir__opt_entry *e, int64_t at)
{
    int64_t n = choir__min(e->row, e->n - at);
    return is_wide(e) ? squares_wide((const double *)(const void *)e->grad + at, n)
                      : squares(e->grad + at, n);
}

/* Adds x (n) in the tree whose nodes split at the largest power of two below their leaves:
 * joins neighbours, carries an odd one, and repeats. */
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

/* --- LAMB: one pass for the moments and both norms, one for the step. u is computed twice
 * instead of stored. --- */

INLINE vec lamb_update(const choir__opt_hyper *h, vec p, vec m, vec v)
{
    vec u = m * h->inv_bias1 / (v_sqrt(v * h->inv_bias2) + h->eps);
    return h->decoupled ? u + p * h->weight_decay : u;
}

/* Updates the moments of elements [at, at + n) and writes their u; n <= 16. */
INLINE void lamb_moments(const choir__opt_entry *e, const choir__opt_hyper *h, float clip,
    int64_t at, int64_t n, float *u)
{
    float take2 = 1.0f - h->beta2;
    LANES(j)
    {
        int64_t i = at + j * W, left = n - j * W;
        vec p = v_get(e->param + i, left), g = v_get(e->grad + i, left) * clip;
        if (!h->decoupled)
            g += p * h->weight_decay;
        vec m = v_get(e->m + i, left) * h->beta1 + g * h->take1;
        vec v = v_get(e->v + i, left) * h->beta2 + g * g * take2;
        v_put(e->m + i, m, left);
        v_put(e->v + i, v, left);
        v_put(u + j * W, lamb_update(h, p, m, v), left);
    }
}

/* Updates the moments of one row of dimension 0, and returns the sum of squares of its u. */
static double lamb_row(const choir__opt_entry *e, const choir__opt_hyper *hyper, float clip,
    int64_t first, int64_t n)
{
    const choir__opt_hyper h = *hyper;
    double lane[16] = {0};
    for (int64_t c = 0; c < n; c += 16) {
        float u[16] = {0};
        lamb_moments(e, &h, clip, first + c, choir__min(n - c, 16), u);
        for (int i = 0; i < 16; i++)
            lane[i] += (double)u[i] * (double)u[i];
    }
    return join_lanes(lane);
}

static void lamb_step(const choir__opt_entry *e, const choir__opt_hyper *hyper, float rate)
{
    const choir__opt_hyper h = *hyper;
    for (int64_t i = 0; i < e->n; i += W) {
        int64_t left = e->n - i;
        vec p = v_get(e->param + i, left);
        vec u = lamb_update(&h, p, v_get(e->m + i, left), v_get(e->v + i, left));
        v_put(e->param + i, p - u * rate, left);
    }
}

static int64_t rows_of(const choir__opt_entry *e)
{
    return e->n ? e->n / e->row : 0;
}

static void lamb_measure(
    const choir__k_lamb *k, const choir__opt_entry *e, double *weight, double *update)
{
    const choir__opt_hyper *h = &k->hyper[e->group];
    for (int64_t r = 0, count = rows_of(e); r < count; r++) {
        weight[r] = squares(e->param + r * e->row, e->row);
        update[r] = lamb_row(e, h, clip_of(k, h), r * e->row, e->row);
    }
}

/* weight, update (rows) are overwritten. */
static void lamb_trust(const choir__k_lamb *k, const choir__opt_entry *e, double *weight,
    double *update, int64_t rows)
{
    const choir__opt_hyper *h = &k->hyper[e->group];
    float p = (float)sqrt(tree_sum(weight, rows)), u = (float)sqrt(tree_sum(update, rows));
    lamb_step(e, h, h->trust && p != 0 && u != 0 ? h->lr * (p / u) : h->lr);
}

void KERNEL(lamb)(const choir__k_lamb *k)
{
    int64_t all = 0, at = 0;
    for (int64_t i = 0; i < k->count; i++)
        all += rows_of(&k->entries[i]);
    if (k->found && *k->found != 0)
        return;
    for (int64_t i = 0; i < k->count; i++) {
        const choir__opt_entry *e = &k->entries[i];
        double *weight = k->rows + at, *update = weight + all;
        if (k->part == CHOIR__LAMB_STEP) {
            weight = k->rows + e->whole_at;
            lamb_trust(k, e, weight, weight + k->whole_rows, e->whole_rows);
            continue;
        }
        lamb_measure(k, e, weight, update);
        if (k->part == CHOIR__LAMB_WHOLE)
            lamb_trust(k, e, weight, update, rows_of(e));
        at += rows_of(e);
    }
}

void KERNEL(grad_norm)(const choir__k_grad_norm *k)
{
    int64_t rows = k->given;
    for (int64_t i = 0; i < k->count; i++) {
        const choir__opt_entry *e = &k->entries[i];
        for (int64_t at = 0; at < e->n; at += e->row)
            k->rows[rows++] = row_squares(e, at);
    }
    if (!k->norm)
        return;
    /* finite if all gradients are: squares of f32 in f64 */
    double sum = tree_sum(k->rows, rows);
    float inverse = k->inverse ? *k->inverse : 1.0f;
    float norm = (float)(sqrt(sum) * (double)inverse);
    *k->norm = norm;
    float clip = k->max_norm / (norm + 1e-6f);
    k->clip[0] = (k->max_norm > 0 && !(clip >= 1.0f) ? clip : 1.0f) * inverse; /* NaN stays */
    if (!k->inverse)
        return;
    k->clip[1] = isfinite(sum) ? 0 : 1;
    k->clip[2] += k->clip[1];
}
