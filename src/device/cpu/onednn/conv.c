/* Convolutions through oneDNN.
 *
 * Images are channels-last and passed unchanged. For the weights the primitive may choose its
 * own blocked layout: then a reorder before it (or, for the weights' gradient, after it) goes
 * through scratch memory. No blocked layout leaves this file. Some shapes are faster by matrix
 * products: conv_product.c.
 *
 * Windows of 3x3 with stride 1 use Winograd's algorithm, F(4x4, 3x3), where oneDNN has it
 * (Lavin & Gray, 2015): a quarter of the multiplications, on transformed tiles of 6x6 pixels.
 * It expects blocked images, so they are reordered, too; with 64 to 256 channels it still takes
 * half to four fifths of the direct algorithm's time. With more channels the transformed
 * weights leave the cache; with fewer, or images of few tiles, the transforms cost more than
 * they save. The error of results is about 1e-6 of their norm, compared with 6e-7 of the direct
 * algorithm; the error of the weights' gradient is 5e-7, compared with 1e-7. */
#include "device/cpu/onednn/onednn.h"
#include "device/queue.h"

#include <string.h>

enum { FORWARD = 2, BACKWARD_INPUT, BACKWARD_WEIGHT };
enum { FIRST, WEIGHTS, LAST }; /* operands: the pass's first image, the weights, the other */

typedef struct problem {
    int64_t kind, dtype, bias;
    choir__conv_shape s;
} problem;

/* oneDNN's view of the operands, plain and with the layout left open. */
typedef struct shapes {
    dnnl_memory_desc_t x, y, w, any_x, any_y, any_w, bias;
    dnnl_memory_desc_t forward_w; /* any_w of the forward pass, which a backward one names */
    dnnl_dims_t strides, dilates, pad_low, pad_high;
} shapes;

/* The choices that describe a pass's descriptor. */
typedef struct choice {
    dnnl_alg_kind_t algorithm;
    const dnnl_memory_desc_t *x, *y;
} choice;

static bool describe_image(dnnl_memory_desc_t *md, dnnl_memory_desc_t *any, choir_dtype dtype,
    int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t dims[] = {n, c, h, w}, strides[] = {h * w * c, 1, w * c, c};
    return choir__onednn_describe(md, dtype, 4, dims, strides) &&
           choir__onednn_describe(any, dtype, 4, dims, NULL);
}

/* The gradient of the weights is f32, whatever the operands are. */
static bool describe_weights(shapes *out, const problem *p)
{
    const choir__conv_shape *s = &p->s;
    choir_dtype dtype = (choir_dtype)p->dtype;
    int64_t i = s->c / s->groups, o = s->o / s->groups, filter = s->kh * s->kw * i;
    const int64_t dims[] = {s->groups, o, i, s->kh, s->kw};
    const int64_t strides[] = {o * filter, filter, 1, s->kw * i, i};
    int skip = s->groups == 1;
    choir_dtype own = p->kind == BACKWARD_WEIGHT ? CHOIR_F32 : dtype;
    return choir__onednn_describe(&out->w, own, 5 - skip, dims + skip, strides + skip) &&
           choir__onednn_describe(&out->any_w, own, 5 - skip, dims + skip, NULL) &&
           choir__onednn_describe(&out->forward_w, dtype, 5 - skip, dims + skip, NULL);
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
    return describe_image(&out->x, &out->any_x, type, s->n, s->c, s->h, s->w) &&
           describe_image(&out->y, &out->any_y, type, s->n, s->o, s->oh, s->ow) &&
           describe_weights(out, p) &&
           choir__onednn_describe(&out->bias, CHOIR_F32, 1, &s->o, &stride);
}

static dnnl_primitive_desc_t describe_forward(
    choir__onednn *cache, const shapes *sh, const problem *p, const choice *c, bool training)
{
    dnnl_convolution_desc_t desc;
    if (choir__dnnl.dilated_convolution_forward_desc_init(&desc,
            training ? dnnl_forward_training : dnnl_forward_inference, c->algorithm, c->x,
            &sh->forward_w, p->bias ? &sh->bias : NULL, c->y, sh->strides, sh->dilates,
            sh->pad_low, sh->pad_high))
        return NULL;
    return choir__onednn_fast(cache, &desc, choir__onednn_attr(cache), NULL);
}

/* Makes the descriptor of a backward pass; oneDNN expects the forward one as a hint. */
static dnnl_primitive_desc_t describe_backward(
    choir__onednn *cache, const shapes *sh, const problem *p, const choice *c)
{
    dnnl_convolution_desc_t desc;
    dnnl_primitive_desc_t pd = NULL, hint = describe_forward(cache, sh, p, c, true);
    if (!hint)
        return NULL;
    dnnl_status_t status;
    if (p->kind == BACKWARD_INPUT)
        status = choir__dnnl.dilated_convolution_backward_data_desc_init(&desc, c->algorithm,
            c->x, &sh->any_w, c->y, sh->strides, sh->dilates, sh->pad_low, sh->pad_high);
    else
        status = choir__dnnl.dilated_convolution_backward_weights_desc_init(&desc, c->algorithm,
            c->x, &sh->any_w, p->bias ? &sh->bias : NULL, c->y, sh->strides, sh->dilates,
            sh->pad_low, sh->pad_high);
    if (!status)
        pd = choir__onednn_fast(cache, &desc, choir__onednn_attr(cache), hint);
    choir__dnnl.primitive_desc_destroy(hint);
    return pd;
}

static dnnl_primitive_desc_t describe_pass(
    choir__onednn *cache, const shapes *sh, const problem *p, const choice *c)
{
    bool training = c->algorithm == dnnl_convolution_winograd; /* there it is the faster one */
    return p->kind == FORWARD ? describe_forward(cache, sh, p, c, training)
                              : describe_backward(cache, sh, p, c);
}

/* True for shapes that benefit from Winograd's algorithm. */
static bool tiles_pay(const problem *p)
{
    const choir__conv_shape *s = &p->s;
    return p->dtype == CHOIR_F32 && s->groups == 1 && s->kh == 3 && s->kw == 3 &&
           s->stride_h == 1 && s->stride_w == 1 && s->dilation_h == 1 && s->dilation_w == 1 &&
           s->pad_h == 1 && s->pad_w == 1 && s->c % 16 == 0 && s->o % 16 == 0 && s->c >= 64 &&
           s->o >= 64 && s->c <= 256 && s->o <= 256 && s->h >= 12 && s->w >= 12;
}

/* Returns NULL if oneDNN has Winograd's algorithm for the shape only in its slow reference. */
static dnnl_primitive_desc_t describe_winograd(
    choir__onednn *cache, const shapes *sh, const problem *p)
{
    const choice winograd = {dnnl_convolution_winograd, &sh->any_x, &sh->any_y};
    const char *name = "";
    dnnl_primitive_desc_t pd = tiles_pay(p) ? describe_pass(cache, sh, p, &winograd) : NULL;
    if (!pd || (choir__dnnl.primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) == 0 &&
                   strncmp(name, "jit", 3) == 0))
        return pd;
    choir__dnnl.primitive_desc_destroy(pd);
    return NULL;
}

/* Makes the reorder between an operand's plain layout and the primitive's, in the direction
 * that the pass needs. */
static bool build_reorder(choir__onednn *cache, choir__onednn_plan *plan, int operand, int out,
    const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *blocked)
{
    dnnl_primitive_desc_t pd;
    const dnnl_memory_desc_t *from = operand == out ? blocked : plain;
    const dnnl_memory_desc_t *to = operand == out ? plain : blocked;
    dnnl_engine_t engine = choir__onednn_engine(cache);
    plan->bytes[operand] = (choir__dnnl.memory_desc_get_size(blocked) + 63) & ~(size_t)63;
    return !choir__dnnl.reorder_primitive_desc_create(
               &pd, from, engine, to, engine, choir__onednn_attr(cache)) &&
           choir__onednn_build(cache, &plan->reorder[operand], pd, 2,
               (int[]){DNNL_ARG_FROM, DNNL_ARG_TO}, (const dnnl_memory_desc_t *[]){from, to});
}

/* Returns the operand that a pass writes. */
static int output_of(const problem *p)
{
    return p->kind == BACKWARD_WEIGHT ? WEIGHTS : LAST;
}

/* Makes the primitive. Its arguments are in the order in which `run` passes data: image in,
 * weights, image out, bias. */
static void build(choir__onednn *cache, choir__onednn_plan *plan, const void *what)
{
    const problem *p = what;
    static const int ids[][4] = {
        [FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        [BACKWARD_INPUT] = {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
        [BACKWARD_WEIGHT] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST,
            DNNL_ARG_DIFF_BIAS},
    };
    static const dnnl_query_t queries[][3] = {
        [FORWARD] = {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        [BACKWARD_INPUT] = {dnnl_query_diff_dst_md, dnnl_query_weights_md,
            dnnl_query_diff_src_md},
        [BACKWARD_WEIGHT] = {dnnl_query_src_md, dnnl_query_diff_weights_md,
            dnnl_query_diff_dst_md},
    };
    shapes sh;
    if (!describe(&sh, p))
        return;
    const choice direct = {dnnl_convolution_direct, &sh.x, &sh.y};
    dnnl_primitive_desc_t pd = describe_winograd(cache, &sh, p);
    if (!pd)
        pd = describe_pass(cache, &sh, p, &direct);
    if (!pd)
        return;
    const dnnl_memory_desc_t *plain[] = {&sh.x, &sh.w, &sh.y};
    if (p->kind == BACKWARD_INPUT)
        plain[FIRST] = &sh.y, plain[LAST] = &sh.x;
    dnnl_memory_desc_t md[3];
    for (int i = 0; i < 3; i++) {
        md[i] = *choir__dnnl.primitive_desc_query_md(pd, queries[p->kind][i], 0);
        plan->plain[i] = choir__dnnl.memory_desc_get_size(plain[i]);
    }
    plan->plain[3] = p->bias ? choir__dnnl.memory_desc_get_size(&sh.bias) : 0;
    bool ok = choir__onednn_build(cache, &plan->op, pd, p->bias ? 4 : 3, ids[p->kind],
        (const dnnl_memory_desc_t *[]){&md[0], &md[1], &md[2], &sh.bias});
    for (int i = 0; ok && i < 3; i++)
        if (!choir__dnnl.memory_desc_equal(&md[i], plain[i]))
            ok = build_reorder(cache, plan, i, output_of(p), plain[i], &md[i]);
    if (!ok)
        plan->op.primitive = NULL; /* the rest is small and kept until the cache is freed */
}

/* Runs the input's reorders, the primitive, and the output's reorder. */
static bool execute(choir__onednn *cache, choir__onednn_plan *plan, const void *what,
    void *const data[4], char *scratch)
{
    const int out = output_of(what);
    void *inner[] = {data[0], data[1], data[2], data[3]};
    bool ok = true;
    for (int i = 0; i < 3; i++)
        if (plan->reorder[i].primitive) {
            inner[i] = scratch;
            scratch += plan->bytes[i];
        }
    for (int i = 0; i < 3; i++)
        if (inner[i] != data[i] && i != out)
            ok = ok && choir__onednn_run(
                           cache, &plan->reorder[i], (void *[]){data[i], inner[i]}, scratch);
    ok = ok && choir__onednn_run(cache, &plan->op, inner, scratch);
    if (inner[out] != data[out])
        ok = ok && choir__onednn_run(
                       cache, &plan->reorder[out], (void *[]){inner[out], data[out]}, scratch);
    return ok;
}

static const choir__onednn_kind plans = {build, execute};

/* data: image in, plain weights, image out, bias. Returns false if oneDNN has no fast kernel.
 */
static bool run(const char *op, const problem *p, void *const data[4])
{
    choir__cpu_context *context = choir__cpu_context_current();
    choir__onednn *cache = choir__cpu_context_onednn(context);
    bool fresh;
    choir__onednn_plan *plan = choir__onednn_lookup(cache, p, sizeof *p, &fresh);
    if (fresh)
        choir__onednn_settle(cache, plan, &plans, p);
    if (!plan->op.primitive)
        return false;
    char *scratch = choir__cpu_scratch(context, choir__onednn_scratch(plan));
    if (!execute(cache, plan, p, data, scratch))
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

bool choir__onednn_conv(const choir__k_conv *k)
{
    problem p = problem_of(FORWARD, k->dtype, &k->s, k->bias != NULL);
    void *data[] = {(void *)k->x, (void *)k->w, k->y, (void *)k->bias};
    return choir__onednn_conv_product(k) || (offered(k->dtype) && run("conv2d", &p, data));
}

bool choir__onednn_conv_backward_input(const choir__k_conv_backward_input *k)
{
    problem p = problem_of(BACKWARD_INPUT, k->dtype, &k->s, false);
    void *data[] = {(void *)k->gy, (void *)k->w, k->gx, NULL};
    return choir__onednn_conv_product_input(k) ||
           (offered(k->dtype) && run("conv2d backward", &p, data));
}

bool choir__onednn_conv_backward_weight(const choir__k_conv_backward_weight *k)
{
    problem p = problem_of(BACKWARD_WEIGHT, k->dtype, &k->s, k->gbias != NULL);
    void *data[] = {(void *)k->x, k->gw, (void *)k->gy, k->gbias};
    return choir__onednn_conv_product_weight(k) ||
           (offered(k->dtype) && run("conv2d backward", &p, data));
}
