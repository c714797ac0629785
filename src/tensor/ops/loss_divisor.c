/* The divisor of a step's losses, where some targets are ignored or classes have weights.
 *
 * A mean of means depends on the cut: a micro-batch with few targets that count has a say as
 * large as one with many. So the losses of such a step are sums, each divided by one number:
 *
 *     D = targets that count in all M micro-batches, of all ranks / M
 *     mean over m of (sum_m / D)  =  sum over m of sum_m / all targets that count
 *
 * Everything else (the tree of gradients, the means of losses) stays a mean over micro-batches.
 * If all micro-batches have equally many targets that count, D is that number, and a loss is
 * the micro-batch's own mean.
 *
 * Each rank counts its own micro-batches; the counts of all of them, one per micro-batch, are
 * added in the order of the micro-batches, so that the ranks' number changes no bit. */
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/strategy.h"

static const char name[] = "loss_divisor";

static bool fits(const choir_tensor *y, const choir_tensor *first)
{
    return y->dtype == CHOIR_I64 && choir__device_of(y) == choir__device_of(first);
}

/* Returns NULL, or a poisoned tensor if the targets or the weights cannot be used. */
static choir_tensor *check(
    choir_scope *scope, choir_tensor *const *y, int count, choir_tensor *weight)
{
    for (int i = 0; i < count; i++) {
        if (y[i]->poisoned)
            return y[i];
        if (y[i]->freed)
            return choir__poison(
                scope, CHOIR_ERR_STATE, "%s: backward has freed the targets %d", name, i);
        if (!fits(y[i], y[0]))
            return choir__poison(scope, CHOIR_ERR_DTYPE,
                "%s: expected i64 targets on one device, got %s on %s as number %d", name,
                choir_dtype_name(y[i]->dtype), choir_device_name(choir__device_of(y[i])), i);
    }
    if (weight && weight->poisoned)
        return weight;
    if (weight && (weight->shape.ndim != 1 ||
                      (weight->dtype != CHOIR_F32 && weight->dtype != CHOIR_F64) ||
                      choir__device_of(weight) != choir__device_of(y[0])))
        return choir__poison(scope, CHOIR_ERR_SHAPE,
            "%s: expected class weights (C), f32 or f64, on the device of the targets, got %s",
            name, choir__shape_text(weight->shape));
    return NULL;
}

static void count_targets(
    double *to, choir_tensor *targets, choir_tensor *weight, int64_t ignore_index)
{
    choir_dtype dtype = weight ? weight->dtype : CHOIR_F32;
    choir__k_count_targets args = {.targets = choir__data(targets),
        .weight = weight ? choir__data(weight) : NULL,
        .y = to,
        .n = targets->count,
        .cols = weight ? weight->count : 0,
        .ignore_index = ignore_index,
        .dtype = dtype};
    choir__launch(choir__device_of(targets), dtype, count_targets, &args);
}

/* Returns the number of targets that count in each of this rank's micro-batches: (count). */
static choir_tensor *own_counts(
    choir_scope *scope, choir_tensor *const *y, int count, const choir_cross_entropy_opts *o)
{
    choir_device *device = choir__device_of(y[0]);
    choir_tensor *counts = choir__tensor_new(scope, device, CHOIR_F64, choir_dims(count));
    choir_tensor *weight = o->weight ? choir__dense_rows(scope, o->weight) : NULL;
    for (int i = 0; i < count && !counts->poisoned; i++) {
        choir_tensor *targets = choir__dense_rows(scope, y[i]);
        if (targets->poisoned || (weight && weight->poisoned))
            return targets->poisoned ? targets : weight;
        count_targets((double *)choir__data(counts) + i, targets, weight, o->ignore_index);
    }
    return counts;
}

/* Returns the number of targets that count in each of the step's micro-batches, of all ranks.
 */
static choir_tensor *all_counts(choir_tensor *const *targets, int count,
    const choir_cross_entropy_opts *opts, const char *caller)
{
    if (!targets || count < 1)
        return choir__poison_missing(NULL, caller, "targets");
    for (int i = 0; i < count; i++)
        if (!choir__is_sound(targets[i]))
            return choir__unsound(targets[i], caller);
    choir_scope *scope = choir__join(targets, count);
    if (!scope) {
        choir_tensor *none = choir__tensor_bare(targets[0]->scope, CHOIR_F32, CHOIR_SCALAR);
        none->poisoned = true;
        return none;
    }
    choir_tensor *bad = check(scope, targets, count, opts->weight);
    if (bad)
        return bad;
    choir_tensor *counts = own_counts(scope, targets, count, opts);
    return counts->poisoned ? counts : choir__strategies_gather(scope, counts);
}

/* Makes the divisor of the counts, and their sum. */
static choir_tensor *divisor_of(choir_tensor *counts, choir_tensor **sum)
{
    *sum = counts;
    if (counts->poisoned)
        return counts;
    choir_device *device = choir__device_of(counts);
    choir_tensor *y = choir__tensor_new(counts->scope, device, CHOIR_F32, CHOIR_SCALAR);
    *sum = choir__tensor_new(counts->scope, device, CHOIR_F64, CHOIR_SCALAR);
    if (y->poisoned || (*sum)->poisoned)
        return y->poisoned ? y : *sum;
    choir__k_loss_divisor args = {.counts = choir__data(counts),
        .y = choir__data(y),
        .sum = choir__data(*sum),
        .n = counts->count};
    choir__launch(device, CHOIR_F32, loss_divisor, &args);
    return y;
}

choir_tensor *choir_loss_divisor(
    choir_tensor *const *targets, int count, choir_cross_entropy_opts opts)
{
    choir_tensor *sum;
    return divisor_of(all_counts(targets, count, &opts, __func__), &sum);
}

choir_tensor *choir_loss_divisor_counted(choir_tensor *const *targets, int count,
    choir_cross_entropy_opts opts, choir_tensor **counted)
{
    choir_tensor *sum;
    return divisor_of(all_counts(targets, count, &opts, __func__), counted ? counted : &sum);
}
