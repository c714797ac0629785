/* In which dtype an op computes.
 *
 * choir__begin asks this of every op, after the op has been placed: operands are first moved
 * and then cast, so a tensor that several ops of a stage cast crosses once, and gradients of it
 * add up on that stage's device as they do on a single one.
 *
 * The kernels of a processor know f32 alone, but for products (linear, matmul, convolutions).
 * An op's bf16 and f16 operands are *widened* for it, its result is rounded once, and the f32
 * copies go when the op is done; backward makes again those that it reads. On devices all of
 * whose kernels take 16 bits (choir_device.half) the operands stay as they are. In which dtype
 * an op's result comes is the same there.
 *
 * Autocast changes what comes before: in its scopes an op's name says whether its f32 operands
 * become 16-bit ones (products), its 16-bit ones f32 (softmax, norms, sums, losses), or all
 * become the widest of them. The lists are PyTorch's for CUDA, whose f32 list has all of that
 * for CPUs and more.
 *
 * A parameter's cast is no op: it is another handle of the parameter. So its gradient is the
 * parameter's, f32, in the book, and uses are counted and added as if there were no casts. It
 * is made once a scope, i.e. a micro-batch, and goes with the last record that has it. */
#include <choir/amp.h>

#include <string.h>

#include "tensor/autocast.h"
#include "tensor/launch.h"

typedef enum list { AS_THEY_ARE, LOWER, F32, PROMOTE } list;

typedef struct kind {
    const char *op;
    list list;
    unsigned takes;  /* bit i: operand i may have 16 bits on every device; others are f32 */
    unsigned native; /* the same where all kernels take them (choir_device.half) */
} kind;

enum { ALL = (1 << CHOIR__MAX_IN) - 1 };

/* Ops that are missing here take what they get: views, copies, a user's own. */
static const kind kinds[] = {
    {"linear", LOWER, 3, 3},
    {"matmul", LOWER, 3, 3},
    {"conv2d", LOWER, 3, 3},
    {"conv_transpose2d", LOWER, 0, 0},
    {"attention", LOWER, 0, ALL},
    {"self_attention", LOWER, 0, ALL},
    {"recurrent", LOWER, 0, ALL},
    {"exp", F32, 0, ALL},
    {"log", F32, 0, ALL},
    {"square", F32, 0, ALL},
    {"softmax", F32, 0, ALL},
    {"log_softmax", F32, 0, ALL},
    {"layer_norm", F32, 0, 0},
    {"rms_norm", F32, 0, 0},
    {"group_norm", F32, 0, 0},
    {"sum", F32, 0, 0},
    {"cross_entropy", F32, 0, 1},
    {"nll_loss", F32, 0, 0},
    {"l1_loss", F32, 0, 0},
    {"smooth_l1_loss", F32, 0, 0},
    {"huber_loss", F32, 0, 0},
    {"bce_loss", F32, 0, 0},
    {"bce_with_logits_loss", F32, 0, 0},
    {"kl_div_loss", F32, 0, 0},
    {"add", PROMOTE, 0, ALL},
    {"sub", PROMOTE, 0, ALL},
    {"mul", PROMOTE, 0, ALL},
    {"div", PROMOTE, 0, ALL},
    {"swiglu", PROMOTE, 0, ALL},
    {"cat", PROMOTE, ALL, ALL},
    {"batch_norm", AS_THEY_ARE, 0, 1 | 8},
    {"embedding", AS_THEY_ARE, 0, 0},
    {"dropout", AS_THEY_ARE, 0, ALL},
    {"rotary", AS_THEY_ARE, 0, 1},
    {"max_pool2d", AS_THEY_ARE, 0, ALL},
    {"avg_pool2d", AS_THEY_ARE, 0, ALL},
    {"adaptive_max_pool2d", AS_THEY_ARE, 0, ALL},
    {"adaptive_avg_pool2d", AS_THEY_ARE, 0, ALL},
    {"argmax", AS_THEY_ARE, 0, ALL},
    {"neg", AS_THEY_ARE, 0, ALL},
    {"sqrt", AS_THEY_ARE, 0, ALL},
    {"abs", AS_THEY_ARE, 0, ALL},
    {"tanh", AS_THEY_ARE, 0, ALL},
    {"sigmoid", AS_THEY_ARE, 0, ALL},
    {"relu", AS_THEY_ARE, 0, ALL},
    {"gelu", AS_THEY_ARE, 0, ALL},
    {"gelu_tanh", AS_THEY_ARE, 0, ALL},
    {"silu", AS_THEY_ARE, 0, ALL},
    {"affine", AS_THEY_ARE, 0, ALL},
};

static const kind *kind_of(const char *op)
{
    for (size_t i = 0; i < CHOIR_COUNT(kinds); i++)
        if (!strcmp(kinds[i].op, op))
            return &kinds[i];
    return NULL;
}

/* --- casts --- */

static choir_tensor *new_like(choir_scope *scope, const choir_tensor *x, choir_dtype dtype)
{
    choir_tensor like = *x;
    like.dtype = dtype;
    return choir__tensor_like(scope, &like);
}

static choir_tensor *cast_param(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    for (choir_tensor *t = scope->casts; t; t = t->cast->next)
        if (t->cast->of == x && t->dtype == dtype && t->storage &&
            choir__device_of(t) == choir__device_of(x))
            return t;
    choir_tensor *y = new_like(scope, x, dtype);
    if (y->poisoned)
        return y;
    choir__launch_copy(y, x);
    y->cast = choir__arena_get(&scope->arena, sizeof *y->cast);
    *y->cast = (choir__cast){.of = x, .next = scope->casts};
    y->param = x->param;
    y->requires_grad = x->requires_grad;
    return scope->casts = y;
}

choir_status choir__cast_again(choir_tensor *t)
{
    if (!t || !t->cast || t->storage)
        return CHOIR_OK;
    choir_status status = choir__cast_again(t->cast->of);
    if (status != CHOIR_OK)
        return status;
    if (!choir__tensor_allocate(t, choir__device_of(t->cast->of)))
        return choir_scope_status(t->scope);
    t->freed = false;
    choir__launch_copy(t, t->cast->of);
    return CHOIR_OK;
}

static const choir__op *cast_op_of(const choir_tensor *x)
{
    bool cheap = x->producer && x->producer->op->cheap && x->producer->scope == x->scope;
    return choir__is_half(x->dtype) ? &choir__widen_op
           : cheap                  ? &choir__recast_op
                                    : &choir__cast_op;
}

choir_tensor *choir__cast_in_place(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    if (x->dtype == dtype)
        return x;
    choir_tensor *y = new_like(scope, x, dtype);
    if (y->poisoned)
        return y;
    choir__launch_copy(y, x);
    if (choir__is_float(dtype) && choir__is_float(x->dtype))
        choir__record_op(cast_op_of(x), y, &x, 1);
    return y;
}

choir_tensor *choir__wide(choir_scope *scope, choir_tensor *x)
{
    if (!choir__is_half(x->dtype))
        return x;
    choir_tensor *y = new_like(scope, x, CHOIR_F32);
    if (!y->poisoned)
        choir__launch_copy(y, x);
    return y;
}

static choir_tensor *cast(choir_scope *scope, choir_tensor *x, choir_dtype dtype)
{
    return x->param && scope->kind != CHOIR__RUN ? cast_param(scope, x, dtype)
                                                 : choir__cast_in_place(scope, x, dtype);
}

/* --- an op --- */

/* f64 stays, as in PyTorch. */
static bool eligible(const choir_tensor *x)
{
    return x && (x->dtype == CHOIR_F32 || choir__is_half(x->dtype));
}

/* but: bit i: operand i stays as it is. */
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

static bool is_loss(const kind *k)
{
    return strstr(k->op, "_loss") || !strcmp(k->op, "cross_entropy");
}

/* The operands that the op takes in 16 bits, all of one type; 0: it would rather have f32. A
 * parameter's gradient is f32, which of the ops on parameters only products write beside 16-bit
 * operands. */
static unsigned taken(const kind *k, choir_tensor *const *in, int count)
{
    unsigned mask = choir__device_of(in[0])->half ? k->native : k->takes;
    for (int i = 0; i < count; i++) {
        if (!in[i] || !(mask >> i & 1))
            continue;
        bool param = in[i]->param && k->list != LOWER && !(k->takes >> i & 1);
        if (!choir__is_half(in[i]->dtype) || in[i]->dtype != in[0]->dtype || param)
            return 0;
    }
    return mask;
}

/* Of an op on the f32 list: operands that its kernel reads in 16 bits for an f32 result. */
static unsigned wide_of_half(const kind *k, choir_tensor *const *in, int count)
{
    return is_loss(k) ? taken(k, in, count) : 0;
}

/* Apex's O2 and O3: from the first product or lookup on all is 16-bit, up to the loss. */
static bool lower_all(choir_scope *scope, const kind *k, choir_tensor **in, int count)
{
    const choir__autocast *a = &scope->autocast;
    if (k->list != LOWER && !has_half(in, count))
        return true;
    if (!strcmp(k->op, "batch_norm") && !a->norms)
        return cast_all(scope, in, count, 7, a->dtype); /* x came so; gamma, beta are f32 */
    return cast_all(scope, in, k->list == LOWER && k->takes ? 2 : count, 0, a->dtype);
}

/* What autocast makes of the operands. */
static bool autocast(choir_scope *scope, const kind *k, choir_tensor **in, int count)
{
    const choir__autocast *a = &scope->autocast;
    if (a->all && !is_loss(k))
        return lower_all(scope, k, in, count);
    switch (k->list) {
    case LOWER: return cast_all(scope, in, k->takes ? 2 : count, 0, a->dtype);
    case F32: return cast_all(scope, in, count, wide_of_half(k, in, count), CHOIR_F32);
    case PROMOTE: return all_half(in, count) || cast_all(scope, in, count, 0, CHOIR_F32);
    case AS_THEY_ARE: break;
    }
    return true;
}

/* Operands that do not agree, outside of autocast: the op says so. */
static bool disagree(const kind *k, choir_tensor *const *in, int count)
{
    for (int i = 1; k->list == PROMOTE && i < count; i++)
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
            scope->widened[scope->widened_count++] = in[i];
    }
    return true;
}

bool choir__set_dtypes(choir_scope *scope, const char *op, choir_tensor **in, int count)
{
    scope->stored = in[0]->dtype;
    scope->widened_count = 0;
    if (!scope->autocast.on && !has_half(in, count))
        return true;
    const kind *k = kind_of(op);
    if (!k)
        return true;
    if (scope->autocast.on && !autocast(scope, k, in, count))
        return false;
    scope->stored = in[0]->dtype;
    if (scope->autocast.on && scope->autocast.all && !strcmp(op, "embedding"))
        scope->stored = scope->autocast.dtype;
    if (!has_half(in, count) || disagree(k, in, count))
        return true;
    if (!strcmp(op, "embedding") && choir__cols(in[0]) % 2 == 0)
        return true; /* it copies rows, of whatever */
    return widen(scope, in, count, taken(k, in, count));
}

choir_tensor *choir__as_stored(choir_tensor *y)
{
    choir_scope *scope = y->scope;
    choir_tensor *stored = y;
    if (!y->poisoned && y->dtype == CHOIR_F32 && choir__is_half(scope->stored)) {
        stored = choir__cast_in_place(scope, y, scope->stored);
        if (!stored->poisoned)
            choir__done_with_one(y);
    }
    for (int i = 0; i < scope->widened_count; i++)
        choir__done_with_one(scope->widened[i]);
    scope->widened_count = 0;
    return stored;
}

/* --- the setting --- */

void choir_autocast(choir_scope *scope, choir_dtype dtype)
{
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
    scope->autocast = (choir__autocast){0};
}

void choir_amp_level(choir_scope *scope, int level)
{
    if (level < 0 || level > 3) {
        choir__poison(
            scope, CHOIR_ERR_ARGUMENT, "amp: there are the levels O0 to O3, not O%d", level);
        return;
    }
    scope->autocast = (choir__autocast){
        .on = level > 0, .all = level > 1, .norms = level > 2, .dtype = CHOIR_F16};
}
