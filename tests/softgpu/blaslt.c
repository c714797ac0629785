/* cuBLASLt: D = alpha op(A) op(B) + beta C, and a bias, the sums over k of an operand (a bias's
 * gradient) or the factor of GELU's slope, with the interface of the library's own headers.
 *
 * The heuristic returns one algorithm, which records its problem, the promised alignment of
 * pointers and the size of the workspace. cublasLtMatmul checks that its caller keeps to all of
 * it, and overwrites the workspace. f32 sums are in order of k, in f32. A call that Choir does
 * not use returns CUBLAS_STATUS_NOT_SUPPORTED. */
#include "gpu.h"

#include <cublasLt.h>

#include "base/hash.h"
#include "blaslt.h"
#include "product.h"

enum { HANDLE = 0x31a5e001, ALGORITHM = 0x2190e001, WORKSPACE = 4096, ALIGN_WORKSPACE = 16 };

struct cublasLtContext {
    uint32_t magic;
    int gpu;
};

typedef struct algorithm {
    uint32_t magic, aligned[4];
    uint64_t problem, workspace;
} algorithm;

_Static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "no room");

/* --- handles --- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    cudaError_t error = softgpu_leave(softgpu_enter_unsafe());
    *handle = NULL;
    if (error)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    struct cublasLtContext *h = calloc(1, sizeof *h);
    h->magic = HANDLE;
    h->gpu = softgpu_current();
    *handle = h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (!handle || handle->magic != HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    handle->magic = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return cublasLtGetStatusName(status);
}

/* --- what there are algorithms for --- */

static bool layout_is_sound(const softgpu_layout *l)
{
    int64_t least = (int64_t)(l->order == CUBLASLT_ORDER_COL ? l->rows : l->cols);
    return l->rows > 0 && l->cols > 0 && l->batch > 0 && l->ld >= least &&
           (l->order == CUBLASLT_ORDER_COL || l->order == CUBLASLT_ORDER_ROW);
}

static uint64_t down(const softgpu_layout *l, bool turned)
{
    return turned ? l->cols : l->rows;
}

static uint64_t across(const softgpu_layout *l, bool turned)
{
    return turned ? l->rows : l->cols;
}

static cublasStatus_t check_shapes(
    const softgpu_description *d, const softgpu_layout *const x[4])
{
    for (int i = 0; i < 4; i++)
        if (!layout_is_sound(x[i]) || x[i]->batch != x[0]->batch)
            return CUBLAS_STATUS_INVALID_VALUE;
    if (down(x[0], d->a_turned) != x[3]->rows || across(x[1], d->b_turned) != x[3]->cols ||
        across(x[0], d->a_turned) != down(x[1], d->b_turned) || x[2]->rows != x[3]->rows ||
        x[2]->cols != x[3]->cols)
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

/* Returns the number of elements of the vector that the epilogue reads or writes. */
static uint64_t vector_size(const softgpu_description *d, const softgpu_layout *const x[4])
{
    switch (d->epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA: return x[3]->rows;
    case CUBLASLT_EPILOGUE_BGRADB: return x[3]->cols;
    default: return 0;
    }
}

static bool is_sum(const softgpu_description *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_BGRADA || d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

static bool is_gelu(const softgpu_description *d)
{
    return d->epilogue == CUBLASLT_EPILOGUE_DGELU;
}

static bool aligned_to(const void *p, uint32_t bytes)
{
    return bytes == 0 || (uintptr_t)p % bytes == 0;
}

/* Vectors have D's type. Sums and GELU are refused in f64 and for a batch, and GELU's input at
 * other addresses than multiples of 16, so that callers do without. */
static cublasStatus_t check_epilogue(
    const softgpu_description *d, const softgpu_layout *const x[4])
{
    bool plain = d->epilogue == CUBLASLT_EPILOGUE_DEFAULT, gelu = is_gelu(d);
    if (!plain && !gelu && !vector_size(d, x))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (gelu && (d->aux_ld < (int64_t)x[3]->rows || d->aux_ld % 8 || d->aux_stride % 8))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (gelu && (x[3]->type != x[0]->type || !aligned_to(d->aux, 16)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!plain && (x[3]->order != CUBLASLT_ORDER_COL ||
                      (d->bias_type >= 0 && d->bias_type != x[3]->type)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((is_sum(d) || gelu) && (x[3]->type == CUDA_R_64F || x[3]->batch > 1))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_types(
    const softgpu_description *d, const softgpu_layout *const x[4])
{
    int a = x[0]->type, c = x[3]->type;
    bool f64 = a == CUDA_R_64F && c == CUDA_R_64F && d->compute == CUBLAS_COMPUTE_64F &&
               d->scale == CUDA_R_64F;
    bool tf32 = d->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    bool f32 = (d->compute == CUBLAS_COMPUTE_32F || (tf32 && a == CUDA_R_32F)) &&
               d->scale == CUDA_R_32F;
    bool known = a == CUDA_R_32F || a == CUDA_R_16BF || a == CUDA_R_16F;
    if (x[1]->type != a || x[2]->type != c || !(f64 || (f32 && known)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c != a && c != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (d->pointer_mode != CUBLASLT_POINTER_MODE_HOST)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return check_epilogue(d, x);
}

static cublasStatus_t check(const softgpu_description *d, const softgpu_layout *const x[4])
{
    cublasStatus_t status = check_shapes(d, x);
    return status ? status : check_types(d, x);
}

/* Returns a hash of the problem that an algorithm is for: everything except pointers. */
static uint64_t problem_of(const softgpu_description *d, const softgpu_layout *const x[4])
{
    const int32_t op[] = {d->compute, d->scale, d->a_turned, d->b_turned, d->epilogue,
        (int32_t)d->aux_ld, (int32_t)d->aux_stride};
    uint64_t hash = choir__hash_bytes(CHOIR__HASH_SEED, op, sizeof op);
    for (int j = 0; j < 4; j++)
        hash = choir__hash_bytes(hash, x[j], sizeof(softgpu_layout));
    return hash;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
    cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
    cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t want, int most,
    cublasLtMatmulHeuristicResult_t found[], int *count)
{
    const softgpu_layout *const x[4] = {(const softgpu_layout *)a, (const softgpu_layout *)b,
        (const softgpu_layout *)c, (const softgpu_layout *)d};
    const softgpu_preference *p = (const softgpu_preference *)want;
    cudaError_t error = softgpu_enter(), refused;
    cublasStatus_t status = check((const softgpu_description *)op, x);
    *count = 0;
    if (!error && softgpu_failing(SOFTGPU_FAIL_BLAS, &refused))
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    const softgpu_description *o = (const softgpu_description *)op;
    if (!status && ((vector_size(o, x) && !o->vector) || (is_gelu(o) && !o->aux)))
        softgpu_wrong(
            "a product with a bias or GELU is asked about without a pointer to it, which some "
            "versions of cuBLASLt have no algorithm for");
    (void)softgpu_leave(error);
    if (error || !handle || handle->magic != HANDLE)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (status || most < 1)
        return status ? status : CUBLAS_STATUS_INVALID_VALUE;
    algorithm *algo = (algorithm *)&found[0].algo;
    memset(&found[0], 0, sizeof found[0]);
    algo->magic = ALGORITHM;
    memcpy(algo->aligned, p->aligned, sizeof algo->aligned);
    algo->problem = problem_of((const softgpu_description *)op, x);
    algo->workspace = p->workspace < WORKSPACE ? p->workspace : WORKSPACE;
    found[0].workspaceSize = algo->workspace;
    found[0].state = CUBLAS_STATUS_SUCCESS;
    found[0].wavesCount = 1;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- products --- */

/* Returns the bytes that l spans from its first element. */
static size_t span(const softgpu_layout *l)
{
    bool column = l->order == CUBLASLT_ORDER_COL;
    int64_t outer = (int64_t)(column ? l->cols : l->rows),
            inner = (int64_t)(column ? l->rows : l->cols);
    int64_t last = (outer - 1) * l->ld + inner - 1 + (l->batch - 1) * l->stride;
    return (size_t)(last + 1) * softgpu_size_of(l->type);
}

static void must_reach(const void *p, size_t bytes, const char *what)
{
    int gpu;
    if (softgpu_kind_of(p, &gpu) == SOFTGPU_PAGEABLE)
        softgpu_wrong("a product's %s, %p, is in the host's pageable memory", what, p);
    if (!softgpu_within(p, bytes))
        softgpu_wrong(
            "a product's %s, %zu bytes at %p, goes beyond its memory", what, bytes, p);
}

static softgpu_matrix matrix_of(const softgpu_layout *l, const void *p, bool turned)
{
    bool by_column = l->order == CUBLASLT_ORDER_COL;
    softgpu_matrix m = {.p = (void *)(uintptr_t)p,
        .type = l->type,
        .down = by_column ? 1 : l->ld,
        .across = by_column ? l->ld : 1,
        .batch = l->stride};
    if (turned) {
        int64_t other = m.down;
        m.down = m.across;
        m.across = other;
    }
    return m;
}

/* alpha and beta are of the scale's type. */
static double scalar(const void *p, int type)
{
    float narrow;
    double wide;
    if (type == CUDA_R_64F) {
        memcpy(&wide, p, sizeof wide);
        return wide;
    }
    memcpy(&narrow, p, sizeof narrow);
    return (double)narrow;
}

static cublasStatus_t check_call(const algorithm *algo, const softgpu_description *d,
    const softgpu_layout *const x[4], const void *const p[4], const void *space,
    size_t space_bytes)
{
    if (algo->magic != ALGORITHM || algo->problem != problem_of(d, x))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < 4; i++)
        if (p[i] && !aligned_to(p[i], algo->aligned[i]))
            return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->workspace > space_bytes || !aligned_to(space, ALIGN_WORKSPACE))
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

static void *vector_if(const softgpu_description *d, int epilogue)
{
    return d->epilogue == epilogue ? d->vector : NULL;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t op,
    const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
    cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
    cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
    const cublasLtMatmulAlgo_t *algo, void *space, size_t space_bytes, cudaStream_t stream)
{
    static const char *const names[4] = {"A", "B", "C", "D"};
    const softgpu_layout *const x[4] = {(const softgpu_layout *)a_layout,
        (const softgpu_layout *)b_layout, (const softgpu_layout *)c_layout,
        (const softgpu_layout *)d_layout};
    const softgpu_description *o = (const softgpu_description *)op;
    double scale = scalar(alpha, o->scale), keep = scalar(beta, o->scale);
    const void *const p[4] = {a, b, keep != 0 ? c : NULL, d};
    cudaError_t error = softgpu_enter(), refused;
    cudaStream_t s = error ? NULL : softgpu_stream(stream);
    cublasStatus_t status = check(o, x);
    if (!status && !error && softgpu_failing(SOFTGPU_FAIL_PRODUCT, &refused))
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (error || !handle || handle->magic != HANDLE)
        status = CUBLAS_STATUS_NOT_INITIALIZED;
    else if (!s || s->gpu != softgpu_current() || handle->gpu != s->gpu)
        status = CUBLAS_STATUS_INVALID_VALUE;
    if (!status && algo)
        status = check_call((const algorithm *)algo, o, x, p, space, space_bytes);
    if (!status &&
        (!a || !b || !d || (vector_size(o, x) && !o->vector) || (is_gelu(o) && !o->aux)))
        status = CUBLAS_STATUS_INVALID_VALUE;
    if (!status) {
        softgpu_layout aux = *x[3];
        aux.ld = o->aux_ld, aux.stride = o->aux_stride;
        softgpu_product k = {.a = matrix_of(x[0], a, o->a_turned),
            .b = matrix_of(x[1], b, o->b_turned),
            .c = matrix_of(x[2], p[2], false),
            .d = matrix_of(x[3], d, false),
            .bias = vector_if(o, CUBLASLT_EPILOGUE_BIAS),
            .bias_batch = o->bias_stride,
            .a_sums = vector_if(o, CUBLASLT_EPILOGUE_BGRADA),
            .b_sums = vector_if(o, CUBLASLT_EPILOGUE_BGRADB),
            .gelu_in = matrix_of(&aux, is_gelu(o) ? o->aux : NULL, false),
            .m = (int64_t)x[3]->rows,
            .n = (int64_t)x[3]->cols,
            .k = (int64_t)across(x[0], o->a_turned),
            .batch = x[0]->batch,
            .alpha = scale,
            .beta = keep,
            .tf32 = o->compute == CUBLAS_COMPUTE_32F_FAST_TF32,
            .space = space,
            .space_bytes = algo ? ((const algorithm *)algo)->workspace : 0};
        for (int i = 0; i < 4; i++)
            if (p[i])
                must_reach(p[i], span(x[i]), names[i]);
        if (is_gelu(o))
            must_reach(o->aux, span(&aux), "input of GELU");
        if (vector_size(o, x))
            must_reach(o->vector, vector_size(o, x) * softgpu_size_of(x[3]->type),
                is_sum(o) ? "bias's gradient" : "bias");
        error = softgpu_issue(s, SOFTGPU_TASK, softgpu_run_product, &k, sizeof k,
            softgpu_reachable(s->gpu), true);
        status = error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
    }
    if (!error && softgpu_failing(SOFTGPU_FAIL_STRAY, &refused))
        error = cudaErrorInvalidValue;
    (void)softgpu_leave(error);
    return status;
}
