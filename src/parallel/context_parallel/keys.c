/* Attention by chunks of keys: each rank keeps its queries, and the ranks send one chunk of
 * keys and values after another to all of them, in rising order, which is the order in which
 * partial results are combined (device/kernels/attention.h). So a rank holds one chunk of other
 * ranks' keys at a time.
 *
 * In backward the chunks come once more. The terms of a rank's queries in a chunk's gradients
 * are a node of the tree over leaves of queries, or several; the ranks' nodes are added in the
 * tree, for the owner of the chunk. */
#include "parallel/context_parallel/context_parallel.h"

#include <choir/distributed.h>

#include "parallel/blocks.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/ops/sliced/slabs.h"

/* --- chunks --- */

static int64_t tokens_of(const choir__cp_call *call)
{
    return call->k->n.t / choir__cp_own(call->cp);
}

/* Returns the chunk of this rank's leaf l. */
static int64_t own_chunk(const choir__cp_call *call, int64_t l)
{
    return choir__chunk_of_leaf(call->cp->rank * choir__cp_own(call->cp) + l, call->cp->chunks);
}

/* Returns whether any token of chunk `queries` sees one of chunk `keys`. */
static bool sees(const choir__cp_call *call, int64_t queries, int64_t keys)
{
    const choir__attention_shape *n = &call->k->n;
    const int64_t each = tokens_of(call), nearest = (queries - keys - 1) * each + 1;
    return (!n->causal || keys <= queries) &&
           (!n->window || queries <= keys || nearest < n->window);
}

/* Returns the first chunk of keys that chunk `queries` sees. */
static int64_t first_seen(const choir__cp_call *call, int64_t queries)
{
    int64_t keys = 0;
    while (!sees(call, queries, keys))
        keys++;
    return keys;
}

static int64_t last_seen(const choir__cp_call *call, int64_t queries)
{
    return call->k->n.causal ? queries : call->cp->chunks - 1;
}

static char *at_row(const choir__cp_call *call, const choir__heads *x, int64_t row)
{
    return x->p ? (char *)x->p + (size_t)(row * x->t) * choir_dtype_size(call->k->dtype) : NULL;
}

/* --- one chunk of keys and values, on all ranks --- */

/* A chunk of two operands of keys, (2, B, G, tokens, D). */
static choir_tensor *new_chunk(const choir__cp_call *call)
{
    const choir__attention_shape *n = &call->k->n;
    return choir__tensor_new(call->scope, call->device, call->k->dtype,
        choir_dims(2, n->b, n->g, tokens_of(call), n->d));
}

static choir__heads half_of(const choir__cp_call *call, const choir_tensor *chunk, int which)
{
    const choir__attention_shape *n = &call->k->n;
    int64_t head = tokens_of(call) * n->d;
    char *at = choir__data(chunk);
    at += (size_t)(which * n->b * n->g * head) * choir_dtype_size(call->k->dtype);
    return (choir__heads){at, n->g * head, head, n->d};
}

static int owner_of(const choir__cp_call *call, int64_t chunk)
{
    return (int)(choir__leaf_of_chunk(chunk, call->cp->chunks) / choir__cp_own(call->cp));
}

/* Copies the chunk from this rank's operands, or to them; x: the two. */
static void copy(const choir__cp_call *call, const choir_tensor *chunk, int64_t index,
    const choir__heads *const *x, bool back)
{
    const choir__attention_shape *n = &call->k->n;
    const int64_t own = choir__cp_own(call->cp);
    int64_t row = choir__leaf_of_chunk(index, call->cp->chunks) % own * tokens_of(call);
    choir_shape shape = choir_dims(n->b, n->g, tokens_of(call), n->d);
    for (int i = 0; i < 2; i++) {
        if (!x[i]->p)
            continue;
        choir__heads half = half_of(call, chunk, i);
        int64_t inside[] = {half.b, half.h, half.t, 1},
                outside[] = {x[i]->b, x[i]->h, x[i]->t, 1};
        choir_tensor *a = choir__cp_view(call, half.p, shape, inside),
                     *b = choir__cp_view(call, at_row(call, x[i], row), shape, outside);
        choir__launch_copy(back ? b : a, back ? a : b);
    }
}

/* Gives all ranks a chunk of keys and values. */
static choir_tensor *share(const choir__cp_call *call, int64_t index)
{
    choir_tensor *chunk = new_chunk(call);
    if (chunk->poisoned)
        return chunk;
    if (owner_of(call, index) == call->cp->rank)
        copy(
            call, chunk, index, (const choir__heads *const[]){&call->k->k, &call->k->v}, false);
    choir__blocks_fail(chunk, choir_broadcast(chunk, call->cp->group, owner_of(call, index)));
    return chunk;
}

/* Returns the call for this rank's leaf l of queries and a chunk of keys. */
static choir__k_attention pair_of(
    const choir__cp_call *call, const choir_tensor *chunk, int64_t index, int64_t l)
{
    choir__k_attention p = *call->k;
    const int64_t each = tokens_of(call), row = l * each, queries = own_chunk(call, l);
    const size_t size = choir_dtype_size(p.dtype);
    p.n.t = p.n.s = each;
    p.n.ahead = (queries - index) * each;
    p.lse_row = call->k->n.t;
    choir__heads *of_queries[] = {&p.q, &p.y, &p.gy, &p.gq};
    for (int i = 0; i < 4; i++)
        of_queries[i]->p = at_row(call, of_queries[i], row);
    p.k = half_of(call, chunk, 0), p.v = half_of(call, chunk, 1);
    p.lse = (char *)p.lse + (size_t)row * size;
    if (p.delta)
        p.delta = (char *)p.delta + (size_t)row * size;
    int64_t key = choir__leaf_of_chunk(index, call->cp->chunks) * each;
    if (p.bias.p)
        p.bias.p = (char *)p.bias.p + (size_t)(row * p.bias.stride[2] + key) * size;
    p.begun = index > first_seen(call, queries);
    return p;
}

/* --- forward --- */

void choir__cp_keys_forward(const choir__cp_call *call)
{
    const choir__attention_shape *n = &call->k->n;
    choir_tensor *sums = choir__tensor_new(
        call->scope, call->device, call->k->dtype, choir_dims(n->b, n->h, n->t));
    if (sums->poisoned)
        return;
    for (int64_t c = 0; c < call->cp->chunks; c++) {
        choir_tensor *chunk = share(call, c);
        for (int64_t l = 0; l < choir__cp_own(call->cp) && !chunk->poisoned; l++) {
            int64_t queries = own_chunk(call, l);
            if (!sees(call, queries, c))
                continue;
            choir__k_attention pair = pair_of(call, chunk, c, l);
            pair.open = c < last_seen(call, queries);
            pair.sum = (char *)choir__data(sums) +
                       (size_t)(l * tokens_of(call)) * choir_dtype_size(pair.dtype);
            choir__launch(call->device, pair.dtype, attention, &pair);
        }
        if (chunk->poisoned)
            return;
        choir__tensor_release(chunk);
    }
    choir__tensor_release(sums);
}

/* --- backward --- */

/* Returns the terms of leaf l of the queries in the chunk's gradients, and adds the chunk's
 * terms to the gradients of the queries. */
static choir_tensor *leaf_of(
    const choir__cp_call *call, const choir_tensor *chunk, int64_t index, int64_t l)
{
    choir_tensor *g = new_chunk(call);
    if (g->poisoned)
        return g;
    if (!sees(call, own_chunk(call, l), index)) {
        choir__launch_fill(g, 0);
        return g;
    }
    choir__k_attention pair = pair_of(call, chunk, index, l);
    pair.gk = half_of(call, g, 0), pair.gv = half_of(call, g, 1);
    choir__launch(call->device, pair.dtype, attention_backward, &pair);
    return g;
}

/* The sum of leaves [lo, lo + n) of the queries, n a power of two, in the tree. */
static choir_tensor *node_of(
    const choir__cp_call *call, const choir_tensor *chunk, int64_t index, int64_t lo, int64_t n)
{
    if (n == 1)
        return leaf_of(call, chunk, index, lo);
    choir_tensor *left = node_of(call, chunk, index, lo, n / 2),
                 *right = node_of(call, chunk, index, lo + n / 2, n / 2);
    if (left->poisoned || right->poisoned)
        return left->poisoned ? left : right;
    choir__launch_add(left, left, right);
    choir__tensor_release(right);
    return left;
}

/* Returns the sum over all queries of the terms in the chunk's gradients, for its owner. */
static choir_tensor *sum_of(
    const choir__cp_call *call, const choir_tensor *chunk, int64_t index)
{
    const int64_t own = choir__cp_own(call->cp), first = call->cp->rank * own;
    choir__node nodes[CHOIR__MAX_NODES];
    int count = choir__tree_nodes(first, first + own, nodes);
    if (!choir__cp_joins(call->cp)) {
        choir_tensor *g = node_of(call, chunk, index, 0, own);
        if (!g->poisoned)
            choir__blocks_fail(
                g, choir_reduce(g, call->cp->group, CHOIR_SUM, owner_of(call, index)));
        return g;
    }
    choir_tensor *slab =
        choir__new_slab(call->scope, call->device, call->k->dtype, count, chunk->shape);
    for (int i = 0; i < count && !slab->poisoned; i++) {
        choir_tensor *g = node_of(call, chunk, index, nodes[i].start - first, nodes[i].leaves);
        if (g->poisoned)
            return g;
        choir__launch_copy(choir__slab_array(slab, i, chunk->shape), g);
        choir__tensor_release(g);
    }
    if (!slab->poisoned)
        choir__blocks_fail(slab, choir__nodes_reduce(slab, call->cp->group, call->cp->chunks));
    return slab; /* node 0 comes first */
}

void choir__cp_keys_backward(const choir__cp_call *call)
{
    const choir__heads *const out[] = {&call->k->gk, &call->k->gv};
    for (int64_t c = 0; c < call->cp->chunks; c++) {
        choir_tensor *chunk = share(call, c);
        if (chunk->poisoned)
            return;
        choir_tensor *g = sum_of(call, chunk, c);
        choir__tensor_release(chunk);
        if (g->poisoned)
            return;
        if (owner_of(call, c) == call->cp->rank)
            copy(call, g, c, out, true);
        choir__tensor_release(g);
    }
}
