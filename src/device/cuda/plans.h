/* A table of plans by problem: the way in which a library solves a problem that it has seen
 * before. */
#ifndef CHOIR_CUDA_PLANS_H
#define CHOIR_CUDA_PLANS_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir__plans choir__plans; /* NULL: an empty table */

/* Returns the place of a problem's plan, which is NULL until a caller stores one. The place is
 * valid as long as the table. Problems are compared byte by byte, in whole 32-bit words. */
void **choir__plan_place(choir__plans **table, const void *problem, size_t bytes);

/* Frees the table and calls `drop` for each plan. */
void choir__plans_free(choir__plans **table, void (*drop)(void *plan));

#ifdef __cplusplus
}
#endif
#endif
