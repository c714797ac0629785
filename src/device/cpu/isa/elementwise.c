/* fill, store, add_scaled and the broadcasting binary ops.
 *
 * A broadcast is simplified before it is walked: dimensions of size 1 are dropped, the others
 * are ordered as in y, and neighbours that are one run in every operand are joined. The result
 * nearly always has one or two dimensions, whose inner one has stride 1 or 0 on each side. */
#include "device/cpu/isa/walk.h"

void KERNEL(fill)(const choir__k_fill *k)
{
    if (k->value == 0 && !signbit(k->value)) {
        memset(k->y, 0, (size_t)k->n * choir_dtype_size(k->dtype));
        return;
    }
    F32_ONLY(fill, k);
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
    choir__cpu_reference.round(k);
}

void KERNEL(add_scaled)(const choir__k_add_scaled *k)
{
    F32_ONLY(add_scaled, k);
    if (k->b_half) {
        choir__cpu_reference.add_scaled(k);
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
        a[j] = (float)pow((double)a[j], (double)b[j]);
    return a;
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

INLINE void walk_rows(const walk *w, binary *op)
{
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
    F32_ONLY(binary, k);
    walk w = walk_of(k->shape, k->ndim, 3, (const choir__strided *[]){&k->y, &k->a, &k->b});
    if (!walk_simplify(&w))
        return;
    switch (k->op) {
    case CHOIR__ADD: walk_rows(&w, op_add); break;
    case CHOIR__SUB: walk_rows(&w, op_sub); break;
    case CHOIR__MUL: walk_rows(&w, op_mul); break;
    case CHOIR__DIV: walk_rows(&w, op_div); break;
    case CHOIR__POWER: walk_rows(&w, op_power); break;
    case CHOIR__BINARY_COUNT: break;
    }
}
