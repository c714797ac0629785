/* Cross entropy and argmax of scores whose classes are distributed over ranks (Shoeybi et al.,
 * section 3). Ranks exchange two numbers per row, never the scores.
 *
 *    each rank   log sum exp of its classes; the target's score, or 0 where another rank has it
 *    all         lse = log sum_r exp(lse_r), loss = lse - sum_r score_r
 *    back        softmax of its own classes, less 1 at the target where it has that */
#include <choir/distributed.h>

#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/autocast.h"
#include "tensor/launch.h"

enum { IGNORED = -1 }; /* in a part's own targets */

typedef struct statistics {
    choir_tensor *targets; /* as numbers of this part's classes */
    choir_tensor *lse, *count;
} statistics;

/* Computes this rank's statistics: (2, rows). */
static choir_tensor *own_stats(choir_tensor *x, const choir_tensor *targets)
{
    int64_t rows = choir__rows(x);
    choir_device *device = choir__device_of(x);
    choir_tensor *stats = choir__tensor_new(x->scope, device, x->dtype, choir_dims(2, rows));
    choir_tensor *count = choir__tensor_new(x->scope, device, x->dtype, CHOIR_SCALAR);
    if (stats->poisoned || count->poisoned)
        return stats->poisoned ? stats : count;
    choir__k_cross_entropy args = {.logits = choir__data(x),
        .targets = choir__data(targets),
        .lse = choir__data(stats),
        .loss = (char *)choir__data(stats) + (size_t)rows * choir_dtype_size(x->dtype),
        .count = choir__data(count),
        .rows = rows,
        .cols = choir__cols(x),
        .ignore_index = IGNORED,
        .losses = CHOIR__ROWS_SCORE,
        .dtype = x->dtype};
    choir__launch(device, x->dtype, cross_entropy, &args);
    return stats;
}

static void launch_losses(choir_tensor *loss, choir_tensor *x, const statistics *s,
    choir_group *group, choir__row_losses losses)
{
    choir_tensor *all = choir_all_gather(own_stats(x, s->targets), group);
    if (all->poisoned) {
        loss->poisoned = true;
        return;
    }
    choir__k_part_losses args = {.stats = choir__data(all),
        .targets = choir__data(s->targets),
        .loss = choir__data(loss),
        .lse = choir__data(s->lse),
        .count = choir__data(s->count),
        .parts = choir_group_world(group),
        .rows = choir__rows(x),
        .losses = (int)losses,
        .dtype = x->dtype};
    choir__launch(choir__device_of(x), x->dtype, part_losses, &args);
}

typedef struct attributes {
    choir_cross_entropy_opts opts; /* first: choir__cross_entropy_backward reads it */
    choir_group *group;
} attributes;

static void cross_entropy_again(choir__record *r)
{
    const attributes *a = r->attrs;
    statistics s = {r->saved[0], r->saved[1], r->saved[2]};
    launch_losses(r->out, r->in[0], &s, a->group, choir__row_losses_of(a->opts.reduction));
}

static const choir__op cross_entropy_op = {.name = "cross_entropy",
    .cast = CHOIR__CAST_F32,
    .loss = true,
    .half_native = 1, /* the scores */
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

/* Returns the scores as kernels expect them; may be logits itself. */
static choir_tensor *local(choir_tensor *logits)
{
    const choir__partition *mark = logits->split;
    choir_tensor *x = logits;
    logits->split = NULL;
    if (choir__is_half(x->dtype) && !x->poisoned)
        x = choir_cast(x, CHOIR_F32);
    x = choir_contiguous(x);
    logits->split = mark;
    return x;
}

/* Maps global class ids to this rank's classes; ids of other ranks become CHOIR__ELSEWHERE,
 * ignored targets IGNORED. */
static choir_tensor *own_targets(const choir__tp_part *part, choir_scope *scope,
    choir_tensor *targets, int64_t classes, int64_t ignored)
{
    targets = choir__dense_rows(scope, targets);
    choir_tensor *own =
        choir__tensor_new(scope, choir__device_of(targets), CHOIR_I64, targets->shape);
    if (targets->poisoned || own->poisoned)
        return targets->poisoned ? targets : own;
    choir__k_part_targets args = {.x = choir__data(targets),
        .y = choir__data(own),
        .n = targets->count,
        .first = part->first,
        .count = classes,
        .whole = part->whole,
        .ignored = ignored,
        .ignores = true};
    choir__launch(choir__device_of(targets), CHOIR_F32, part_targets, &args);
    return own;
}

static choir_tensor *launch(choir_scope *scope, choir_tensor *const *in,
    const choir__tp_part *part, choir_cross_entropy_opts o)
{
    choir_tensor *x = in[0];
    choir_device *device = choir__device_of(x);
    choir_shape shape = x->shape;
    shape.ndim--;
    choir_tensor *loss = choir__tensor_new(
        scope, device, x->dtype, o.reduction == CHOIR_LOSS_NONE ? shape : CHOIR_SCALAR);
    statistics s = {own_targets(part, scope, in[1], choir__cols(x), o.ignore_index),
        choir__tensor_new(scope, device, x->dtype, choir_dims(choir__rows(x))),
        choir__tensor_new(scope, device, x->dtype, CHOIR_SCALAR)};
    if (loss->poisoned || s.targets->poisoned || s.lse->poisoned || s.count->poisoned) {
        loss->poisoned = true;
        return loss;
    }
    launch_losses(loss, x, &s, part->group, choir__row_losses_of(o.reduction));
    choir__record *r = choir__record_op(&cross_entropy_op, loss, in, 3);
    if (r) {
        o.ignore_index = IGNORED;
        choir__record_attrs(r, &(attributes){o, part->group}, sizeof(attributes));
        r->saved[0] = s.targets;
        r->saved[1] = s.lse;
        r->saved[2] = s.count;
    }
    return loss;
}

choir_tensor *choir__tp_cross_entropy(
    choir_tensor *logits, choir_tensor *target, choir_cross_entropy_opts o)
{
    const choir__tp_part *part = choir__tp_part_of(logits);
    choir_tensor *poisoned, *in[3] = {local(logits), target, NULL};
    const char *wrong = what_is_wrong(in[0], target, &o);
    if (wrong)
        return choir__shape_error(cross_entropy_op.name, in[0]->scope, in, 2, wrong);
    in[0]->split = NULL; /* only while this op reads it */
    choir_scope *scope = choir__begin(&cross_entropy_op, in, 3, &poisoned);
    choir_tensor *loss = scope ? launch(scope, in, part, o) : poisoned;
    logits->split = &part->base;
    return loss;
}

choir_tensor *choir__tp_argmax(choir_tensor *scores)
{
    const choir__tp_part *part = choir__tp_part_of(scores);
    choir_tensor *poisoned, *x = local(scores);
    x->split = NULL;
    choir_scope *scope = choir__begin(&choir__argmax_op, &x, 1, &poisoned);
    scores->split = &part->base;
    if (!scope)
        return poisoned;
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
        .first = part->first,
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
