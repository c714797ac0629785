/* Matrix products by cuBLASLt.
 *
 * The library is column-major: a row-major C (M, N) is its matrix of N rows and M columns, so
 * the operands change places, C^T = B^T A^T, and no data move. The bias, which runs along our
 * columns, runs along its rows, as its bias epilogue expects; accumulating is beta = 1.
 *
 * A *problem* contains all that determines how a product is computed: shape, strides, dtype,
 * the alignment of pointers (at most 16 bytes). The library's heuristic is called once per
 * problem, and its answer is kept as a *plan* of the context (plans.c), so a product always
 * runs by the same algorithm. Algorithms that split K are used only if they add the parts in a
 * separate pass, in order and in f32, so a problem always has the same bits. Since a problem
 * includes the alignment, the same product may have other bits if its pointers are not
 * multiples of 16 bytes; those of Choir's own tensors are.
 *
 * Products of f32 are f32, and cuDNN's convolutions of f32 may round their operands to 11 bits
 * (TF32): PyTorch's defaults, torch.backends.cuda.matmul.allow_tf32 and cudnn.allow_tf32.
 * CHOIR_CUDA_TF32 is 1 for both, and 0 for neither. The bias of 16-bit results
 * is first rounded to 16 bits, since the epilogue's bias must have C's type.
 *
 * The library's GELU epilogues are not used: they are the tanh form, and in training they must
 * also write GELU's input (GELU_AUX), while choir_linear and choir_gelu_tanh are two ops above
 * device/, each of which keeps the operands of its backward. An op that combines both could use
 * them.
 *
 * Two batch dimensions are merged if their strides allow it; else the smaller is a loop. If the
 * library has no algorithm, as for overlapping rows or odd strides, a plain kernel computes the
 * product. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernel.cuh"
#include "device/cuda/matmul.h"
#include "device/cuda/plans.h"

enum { TILE = 32, BIAS_SLOT = CHOIR__SCRATCH_SLOTS - 1 };

/* --- problems --- */

/* A matrix in the library's form: columns of `ld` elements. */
typedef struct sight {
    int64_t ld;
    int32_t transposed, aligned; /* aligned: bytes */
} sight;

typedef struct problem {
    int64_t m, n, k, batch, a_batch, b_batch, c_batch;
    sight a, b, c;
    int32_t dtype, wide, bias, bias_aligned, accumulate, tf32;
} problem;

typedef struct plan {
    bool usable; /* the library has an algorithm for it */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
} plan;

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

static int32_t alignment(const void *p)
{
    uintptr_t low = (uintptr_t)p | 16;
    return (int32_t)(low & -low);
}

/* Describes a row-major matrix rows x cols with the strides row and col in the library's form;
 * returns false if that is impossible, as for overlapping rows. A side of one element may have
 * any stride. */
static bool see(sight *x, int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    if ((col == 1 || cols == 1) && (row >= cols || rows == 1)) {
        x->ld = rows == 1 || row < cols ? cols : row;
        x->transposed = 0;
        return true;
    }
    x->ld = cols == 1 ? rows : col;
    x->transposed = 1;
    return (row == 1 || rows == 1) && x->ld >= rows;
}

/* Describes one strided batch: k's batch1. */
static bool problem_of(problem *p, const choir__k_matmul *k)
{
    memset(p, 0, sizeof *p);
    p->m = k->m, p->n = k->n, p->k = k->k, p->batch = k->batch1;
    if (p->batch > 1)
        p->a_batch = k->a_batch1, p->b_batch = k->b_batch1, p->c_batch = k->c_batch1;
    p->dtype = k->dtype;
    p->wide = k->wide && k->dtype != CHOIR_F32;
    p->bias = k->bias != NULL;
    p->bias_aligned = k->bias ? alignment(k->bias) : 16;
    p->accumulate = k->accumulate;
    p->tf32 = k->dtype == CHOIR_F32 && choir__cuda_tf32();
    p->a.aligned = alignment(k->a);
    p->b.aligned = alignment(k->b);
    p->c.aligned = alignment(k->c);
    return see(&p->a, k->m, k->k, k->a_row, k->a_col) &&
           see(&p->b, k->k, k->n, k->b_row, k->b_col) && see(&p->c, k->m, k->n, k->c_row, 1) &&
           !p->c.transposed;
}

/* --- plans --- */

static cudaDataType type_of(int dtype)
{
    return dtype == CHOIR_F64    ? CUDA_R_64F
           : dtype == CHOIR_BF16 ? CUDA_R_16BF
           : dtype == CHOIR_F16  ? CUDA_R_16F
                                 : CUDA_R_32F;
}

static cublasLtMatrixLayout_t layout_of(
    const sight *x, int dtype, int64_t rows, int64_t cols, int64_t count, int64_t stride)
{
    cublasLtMatrixLayout_t layout = NULL; /* the library's rows are our columns */
    if (cublasLtMatrixLayoutCreate(&layout, type_of(dtype),
            (uint64_t)(x->transposed ? rows : cols), (uint64_t)(x->transposed ? cols : rows),
            x->ld) != CUBLAS_STATUS_SUCCESS)
        return NULL;
    int32_t batch = (int32_t)count;
    cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch);
    cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return layout;
}

static cublasLtMatmulDesc_t op_of(const problem *p)
{
    bool f64 = p->dtype == CHOIR_F64;
    cublasComputeType_t compute = f64       ? CUBLAS_COMPUTE_64F
                                  : p->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                            : CUBLAS_COMPUTE_32F;
    cublasLtMatmulDesc_t op = NULL;
    if (cublasLtMatmulDescCreate(&op, compute, f64 ? CUDA_R_64F : CUDA_R_32F) !=
        CUBLAS_STATUS_SUCCESS)
        return NULL;
    /* its first operand is our second */
    cublasOperation_t first = p->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    cublasLtMatmulDescSetAttribute(
        op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    return op;
}

static void set_u32(cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
}

/* Sets a bias for the query that is never read: it is aligned as the real ones, which calls
 * set. */
static void set_some_bias(choir__cuda *cuda, plan *x, const problem *p)
{
    const void *bias = (const char *)cuda->workspace + p->bias_aligned % 16;
    cublasLtMatmulDescSetAttribute(
        x->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

/* Calls the heuristic; returns false if it knows no algorithm. */
static bool find_algorithm(choir__cuda *cuda, plan *x, const problem *p)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    uint64_t space = cuda->workspace_bytes;
    int count = 0;
    if (!x->op || !x->a || !x->b || !x->c ||
        cublasLtMatmulPreferenceCreate(&preference) != CUBLAS_STATUS_SUCCESS)
        return false;
    cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &space, sizeof space);
    set_u32(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)p->b.aligned);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)p->a.aligned);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)p->c.aligned);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        (uint32_t)choir__min(p->c.aligned, p->bias_aligned));
    if (p->bias)
        set_some_bias(cuda, x, p);
    memset(&found, 0, sizeof found);
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        cuda->blas, x->op, x->b, x->a, x->c, x->c, preference, 1, &found, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    x->algo = found.algo;
    return status == CUBLAS_STATUS_SUCCESS && count == 1 &&
           found.state == CUBLAS_STATUS_SUCCESS;
}

static void plan_free(void *p)
{
    plan *x = (plan *)p;
    if (x->a)
        cublasLtMatrixLayoutDestroy(x->a);
    if (x->b)
        cublasLtMatrixLayoutDestroy(x->b);
    if (x->c)
        cublasLtMatrixLayoutDestroy(x->c);
    if (x->op)
        cublasLtMatmulDescDestroy(x->op);
    free(x);
}

static plan *plan_new(choir__cuda *cuda, const problem *p)
{
    plan *x = (plan *)choir__alloc(sizeof *x);
    memset(x, 0, sizeof *x);
    x->op = op_of(p);
    x->a = layout_of(&p->a, p->dtype, p->m, p->k, p->batch, p->a_batch);
    x->b = layout_of(&p->b, p->dtype, p->k, p->n, p->batch, p->b_batch);
    x->c = layout_of(&p->c, p->wide ? CHOIR_F32 : p->dtype, p->m, p->n, p->batch, p->c_batch);
    x->usable = find_algorithm(cuda, x, p);
    return x;
}

static plan *plan_of(choir__cuda *cuda, const problem *p)
{
    void **place = choir__plan_place(&cuda->plans, p, sizeof *p);
    if (!*place)
        *place = plan_new(cuda, p);
    return (plan *)*place;
}

void choir__cuda_plans_free(choir__cuda *cuda)
{
    choir__plans_free(&cuda->plans, plan_free);
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
    void *y = choir__cuda_scratch(BIAS_SLOT, (size_t)k->n * size_of(k->dtype));
    narrow_args args = {k->bias, y, k->n};
    if (y)
        choose(k->dtype,
            [&](auto t) { launch(narrow<decltype(t)>, grid_for(k->n), BLOCK, 0, args); });
    return y;
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
        S sum = k.bias ? ((const S *)k.bias)[col] : S(0);
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
            V more = k.bias ? ((const V *)k.bias)[left + col] : V(0);
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

/* Computes one strided batch; bias: of C's type, or NULL. */
static bool by_library(const choir__k_matmul *k, const void *bias)
{
    choir__cuda *cuda = choir__cuda_here();
    choir__k_matmul one = *k;
    problem p;
    one.bias = bias;
    if (!problem_of(&p, &one))
        return false;
    plan *x = plan_of(cuda, &p);
    if (!x->usable)
        return false;
    if (bias)
        cublasLtMatmulDescSetAttribute(
            x->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    double one64 = 1, zero64 = 0;
    float one32 = 1, zero32 = 0;
    bool f64 = k->dtype == CHOIR_F64;
    const void *alpha = f64 ? (const void *)&one64 : &one32;
    const void *beta = k->accumulate ? alpha : f64 ? (const void *)&zero64 : &zero32;
    cublasStatus_t status =
        cublasLtMatmul(cuda->blas, x->op, alpha, k->b, x->b, k->a, x->a, beta, k->c, x->c, k->c,
            x->c, &x->algo, cuda->workspace, cuda->workspace_bytes, cuda->stream);
    if (status != CUBLAS_STATUS_SUCCESS && cuda->capturing)
        cuda->refused = true; /* the list is issued task by task, and reports the error */
    else if (status != CUBLAS_STATUS_SUCCESS)
        choir__queue_fail(CHOIR_ERR_DEVICE,
            "cuBLASLt's product of %lld x %lld by %lld x %lld %s failed: %s", (long long)k->m,
            (long long)k->k, (long long)k->k, (long long)k->n, choir_dtype_name(k->dtype),
            cublasLtGetStatusString(status));
    return true;
}

/* Computes one strided batch, k's batch1. For small results, one plain kernel replaces the
 * product and the kernel that rounds the bias. */
static void multiply(const choir__k_matmul *k)
{
    bool narrow = k->bias && size_of(c_dtype(k)) == 2;
    if (narrow && k->batch1 * k->m * k->n <= TILE * TILE && k->k <= 256) {
        by_plain_kernel(k);
        return;
    }
    const void *bias = narrow ? bias_like(k) : k->bias;
    if (narrow && !bias)
        return;
    if (by_library(k, bias))
        return;
    choir__k_matmul bare = *k;
    bare.bias = NULL, bare.accumulate = true;
    problem p;
    if (k->bias && !narrow && problem_of(&p, &bare) &&
        plan_of(choir__cuda_here(), &p)->usable) {
        start_with_bias(k);
        by_library(&bare, NULL);
    } else {
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

extern "C" void choir__cuda_matmul(const choir__k_matmul *args)
{
    choir__k_matmul k = *args;
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
