/* Linear algebra. Each op has one kernel for its result, and its gradient is made of public ops
 * (choir__op.derivative), as formulas of matrices:
 *
 *   L L' = x      gx = 1/2 L'^-1 (P + P') L^-1,  P = L' gL's lower triangle, its diagonal
 * halved a x = b       gb = a'^-1 gx,  ga = the triangle of -gb x' u s v' = x    gx = u (M(u'
 * gu) s + s M(v' gv) + diag gs) v' + (gu - u u' gu) / s v', M(a)[j, k] = (a[j, k] - a[k, j]) /
 * (s[k]^2 - s[j]^2)
 *
 * (Smith, 1995; Giles, 2008; Townsend, 2016). */
#include <choir/linalg.h>
#include <choir/select.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/ops/derive/derive.h"

static int64_t rows_of(const choir_tensor *x)
{
    return x->shape.dim[x->shape.ndim - 2];
}

static choir_tensor *turned(choir_tensor *x)
{
    return choir_transpose(x, -1, -2);
}

/* True for floating matrices. */
static bool is_matrix(const choir_tensor *x)
{
    return x->shape.ndim >= 2 && choir__is_float(x->dtype);
}

/* Gives the gradients that the op's derivative makes. */
static void derived_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    choir_tensor *g[CHOIR__MAX_IN] = {NULL};
    r->op->derivative(r, gy, g);
    for (int i = 0; i < r->count; i++)
        if (g[i] && choir__wanted(r, i) && !g[i]->poisoned)
            sink->give(sink, r, i, g[i]);
}

/* --- Cholesky's factor --- */

static void cholesky_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    choir_tensor *upper = turned(r->out), *m = choir_matmul(upper, gy);
    m = choir_add(choir_tril(m, 0), turned(choir_tril(m, -1))); /* P + P' */
    m = choir_solve_triangular(upper, m, true);
    m = choir_solve_triangular(upper, turned(m), true);
    gx[0] = choir_scale(m, 0.5);
}

static void cholesky_again(choir__tape_entry *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (x->poisoned || !x->count)
        return;
    int64_t n = choir__cols(x);
    choir__k_cholesky args = {.x = choir__data(x),
        .y = choir__data(r->out),
        .batch = x->count / n / n,
        .n = n,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, cholesky, &args);
}

static const choir__op cholesky_op = {.name = "cholesky",
    .cast = CHOIR__CAST_F32,
    .backward = derived_backward,
    .derivative = cholesky_derivative,
    .recompute = cholesky_again};

choir_tensor *choir_cholesky(choir_tensor *x)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&cholesky_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    if (!is_matrix(x) || rows_of(x) != choir__cols(x))
        return choir__shape_error(
            cholesky_op.name, scope, &x, 1, "expected floating matrices (..., n, n)");
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    return choir__computed(&cholesky_op, y, &x, 1, (choir__keeps){.saved = {y}});
}

/* --- triangular systems --- */

static void solve_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    bool upper = *(const bool *)r->attrs;
    choir_tensor *a = choir__derive_in(r, 0, gy);
    choir_tensor *gb = choir_solve_triangular(turned(a), gy, !upper);
    if (choir__wanted(r, 0)) {
        choir_tensor *ga = choir_neg(choir_matmul(gb, turned(r->out)));
        gx[0] = upper ? choir_triu(ga, 0) : choir_tril(ga, 0);
    }
    gx[1] = gb;
}

static void solve_again(choir__tape_entry *r)
{
    choir_tensor *a = choir__dense_rows(r->scope, r->in[0]);
    choir_tensor *b = choir__dense_rows(r->scope, r->in[1]);
    if (a->poisoned || b->poisoned || !b->count)
        return;
    int64_t n = choir__cols(a);
    choir__k_solve_triangular args = {.a = choir__data(a),
        .b = choir__data(b),
        .x = choir__data(r->out),
        .batch = a->count / n / n,
        .n = n,
        .cols = choir__cols(b),
        .upper = *(const bool *)r->attrs,
        .dtype = a->dtype};
    choir__launch(choir__device_of(a), a->dtype, solve_triangular, &args);
}

static const choir__op solve_op = {.name = "solve_triangular",
    .cast = CHOIR__CAST_F32,
    .backward = derived_backward,
    .derivative = solve_derivative,
    .recompute = solve_again,
    .reads_in = 1};

/* Returns x with the leading dimensions of `lead`, and its own last two. */
static choir_tensor *expanded(choir_tensor *x, choir_shape lead)
{
    for (int d = 0; d < 2; d++)
        lead.dim[lead.ndim - 2 + d] = x->shape.dim[x->shape.ndim - 2 + d];
    return choir__same_shape(lead, x->shape) ? x : choir_expand(x, lead);
}

/* Stores in *shape the leading dimensions of a and b, which broadcast, and room for two more.
 */
static bool join_leading(const choir_tensor *a, const choir_tensor *b, choir_shape *shape)
{
    choir_shape of_a = a->shape, of_b = b->shape;
    of_a.ndim -= 2, of_b.ndim -= 2;
    if (!choir__broadcast(of_a, of_b, shape) || shape->ndim + 2 > CHOIR_MAX_DIMS)
        return false;
    shape->ndim += 2;
    return true;
}

choir_tensor *choir_solve_triangular(choir_tensor *a, choir_tensor *b, bool upper)
{
    static const choir__op begun = {.name = "solve_triangular", .composed = true};
    choir_tensor *in[2] = {a, b}, *poisoned;
    choir_shape shape;
    choir_scope *scope = choir__begin(&begun, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    if (!is_matrix(in[0]) || !is_matrix(in[1]) || rows_of(in[0]) != choir__cols(in[0]) ||
        rows_of(in[0]) != rows_of(in[1]) || !join_leading(in[0], in[1], &shape))
        return choir__shape_error(solve_op.name, scope, in, 2,
            "expected floating matrices (..., n, n) and (..., n, cols)");
    in[0] = expanded(in[0], shape), in[1] = expanded(in[1], shape);
    scope = choir__begin(&solve_op, in, 2, &poisoned);
    if (!scope)
        return poisoned;
    if (in[0]->dtype != in[1]->dtype)
        return choir__shape_error(
            solve_op.name, scope, in, 2, "expected two matrices of one dtype");
    choir_tensor *y =
        choir__tensor_new(scope, choir__device_of(in[1]), in[1]->dtype, in[1]->shape);
    return choir__computed(&solve_op, y, in, 2, (choir__keeps){&upper, sizeof upper, {y}});
}

/* --- singular values: one result (..., m + 1 + n, n), with the rows of u, s and v --- */

/* The parts of such a result, or of its gradient. */
typedef struct parts {
    choir_tensor *u, *s, *v; /* (..., m, n), (..., 1, n), (..., n, n) */
} parts;

static parts parts_of(choir_tensor *all)
{
    int64_t n = choir__cols(all), m = rows_of(all) - 1 - n;
    return (parts){choir_narrow(all, -2, 0, m), choir_narrow(all, -2, m, 1),
        choir_narrow(all, -2, m + 1, n)};
}

/* Returns a / b, and 0 where b is 0. */
static choir_tensor *divided(choir_tensor *a, choir_tensor *b)
{
    choir_tensor *none = choir_compare(b, CHOIR_EQ, 0);
    return choir_div(choir_masked_fill(a, none, 0), choir_masked_fill(b, none, 1));
}

/* Returns a' ga - ga' a */
static choir_tensor *skewed(choir_tensor *a, choir_tensor *ga)
{
    choir_tensor *m = choir_matmul(turned(a), ga);
    return choir_sub(m, turned(m));
}

/* Divisors are differences and sums of singular values, not of their squares, which small ones
 * do not have. */
static void svd_derivative(const choir__tape_entry *r, choir_tensor *gy, choir_tensor **gx)
{
    parts y = parts_of(r->out), g = parts_of(gy);
    choir_shape square = y.v->shape;
    choir_tensor *row = choir_expand(y.s, square), *column = turned(row); /* s[k], s[j] */
    choir_tensor *sum = choir_add(row, column);
    choir_tensor *middle = choir_add(choir_mul(skewed(y.u, g.u), divided(row, sum)),
        choir_mul(skewed(y.v, g.v), divided(column, sum)));
    middle = divided(middle, choir_sub(row, column));
    choir_tensor *diagonal = choir_tril(choir_triu(choir_expand(g.s, square), 0), 0);
    choir_tensor *rows = choir_matmul(y.u, choir_add(middle, diagonal));
    if (rows_of(y.u) > choir__cols(y.u)) {
        choir_tensor *within = choir_matmul(y.u, choir_matmul(turned(y.u), g.u));
        rows = choir_add(rows, divided(choir_sub(g.u, within), choir_expand(y.s, y.u->shape)));
    }
    gx[0] = choir_matmul(rows, turned(y.v));
}

static void svd_again(choir__tape_entry *r)
{
    choir_tensor *x = choir__dense_rows(r->scope, r->in[0]);
    if (x->poisoned || !x->count)
        return;
    int64_t m = rows_of(x), n = choir__cols(x), batch = x->count / m / n;
    choir_tensor *scratch = choir__tensor_new(
        r->scope, choir__device_of(x), CHOIR_F64, choir_dims(batch, n, m + n + 1));
    if (scratch->poisoned)
        return;
    choir__k_svd args = {.x = choir__data(x),
        .y = choir__data(r->out),
        .scratch = choir__data(scratch),
        .batch = batch,
        .m = m,
        .n = n,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, svd, &args);
    choir__tensor_release(scratch);
}

static const choir__op svd_op = {.name = "svd",
    .cast = CHOIR__CAST_F32,
    .backward = derived_backward,
    .derivative = svd_derivative,
    .recompute = svd_again};

/* x (..., m, n), m >= n */
static choir_tensor *decomposed(choir_tensor *x)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&svd_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    choir_shape shape = x->shape;
    shape.dim[shape.ndim - 2] += 1 + choir__cols(x);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    return choir__computed(&svd_op, y, &x, 1, (choir__keeps){.saved = {y}});
}

choir_tensor *choir_svd(choir_tensor *x, choir_tensor **u, choir_tensor **vt)
{
    static const choir__op begun = {.name = "svd", .composed = true};
    choir_tensor *poisoned, *unused[2];
    u = u ? u : &unused[0], vt = vt ? vt : &unused[1];
    choir_scope *scope = choir__begin(&begun, &x, 1, &poisoned);
    if (!scope)
        return *u = *vt = poisoned;
    if (!is_matrix(x) || !rows_of(x) || !choir__cols(x))
        return *u = *vt = choir__shape_error(begun.name, scope, &x, 1,
                   "expected floating matrices (..., m, n), m and n at least 1");
    bool wide = choir__cols(x) > rows_of(x);
    choir_tensor *all = decomposed(wide ? turned(x) : x);
    if (all->poisoned)
        return *u = *vt = all;
    parts p = parts_of(all);
    *u = wide ? p.v : p.u;
    *vt = turned(wide ? p.u : p.v);
    choir_shape shape = p.s->shape;
    shape.dim[shape.ndim - 2] = shape.dim[shape.ndim - 1];
    shape.ndim--;
    return p.s->poisoned ? p.s : choir_reshape(p.s, shape);
}
