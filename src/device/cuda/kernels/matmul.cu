/* Matrix products: cuBLASLt's (cuda/blaslt.c), with what the library cannot do around them.
 *
 * Products of f32 are f32, and cuDNN's convolutions of f32 may round their operands to 11 bits
 * (TF32): PyTorch's defaults, torch.backends.cuda.matmul.allow_tf32 and cudnn.allow_tf32.
 * CHOIR_CUDA_TF32 is 1 for both, and 0 for neither. An f32 bias of 16-bit results is first
 * rounded to 16 bits, since the epilogue's bias must have C's type.
 *
 * Of the library's GELU epilogues only the slope's is used (DGELU), in the backward of
 * choir__linear_of_gelu. That of the forward pass takes GELU of sums that are not rounded, so
 * it would have to be an op with the product before it, and GELU's result could not be made
 * again from its input, bit for bit.
 *
 * Two batch dimensions are merged if their strides allow it; else the smaller is a loop. If the
 * library has no algorithm, a plain kernel computes the product; if it has none that also gives
 * the sums of an operand or multiplies by GELU's slope, kernels of their own do (reduce.cu,
 * activation.cu).
 *
 * A product whose K is cut is one of these per leaf, without a bias, into a slab of f32 (f64).
 */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/blaslt.h"
#include "device/cuda/kit/kernel.cuh"
#include "device/cuda/kernels/matmul.h"

enum { TILE = 32 };

static bool tf32_is(const char *value)
{
    const char *wanted = getenv("CHOIR_CUDA_TF32");
    return wanted && !strcmp(wanted, value);
}

bool choir__cuda_tf32(void)
{
    static const bool on = tf32_is("1");
    return on;
}

bool choir__cuda_conv_tf32(void)
{
    static const bool on = !tf32_is("0");
    return on;
}

static size_t size_of(int dtype)
{
    return choir_dtype_size((choir_dtype)dtype);
}

static int c_dtype(const choir__k_matmul *k)
{
    return k->wide ? CHOIR_F32 : k->dtype;
}

/* --- kernels of our own --- */

/* Rounds n f32 numbers to T. */
typedef struct narrow_args {
    const void *x;
    void *y;
    int64_t n;
} narrow_args;

template <class T> static __global__ void narrow(narrow_args k)
{
    for (int64_t i = first_thread(); i < k.n; i += all_threads())
        put((T *)k.y + i, ((const float *)k.x)[i]);
}

static void *bias_like(const choir__k_matmul *k)
{
    void *y = choir__cuda_scratch(CHOIR__SCRATCH_PRODUCT, (size_t)k->n * size_of(k->dtype));
    narrow_args args = {k->bias, y, k->n};
    if (y)
        choose(k->dtype,
            [&](auto t) { launch(narrow<decltype(t)>, grid_for(k->n), BLOCK, 0, args); });
    return y;
}

/* Returns a column's bias. T: C's type. */
template <class T> static __device__ wide<T> bias_at(const choir__k_matmul &k, int64_t col)
{
    if (!k.bias)
        return wide<T>(0);
    return k.half_bias ? get((const T *)k.bias + col) : ((const wide<T> *)k.bias)[col];
}

/* C = bias, or 0, or C + bias: for empty products (K = 0), and before products whose bias the
 * library cannot add. S: the type of sums. */
template <class T, class S> static __global__ void add_bias(choir__k_matmul k)
{
    int64_t rows = k.batch0 * k.batch1 * k.m;
    for (int64_t i = first_thread(); i < rows * k.n; i += all_threads()) {
        int64_t row = i / k.n, col = i % k.n, b = row / k.m;
        T *c = (T *)k.c + b / k.batch1 * k.c_batch0 + b % k.batch1 * k.c_batch1 +
               row % k.m * k.c_row + col;
        S sum = bias_at<T>(k, col);
        put(c, k.accumulate ? sum + get(c) : sum);
    }
}

static void start_with_bias(const choir__k_matmul *k)
{
    unsigned grid = grid_for(k->batch0 * k->batch1 * k->m * k->n);
    choose((choir_dtype)c_dtype(k),
        [&](auto t) { launch(add_bias<decltype(t), wide<decltype(t)>>, grid, BLOCK, 0, *k); });
}

/* A product with any strides: a block of 256 threads computes TILE x TILE of C, each thread
 * four rows of it. */
template <class T, class C> static __global__ void plain_product(choir__k_matmul k)
{
    typedef wide<T> V;
    __shared__ V a[TILE][TILE + 1], b[TILE][TILE + 1];
    int col = threadIdx.x % TILE, row = threadIdx.x / TILE;
    int64_t across = (k.n + TILE - 1) / TILE, down = (k.m + TILE - 1) / TILE;
    for (int64_t i = blockIdx.x; i < k.batch0 * k.batch1 * down * across; i += gridDim.x) {
        int64_t batch = i / (down * across), b0 = batch / k.batch1, b1 = batch % k.batch1;
        int64_t top = i / across % down * TILE, left = i % across * TILE;
        const T *x = (const T *)k.a + b0 * k.a_batch0 + b1 * k.a_batch1;
        const T *y = (const T *)k.b + b0 * k.b_batch0 + b1 * k.b_batch1;
        C *z = (C *)k.c + b0 * k.c_batch0 + b1 * k.c_batch1;
        V sum[4] = {0};
        for (int64_t l = 0; l < k.k; l += TILE) {
            __syncthreads();
            for (int r = row; r < TILE; r += 8) {
                a[r][col] = top + r < k.m && l + col < k.k
                                ? get(x + (top + r) * k.a_row + (l + col) * k.a_col)
                                : V(0);
                b[r][col] = l + r < k.k && left + col < k.n
                                ? get(y + (l + r) * k.b_row + (left + col) * k.b_col)
                                : V(0);
            }
            __syncthreads();
            for (int j = 0; j < TILE; j++)
                for (int r = 0; r < 4; r++)
                    sum[r] += a[row + 8 * r][j] * b[j][col];
        }
        for (int r = 0; r < 4; r++) {
            C *at = z + (top + row + 8 * r) * k.c_row + left + col;
            if (top + row + 8 * r >= k.m || left + col >= k.n)
                continue;
            V more = bias_at<C>(k, left + col);
            put(at, sum[r] + more + (k.accumulate ? get(at) : V(0)));
        }
    }
}

static void by_plain_kernel(const choir__k_matmul *k)
{
    int64_t tiles =
        k->batch0 * k->batch1 * ((k->m + TILE - 1) / TILE) * ((k->n + TILE - 1) / TILE);
    unsigned grid = grid_for(tiles, 1);
    choose(k->dtype, [&](auto t) {
        if (k->wide)
            launch(plain_product<decltype(t), float>, grid, 256, 0, *k);
        else
            launch(plain_product<decltype(t), decltype(t)>, grid, 256, 0, *k);
    });
}

/* --- the product --- */

/* Computes one strided batch, k's batch1. For small results, one plain kernel replaces the
 * product and the kernel that rounds the bias. */
static void multiply(const choir__k_matmul *k)
{
    bool narrow = k->bias && !k->half_bias && size_of(c_dtype(k)) == 2;
    if (narrow && k->batch1 * k->m * k->n <= TILE * TILE && k->k <= 256) {
        by_plain_kernel(k);
        return;
    }
    choir__k_matmul one = *k, bare = *k;
    one.bias = narrow ? bias_like(k) : k->bias;
    if (narrow && !one.bias)
        return;
    bool done = choir__blaslt_multiply(&one);
    if (narrow)
        choir__cuda_scratch_done(CHOIR__SCRATCH_PRODUCT);
    if (done)
        return;
    bare.bias = NULL, bare.accumulate = true;
    if (k->bias && size_of(c_dtype(k)) > 2 && choir__blaslt_knows(&bare)) {
        start_with_bias(k);
        choir__blaslt_multiply(&bare);
    } else {
        choir__cuda_here()->use[CHOIR__CUBLASLT].without++;
        by_plain_kernel(k);
    }
}

/* Swaps batch0 and batch1. */
static void turn(choir__k_matmul *k)
{
    choir__k_matmul x = *k;
    k->batch0 = x.batch1, k->batch1 = x.batch0;
    k->a_batch0 = x.a_batch1, k->a_batch1 = x.a_batch0;
    k->b_batch0 = x.b_batch1, k->b_batch1 = x.b_batch0;
    k->c_batch0 = x.c_batch1, k->c_batch1 = x.c_batch0;
}

static void multiply_all(choir__k_matmul k)
{
    if (!k.m || !k.n || !k.batch0 || !k.batch1)
        return;
    if (!k.k) {
        start_with_bias(&k);
        return;
    }
    if (k.a_batch0 == k.batch1 * k.a_batch1 && k.b_batch0 == k.batch1 * k.b_batch1 &&
        k.c_batch0 == k.batch1 * k.c_batch1)
        k.batch1 *= k.batch0, k.batch0 = 1;
    else if (k.batch0 > k.batch1)
        turn(&k);
    size_t in = size_of(k.dtype), out = size_of(c_dtype(&k));
    choir__k_matmul one = k;
    for (int64_t i = 0; i < k.batch0; i++) {
        one.a = (const char *)k.a + (size_t)(i * k.a_batch0) * in;
        one.b = (const char *)k.b + (size_t)(i * k.b_batch0) * in;
        one.c = (char *)k.c + (size_t)(i * k.c_batch0) * out;
        one.batch0 = 1;
        multiply(&one);
    }
}

/* --- cuts of K --- */

/* y (entries, terms) = the runs of each of `outer` blocks, `apart` and `next` as of x. */
typedef struct gather_args {
    const void *x;
    void *y;
    int64_t entries, apart, next, outer, block, run;
} gather_args;

template <class T> static __global__ void gather_runs(gather_args k)
{
    int64_t terms = k.outer * k.run;
    for (int64_t i = first_thread(); i < k.entries * terms; i += all_threads()) {
        int64_t l = i % terms;
        ((T *)k.y)[i] =
            ((const T *)k.x)[i / terms * k.apart + (l / k.run * k.block + l % k.run) * k.next];
    }
}

/* left[i] += right[i] */
typedef struct add_args {
    void *left;
    const void *right;
    int64_t n;
} add_args;

template <class S> static __global__ void add_sums(add_args k)
{
    for (int64_t i = first_thread(); i < k.n; i += all_threads())
        ((S *)k.left)[i] += ((const S *)k.right)[i];
}

/* C = sums (m, n) + bias + old C */
typedef struct end_args {
    choir__k_matmul k;
    const void *sums;
} end_args;

template <class T> static __global__ void end_sums(end_args x)
{
    const choir__k_matmul &k = x.k;
    for (int64_t i = first_thread(); i < k.m * k.n; i += all_threads()) {
        T *c = (T *)k.c + i / k.n * k.c_row + i % k.n;
        wide<T> sum = ((const wide<T> *)x.sums)[i] + bias_at<T>(k, i % k.n);
        put(c, k.accumulate ? get(c) + sum : sum);
    }
}

/* One matrix whose K is cut, and its room. */
typedef struct cut_product {
    choir__k_matmul k;
    choir__node node;
    char *slabs, *a, *b; /* a, b: a leaf's operands, where it has runs of several blocks */
    size_t slab;
} cut_product;

static void gather(const cut_product *p, void *y, const void *x, gather_args args)
{
    args.x = (const char *)x;
    args.y = y;
    choose(p->k.dtype, [&](auto t) {
        launch(gather_runs<decltype(t)>, grid_for(args.entries * args.outer * args.run), BLOCK,
            0, args);
    });
}

/* Computes leaf l into a slab, by the product of operands that have its terms alone. */
static void multiply_leaf(const cut_product *p, int64_t l, void *slab)
{
    const choir__k_matmul *k = &p->k;
    int64_t outer = choir__cut_outer(k->cut), block = k->k / outer, lo, hi;
    choir__cut_leaf(k->cut, k->k, p->node.start + l, &lo, &hi);
    choir__k_matmul leaf = *k;
    leaf.cut = {}, leaf.node = {};
    leaf.bias = NULL, leaf.half_bias = leaf.accumulate = false;
    leaf.wide = size_of(k->dtype) == 2;
    leaf.c = slab, leaf.c_row = k->n, leaf.k = outer * (hi - lo);
    leaf.a = (const char *)k->a + (size_t)(lo * k->a_col) * size_of(k->dtype);
    leaf.b = (const char *)k->b + (size_t)(lo * k->b_row) * size_of(k->dtype);
    if (outer > 1 && leaf.k) {
        gather(p, p->a, leaf.a, {NULL, NULL, k->m, k->a_row, k->a_col, outer, block, hi - lo});
        gather(p, p->b, leaf.b, {NULL, NULL, k->n, k->b_col, k->b_row, outer, block, hi - lo});
        leaf.a = p->a, leaf.a_row = leaf.k, leaf.a_col = 1;
        leaf.b = p->b, leaf.b_row = 1, leaf.b_col = leaf.k;
    }
    multiply_all(leaf);
}

static void add_slabs(const cut_product *p, char *left)
{
    int64_t n = p->k.m * p->k.n;
    add_args args = {left, left + p->slab, n};
    if (p->k.dtype == CHOIR_F64)
        launch(add_sums<double>, grid_for(n), BLOCK, 0, args);
    else
        launch(add_sums<float>, grid_for(n), BLOCK, 0, args);
}

/* Slabs are a stack of the tree's nodes: leaf l is added to as many below it as l ends in ones,
 * and those that are left at the end from the right. */
static void multiply_leaves(const cut_product *p)
{
    const choir__k_matmul *k = &p->k;
    char *top = p->slabs; /* above the last slab in use */
    for (int64_t l = 0; l < p->node.leaves; l++, top += p->slab) {
        multiply_leaf(p, l, top);
        for (int64_t ones = l; ones & 1; ones >>= 1, top -= p->slab)
            add_slabs(p, top - p->slab);
    }
    for (top -= p->slab; top > p->slabs; top -= p->slab)
        add_slabs(p, top - p->slab);
    end_args args = {*k, p->slabs};
    choose((choir_dtype)c_dtype(k),
        [&](auto t) { launch(end_sums<decltype(t)>, grid_for(k->m * k->n), BLOCK, 0, args); });
}

static size_t whole(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* Computes a batch whose K is cut. Leaves have no bias, so scratch memory of products is free.
 */
static void multiply_cut(const choir__k_matmul *k)
{
    cut_product p = {*k, choir__cut_node(k->cut, k->node), NULL, NULL, NULL, 0};
    int64_t outer = choir__cut_outer(k->cut), slabs = 1;
    size_t in = size_of(k->dtype), out = size_of(c_dtype(k));
    size_t most =
        (size_t)((k->k / outer / k->cut.leaves + 1) * outer) * in; /* bytes of one entry */
    size_t a = whole((size_t)k->m * most), b = (size_t)k->n * most;
    if (!k->m || !k->n)
        return;
    for (int64_t l = p.node.leaves; l > 1; l = (l + 1) / 2)
        slabs++;
    p.slab = whole((size_t)(k->m * k->n) * wide_size(k->dtype));
    p.slabs = (char *)choir__cuda_scratch(
        CHOIR__SCRATCH_PRODUCT, (size_t)slabs * p.slab + (outer > 1 ? a + b : 0));
    if (!p.slabs)
        return;
    p.a = p.slabs + (size_t)slabs * p.slab;
    p.b = p.a + a;
    p.k.batch0 = p.k.batch1 = 1;
    for (int64_t i = 0; i < k->batch0 * k->batch1; i++) {
        int64_t b0 = i / k->batch1, b1 = i % k->batch1;
        p.k.a = (const char *)k->a + (size_t)(b0 * k->a_batch0 + b1 * k->a_batch1) * in;
        p.k.b = (const char *)k->b + (size_t)(b0 * k->b_batch0 + b1 * k->b_batch1) * in;
        p.k.c = (char *)k->c + (size_t)(b0 * k->c_batch0 + b1 * k->c_batch1) * out;
        multiply_leaves(&p);
    }
    choir__cuda_scratch_done(CHOIR__SCRATCH_PRODUCT);
}

/* --- the kernel --- */

/* Adds up A or B in a kernel of its own. */
static void sum_operand(const choir__k_matmul *k)
{
    bool a = k->a_sums;
    choir__k_sum sum = {a ? k->a : k->b, a ? k->a_sums : k->b_sums, k->k, a ? k->m : k->n, 1,
        true, k->wide, false, k->dtype, a ? k->a_col : k->b_row, {}};
    choir__cuda_sum(&sum);
}

/* C *= the slope of GELU */
static void multiply_by_slope(const choir__k_matmul *k)
{
    choir__k_unary_backward slope = {};
    slope.op = CHOIR__GELU_TANH;
    slope.x = k->gelu_in;
    slope.gy = slope.gx = k->c;
    slope.n = k->m * k->n;
    slope.dtype = k->dtype;
    choir__cuda_unary_backward(&slope);
}

extern "C" void choir__cuda_matmul(const choir__k_matmul *args)
{
    choir__k_matmul k = *args, bare;
    k.wide = k.wide && size_of(k.dtype) == 2;
    if (choir__is_cut(k.cut)) {
        multiply_cut(&k);
        return;
    }
    bool sums = k.a_sums || k.b_sums, empty = !k.m || !k.n || !k.k;
    if ((sums || k.gelu_in) && !empty && choir__blaslt_multiply(&k))
        return;
    bare = k;
    bare.a_sums = bare.b_sums = NULL, bare.gelu_in = NULL;
    multiply_all(bare);
    if (sums)
        sum_operand(&k);
    if (k.gelu_in)
        multiply_by_slope(&k);
}
