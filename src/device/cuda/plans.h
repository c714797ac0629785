/* Plans by problem: how a library does what it was asked before. */
#ifndef CHOIR_CUDA_PLANS_H
#define CHOIR_CUDA_PLANS_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir__plans choir__plans; /* NULL: an empty table */

/* Where the plan of a problem stands, NULL in it until a caller puts one there; the place is
 * good as long as the table. Problems are compared byte by byte, whole 32-bit words. */
void **choir__plan_place(choir__plans **table, const void *problem, size_t bytes);

/* Also calls `drop` for each plan. */
void choir__plans_free(choir__plans **table, void (*drop)(void *plan));

#ifdef __cplusplus
}
#endif
#endif
