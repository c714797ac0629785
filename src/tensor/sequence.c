/* Sequences that are cut into chunks: the cut of sums over tokens, and own tokens of an input.
 */
#include "tensor/sequence.h"

#include "tensor/handle.h"
#include "tensor/op.h"

choir__cut choir__sequence_cut(const choir_scope *scope, const choir_tensor *x)
{
    const choir__sequence *s = choir__sequence_of(scope, x);
    if (!s)
        return (choir__cut){0};
    bool heads = x->shape.ndim == 4; /* (B, L, heads, D): the rows of a token are together */
    return (choir__cut){
        heads ? x->shape.dim[0] : choir__rows(x) / choir__sequence_tokens(s), s->leaves};
}

bool choir__sequence_is_whole(const choir_tensor *t)
{
    const choir__sequence *s =
        t->of_params && t->producer ? t->producer->scope->sequence : NULL;
    return choir__sequence_parts(s);
}

/* Returns `count` tokens of t from `first` on: a view. */
static choir_tensor *tokens_of(choir_tensor *t, int dim, int64_t first, int64_t count)
{
    choir_tensor *view = choir__tensor_alias(t->scope, t);
    view->shape.dim[dim] = count;
    view->count = choir__shape_count(view->shape);
    view->offset += first * view->stride[dim];
    return view;
}

choir_tensor *choir__sequence_own(choir_scope *scope, choir_tensor *x, int dim)
{
    const choir__sequence *s = scope->sequence;
    if (!s || x->poisoned || dim >= x->shape.ndim || x->shape.dim[dim] != s->length)
        return x;
    choir_shape shape = x->shape;
    int64_t each = s->length / s->chunks;
    shape.dim[dim] = choir__sequence_tokens(s);
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, shape);
    for (int64_t l = 0; l < s->leaves && !y->poisoned; l++) {
        int64_t chunk = choir__chunk_of_leaf(s->first + l, s->chunks);
        choir__launch_copy(
            tokens_of(y, dim, l * each, each), tokens_of(x, dim, chunk * each, each));
    }
    return y;
}

choir_tensor *choir__sequence_whole(choir_scope *scope, choir_tensor *x, int dim)
{
    const choir__sequence *s = scope->sequence;
    return s && s->by && !x->poisoned ? s->by->ops->chunks->whole(s->by, scope, x, dim) : x;
}

choir_tensor *choir__sequence_in_order(choir_scope *scope, choir_tensor *x, int dim)
{
    const choir__sequence *s = scope->sequence;
    x = choir__sequence_whole(scope, x, dim);
    if (!s || x->poisoned)
        return x;
    choir_tensor *y = choir__tensor_new(scope, choir__device_of(x), x->dtype, x->shape);
    int64_t each = s->length / s->chunks;
    for (int64_t l = 0; l < s->chunks && !y->poisoned; l++) {
        int64_t chunk = choir__chunk_of_leaf(l, s->chunks);
        choir__launch_copy(
            tokens_of(y, dim, chunk * each, each), tokens_of(x, dim, l * each, each));
    }
    return y;
}

choir_tensor *choir__sequence_sum(choir_tensor *x)
{
    const choir__sequence *s = x->scope->sequence;
    return s && s->by && !x->poisoned ? s->by->ops->chunks->sum(s->by, x) : x;
}

void choir__sequence_given_once(choir_tensor *g)
{
    const choir__sequence *s = g->scope->sequence;
    if (choir__sequence_parts(s) && s->first && !g->poisoned)
        choir__launch_fill(g, -0.0);
}

choir_tensor *choir__sequence_refuse(choir_scope *scope, const char *op)
{
    return choir__poison(scope, CHOIR_ERR_ARGUMENT,
        "%s: it works across the tokens of a sequence, which is cut into %lld chunks: train this "
        "model without --chunks, or put the op before or after the sequence",
        op, (long long)scope->sequence->chunks);
}
