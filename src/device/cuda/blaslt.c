/* Products by cuBLASLt.
 *
 * The library is column-major: a row-major C (M, N) is its matrix of N rows and M columns, so
 * the operands change places, C^T = B^T A^T, and no data move. The bias, which runs along our
 * columns, runs along its rows, as its bias epilogue expects; accumulating is beta = 1. Sums of
 * A's rows are those of its second operand's columns (BGRADB), sums of B's columns are those of
 * its first operand's rows (BGRADA). DGELU multiplies by the slope of GELU, in the tanh form.
 * The precision of that in f32 is not documented, so it serves 16-bit results alone.
 *
 * A *problem* contains all that determines how a product is computed: shape, strides, dtype,
 * epilogue, the alignment of pointers (at most 16 bytes). The library's heuristic is called
 * once per problem, and its answer is kept as a *plan* of the context (library_plans.c), so a
 * product always runs by the same algorithm. Algorithms that split K are used only if they add
 * the parts in order and in f32: in a separate pass, or one after another in a result of f32,
 * which the library's header describes as sequential. So a problem always has the same bits.
 * Since a problem includes the alignment, the same product may have other bits if its pointers
 * are not multiples of 16 bytes; those of Choir's own tensors are. */
#include "device/cuda/blaslt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels/matmul.h"
#include "device/cuda/library_plans.h"
#include "device/queue.h"

/* --- problems --- */

/* A matrix in the library's form: columns of `ld` elements. */
typedef struct sight {
    int64_t ld;
    int32_t transposed, aligned; /* aligned: bytes */
} sight;

typedef struct problem {
    int64_t m, n, k, batch, a_batch, b_batch, c_batch;
    sight a, b, c;
    int32_t dtype, wide, epilogue, vector_aligned, aux_aligned, accumulate, tf32;
} problem;

typedef struct plan {
    bool usable; /* the library has an algorithm for the product */
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
} plan;

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

static cublasLtEpilogue_t epilogue_of(const choir__k_matmul *k)
{
    return k->bias      ? CUBLASLT_EPILOGUE_BIAS
           : k->a_sums  ? CUBLASLT_EPILOGUE_BGRADB
           : k->b_sums  ? CUBLASLT_EPILOGUE_BGRADA
           : k->gelu_in ? CUBLASLT_EPILOGUE_DGELU
                        : CUBLASLT_EPILOGUE_DEFAULT;
}

/* Returns the vector that the epilogue reads or writes; NULL: none. */
static const void *vector_of(const choir__k_matmul *k)
{
    return k->bias ? k->bias : k->a_sums ? k->a_sums : k->b_sums;
}

/* The rows of GELU's input have a multiple of 8 elements. */
static bool serves_gelu(const choir__k_matmul *k)
{
    return !k->gelu_in || (choir_dtype_size(k->dtype) == 2 && k->n % 8 == 0);
}

/* Describes one strided batch: k's batch1. */
static bool problem_of(problem *p, const choir__k_matmul *k)
{
    memset(p, 0, sizeof *p);
    p->m = k->m, p->n = k->n, p->k = k->k, p->batch = k->batch1;
    if (p->batch > 1)
        p->a_batch = k->a_batch1, p->b_batch = k->b_batch1, p->c_batch = k->c_batch1;
    p->dtype = k->dtype;
    p->wide = k->wide;
    p->epilogue = epilogue_of(k);
    p->vector_aligned = alignment(vector_of(k));
    p->aux_aligned = alignment(k->gelu_in);
    p->accumulate = k->accumulate;
    p->tf32 = k->dtype == CHOIR_F32 && choir__cuda_tf32();
    p->a.aligned = alignment(k->a);
    p->b.aligned = alignment(k->b);
    p->c.aligned = alignment(k->c);
    return see(&p->a, k->m, k->k, k->a_row, k->a_col) &&
           see(&p->b, k->k, k->n, k->b_row, k->b_col) && see(&p->c, k->m, k->n, k->c_row, 1) &&
           !p->c.transposed && serves_gelu(k);
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
    /* cuBLASLt's first operand is our second */
    cublasOperation_t first = p->b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = (cublasLtEpilogue_t)p->epilogue;
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    cublasLtMatmulDescSetAttribute(op, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    cublasLtMatmulDescSetAttribute(
        op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    if (epilogue == CUBLASLT_EPILOGUE_DGELU)
        cublasLtMatmulDescSetAttribute(
            op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->n, sizeof p->n);
    return op;
}

static void set_u32(cublasLtMatmulPreference_t preference,
    cublasLtMatmulPreferenceAttributes_t attribute, uint32_t value)
{
    cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value);
}

/* Sets the memory that the epilogue uses: a vector, and GELU's input. */
static void set_memory(plan *x, const void *vector, const void *gelu_in)
{
    if (vector)
        cublasLtMatmulDescSetAttribute(
            x->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector);
    if (gelu_in)
        cublasLtMatmulDescSetAttribute(
            x->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &gelu_in, sizeof gelu_in);
}

/* Sets memory for the heuristic, which asks only how it is aligned. */
static void set_some_memory(choir__cuda *cuda, plan *x, const problem *p)
{
    const char *space = cuda->workspace;
    bool gelu = p->epilogue == CUBLASLT_EPILOGUE_DGELU;
    if (gelu)
        set_memory(x, NULL, space + p->aux_aligned % 16);
    else if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        set_memory(x, space + p->vector_aligned % 16, NULL);
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
    bool wide = p->wide || choir_dtype_size((choir_dtype)p->dtype) > 2;
    set_u32(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE |
            (wide ? CUBLASLT_REDUCTION_SCHEME_INPLACE : 0));
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)p->b.aligned);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)p->a.aligned);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)p->c.aligned);
    set_u32(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        (uint32_t)choir__min(p->c.aligned, choir__min(p->vector_aligned, p->aux_aligned)));
    set_some_memory(cuda, x, p);
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
    plan *x = p;
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

static void note(choir__cuda *cuda, const problem *p, choir__library_plan_fate fate)
{
    const char *epilogue = p->epilogue == CUBLASLT_EPILOGUE_BIAS     ? " + bias"
                           : p->epilogue == CUBLASLT_EPILOGUE_BGRADA ? " + sums of B"
                           : p->epilogue == CUBLASLT_EPILOGUE_BGRADB ? " + sums of A"
                           : p->epilogue == CUBLASLT_EPILOGUE_DGELU  ? " * slope of GELU"
                                                                     : "";
    char text[256];
    snprintf(text, sizeof text, "%lld of %lldx%lldx%lld %s%s%s%s, rows %lld,%lld,%lld",
        (long long)p->batch, (long long)p->m, (long long)p->k, (long long)p->n,
        choir_dtype_name((choir_dtype)p->dtype), p->wide ? " to f32" : "",
        p->accumulate ? ", added" : "", epilogue, (long long)p->a.ld, (long long)p->b.ld,
        (long long)p->c.ld);
    choir__library_plan_note(cuda, CHOIR__CUBLASLT, fate, text);
}

static plan *plan_new(choir__cuda *cuda, const problem *p)
{
    plan *x = choir__calloc(1, sizeof *x);
    x->op = op_of(p);
    x->a = layout_of(&p->a, p->dtype, p->m, p->k, p->batch, p->a_batch);
    x->b = layout_of(&p->b, p->dtype, p->k, p->n, p->batch, p->b_batch);
    x->c = layout_of(&p->c, p->wide ? CHOIR_F32 : p->dtype, p->m, p->n, p->batch, p->c_batch);
    x->usable = find_algorithm(cuda, x, p);
    note(cuda, p, x->usable ? CHOIR__LIBRARY_PLAN_MADE : CHOIR__LIBRARY_PLAN_NONE);
    return x;
}

static plan *plan_of(choir__cuda *cuda, const problem *p)
{
    void **place = choir__library_plan_place(&cuda->plans, p, sizeof *p);
    if (!*place)
        *place = plan_new(cuda, p);
    return *place;
}

void choir__cuda_plans_free(choir__cuda *cuda)
{
    choir__library_plans_free(&cuda->plans, plan_free);
}

/* --- the product --- */

bool choir__blaslt_knows(const choir__k_matmul *k)
{
    problem p;
    return problem_of(&p, k) && plan_of(choir__cuda_here(), &p)->usable;
}

bool choir__blaslt_multiply(const choir__k_matmul *k)
{
    choir__cuda *cuda = choir__cuda_here();
    problem p;
    if (!problem_of(&p, k))
        return false;
    plan *x = plan_of(cuda, &p);
    if (!x->usable)
        return false;
    set_memory(x, vector_of(k), k->gelu_in);
    double one64 = 1, zero64 = 0;
    float one32 = 1, zero32 = 0;
    bool f64 = k->dtype == CHOIR_F64;
    const void *alpha = f64 ? (const void *)&one64 : &one32;
    const void *beta = k->accumulate ? alpha : f64 ? (const void *)&zero64 : &zero32;
    cublasStatus_t status =
        cublasLtMatmul(cuda->blas, x->op, alpha, k->b, x->b, k->a, x->a, beta, k->c, x->c, k->c,
            x->c, &x->algo, cuda->workspace, cuda->workspace_bytes, cuda->stream);
    if (status != CUBLAS_STATUS_SUCCESS)
        note(cuda, &p, CHOIR__LIBRARY_PLAN_REFUSED);
    if (status != CUBLAS_STATUS_SUCCESS && cuda->capturing)
        cuda->refused = true; /* the list is issued task by task, and reports the error */
    else if (status != CUBLAS_STATUS_SUCCESS)
        choir__queue_fail(CHOIR_ERR_DEVICE,
            "cuBLASLt's product of %lld x %lld by %lld x %lld %s failed: %s", (long long)k->m,
            (long long)k->k, (long long)k->k, (long long)k->n, choir_dtype_name(k->dtype),
            cublasLtGetStatusString(status));
    return true;
}
