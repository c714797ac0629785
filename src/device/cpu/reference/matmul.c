/* Reference kernels for matrix products, convolutions and pooling: each output element is one
 * sum, written as a loop.
 *
 * An input pixel and an output pixel meet at a place (kh, kw) of the window if h = oh stride -
 * pad + kh dilation. A forward kernel uses input_pixel() to find the input for an output; a
 * gradient of the input uses output_pixel() for the reverse. */
#include "device/cpu/reference/reference.h"

/* Returns the type of biases and of weights' gradients for operands of dtype. */
static choir_dtype sums_of(choir_dtype dtype)
{
    return dtype == CHOIR_F64 ? CHOIR_F64 : CHOIR_F32;
}

/* y[i] = the sum over l < terms of x[i * to_next + l * to_term] */
static void sum_operand(const void *x, choir_dtype dtype, void *y, choir_dtype to, int64_t n,
    int64_t terms, int64_t to_next, int64_t to_term)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int64_t l = 0; l < terms; l++)
            sum += get(x, i * to_next + l * to_term, dtype);
        put(y, i, to, sum);
    }
}

/* One element of a product: places of its first factors. */
typedef struct element {
    const choir__k_matmul *k;
    int64_t a, b;
} element;

static double leaf_of(const element *e, int64_t leaf)
{
    const choir__k_matmul *k = e->k;
    const int64_t outer = choir__cut_outer(k->cut);
    int64_t from, to;
    double sum = 0;
    choir__cut_leaf(k->cut, k->k, leaf, &from, &to);
    for (int64_t block = 0; block < k->k; block += choir__max(1, k->k / outer))
        for (int64_t l = block + from; l < block + to; l++)
            sum += get(k->a, e->a + l * k->a_col, k->dtype) *
                   get(k->b, e->b + l * k->b_row, k->dtype);
    return sum;
}

/* The fixed tree over leaves [first, first + leaves). */
static double tree_of(const element *e, int64_t first, int64_t leaves)
{
    if (leaves == 1)
        return leaf_of(e, first);
    const int64_t half = left_leaves(leaves);
    return tree_of(e, first, half) + tree_of(e, first + half, leaves - half);
}

void choir__reference_matmul(const choir__k_matmul *k)
{
    const choir__node node = choir__cut_node(k->cut, k->node);
    choir_dtype dtype = k->dtype, sums = sums_of(dtype), to = k->wide ? sums : dtype;
    choir_dtype bias = k->half_bias ? dtype : sums;
    if (k->a_sums)
        sum_operand(k->a, dtype, k->a_sums, to, k->m, k->k, k->a_row, k->a_col);
    if (k->b_sums)
        sum_operand(k->b, dtype, k->b_sums, to, k->n, k->k, k->b_col, k->b_row);
    for (int64_t b0 = 0; b0 < k->batch0; b0++)
        for (int64_t b1 = 0; b1 < k->batch1; b1++) {
            int64_t a = b0 * k->a_batch0 + b1 * k->a_batch1; /* the start of each matrix */
            int64_t b = b0 * k->b_batch0 + b1 * k->b_batch1;
            int64_t c = b0 * k->c_batch0 + b1 * k->c_batch1;
            for (int64_t i = 0; i < k->m; i++)
                for (int64_t j = 0; j < k->n; j++) {
                    int64_t at = c + i * k->c_row + j;
                    const element e = {k, a + i * k->a_row, b + j * k->b_col};
                    double sum = tree_of(&e, node.start, node.leaves);
                    sum += get_or(k->bias, j, bias, 0);
                    if (k->accumulate)
                        sum += get(k->c, at, to);
                    put(k->c, at, to, sum);
                }
        }
    if (k->gelu_in)
        choir__reference_unary_backward(&(choir__k_unary_backward){.x = k->gelu_in,
            .gy = k->c,
            .gx = k->c,
            .n = k->m * k->n,
            .op = CHOIR__GELU_TANH,
            .dtype = dtype});
}

/* Returns the number of input channels (group_outputs: output channels) per group. */
static int64_t group_inputs(const choir__conv_shape *s)
{
    return s->c / s->groups;
}

static int64_t group_outputs(const choir__conv_shape *s)
{
    return s->o / s->groups;
}

/* Returns the input pixel at place (kh, kw) of output pixel (oh, ow)'s window; false in the
 * padding. */
static bool input_pixel(const choir__conv_shape *s, int64_t oh, int64_t ow, int64_t kh,
    int64_t kw, int64_t *h, int64_t *w)
{
    *h = oh * s->stride_h - s->pad_h + kh * s->dilation_h;
    *w = ow * s->stride_w - s->pad_w + kw * s->dilation_w;
    return *h >= 0 && *h < s->h && *w >= 0 && *w < s->w;
}

/* The reverse: returns the output pixel that has input pixel (h, w) at place (kh, kw) of its
 * window; false if no output pixel has. */
static bool output_pixel(const choir__conv_shape *s, int64_t h, int64_t w, int64_t kh,
    int64_t kw, int64_t *oh, int64_t *ow)
{
    int64_t y = h + s->pad_h - kh * s->dilation_h, x = w + s->pad_w - kw * s->dilation_w;
    *oh = y / s->stride_h, *ow = x / s->stride_w;
    return y >= 0 && x >= 0 && y % s->stride_h == 0 && x % s->stride_w == 0 && *oh < s->oh &&
           *ow < s->ow;
}

/* Return offsets: of pixel (n, h, w) of x, of (n, oh, ow) of y, of w's channels at (o, kh,
 * kw). */
static int64_t at_x(const choir__conv_shape *s, int64_t n, int64_t h, int64_t w)
{
    return ((n * s->h + h) * s->w + w) * s->c;
}

static int64_t at_y(const choir__conv_shape *s, int64_t n, int64_t oh, int64_t ow)
{
    return ((n * s->oh + oh) * s->ow + ow) * s->o;
}

static int64_t at_w(const choir__conv_shape *s, int64_t o, int64_t kh, int64_t kw)
{
    return ((o * s->kh + kh) * s->kw + kw) * group_inputs(s);
}

/* y[n, oh, ow, o] */
static double conv_output(const choir__k_conv *k, int64_t n, int64_t oh, int64_t ow, int64_t o)
{
    const choir__conv_shape *s = &k->s;
    int64_t first = o / group_outputs(s) * group_inputs(s), h, w; /* first: channel of x */
    double sum = get_or(k->bias, o, sums_of(k->dtype), 0);
    for (int64_t kh = 0; kh < s->kh; kh++)
        for (int64_t kw = 0; kw < s->kw; kw++) {
            if (!input_pixel(s, oh, ow, kh, kw, &h, &w))
                continue;
            for (int64_t c = 0; c < group_inputs(s); c++)
                sum += get(k->x, at_x(s, n, h, w) + first + c, k->dtype) *
                       get(k->w, at_w(s, o, kh, kw) + c, k->dtype);
        }
    return sum;
}

void choir__reference_conv(const choir__k_conv *k)
{
    const choir__conv_shape *s = &k->s;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++)
                for (int64_t o = 0; o < s->o; o++)
                    put(k->y, at_y(s, n, oh, ow) + o, k->dtype, conv_output(k, n, oh, ow, o));
}

/* gx[n, h, w, c]: over the group's output channels and the window's places */
static double conv_gx(
    const choir__k_conv_backward_input *k, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const choir__conv_shape *s = &k->s;
    int64_t group = c / group_inputs(s), oh, ow;
    double sum = 0;
    for (int64_t kh = 0; kh < s->kh; kh++)
        for (int64_t kw = 0; kw < s->kw; kw++) {
            if (!output_pixel(s, h, w, kh, kw, &oh, &ow))
                continue;
            for (int64_t o = group * group_outputs(s); o < (group + 1) * group_outputs(s); o++)
                sum += get(k->gy, at_y(s, n, oh, ow) + o, k->dtype) *
                       get(k->w, at_w(s, o, kh, kw) + c % group_inputs(s), k->dtype);
        }
    return sum;
}

void choir__reference_conv_backward_input(const choir__k_conv_backward_input *k)
{
    const choir__conv_shape *s = &k->s;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t h = 0; h < s->h; h++)
            for (int64_t w = 0; w < s->w; w++)
                for (int64_t c = 0; c < s->c; c++)
                    put(k->gx, at_x(s, n, h, w) + c, k->dtype, conv_gx(k, n, h, w, c));
}

/* gw[o, kh, kw, c]: over the output pixels; c counts within the group */
static double conv_gw(
    const choir__k_conv_backward_weight *k, int64_t o, int64_t kh, int64_t kw, int64_t c)
{
    const choir__conv_shape *s = &k->s;
    int64_t channel = o / group_outputs(s) * group_inputs(s) + c, h, w;
    double sum = 0;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++)
                if (input_pixel(s, oh, ow, kh, kw, &h, &w))
                    sum += get(k->gy, at_y(s, n, oh, ow) + o, k->dtype) *
                           get(k->x, at_x(s, n, h, w) + channel, k->dtype);
    return sum;
}

void choir__reference_conv_backward_weight(const choir__k_conv_backward_weight *k)
{
    const choir__conv_shape *s = &k->s;
    for (int64_t o = 0; o < s->o; o++) {
        for (int64_t kh = 0; kh < s->kh; kh++)
            for (int64_t kw = 0; kw < s->kw; kw++)
                for (int64_t c = 0; c < group_inputs(s); c++)
                    put(k->gw, at_w(s, o, kh, kw) + c, sums_of(k->dtype),
                        conv_gw(k, o, kh, kw, c));
        if (!k->gbias)
            continue;
        double sum = 0;
        for (int64_t pixel = 0; pixel < s->n * s->oh * s->ow; pixel++)
            sum += get(k->gy, pixel * s->o + o, k->dtype);
        put(k->gbias, o, sums_of(k->dtype), sum);
    }
}

/* y[n, oh, ow, c]; where: the first maximum's place in the window */
static double pool_output(
    const choir__k_pool *k, int64_t n, int64_t oh, int64_t ow, int64_t c, int64_t *where)
{
    const choir__conv_shape *s = &k->s;
    int64_t h, w;
    double sum = 0, best = -INFINITY;
    *where = -1;
    for (int64_t kh = 0; kh < s->kh; kh++)
        for (int64_t kw = 0; kw < s->kw; kw++) {
            if (!input_pixel(s, oh, ow, kh, kw, &h, &w))
                continue;
            double x = get(k->x, at_x(s, n, h, w) + c, k->dtype);
            sum += x;
            if (*where < 0 || CHOIR__SURPASSES(x, best))
                best = x, *where = kh * s->kw + kw;
        }
    return k->max ? best : sum / (double)(s->kh * s->kw);
}

void choir__reference_pool(const choir__k_pool *k)
{
    const choir__conv_shape *s = &k->s;
    int64_t where;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t oh = 0; oh < s->oh; oh++)
            for (int64_t ow = 0; ow < s->ow; ow++)
                for (int64_t c = 0; c < s->c; c++) {
                    int64_t i = at_y(s, n, oh, ow) + c;
                    put(k->y, i, k->dtype, pool_output(k, n, oh, ow, c, &where));
                    if (k->max && k->index)
                        ((uint8_t *)k->index)[i] = (uint8_t)choir__max(where, 0);
                }
}

/* gx[n, h, w, c]: from every window that contains (h, w), or whose maximum it was */
static double pool_gx(
    const choir__k_pool_backward *k, int64_t n, int64_t h, int64_t w, int64_t c)
{
    const choir__conv_shape *s = &k->s;
    int64_t oh, ow;
    double sum = 0;
    for (int64_t kh = 0; kh < s->kh; kh++)
        for (int64_t kw = 0; kw < s->kw; kw++) {
            if (!output_pixel(s, h, w, kh, kw, &oh, &ow))
                continue;
            int64_t i = at_y(s, n, oh, ow) + c;
            double gy = get(k->gy, i, k->dtype);
            if (!k->max)
                sum += gy / (double)(s->kh * s->kw);
            else if (((const uint8_t *)k->index)[i] == kh * s->kw + kw)
                sum += gy;
        }
    return sum;
}

void choir__reference_pool_backward(const choir__k_pool_backward *k)
{
    const choir__conv_shape *s = &k->s;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t h = 0; h < s->h; h++)
            for (int64_t w = 0; w < s->w; w++)
                for (int64_t c = 0; c < s->c; c++)
                    put(k->gx, at_x(s, n, h, w) + c, k->dtype, pool_gx(k, n, h, w, c));
}
