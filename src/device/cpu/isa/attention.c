/* Attention, head by head and one block of queries at a time: two products, and one pass over
 * the block's rows of scores between them.
 *
 *     S = q k^T    E = exp(scale S + bias - max)    y = E v / sum(E)
 *
 * A block has as many queries as keep its scores in the cache; the T x T matrix is never
 * stored. Products run in tiles of our own (tile.h): a tile whose queries see none of its keys
 * is left out, which for 64 tokens is half of the work, and a head's matrices are too small for
 * a library's calls. */
#include "device/cpu/isa/attention.h"

typedef struct work {
    float *q, *k, *v, *s; /* (rows, D) gathered, transposed, in panels, (rows, keys) */
} work;

static work work_new(const shape *n)
{
    const int64_t rows = block_rows(n), d = whole_panels(n->d);
    int64_t q = rows * d, k = whole_panels(n->s) * n->d, v = n->s * d;
    size_t floats = (size_t)(q + k + v + block_scores(n));
    float *at = choir__cpu_scratch(choir__cpu_context_current(), floats * sizeof *at);
    return (work){at, at + q, at + q + k, at + q + k + v};
}

/* Returns the largest of scale s[0, n) + bias; with a bias, replaces s by that sum. */
INLINE float largest_of_row(float *s, const float *bias, int64_t n, float scale)
{
    vec max[L], low = v_set(-INFINITY);
    LANES(j) max[j] = low;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            int64_t at = c + j * W, left = n - at;
            vec z = v_load(s + at) * scale;
            if (bias) {
                z += v_get(bias + at, left);
                v_store(s + at, z);
            }
            max[j] = v_max(max[j], v_keep(z, left, low));
        }
    return lanes_max(max);
}

/* Replaces s[0, n) by exp(scale s - top), and the rest of its last 16 lanes by zeros; returns
 * the sum. */
INLINE float exp_of_row(float *s, int64_t n, float scale, float top)
{
    vec sum[L] = {{0}};
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            float *at = s + c + j * W;
            vec e = v_exp_below(v_load(at) * scale - top);
            e = v_keep(e, n - c - j * W, (vec){0});
            v_store(at, e);
            sum[j] += e;
        }
    return lanes_sum(sum);
}

/* Turns the block's scores into exp(score - the row's largest), whose sums go to total. The two
 * loops are apart so that a row need not wait for the one before. */
static void exponentials(
    const choir__k_attention *a, const block *k, float *s, float *total, int64_t b, int64_t h)
{
    const int64_t t = k->queries.from, rows = k->queries.to - t, first = k->keys.from;
    float *lse = (float *)a->lse + (b * a->n.h + h) * a->n.t + t;
    for (int64_t r = 0; r < rows; r++) {
        span seen = seen_by(&a->n, t + r);
        const float *bias = bias_row(&a->bias, b, h, t + r);
        float *row = s + r * k->width + seen.from - first;
        int64_t n = seen.to - seen.from;
        lse[r] = bias ? largest_of_row(row, bias + seen.from, n, a->n.scale)
                      : largest_of_row(row, NULL, n, a->n.scale);
    }
    for (int64_t r = 0; r < rows; r++) {
        span seen = seen_by(&a->n, t + r), at = {seen.from - first, seen.to - first};
        float *row = s + r * k->width;
        total[r] =
            exp_of_row(row + at.from, at.to - at.from, a->bias.p ? 1 : a->n.scale, lse[r]);
        clear_beside(row, at, k->width);
    }
    for (int64_t r = 0; r < rows; r += W)
        v_put(lse + r, v_get(lse + r, rows - r) + v_log(v_get(total + r, rows - r)), rows - r);
}

/* A query that sees no key (none of choir_attention's) has sums of 0, and zeros. */
static void divide_rows(float *y, int64_t y_row, const float *total, int64_t rows, int64_t d)
{
    for (int64_t r = 0; r < rows; r++, y += y_row) {
        float inverse = total[r] == 0 ? 0 : 1.0f / total[r];
        for (int64_t c = 0; c < d; c += W)
            v_put(y + c, v_get(y + c, d - c) * inverse, d - c);
    }
}

static void forward_head(const choir__k_attention *a, const work *w, int64_t b, int64_t h)
{
    const shape *n = &a->n;
    for (int64_t t = 0; t < n->t; t += block_rows(n)) {
        const block k = block_at(n, t, block_rows(n));
        float *y = row_of(&a->y, b, h, t), total[QUERIES];
        gather(w->q, &a->q, b, h, t, k.queries.to - t, n->d);
        scores(&k, w->s, w->q, w->k);
        exponentials(a, &k, w->s, total, b, h);
        of_keys(&k, y, a->y.t, w->s, w->v);
        divide_rows(y, a->y.t, total, k.queries.to - t, n->d);
    }
}

void KERNEL(attention)(const choir__k_attention *a)
{
    F32_ONLY(attention, a);
    const shape *n = &a->n;
    const work w = work_new(n);
    const int64_t each = n->h / n->g; /* query heads per head of keys */
    for (int64_t b = 0; b < n->b; b++)
        for (int64_t h = 0; h < n->h; h++) {
            if (h % each == 0) {
                gather_transposed(w.k, &a->k, b, h / each, n->s, n->d);
                gather_panels(w.v, &a->v, b, h / each, n->s, n->d);
            }
            forward_head(a, &w, b, h);
        }
}
