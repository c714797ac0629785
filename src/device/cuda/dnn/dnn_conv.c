/* Convolutions as cuDNN's graphs: one operation, and in the forward a bias that is fused with
 * it.
 *
 * cuDNN orders dimensions as (N, C, H, W) and accepts any strides: ours say channels-last,
 * which its tensor-core engines prefer. Sums are f32. For 16-bit images no engine writes w's
 * gradient as f32, so it is rounded to 16 bits, as in PyTorch, and then widened. */
#ifdef CHOIR_HAVE_CUDNN
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/dnn/dnn_graph.h"
#include "device/cuda/kernels/matmul.h"

#include <string.h>

enum { X = 1, W, Y, BIAS }; /* the tensors' ids; a gradient has the id of its tensor */
enum { GW_SLOT };           /* slot of scratch memory */

choir__dnn_problem choir__dnn_conv_problem(
    int kind, const choir__conv_shape *s, choir_dtype dtype, bool bias)
{
    choir__dnn_problem p;
    memset(&p, 0, sizeof p);
    p.kind = kind, p.dtype = (int32_t)dtype, p.flags = bias;
    p.tf32 = dtype == CHOIR_F32 && choir__cuda_conv_tf32();
    _Static_assert(sizeof *s <= sizeof p.n, "a shape is in the problem");
    memcpy(p.n, s, sizeof *s);
    return p;
}

/* Makes an image (n, c, h, w), channels-last. */
static choir__dnn_thing image(choir__dnn_graph *g, int64_t id, cudnnDataType_t type, int64_t n,
    int64_t c, int64_t h, int64_t w)
{
    return choir__dnn_tensor(
        g, id, type, (int64_t[]){n, c, h, w}, (int64_t[]){h * w * c, 1, w * c, c});
}

static choir__dnn_thing convolution(choir__dnn_graph *g, const choir__conv_shape *s)
{
    choir__dnn_thing c = choir__dnn_new(g, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t sums = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t spatial = 2, pad[2] = {s->pad_h, s->pad_w};
    int64_t stride[2] = {s->stride_h, s->stride_w};
    int64_t dilation[2] = {s->dilation_h, s->dilation_w};
    choir__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    choir__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &sums);
    choir__dnn_set(
        g, c, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    choir__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    choir__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    choir__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    choir__dnn_set(g, c, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    choir__dnn_done(g, c);
    return c;
}

/* The attributes of each kind's operation: convolution, x, w, y, alpha, beta. */
static const struct op_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t how, x, w, y, alpha, beta;
} names[] = {
    [CHOIR__DNN_CONV] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CHOIR__DNN_CONV_INPUT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CHOIR__DNN_CONV_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

void choir__dnn_build_conv(choir__dnn_graph *g, const choir__dnn_problem *p)
{
    const struct op_names *name = &names[p->kind];
    choir__conv_shape s;
    memcpy(&s, p->n, sizeof s);
    cudnnDataType_t type = choir__dnn_type((choir_dtype)p->dtype), sums = CUDNN_DATA_FLOAT;
    bool bias = p->flags;
    choir__dnn_thing x = image(g, X, type, s.n, s.c, s.h, s.w);
    choir__dnn_thing w = image(g, W, type, s.o, s.c / s.groups, s.kh, s.kw);
    choir__dnn_thing y = image(g, Y, type, s.n, s.o, s.oh, s.ow);
    choir__dnn_thing product = bias ? image(g, 0, sums, s.n, s.o, s.oh, s.ow) : y;
    choir__dnn_thing op = choir__dnn_new(g, name->type);
    choir__dnn_set_thing(g, op, name->how, convolution(g, &s));
    choir__dnn_set_thing(g, op, name->x, x);
    choir__dnn_set_thing(g, op, name->w, w);
    choir__dnn_set_thing(g, op, name->y, product);
    choir__dnn_set_float(g, op, name->alpha, 1);
    choir__dnn_set_float(g, op, name->beta, 0);
    choir__dnn_op(g, op);
    if (bias)
        choir__dnn_pointwise(g, (choir__dnn_each){.mode = CUDNN_POINTWISE_ADD,
                                    .x = product,
                                    .b = image(g, BIAS, sums, 1, s.o, 1, 1),
                                    .y = y});
}

/* Returns true if cuDNN supports the shape. It is not used for f64, without images, nor where
 * pixels at the image's end are left out: cuDNN derives the output's size itself. */
static bool known(const choir__conv_shape *s, choir_dtype dtype)
{
    int64_t h = (s->h + 2 * s->pad_h - s->dilation_h * (s->kh - 1) - 1) / s->stride_h + 1;
    int64_t w = (s->w + 2 * s->pad_w - s->dilation_w * (s->kw - 1) - 1) / s->stride_w + 1;
    return dtype != CHOIR_F64 && s->n > 0 && h == s->oh && w == s->ow;
}

bool choir__dnn_conv(const choir__k_conv *k, bool *biased)
{
    choir__dnn_problem p =
        choir__dnn_conv_problem(CHOIR__DNN_CONV, &k->s, k->dtype, k->bias != NULL);
    void *at[] = {(void *)k->x, (void *)k->w, k->y, (void *)k->bias};
    if (!known(&k->s, k->dtype))
        return false;
    *biased = k->bias && choir__dnn_knows(choir__dnn_build_conv, &p);
    if (!*biased)
        p = choir__dnn_conv_problem(CHOIR__DNN_CONV, &k->s, k->dtype, false);
    return choir__dnn_run(choir__dnn_build_conv, &p, *biased ? 4 : 3, at);
}

bool choir__dnn_conv_backward_input(const choir__k_conv_backward_input *k)
{
    choir__dnn_problem p =
        choir__dnn_conv_problem(CHOIR__DNN_CONV_INPUT, &k->s, k->dtype, false);
    void *at[] = {k->gx, (void *)k->w, (void *)k->gy};
    return known(&k->s, k->dtype) && choir__dnn_run(choir__dnn_build_conv, &p, 3, at);
}

bool choir__dnn_conv_backward_weight(const choir__k_conv_backward_weight *k)
{
    const choir__conv_shape *s = &k->s;
    choir__dnn_problem p = choir__dnn_conv_problem(CHOIR__DNN_CONV_WEIGHT, s, k->dtype, false);
    int64_t n = s->o * s->kh * s->kw * (s->c / s->groups);
    bool widen = choir_dtype_size(k->dtype) == 2;
    void *gw = widen ? choir__cuda_scratch(GW_SLOT, (size_t)n * 2) : k->gw;
    void *at[] = {(void *)k->x, gw, (void *)k->gy};
    if (!gw)
        return true; /* the queue has failed */
    bool done = known(s, k->dtype) && choir__dnn_run(choir__dnn_build_conv, &p, 3, at);
    if (widen && done)
        choir__cuda_copy(&(choir__k_copy){.y = {k->gw, {1}},
            .x = {gw, {1}},
            .shape = {n},
            .ndim = 1,
            .y_dtype = CHOIR_F32,
            .x_dtype = k->dtype});
    if (widen)
        choir__cuda_scratch_done(GW_SLOT);
    return done;
}
#endif
