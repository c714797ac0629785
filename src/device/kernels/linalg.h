/* The arguments of the kernels of linear algebra: factors of matrices, and triangular systems.
 * kernels.h includes this header. Matrices are row-major, `batch` of them behind each other;
 * dtype is f32 or f64. */
#ifndef CHOIR_KERNELS_LINALG_H
#define CHOIR_KERNELS_LINALG_H

#include <choir/dtype.h>
#include "base/base.h"

/* y = the lower triangular L with L L' = x, where x is symmetric and only its lower triangle is
 * read; y is 0 above the diagonal. A pivot that is not above 0 fails the queue. */
typedef struct choir__k_cholesky {
    const void *x; /* (batch, n, n) */
    void *y;       /* (batch, n, n) */
    int64_t batch, n;
    choir_dtype dtype;
} choir__k_cholesky;

/* matrix, row, pivot */
#define CHOIR__CHOLESKY_FAULT                                                                  \
    "cholesky: expected positive definite matrices; in matrix %lld row %lld has the pivot "    \
    "%g. A small multiple of choir_eye, added to it, may help"

/* The x with a x = b; of a, one triangle with its diagonal is read. Terms are subtracted in the
 * order of rows, from the diagonal's far end. x may be b. */
typedef struct choir__k_solve_triangular {
    const void *a; /* (batch, n, n) */
    const void *b; /* (batch, n, cols) */
    void *x;       /* (batch, n, cols) */
    int64_t batch, n, cols;
    bool upper;
    choir_dtype dtype;
} choir__k_solve_triangular;

/* x = U diag(s) V', m >= n, by turning pairs of x's columns until all are at right angles
 * (Hestenes, 1958). s descends. Of the entries of U's column with the greatest magnitude, the
 * first is positive. Columns of U that belong to an s of 0 complete the others. A matrix that
 * has an entry which is not finite gives NaN. Everything is computed in f64. */
typedef struct choir__k_svd {
    const void *x;   /* (batch, m, n) */
    void *y;         /* (batch, m + 1 + n, n): the rows of U, s, the rows of V */
    double *scratch; /* (batch, n, m + n + 1) */
    int64_t batch, m, n;
    choir_dtype dtype;
} choir__k_svd;

enum { CHOIR__SVD_SWEEPS = 60 }; /* far more than matrices need: about 10 */

/* A turn of two columns p, q: p becomes c p - s q, and q becomes s p + c q. */
typedef struct choir__turn {
    double c, s;
} choir__turn;

#endif
