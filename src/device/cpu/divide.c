/* Kernels on the cores of a device that has several.
 *
 * Each kernel here is the one-core kernel, called by several threads for parts of its rows (of
 * its elements, heads, or gradients) that do not depend on each other. Narrowing a call to a
 * part only moves pointers and reduces a size, so an element is computed by the same operations
 * wherever it falls, and bits do not depend on the number of threads. Kernels whose sums cross
 * rows are not here, nor are those that can fail: a failure belongs to the queue's own thread.
 * Products and convolutions divide their work themselves (onednn/). */
#include "device/cpu/context.h"

/* Elements per thread from which on a division gains: about 4 us of work. */
enum { LEAST = 8192 };

static choir__kernels one, several; /* the tables of one core and of several */

static void *at(const void *p, int64_t elements, size_t bytes)
{
    return p ? (char *)p + elements * (int64_t)bytes : NULL;
}

#define MOVE(member, elements) p->member = at(p->member, elements, sizeof(float))
/* Moves an operand of the kernel's dtype. */
#define MOVE_ANY(member, elements)                                                             \
    p->member = at(p->member, elements, choir_dtype_size(p->dtype))

static bool is_half(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

/* Defines the kernel `name`. `count` parts are independent, and each has `each` elements; the
 * last argument narrows *p to parts [first, first + count). Only f32 operands are divided, and
 * 16-bit ones where `halves`. */
#define DIVIDED(...) DIVIDED_IF(false, __VA_ARGS__)
#define DIVIDED_IF(halves, name, parts, each, ...)                                             \
    static void name##_part(const void *arg, int64_t first, int64_t count)                     \
    {                                                                                          \
        choir__k_##name part = *(const choir__k_##name *)arg, *p = &part;                      \
        __VA_ARGS__;                                                                           \
        one.name(p);                                                                           \
    }                                                                                          \
    static void name(const choir__k_##name *k)                                                 \
    {                                                                                          \
        int64_t size = choir__max(1, each);                                                    \
        if (k->dtype != CHOIR_F32 && !((halves) && is_half(k->dtype)))                         \
            one.name(k);                                                                       \
        else                                                                                   \
            choir__cpu_parallel(parts, (LEAST + size - 1) / size, name##_part, k);             \
    }

/* --- element by element --- */

DIVIDED(fill, k->n, 1, MOVE(y, first), p->n = count)
DIVIDED_IF(true, unary, k->n, 1, MOVE_ANY(x, first), MOVE_ANY(y, first), p->n = count)
DIVIDED_IF(true, unary_backward, k->n, 1, MOVE_ANY(x, first), MOVE_ANY(y, first),
    MOVE_ANY(gy, first), MOVE_ANY(gx, first), p->n = count)
DIVIDED(add_scaled, k->n, 1, MOVE(a, first),
    p->b = at(p->b, first, p->b_half ? sizeof(uint16_t) : sizeof(float)), MOVE(y, first),
    p->n = count)

/* Returns the outermost dimension that has several elements. */
static int outermost(const int64_t *shape, int ndim)
{
    int d = 0;
    while (d < ndim - 1 && shape[d] == 1)
        d++;
    return d;
}

/* Divides the outermost dimension of a strided kernel; ndim is at least 1. */
static void divide_outermost(
    const int64_t *shape, int ndim, choir__cpu_part *part, const void *k)
{
    int d = outermost(shape, ndim);
    int64_t inside = 1;
    for (int i = d + 1; i < ndim; i++)
        inside *= shape[i];
    choir__cpu_parallel(shape[d], LEAST / choir__max(1, inside) + 1, part, k);
}

static void narrow(choir__strided *x, int d, int64_t first, choir_dtype dtype)
{
    x->p = at(x->p, first * x->stride[d], choir_dtype_size(dtype));
}

static void binary_part(const void *arg, int64_t first, int64_t count)
{
    choir__k_binary part = *(const choir__k_binary *)arg;
    int d = outermost(part.shape, part.ndim);
    narrow(&part.y, d, first, part.dtype);
    narrow(&part.a, d, first, part.dtype);
    narrow(&part.b, d, first, part.dtype);
    part.shape[d] = count;
    one.binary(&part);
}

static void binary(const choir__k_binary *k)
{
    if (k->ndim == 0)
        one.binary(k);
    else
        divide_outermost(k->shape, k->ndim, binary_part, k);
}

static void copy_part(const void *arg, int64_t first, int64_t count)
{
    choir__k_copy part = *(const choir__k_copy *)arg;
    int d = outermost(part.shape, part.ndim);
    narrow(&part.y, d, first, part.y_dtype);
    narrow(&part.x, d, first, part.x_dtype);
    part.shape[d] = count;
    one.copy(&part);
}

static void copy(const choir__k_copy *k)
{
    if (k->ndim == 0)
        one.copy(k);
    else
        divide_outermost(k->shape, k->ndim, copy_part, k);
}

/* --- row by row --- */

#define ROWS(member)        MOVE(member, first * p->cols)
#define SPACED_ROWS(member) MOVE(member, choir__row_step(p->row, p->cols) * first)
#define ROWS_HALF(member, half)                                                                \
    p->member = at(p->member, first * p->cols, (half) ? sizeof(uint16_t) : sizeof(float))

DIVIDED(softmax, k->rows, k->cols, ROWS(x), ROWS(y), p->rows = count)
DIVIDED(softmax_backward, k->rows, k->cols, ROWS(y), ROWS(gy), ROWS(gx), p->rows = count)
DIVIDED(layer_norm, k->rows, k->cols, ROWS(x), ROWS_HALF(add, p->half_add),
    ROWS_HALF(y, p->half_y), ROWS_HALF(y_half, true), ROWS(sum), MOVE(mean, first),
    MOVE(rstd, first), p->rows = count)
DIVIDED(layer_norm_backward, k->rows, k->cols, ROWS(x), ROWS_HALF(gy, p->half_gy), ROWS(gx_add),
    ROWS(gx), ROWS_HALF(gx_half, true), MOVE(mean, first), MOVE(rstd, first), p->rows = count)
DIVIDED(swiglu, k->rows, k->cols, MOVE(a, first * p->a_row), MOVE(b, first * p->b_row), ROWS(y),
    p->rows = count)
DIVIDED(swiglu_backward, k->rows, k->cols, MOVE(a, first * p->a_row), MOVE(b, first * p->b_row),
    MOVE(ga, first * p->ga_row), MOVE(gb, first * p->gb_row), ROWS(gy), p->rows = count)
DIVIDED(cross_entropy_backward, k->rows, k->cols, SPACED_ROWS(logits), SPACED_ROWS(glogits),
    MOVE(lse, first),
    p->gloss = p->losses == CHOIR__ROWS_EACH ? at(p->gloss, first, sizeof(float)) : p->gloss,
    p->targets += first, p->rows = count)

static void sum_part(const void *arg, int64_t first, int64_t count)
{
    choir__k_sum part = *(const choir__k_sum *)arg, *p = &part;
    SPACED_ROWS(x);
    MOVE(y, first);
    p->rows = count;
    one.sum(p);
}

/* Sums down columns need their rows whole. */
static void sum(const choir__k_sum *k)
{
    if (k->over_rows || k->dtype != CHOIR_F32)
        one.sum(k);
    else
        choir__cpu_parallel(k->rows, LEAST / choir__max(1, k->cols) + 1, sum_part, k);
}

static void expand_part(const void *arg, int64_t first, int64_t count)
{
    choir__k_expand part = *(const choir__k_expand *)arg;
    part.x = at(part.x, first * part.row_bytes, 1);
    part.y = at(part.y, first * part.cols, choir_dtype_size(part.dtype));
    part.n = count;
    one.expand(&part);
}

/* Ids may be wrong, which belongs to the queue's own thread. */
static void expand(const choir__k_expand *k)
{
    if (k->ids)
        one.expand(k);
    else
        choir__cpu_parallel(k->n, LEAST / choir__max(1, k->cols) + 1, expand_part, k);
}

/* --- attention: by samples and heads of keys --- */

/* Narrows the operand to one sample and the heads from h on. */
static void narrow_heads(choir__heads *x, int64_t b, int64_t h, choir_dtype dtype)
{
    x->p = at(x->p, b * x->b + h * x->h, choir_dtype_size(dtype));
}

static void narrow_bias(choir__attention_bias *a, int64_t b, int64_t h)
{
    if (a->p)
        a->p = at(a->p, b % a->samples * a->stride[0] + h * a->stride[1], sizeof(float));
    a->samples = 1;
}

typedef void attention_fn(const choir__k_attention *k);

/* Runs the kernel for each pair of a sample and a head of keys in [first, first + count). */
static void attend_apart(
    const choir__k_attention *k, int64_t first, int64_t count, attention_fn *attend)
{
    const int64_t each = k->n.h / k->n.g; /* query heads per head of keys */
    for (int64_t i = first; i < first + count; i++) {
        choir__k_attention part = *k;
        int64_t b = i / k->n.g, g = i % k->n.g, h = g * each;
        part.n.b = part.n.g = 1;
        part.n.h = each;
        choir__heads *of_queries[] = {&part.q, &part.y, &part.gy, &part.gq};
        choir__heads *of_keys[] = {&part.k, &part.v, &part.gk, &part.gv};
        for (int j = 0; j < 4; j++) {
            narrow_heads(of_queries[j], b, h, k->dtype);
            narrow_heads(of_keys[j], b, g, k->dtype);
        }
        narrow_bias(&part.bias, b, h);
        int64_t row = choir__lse_at(k, b, h);
        part.lse = at(part.lse, row, sizeof(float));
        part.delta = at(part.delta, row, sizeof(float));
        part.sum = at(part.sum, row, sizeof(float));
        attend(&part);
    }
}

static void attention_part(const void *k, int64_t first, int64_t count)
{
    attend_apart(k, first, count, one.attention);
}

/* True if heads may be computed apart; of 16-bit operands a bias is left to the reference. */
static bool has_apart(const choir__k_attention *k)
{
    return k->dtype == CHOIR_F32 || (is_half(k->dtype) && !k->bias.p);
}

static void attention(const choir__k_attention *k)
{
    if (!has_apart(k))
        one.attention(k);
    else
        choir__cpu_parallel(k->n.b * k->n.g, 1, attention_part, k);
}

static void attention_backward_part(const void *k, int64_t first, int64_t count)
{
    attend_apart(k, first, count, one.attention_backward);
}

/* Samples may share the bias's gradient, which they add to in order. */
static void attention_backward(const choir__k_attention_backward *k)
{
    if (!has_apart(k) || k->gbias.p)
        one.attention_backward(k);
    else
        choir__cpu_parallel(k->n.b * k->n.g, 1, attention_backward_part, k);
}

/* --- optimizers: all parameters as one range of elements, or of rows --- */

typedef void optim_fn(const choir__k_optim *k);

/* True if the parameter and its numbers are f64. */
static bool is_wide(const choir__opt_entry *e)
{
    return !e->half && e->half_dtype == CHOIR_F64;
}

static choir__opt_entry entry_part(const choir__opt_entry *e, int64_t first, int64_t count)
{
    choir__opt_entry part = *e, *p = &part;
    int64_t words = is_wide(e) ? 2 * first : first; /* f64: two floats each */
    MOVE(param, words);
    MOVE(grad, words);
    MOVE(m, words);
    MOVE(v, words);
    MOVE(top, words);
    MOVE(average, first);
    if (p->m_codes) { /* whole rows: step_part */
        int64_t row = first / p->row;
        int64_t blocks = (p->row + CHOIR__CODED_BLOCK - 1) / CHOIR__CODED_BLOCK;
        p->m_codes += first;
        p->v_codes += first;
        MOVE(m_most, row * blocks);
        MOVE(v_most, row * blocks);
    }
    p->half = at(p->half, first, sizeof *p->half);
    p->from += first;
    p->n = count;
    return part;
}

/* Returns the end of the row before which element i is, since blocks of 8-bit state are never
 * cut: the thread that has a row's first element updates the row. */
static int64_t whole_rows(const choir__opt_entry *e, int64_t i)
{
    return e->m_codes ? (i + e->row - 1) / e->row * e->row : i;
}

static void step_part(const choir__k_optim *k, int64_t first, int64_t count, optim_fn *step)
{
    for (int64_t i = 0; i < k->count && count > 0; i++) {
        const choir__opt_entry *e = &k->entries[i];
        int64_t n = choir__min(count, e->n - first);
        if (n <= 0) {
            first -= e->n;
            continue;
        }
        int64_t from = whole_rows(e, first), to = whole_rows(e, first + n);
        choir__opt_entry part = entry_part(e, from, to - from);
        choir__k_optim narrowed = *k;
        narrowed.entries = &part;
        narrowed.count = 1;
        step(&narrowed);
        first = 0;
        count -= n;
    }
}

static int64_t elements_of(const choir__k_optim *k)
{
    int64_t all = 0;
    for (int64_t i = 0; i < k->count; i++)
        all += k->entries[i].n;
    return all;
}

/* A step, and the kernel of one core that takes it. */
struct stepping {
    const choir__k_optim *k;
    optim_fn *step;
};

static void stepping_part(const void *arg, int64_t first, int64_t count)
{
    const struct stepping *s = arg;
    step_part(s->k, first, count, s->step);
}

static void step_divided(const choir__k_optim *k, optim_fn *step)
{
    choir__cpu_parallel(elements_of(k), LEAST, stepping_part, &(struct stepping){k, step});
}

static void adam(const choir__k_adam *k)
{
    step_divided(k, one.adam);
}

static void sgd(const choir__k_sgd *k)
{
    step_divided(k, one.sgd);
}

static void lion(const choir__k_lion *k)
{
    step_divided(k, one.lion);
}

static void rmsprop(const choir__k_rmsprop *k)
{
    step_divided(k, one.rmsprop);
}

static void average(const choir__k_average *k)
{
    step_divided(k, one.average);
}

static int64_t rows_of(const choir__opt_entry *e)
{
    return e->n ? (e->n + e->row - 1) / e->row : 0; /* a shard may have no rows, of width 0 */
}

/* Writes the sums of squares of rows [first, first + count). */
static void grad_norm_part(const void *arg, int64_t first, int64_t count)
{
    const choir__k_grad_norm *k = arg;
    int64_t given = k->given + first;
    for (int64_t i = 0; i < k->count && count > 0; i++) {
        const choir__opt_entry *e = &k->entries[i];
        int64_t rows = rows_of(e), n = choir__min(count, rows - first);
        if (n <= 0) {
            first -= rows;
            continue;
        }
        choir__opt_entry part = *e;
        part.grad += first * e->row * (is_wide(e) ? 2 : 1);
        part.n = choir__min(n * e->row, e->n - first * e->row);
        choir__k_grad_norm narrowed = *k;
        narrowed.entries = &part;
        narrowed.count = 1;
        narrowed.given = given;
        narrowed.norm = NULL;
        one.grad_norm(&narrowed);
        given += n;
        first = 0;
        count -= n;
    }
}

static void grad_norm(const choir__k_grad_norm *k)
{
    int64_t rows = 0, elements = 0;
    for (int64_t i = 0; i < k->count; i++) {
        rows += rows_of(&k->entries[i]);
        elements += k->entries[i].n;
    }
    int64_t each = elements / choir__max(1, rows);
    choir__cpu_parallel(rows, LEAST / choir__max(1, each) + 1, grad_norm_part, k);
    choir__k_grad_norm rest = *k; /* joins the rows' sums */
    rest.count = 0;
    rest.given = k->given + rows;
    one.grad_norm(&rest);
}

/* Divides the rows, or the only one. */
static void hash_part(const void *arg, int64_t first, int64_t count)
{
    choir__k_hash part = *(const choir__k_hash *)arg;
    bool one_row = part.rows == 1;
    part.x = at(part.x, one_row ? first : first * part.row, choir_dtype_size(part.dtype));
    part.at += one_row ? first : first * part.at_row;
    *(one_row ? &part.cols : &part.rows) = count;
    one.hash(&part);
}

static void hash(const choir__k_hash *k)
{
    int64_t each = k->rows == 1 ? 1 : choir__max(1, k->cols);
    choir__cpu_parallel(
        k->rows == 1 ? k->cols : k->rows, (LEAST + each - 1) / each, hash_part, k);
}

const choir__kernels *choir__cpu_divided(const choir__kernels *kernels)
{
    one = several = *kernels;
    several.fill = fill;
    several.unary = unary;
    several.unary_backward = unary_backward;
    several.add_scaled = add_scaled;
    several.binary = binary;
    several.copy = copy;
    several.softmax = softmax;
    several.softmax_backward = softmax_backward;
    several.layer_norm = layer_norm;
    several.layer_norm_backward = layer_norm_backward;
    several.swiglu = swiglu;
    several.swiglu_backward = swiglu_backward;
    several.cross_entropy_backward = cross_entropy_backward;
    several.sum = sum;
    several.attention = attention;
    several.attention_backward = attention_backward;
    several.adam = adam;
    several.sgd = sgd;
    several.lion = lion;
    several.rmsprop = rmsprop;
    several.average = average;
    several.grad_norm = grad_norm;
    several.hash = hash;
    several.expand = expand;
    return &several;
}
