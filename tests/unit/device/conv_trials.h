/* Convolutions that tests try: operands of random numbers in arrays of exactly their size, so
 * that AddressSanitizer sees accesses beyond them, and each instruction set's kernels. */
#ifndef CHOIR_TEST_CONV_TRIALS_H
#define CHOIR_TEST_CONV_TRIALS_H

#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "check.h"
#include "copies.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"

typedef void conv_fn(const choir__k_conv *k);
enum { FORWARD, INPUT, WEIGHT, PASSES };

#define SET(isa)                                                                               \
    conv_fn choir__cpu_plain_conv_##isa, choir__cpu_plain_conv_backward_input_##isa,           \
        choir__cpu_plain_conv_backward_weight_##isa;
#define ROW(isa)                                                                               \
    {#isa, {choir__cpu_plain_conv_##isa, choir__cpu_plain_conv_backward_input_##isa,           \
               choir__cpu_plain_conv_backward_weight_##isa}},
COPIES(SET)

static const struct {
    const char *isa;
    conv_fn *passes[PASSES];
} sets[] = {COPIES(ROW)};

static uint64_t state;

static int64_t below(int64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

typedef struct array {
    void *p;
    int64_t n;
    choir_dtype dtype;
} array;

static double get(const array *a, int64_t i)
{
    switch (a->dtype) {
    case CHOIR_F64: return ((const double *)a->p)[i];
    case CHOIR_BF16: return (double)choir__f32_from_bf16(((const uint16_t *)a->p)[i]);
    case CHOIR_F16: return (double)choir__f32_from_f16(((const uint16_t *)a->p)[i]);
    default: return (double)((const float *)a->p)[i];
    }
}

static void put(const array *a, int64_t i, double x)
{
    switch (a->dtype) {
    case CHOIR_F64: ((double *)a->p)[i] = x; break;
    case CHOIR_BF16: ((uint16_t *)a->p)[i] = choir__bf16_from_f32((float)x); break;
    case CHOIR_F16: ((uint16_t *)a->p)[i] = choir__f16_from_f32((float)x); break;
    default: ((float *)a->p)[i] = (float)x;
    }
}

static size_t bytes_of(const array *a)
{
    return (size_t)a->n * choir_dtype_size(a->dtype);
}

static array numbers(int64_t n, choir_dtype dtype)
{
    array a = {NULL, n, dtype};
    a.p = malloc(bytes_of(&a));
    for (int64_t i = 0; i < n; i++)
        put(&a, i, (double)below(1 << 24) / (1 << 23) - 1);
    return a;
}

static array like(const array *a)
{
    array b = *a;
    b.p = malloc(bytes_of(a));
    memset(b.p, 0x5a, bytes_of(a)); /* what a kernel leaves as it is, is seen */
    return b;
}

/* --- one convolution --- */

typedef struct trial {
    choir__k_conv k;
    array x, w, y, bias, gw; /* gw has the type of sums */
} trial;

static trial new_trial(const choir__conv_shape *s, choir_dtype dtype)
{
    const choir_dtype sums = dtype == CHOIR_F64 ? CHOIR_F64 : CHOIR_F32;
    const int64_t weights = s->o * s->kh * s->kw * (s->c / s->groups);
    trial t = {.k = {.s = *s, .dtype = dtype},
        .x = numbers(s->n * s->h * s->w * s->c, dtype),
        .w = numbers(weights, dtype),
        .y = numbers(s->n * s->oh * s->ow * s->o, dtype),
        .bias = numbers(s->o, sums),
        .gw = numbers(weights, sums)};
    t.k.x = t.x.p, t.k.w = t.w.p, t.k.gy = t.y.p;
    t.k.bias = below(2) ? t.bias.p : NULL;
    return t;
}

static void free_trial(trial *t)
{
    free(t->x.p);
    free(t->w.p);
    free(t->y.p);
    free(t->bias.p);
    free(t->gw.p);
}

/* Returns what a pass writes: y, gx, or gw; *more: gbias. */
static array result_of(const trial *t, int pass, conv_fn *run, array *more)
{
    array result = like(pass == FORWARD ? &t->y : pass == INPUT ? &t->x : &t->gw);
    choir__k_conv k = t->k;
    *more = like(&t->bias);
    *(pass == FORWARD ? &k.y : pass == INPUT ? &k.gx : &k.gw) = result.p;
    k.gbias = t->k.bias ? more->p : NULL;
    run(&k);
    return result;
}

static void failed(const trial *t, int pass, const char *who, int64_t i, double is, double was)
{
    const choir__conv_shape *s = &t->k.s;
    static const char *const names[] = {"y", "gx", "gw"};
    fail_msg(
        "%s, class %s, %s: %lld images %lld x %lld x %lld to %lld x %lld x %lld, window %lld x "
        "%lld, %lld groups, stride %lld x %lld, padding %lld x %lld, dilation %lld x %lld: "
        "%s, element %lld is %a, not %a",
        who, choir__multiplier_name(choir__cpu_multiplies()), choir_dtype_name(t->k.dtype),
        (long long)s->n, (long long)s->h, (long long)s->w, (long long)s->c, (long long)s->oh,
        (long long)s->ow, (long long)s->o, (long long)s->kh, (long long)s->kw,
        (long long)s->groups, (long long)s->stride_h, (long long)s->stride_w,
        (long long)s->pad_h, (long long)s->pad_w, (long long)s->dilation_h,
        (long long)s->dilation_w, names[pass], (long long)i, is, was);
}

/* The terms of an element are at most 1, and at most this many. */
static int64_t terms_of(const choir__conv_shape *s, int pass)
{
    return pass == WEIGHT ? s->n * s->oh * s->ow
                          : s->kh * s->kw * (pass == FORWARD ? s->c : s->o) / s->groups + 1;
}

static void assert_near(
    const trial *t, int pass, const char *isa, const array *is, const array *was)
{
    const double step = is->dtype == CHOIR_BF16  ? 0x1p-8
                        : is->dtype == CHOIR_F16 ? 0x1p-11
                        : is->dtype == CHOIR_F32 ? 0x1p-24
                                                 : 0x1p-53;
    const double sum = is->dtype == CHOIR_F64 ? 0x1p-50 : 0x1p-21;
    for (int64_t i = 0; i < is->n; i++) {
        const double x = get(is, i), y = get(was, i);
        if (!(fabs(x - y) <= 2 * step * fabs(y) + sum * (double)terms_of(&t->k.s, pass)))
            failed(t, pass, isa, i, x, y);
    }
}

static void assert_same(
    const trial *t, int pass, const char *isa, const array *is, const array *was)
{
    const size_t size = choir_dtype_size(is->dtype);
    for (int64_t i = 0; i < is->n; i++)
        if (memcmp((const char *)is->p + (size_t)i * size,
                (const char *)was->p + (size_t)i * size, size))
            failed(t, pass, isa, i, get(is, i), get(was, i));
}

#endif
