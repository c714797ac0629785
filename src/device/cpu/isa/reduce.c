/* Sums and maxima of a matrix, along rows or down columns. */
#include "base/half.h"
#include "device/cpu/isa/isa.h"

/* Up to W of the `left` elements from x[i] on, in f32; 16 bits are widened, which is exact. */
INLINE vec get(const void *x, int64_t i, int64_t left, const choir_dtype dtype)
{
    if (dtype == CHOIR_F32)
        return v_get((const float *)x + i, left);
    float wide[W] = {0};
    const uint16_t *half = (const uint16_t *)x + i;
    for (int j = 0; j < choir__min(left, W); j++)
        wide[j] =
            dtype == CHOIR_BF16 ? choir__f32_from_bf16(half[j]) : choir__f32_from_f16(half[j]);
    return v_load(wide);
}

INLINE void sum_rows(const choir__k_sum *k, const choir_dtype dtype)
{
    float *y = k->y, scale = (float)k->scale;
    int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t r = 0; r < k->rows; r++) {
        vec sum[L] = {{0}};
        for (int64_t c = 0; c < k->cols; c += 16)
            LANES(j)
        sum[j] += get(k->x, r * row + c + j * W, k->cols - c - j * W, dtype);
        y[r] = lanes_sum(sum) * scale;
    }
}

/* Sums BLOCK vectors of columns at a time, in registers, down all rows. */
enum { BLOCK = 8 };

/* y = the sum of leaf l's rows, of `block` vectors of columns from c on. */
INLINE void leaf_of_rows(const choir__k_sum *k, int64_t l, int64_t c, int64_t left, vec *y,
    int block, const choir_dtype dtype)
{
    const int64_t row = choir__row_step(k->row, k->cols), outer = choir__cut_outer(k->cut);
    const int64_t each = k->rows / outer;
    int64_t from, to;
    vec sum[BLOCK] = {{0}};
    choir__cut_leaf(k->cut, k->rows, l, &from, &to);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = o * each + from; r < o * each + to; r++)
            for (int j = 0; j < block; j++)
                sum[j] += get(k->x, r * row + c + j * W, left - j * W, dtype);
    for (int j = 0; j < block; j++)
        y[j] = sum[j];
}

INLINE void columns(
    const choir__k_sum *k, int64_t c, int64_t left, int block, const choir_dtype dtype)
{
    vec node[CHOIR__LEAF_LEVELS][BLOCK];
    int top = 0;
    for (int64_t l = 0; l < choir__max(1, k->cut.leaves); l++) {
        leaf_of_rows(k, l, c, left, node[top++], block, dtype);
        for (int joins = choir__leaf_joins(k->cut, l); joins > 0; joins--, top--)
            for (int j = 0; j < block; j++)
                node[top - 2][j] += node[top - 1][j];
    }
    for (int j = 0; j < block; j++)
        v_put((float *)k->y + c + j * W, node[0][j] * (float)k->scale, left - j * W);
}

INLINE void sum_columns(const choir__k_sum *k, const choir_dtype dtype)
{
    int64_t c = 0;
    for (; c + BLOCK * W <= k->cols; c += BLOCK * W)
        columns(k, c, BLOCK * W, BLOCK, dtype);
    for (; c < k->cols; c += W)
        columns(k, c, choir__min(W, k->cols - c), 1, dtype);
}

INLINE void sum_of(const choir__k_sum *k, const choir_dtype dtype)
{
    if (k->over_rows)
        sum_columns(k, dtype);
    else
        sum_rows(k, dtype);
}

/* Columns of f32 in f64: a few numbers, such as losses. */
static void sum_columns_f64(const choir__k_sum *k)
{
    const int64_t row = choir__row_step(k->row, k->cols);
    for (int64_t c = 0; c < k->cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < k->rows; r++)
            sum += (double)((const float *)k->x)[r * row + c];
        ((double *)k->y)[c] = k->scale * sum;
    }
}

void KERNEL(sum)(const choir__k_sum *k)
{
    if (is_half(k->dtype) && k->wide) {
        if (k->dtype == CHOIR_BF16)
            sum_of(k, CHOIR_BF16);
        else
            sum_of(k, CHOIR_F16);
        return;
    }
    F32_ONLY(sum, k);
    if (k->in_f64)
        sum_columns_f64(k);
    else
        sum_of(k, CHOIR_F32);
}

static int64_t first_equal(const float *x, int64_t n, float value)
{
    vec v = v_set(value), other = v_set(value < 0 ? 1.0f : -1.0f);
    int64_t c = 0;
    while (c < n && !v_any(v_eq(v_get_or(x + c, n - c, other), v)))
        c += W;
    while (c < n && !(x[c] == value))
        c++;
    return c < n ? c : 0;
}

/* Returns the place of a row's first NaN, or else of its first maximum. */
static int64_t greatest(const float *x, int64_t n)
{
    vec max[L], numbers[L], low = v_set(-INFINITY), one = v_set(1.0f);
    LANES(j) max[j] = low, numbers[j] = one;
    for (int64_t c = 0; c < n; c += 16)
        LANES(j)
        {
            vec v = v_get_or(x + c + j * W, n - c - j * W, low);
            max[j] = v_max(v, max[j]); /* which skips a NaN */
            numbers[j] = v_sel(v_eq(v, v), numbers[j], (vec){0});
        }
    int64_t at = 0;
    if (lanes_sum(numbers) == 16)
        return first_equal(x, n, lanes_max(max));
    while (x[at] == x[at])
        at++;
    return at;
}

void KERNEL(max_rows)(const choir__k_max_rows *k)
{
    F32_ONLY(max_rows, k);
    for (int64_t r = 0; r < k->rows; r++) {
        const float *x = (const float *)k->x + r * k->cols;
        int64_t at = greatest(x, k->cols);
        if (k->y)
            ((float *)k->y)[r] = x[at];
        if (k->index)
            k->index[r] = at + k->first;
    }
}
