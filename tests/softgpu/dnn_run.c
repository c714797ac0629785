/* The interpreter of cuDNN's graphs: operations one after another, in the order in which the
 * graph lists them, in f32. A tensor between operations is rounded to its type, so results
 * have the precision of a fused engine's. */
#include <math.h>

#include "base/half.h"
#include "dnn.h"
#include "product.h"

/* A tensor of four dimensions; one of size 1 repeats where another operand is larger. */
typedef struct view {
    int64_t dim[4], stride[4], id;
    int type; /* cudnnDataType_t */
    void *p;  /* in device memory; NULL: between operations, or a number */
    float *between;
} view;

enum { MOST = 160 };

/* A run of a graph, with the tensors between its operations. */
typedef struct run {
    const softgpu_dnn_call *call;
    softgpu_thing known[MOST];
    float *memory[MOST];
    int count;
} run;

/* --- tensors --- */

static size_t bytes_of(int type)
{
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_HALF ? 2 : 4;
}

static view describe(softgpu_thing tensor)
{
    view x = {.id = softgpu_dnn_whole(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID),
        .type = (int)softgpu_dnn_whole(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE)};
    (void)softgpu_dnn_get(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, x.dim, 4);
    (void)softgpu_dnn_get(tensor, CUDNN_ATTR_TENSOR_STRIDES, x.stride, 4);
    return x;
}

/* Returns the elements from the first to the last. */
static int64_t span(const view *x)
{
    int64_t last = 0;
    for (int i = 0; i < 4; i++)
        last += (x->dim[i] - 1) * x->stride[i];
    return last + 1;
}

static bool is_between(softgpu_thing tensor)
{
    return softgpu_dnn_whole(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

static view see(run *r, softgpu_thing tensor)
{
    view x = describe(tensor);
    int i = 0;
    if (!is_between(tensor)) {
        x.p = r->call->at[x.id];
        x.between = x.p ? NULL : (float *)&r->call->number[x.id];
        return x;
    }
    while (i < r->count && r->known[i] != tensor)
        i++;
    if (i == MOST)
        softgpu_wrong("a graph of cuDNN has more than %d tensors", MOST);
    if (i == r->count) {
        r->known[r->count++] = tensor;
        r->memory[i] = calloc((size_t)span(&x), sizeof(float));
    }
    x.between = r->memory[i];
    return x;
}

static view operand(run *r, softgpu_thing op, cudnnBackendAttributeName_t name)
{
    softgpu_thing tensor = softgpu_dnn_thing(op, name);
    return tensor ? see(r, tensor) : (view){.dim = {0}};
}

static float load(const view *x, int64_t at)
{
    if (x->between)
        return x->between[at];
    switch (x->type) {
    case CUDNN_DATA_BFLOAT16: return choir__f32_from_bf16(((const uint16_t *)x->p)[at]);
    case CUDNN_DATA_HALF: return choir__f32_from_f16(((const uint16_t *)x->p)[at]);
    default: return ((const float *)x->p)[at];
    }
}

static void store(const view *x, int64_t at, float value)
{
    bool bf16 = x->type == CUDNN_DATA_BFLOAT16, f16 = x->type == CUDNN_DATA_HALF;
    uint16_t half = bf16 ? choir__bf16_from_f32(value) : f16 ? choir__f16_from_f32(value) : 0;
    if (!x->between && (bf16 || f16))
        ((uint16_t *)x->p)[at] = half;
    else if (!x->between)
        ((float *)x->p)[at] = value;
    else
        x->between[at] = bf16  ? choir__f32_from_bf16(half)
                         : f16 ? choir__f32_from_f16(half)
                               : value;
}

static int64_t place(const view *x, const int64_t i[4])
{
    int64_t at = 0;
    for (int d = 0; d < 4; d++)
        at += x->dim[d] == 1 ? 0 : i[d] * x->stride[d];
    return at;
}

/* Goes to the next index within dim; false: it was the last. */
static bool step(int64_t i[4], const int64_t dim[4])
{
    for (int d = 3; d >= 0; d--) {
        if (++i[d] < dim[d])
            return true;
        i[d] = 0;
    }
    return false;
}

/* --- operations --- */

/* Copies rows x cols of a batch and a head; a tensor of fewer heads has each for several. */
static void matrix(const view *x, int64_t b, int64_t h, int64_t heads, float *to)
{
    int64_t i[4] = {b, h / (heads / x->dim[1]), 0, 0};
    for (i[2] = 0; i[2] < x->dim[2]; i[2]++)
        for (i[3] = 0; i[3] < x->dim[3]; i[3]++)
            *to++ = load(x, place(x, i));
}

static void multiply(run *r, softgpu_thing op)
{
    view a = operand(r, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
         b = operand(r, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
         c = operand(r, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    int64_t m = c.dim[2], n = c.dim[3], k = a.dim[3], i[4];
    if (a.dim[2] != m || b.dim[2] != k || b.dim[3] != n || a.dim[0] != c.dim[0])
        softgpu_wrong("a product of cuDNN has shapes that do not fit");
    float *x = malloc((size_t)(m * k) * sizeof *x), *y = malloc((size_t)(k * n) * sizeof *y);
    float *sum = malloc((size_t)n * sizeof *sum);
    for (i[0] = 0; i[0] < c.dim[0]; i[0]++)
        for (i[1] = 0; i[1] < c.dim[1]; i[1]++) {
            matrix(&a, i[0], i[1], c.dim[1], x);
            matrix(&b, i[0], i[1], c.dim[1], y);
            for (i[2] = 0; i[2] < m; i[2]++) {
                memset(sum, 0, (size_t)n * sizeof *sum);
                for (int64_t l = 0; l < k; l++)
                    for (int64_t j = 0; j < n; j++)
                        sum[j] += x[i[2] * k + l] * y[l * n + j];
                for (i[3] = 0; i[3] < n; i[3]++)
                    store(&c, place(&c, i), sum[i[3]]);
            }
        }
    free(x), free(y), free(sum);
}

static float pointwise(int mode, float x, float b, float t)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_EXP: return expf(x);
    case CUDNN_POINTWISE_LOG: return logf(x);
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_BINARY_SELECT: return t != 0 ? x : b;
    default: softgpu_wrong("the imitated cuDNN has no pointwise operation %d", mode);
    }
}

static void each(run *r, softgpu_thing op)
{
    softgpu_thing how = softgpu_dnn_thing(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    int mode = (int)softgpu_dnn_whole(how, CUDNN_ATTR_POINTWISE_MODE);
    int64_t axis = softgpu_dnn_whole(how, CUDNN_ATTR_POINTWISE_AXIS), i[4] = {0};
    view x = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
         b = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
         t = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
         y = operand(r, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    do {
        float value =
            mode == CUDNN_POINTWISE_GEN_INDEX
                ? (float)i[axis]
                : pointwise(mode, load(&x, place(&x, i)), b.dim[0] ? load(&b, place(&b, i)) : 0,
                      t.dim[0] ? load(&t, place(&t, i)) : 0);
        store(&y, place(&y, i), value);
    } while (step(i, y.dim));
}

/* Each element of y is of a block of x's. */
static void reduce(run *r, softgpu_thing op)
{
    softgpu_thing how = softgpu_dnn_thing(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    bool top = softgpu_dnn_whole(how, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    view x = operand(r, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
         y = operand(r, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    int64_t i[4] = {0};
    do {
        int64_t block[4], j[4] = {0}, at[4];
        float sum = top ? -INFINITY : 0;
        for (int d = 0; d < 4; d++)
            block[d] = x.dim[d] / y.dim[d];
        do {
            for (int d = 0; d < 4; d++)
                at[d] = i[d] * block[d] + j[d];
            float value = load(&x, place(&x, at));
            sum = !top ? sum + value : value > sum ? value : sum;
        } while (step(j, block));
        store(&y, place(&y, i), sum);
    } while (step(i, y.dim));
}

/* y has x's memory with other dimensions. */
static void reshape(run *r, softgpu_thing op)
{
    view x = operand(r, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
         y = operand(r, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    int64_t i[4] = {0};
    do
        store(&y, place(&y, i), load(&x, place(&y, i)));
    while (step(i, y.dim));
}

/* --- convolutions --- */

typedef struct convolution {
    view x, w, y;
    int64_t stride[2], pad[2], dilation[2];
} convolution;

static convolution convolution_of(run *r, softgpu_thing op, cudnnBackendAttributeName_t how,
    cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t w, cudnnBackendAttributeName_t y)
{
    convolution c = {.x = operand(r, op, x), .w = operand(r, op, w), .y = operand(r, op, y)};
    softgpu_thing shape = softgpu_dnn_thing(op, how);
    (void)softgpu_dnn_get(shape, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, c.stride, 2);
    (void)softgpu_dnn_get(shape, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, c.pad, 2);
    (void)softgpu_dnn_get(shape, CUDNN_ATTR_CONVOLUTION_DILATIONS, c.dilation, 2);
    return c;
}

/* Adds the term of y's element i and w's element j to the result `of`, which is a dense f32
 * copy of x, w or y. */
static void term(
    const convolution *c, const view *of, float *sum, const int64_t i[4], const int64_t j[4])
{
    int64_t inputs = c->w.dim[1], outputs = c->w.dim[0] * inputs / c->x.dim[1];
    int64_t n[4] = {i[0], i[1] / outputs * inputs + j[1],
        i[2] * c->stride[0] - c->pad[0] + j[2] * c->dilation[0],
        i[3] * c->stride[1] - c->pad[1] + j[3] * c->dilation[1]};
    if (n[2] < 0 || n[3] < 0 || n[2] >= c->x.dim[2] || n[3] >= c->x.dim[3])
        return;
    if (of == &c->y)
        sum[place(of, i)] += load(&c->x, place(&c->x, n)) * load(&c->w, place(&c->w, j));
    else if (of == &c->x)
        sum[place(of, n)] += load(&c->y, place(&c->y, i)) * load(&c->w, place(&c->w, j));
    else
        sum[place(of, j)] += load(&c->y, place(&c->y, i)) * load(&c->x, place(&c->x, n));
}

static void convolve(const convolution *c, const view *of)
{
    float *sum = calloc((size_t)span(of), sizeof *sum);
    int64_t i[4] = {0}, places[4] = {1, c->w.dim[1], c->w.dim[2], c->w.dim[3]};
    do {
        int64_t j[4] = {0};
        do {
            int64_t at[4] = {i[1], j[1], j[2], j[3]};
            term(c, of, sum, i, at);
        } while (step(j, places));
    } while (step(i, c->y.dim));
    memset(i, 0, sizeof i);
    do
        store(of, place(of, i), sum[place(of, i)]);
    while (step(i, of->dim));
    free(sum);
}

/* --- graphs --- */

static void run_op(run *r, softgpu_thing op)
{
    convolution c;
    switch (softgpu_dnn_kind(op)) {
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: multiply(r, op); return;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: each(r, op); return;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: reduce(r, op); return;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: reshape(r, op); return;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        c = convolution_of(r, op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
        convolve(&c, &c.y);
        return;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        c = convolution_of(r, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
        convolve(&c, &c.x);
        return;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        c = convolution_of(r, op, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
            CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
        convolve(&c, &c.w);
        return;
    default: softgpu_wrong("the imitated cuDNN has no operation %d", softgpu_dnn_kind(op));
    }
}

bool softgpu_dnn_has_engines(softgpu_thing graph)
{
    softgpu_thing ops[SOFTGPU_DNN_OPS];
    int64_t count = softgpu_dnn_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, ops, SOFTGPU_DNN_OPS);
    if (count != 2 ||
        softgpu_dnn_kind(ops[0]) != CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
        return true;
    view x = describe(softgpu_dnn_thing(ops[0], CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X));
    return x.dim[1] % 2 == 0 || bytes_of(x.type) > 2;
}

/* Backward of attention, five products, keeps its scores' gradient in 16 bits, as real engines
 * for Ampere to Hopper do. */
size_t softgpu_dnn_workspace(softgpu_thing graph)
{
    softgpu_thing ops[SOFTGPU_DNN_OPS];
    int64_t count = softgpu_dnn_get(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, ops, SOFTGPU_DNN_OPS);
    int products = 0;
    size_t bytes = 0;
    for (int64_t i = 0; i < count; i++) {
        if (softgpu_dnn_kind(ops[i]) != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
            continue;
        view c = describe(softgpu_dnn_thing(ops[i], CUDNN_ATTR_OPERATION_MATMUL_CDESC));
        if (!products++)
            bytes = (size_t)(c.dim[0] * c.dim[1] * c.dim[2] * c.dim[3]) * 2;
    }
    return products == 5 ? bytes : 0;
}

static void check_tensor(const softgpu_dnn_call *call, softgpu_thing tensor)
{
    view x = describe(tensor);
    const char *space = call->space, *p = x.id <= SOFTGPU_DNN_OPERANDS ? call->at[x.id] : NULL;
    size_t bytes = (size_t)span(&x) * bytes_of(x.type);
    if (is_between(tensor) || !p)
        return;
    if ((uintptr_t)p % 16)
        softgpu_wrong("tensor %d of a graph of cuDNN is not aligned to 16 bytes", (int)x.id);
    if (!softgpu_within(p, bytes))
        softgpu_wrong("tensor %d of a graph of cuDNN goes beyond its memory", (int)x.id);
    if (p < space + call->space_bytes && space < p + bytes)
        softgpu_wrong("tensor %d of a graph of cuDNN overlaps its workspace", (int)x.id);
}

void softgpu_dnn_check(const softgpu_dnn_call *call)
{
    softgpu_thing ops[SOFTGPU_DNN_OPS], named[SOFTGPU_DNN_OPERANDS];
    int64_t count =
        softgpu_dnn_get(call->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, ops, SOFTGPU_DNN_OPS);
    if (call->space_bytes && !softgpu_within(call->space, call->space_bytes))
        softgpu_wrong("a workspace of cuDNN goes beyond its memory");
    for (int64_t i = 0; i < count; i++) {
        int64_t operands = softgpu_dnn_named(ops[i], named, SOFTGPU_DNN_OPERANDS);
        for (int64_t j = 0; j < operands; j++)
            if (softgpu_dnn_kind(named[j]) == CUDNN_BACKEND_TENSOR_DESCRIPTOR)
                check_tensor(call, named[j]);
    }
}

void softgpu_dnn_run(const void *args)
{
    const softgpu_dnn_call *call = args;
    softgpu_thing ops[SOFTGPU_DNN_OPS];
    run r = {.call = call};
    if (!softgpu_runs())
        return;
    int64_t count =
        softgpu_dnn_get(call->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, ops, SOFTGPU_DNN_OPS);
    for (int64_t i = 0; i < count; i++) {
        if (call->space_bytes)
            memset(call->space, 0xFF, call->space_bytes);
        run_op(&r, ops[i]);
    }
    for (int i = 0; i < r.count; i++)
        free(r.memory[i]);
}
