/* Attention by heads: each rank gets all tokens of some of the heads, attends as one device
 * would, and gives the results back.
 *
 *     rank's tokens, all heads  --all-to-all-->  all tokens, rank's heads  --all-to-all-->  ...
 *
 * Ranks hold runs of leaves in order, so their parts side by side are the sequence. Each
 * operand travels alone, as rows (D): first the token, then the sample, then the head. Its
 * memory has the size of the operand itself, so a step needs no blocks of sizes that nothing
 * else in it has. */
#include "parallel/context_parallel/context_parallel.h"

#include <choir/distributed.h>

#include "tensor/handle.h"
#include "tensor/launch.h"

/* An operand with all tokens of this rank's share of `heads` heads: (world T, B, heads / world,
 * D). Before it is sent, the first dimension is (world, T): the rank that gets the heads, a
 * token. */
static choir_tensor *new_operand(const choir__cp_call *call, int64_t heads)
{
    const choir__attention_shape *n = &call->k->n;
    const int64_t world = call->cp->world;
    return choir__tensor_new(call->scope, call->device, call->k->dtype,
        choir_dims(world * n->t, n->b, heads / world, n->d));
}

/* Copies x, all heads of this rank's tokens, to an operand that is to be sent, or from one that
 * was sent back. */
static void copy(
    const choir__cp_call *call, choir_tensor *operand, const choir__heads *x, bool back)
{
    const choir__attention_shape *n = &call->k->n;
    const int64_t world = call->cp->world, heads = operand->shape.dim[2], row = heads * n->d;
    choir_shape shape = choir_dims(world, n->t, n->b, heads, n->d);
    int64_t outside[] = {heads * x->h, x->t, x->b, x->h, 1},
            inside[] = {n->t * n->b * row, n->b * row, row, n->d, 1};
    choir_tensor *a = choir__cp_view(call, choir__data(operand), shape, inside),
                 *b = choir__cp_view(call, x->p, shape, outside);
    choir__launch_copy(back ? b : a, back ? a : b);
}

/* Returns the operand as attention reads and writes it. */
static choir__heads seen(const choir_tensor *operand)
{
    const int64_t *dim = operand->shape.dim; /* (world T, B, heads, D) */
    return (choir__heads){
        choir__data(operand), dim[2] * dim[3], dim[3], dim[1] * dim[2] * dim[3]};
}

static choir_tensor *send(const choir__cp_call *call, choir_tensor *t)
{
    choir_tensor *y = choir_all_to_all(t, call->cp->group);
    if (y != t)
        choir__tensor_release(t);
    return y;
}

/* Returns all tokens of this rank's heads of x, which has `heads` heads. */
static choir_tensor *collect(const choir__cp_call *call, const choir__heads *x, int64_t heads)
{
    choir_tensor *operand = new_operand(call, heads);
    if (operand->poisoned)
        return operand;
    copy(call, operand, x, false);
    return send(call, operand);
}

/* Gives all heads of x, this rank's tokens, from the ranks that have computed them. */
static void give_back(const choir__cp_call *call, choir_tensor *operand, const choir__heads *x)
{
    operand = send(call, operand);
    if (x->p && !operand->poisoned)
        copy(call, operand, x, true);
    choir__tensor_release(operand);
}

static bool sound(choir_tensor *const *operands, int count)
{
    for (int i = 0; i < count; i++)
        if (operands[i] && operands[i]->poisoned)
            return false;
    return true;
}

/* Returns the shape of attention to all tokens, with this rank's heads. */
static choir__attention_shape shape_of(const choir__cp_call *call)
{
    choir__attention_shape n = call->k->n;
    n.h /= call->cp->world, n.g /= call->cp->world;
    n.t *= call->cp->world, n.s *= call->cp->world;
    n.chunks = call->cp->chunks;
    return n;
}

/* Returns the whole bias of all queries, (P, 1, world T, S); NULL: no bias. */
static choir_tensor *gathered_bias(const choir__cp_call *call)
{
    const choir__attention_bias *b = &call->k->bias;
    const choir__attention_shape *n = &call->k->n;
    int64_t tokens = n->t * call->cp->world;
    int64_t own[] = {b->stride[2], b->stride[0], 1};
    if (!b->p)
        return NULL;
    choir_shape shape = choir_dims(n->t, b->samples, tokens); /* tokens first: ranks in order */
    choir_tensor *dense = choir__tensor_new(call->scope, call->device, call->k->dtype, shape);
    if (!dense->poisoned)
        choir__launch_copy(dense, choir__cp_view(call, b->p, shape, own));
    return choir_all_gather(dense, call->cp->group);
}

static void set_bias(const choir__cp_call *call, choir__k_attention *k, choir_tensor *bias)
{
    int64_t tokens = k->n.t;
    if (bias)
        k->bias = (choir__attention_bias){choir__data(bias), call->k->bias.samples,
            {tokens, 0, call->k->bias.samples * tokens}};
}

void choir__cp_heads_forward(const choir__cp_call *call)
{
    const choir__k_attention *own = call->k;
    choir_tensor *q = collect(call, &own->q, own->n.h), *key = collect(call, &own->k, own->n.g),
                 *v = collect(call, &own->v, own->n.g), *y = new_operand(call, own->n.h),
                 *bias = gathered_bias(call);
    if (!sound((choir_tensor *[]){q, key, v, y, bias}, 5))
        return;
    choir__k_attention k = {.q = seen(q),
        .k = seen(key),
        .v = seen(v),
        .y = seen(y),
        .lse = own->lse,
        .n = shape_of(call),
        .dtype = own->dtype};
    set_bias(call, &k, bias);
    choir__launch(call->device, k.dtype, attention, &k);
    choir__tensor_release(q);
    choir__tensor_release(key);
    choir__tensor_release(v);
    give_back(call, y, &own->y);
}

/* Returns delta of all tokens for this rank's heads, (B, H / world, world T). */
static choir_tensor *send_delta(const choir__cp_call *call)
{
    const choir__attention_shape *n = &call->k->n;
    const int64_t world = call->cp->world, h = n->h / world;
    choir_shape shape = choir_dims(world, n->t, n->b, h);
    int64_t own[] = {h * n->t, 1, n->h * n->t, n->t};
    choir_tensor *t = choir__tensor_new(call->scope, call->device, call->k->dtype, shape);
    choir_tensor *y = choir__tensor_new(
        call->scope, call->device, call->k->dtype, choir_dims(n->b, h, world * n->t));
    if (t->poisoned || y->poisoned)
        return t->poisoned ? t : y;
    choir__launch_copy(t, choir__cp_view(call, call->k->delta, shape, own));
    t = send(call, t); /* (world T, B, h) */
    if (t->poisoned)
        return t;
    int64_t by_head[] = {1, h, n->b * h};
    choir__launch_copy(
        y, choir__cp_view(call, choir__data(t), choir_dims(n->b, h, world * n->t),
               (int64_t[]){by_head[1], by_head[0], by_head[2]}));
    choir__tensor_release(t);
    return y;
}

void choir__cp_heads_backward(const choir__cp_call *call)
{
    enum { IN = 4, OUT = 3 };
    const choir__k_attention *own = call->k;
    const choir__heads *in[IN] = {&own->q, &own->k, &own->v, &own->gy},
                       *out[OUT] = {&own->gq, &own->gk, &own->gv};
    const int64_t heads[IN] = {own->n.h, own->n.g, own->n.g, own->n.h};
    choir_tensor *x[IN], *g[OUT], *delta = send_delta(call), *bias = gathered_bias(call);
    for (int i = 0; i < IN; i++)
        x[i] = collect(call, in[i], heads[i]);
    for (int i = 0; i < OUT; i++)
        g[i] = new_operand(call, heads[i]);
    if (!sound(x, IN) || !sound(g, OUT) || !sound((choir_tensor *[]){delta, bias}, 2))
        return;
    choir__k_attention k = {.q = seen(x[0]),
        .k = seen(x[1]),
        .v = seen(x[2]),
        .gy = seen(x[3]),
        .gq = seen(g[0]),
        .gk = seen(g[1]),
        .gv = seen(g[2]),
        .lse = own->lse,
        .delta = choir__data(delta),
        .n = shape_of(call),
        .dtype = own->dtype};
    set_bias(call, &k, bias);
    choir__launch(call->device, k.dtype, attention_backward, &k);
    choir__tensor_release(delta);
    for (int i = 0; i < IN; i++)
        choir__tensor_release(x[i]);
    for (int i = 0; i < OUT; i++)
        give_back(call, g[i], out[i]);
}
