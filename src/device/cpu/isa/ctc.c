/* Connectionist temporal classification: steps one after another, the states of a step in
 * vectors. Rows of states have room for two states before the first and for a vector after the
 * last, all -inf, so that a state's neighbours can be read without a test. */
#include "device/cpu/isa/vector_math.h"
#include "device/queue.h"

enum { BEFORE = 16, AFTER = 32 }; /* floats */

/* One sequence. Rows are scratch memory. */
typedef struct sequence {
    const choir__k_ctc *k;
    const int64_t *labels;
    const float *x; /* step t's log-probabilities: x + t * stride */
    float *alpha;   /* step t's: alpha + t * width */
    int64_t b, steps, states, width, stride;
    float *now, *then; /* this step's states, and the neighbouring step's */
    float *own;        /* each state's log-probability in this step */
    float *skip;       /* 0 where a path may come from the state two before, else -inf */
    float *sum;        /* backward: exponentials */
} sequence;

enum { ROWS = 5 };

static void clear(float *row, int64_t states)
{
    for (int64_t s = -BEFORE; s < states + AFTER; s++)
        row[s] = -INFINITY;
}

/* Finds sequence b; returns false, with the queue failed, if it is wrong. */
static bool find(const choir__k_ctc *k, int64_t b, float *scratch, sequence *q)
{
    int64_t value, limit, width = 2 * k->most + 1;
    choir__ctc_part part = choir__ctc_check(k, b, &value, &limit);
    if (part != CHOIR__CTC_PARTS) {
        choir__queue_fail(CHOIR_ERR_RANGE, CHOIR__CTC_FAULT, choir__ctc_part_text(part),
            (long long)limit, (long long)value, (long long)b);
        return false;
    }
    *q = (sequence){.k = k,
        .labels = k->targets + b * k->most,
        .x = (const float *)k->x + b * k->classes,
        .alpha = (float *)k->alpha + b * k->steps * width,
        .b = b,
        .steps = k->input_lengths[b],
        .states = 2 * k->target_lengths[b] + 1,
        .width = width,
        .stride = k->batch * k->classes};
    float **rows[ROWS] = {&q->now, &q->then, &q->own, &q->skip, &q->sum};
    for (int i = 0; i < ROWS; i++) {
        *rows[i] = scratch + i * (width + BEFORE + AFTER) + BEFORE;
        clear(*rows[i], width);
    }
    for (int64_t s = 3; s < q->states; s += 2)
        q->skip[s] = q->labels[s / 2] != q->labels[s / 2 - 1] ? 0 : -INFINITY;
    return true;
}

static float *scratch_for(const choir__k_ctc *k)
{
    size_t row = (size_t)(2 * k->most + 1 + BEFORE + AFTER);
    return choir__cpu_scratch(choir__cpu_context_current(), ROWS * row * sizeof(float));
}

/* Looks up the states' log-probabilities in step t. */
static void look_up(const sequence *q, int64_t t)
{
    const float *x = q->x + t * q->stride;
    for (int64_t s = 0; s < q->states; s += 2)
        q->own[s] = x[q->k->blank];
    for (int64_t s = 1; s < q->states; s += 2)
        q->own[s] = x[q->labels[s / 2]];
}

INLINE vec v_log_sum_exp(vec a, vec b, vec c)
{
    vec top = v_max(v_max(a, b), c);
    top = v_sel(v_gt(top, v_set(-INFINITY)), top, v_set(0));
    return top + v_log(v_exp_below(a - top) + v_exp_below(b - top) + v_exp_below(c - top));
}

/* Returns the greatest lane that is not NaN; 0 if it is -inf. */
INLINE float top_of(vec v)
{
    float top = -INFINITY;
    for (int j = 0; j < W; j++)
        top = max_of(v[j], top);
    return top > -INFINITY ? top + 0.0f : 0; /* -0 becomes 0 */
}

/* Computes step t's states in q->now from those before in q->then, whose greatest is `top`;
 * returns their own greatest. */
static float advance(const sequence *q, int64_t t, float top)
{
    vec most = v_set(-INFINITY);
    look_up(q, t);
    for (int64_t s = 0; s < q->states; s += W) {
        vec own = v_load(q->own + s), v = own;
        if (t == 0) {
            for (int j = 0; j < W; j++)
                v[j] = s + j < 2 ? own[j] : -INFINITY;
        } else {
            const float *from = q->then + s;
            v = own - top +
                v_log_sum_exp(
                    v_load(from), v_load(from - 1), v_load(from - 2) + v_load(q->skip + s));
        }
        v_store(q->now + s, v);
        most = v_max(v, most);
    }
    return top_of(most);
}

static void swap(sequence *q)
{
    float *now = q->now;
    q->now = q->then;
    q->then = now;
}

/* Writes alpha and returns the loss. */
static float forward(sequence *q)
{
    double offset = 0;
    float top = 0;
    for (int64_t t = 0; t < q->k->steps; t++) {
        float *row = q->alpha + t * q->width, before = top;
        int64_t known = t < q->steps ? q->states : 0;
        if (known) {
            offset += (double)before;
            top = advance(q, t, before);
            memcpy(row, q->now, (size_t)known * sizeof *row);
            swap(q);
        }
        for (int64_t s = known; s < q->width; s++)
            row[s] = -INFINITY;
    }
    if (q->steps == 0)
        return q->states == 1 ? 0 : INFINITY;
    const float *end = q->then + q->states; /* end of the last step */
    vec last = v_log_sum_exp(v_set(end[-1]), v_set(end[-2]), v_set(-INFINITY));
    return (float)-(offset + (double)last[0]);
}

void KERNEL(ctc)(const choir__k_ctc *k)
{
    F32_ONLY(ctc, k);
    float *scratch = scratch_for(k), *loss = k->loss;
    sequence q;
    for (int64_t b = 0; b < k->batch; b++) {
        if (!find(k, b, scratch, &q))
            return;
        loss[b] = forward(&q);
        if (k->zero_infinity && loss[b] == INFINITY)
            loss[b] = 0;
    }
}

/* --- backward --- */

/* Writes step t's gradient. q->now: the ends from each state on, up to a factor. */
static void step_backward(const sequence *q, int64_t t)
{
    const float *alpha = q->alpha + t * q->width;
    float *g = (float *)q->k->gx + q->b * q->k->classes + t * q->stride;
    vec most = v_set(-INFINITY);
    for (int64_t s = 0; s < q->states; s += W) {
        vec both = v_get_or(alpha + s, q->states - s, v_set(-INFINITY)) + v_load(q->now + s);
        v_store(q->sum + s, both);
        most = v_max(both, most);
    }
    double total = 0;
    float top = top_of(most);
    for (int64_t s = 0; s < q->states; s += W)
        v_store(q->sum + s, v_exp_below(v_load(q->sum + s) - top));
    for (int64_t s = 0; s < q->states; s++)
        total += (double)q->sum[s];
    float factor = (float)(-(double)((const float *)q->k->gloss)[q->b] / total);
    for (int64_t s = 0; s < q->states; s++)
        g[s % 2 ? q->labels[s / 2] : q->k->blank] += factor * q->sum[s];
}

/* Goes from the ends of step t + 1, in q->now, to the ends of step t. */
static void go_back(sequence *q, int64_t t)
{
    vec most = v_set(-INFINITY);
    look_up(q, t + 1);
    for (int64_t s = 0; s < q->states; s += W) {
        vec v = v_load(q->now + s) + v_load(q->own + s);
        v_store(q->then + s, v);
        most = v_max(v, most);
    }
    float top = top_of(most);
    for (int64_t s = 0; s < q->states; s += W) {
        const float *to = q->then + s;
        v_store(q->now + s, v_log_sum_exp(v_load(to), v_load(to + 1),
                                v_load(to + 2) + v_load(q->skip + s + 2)) -
                                top);
    }
}

static void backward(sequence *q)
{
    int64_t last = q->steps - 1;
    const float *end = q->alpha + last * q->width + q->states;
    if (last < 0)
        return;
    if (end[-1] == -INFINITY && (q->states == 1 || end[-2] == -INFINITY)) { /* no path */
        float *g = (float *)q->k->gx + q->b * q->k->classes;
        for (int64_t t = 0; t <= last && !q->k->zero_infinity; t++)
            for (int64_t c = 0; c < q->k->classes; c++)
                g[t * q->stride + c] = NAN;
        return;
    }
    q->now[q->states - 1] = 0;
    if (q->states > 1)
        q->now[q->states - 2] = 0;
    for (int64_t t = last; t >= 0; t--) {
        step_backward(q, t);
        if (t > 0)
            go_back(q, t - 1);
    }
}

void KERNEL(ctc_backward)(const choir__k_ctc *k)
{
    F32_ONLY(ctc_backward, k);
    float *scratch = scratch_for(k);
    sequence q;
    memset(k->gx, 0, (size_t)(k->steps * k->batch * k->classes) * sizeof(float));
    for (int64_t b = 0; b < k->batch; b++)
        if (find(k, b, scratch, &q))
            backward(&q);
}
