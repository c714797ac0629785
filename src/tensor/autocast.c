/* The dtype in which an op computes.
 *
 * choir__begin asks for it in every op, after the op has been placed: operands are first moved
 * and then cast. So a tensor that several ops of a stage cast is copied to it once, and its
 * gradients add up on that stage's device as they do on a single one.
 *
 * Many kernels of a processor support only f32. An op's bf16 and f16 operands are *widened* for
 * them, its result is rounded once, and the f32 copies are released when the op is done;
 * backward makes those that it reads again. Products, batch norm, attention and functions of
 * one element (`half`, `half_here`) take 16 bits as they are, with the same bits. On devices
 * whose kernels all take 16 bits (choir_device.half) the operands stay as they are. The dtype
 * of an op's result is the same there.
 *
 * Autocast acts before that: in its scopes an op's `cast` says whether its f32 operands become
 * 16-bit (products), its 16-bit ones f32 (softmax, norms, sums, losses), or all become the
 * widest dtype among them. The assignment of ops follows PyTorch's lists for CUDA, whose f32
 * list includes the one for CPUs. All of an op's policy is in its choir__op.
 *
 * A parameter's cast is not an op: see autograd/param_casts.c. */
#include <choir/amp.h>

#include "tensor/autocast.h"
#include "tensor/handle.h"
#include "tensor/launch.h"

/* --- casts --- */

/* On a GPU the 16-bit copy of a norm's result is kept: to make it again, norm and cast move
 * seven times its size through memory. */
static const choir__op *cast_op_of(const choir_tensor *x)
{
    bool cheap = !choir__device_of(x)->half && x->producer && x->producer->op->cheap &&
                 x->producer->scope == x->scope;
    return choir__is_half(x->dtype) ? &choir__widen_op
           : cheap                  ? &choir__recast_op
                                    : &choir__cast_op;
}

/* Returns x's copy of that dtype that its kernel wrote with x, if neither has changed since. */
static choir_tensor *twin_of(const choir_tensor *x, choir_dtype dtype)
{
    uint32_t then = x->producer ? x->producer->out_version : 0;
    bool same = x->twin && x->twin->dtype == dtype && x->twin->storage && x->storage &&
                x->storage->version == then && x->twin->storage->version == 0;
    return same ? x->twin : NULL;
}

choir_tensor *choir__cast_in_place(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    if (x->dtype == dtype)
        return x;
    choir_tensor *twin = twin_of(x, dtype);
    choir_tensor *y =
        twin ? choir__tensor_alias(scope, twin) : choir__cast_like(scope, x, dtype);
    if (y->poisoned)
        return y;
    if (!twin)
        choir__launch_copy(y, x);
    if (choir__is_float(dtype) && choir__is_float(x->dtype))
        choir__tape_entry_new(cast_op_of(x), y, &x, 1);
    return y;
}

choir_tensor *choir__wide(choir_scope *scope, choir_tensor *x)
{
    if (!choir__is_half(x->dtype))
        return x;
    choir_tensor *y = choir__cast_like(scope, x, CHOIR_F32);
    if (!y->poisoned)
        choir__launch_copy(y, x);
    return y;
}

static choir_tensor *cast(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    return x->param && scope->kind != CHOIR__RUN ? choir__cast_param(scope, x, dtype)
                                                 : choir__cast_in_place(scope, x, dtype);
}

/* --- an op --- */

/* True if autocast may cast x; f64 stays, as in PyTorch. */
static bool eligible(const choir_tensor *x)
{
    return x && (x->dtype == CHOIR_F32 || choir__is_half(x->dtype));
}

/* Casts the operands to dtype, except those in the mask `but`. */
static bool cast_all(
    choir_scope *scope, choir_tensor **in, int count, unsigned but, choir_dtype dtype)
{
    for (int i = 0; i < count; i++)
        if (eligible(in[i]) && in[i]->dtype != dtype && !(but >> i & 1) &&
            (in[i] = cast(scope, in[i], dtype))->poisoned)
            return false;
    return true;
}

static bool all_half(choir_tensor *const *in, int count)
{
    for (int i = 0; i < count; i++)
        if (in[i] && !choir__is_half(in[i]->dtype))
            return false;
    return true;
}

static bool has_half(choir_tensor *const *in, int count)
{
    for (int i = 0; i < count; i++)
        if (in[i] && choir__is_half(in[i]->dtype))
            return true;
    return false;
}

/* True if the device's kernels of the op take 16-bit operands. */
static bool native(const choir_scope *scope, const choir__op *op, const choir_tensor *x)
{
    bool whole = !scope->sequence && !scope->cache;
    return choir__device_of(x)->half || op->half_here || (op->half_whole && whole);
}

/* Returns the operands that the op takes in 16 bits, all of one dtype; 0: it computes with f32
 * operands. A parameter's gradient is f32; among the ops on parameters, only products write f32
 * gradients for 16-bit operands. */
static unsigned taken(
    const choir_scope *scope, const choir__op *op, choir_tensor *const *in, int count)
{
    unsigned mask = native(scope, op, in[0]) ? op->half_native : op->half;
    for (int i = 0; i < count; i++) {
        if (!in[i] || in[i]->held || !(mask >> i & 1))
            continue;
        bool param = in[i]->param && op->cast != CHOIR__CAST_LOWER && !(op->half >> i & 1);
        if (!choir__is_half(in[i]->dtype) || in[i]->dtype != in[0]->dtype || param)
            return 0;
    }
    return mask;
}

/* Returns the operands that a loss reads in 16 bits although it computes in f32. */
static unsigned wide_of_half(
    const choir_scope *scope, const choir__op *op, choir_tensor *const *in, int count)
{
    return op->loss ? taken(scope, op, in, count) : 0;
}

/* Returns the operands that the op's kernel takes in 16 bits beside f32 ones. */
static unsigned taken_beside(
    const choir_scope *scope, const choir__op *op, choir_tensor *const *in, int count)
{
    unsigned mask = 0;
    bool can = scope->autocast.on && !scope->autocast.all && in[0]->dtype == CHOIR_F32 &&
               choir__device_of(in[0])->half;
    for (int i = 0; i < count && can; i++)
        if (in[i] && in[i]->dtype == scope->autocast.dtype && op->half_beside >> i & 1)
            mask |= 1u << i;
    return mask;
}

/* Returns the biases that become, or stay, 16-bit beside 16-bit operands. */
static unsigned half_biases(const choir_scope *scope, const choir__op *op,
    choir_tensor *const *in, int count, unsigned taken)
{
    unsigned mask = 0;
    bool possible = taken && choir__device_of(in[0])->half && scope->kind != CHOIR__RUN;
    for (int i = 0; i < count && possible; i++)
        if (op->bias >> i & 1 && in[i] && in[i]->param)
            mask |= 1u << i;
    return mask;
}

/* Casts to the lower dtype. A product's bias stays f32 here; other ops on the list are lowered
 * with all operands. */
static bool lower(choir_scope *scope, const choir__op *op, choir_tensor **in, int count)
{
    return cast_all(scope, in, op->half ? 2 : count, 0, scope->autocast.dtype);
}

/* Apex's O2 and O3: from the first product or lookup to the loss, everything is 16-bit. */
static bool lower_all(choir_scope *scope, const choir__op *op, choir_tensor **in, int count)
{
    const choir__autocast *a = &scope->autocast;
    if (op->cast == CHOIR__CAST_LOWER)
        return lower(scope, op, in, count);
    return !has_half(in, count) ||
           cast_all(scope, in, count, a->norms ? 0 : op->o2_keeps, a->dtype);
}

/* Casts the operands according to autocast's level. */
static bool autocast(choir_scope *scope, const choir__op *op, choir_tensor **in, int count)
{
    if (scope->autocast.all && !op->loss)
        return lower_all(scope, op, in, count);
    switch (op->cast) {
    case CHOIR__CAST_LOWER: return lower(scope, op, in, count);
    case CHOIR__CAST_F32:
        return cast_all(scope, in, count,
            wide_of_half(scope, op, in, count) | taken_beside(scope, op, in, count), CHOIR_F32);
    case CHOIR__CAST_WIDEST:
        return all_half(in, count) ||
               cast_all(scope, in, count, taken_beside(scope, op, in, count), CHOIR_F32);
    case CHOIR__CAST_NOTHING: break;
    }
    return true;
}

/* True if operands differ in dtype, outside of autocast; the op then reports the error. */
static bool disagree(const choir__op *op, choir_tensor *const *in, int count)
{
    for (int i = 1; op->cast == CHOIR__CAST_WIDEST && i < count; i++)
        if (in[i] && in[i]->dtype != in[0]->dtype)
            return true;
    return false;
}

static bool widen(choir_scope *scope, choir_tensor **in, int count, unsigned but)
{
    for (int i = 0; i < count; i++) {
        if (!in[i] || !choir__is_half(in[i]->dtype) || but >> i & 1)
            continue;
        if ((in[i] = cast(scope, in[i], CHOIR_F32))->poisoned)
            return false;
        if (!in[i]->cast)
            scope->op.widened[scope->op.widened_count++] = in[i];
    }
    return true;
}

/* True if the op is a lookup that copies rows as 32-bit words, whatever their dtype. */
static bool copies_words(const choir__op *op, choir_tensor *const *in)
{
    return op->lookup && choir__cols(in[0]) % 2 == 0;
}

bool choir__set_dtypes(choir_scope *scope, const choir__op *op, choir_tensor **in, int count)
{
    scope->op.stored = in[0]->dtype;
    scope->op.widened_count = 0;
    if (op->any_dtype || (!scope->autocast.on && !has_half(in, count)))
        return true;
    if (scope->autocast.on && !autocast(scope, op, in, count))
        return false;
    scope->op.stored = op->lookup && scope->autocast.on && scope->autocast.all
                           ? scope->autocast.dtype
                           : in[0]->dtype;
    if (!has_half(in, count) || disagree(op, in, count) || copies_words(op, in))
        return true;
    unsigned half = taken(scope, op, in, count),
             biases = half_biases(scope, op, in, count, half);
    return cast_all(scope, in, count, ~biases, in[0]->dtype) &&
           widen(scope, in, count, half | biases | taken_beside(scope, op, in, count));
}

choir_tensor *choir__as_stored(choir_tensor *y)
{
    choir_scope *scope = y->scope;
    choir_tensor *stored = y;
    if (!y->poisoned && y->dtype == CHOIR_F32 && choir__is_half(scope->op.stored)) {
        stored = choir__cast_in_place(scope, y, scope->op.stored);
        if (!stored->poisoned)
            choir__done_with_one(y);
    }
    for (int i = 0; i < scope->op.widened_count; i++)
        choir__done_with_one(scope->op.widened[i]);
    scope->op.widened_count = 0;
    return stored;
}

/* --- the setting --- */

void choir_autocast(choir_scope *scope, choir_dtype dtype)
{
    if (choir__use_scope(scope, __func__) != CHOIR_OK)
        return;
    if (!choir__is_half(dtype)) {
        choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "autocast: to bf16 or f16, not %s; choir_autocast_off turns it off",
            choir_dtype_name(dtype));
        return;
    }
    scope->autocast = (choir__autocast){.on = true, .dtype = dtype};
}

void choir_autocast_off(choir_scope *scope)
{
    if (choir__use_scope(scope, __func__) != CHOIR_OK)
        return;
    scope->autocast = (choir__autocast){0};
}

void choir_amp_level(choir_scope *scope, int level)
{
    if (choir__use_scope(scope, __func__) != CHOIR_OK)
        return;
    if (level < 0 || level > 3) {
        choir__poison(
            scope, CHOIR_ERR_ARGUMENT, "amp: unknown level O%d: choose one of O0 to O3", level);
        return;
    }
    scope->autocast = (choir__autocast){
        .on = level > 0, .all = level > 1, .norms = level > 2, .dtype = CHOIR_F16};
}
