/* Convolutions without cuDNN: products of unfolded images, or sums written out.
 *
 * Channels-last, a window's pixels are runs of C numbers, and the weights (O, KH, KW, C) are a
 * matrix (O, K) already, K = KH KW C. So with the windows of P output pixels copied out as
 * columns (P, K) (im2col; Chellapilla et al., 2006),
 *
 *     y (P, O) = columns w^T      columns' gradient (P, K) = gy w      gw (O, K) = gy^T columns
 *
 * and the gradient of x sums a pixel's values over all windows. Columns are made for as many
 * pixels at a time as fit in CHUNK bytes. A window of one pixel at stride 1 needs none: x
 * already is the columns.
 *
 * Groups, such as depthwise convolution, are summed directly, one thread per output. Sums over
 * pixels (gbias, and gw of groups) are made in runs of RUN pixels, then over the runs, so their
 * order depends on the shape alone. If cuDNN is built in, it is tried first (dnn/dnn.c). */
#include "device/cuda/dnn/dnn.h"
#include "device/cuda/kit/kernel.cuh"
#include "device/cuda/kernels/matmul.h"

enum { COLUMNS_SLOT, RUNS_SLOT };
enum { CHUNK = 64 << 20, RUN = 4096, LANES = 32, ROWS = BLOCK / LANES };

typedef choir__conv_shape shape;

/* --- how windows and pixels meet: see reference/matmul.c --- */

static __device__ inline bool input_pixel(
    const shape &s, int64_t oh, int64_t ow, int64_t kh, int64_t kw, int64_t *h, int64_t *w)
{
    *h = oh * s.stride_h - s.pad_h + kh * s.dilation_h;
    *w = ow * s.stride_w - s.pad_w + kw * s.dilation_w;
    return *h >= 0 && *h < s.h && *w >= 0 && *w < s.w;
}

static __device__ inline bool output_pixel(
    const shape &s, int64_t h, int64_t w, int64_t kh, int64_t kw, int64_t *oh, int64_t *ow)
{
    int64_t y = h + s.pad_h - kh * s.dilation_h, x = w + s.pad_w - kw * s.dilation_w;
    *oh = y / s.stride_h, *ow = x / s.stride_w;
    return y >= 0 && x >= 0 && y % s.stride_h == 0 && x % s.stride_w == 0 && *oh < s.oh &&
           *ow < s.ow;
}

/* Returns the number of the input pixel at place `tap` of output pixel p's window, or -1. */
static __device__ inline int64_t under(const shape &s, int64_t p, int64_t tap)
{
    int64_t n = p / (s.oh * s.ow), h, w;
    bool in = input_pixel(s, p / s.ow % s.oh, p % s.ow, tap / s.kw, tap % s.kw, &h, &w);
    return in ? (n * s.h + h) * s.w + w : -1;
}

static int64_t pixels_of(const shape *s)
{
    return s->n * s->oh * s->ow;
}

static int64_t columns_of(const shape *s)
{
    return s->kh * s->kw * s->c;
}

/* True if x's pixels are y's, each window one of them. */
static bool pointwise(const shape *s)
{
    return s->kh == 1 && s->kw == 1 && s->stride_h == 1 && s->stride_w == 1 && !s->pad_h &&
           !s->pad_w && s->oh == s->h && s->ow == s->w;
}

/* --- columns --- */

/* The columns of output pixels [first, first + count), moved as numbers E; a pixel of x has s.c
 * numbers. */
typedef struct fold_args {
    const void *x;
    void *y;
    shape s;
    int64_t first, count;
} fold_args;

template <class E> static __global__ void unfold(fold_args k)
{
    int64_t taps = k.s.kh * k.s.kw, n = k.count * taps * k.s.c;
    for (int64_t i = first_thread(); i < n; i += all_threads()) {
        int64_t c = i % k.s.c, tap = i / k.s.c % taps, p = k.first + i / k.s.c / taps;
        int64_t from = under(k.s, p, tap);
        ((E *)k.y)[i] = from < 0 ? E{} : ((const E *)k.x)[from * k.s.c + c];
    }
}

/* Moves 16 bytes at a time if pixels are whole runs of them. */
static void make_columns(
    void *y, const void *x, const shape *s, size_t size, int64_t first, int64_t count)
{
    fold_args k = {x, y, *s, first, count};
    bool whole = ((uintptr_t)x | (uintptr_t)s->c * size) % 16 == 0;
    k.s.c = whole ? s->c * (int64_t)size / 16 : s->c;
    unsigned grid = grid_for(count * k.s.kh * k.s.kw * k.s.c);
    if (whole)
        launch(unfold<uint4>, grid, BLOCK, 0, k);
    else if (size == 2)
        launch(unfold<uint16_t>, grid, BLOCK, 0, k);
    else if (size == 4)
        launch(unfold<uint32_t>, grid, BLOCK, 0, k);
    else
        launch(unfold<uint64_t>, grid, BLOCK, 0, k);
}

/* y (N, H, W, C): the sum of each pixel's values in all windows that contain it. x: columns of
 * all windows, in wide<T>. */
template <class T> static __global__ void fold(fold_args k)
{
    const shape &s = k.s;
    int64_t n = k.count * s.h * s.w * s.c;
    for (int64_t i = first_thread(); i < n; i += all_threads()) {
        int64_t c = i % s.c, w = i / s.c % s.w, h = i / s.c / s.w % s.h;
        int64_t image = i / s.c / s.w / s.h, oh, ow;
        wide<T> sum = 0;
        for (int64_t kh = 0; kh < s.kh; kh++)
            for (int64_t kw = 0; kw < s.kw; kw++)
                if (output_pixel(s, h, w, kh, kw, &oh, &ow)) {
                    int64_t p = (image * s.oh + oh) * s.ow + ow;
                    sum += ((const wide<T> *)k.x)[((p * s.kh + kh) * s.kw + kw) * s.c + c];
                }
        put((T *)k.y + i, sum);
    }
}

/* Returns how many of `count` things of `bytes` each are handled at a time. */
static int64_t at_a_time(int64_t count, int64_t bytes)
{
    int64_t fit = CHUNK / choir__max(bytes, 1);
    return choir__min(count, choir__max(fit, 1));
}

static const void *at(const void *p, int64_t element, size_t size)
{
    return (const char *)p + (size_t)element * size;
}

static bool sixteen(choir_dtype dtype)
{
    return choir_dtype_size(dtype) == 2;
}

/* --- forward --- */

/* Grouped: one thread per output number. */
template <class T> static __global__ void direct(choir__k_conv k)
{
    const shape &s = k.s;
    int64_t inputs = s.c / s.groups, outputs = s.o / s.groups, taps = s.kh * s.kw;
    int64_t n = s.n * s.oh * s.ow * s.o;
    for (int64_t i = first_thread(); i < n; i += all_threads()) {
        int64_t o = i % s.o, p = i / s.o;
        const T *w = (const T *)k.w + o * taps * inputs;
        wide<T> sum = k.bias ? ((const wide<T> *)k.bias)[o] : wide<T>(0);
        for (int64_t tap = 0; tap < taps; tap++) {
            int64_t from = under(s, p, tap);
            const T *x = (const T *)k.x + from * s.c + o / outputs * inputs;
            for (int64_t c = 0; c < inputs && from >= 0; c++)
                sum += get(x + c) * get(w + tap * inputs + c);
        }
        put((T *)k.y + i, sum);
    }
}

/* y += bias, where cuDNN has computed y without it. */
template <class T> static __global__ void add_bias(choir__k_conv k)
{
    int64_t n = k.s.n * k.s.oh * k.s.ow * k.s.o;
    for (int64_t i = first_thread(); i < n; i += all_threads())
        put((T *)k.y + i, get((T *)k.y + i) + ((const wide<T> *)k.bias)[i % k.s.o]);
}

/* Returns false if cuDNN does not compute it. */
static bool by_library(const choir__k_conv *k)
{
    bool biased = true;
    if (!choir__dnn_conv(k, &biased))
        return false;
    if (k->bias && !biased)
        choose(k->dtype, [&](auto t) {
            launch(add_bias<decltype(t)>, grid_for(pixels_of(&k->s) * k->s.o), BLOCK, 0, *k);
        });
    return true;
}

extern "C" void choir__cuda_conv(const choir__k_conv *k)
{
    int64_t pixels = pixels_of(&k->s), columns = columns_of(&k->s);
    size_t size = choir_dtype_size(k->dtype);
    if (!pixels || !k->s.o || by_library(k))
        return;
    if (k->s.groups > 1) {
        choose(k->dtype, [&](auto t) {
            launch(direct<decltype(t)>, grid_for(pixels * k->s.o), BLOCK, 0, *k);
        });
        return;
    }
    bool as_is = pointwise(&k->s);
    int64_t step = as_is ? pixels : at_a_time(pixels, columns * (int64_t)size);
    void *space =
        as_is ? NULL : choir__cuda_scratch(COLUMNS_SLOT, (size_t)(step * columns) * size);
    for (int64_t p = 0; (as_is || space) && p < pixels; p += step) {
        int64_t count = choir__min(step, pixels - p);
        choir__k_matmul one = choir__product(k->dtype, count, k->s.o, columns);
        if (!as_is)
            make_columns(space, k->x, &k->s, size, p, count);
        one.a = as_is ? k->x : space;
        one.b = k->w, one.b_row = 1, one.b_col = columns;
        one.bias = k->bias;
        one.c = (void *)at(k->y, p * k->s.o, size);
        choir__cuda_matmul(&one);
    }
}

/* --- the gradient of x --- */

template <class T> static __global__ void direct_input(choir__k_conv_backward_input k)
{
    const shape &s = k.s;
    int64_t inputs = s.c / s.groups, outputs = s.o / s.groups;
    for (int64_t i = first_thread(); i < s.n * s.h * s.w * s.c; i += all_threads()) {
        int64_t c = i % s.c, w = i / s.c % s.w, h = i / s.c / s.w % s.h;
        int64_t image = i / s.c / s.w / s.h, first = c / inputs * outputs, oh, ow;
        wide<T> sum = 0;
        for (int64_t kh = 0; kh < s.kh; kh++)
            for (int64_t kw = 0; kw < s.kw; kw++) {
                if (!output_pixel(s, h, w, kh, kw, &oh, &ow))
                    continue;
                const T *gy = (const T *)k.gy + ((image * s.oh + oh) * s.ow + ow) * s.o;
                const T *at = (const T *)k.w + (kh * s.kw + kw) * inputs + c % inputs;
                for (int64_t o = first; o < first + outputs; o++)
                    sum += get(gy + o) * get(at + o * s.kh * s.kw * inputs);
            }
        put((T *)k.gx + i, sum);
    }
}

/* Computes gx of `count` images from image `first` on, through their columns in space. */
static void input_by_product(
    const choir__k_conv_backward_input *k, void *space, int64_t first, int64_t count)
{
    const shape *s = &k->s;
    size_t size = choir_dtype_size(k->dtype);
    int64_t pixels = s->oh * s->ow, columns = columns_of(s);
    choir__k_matmul one = choir__product(k->dtype, count * pixels, columns, s->o);
    one.a = at(k->gy, first * pixels * s->o, size);
    one.b = k->w;
    one.c = space;
    one.wide = sixteen(k->dtype);
    choir__cuda_matmul(&one);
    void *gx = (void *)at(k->gx, first * s->h * s->w * s->c, size);
    fold_args args = {space, gx, *s, 0, count};
    choose(k->dtype, [&](auto t) {
        launch(fold<decltype(t)>, grid_for(count * s->h * s->w * s->c), BLOCK, 0, args);
    });
}

extern "C" void choir__cuda_conv_backward_input(const choir__k_conv_backward_input *k)
{
    const shape *s = &k->s;
    int64_t numbers = s->n * s->h * s->w * s->c;
    if (!numbers || choir__dnn_conv_backward_input(k))
        return;
    if (s->groups > 1) {
        choose(k->dtype, [&](auto t) {
            launch(direct_input<decltype(t)>, grid_for(numbers), BLOCK, 0, *k);
        });
    } else if (pointwise(s)) {
        choir__k_matmul one = choir__product(k->dtype, pixels_of(s), s->c, s->o);
        one.a = k->gy, one.b = k->w, one.c = k->gx;
        choir__cuda_matmul(&one);
    } else {
        int64_t each = s->oh * s->ow * columns_of(s) * (int64_t)wide_size(k->dtype);
        int64_t step = at_a_time(s->n, each);
        void *space = choir__cuda_scratch(COLUMNS_SLOT, (size_t)(step * each));
        for (int64_t n = 0; space && n < s->n; n += step)
            input_by_product(k, space, n, choir__min(step, s->n - n));
    }
}

/* --- the gradients of w and the bias --- */

/* Sums over pixels. Block: 32 outputs of gw's place (tap, c), or of gbias, and a run of pixels;
 * its 8 rows of threads take the pixels in turn. runs (run, count of sums). */
typedef struct sums_args {
    const void *gy, *x; /* x NULL: gbias */
    void *runs, *out;
    int64_t places; /* tap and c within the group: 1 for gbias */
    shape s;
} sums_args;

template <class T> static __global__ void sum_runs(sums_args k)
{
    typedef wide<T> V;
    __shared__ V part[ROWS][LANES];
    const shape &s = k.s;
    int64_t tiles = (s.o + LANES - 1) / LANES, inputs = s.c / s.groups;
    int64_t outputs = s.o / s.groups, pixels = s.n * s.oh * s.ow;
    int lane = threadIdx.x % LANES, row = threadIdx.x / LANES;
    int64_t o = blockIdx.x % tiles * LANES + lane, place = blockIdx.x / tiles % k.places;
    int64_t run = blockIdx.x / tiles / k.places;
    int64_t channel = o / outputs * inputs + place % inputs;
    int64_t end = (run + 1) * RUN < pixels ? (run + 1) * RUN : pixels;
    V sum = 0;
    for (int64_t p = run * RUN + row; p < end && o < s.o; p += ROWS) {
        int64_t from = k.x ? under(s, p, place / inputs) : 0;
        if (from >= 0)
            sum += get((const T *)k.gy + p * s.o + o) *
                   (k.x ? get((const T *)k.x + from * s.c + channel) : V(1));
    }
    part[row][lane] = sum;
    __syncthreads();
    if (row || o >= s.o)
        return;
    for (int r = 1; r < ROWS; r++)
        sum += part[r][lane];
    ((V *)k.runs)[run * s.o * k.places + o * k.places + place] = sum;
}

template <class V> static __global__ void add_runs(sums_args k)
{
    int64_t n = k.s.o * k.places, runs = (k.s.n * k.s.oh * k.s.ow + RUN - 1) / RUN;
    for (int64_t i = first_thread(); i < n; i += all_threads()) {
        V sum = 0;
        for (int64_t run = 0; run < runs; run++)
            sum += ((const V *)k.runs)[run * n + i];
        ((V *)k.out)[i] = sum;
    }
}

/* out: gw, or if x is NULL gbias. */
static void sum_pixels(
    const choir__k_conv_backward_weight *k, const void *x, void *out, int64_t places)
{
    const shape *s = &k->s;
    int64_t runs = (pixels_of(s) + RUN - 1) / RUN, tiles = (s->o + LANES - 1) / LANES;
    size_t bytes = (size_t)(runs * s->o * places) * wide_size(k->dtype);
    sums_args args = {k->gy, x, choir__cuda_scratch(RUNS_SLOT, bytes), out, places, *s};
    if (!args.runs)
        return;
    unsigned grid = (unsigned)(tiles * places * runs);
    choose(k->dtype, [&](auto t) {
        if (grid)
            launch(sum_runs<decltype(t)>, grid, BLOCK, 0, args);
        launch(add_runs<wide<decltype(t)>>, grid_for(s->o * places), BLOCK, 0, args);
    });
    choir__cuda_scratch_done(RUNS_SLOT);
}

static void weights_by_product(const choir__k_conv_backward_weight *k)
{
    const shape *s = &k->s;
    size_t size = choir_dtype_size(k->dtype);
    int64_t pixels = pixels_of(s), columns = columns_of(s);
    bool as_is = pointwise(s);
    int64_t step = as_is ? pixels : at_a_time(pixels, columns * (int64_t)size);
    void *space =
        as_is ? NULL : choir__cuda_scratch(COLUMNS_SLOT, (size_t)(step * columns) * size);
    for (int64_t p = 0; (as_is || space) && (p < pixels || !p); p += choir__max(step, 1)) {
        int64_t count = choir__min(step, pixels - p);
        choir__k_matmul one = choir__product(k->dtype, s->o, columns, count);
        if (!as_is && count)
            make_columns(space, k->x, s, size, p, count);
        one.a = at(k->gy, p * s->o, size), one.a_row = 1, one.a_col = s->o;
        one.b = as_is ? k->x : space;
        one.c = k->gw;
        one.accumulate = p > 0;
        one.wide = sixteen(k->dtype);
        choir__cuda_matmul(&one);
    }
}

extern "C" void choir__cuda_conv_backward_weight(const choir__k_conv_backward_weight *k)
{
    const shape *s = &k->s;
    if (!s->o)
        return;
    if (k->gbias)
        sum_pixels(k, NULL, k->gbias, 1);
    if (choir__dnn_conv_backward_weight(k))
        return;
    if (s->groups > 1)
        sum_pixels(k, k->x, k->gw, s->kh * s->kw * (s->c / s->groups));
    else
        weights_by_product(k);
}
