/* Cross entropy and argmax of scores whose classes are in slices (Shoeybi et al., section 3).
 * Ranks exchange two numbers per row and slice, never the scores.
 *
 *    each slice  log sum exp of its classes; the target's score, or 0 where another slice has
 * it all         lse = log sum_t exp(lse_t), loss = lse - sum_t score_t, over slices in order
 *    back        softmax of a rank's own classes, less 1 at the target where it has that */
#include <choir/distributed.h>

#include "base/tree.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"
#include "tensor/sequence.h"

enum { IGNORED = -1 }; /* in a part's own targets */

typedef struct statistics {
    choir_tensor *targets; /* targets as numbers of this rank's classes */
    choir_tensor *lse, *count;
    choir_tensor *given; /* the targets as given */
} statistics;

typedef struct attributes {
    choir_cross_entropy_opts opts; /* first: choir__cross_entropy_backward reads it */
    const choir__tp_part *part;
    int64_t ignored; /* among the targets as given */
} attributes;

/* Maps class ids to numbers of `count` classes from `first` on; other ids become
 * CHOIR__ELSEWHERE, ignored targets IGNORED. */
static void launch_targets(choir_tensor *own, const choir_tensor *given, int64_t first,
    int64_t count, const attributes *a)
{
    choir__k_part_targets args = {.x = choir__data(given),
        .y = choir__data(own),
        .n = given->count,
        .first = first,
        .count = count,
        .whole = a->part->base.size,
        .ignored = a->ignored,
        .ignores = true};
    choir__launch(choir__device_of(given), CHOIR_F32, part_targets, &args);
}

/* Computes the statistics of one slice, the classes [lo, hi) of x: (2, rows), at `stats`. */
static void launch_stats(choir_tensor *x, choir_tensor *targets, choir_tensor *count,
    char *stats, int64_t lo, int64_t hi)
{
    size_t size = choir_dtype_size(x->dtype);
    choir__k_cross_entropy args = {.logits = (const char *)choir__data(x) + (size_t)lo * size,
        .targets = choir__data(targets),
        .lse = stats,
        .loss = stats + (size_t)choir__rows(x) * size,
        .count = choir__data(count),
        .rows = choir__rows(x),
        .cols = hi - lo,
        .row = choir__row_of(x),
        .ignore_index = IGNORED,
        .losses = CHOIR__ROWS_SCORE,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, cross_entropy, &args);
}

/* Computes the statistics of this rank's slices: (slices, 2, rows). */
static choir_tensor *own_stats(choir_tensor *x, const choir_tensor *given, const attributes *a)
{
    const choir__partition *part = &a->part->base;
    int64_t rows = choir__rows(x), lo, hi;
    choir_device *device = choir__device_of(x);
    choir_tensor *stats =
        choir__tensor_new(x->scope, device, x->dtype, choir_dims(part->own, 2, rows));
    choir_tensor *count = choir__tensor_new(x->scope, device, x->dtype, CHOIR_SCALAR);
    choir_tensor *targets = choir__tensor_new(x->scope, device, CHOIR_I64, given->shape);
    if (stats->poisoned || count->poisoned || targets->poisoned)
        return stats->poisoned ? stats : count->poisoned ? count : targets;
    size_t each = (size_t)(2 * rows) * choir_dtype_size(x->dtype);
    for (int64_t t = 0; t < part->own; t++) {
        choir__tree_run(choir__cols(x), (int)t, (int)part->own, &lo, &hi);
        launch_targets(targets, given, a->part->base.at + lo, hi - lo, a);
        launch_stats(x, targets, count, (char *)choir__data(stats) + (size_t)t * each, lo, hi);
    }
    return stats;
}

static void launch_losses(
    choir_tensor *loss, choir_tensor *x, const statistics *s, const attributes *a)
{
    choir_tensor *all = own_stats(x, s->given, a);
    if (a->part->group)
        all = choir_all_gather(all, a->part->group);
    if (all->poisoned) {
        loss->poisoned = true;
        return;
    }
    choir__k_part_losses args = {.stats = choir__data(all),
        .targets = choir__data(s->targets),
        .loss = choir__data(loss),
        .lse = choir__data(s->lse),
        .count = choir__data(s->count),
        .parts = a->part->base.cut.leaves,
        .rows = choir__rows(x),
        .losses = (int)choir__row_losses_of(a->opts.reduction),
        .dtype = x->dtype,
        .cut = choir__sequence_cut(x->scope, x)};
    choir__launch(choir__device_of(x), x->dtype, part_losses, &args);
}

static void cross_entropy_again(choir__tape_entry *r)
{
    const attributes *a = r->attrs;
    statistics s = {r->saved[0], r->saved[1], r->saved[2], r->saved[3]};
    launch_losses(r->out, r->in[0], &s, a);
}

static const choir__op cross_entropy_op = {.name = "cross_entropy",
    .by_token = true,
    .cast = CHOIR__CAST_F32,
    .loss = true,
    .slices_in = 1, /* the scores, which become f32 on every device */
    .backward = choir__cross_entropy_backward,
    .recompute = cross_entropy_again,
    .recompute_saved = 6, /* lse and count */
    .optional = 4,
    .reads_in = 7};

static const char *what_is_wrong(
    const choir_tensor *x, const choir_tensor *target, const choir_cross_entropy_opts *o)
{
    choir_shape rows = x->shape;
    rows.ndim--;
    if (x->shape.ndim < 1 || target->dtype != CHOIR_I64 || target->count != choir__rows(x) ||
        (target->shape.ndim != 1 && !choir__same_shape(target->shape, rows)))
        return "expected scores (..., C) and, of scores in parts, i64 targets (...)";
    if (o->weight || o->label_smoothing != 0)
        return "expected no class weights and no label smoothing, as the scores are in parts";
    return NULL;
}

/* Returns the scores with rows that kernels read. */
static choir_tensor *in_rows(choir_tensor *logits)
{
    if (logits->poisoned || choir__has_product_rows(logits))
        return logits;
    const choir__partition *mark = logits->split;
    logits->split = NULL;
    choir_tensor *x = choir_contiguous(logits);
    logits->split = mark;
    return x;
}

static choir_tensor *launch(choir_scope *scope, choir_tensor *const *in,
    const choir__tp_part *part, choir_cross_entropy_opts o)
{
    choir_tensor *x = in[0];
    choir_device *device = choir__device_of(x);
    choir_shape shape = x->shape;
    shape.ndim--;
    attributes a = {o, part, o.ignore_index};
    a.opts.ignore_index = IGNORED;
    choir_tensor *loss = choir__tensor_new(
        scope, device, x->dtype, o.reduction == CHOIR_LOSS_NONE ? shape : CHOIR_SCALAR);
    statistics s = {choir__tensor_new(scope, device, CHOIR_I64, in[1]->shape),
        choir__tensor_new(scope, device, x->dtype, choir_dims(choir__rows(x))),
        choir__tensor_new(scope, device, x->dtype, CHOIR_SCALAR),
        choir__dense_rows(scope, in[1])};
    if (loss->poisoned || s.targets->poisoned || s.lse->poisoned || s.count->poisoned ||
        s.given->poisoned) {
        loss->poisoned = true;
        return loss;
    }
    launch_targets(s.targets, s.given, part->base.at, choir__cols(x), &a);
    launch_losses(loss, x, &s, &a);
    choir__tape_entry *r = choir__tape_entry_new(&cross_entropy_op, loss, in, 3);
    if (r) {
        choir__tape_entry_attrs(r, &a, sizeof a);
        r->saved[0] = s.targets;
        r->saved[1] = s.lse;
        r->saved[2] = s.count;
        r->saved[3] = s.given;
    }
    return loss;
}

/* A loss that parts do not support is computed from the whole scores on a device that has all
 * slices: ranks refuse it. */
static choir_tensor *of_whole(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    return choir__cross_entropy_here(choir_reshape(logits, logits->shape), target, o);
}

choir_tensor *choir__tp_cross_entropy(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    const choir__tp_part *part = choir__tp_part_of(logits);
    choir_tensor *poisoned, *in[3] = {in_rows(logits), target, NULL};
    const char *wrong = what_is_wrong(in[0], target, &o);
    if (wrong && part->base.whole)
        return of_whole(logits, target, o);
    if (wrong)
        return choir__shape_error(cross_entropy_op.name, in[0]->scope, in, 2, wrong);
    choir_scope *scope = choir__begin(&cross_entropy_op, in, 3, &poisoned);
    return scope ? launch(scope, in, part, o) : poisoned;
}

choir_tensor *choir__tp_argmax(choir_tensor *scores)
{
    const choir__tp_part *part = choir__tp_part_of(scores);
    choir_tensor *poisoned, *x = scores;
    choir_scope *scope = choir__begin(&choir__argmax_op, &x, 1, &poisoned);
    if (!scope)
        return poisoned;
    x = choir__wide(scope, choir__dense_rows(scope, x));
    if (x->poisoned)
        return x;
    choir_device *device = choir__device_of(x);
    choir_shape shape = x->shape;
    shape.ndim--;
    choir_tensor *max = choir__tensor_new(scope, device, x->dtype, choir_dims(choir__rows(x)));
    choir_tensor *at = choir__tensor_new(scope, device, CHOIR_I64, choir_dims(choir__rows(x)));
    choir_tensor *y = choir__tensor_new(scope, device, CHOIR_I64, shape);
    if (max->poisoned || at->poisoned || y->poisoned)
        return y->poisoned ? y : at->poisoned ? at : max;
    choir__k_max_rows args = {.x = choir__data(x),
        .y = choir__data(max),
        .index = choir__data(at),
        .rows = choir__rows(x),
        .cols = choir__cols(x),
        .first = part->base.at,
        .dtype = x->dtype};
    choir__launch(device, x->dtype, max_rows, &args);
    max = choir_all_gather(max, part->group);
    at = choir_all_gather(at, part->group);
    if (max->poisoned || at->poisoned)
        return at->poisoned ? at : max;
    choir__k_part_max join = {.max = choir__data(max),
        .index = choir__data(at),
        .y = choir__data(y),
        .parts = choir_group_world(part->group),
        .rows = choir__rows(x),
        .dtype = x->dtype};
    choir__launch(device, x->dtype, part_max, &join);
    return y;
}
