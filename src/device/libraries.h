/* Libraries that compute products, convolutions and attention for a device, and what became of
 * the problems that they were given. Where a library has no plan, kernels of Choir step in,
 * with the right numbers and in more time; these counts make that visible. */
#ifndef CHOIR_LIBRARIES_H
#define CHOIR_LIBRARIES_H

#include <stddef.h>

enum { CHOIR__CUBLASLT, CHOIR__CUDNN, CHOIR__LIBRARIES };

typedef struct choir__library_use {
    size_t version; /* version number, 91900 for cuDNN 9.19.0; 0: not opened */
    long made;      /* plans: the library solves the problem */
    long none;      /* problems, or epilogues of products, for which it has no plan */
    long refused;   /* plans that failed when they were called */
    long without;   /* calls that Choir's own kernels computed instead; replays do not count */
} choir__library_use;

#endif
