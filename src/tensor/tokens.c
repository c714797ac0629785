/* Tokens that ranks share: how an op gets operands that agree, and two ops with gradients.
 *
 *     all   x (B, own, C) -> (B, L, C)     backward: this rank's tokens
 *     own   x (.., L, C) -> (.., own, C)   backward: the tokens of all ranks
 *
 * What follows `all` is computed by every rank, with the same gradient; what comes before `own`
 * is computed by every rank, too. */
#include "tensor/tokens.h"

#include "tensor/handle.h"
#include "tensor/sequence.h"

/* --- the two ops --- */

static const choir__partition *mark_of(const choir__tape_entry *r)
{
    return *(const choir__partition *const *)r->attrs;
}

static choir_tensor *all_of(const choir__partition *mark, choir_scope *scope, choir_tensor *x)
{
    return mark->by->ops->parts->all_tokens(mark, scope, x);
}

static choir_tensor *own_of(const choir__partition *mark, choir_scope *scope, choir_tensor *x)
{
    return mark->by->ops->parts->own_tokens(mark, scope, x);
}

static void give_new(choir__tape_entry *r, choir_tensor *g, choir__sink *sink)
{
    g->grad_owned = true;
    sink->give(sink, r, 0, g); /* gives nothing if g is poisoned */
}

static void all_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    give_new(r, own_of(mark_of(r), sink->scope, gy), sink);
}

static void own_backward(choir__tape_entry *r, choir_tensor *gy, choir__sink *sink)
{
    give_new(r, all_of(mark_of(r), sink->scope, gy), sink);
}

static void all_again(choir__tape_entry *r)
{
    choir__launch_copy(r->out, all_of(mark_of(r), r->scope, r->in[0]));
}

static void own_again(choir__tape_entry *r)
{
    choir__launch_copy(r->out, own_of(mark_of(r), r->scope, r->in[0]));
}

static const choir__op all_op = {
    .name = "all_tokens", .any_dtype = true, .backward = all_backward, .recompute = all_again};
static const choir__op own_op = {
    .name = "own_tokens", .any_dtype = true, .backward = own_backward, .recompute = own_again};

static choir_tensor *recorded(
    const choir__op *op, choir_tensor *y, choir_tensor *x, const choir__partition *mark)
{
    if (y->poisoned)
        return y;
    y->split = op == &own_op ? mark : NULL;
    choir__tape_entry *r = choir__tape_entry_new(op, y, &x, 1);
    if (r)
        choir__tape_entry_attrs(r, &mark, sizeof(choir__partition *));
    return y;
}

/* --- operands --- */

/* How an operand that has no mark goes with marked ones. */
typedef enum fit {
    AS_IT_IS, /* every token has the same value, and no gradient, which would be a sum */
    IN_PART,  /* the operand has all tokens, and only this rank's are needed */
    NOT
} fit;

static fit fit_of(const choir_tensor *t, const choir__partition *mark, bool grad)
{
    int dim = t->shape.ndim - 2; /* shapes of operands end together */
    int64_t tokens = dim < 0 ? 1 : t->shape.dim[dim];
    if (dim >= 0 && t->shape.ndim <= 3 && tokens == mark->size)
        return IN_PART;
    return tokens == 1 && t->shape.ndim <= 3 && !(grad && t->requires_grad) ? AS_IT_IS : NOT;
}

/* Returns whether the op can run on this rank's tokens: it takes all marked operands so, and
 * the others that go with them fit. */
static bool by_tokens(const choir_scope *scope, const choir__op *op, choir_tensor *const *in,
    int count, const choir__partition *mark)
{
    for (int i = 0; i < count; i++) {
        if (!in[i])
            continue;
        const choir__partition *own = choir__tokens_of(in[i]);
        bool takes = op->tokens_in >> i & 1;
        if (own ? !takes || own->size != mark->size || in[i]->shape.ndim != 3
                : takes && fit_of(in[i], mark, scope->grad) == NOT)
            return false;
    }
    return true;
}

bool choir__tokens_meet(choir_scope *scope, const choir__op *op, choir_tensor **in, int count)
{
    const choir__partition *mark = NULL;
    for (int i = 0; i < count && !mark; i++)
        mark = in[i] ? choir__tokens_of(in[i]) : NULL;
    if (!mark)
        return true;
    bool own = by_tokens(scope, op, in, count, mark);
    for (int i = 0; i < count; i++) {
        if (!in[i])
            continue;
        const choir__partition *has = choir__tokens_of(in[i]);
        if (!own && has)
            in[i] = recorded(&all_op, all_of(has, scope, in[i]), in[i], has);
        else if (own && !has && op->tokens_in >> i & 1 &&
                 fit_of(in[i], mark, scope->grad) == IN_PART)
            in[i] = recorded(&own_op, own_of(mark, scope, in[i]), in[i], mark);
        if (in[i]->poisoned)
            return false;
    }
    return true;
}

void choir__tokens_pass(
    const choir__op *op, choir_tensor *out, choir_tensor *const *in, int count)
{
    for (int i = 0; i < count && op->tokens_in; i++) {
        const choir__partition *mark = in[i] ? choir__tokens_of(in[i]) : NULL;
        if (mark && op->tokens_in >> i & 1)
            out->split = mark;
    }
}

choir_tensor *choir__tokens_all(choir_tensor *x)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&all_op, &x, 1, &poisoned); /* may replace x */
    return scope ? x : poisoned;
}

/* --- sums over tokens --- */

choir__cut choir__tokens_cut(const choir_scope *scope, const choir_tensor *x)
{
    const choir__partition *mark = choir__tokens_of(x);
    if (mark)
        return (choir__cut){x->shape.dim[0], mark->own};
    if (scope->sequence)
        return choir__sequence_cut(scope, x);
    for (const choir__strategy *s = scope->run->strategies; s; s = s->next)
        if (s->slices > 1 && x->shape.ndim == 3)
            return (choir__cut){x->shape.dim[0], s->slices};
    return (choir__cut){0};
}
