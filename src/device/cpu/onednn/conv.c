/* Convolutions through oneDNN.
 *
 * Images stay channels-last and go in as they are. For the weights the primitive may choose its
 * own blocked layout: then a reorder before it (or, for the weights' gradient, after it) goes
 * through scratch memory. No blocked layout leaves this file. Some shapes are faster by matrix
 * products: conv_product.c. */
#include "device/cpu/onednn/onednn.h"
#include "device/queue.h"

#include <string.h>

enum { FORWARD = 2, BACKWARD_INPUT, BACKWARD_WEIGHT };

typedef struct problem {
    int64_t kind, dtype, bias;
    choir__conv_shape s;
} problem;

/* oneDNN's view of the operands; `any` is the weights with the layout left open. */
typedef struct shapes {
    dnnl_memory_desc_t x, y, w, any, bias;
    dnnl_dims_t strides, dilates, pad_low, pad_high;
} shapes;

static bool describe_image(
    dnnl_memory_desc_t *md, choir_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t dims[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c};
    return choir__onednn_describe(md, dtype, 4, dims, strides);
}

static bool describe_weights(shapes *out, choir_dtype dtype, const choir__conv_shape *s)
{
    int64_t i = s->c / s->groups, o = s->o / s->groups, filter = s->kh * s->kw * i;
    const int64_t dims[] = {s->groups, o, i, s->kh, s->kw};
    const int64_t strides[] = {o * filter, filter, 1, s->kw * i, i};
    int skip = s->groups == 1;
    return choir__onednn_describe(&out->w, dtype, 5 - skip, dims + skip, strides + skip) &&
           choir__onednn_describe(&out->any, dtype, 5 - skip, dims + skip, NULL);
}

static bool describe(shapes *out, const problem *p)
{
    memset(out, 0, sizeof *out);
    const choir__conv_shape *s = &p->s;
    choir_dtype type = (choir_dtype)p->dtype;
    int64_t reach_h = (s->oh - 1) * s->stride_h + (s->kh - 1) * s->dilation_h + 1;
    int64_t reach_w = (s->ow - 1) * s->stride_w + (s->kw - 1) * s->dilation_w + 1;
    out->strides[0] = s->stride_h, out->strides[1] = s->stride_w;
    out->dilates[0] = s->dilation_h - 1, out->dilates[1] = s->dilation_w - 1;
    out->pad_low[0] = s->pad_h, out->pad_low[1] = s->pad_w;
    out->pad_high[0] = reach_h - s->h - s->pad_h, out->pad_high[1] = reach_w - s->w - s->pad_w;
    const int64_t stride = 1;
    return describe_image(&out->x, type, s->n, s->c, s->h, s->w) &&
           describe_image(&out->y, type, s->n, s->o, s->oh, s->ow) &&
           describe_weights(out, type, s) &&
           choir__onednn_describe(&out->bias, type, 1, &s->o, &stride);
}

static dnnl_primitive_desc_t describe_forward(
    choir__onednn *cache, const shapes *sh, const problem *p, bool training)
{
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd;
    if (dnnl_dilated_convolution_forward_desc_init(&desc,
            training ? dnnl_forward_training : dnnl_forward_inference, dnnl_convolution_direct,
            &sh->x, &sh->any, p->bias ? &sh->bias : NULL, &sh->y, sh->strides, sh->dilates,
            sh->pad_low, sh->pad_high) ||
        dnnl_primitive_desc_create(
            &pd, &desc, choir__onednn_attr(cache), choir__onednn_engine(cache), NULL))
        return NULL;
    return pd;
}

/* The descriptor of a backward pass; oneDNN wants the forward one as a hint. */
static dnnl_primitive_desc_t describe_backward(
    choir__onednn *cache, const shapes *sh, const problem *p)
{
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd = NULL, hint = describe_forward(cache, sh, p, true);
    if (!hint)
        return NULL;
    dnnl_status_t status;
    if (p->kind == BACKWARD_INPUT)
        status =
            dnnl_dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct,
                &sh->x, &sh->any, &sh->y, sh->strides, sh->dilates, sh->pad_low, sh->pad_high);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(&desc,
            dnnl_convolution_direct, &sh->x, &sh->any, p->bias ? &sh->bias : NULL, &sh->y,
            sh->strides, sh->dilates, sh->pad_low, sh->pad_high);
    if (status || dnnl_primitive_desc_create(
                      &pd, &desc, choir__onednn_attr(cache), choir__onednn_engine(cache), hint))
        pd = NULL;
    dnnl_primitive_desc_destroy(hint);
    return pd;
}

/* Between plain weights and the primitive's, in the direction of the pass. */
static bool build_reorder(choir__onednn *cache, choir__onednn_plan *plan, const problem *p,
    const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *blocked)
{
    dnnl_primitive_desc_t pd;
    bool after = p->kind == BACKWARD_WEIGHT;
    const dnnl_memory_desc_t *from = after ? blocked : plain, *to = after ? plain : blocked;
    dnnl_engine_t engine = choir__onednn_engine(cache);
    plan->weights = (dnnl_memory_desc_get_size(blocked) + 63) & ~(size_t)63;
    return !dnnl_reorder_primitive_desc_create(
               &pd, from, engine, to, engine, choir__onednn_attr(cache)) &&
           choir__onednn_build(cache, &plan->reorder, pd, 2,
               (int[]){DNNL_ARG_FROM, DNNL_ARG_TO}, (const dnnl_memory_desc_t *[]){from, to});
}

/* The arguments in the order that `run` passes data: image in, weights, image out, bias. */
static void build(choir__onednn *cache, choir__onednn_plan *plan, const problem *p)
{
    static const int ids[][4] = {
        [FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        [BACKWARD_INPUT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
        [BACKWARD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST,
            DNNL_ARG_DIFF_BIAS},
    };
    shapes sh;
    if (!describe(&sh, p))
        return;
    dnnl_primitive_desc_t pd = p->kind == FORWARD ? describe_forward(cache, &sh, p, false)
                                                  : describe_backward(cache, &sh, p);
    if (!pd)
        return;
    dnnl_memory_desc_t w = *dnnl_primitive_desc_query_md(
        pd, p->kind == BACKWARD_WEIGHT ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *first = p->kind == BACKWARD_INPUT ? &sh.y : &sh.x;
    const dnnl_memory_desc_t *last = p->kind == BACKWARD_INPUT ? &sh.x : &sh.y;
    bool same = dnnl_memory_desc_equal(&w, &sh.w);
    if (choir__onednn_build(cache, &plan->op, pd, p->bias ? 4 : 3, ids[p->kind],
            (const dnnl_memory_desc_t *[]){first, &w, last, &sh.bias}) &&
        !same && !build_reorder(cache, plan, p, &sh.w, &w))
        plan->op.primitive = NULL; /* the little it holds is kept until the cache goes */
}

/* data: image in, plain weights, image out, bias. False: the reference must do it. */
static bool run(const char *op, const problem *p, void *const data[4])
{
    choir__cpu_context *context = choir__cpu_context_current();
    choir__onednn *cache = choir__cpu_context_onednn(context);
    bool fresh;
    choir__onednn_plan *plan = choir__onednn_lookup(cache, p, sizeof *p, &fresh);
    if (fresh)
        build(cache, plan, p);
    if (!plan->op.primitive)
        return false;
    size_t most = plan->op.scratchpad > plan->reorder.scratchpad ? plan->op.scratchpad
                                                                 : plan->reorder.scratchpad;
    char *scratch = choir__cpu_scratch(context, plan->weights + most);
    char *pad = scratch + plan->weights;
    bool reordered = plan->reorder.primitive, ok = true;
    if (reordered && p->kind != BACKWARD_WEIGHT)
        ok = choir__onednn_run(cache, &plan->reorder, (void *[]){data[1], scratch}, pad);
    void *inner[] = {data[0], reordered ? scratch : data[1], data[2], data[3]};
    ok = ok && choir__onednn_run(cache, &plan->op, inner, pad);
    if (ok && reordered && p->kind == BACKWARD_WEIGHT)
        ok = choir__onednn_run(cache, &plan->reorder, (void *[]){scratch, data[1]}, pad);
    if (!ok)
        choir__queue_fail(CHOIR_ERR_INTERNAL,
            "%s: oneDNN failed on images of %lld x %lld x %lld", op, (long long)p->s.c,
            (long long)p->s.h, (long long)p->s.w);
    return true;
}

static problem problem_of(int kind, choir_dtype dtype, const choir__conv_shape *s, bool bias)
{
    problem p;
    memset(&p, 0, sizeof p);
    p.kind = kind;
    p.dtype = dtype;
    p.bias = bias;
    p.s = *s;
    return p;
}

static bool offered(choir_dtype dtype)
{
    return dtype == CHOIR_F32 || dtype == CHOIR_BF16;
}

void choir__onednn_conv(const choir__k_conv *k)
{
    if (choir__onednn_conv_product(k))
        return;
    problem p = problem_of(FORWARD, k->dtype, &k->s, k->bias != NULL);
    void *data[] = {(void *)k->x, (void *)k->w, k->y, (void *)k->bias};
    if (!offered(k->dtype) || !run("conv2d", &p, data))
        choir__cpu_reference.conv(k);
}

void choir__onednn_conv_backward_input(const choir__k_conv_backward_input *k)
{
    if (choir__onednn_conv_product_input(k))
        return;
    problem p = problem_of(BACKWARD_INPUT, k->dtype, &k->s, false);
    void *data[] = {(void *)k->gy, (void *)k->w, k->gx, NULL};
    if (!offered(k->dtype) || !run("conv2d backward", &p, data))
        choir__cpu_reference.conv_backward_input(k);
}

void choir__onednn_conv_backward_weight(const choir__k_conv_backward_weight *k)
{
    if (choir__onednn_conv_product_weight(k))
        return;
    problem p = problem_of(BACKWARD_WEIGHT, k->dtype, &k->s, k->gbias != NULL);
    void *data[] = {(void *)k->x, k->gw, (void *)k->gy, k->gbias};
    if (!offered(k->dtype) || !run("conv2d backward", &p, data))
        choir__cpu_reference.conv_backward_weight(k);
}
