/* A table of plans by problem: the way in which a library solves a problem that it has seen
 * before. */
#ifndef CHOIR_CUDA_LIBRARY_PLANS_H
#define CHOIR_CUDA_LIBRARY_PLANS_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir__library_plans choir__library_plans; /* NULL: an empty table */

/* Returns the place of a problem's plan, which is NULL until a caller stores one. The place is
 * valid as long as the table. Problems are compared byte by byte, in whole 32-bit words. */
void **choir__library_plan_place(
    choir__library_plans **table, const void *problem, size_t bytes);

/* The fate of a problem: of its plan when it was made, or (REFUSED) when it was called. */
typedef enum choir__library_plan_fate {
    CHOIR__LIBRARY_PLAN_MADE,
    CHOIR__LIBRARY_PLAN_NONE,
    CHOIR__LIBRARY_PLAN_REFUSED
} choir__library_plan_fate;

/* Counts the fate of a plan in the context's `use`. With CHOIR_CUDA_PLANS=FILE it also adds a
 * line to the file, such as "cuBLASLt none matmul f32 64x10x128", and with CHOIR_CUDA_PLANS=1
 * prints it. library: CHOIR__CUBLASLT or another one. */
void choir__library_plan_note(
    choir__cuda *cuda, int library, choir__library_plan_fate fate, const char *problem);

/* Frees the table and calls `drop` for each plan. */
void choir__library_plans_free(choir__library_plans **table, void (*drop)(void *plan));

#ifdef __cplusplus
}
#endif
#endif
