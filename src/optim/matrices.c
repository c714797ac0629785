/* Optimizers that read whole matrices: Adafactor, and Muon for matrices. They are composed of
 * tensor ops in a scope of their own, so they run wherever the ops run.
 *
 * The numbers of a step (the rates, the clipping factor) are read as tensors from the device's
 * memory, where `decide` writes them, so a recorded step replays with new numbers. Where ranks
 * have parts of a parameter, each rank adds its part to zeros and the ranks' strategies sum
 * them: every rank then has the whole, computes the whole update, and takes its own part:
 *
 *     rank 0   g0 .  .          g0 g1 g2          u0 u1 u2   ->  u0
 *     rank 1   .  g1 .    sum   g0 g1 g2   rule   u0 u1 u2   ->     u1
 *
 * Each element has one rank that adds it, so the sum is exact, and the bits equal a single
 * device's. A whole parameter at a time is in memory beside the shards. */
#include <math.h>
#include <stddef.h>

#include <choir/select.h>
#include "optim/optim.h"
#include "tensor/launch.h"

/* One parameter's update. */
typedef struct work {
    choir_optim *o;
    choir_scope *scope;
    choir__optim_state *state;
    choir__optim_part *part;
    const float *found; /* the step is left out if it is not 0; NULL: never */
} work;

/* Returns a number in memory of the part's device. */
static choir_tensor *number(const work *w, const float *at)
{
    return choir__tensor_wrap(
        w->scope, w->part->device, CHOIR_F32, CHOIR_SCALAR, (void *)(uintptr_t)at);
}

/* Returns a member of the hyper-parameters of the parameter's group. */
static choir_tensor *hyper(const work *w, size_t member)
{
    const choir__opt_hyper *h = w->part->hyper->data;
    return number(w, (const float *)((const char *)&h[w->state->group] + member));
}

#define HYPER(w, member) hyper(w, offsetof(choir__opt_hyper, member))

/* Returns memory that is laid out like the parameter's local part. */
static choir_tensor *like_local(const work *w, float *data)
{
    const choir_tensor *local = w->state->param->local;
    choir_tensor *t =
        choir__tensor_wrap(w->scope, w->part->device, CHOIR_F32, local->shape, data);
    for (int d = 0; d < local->shape.ndim; d++)
        t->stride[d] = local->stride[d];
    return t;
}

/* Returns a state tensor as an operand. */
static choir_tensor *operand(const work *w, choir_tensor *state)
{
    return choir__tensor_alias(w->scope, state);
}

static choir_tensor *gradient(const work *w)
{
    choir_tensor *g = like_local(w, choir__param_grad_data(w->state->param));
    if (w->o->norm.value)
        g = choir_mul(g, number(w, choir__optim_clip_of(w->o, w->part) + CHOIR__CLIP_FACTOR));
    return w->o->rule.maximize ? choir_neg(g) : g;
}

/* Returns the block of t that a box describes: in this rank's part, or in the whole. */
static choir_tensor *block(choir_tensor *t, const int64_t *from, const int64_t *size)
{
    for (int d = 0; d < t->shape.ndim; d++)
        t = choir_narrow(t, d, from[d], size[d]);
    return t;
}

static bool is_empty(const choir__box *box, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (!box->size[d])
            return true;
    return false;
}

/* Returns the whole tensor that t is this rank's part of, row-major, because sums follow the
 * order in memory. */
static choir_tensor *whole_of(const work *w, choir_tensor *t)
{
    const choir__param *p = w->state->param;
    if (!p->boxes)
        return choir_contiguous(t);
    choir_tensor *sum = choir__tensor_new(w->scope, w->part->device, CHOIR_F64, p->whole);
    if (!sum->poisoned)
        choir__launch_fill(sum, 0);
    for (int b = 0; b < p->box_count && !p->uncounted; b++) {
        const choir__box *box = &p->boxes[b];
        if (is_empty(box, p->whole.ndim))
            continue;
        choir_tensor *to = block(sum, box->from, box->size);
        if (!sum->poisoned && !t->poisoned && !to->poisoned)
            choir__launch_copy(to, block(t, box->at, box->size));
    }
    choir_status status = choir__scope_status(w->scope);
    if (status == CHOIR_OK)
        status = choir__strategies_sum(
            w->o->run, choir__device_of(sum), choir__data(sum), sum->count);
    if (status != CHOIR_OK)
        choir__scope_fail(w->scope, status);
    return choir_cast(sum, CHOIR_F32);
}

/* Writes y to t's memory, unless the step is left out. */
static void store(const work *w, choir_tensor *t, choir_tensor *y)
{
    if (w->found)
        y = choir_where(choir_compare(number(w, w->found), CHOIR_EQ, 0), y, t);
    if (choir__scope_status(w->scope) == CHOIR_OK && t->count)
        choir__launch_copy(t, y);
}

/* p = p (1 - lr wd) - update, in this rank's part; update: the whole parameter's update. */
static void apply(const work *w, choir_tensor *update)
{
    choir__param *p = w->state->param;
    choir_tensor *local = like_local(w, choir__data(p->local));
    choir_tensor *keep = choir_affine(choir_mul(HYPER(w, lr), HYPER(w, weight_decay)), -1, 1);
    if (!p->boxes)
        store(w, local, choir_sub(choir_mul(local, keep), update));
    for (int b = 0; b < p->box_count; b++) {
        const choir__box *box = &p->boxes[b];
        if (is_empty(box, p->whole.ndim))
            continue;
        choir_tensor *part = block(local, box->at, box->size);
        store(w, part, choir_sub(choir_mul(part, keep), block(update, box->from, box->size)));
    }
}

/* Returns a + weight (b - a). */
static choir_tensor *lerp(choir_tensor *a, choir_tensor *b, choir_tensor *weight)
{
    return choir_add(a, choir_mul(choir_sub(b, a), weight));
}

/* Returns the root of the mean of squares. */
static choir_tensor *rms(choir_tensor *x)
{
    return choir_sqrt(choir_mean(choir_square(x)));
}

/* --- Adafactor --- */

/* Returns x's mean along a dimension that stays, with size 1. */
static choir_tensor *mean_along(choir_tensor *x, int dim)
{
    choir_shape shape = x->shape;
    shape.dim[dim] = 1;
    return choir_reshape(choir_mean_dim(x, dim), shape);
}

/* Returns the estimate of the second moment, and updates the sums that give it. */
static choir_tensor *second_moment(const work *w, choir_tensor *g)
{
    choir_tensor *squares = choir_square(g), *take = HYPER(w, take1);
    int n = g->shape.ndim;
    if (n < 2) {
        choir_tensor *v = operand(w, w->state->v), *next = lerp(v, squares, take);
        store(w, v, next);
        return next;
    }
    choir_tensor *row = operand(w, w->state->m), *column = operand(w, w->state->v);
    choir_tensor *rows = lerp(row, mean_along(squares, n - 1), take),
                 *columns = lerp(column, mean_along(squares, n - 2), take);
    choir_tensor *scale =
        choir_clamp(mean_along(rows, n - 2), (double)w->o->rule.eps, (double)INFINITY);
    store(w, row, rows);
    store(w, column, columns);
    return choir_div(choir_mul(rows, columns), scale);
}

static void adafactor(const work *w)
{
    choir_optim *o = w->o;
    choir_tensor *g = whole_of(w, gradient(w));
    choir_tensor *p = whole_of(w, like_local(w, choir__data(w->state->param->local)));
    double least = (double)o->rule.eps * (double)o->rule.eps;
    choir_tensor *v = choir_clamp(second_moment(w, g), least, (double)INFINITY);
    choir_tensor *u = choir_div(g, choir_sqrt(v));
    choir_tensor *over =
        choir_clamp(choir_scale(rms(u), 1 / (double)o->rule.threshold), 1, (double)INFINITY);
    choir_tensor *rate = choir_mul(
        choir_clamp(rms(p), (double)o->rule.least, (double)INFINITY), HYPER(w, step_size));
    apply(w, choir_mul(u, choir_div(rate, over)));
}

/* --- Muon --- */

/* Returns the matrix u v^T of x = u s v^T, with singular values near 1: Newton-Schulz steps
 * of degree five (Jordan, 2024). */
static choir_tensor *orthogonal(const work *w, choir_tensor *x)
{
    bool tall = x->shape.dim[0] > x->shape.dim[1];
    choir_tensor *y = tall ? choir_contiguous(choir_transpose(x, 0, 1)) : x;
    choir_tensor *norm = choir_sqrt(choir_sum(choir_square(y)));
    y = choir_div(y, choir_clamp(norm, (double)w->o->rule.least, (double)INFINITY));
    for (int i = 0; i < w->o->rule.products; i++) {
        choir_tensor *a = choir_matmul(y, choir_transpose(y, 0, 1));
        choir_tensor *b =
            choir_add(choir_scale(a, -4.7750), choir_scale(choir_matmul(a, a), 2.0315));
        y = choir_add(choir_scale(y, 3.4445), choir_matmul(b, y));
    }
    return tall ? choir_contiguous(choir_transpose(y, 0, 1)) : y;
}

/* Returns the factor of the rate for a matrix. */
static double muon_factor(const choir_optim *o, choir_shape whole)
{
    double rows = (double)whole.dim[0], columns = (double)whole.dim[1];
    return o->rule.match_rms ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

static void muon(const work *w)
{
    choir_tensor *g = gradient(w), *m = operand(w, w->state->m);
    choir_tensor *momentum = HYPER(w, momentum);
    choir_tensor *next = lerp(m, g, choir_affine(momentum, -1, 1));
    choir_tensor *u = whole_of(w, w->o->rule.nesterov ? lerp(g, next, momentum) : next);
    store(w, m, next);
    double factor = muon_factor(w->o, w->state->param->whole);
    apply(w, choir_mul(orthogonal(w, u), choir_scale(HYPER(w, lr), factor)));
}

/* --- all parameters --- */

static choir__optim_part *part_on(const choir_optim *o, const choir_device *device)
{
    for (int i = 0; i < o->part_count; i++)
        if (o->parts[i].device == device)
            return &o->parts[i];
    return NULL;
}

/* Updates one parameter in a scope of its own, which frees the memory before the next one. */
static choir_status update(choir_optim *o, choir__optim_state *s, bool scaled)
{
    work w = {.o = o, .state = s, .scope = choir_no_grad(o->run)};
    w.scope->autocast.on = false;
    w.part = part_on(o, choir__device_of(s->param->local));
    if (scaled)
        w.found = choir__optim_clip_of(o, w.part) + CHOIR__CLIP_FOUND;
    if (o->rule.kind == CHOIR__MUON)
        muon(&w);
    else
        adafactor(&w);
    choir_status status = choir__scope_status(w.scope), closed = choir__scope_end(w.scope);
    return status == CHOIR_OK ? closed : status;
}

choir_status choir__optim_step_matrices(choir_optim *o, bool scaled)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < o->count && status == CHOIR_OK; i++) {
        choir__optim_state *s = &o->states[i];
        bool whole = o->rule.kind == CHOIR__ADAFACTOR || s->matrix;
        if (whole && choir__param_grad_data(s->param) &&
            !choir__device_of(s->param->local)->away)
            status = update(o, s, scaled);
    }
    return status;
}
