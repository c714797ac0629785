/* Attention's forward as a cuDNN graph: the chain that its fused engines recognise,
 *
 *     S = Q K^T;  S *= scale;  S = row >= column ? S : lowest  (causal)
 *     top = max S;  E = exp(S - top);  sum = sum E;  lse = top + log sum;  y = (E / sum) V
 *
 * where only q, k, v, y and lse are in memory. It supports 16-bit operands without window and
 * bias.
 *
 * cuDNN's backward is not used: it is deterministic only with a workspace of T x T scores (0.8
 * GB for gpt2's batch of 32 at 1024 tokens), and otherwise adds gq by atomics. Our backward
 * (attention_mma.cu) computes seven products instead of five, without such a matrix. */
#ifdef CHOIR_HAVE_CUDNN
#include "device/cuda/dnn.h"
#include "device/cuda/dnn_graph.h"

#include <float.h>
#include <string.h>

enum { Q = 1, K, V, Y, LSE, SCALE, LOWEST }; /* ids; LOWEST only for causal attention */

/* The numbers of the problem (problem.n). Strides of b, h, t. */
typedef struct shape {
    int64_t b, h, g, t, s, d, causal, q[3], k[3], v[3], y[3];
} shape;

static void put_strides(int64_t to[3], const choir__heads *x)
{
    to[0] = x->b, to[1] = x->h, to[2] = x->t;
}

choir__dnn_problem choir__dnn_attention_problem(const choir__k_attention *k)
{
    choir__dnn_problem p;
    shape n = {.b = k->n.b,
        .h = k->n.h,
        .g = k->n.g,
        .t = k->n.t,
        .s = k->n.s,
        .d = k->n.d,
        .causal = k->n.causal};
    put_strides(n.q, &k->q), put_strides(n.k, &k->k), put_strides(n.v, &k->v);
    put_strides(n.y, &k->y);
    memset(&p, 0, sizeof p);
    _Static_assert(sizeof n <= sizeof p.n, "a shape is in the problem");
    p.kind = CHOIR__DNN_ATTENTION, p.dtype = (int32_t)k->dtype;
    memcpy(p.n, &n, sizeof n);
    return p;
}

/* Makes a dense (b, h, rows, cols) tensor between operations, without memory. */
static choir__dnn_thing between(
    choir__dnn_graph *g, cudnnDataType_t type, const shape *n, int64_t cols)
{
    return choir__dnn_tensor(g, 0, type, (int64_t[]){n->b, n->h, n->t, cols},
        (int64_t[]){n->h * n->t * cols, n->t * cols, cols, 1});
}

static choir__dnn_thing product(
    choir__dnn_graph *g, choir__dnn_thing a, choir__dnn_thing b, choir__dnn_thing c)
{
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    choir__dnn_thing how = choir__dnn_new(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    choir__dnn_set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    choir__dnn_done(g, how);
    choir__dnn_thing op = choir__dnn_new(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    choir__dnn_op(g, op);
    return c;
}

/* Reduces over the last dimension. */
static choir__dnn_thing reduce(
    choir__dnn_graph *g, cudnnReduceTensorOp_t what, choir__dnn_thing x, choir__dnn_thing y)
{
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    choir__dnn_thing how = choir__dnn_new(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    choir__dnn_set(
        g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
    choir__dnn_set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    choir__dnn_done(g, how);
    choir__dnn_thing op = choir__dnn_new(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    choir__dnn_set_thing(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    choir__dnn_op(g, op);
    return y;
}

static choir__dnn_thing each(choir__dnn_graph *g, cudnnPointwiseMode_t mode, const shape *n,
    int64_t cols, choir__dnn_thing x, choir__dnn_thing b)
{
    choir__dnn_thing y = between(g, CUDNN_DATA_FLOAT, n, cols);
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = mode, .x = x, .b = b, .y = y});
    return y;
}

/* Sets scores of keys after the query to the lowest number. */
static choir__dnn_thing hide_later(choir__dnn_graph *g, const shape *n, choir__dnn_thing s)
{
    choir__dnn_thing row = between(g, CUDNN_DATA_INT32, n, n->s);
    choir__dnn_thing column = between(g, CUDNN_DATA_INT32, n, n->s);
    choir__dnn_thing seen = between(g, CUDNN_DATA_BOOLEAN, n, n->s);
    choir__dnn_thing y = between(g, CUDNN_DATA_FLOAT, n, n->s);
    choir__dnn_thing lowest = choir__dnn_number(g, LOWEST);
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                .compute = CUDNN_DATA_INT32,
                                .axis = 2,
                                .x = s,
                                .y = row});
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                .compute = CUDNN_DATA_INT32,
                                .axis = 3,
                                .x = s,
                                .y = column});
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_CMP_GE,
                                .compute = CUDNN_DATA_BOOLEAN,
                                .x = row,
                                .b = column,
                                .y = seen});
    choir__dnn_pointwise(
        g, (choir__dnn_each){
               .mode = CUDNN_POINTWISE_BINARY_SELECT, .x = s, .b = lowest, .t = seen, .y = y});
    return y;
}

void choir__dnn_build_attention(choir__dnn_graph *g, const choir__dnn_problem *p)
{
    shape n;
    memcpy(&n, p->n, sizeof n);
    cudnnDataType_t type = choir__dnn_type((choir_dtype)p->dtype), f32 = CUDNN_DATA_FLOAT;
    choir__dnn_thing q = choir__dnn_tensor(
        g, Q, type, (int64_t[]){n.b, n.h, n.t, n.d}, (int64_t[]){n.q[0], n.q[1], n.q[2], 1});
    choir__dnn_thing k = choir__dnn_tensor(g, K, type, (int64_t[]){n.b, n.g, n.d, n.s},
        (int64_t[]){n.k[0], n.k[1], 1, n.k[2]}); /* K^T */
    choir__dnn_thing v = choir__dnn_tensor(
        g, V, type, (int64_t[]){n.b, n.g, n.s, n.d}, (int64_t[]){n.v[0], n.v[1], n.v[2], 1});
    choir__dnn_thing y = choir__dnn_tensor(
        g, Y, type, (int64_t[]){n.b, n.h, n.t, n.d}, (int64_t[]){n.y[0], n.y[1], n.y[2], 1});
    choir__dnn_thing lse = choir__dnn_tensor(
        g, LSE, f32, (int64_t[]){n.b, n.h, n.t, 1}, (int64_t[]){n.h * n.t, n.t, 1, 1});
    choir__dnn_thing weights = between(g, type, &n, n.s); /* rounded for the second product */
    choir__dnn_thing s = product(g, q, k, between(g, f32, &n, n.s));
    s = each(g, CUDNN_POINTWISE_MUL, &n, n.s, s, choir__dnn_number(g, SCALE));
    if (n.causal)
        s = hide_later(g, &n, s);
    choir__dnn_thing top = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, between(g, f32, &n, 1));
    s = each(g, CUDNN_POINTWISE_SUB, &n, n.s, s, top);
    s = each(g, CUDNN_POINTWISE_EXP, &n, n.s, s, NULL);
    choir__dnn_thing sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, s, between(g, f32, &n, 1));
    choir__dnn_thing log_sum = each(g, CUDNN_POINTWISE_LOG, &n, 1, sum, NULL);
    choir__dnn_pointwise(
        g, (choir__dnn_each){.mode = CUDNN_POINTWISE_ADD, .x = top, .b = log_sum, .y = lse});
    choir__dnn_pointwise(
        g, (choir__dnn_each){.mode = CUDNN_POINTWISE_DIV, .x = s, .b = sum, .y = weights});
    product(g, weights, v, y);
}

/* Supports causal attention only if each query sees itself, so that no row is empty. */
bool choir__dnn_attention(const choir__k_attention *k)
{
    struct {
        _Alignas(16) float scale;
        _Alignas(16) float lowest;
    } number = {k->n.scale, -FLT_MAX};
    if (choir_dtype_size(k->dtype) != 2 || k->bias.p || k->n.window || k->n.d % 8 ||
        k->n.d > 128 || (k->n.causal && k->n.t != k->n.s))
        return false;
    choir__dnn_problem p = choir__dnn_attention_problem(k);
    void *at[] = {k->q.p, k->k.p, k->v.p, k->y.p, k->lse, &number.scale, &number.lowest};
    return choir__dnn_run(choir__dnn_build_attention, &p, k->n.causal ? 7 : 6, at);
}
#endif
