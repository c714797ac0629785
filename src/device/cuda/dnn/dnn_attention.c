/* Attention's forward as a cuDNN graph: the chain that its fused engines recognise,
 *
 *     S = Q K^T;  S *= scale;  S = row >= column ? S : lowest  (causal)
 *     top = max S;  E = exp(S - top);  sum = sum E;  lse = top + log sum;  y = (E / sum) V
 *
 * where only q, k, v, y and lse are in memory. It supports 16-bit operands without window,
 * soft cap and bias. */
#ifdef CHOIR_HAVE_CUDNN
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/dnn/dnn_attention.h"

#include <float.h>
#include <string.h>

enum { Q = 1, K, V, Y, LSE, SCALE, LOWEST }; /* ids; LOWEST only for causal attention */

/* --- problems --- */

/* Causal attention only if each query sees itself, so that no row is empty. */
bool choir__dnn_attention_fits(
    const choir__attention_shape *n, choir_dtype dtype, const choir__attention_bias *bias)
{
    return choir_dtype_size(dtype) == 2 && !bias->p && !n->window && !(n->softcap > 0) &&
           n->d % 8 == 0 && n->d <= 128 && (!n->causal || n->t == n->s);
}

choir__dnn_heads choir__dnn_heads_of(const choir__attention_shape *n)
{
    return (choir__dnn_heads){
        .b = n->b, .h = n->h, .g = n->g, .t = n->t, .s = n->s, .d = n->d, .causal = n->causal};
}

void choir__dnn_put_strides(int64_t to[3], const choir__heads *x)
{
    to[0] = x->b, to[1] = x->h, to[2] = x->t;
}

choir__dnn_problem choir__dnn_heads_problem(
    int kind, choir_dtype dtype, const choir__dnn_heads *n)
{
    choir__dnn_problem p;
    memset(&p, 0, sizeof p);
    _Static_assert(sizeof *n <= sizeof p.n, "a shape is in the problem");
    p.kind = kind, p.dtype = (int32_t)dtype;
    memcpy(p.n, n, sizeof *n);
    return p;
}

choir__dnn_heads choir__dnn_heads_in(const choir__dnn_problem *p)
{
    choir__dnn_heads n;
    memcpy(&n, p->n, sizeof n);
    return n;
}

choir__dnn_problem choir__dnn_attention_problem(const choir__k_attention *k)
{
    choir__dnn_heads n = choir__dnn_heads_of(&k->n);
    choir__dnn_put_strides(n.q, &k->q), choir__dnn_put_strides(n.k, &k->k);
    choir__dnn_put_strides(n.v, &k->v), choir__dnn_put_strides(n.y, &k->y);
    return choir__dnn_heads_problem(CHOIR__DNN_ATTENTION, k->dtype, &n);
}

/* --- tensors --- */

choir__dnn_thing choir__dnn_heads_at(choir__dnn_graph *g, int64_t id, cudnnDataType_t type,
    const choir__dnn_heads *n, int64_t heads, int64_t rows, const int64_t stride[3])
{
    return choir__dnn_tensor(g, id, type, (int64_t[]){n->b, heads, rows, n->d},
        (int64_t[]){stride[0], stride[1], stride[2], 1});
}

choir__dnn_thing choir__dnn_heads_turned(choir__dnn_graph *g, int64_t id, cudnnDataType_t type,
    const choir__dnn_heads *n, int64_t heads, int64_t rows, const int64_t stride[3])
{
    return choir__dnn_tensor(g, id, type, (int64_t[]){n->b, heads, n->d, rows},
        (int64_t[]){stride[0], stride[1], 1, stride[2]});
}

choir__dnn_thing choir__dnn_per_query(
    choir__dnn_graph *g, int64_t id, const choir__dnn_heads *n)
{
    return choir__dnn_tensor(g, id, CUDNN_DATA_FLOAT, (int64_t[]){n->b, n->h, n->t, 1},
        (int64_t[]){n->h * n->t, n->t, 1, 1});
}

choir__dnn_thing choir__dnn_between(
    choir__dnn_graph *g, cudnnDataType_t type, const choir__dnn_heads *n, int64_t cols)
{
    return choir__dnn_tensor(g, 0, type, (int64_t[]){n->b, n->h, n->t, cols},
        (int64_t[]){n->h * n->t * cols, n->t * cols, cols, 1});
}

/* --- operations --- */

choir__dnn_thing choir__dnn_product(
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

choir__dnn_thing choir__dnn_reduce(
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

choir__dnn_thing choir__dnn_map(choir__dnn_graph *g, cudnnPointwiseMode_t mode,
    const choir__dnn_heads *n, int64_t cols, choir__dnn_thing x, choir__dnn_thing b)
{
    choir__dnn_thing y = choir__dnn_between(g, CUDNN_DATA_FLOAT, n, cols);
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = mode, .x = x, .b = b, .y = y});
    return y;
}

/* The numbers of rows (axis 2) or columns (3). */
static choir__dnn_thing indices(
    choir__dnn_graph *g, const choir__dnn_heads *n, choir__dnn_thing scores, int64_t axis)
{
    choir__dnn_thing y = choir__dnn_between(g, CUDNN_DATA_INT32, n, n->s);
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_GEN_INDEX,
                                .compute = CUDNN_DATA_INT32,
                                .axis = axis,
                                .x = scores,
                                .y = y});
    return y;
}

choir__dnn_thing choir__dnn_hide_later(choir__dnn_graph *g, const choir__dnn_heads *n,
    choir__dnn_thing scores, choir__dnn_thing lowest)
{
    choir__dnn_thing row = indices(g, n, scores, 2), column = indices(g, n, scores, 3);
    choir__dnn_thing seen = choir__dnn_between(g, CUDNN_DATA_BOOLEAN, n, n->s);
    choir__dnn_thing y = choir__dnn_between(g, CUDNN_DATA_FLOAT, n, n->s);
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_CMP_GE,
                                .compute = CUDNN_DATA_BOOLEAN,
                                .x = row,
                                .b = column,
                                .y = seen});
    choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                .x = scores,
                                .b = lowest,
                                .t = seen,
                                .y = y});
    return y;
}

/* --- the forward --- */

void choir__dnn_build_attention(choir__dnn_graph *g, const choir__dnn_problem *p)
{
    choir__dnn_heads all = choir__dnn_heads_in(p), *n = &all;
    cudnnDataType_t type = choir__dnn_type((choir_dtype)p->dtype), f32 = CUDNN_DATA_FLOAT;
    choir__dnn_thing q = choir__dnn_heads_at(g, Q, type, n, n->h, n->t, n->q),
                     k = choir__dnn_heads_turned(g, K, type, n, n->g, n->s, n->k),
                     v = choir__dnn_heads_at(g, V, type, n, n->g, n->s, n->v),
                     y = choir__dnn_heads_at(g, Y, type, n, n->h, n->t, n->y);
    choir__dnn_thing lse = choir__dnn_per_query(g, LSE, n);
    /* rounded for the second product */
    choir__dnn_thing weights = choir__dnn_between(g, type, n, n->s);
    choir__dnn_thing s = choir__dnn_product(g, q, k, choir__dnn_between(g, f32, n, n->s));
    s = choir__dnn_map(g, CUDNN_POINTWISE_MUL, n, n->s, s, choir__dnn_number(g, SCALE));
    if (n->causal)
        s = choir__dnn_hide_later(g, n, s, choir__dnn_number(g, LOWEST));
    choir__dnn_thing top =
        choir__dnn_reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, choir__dnn_per_query(g, 0, n));
    s = choir__dnn_map(g, CUDNN_POINTWISE_SUB, n, n->s, s, top);
    s = choir__dnn_map(g, CUDNN_POINTWISE_EXP, n, n->s, s, NULL);
    choir__dnn_thing sum =
        choir__dnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, s, choir__dnn_per_query(g, 0, n));
    choir__dnn_thing log_sum = choir__dnn_map(g, CUDNN_POINTWISE_LOG, n, 1, sum, NULL);
    choir__dnn_pointwise(
        g, (choir__dnn_each){.mode = CUDNN_POINTWISE_ADD, .x = top, .b = log_sum, .y = lse});
    choir__dnn_pointwise(
        g, (choir__dnn_each){.mode = CUDNN_POINTWISE_DIV, .x = s, .b = sum, .y = weights});
    choir__dnn_product(g, weights, v, y);
}

bool choir__dnn_attention(const choir__k_attention *k)
{
    struct {
        _Alignas(16) float scale;
        _Alignas(16) float lowest;
    } number = {k->n.scale, -FLT_MAX};
    if (!choir__dnn_attention_fits(&k->n, k->dtype, &k->bias))
        return false;
    choir__dnn_problem p = choir__dnn_attention_problem(k);
    void *at[] = {k->q.p, k->k.p, k->v.p, k->y.p, k->lse, &number.scale, &number.lowest};
    return choir__dnn_run(choir__dnn_build_attention, &p, k->n.causal ? 7 : 6, at);
}
#endif
