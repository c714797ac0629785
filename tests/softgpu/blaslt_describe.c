/* cuBLASLt's descriptions of matrices, of products and of a caller's preferences. */
#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#include "blaslt.h"

_Static_assert(sizeof(softgpu_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "no room");
_Static_assert(sizeof(softgpu_description) <= sizeof(cublasLtMatmulDescOpaque_t), "no room");
_Static_assert(
    sizeof(softgpu_preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "no room");

cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    *out = calloc(1, sizeof **out);
    *(softgpu_layout *)*out = (softgpu_layout){.type = type,
        .order = CUBLASLT_ORDER_COL,
        .batch = 1,
        .rows = rows,
        .cols = cols,
        .ld = ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t x)
{
    free(x);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t bytes, const void *from, size_t given)
{
    if (given != bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}
#define SET(field) set(&(field), sizeof(field), from, bytes)

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t x,
    cublasLtMatrixLayoutAttribute_t what, const void *from, size_t bytes)
{
    softgpu_layout *l = (softgpu_layout *)x;
    switch (what) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE: return SET(l->type);
    case CUBLASLT_MATRIX_LAYOUT_ORDER: return SET(l->order);
    case CUBLASLT_MATRIX_LAYOUT_ROWS: return SET(l->rows);
    case CUBLASLT_MATRIX_LAYOUT_COLS: return SET(l->cols);
    case CUBLASLT_MATRIX_LAYOUT_LD: return SET(l->ld);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return SET(l->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return SET(l->stride);
    default: return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    *out = calloc(1, sizeof **out);
    *(softgpu_description *)*out = (softgpu_description){.compute = compute,
        .scale = scale,
        .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
        .bias_type = -1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t x)
{
    free(x);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t x, cublasLtMatmulDescAttributes_t what, const void *from, size_t bytes)
{
    softgpu_description *d = (softgpu_description *)x;
    switch (what) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return SET(d->compute);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return SET(d->scale);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE: return SET(d->pointer_mode);
    case CUBLASLT_MATMUL_DESC_TRANSA: return SET(d->a_turned);
    case CUBLASLT_MATMUL_DESC_TRANSB: return SET(d->b_turned);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return SET(d->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return SET(d->vector);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return SET(d->bias_stride);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return SET(d->bias_type);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return SET(d->aux);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return SET(d->aux_ld);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return SET(d->aux_stride);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = calloc(1, sizeof **out);
    *(softgpu_preference *)*out =
        (softgpu_preference){.mask = ~0u, .aligned = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t x)
{
    free(x);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t x,
    cublasLtMatmulPreferenceAttributes_t what, const void *from, size_t bytes)
{
    softgpu_preference *p = (softgpu_preference *)x;
    switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return SET(p->workspace);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return SET(p->mask);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return SET(p->aligned[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return SET(p->aligned[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return SET(p->aligned[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return SET(p->aligned[3]);
    default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
}
