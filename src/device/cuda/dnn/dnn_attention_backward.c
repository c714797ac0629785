/* Attention's backward as a cuDNN graph: the chain that its fused engines recognise, as
 * cudnn_frontend writes it,
 *
 *     sums = rowsum(gy y)
 *     S = Q K^T;  S *= scale;  S -= lse;  S = row >= column ? S : lowest  (causal);  P = exp S
 *     gV = P^T gy
 *     gS = ((gy V^T - sums) P) scale
 *     gK = gS^T Q;  gQ = gS K
 *
 * with sums over the queries' heads that share a key's. So written, engines for Ampere to
 * Hopper keep gS, (b, h, t, s) in 16 bits, in a workspace, and add gQ in one order. With gQ in
 * f32 beside it they need no such matrix, and add by atomics, of which their notes say nothing.
 * Where this is not used, attention/attention_mma_backward.cu computes seven products instead
 * of five. */
#ifdef CHOIR_HAVE_CUDNN
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/dnn/dnn_attention.h"

#include <float.h>

enum { Q = 1, K, V, Y, GY, LSE, SUMS, GQ, GK, GV, SCALE, ONE, LOWEST }; /* ids, as before */

enum { WORKSPACE_SHARE = 64 };

choir__dnn_problem choir__dnn_attention_backward_problem(const choir__k_attention_backward *k)
{
    choir__dnn_heads n = choir__dnn_heads_of(&k->n);
    choir__dnn_put_strides(n.q, &k->q), choir__dnn_put_strides(n.gq, &k->gq);
    choir__dnn_put_strides(n.k, &k->k), choir__dnn_put_strides(n.gk, &k->gk);
    choir__dnn_put_strides(n.v, &k->v), choir__dnn_put_strides(n.gv, &k->gv);
    choir__dnn_put_strides(n.y, &k->y), choir__dnn_put_strides(n.gy, &k->gy);
    return choir__dnn_heads_problem(CHOIR__DNN_ATTENTION_BACKWARD, k->dtype, &n);
}

static choir__dnn_thing reshaped(choir__dnn_graph *g, choir__dnn_thing x, choir__dnn_thing y)
{
    choir__dnn_thing op = choir__dnn_new(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    choir__dnn_op(g, op);
    return y;
}

/* Scores (b, h, t, s) as (b, h, s, t), rounded for a product. */
static choir__dnn_thing turned(choir__dnn_graph *g, cudnnDataType_t type,
    const choir__dnn_heads *n, choir__dnn_thing scores)
{
    return reshaped(g, scores,
        choir__dnn_tensor(g, 0, type, (int64_t[]){n->b, n->h, n->s, n->t},
            (int64_t[]){n->h * n->t * n->s, n->t * n->s, 1, n->s}));
}

/* to = scores^T rows, a gradient of keys or values, added up over the heads that share one. */
static void key_gradient(choir__dnn_graph *g, cudnnDataType_t type, const choir__dnn_heads *n,
    choir__dnn_thing scores, choir__dnn_thing rows, choir__dnn_thing to)
{
    scores = turned(g, type, n, scores);
    if (n->h == n->g) {
        choir__dnn_product(g, scores, rows, to);
        return;
    }
    const int64_t dense[3] = {n->h * n->s * n->d, n->s * n->d, n->d};
    choir__dnn_thing each = choir__dnn_heads_at(g, 0, type, n, n->h, n->s, dense);
    choir__dnn_reduce(
        g, CUDNN_REDUCE_TENSOR_ADD, choir__dnn_product(g, scores, rows, each), to);
}

void choir__dnn_build_attention_backward(choir__dnn_graph *g, const choir__dnn_problem *p)
{
    choir__dnn_heads all = choir__dnn_heads_in(p), *n = &all;
    cudnnDataType_t type = choir__dnn_type((choir_dtype)p->dtype), f32 = CUDNN_DATA_FLOAT;
    choir__dnn_thing q = choir__dnn_heads_at(g, Q, type, n, n->h, n->t, n->q),
                     k = choir__dnn_heads_turned(g, K, type, n, n->g, n->s, n->k),
                     v = choir__dnn_heads_turned(g, V, type, n, n->g, n->s, n->v),
                     y = choir__dnn_heads_at(g, Y, type, n, n->h, n->t, n->y),
                     gy = choir__dnn_heads_at(g, GY, type, n, n->h, n->t, n->gy),
                     gq = choir__dnn_heads_at(g, GQ, type, n, n->h, n->t, n->gq),
                     gk = choir__dnn_heads_at(g, GK, type, n, n->g, n->s, n->gk),
                     gv = choir__dnn_heads_at(g, GV, type, n, n->g, n->s, n->gv);
    choir__dnn_thing lse = choir__dnn_per_query(g, LSE, n),
                     sums = choir__dnn_per_query(g, SUMS, n),
                     scale = choir__dnn_number(g, SCALE);
    choir__dnn_thing rows = choir__dnn_map(g, CUDNN_POINTWISE_MUL, n, n->d, gy, y);
    rows = choir__dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, rows, choir__dnn_per_query(g, 0, n));
    choir__dnn_pointwise(g,
        (choir__dnn_each){
            .mode = CUDNN_POINTWISE_MUL, .x = rows, .b = choir__dnn_number(g, ONE), .y = sums});
    choir__dnn_thing s = choir__dnn_product(g, q, k, choir__dnn_between(g, f32, n, n->s));
    s = choir__dnn_map(g, CUDNN_POINTWISE_MUL, n, n->s, s, scale);
    s = choir__dnn_map(g, CUDNN_POINTWISE_SUB, n, n->s, s, lse);
    if (n->causal)
        s = choir__dnn_hide_later(g, n, s, choir__dnn_number(g, LOWEST));
    choir__dnn_thing weights = choir__dnn_map(g, CUDNN_POINTWISE_EXP, n, n->s, s, NULL);
    key_gradient(g, type, n, weights, gy, gv);
    s = choir__dnn_product(g, gy, v, choir__dnn_between(g, f32, n, n->s));
    s = choir__dnn_map(g, CUDNN_POINTWISE_SUB, n, n->s, s, sums);
    s = choir__dnn_map(g, CUDNN_POINTWISE_MUL, n, n->s, s, weights);
    s = choir__dnn_map(g, CUDNN_POINTWISE_MUL, n, n->s, s, scale);
    key_gradient(g, type, n, s, q, gk);
    k = reshaped(g, k, choir__dnn_heads_at(g, 0, type, n, n->g, n->s, n->k));
    choir__dnn_product(g, s, k, gq);
}

/* Known faults of cuDNN on Hopper; Choir has no masks of padding, which some of them need.
 *
 *   - up to 9.15.0, lengths that are no multiple of 128: illegal accesses when a captured graph
 * is launched (release notes of cudnn_frontend 1.16.0, whose header adds a mask up to 9.15.0)
 *   - 9.10.0 and 9.10.1: cudnn_frontend refuses all backward, "due to known bugs"
 *   - without a causal mask, keys that fill a half of their last tile of 128: the tail's exp(0
 * - lse) is infinite and gq NaN for small lse (pytorch#196678, cudnn-frontend#628; no version
 *     is known to be free of it)
 *   - one query: NaN, or not supported (cudnn-frontend#1072, release notes of 9.18.1) */
bool choir__dnn_attention_backward_sound(size_t version, const choir__attention_shape *n)
{
    bool ragged = n->t % 128 || n->s % 128;
    return n->t > 1 && !(ragged && version <= 91500) && version != 91000 && version != 91001 &&
           (n->causal || n->s % 128 != 64);
}

/* True if these engines add in one order on this GPU, and their workspace is a small part of
 * its memory. That depends on the shape and the kind of GPU alone, so the bits do as well.
 * Later GPUs than Hopper have other engines, which are deterministic only with settings of
 * their own. */
static bool suits(const choir__cuda *cuda, const choir__attention_shape *n)
{
    double scores = 2.0 * (double)(n->b * n->h) * (double)(n->t * n->s);
    return cuda->capability >= 80 && cuda->capability < 100 &&
           scores <= (double)cuda->memory / WORKSPACE_SHARE;
}

bool choir__dnn_attention_backward(const choir__k_attention_backward *k, void *sums)
{
    struct {
        _Alignas(16) float scale;
        _Alignas(16) float one;
        _Alignas(16) float lowest;
    } number = {k->n.scale, 1, -FLT_MAX};
    if (!choir__dnn_attention_fits(&k->n, k->dtype, &k->bias) || k->gbias.p || !k->gq.p ||
        !k->gk.p || !k->gv.p || !suits(choir__cuda_here(), &k->n) ||
        !choir__dnn_attention_backward_sound(choir__dnn_version(), &k->n))
        return false;
    choir__dnn_problem p = choir__dnn_attention_backward_problem(k);
    void *at[] = {k->q.p, k->k.p, k->v.p, k->y.p, k->gy.p, (void *)k->lse, sums, k->gq.p,
        k->gk.p, k->gv.p, &number.scale, &number.one, &number.lowest};
    return choir__dnn_run(choir__dnn_build_attention_backward, &p, k->n.causal ? 13 : 12, at);
}
#endif
