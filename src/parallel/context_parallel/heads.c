/* Attention by heads: each rank gets all tokens of some of the heads, attends as one device
 * would, and gives the results back.
 *
 *     rank's tokens, all heads  --all-to-all-->  all tokens, rank's heads  --all-to-all-->  ...
 *
 * Ranks hold runs of leaves in order, so their parts side by side are the sequence. All
 * operands travel in one buffer of rows (D): first the token, then the sample, then the
 * operand's head. */
#include "parallel/context_parallel/context_parallel.h"

#include <choir/distributed.h>

#include "tensor/handle.h"
#include "tensor/launch.h"

enum { MOST = 4 };

/* Some operands in one buffer: at (world, T, B, X, D) before they are sent, at (world T, B, X,
 * D) after. */
typedef struct parcel {
    const choir__cp_call *call;
    int64_t heads[MOST]; /* per rank */
    int count;
    int64_t x; /* X, the sum of heads */
} parcel;

static parcel new_parcel(const choir__cp_call *call, const int64_t *heads, int count)
{
    parcel p = {.call = call, .count = count};
    for (int i = 0; i < count; i++) {
        p.heads[i] = heads[i] / call->cp->world;
        p.x += p.heads[i];
    }
    return p;
}

static choir_tensor *new_buffer(const parcel *p)
{
    const choir__attention_shape *n = &p->call->k->n;
    return choir__tensor_new(p->call->scope, p->call->device, p->call->k->dtype,
        choir_dims(p->call->cp->world * n->t, n->b * p->x, n->d));
}

static int64_t first_head(const parcel *p, int which)
{
    int64_t at = 0;
    for (int i = 0; i < which; i++)
        at += p->heads[i];
    return at;
}

/* Copies an operand of this rank's tokens to the buffer, or from it. */
static void copy(
    const parcel *p, choir_tensor *buffer, int which, const choir__heads *x, bool back)
{
    const choir__attention_shape *n = &p->call->k->n;
    const int64_t heads = p->heads[which], row = n->d * p->x;
    if (!x->p || buffer->poisoned)
        return;
    choir_shape shape = choir_dims(p->call->cp->world, n->t, n->b, heads, n->d);
    int64_t outside[] = {heads * x->h, x->t, x->b, x->h, 1},
            inside[] = {n->t * n->b * row, n->b * row, row, n->d, 1};
    char *at = choir__data(buffer);
    at += (size_t)(first_head(p, which) * n->d) * choir_dtype_size(p->call->k->dtype);
    choir_tensor *a = choir__cp_view(p->call, at, shape, inside),
                 *b = choir__cp_view(p->call, x->p, shape, outside);
    choir__launch_copy(back ? b : a, back ? a : b);
}

/* Returns operand `which` of a buffer that holds all tokens. */
static choir__heads seen(const parcel *p, const choir_tensor *buffer, int which)
{
    const choir__attention_shape *n = &p->call->k->n;
    char *at = choir__data(buffer);
    at += (size_t)(first_head(p, which) * n->d) * choir_dtype_size(p->call->k->dtype);
    return (choir__heads){at, p->x * n->d, n->d, n->b * p->x * n->d};
}

static choir_tensor *send(const choir__cp_call *call, choir_tensor *t)
{
    choir_tensor *y = choir_all_to_all(t, call->cp->group);
    if (y != t)
        choir__tensor_release(t);
    return y;
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
    const int64_t heads[] = {own->n.h, own->n.g, own->n.g};
    const choir__heads *in[] = {&own->q, &own->k, &own->v};
    const parcel there = new_parcel(call, heads, 3), back = new_parcel(call, heads, 1);
    choir_tensor *buffer = new_buffer(&there), *y = new_buffer(&back),
                 *bias = gathered_bias(call);
    for (int i = 0; i < 3; i++)
        copy(&there, buffer, i, in[i], false);
    buffer = send(call, buffer);
    if (buffer->poisoned || y->poisoned || (bias && bias->poisoned))
        return;
    choir__k_attention k = {.q = seen(&there, buffer, 0),
        .k = seen(&there, buffer, 1),
        .v = seen(&there, buffer, 2),
        .y = seen(&back, y, 0),
        .lse = own->lse,
        .n = shape_of(call),
        .dtype = own->dtype};
    set_bias(call, &k, bias);
    choir__launch(call->device, k.dtype, attention, &k);
    choir__tensor_release(buffer);
    y = send(call, y);
    copy(&back, y, 0, &own->y, true);
    choir__tensor_release(y);
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
    const choir__k_attention *own = call->k;
    const int64_t heads[] = {own->n.h, own->n.g, own->n.g, own->n.h};
    const choir__heads *in[] = {&own->q, &own->k, &own->v, &own->gy},
                       *out[] = {&own->gq, &own->gk, &own->gv};
    const parcel there = new_parcel(call, heads, 4), back = new_parcel(call, heads, 3);
    choir_tensor *buffer = new_buffer(&there), *g = new_buffer(&back),
                 *delta = send_delta(call), *bias = gathered_bias(call);
    for (int i = 0; i < 4; i++)
        copy(&there, buffer, i, in[i], false);
    buffer = send(call, buffer);
    if (buffer->poisoned || g->poisoned || delta->poisoned || (bias && bias->poisoned))
        return;
    choir__k_attention k = {.q = seen(&there, buffer, 0),
        .k = seen(&there, buffer, 1),
        .v = seen(&there, buffer, 2),
        .gy = seen(&there, buffer, 3),
        .gq = seen(&back, g, 0),
        .gk = seen(&back, g, 1),
        .gv = seen(&back, g, 2),
        .lse = own->lse,
        .delta = choir__data(delta),
        .n = shape_of(call),
        .dtype = own->dtype};
    set_bias(call, &k, bias);
    choir__launch(call->device, k.dtype, attention_backward, &k);
    choir__tensor_release(buffer);
    g = send(call, g);
    for (int i = 0; i < 3; i++)
        copy(&back, g, i, out[i], true);
    choir__tensor_release(g);
}
