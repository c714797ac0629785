/* Convolutions by products of our own (device/cpu/product/convolution.c), of random shapes: on
 * 1 to 3 cores all instruction sets of this machine give the same bits, in the class of chains
 * a plain loop does, too, and they are near the reference kernels. */
#include <math.h>
#include <stdlib.h>

#include "base/half.h"
#include "check.h"
#include "copies.h"
#include "device/cpu/context.h"
#include "device/cpu/multiplier.h"
#include "sample.h"

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

/* --- arrays of exactly their size: AddressSanitizer sees accesses beyond --- */

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

/* --- the rule of the chain (product.h), in a plain loop --- */

enum { CHAIN = 512 };

/* Terms of an element: factors, and how many there are by now. */
typedef struct terms {
    double *a, *b;
    int64_t n;
} terms;

static double chain(const terms *x, int64_t first, int64_t n, choir_dtype dtype)
{
    double sum = 0;
    for (int64_t i = first; i < first + n; i++)
        sum = dtype == CHOIR_F64 ? fma(x->a[i], x->b[i], sum)
                                 : (double)fmaf((float)x->a[i], (float)x->b[i], (float)sum);
    return sum;
}

/* The fixed tree over chains [first, first + n). */
static double tree(const terms *x, int64_t first, int64_t n, choir_dtype dtype)
{
    if (n == 1)
        return chain(x, first * CHAIN, choir__min(CHAIN, x->n - first * CHAIN), dtype);
    int64_t left = 1;
    while (2 * left < n)
        left *= 2;
    const double a = tree(x, first, left, dtype), b = tree(x, first + left, n - left, dtype);
    return dtype == CHOIR_F64 ? a + b : (double)((float)a + (float)b);
}

static double sum_of(const terms *x, choir_dtype dtype)
{
    return x->n ? tree(x, 0, (x->n - 1) / CHAIN + 1, dtype) : 0;
}

static void add(terms *x, double a, double b)
{
    x->a[x->n] = a;
    x->b[x->n++] = b;
}

/* Returns the pixel of x, in one dimension, that place k of output o sees, or -1 for padding.
 */
static int64_t seen(
    int64_t o, int64_t k, int64_t stride, int64_t pad, int64_t dilation, int64_t size)
{
    const int64_t at = o * stride - pad + k * dilation;
    return at >= 0 && at < size ? at : -1;
}

/* Place (i, j, c) of the window of output (n, oh, ow), or 0 in the padding. */
static double x_at(
    const trial *t, int64_t n, int64_t oh, int64_t ow, int64_t i, int64_t j, int64_t channel)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t h = seen(oh, i, s->stride_h, s->pad_h, s->dilation_h, s->h);
    const int64_t w = seen(ow, j, s->stride_w, s->pad_w, s->dilation_w, s->w);
    return h < 0 || w < 0 ? 0 : get(&t->x, ((n * s->h + h) * s->w + w) * s->c + channel);
}

static double y_of(const trial *t, terms *x, int64_t element)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t in = s->c / s->groups, o = element % s->o, pixel = element / s->o;
    for (int64_t q = 0; q < s->kh * s->kw * in; q++)
        add(x,
            x_at(t, pixel / s->ow / s->oh, pixel / s->ow % s->oh, pixel % s->ow, q / in / s->kw,
                q / in % s->kw, o / (s->o / s->groups) * in + q % in),
            get(&t->w, o * s->kh * s->kw * in + q));
    const double sum = sum_of(x, t->k.dtype);
    if (!t->k.bias)
        return sum;
    return t->k.dtype == CHOIR_F64 ? sum + get(&t->bias, o)
                                   : (double)((float)sum + (float)get(&t->bias, o));
}

static double gw_of(const trial *t, terms *x, int64_t element)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t in = s->c / s->groups, length = s->kh * s->kw * in;
    const int64_t o = element / length, q = element % length;
    for (int64_t pixel = 0; pixel < s->n * s->oh * s->ow; pixel++)
        add(x, get(&t->y, pixel * s->o + o),
            x_at(t, pixel / s->ow / s->oh, pixel / s->ow % s->oh, pixel % s->ow, q / in / s->kw,
                q / in % s->kw, o / (s->o / s->groups) * in + q % in));
    return sum_of(x, t->k.dtype);
}

/* Places on the stride have terms. Beyond gy a term is 0. */
static double gx_of(const trial *t, terms *x, int64_t element)
{
    const choir__conv_shape *s = &t->k.s;
    const int64_t in = s->c / s->groups, out = s->o / s->groups, c = element % s->c;
    const int64_t pixel = element / s->c, n = pixel / s->w / s->h;
    for (int64_t q = 0; q < s->kh * s->kw; q++) {
        const int64_t h = pixel / s->w % s->h + s->pad_h - q / s->kw * s->dilation_h;
        const int64_t w = pixel % s->w + s->pad_w - q % s->kw * s->dilation_w;
        if (h % s->stride_h || w % s->stride_w)
            continue;
        const int64_t oh = h / s->stride_h, ow = w / s->stride_w;
        const bool there = h >= 0 && w >= 0 && oh < s->oh && ow < s->ow;
        for (int64_t o = c / in * out; o < (c / in + 1) * out; o++)
            add(x, there ? get(&t->y, ((n * s->oh + oh) * s->ow + ow) * s->o + o) : 0,
                get(&t->w, (o * s->kh * s->kw + q) * in + c % in));
    }
    return sum_of(x, t->k.dtype);
}

static void assert_chains(const trial *t, int pass, const array *is)
{
    static double (*const of[PASSES])(const trial *, terms *, int64_t) = {y_of, gx_of, gw_of};
    array was = like(is);
    for (int64_t i = 0; i < is->n; i++) {
        terms x = {.n = 0};
        x.a = malloc((size_t)terms_of(&t->k.s, pass) * sizeof *x.a);
        x.b = malloc((size_t)terms_of(&t->k.s, pass) * sizeof *x.b);
        put(&was, i, of[pass](t, &x, i));
        free(x.a);
        free(x.b);
    }
    assert_same(t, pass, "chains", is, &was);
    free(was.p);
}

static void try_pass(const trial *t, int pass)
{
    static conv_fn *const *const references[PASSES] = {&choir__cpu_reference.conv,
        &choir__cpu_reference.conv_backward_input, &choir__cpu_reference.conv_backward_weight};
    array near_bias, first = {0}, first_bias = {0}, bias;
    array near = result_of(t, pass, *references[pass], &near_bias);
    for (size_t i = 0; i < CHOIR_COUNT(sets); i++)
        for (int threads = 1; threads <= 3 && choir__cpu_kernels(sets[i].isa); threads++) {
            choir__cpu_context *context = choir__cpu_context_new(threads);
            choir__cpu_context_enter(context);
            array is = result_of(t, pass, sets[i].passes[pass], &bias);
            choir__cpu_context_free(context);
            if (!first.p) {
                first = is, first_bias = bias;
                assert_near(t, pass, sets[i].isa, &is, &near);
                assert_near(t, pass, sets[i].isa, &bias, &near_bias);
                if (choir__cpu_multiplies() == CHOIR__BY_CHAIN)
                    assert_chains(t, pass, &is);
                continue;
            }
            assert_same(t, pass, sets[i].isa, &is, &first);
            assert_same(t, pass, sets[i].isa, &bias, &first_bias);
            free(is.p);
            free(bias.p);
        }
    free(near.p);
    free(near_bias.p);
    free(first.p);
    free(first_bias.p);
}

static void try_shape(const choir__conv_shape *s, choir_dtype dtype)
{
    static const choir__multiplier classes[] = {CHOIR__BY_CHAIN, CHOIR__BY_AMX};
    trial t = new_trial(s, dtype);
    for (int i = 0; i < (dtype == CHOIR_BF16 ? 2 : 1); i++) {
        ok(choir__multiplier_take(classes[i]));
        for (int pass = 0; pass < PASSES; pass++)
            try_pass(&t, pass);
        choir__multiplier_drop();
    }
    free_trial(&t);
}

/* --- shapes --- */

static const choir_dtype dtypes[] = {CHOIR_F32, CHOIR_BF16, CHOIR_BF16, CHOIR_F16, CHOIR_F64};

/* Chooses one dimension. Its window may be larger than the image, or in the padding; a
 * transposed convolution may have fewer windows than would fit. */
static void choose(int64_t *size, int64_t *out, int64_t *kernel, int64_t *stride, int64_t *pad,
    int64_t *dilation, int64_t most)
{
    do {
        *size = 1 + below(most);
        *kernel = 1 + below(5);
        *stride = 1 + below(below(2) ? 1 : 7);
        *dilation = 1 + below(below(2) ? 1 : 4);
        *pad = below(3) ? below(3) : below(*dilation * *kernel + 2);
        *out = (*size + 2 * *pad - *dilation * (*kernel - 1) - 1) / *stride + 1;
    } while (*size + 2 * *pad < *dilation * (*kernel - 1) + 1 || *out > 3 * most);
    if (*out > 1 && below(6) == 0)
        --*out;
}

static void random_shapes(void **unused)
{
    for (int i = 0; i < 120; i++) {
        choir__conv_shape s = {.n = 1 + below(3), .groups = 1 + (below(3) == 0) * below(4)};
        s.c = s.groups * (1 + below(below(3) ? 5 : 36));
        s.o = s.groups * (1 + below(below(3) ? 5 : 36));
        if (below(4) == 0) /* one channel a group */
            s.c = s.o = s.groups = 2 + below(below(2) ? 8 : 70);
        const int64_t most = s.c * s.o > 200 ? 6 : 13;
        choose(&s.h, &s.oh, &s.kh, &s.stride_h, &s.pad_h, &s.dilation_h, most);
        choose(&s.w, &s.ow, &s.kw, &s.stride_w, &s.pad_w, &s.dilation_w, most);
        if (s.n * s.oh * s.ow * s.kh * s.kw * s.c * s.o / s.groups > 400 * 1000)
            continue;
        try_shape(&s, dtypes[below(CHOIR_COUNT(dtypes))]);
    }
}

/* Many pixels and several chains, so that cores share them, and B is packed as a whole; a
 * window of one place; no images. */
static void chosen_shapes(void **unused)
{
    static const struct {
        choir__conv_shape s;
        choir_dtype dtype;
    } chosen[] = {
        {{1, 25, 25, 58, 25, 25, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{1, 23, 23, 114, 23, 23, 2, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_BF16},
        {{2, 21, 9, 66, 11, 5, 18, 3, 3, 2, 2, 2, 1, 1, 1, 1}, CHOIR_F16},
        {{2, 9, 9, 33, 9, 9, 34, 1, 1, 1, 1, 1, 0, 0, 1, 1}, CHOIR_BF16},
        {{2, 9, 9, 32, 9, 9, 32, 1, 1, 2, 1, 1, 0, 0, 1, 1}, CHOIR_F64},
        {{2, 21, 29, 40, 21, 29, 40, 3, 3, 40, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{2, 21, 29, 37, 11, 15, 37, 5, 5, 37, 2, 2, 2, 2, 1, 1}, CHOIR_BF16},
        {{1, 23, 23, 33, 23, 23, 33, 7, 7, 33, 1, 1, 3, 3, 1, 1}, CHOIR_F16},
        {{0, 5, 5, 3, 5, 5, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{0, 5, 5, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_F32},
        {{0, 5, 5, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1}, CHOIR_BF16},
    };
    for (size_t i = 0; i < CHOIR_COUNT(chosen); i++) {
        choir__conv_shape s = chosen[i].s;
        try_shape(&s, chosen[i].dtype);
    }
}

/* oneDNN has no kernel for this shape, a transposed convolution with much output padding, so
 * our own products compute it: 16-bit images are copied to f32. */
static void beside_onednn(void **unused)
{
    const choir__conv_shape s = {1, 33, 33, 2, 22, 22, 66, 3, 3, 1, 1, 1, 0, 0, 4, 4};
    if (!choir__multiplier_is_here(CHOIR__BY_ONEDNN))
        skip();
    ok(choir__multiplier_take(CHOIR__BY_ONEDNN));
    trial t = new_trial(&s, CHOIR_F16);
    array bias,
        is = result_of(&t, INPUT, choir__cpu_kernels("baseline")->conv_backward_input, &bias);
    array near_bias,
        near = result_of(&t, INPUT, choir__cpu_reference.conv_backward_input, &near_bias);
    assert_near(&t, INPUT, "baseline", &is, &near);
    choir__multiplier_drop();
    free(is.p);
    free(bias.p);
    free(near.p);
    free(near_bias.p);
    free_trial(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_shapes),
        cmocka_unit_test(chosen_shapes),
        cmocka_unit_test(beside_onednn),
    };
    if (!sample_seed("CHOIR_TEST_SAMPLE", &state))
        state = 36;
    print_message("seed %llu (CHOIR_TEST_SAMPLE)\n", (unsigned long long)state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
