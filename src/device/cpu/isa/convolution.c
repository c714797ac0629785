/* Convolutions without oneDNN: each is a matrix product of unfolded images.
 *
 * For a block of output pixels the windows are stored side by side, as rows (pixels, places C)
 * with zeros for the padding; then, for each group of channels,
 *
 *     y (pixels, O) = rows w^T,   rows' gradient = gy w,   gw (O, places C) += gy^T rows
 *
 * and a gradient of rows is folded back: added to the pixels that the rows came from. A 1x1
 * window with stride 1 needs no unfolding. Blocks have as many rows as stay in the cache; their
 * sums are continued in order, so results do not depend on the blocks. */
#include "device/cpu/isa/isa.h"

enum { ROWS_BYTES = 1 << 20 };

typedef choir__conv_shape shape;

/* A run of output pixels of one group: the common part of the products of the three passes. */
typedef struct block {
    const shape *s;
    int64_t group, first, pixels;
    int64_t in, out, length; /* channels of the group; elements of a row: places x in */
    float *rows;
} block;

static bool as_it_lies(const shape *s)
{
    return s->kh == 1 && s->kw == 1 && s->pad_h == 0 && s->pad_w == 0 && s->stride_h == 1 &&
           s->stride_w == 1 && s->h == s->oh && s->w == s->ow;
}

static block first_block(const shape *s)
{
    block b = {.s = s, .in = s->c / s->groups, .out = s->o / s->groups};
    b.length = s->kh * s->kw * b.in;
    int64_t all = s->n * s->oh * s->ow, fit = ROWS_BYTES / 4 / choir__max(b.length, 1);
    b.pixels = as_it_lies(s) ? all : choir__min(all, choir__max(fit, 16));
    if (!as_it_lies(s))
        b.rows = choir__cpu_workspace(
            choir__cpu_context_current(), (size_t)(b.pixels * b.length) * sizeof(float));
    return b;
}

/* Goes to the next group of a run of pixels, then to the next run; returns false at the end. */
static bool next_block(block *b)
{
    int64_t all = b->s->n * b->s->oh * b->s->ow;
    if (++b->group == b->s->groups) {
        b->group = 0;
        b->first += b->pixels;
        b->pixels = choir__min(b->pixels, all - b->first);
    }
    return b->first < all;
}

/* Returns the offset in x of the group's channels under place (i, j) of output pixel p, or -1
 * in the padding. */
static int64_t under(const block *b, int64_t p, int64_t i, int64_t j)
{
    const shape *s = b->s;
    int64_t ow = p % s->ow, oh = p / s->ow % s->oh, n = p / s->ow / s->oh;
    int64_t h = oh * s->stride_h - s->pad_h + i * s->dilation_h;
    int64_t w = ow * s->stride_w - s->pad_w + j * s->dilation_w;
    return h < 0 || h >= s->h || w < 0 || w >= s->w
               ? -1
               : ((n * s->h + h) * s->w + w) * s->c + b->group * b->in;
}

/* Returns the windows of x; *apart: the distance of its rows. */
static const float *unfold(const block *b, const float *x, int64_t *apart)
{
    const shape *s = b->s;
    *apart = b->rows ? b->length : s->c;
    if (!b->rows)
        return x + b->first * s->c + b->group * b->in;
    float *to = b->rows;
    for (int64_t p = b->first; p < b->first + b->pixels; p++)
        for (int64_t place = 0; place < s->kh * s->kw; place++, to += b->in) {
            int64_t at = under(b, p, place / s->kw, place % s->kw);
            for (int64_t c = 0; c < b->in; c++)
                to[c] = at < 0 ? 0.0f : x[at + c];
        }
    return b->rows;
}

/* Adds the rows to the pixels of gx. */
static void fold(const block *b, float *gx)
{
    const shape *s = b->s;
    const float *from = b->rows;
    for (int64_t p = b->first; p < b->first + b->pixels; p++)
        for (int64_t place = 0; place < s->kh * s->kw; place++, from += b->in) {
            int64_t at = under(b, p, place / s->kw, place % s->kw);
            for (int64_t c = 0; at >= 0 && c < b->in; c++)
                gx[at + c] += from[c];
        }
}

/* Returns the offset of the group's part of y or gy at the block's first pixel; at_w: offset in
 * w or gw. */
static int64_t at_y(const block *b)
{
    return b->first * b->s->o + b->group * b->out;
}

static int64_t at_w(const block *b)
{
    return b->group * b->out * b->length;
}

void KERNEL(plain_conv)(const choir__k_conv *k)
{
    F32_ONLY(conv, k);
    block b = first_block(&k->s);
    for (bool more = b.pixels > 0; more; more = next_block(&b)) {
        int64_t apart;
        const float *rows = unfold(&b, k->x, &apart);
        choir__matrix w = choir__rows_at((const float *)k->w + at_w(&b), b.length);
        choir__k_matmul product =
            choir__product_of(CHOIR_F32, choir__rows_at((float *)k->y + at_y(&b), k->s.o),
                choir__rows_at(rows, apart), choir__transposed(w), b.pixels, b.out, b.length);
        product.bias = k->bias ? (const float *)k->bias + b.group * b.out : NULL;
        KERNEL(plain_matmul)(&product);
    }
}

void KERNEL(plain_conv_backward_input)(const choir__k_conv_backward_input *k)
{
    F32_ONLY(conv_backward_input, k);
    const shape *s = &k->s;
    block b = first_block(s);
    memset(k->gx, 0, (size_t)(s->n * s->h * s->w * s->c) * sizeof(float));
    for (bool more = b.pixels > 0; more; more = next_block(&b)) {
        choir__matrix gx =
            b.rows ? choir__rows_at(b.rows, b.length)
                   : choir__rows_at((float *)k->gx + b.first * s->c + b.group * b.in, s->c);
        choir__k_matmul product = choir__product_of(CHOIR_F32, gx,
            choir__rows_at((const float *)k->gy + at_y(&b), s->o),
            choir__rows_at((const float *)k->w + at_w(&b), b.length), b.pixels, b.length,
            b.out);
        KERNEL(plain_matmul)(&product);
        if (b.rows)
            fold(&b, k->gx);
    }
}

void KERNEL(plain_conv_backward_weight)(const choir__k_conv_backward_weight *k)
{
    F32_ONLY(conv_backward_weight, k);
    const shape *s = &k->s;
    block b = first_block(s);
    memset(k->gw, 0, (size_t)(s->o * b.length) * sizeof(float));
    for (bool more = b.pixels > 0; more; more = next_block(&b)) {
        int64_t apart;
        const float *rows = unfold(&b, k->x, &apart);
        choir__matrix gy = choir__rows_at((const float *)k->gy + at_y(&b), s->o);
        choir__k_matmul product =
            choir__product_of(CHOIR_F32, choir__rows_at((float *)k->gw + at_w(&b), b.length),
                choir__transposed(gy), choir__rows_at(rows, apart), b.out, b.length, b.pixels);
        product.accumulate = true;
        KERNEL(plain_matmul)(&product);
    }
    if (k->gbias)
        KERNEL(sum)
    (&(choir__k_sum){.x = k->gy,
        .y = k->gbias,
        .rows = s->n * s->oh * s->ow,
        .cols = s->o,
        .scale = 1,
        .over_rows = true,
        .dtype = CHOIR_F32});
}
