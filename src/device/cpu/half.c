/* Products and convolutions of 16-bit operands by way of f32: panels of the operands are
 * widened into a block of memory that stays in the cache, and the f32 kernels do the rest.
 * Products of 16-bit numbers are exact in f32, so the sums equal a direct multiplication's.
 *
 * oneDNN has its own bf16 products if the processor has instructions for them. Intel's in
 * AVX-512 (vdpbf16ps) take twice the time of f32 products (oneDNN 2.6, a Xeon without AMX: 87
 * and 170 GFLOP/s per core), so they are not used. AMX's tiles are used, and so are AMD's
 * instructions, which take half the time (475 and 233). There are none for f16. The rule
 * depends on the kind of processor alone, not on a measurement, and is part of a device's
 * signature, so ranks that would differ refuse each other. */
#include "device/cpu/half.h"

#include <stdio.h>

#include "device/cpu/multiplier.h"
#ifdef CHOIR_HAVE_ONEDNN
#include "device/cpu/onednn/library.h"
#endif

enum { PANEL_BYTES = 4 << 20, IMAGE_BYTES = 16 << 20 };

#ifndef CHOIR_HAVE_ONEDNN
bool choir__half_products(choir_dtype dtype)
{
    (void)dtype;
    return false;
}

void choir__onednn_text(char *text, size_t bytes)
{
    if (bytes)
        *text = '\0';
}
#else
/* Returns true if oneDNN, whether or not it is the engine, multiplies bf16 fast. */
static bool onednn_has_bf16(void)
{
    choir__dnnl_open();
    unsigned tiles = dnnl_cpu_isa_avx512_core_amx, bf16 = dnnl_cpu_isa_avx512_core_bf16;
    unsigned isa = choir__dnnl.get_effective_cpu_isa();
    bool amd = false;
#if defined(__x86_64__)
    amd = __builtin_cpu_is("amd");
#endif
    return (isa & tiles) == tiles || (amd && (isa & bf16) == bf16);
}

bool choir__half_products(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 && !choir__cpu_own_products() && onednn_has_bf16();
}

void choir__onednn_text(char *text, size_t bytes)
{
    choir__dnnl_open();
    const dnnl_version_t *v = choir__dnnl.version();
    snprintf(text, bytes, "oneDNN %d.%d.%d%s", v->major, v->minor, v->patch,
        onednn_has_bf16() ? " with bf16" : "");
}
#endif

/* Copies rows x cols elements; rows of x are x_row elements apart, rows of y y_row elements. */
static void convert(const choir__kernels *f32, void *y, choir_dtype to, int64_t y_row,
    const void *x, choir_dtype from, int64_t x_row, int64_t rows, int64_t cols)
{
    choir__k_copy args = {.y = {y, {y_row, 1}},
        .x = {(void *)x, {x_row, 1}},
        .shape = {rows, cols},
        .ndim = 2,
        .y_dtype = to,
        .x_dtype = from};
    if (rows > 0 && cols > 0)
        f32->copy(&args);
}

static const char *at_half(const void *p, int64_t element)
{
    return (const char *)p + element * 2;
}

/* --- matrix products --- */

/* Writes a matrix's part of rows x cols as f32 to p, in the same order, and returns its
 * strides. */
static void widen_part(const choir__kernels *f32, float *p, const void *x, choir_dtype dtype,
    int64_t row, int64_t col, int64_t rows, int64_t cols, int64_t *p_row, int64_t *p_col)
{
    bool by_rows = col == 1;
    *p_row = by_rows ? cols : 1;
    *p_col = by_rows ? 1 : rows;
    if (by_rows)
        convert(f32, p, CHOIR_F32, cols, x, dtype, row, rows, cols);
    else
        convert(f32, p, CHOIR_F32, rows, x, dtype, col, cols, rows);
}

/* Returns the number of rows of `length` that a panel holds, a multiple of 16. */
static int64_t panel_rows(int64_t count, int64_t length)
{
    int64_t fit = PANEL_BYTES / (int64_t)sizeof(float) / choir__max(length, 1) / 16 * 16;
    return choir__min(count, choir__max(fit, 16));
}

struct panels {
    const choir__kernels *f32;
    float *a, *b, *c;
    int64_t m, n; /* upper limits */
};

/* Computes rows [i, i + m) and columns [j, j + n) of C; part already has its a and b. */
static void multiply(const choir__k_matmul *k, choir__k_matmul *part, const struct panels *p,
    int64_t i, int64_t j)
{
    int64_t at = i * k->c_row + j;
    bool direct = k->wide;
    part->bias = k->bias ? (const float *)k->bias + j : NULL;
    part->c = direct ? (float *)k->c + at : p->c;
    part->c_row = direct ? k->c_row : part->n;
    if (!direct && k->accumulate)
        convert(p->f32, p->c, CHOIR_F32, part->n, at_half(k->c, at), k->dtype, k->c_row,
            part->m, part->n);
    p->f32->matmul(part);
    if (!direct)
        convert(p->f32, (char *)k->c + at * 2, k->dtype, k->c_row, p->c, CHOIR_F32, part->n,
            part->m, part->n);
}

/* Multiplies one matrix of the batch. */
static void multiply_panels(const choir__k_matmul *k, const struct panels *p)
{
    choir__k_matmul part = {.a = p->a,
        .b = p->b,
        .batch0 = 1,
        .batch1 = 1,
        .k = k->k,
        .accumulate = k->accumulate,
        .dtype = CHOIR_F32};
    for (int64_t j = 0; j < k->n; j += p->n) {
        part.n = choir__min(p->n, k->n - j);
        widen_part(p->f32, p->b, at_half(k->b, j * k->b_col), k->dtype, k->b_row, k->b_col,
            k->k, part.n, &part.b_row, &part.b_col);
        for (int64_t i = 0; i < k->m; i += p->m) {
            part.m = choir__min(p->m, k->m - i);
            if (j == 0 || p->m < k->m) /* otherwise it is already widened */
                widen_part(p->f32, p->a, at_half(k->a, i * k->a_row), k->dtype, k->a_row,
                    k->a_col, part.m, k->k, &part.a_row, &part.a_col);
            multiply(k, &part, p, i, j);
        }
    }
}

void choir__half_matmul(const choir__kernels *f32, const choir__k_matmul *k)
{
    struct panels p = {.f32 = f32, .m = panel_rows(k->m, k->k), .n = panel_rows(k->n, k->k)};
    size_t a = (size_t)(p.m * k->k + 15) & ~(size_t)15,
           b = (size_t)(k->k * p.n + 15) & ~(size_t)15;
    size_t floats = a + b + (k->wide ? 0 : (size_t)(p.m * p.n));
    p.a = choir__cpu_wide(choir__cpu_context_current(), floats * sizeof(float));
    p.b = p.a + a;
    p.c = p.b + b;
    for (int64_t b0 = 0; b0 < k->batch0; b0++)
        for (int64_t b1 = 0; b1 < k->batch1; b1++) {
            choir__k_matmul one = *k;
            one.a = at_half(k->a, b0 * k->a_batch0 + b1 * k->a_batch1);
            one.b = at_half(k->b, b0 * k->b_batch0 + b1 * k->b_batch1);
            one.c = (char *)k->c + (b0 * k->c_batch0 + b1 * k->c_batch1) * (k->wide ? 4 : 2);
            multiply_panels(&one, &p);
        }
}

/* --- convolutions: a few images at a time --- */

struct images {
    float *x, *w, *y;
    /* elements per image of x, of the weights, per image of y */
    int64_t x_each, w_count, y_each;
    int64_t n; /* images at a time */
};

static struct images images_of(const choir__conv_shape *s, int64_t more)
{
    struct images g = {.x_each = s->h * s->w * s->c,
        .w_count = s->o * s->kh * s->kw * (s->c / s->groups),
        .y_each = s->oh * s->ow * s->o};
    int64_t fit = IMAGE_BYTES / (int64_t)sizeof(float) / choir__max(g.x_each + g.y_each, 1);
    g.n = choir__min(s->n, choir__max(fit, 1));
    size_t w = (size_t)(g.w_count + 15) & ~(size_t)15,
           x = (size_t)(g.n * g.x_each + 15) & ~(size_t)15,
           y = (size_t)(g.n * g.y_each + 15) & ~(size_t)15;
    g.w = choir__cpu_wide(
        choir__cpu_context_current(), (w + x + y + (size_t)more) * sizeof(float));
    g.x = g.w + w;
    g.y = g.x + x;
    return g;
}

static void widen(
    const choir__kernels *f32, float *y, const void *x, choir_dtype dtype, int64_t n)
{
    convert(f32, y, CHOIR_F32, n, x, dtype, n, 1, n);
}

static void narrow(
    const choir__kernels *f32, void *y, choir_dtype dtype, const float *x, int64_t n)
{
    convert(f32, y, dtype, n, x, CHOIR_F32, n, 1, n);
}

void choir__half_conv(const choir__kernels *f32, const choir__k_conv *k)
{
    struct images g = images_of(&k->s, 0);
    choir__k_conv part = *k;
    part.x = g.x, part.w = g.w, part.y = g.y, part.dtype = CHOIR_F32;
    widen(f32, g.w, k->w, k->dtype, g.w_count);
    for (int64_t n = 0; n < k->s.n; n += g.n) {
        part.s.n = choir__min(g.n, k->s.n - n);
        widen(f32, g.x, at_half(k->x, n * g.x_each), k->dtype, part.s.n * g.x_each);
        f32->conv(&part);
        narrow(f32, (char *)k->y + n * g.y_each * 2, k->dtype, g.y, part.s.n * g.y_each);
    }
}

void choir__half_conv_backward_input(
    const choir__kernels *f32, const choir__k_conv_backward_input *k)
{
    struct images g = images_of(&k->s, 0);
    choir__k_conv_backward_input part = *k;
    part.gx = g.x, part.w = g.w, part.gy = g.y, part.dtype = CHOIR_F32;
    widen(f32, g.w, k->w, k->dtype, g.w_count);
    for (int64_t n = 0; n < k->s.n; n += g.n) {
        part.s.n = choir__min(g.n, k->s.n - n);
        widen(f32, g.y, at_half(k->gy, n * g.y_each), k->dtype, part.s.n * g.y_each);
        f32->conv_backward_input(&part);
        narrow(f32, (char *)k->gx + n * g.x_each * 2, k->dtype, g.x, part.s.n * g.x_each);
    }
}

static void add_to(float *y, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* Adds the images' gradients in order. */
void choir__half_conv_backward_weight(
    const choir__kernels *f32, const choir__k_conv_backward_weight *k)
{
    struct images g = images_of(&k->s, k->s.o);
    float *bias = g.y + ((g.n * g.y_each + 15) & ~(int64_t)15);
    choir__k_conv_backward_weight part = *k;
    part.x = g.x, part.gy = g.y, part.dtype = CHOIR_F32;
    for (int64_t n = 0; n < k->s.n; n += g.n) {
        part.s.n = choir__min(g.n, k->s.n - n);
        widen(f32, g.x, at_half(k->x, n * g.x_each), k->dtype, part.s.n * g.x_each);
        widen(f32, g.y, at_half(k->gy, n * g.y_each), k->dtype, part.s.n * g.y_each);
        if (n > 0)
            part.gw = g.w, part.gbias = k->gbias ? bias : NULL;
        f32->conv_backward_weight(&part);
        if (n > 0)
            add_to(k->gw, g.w, g.w_count);
        if (n > 0 && k->gbias)
            add_to(k->gbias, bias, k->s.o);
    }
}
