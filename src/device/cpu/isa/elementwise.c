/* fill, store, add_scaled and the broadcasting binary ops, which take 16 bits, too.
 *
 * A broadcast is simplified before it is walked: dimensions of size 1 are dropped, the others
 * are ordered as in y, and neighbours that are one run in every operand are joined. The result
 * nearly always has one or two dimensions, whose inner one has stride 1 or 0 on each side. */
#include "base/half.h"
#include "base/math/functions.h"
#include "device/cpu/isa/walk.h"

/* The first element has its value; doubles the part that has it. */
static void repeat_first(char *y, size_t each, size_t bytes)
{
    for (size_t done = each; done < bytes; done *= 2)
        memcpy(y + done, y, done < bytes - done ? done : bytes - done);
}

void KERNEL(fill)(const choir__k_fill *k)
{
    size_t each = choir_dtype_size(k->dtype), bytes = (size_t)k->n * each;
    if (k->value == 0 && !signbit(k->value)) {
        memset(k->y, 0, bytes);
        return;
    }
    if (k->dtype != CHOIR_F32 && k->n > 0) {
        choir__cpu_reference.fill(
            &(choir__k_fill){.y = k->y, .n = 1, .value = k->value, .dtype = k->dtype});
        repeat_first(k->y, each, bytes);
        return;
    }
    float *y = k->y;
    vec value = v_set((float)k->value);
    for (int64_t i = 0; i < k->n; i += W)
        v_put(y + i, value, k->n - i);
}

void KERNEL(store)(const choir__k_store *k)
{
    memcpy(k->y, k->data, k->bytes);
}

/* Devices whose kernels do not all take 16 bits copy one parameter at a time. */
void KERNEL(round)(const choir__k_round *k)
{
    CHOIR__BY_REFERENCE(round, k);
}

void KERNEL(add_scaled)(const choir__k_add_scaled *k)
{
    F32_ONLY(add_scaled, k);
    if (k->b_half) {
        CHOIR__BY_REFERENCE(add_scaled, k);
        return;
    }
    const float *a = k->a, *b = k->b;
    float *y = k->y, scale = k->scale;
    if (!b)
        for (int64_t i = 0; i < k->n; i += W)
            v_put(y + i, v_get(a + i, k->n - i) * scale, k->n - i);
    else
        for (int64_t i = 0; i < k->n; i += W)
            v_put(y + i, (v_get(a + i, k->n - i) + v_get(b + i, k->n - i)) * scale, k->n - i);
}

typedef vec binary(vec a, vec b);

INLINE vec op_add(vec a, vec b)
{
    return a + b;
}
INLINE vec op_sub(vec a, vec b)
{
    return a - b;
}
INLINE vec op_mul(vec a, vec b)
{
    return a * b;
}
INLINE vec op_div(vec a, vec b)
{
    return a / b;
}
INLINE vec op_power(vec a, vec b)
{
    for (int j = 0; j < W; j++)
        a[j] = choir__powf(a[j], b[j]);
    return a;
}

INLINE vec op_maximum(vec a, vec b) /* b, unless a surpasses it or is NaN */
{
    return v_sel(v_eq(a, a), v_max(a, b), a);
}
INLINE vec op_minimum(vec a, vec b)
{
    return v_sel(v_eq(a, a), v_min(a, b), a);
}
INLINE vec op_portion(vec a, vec b)
{
    vec share = v_sel(v_eq(a, b), v_set(0.5f), v_set(1.0f));
    return v_sel(v_lt(a, b), v_set(0.0f), share);
}

/* Handles one run of y, where each operand is a run or a constant; any other stride is
 * gathered. */
INLINE void row(float *y, int64_t ys, const float *a, int64_t as, const float *b, int64_t bs,
    int64_t n, binary *op)
{
    if (ys != 1 || (as | bs) & ~1) {
        for (int64_t i = 0; i < n; i++) /* one lane: the operation is the same */
            y[i * ys] = op(v_set(a[i * as]), v_set(b[i * bs]))[0];
    } else if (as && bs) {
        for (int64_t i = 0; i < n; i += W)
            v_put(y + i, op(v_get(a + i, n - i), v_get(b + i, n - i)), n - i);
    } else if (as) {
        vec c = v_set(*b);
        for (int64_t i = 0; i < n; i += W)
            v_put(y + i, op(v_get(a + i, n - i), c), n - i);
    } else {
        vec c = v_set(*a);
        for (int64_t i = 0; i < n; i += W)
            v_put(y + i, op(c, bs ? v_get(b + i, n - i) : v_set(*b)), n - i);
    }
}

/* 16-bit operands are widened a short run at a time, and the result is rounded once. */
enum { RUN = 512 };

/* Writes n elements of x as f32; one, if they are all the same. */
static void widen_run(float *to, const uint16_t *x, int64_t stride, int64_t n, bool bf16)
{
    uint16_t dense[RUN];
    if (stride & ~(int64_t)1) {
        for (int64_t i = 0; i < n; i++)
            dense[i] = x[i * stride];
        x = dense;
    }
    (bf16 ? choir__widen_bf16 : choir__widen_f16)(to, x, stride ? n : 1);
}

static void narrow_run(uint16_t *y, int64_t stride, const float *from, int64_t n, bool bf16)
{
    uint16_t dense[RUN];
    (bf16 ? choir__narrow_bf16 : choir__narrow_f16)(stride == 1 ? y : dense, from, n);
    for (int64_t i = 0; stride != 1 && i < n; i++)
        y[i * stride] = dense[i];
}

INLINE void walk_half_rows(const walk *w, binary *op, bool bf16)
{
    const int64_t *s = w->stride[w->ndim - 1];
    int64_t at[CHOIR__MAX_DIMS] = {0}, n = w->shape[w->ndim - 1], off[3] = {0};
    float y[RUN], a[RUN], b[RUN];
    do
        for (int64_t i = 0; i < n; i += RUN) {
            int64_t part = choir__min(RUN, n - i);
            widen_run(a, (uint16_t *)w->p[1] + off[1] + i * s[1], s[1], part, bf16);
            widen_run(b, (uint16_t *)w->p[2] + off[2] + i * s[2], s[2], part, bf16);
            row(y, 1, a, s[1] != 0, b, s[2] != 0, part, op);
            narrow_run((uint16_t *)w->p[0] + off[0] + i * s[0], s[0], y, part, bf16);
        }
    while (walk_next(w, at, off));
}

INLINE void walk_rows(const walk *w, binary *op, choir_dtype dtype)
{
    if (dtype != CHOIR_F32) {
        walk_half_rows(w, op, dtype == CHOIR_BF16);
        return;
    }
    const int64_t *s = w->stride[w->ndim - 1];
    int64_t at[CHOIR__MAX_DIMS] = {0}, n = w->shape[w->ndim - 1];
    float *y = w->p[0];
    const float *a = w->p[1], *b = w->p[2];
    int64_t off[3] = {0};
    do
        row(y + off[0], s[0], a + off[1], s[1], b + off[2], s[2], n, op);
    while (walk_next(w, at, off));
}

void KERNEL(binary)(const choir__k_binary *k)
{
    if (!is_half(k->dtype))
        F32_ONLY(binary, k);
    walk w = walk_of(k->shape, k->ndim, 3, (const choir__strided *[]){&k->y, &k->a, &k->b});
    if (!walk_simplify(&w))
        return;
    switch (k->op) {
    case CHOIR__ADD: walk_rows(&w, op_add, k->dtype); break;
    case CHOIR__SUB: walk_rows(&w, op_sub, k->dtype); break;
    case CHOIR__MUL: walk_rows(&w, op_mul, k->dtype); break;
    case CHOIR__DIV: walk_rows(&w, op_div, k->dtype); break;
    case CHOIR__POWER: walk_rows(&w, op_power, k->dtype); break;
    case CHOIR__MAXIMUM: walk_rows(&w, op_maximum, k->dtype); break;
    case CHOIR__MINIMUM: walk_rows(&w, op_minimum, k->dtype); break;
    case CHOIR__PORTION: walk_rows(&w, op_portion, k->dtype); break;
    case CHOIR__BINARY_COUNT: break;
    }
}
