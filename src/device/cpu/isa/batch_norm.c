/* Batch norm: a channel's statistics are taken over its column, over all images and pixels.
 *
 * Memory is the limit, so forward and backward are two passes each, along the rows: one adds up
 * the columns, one writes the result. Memory is prefetched, since the processor's own
 * prefetching ends at each page. The values of columns are in arrays (`columns`), small enough
 * for the nearest cache.
 *
 * Columns are long (N*H*W), so they are added in runs of RUN rows in f32 and the runs in f64:
 * the order is a fixed function of the sizes, and as exact as needed. The forward sums x - c
 * and (x - c)^2 with c the run's first row; shifted back to 0 in f64, a column's mean and
 * variance are differences of exact enough sums.
 *
 * 16-bit operands are widened a block of rows at a time (halves.h). So the loops over a block
 * read f32 alone. Each kind of work, such as a sum with a residual before ReLU, has a copy of
 * its loop, which is compiled once for f32 and widened operands: BY_KIND chooses it. */
#include "device/cpu/isa/halves.h"

enum { RUN = 64, GROUP = 4 };           /* rows per run, rows at a time */
enum { AHEAD_ROWS = 16, AHEAD = 2048 }; /* prefetch distance: for rows in groups, and else */

/* Arrays over the columns, in scratch memory. a and b: first of the run, then of the result. */
typedef struct columns {
    double *sum_a, *sum_b;                 /* over the runs */
    float *a, *b;                          /* over the rows of a run */
    float *center, *scale, *shift, *slope; /* factors of the second pass */
    float *first;                          /* a run's first row, if that is 16-bit */
} columns;

static columns columns_new(int64_t cols)
{
    columns c;
    int64_t n = (cols + 15) & ~(int64_t)15;
    size_t bytes = (size_t)n * (2 * sizeof(double) + 7 * sizeof(float));
    c.sum_a = choir__cpu_scratch(choir__cpu_context_current(), bytes);
    c.sum_b = c.sum_a + n;
    c.a = (float *)(c.sum_b + n);
    c.b = c.a + n;
    c.center = c.b + n;
    c.scale = c.center + n;
    c.shift = c.scale + n;
    c.slope = c.shift + n;
    c.first = c.slope + n;
    memset(c.sum_a, 0, 2 * (size_t)n * sizeof(double));
    return c;
}

static void put_sums(const columns *c, double *sums, int64_t cols, int64_t rows)
{
    memcpy(sums, c->sum_a, (size_t)cols * sizeof *sums);
    memcpy(sums + cols, c->sum_b, (size_t)cols * sizeof *sums);
    sums[2 * cols] = (double)rows;
}

/* Reads the sums and returns the number of rows. */
static double get_sums(const columns *c, const double *sums, int64_t cols)
{
    memcpy(c->sum_a, sums, (size_t)cols * sizeof *sums);
    memcpy(c->sum_b, sums + cols, (size_t)cols * sizeof *sums);
    return sums[2 * cols];
}

/* Runs the body for each vector of columns: c is the first column, left the number of columns
 * from there (W or more: a full vector, as the compiler knows in the loop). */
#define EACH_VECTOR(cols, ...)                                                                 \
    do {                                                                                       \
        int64_t c = 0, left = W;                                                               \
        for (; c + W <= (cols); c += W)                                                        \
            __VA_ARGS__;                                                                       \
        left = (cols)-c;                                                                       \
        if (left > 0)                                                                          \
            __VA_ARGS__;                                                                       \
    } while (0)

#define EACH_ROW(i, n) _Pragma("GCC unroll 4") for (int64_t i = 0; i < (n); i++)

/* Calls loop(..., flag) with a constant for the flag. */
#define BY_FLAG(flag, loop, ...) ((flag) ? loop(__VA_ARGS__, true) : loop(__VA_ARGS__, false))

/* Calls loop(..., how, flag) with constants for both. */
#define BY_KIND(how, flag, loop, ...)                                                          \
    ((how) == ALL        ? BY_FLAG(flag, loop, __VA_ARGS__, ALL)                               \
        : (how) == GIVEN ? BY_FLAG(flag, loop, __VA_ARGS__, GIVEN)                             \
                         : BY_FLAG(flag, loop, __VA_ARGS__, AGAIN))

/* Declares k and s, copies that no store of a loop can change, so that addresses stay in
 * registers. */
#define COPIES(type)                                                                           \
    const type call_ = *call, *const k = &call_;                                               \
    const columns arrays_ = *arrays, *const s = &arrays_

/* The part of gy that passes ReLU: all of it, or where y > 0, with y given or computed
 * again. */
enum { ALL, GIVEN, AGAIN };

/* Loads `left` elements at p, and prefetches those `ahead`. */
INLINE vec get_ahead(const float *p, int64_t left, int64_t ahead)
{
    __builtin_prefetch(p + ahead, 0, 2);
    return v_get(p, left);
}

INLINE void put_ahead(float *p, vec x, int64_t left)
{
    __builtin_prefetch(p + AHEAD, 1, 2);
    v_put(p, x, left);
}

/* --- rows that are widened together --- */

/* Returns how many: at least a group, and whole groups; of f32 operands, `all`. */
INLINE int64_t block_rows(const choir__k_batch_norm *k, int64_t all)
{
    enum { ELEMENTS = 2048 };
    return is_half(k->dtype) ? choir__max(GROUP, ELEMENTS / k->cols / GROUP * GROUP) : all;
}

/* Returns the f32 call for rows [r, r + n). room: block_rows for each of five operands. */
INLINE choir__k_batch_norm block_at(
    const choir__k_batch_norm *k, float *room, int64_t r, int64_t n)
{
    const int64_t at = r * k->cols, size = n * k->cols, step = block_rows(k, 0) * k->cols;
    choir__k_batch_norm b = *k;
    b.rows = n;
    b.x = wide_part(k->x, at, size, k->dtype, room);
    b.gy = wide_part(k->gy, at, size, k->dtype, room + step);
    b.residual = wide_part(k->residual, at, size, k->dtype, room + 2 * step);
    if (k->gy) {
        b.y = wide_part(k->y, at, size, k->dtype, room + 2 * step);
        b.gx = part_dest(k->gx, at, k->dtype, room + 3 * step);
        b.gresidual = part_dest(k->gresidual, at, k->dtype, room + 4 * step);
    } else {
        b.y = part_dest(k->y, at, k->dtype, room + 3 * step);
    }
    return b;
}

/* Returns the memory for blocks, or NULL if operands are f32. */
static float *block_room(const choir__k_batch_norm *k)
{
    const size_t floats = 5 * (size_t)(block_rows(k, 0) * k->cols);
    return is_half(k->dtype)
               ? choir__cpu_wide(choir__cpu_context_current(), floats * sizeof(float))
               : NULL;
}

/* --- forward --- */

/* Adds n rows, from x on, to a run. */
INLINE void add_rows(
    const columns *s, const float *x, const float *first, int64_t n, int64_t cols)
{
    EACH_VECTOR(cols, {
        vec a = v_load(s->a + c), b = v_load(s->b + c), around = v_get(first + c, left);
        EACH_ROW(i, n)
        {
            vec d = get_ahead(x + i * cols + c, left, AHEAD_ROWS * cols) - around;
            a += d;
            b += d * d;
        }
        v_store(s->a + c, a);
        v_store(s->b + c, b);
    });
}

/* sum_a = sum x, sum_b = sum x^2. */
static void add_moments(const columns *s, const choir__k_batch_norm *k, float *room)
{
    const int64_t cols = k->cols, block = block_rows(k, RUN);
    size_t bytes = (size_t)((char *)s->center - (char *)s->a);
    for (int64_t r = 0; r < k->rows; r += RUN) {
        const float *first = wide_part(k->x, r * cols, cols, k->dtype, s->first);
        int64_t n = choir__min(RUN, k->rows - r);
        memset(s->a, 0, bytes);
        for (int64_t b = 0; b < n; b += block) {
            int64_t end = choir__min(block, n - b), i = 0;
            const float *x = wide_part(k->x, (r + b) * cols, end * cols, k->dtype, room);
            for (; i + GROUP <= end; i += GROUP)
                add_rows(s, x + i * cols, first, GROUP, cols);
            for (; i < end; i++)
                add_rows(s, x + i * cols, first, 1, cols);
        }
        for (int64_t c = 0; c < cols; c++) {
            double a = (double)s->a[c], b = (double)s->b[c], at = (double)first[c];
            double all = (double)n * at;
            s->sum_a[c] += a + all;
            s->sum_b[c] += b + at * (a + a + all);
        }
    }
}

static void update_running(
    const choir__k_batch_norm *k, int64_t c, float mean, float var, double rows)
{
    float *running_mean = k->running_mean, *running_var = k->running_var;
    float unbiased = (float)(rows / fmax(rows - 1, 1));
    float keep = 1.0f - k->momentum;
    running_mean[c] = running_mean[c] * keep + mean * k->momentum;
    running_var[c] = running_var[c] * keep + var * unbiased * k->momentum;
}

/* Writes mean and rstd (unless they are given) and the factors of the second pass. rows: the
 * number of rows in the sums. */
static void finish_moments(const choir__k_batch_norm *k, const columns *s, double rows)
{
    float *means = k->mean, *rstds = k->rstd;
    const float *gamma = k->gamma, *beta = k->beta;
    for (int64_t c = 0; c < k->cols && !k->again; c++) {
        float mean, var;
        if (k->train) {
            double average = s->sum_a[c] / rows;
            double spread = s->sum_b[c] / rows - average * average;
            mean = (float)average;
            var = (float)(spread < 0 ? 0 : spread); /* NaN stays */
            if (k->update)
                update_running(k, c, mean, var, rows);
        } else {
            mean = ((const float *)k->running_mean)[c];
            var = ((const float *)k->running_var)[c];
        }
        means[c] = mean;
        rstds[c] = 1.0f / sqrtf(var + k->eps);
    }
    for (int64_t c = 0; c < k->cols; c++) {
        s->center[c] = means[c];
        s->scale[c] = gamma ? rstds[c] * gamma[c] : rstds[c];
        s->shift[c] = beta ? beta[c] : 0.0f;
    }
}

INLINE vec normal(const columns *s, vec x, int64_t c)
{
    return (x - v_load(s->center + c)) * v_load(s->scale + c) + v_load(s->shift + c);
}

INLINE void normalise_rows(
    const choir__k_batch_norm *k, const columns *s, bool residual, bool relu)
{
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * k->cols;
        const float *more = residual ? (const float *)k->residual + r * k->cols : NULL;
        float *y = (float *)k->y + r * k->cols;
        EACH_VECTOR(k->cols, {
            vec v = normal(s, get_ahead(x + c, left, AHEAD), c);
            if (residual)
                v += get_ahead(more + c, left, AHEAD);
            if (relu)
                v = v_max(v_set(0.0f), v); /* NaN stays */
            put_ahead(y + c, v, left);
        });
    }
}

static void normalise_block(const choir__k_batch_norm *call, const columns *arrays)
{
    COPIES(choir__k_batch_norm);
    if (k->residual)
        BY_FLAG(k->relu, normalise_rows, k, s, true);
    else
        BY_FLAG(k->relu, normalise_rows, k, s, false);
}

static void normalise(const choir__k_batch_norm *k, const columns *s, float *room)
{
    const int64_t block = block_rows(k, k->rows);
    for (int64_t r = 0; r < k->rows; r += block) {
        const int64_t n = choir__min(block, k->rows - r);
        const choir__k_batch_norm b = block_at(k, room, r, n);
        normalise_block(&b, s);
        put_part(k->y, r * k->cols, n * k->cols, k->dtype, b.y);
    }
}

void KERNEL(batch_norm)(const choir__k_batch_norm *k)
{
    if (!is_half(k->dtype))
        F32_ONLY(batch_norm, k);
    columns s = columns_new(k->cols);
    float *room = block_room(k);
    double rows = (double)k->rows;
    if (k->part == CHOIR__NORM_REST)
        rows = get_sums(&s, k->sums, k->cols);
    else if (k->train && !k->again)
        add_moments(&s, k, room);
    if (k->part == CHOIR__NORM_SUMS) {
        put_sums(&s, k->sums, k->cols, k->rows);
        return;
    }
    if (k->batches && k->train && k->update && !k->again)
        ++*k->batches;
    finish_moments(k, &s, rows);
    normalise(k, &s, room);
}

/* --- backward --- */

/* Returns the part of gy that passes ReLU at element i (in column c), where x is v. */
INLINE vec passed(const choir__k_batch_norm_backward *k, const columns *s, int64_t i, int64_t c,
    int64_t left, vec v, int how, int64_t ahead)
{
    vec g = get_ahead((const float *)k->gy + i, left, ahead), y;
    if (how == ALL)
        return g;
    if (how == GIVEN)
        y = get_ahead((const float *)k->y + i, left, ahead);
    else
        y = normal(s, v, c); /* with exactly the forward's operations */
    return v_sel(v_gt(y, v_set(0.0f)), g, v_set(0.0f));
}

/* Adds g and g (x - mean) of n rows, from row r on, to a run. */
INLINE void add_gradients(const choir__k_batch_norm_backward *k, const columns *s, int64_t r,
    int64_t n, int how, bool keep)
{
    int64_t ahead = AHEAD_ROWS * k->cols;
    EACH_VECTOR(k->cols, {
        vec a = v_load(s->a + c), b = v_load(s->b + c), mean = v_load(s->center + c);
        EACH_ROW(row, n)
        {
            int64_t i = (r + row) * k->cols + c;
            vec v = get_ahead((const float *)k->x + i, left, ahead);
            vec g = passed(k, s, i, c, left, v, how, ahead);
            if (keep)
                v_put((float *)k->gresidual + i, g, left);
            a += g;
            b += g * (v - mean);
        }
        v_store(s->a + c, a);
        v_store(s->b + c, b);
    });
}

/* Adds the whole groups of n rows. */
INLINE void add_groups(
    const choir__k_batch_norm_backward *k, const columns *s, int64_t n, int how, bool keep)
{
    for (int64_t i = 0; i + GROUP <= n; i += GROUP)
        add_gradients(k, s, i, GROUP, how, keep);
}

/* Adds n rows. The last few, fewer than a group, are added by a loop for all kinds. */
static void add_block(const choir__k_batch_norm_backward *call, const columns *arrays,
    int64_t n, int how, bool keep)
{
    COPIES(choir__k_batch_norm_backward);
    BY_KIND(how, keep, add_groups, k, s, n);
    for (int64_t i = n / GROUP * GROUP; i < n; i++)
        add_gradients(k, s, i, 1, how, keep);
}

/* sum_a = sum g, sum_b = sum g (x - mean). */
static void gradient_sums(
    const choir__k_batch_norm_backward *k, const columns *s, float *room, int how, bool keep)
{
    const int64_t block = block_rows(k, RUN);
    size_t bytes = (size_t)((char *)s->center - (char *)s->a);
    for (int64_t r = 0; r < k->rows; r += RUN) {
        int64_t n = choir__min(RUN, k->rows - r);
        memset(s->a, 0, bytes);
        for (int64_t from = 0; from < n; from += block) {
            int64_t end = choir__min(block, n - from);
            const choir__k_batch_norm_backward b = block_at(k, room, r + from, end);
            add_block(&b, s, end, how, keep);
            put_part(k->gresidual, (r + from) * k->cols, end * k->cols, k->dtype, b.gresidual);
        }
        for (int64_t c = 0; c < k->cols; c++) {
            s->sum_a[c] += (double)s->a[c];
            s->sum_b[c] += (double)s->b[c];
        }
    }
}

static void weight_gradients(const choir__k_batch_norm_backward *k, const columns *s)
{
    float *ggamma = k->ggamma, *gbeta = k->gbeta;
    const float *rstd = k->rstd;
    for (int64_t c = 0; c < k->cols && ggamma; c++)
        ggamma[c] = (float)(s->sum_b[c] * (double)rstd[c]);
    for (int64_t c = 0; c < k->cols && gbeta; c++)
        gbeta[c] = (float)s->sum_a[c];
}

/* With xhat = (x - mean) rstd, train: gx = rstd gamma (g - mean g - xhat mean(g xhat)) becomes
 * (scale g - a) - slope (x - mean); eval: gx = rstd gamma g. */
static void finish_gradients(
    const choir__k_batch_norm_backward *k, const columns *s, double rows)
{
    double share = k->train ? 1.0 / rows : 0.0;
    for (int64_t c = 0; c < k->cols; c++) {
        double rstd = (double)((const float *)k->rstd)[c], dot = s->sum_b[c] * rstd;
        double scale = (double)s->scale[c];
        s->a[c] = (float)(scale * share * s->sum_a[c]);
        s->slope[c] = (float)(scale * share * dot * rstd);
    }
}

INLINE void spread_rows(
    const choir__k_batch_norm_backward *k, const columns *s, int how, bool train)
{
    for (int64_t r = 0; r < k->rows; r++)
        EACH_VECTOR(k->cols, {
            int64_t i = r * k->cols + c;
            vec v = get_ahead((const float *)k->x + i, left, AHEAD);
            vec g = passed(k, s, i, c, left, v, how, AHEAD) * v_load(s->scale + c);
            vec d = v - v_load(s->center + c);
            if (train)
                g = g - v_load(s->a + c) - d * v_load(s->slope + c); /* g - a may be 0 */
            put_ahead((float *)k->gx + i, g, left);
        });
}

static void spread_block(
    const choir__k_batch_norm_backward *call, const columns *arrays, int how)
{
    COPIES(choir__k_batch_norm_backward);
    BY_KIND(how, k->train, spread_rows, k, s);
}

static void spread(
    const choir__k_batch_norm_backward *k, const columns *s, float *room, int how)
{
    const int64_t block = block_rows(k, k->rows);
    for (int64_t r = 0; r < k->rows; r += block) {
        const int64_t n = choir__min(block, k->rows - r);
        const choir__k_batch_norm_backward b = block_at(k, room, r, n);
        spread_block(&b, s, how);
        put_part(k->gx, r * k->cols, n * k->cols, k->dtype, b.gx);
    }
}

/* Runs both passes. If there is a gresidual, the gradient after ReLU is stored there, where the
 * second pass reads it. In 16 bits it is gy's own values, or zeros, so nothing is rounded. */
static void backward(const choir__k_batch_norm_backward *k, const columns *s, float *room)
{
    int how = !k->relu ? ALL : k->y ? GIVEN : AGAIN;
    const bool keep = k->gresidual;
    choir__k_batch_norm_backward second = *k;
    double rows = (double)k->rows;
    if (k->part == CHOIR__NORM_REST) {
        rows = get_sums(s, k->sums, k->cols);
    } else {
        gradient_sums(k, s, room, how, keep);
        weight_gradients(k, s);
    }
    if (k->part == CHOIR__NORM_SUMS) {
        put_sums(s, k->sums, k->cols, k->rows);
        return;
    }
    finish_gradients(k, s, rows);
    if (keep)
        second.gy = k->gresidual, how = ALL;
    second.gresidual = NULL;
    spread(&second, s, room, how);
}

void KERNEL(batch_norm_backward)(const choir__k_batch_norm_backward *k)
{
    if (!is_half(k->dtype))
        F32_ONLY(batch_norm_backward, k);
    columns s = columns_new(k->cols);
    float *room = block_room(k);
    const float *gamma = k->gamma, *beta = k->beta, *rstd = k->rstd;
    for (int64_t c = 0; c < k->cols; c++) {
        s.center[c] = ((const float *)k->mean)[c];
        s.scale[c] = gamma ? rstd[c] * gamma[c] : rstd[c];
        s.shift[c] = beta ? beta[c] : 0.0f;
    }
    backward(k, &s, room);
}
