/* Linear algebra for samplers: symmetric matrices of a few to a few hundred rows, by rows.
 *
 * Sums have one order on every processor, so that machines that share a study suggest the same
 * trials; a library's matrix kernels differ between processors and numbers of threads. */
#ifndef CHOIR_TUNE_ALGEBRA_H
#define CHOIR_TUNE_ALGEBRA_H

#include "base/base.h"

double choir__dot(const double *a, const double *b, int64_t n);

/* Replaces the lower triangle of a (n, n) by L with a = L L'. Returns false if a is not
 * positive definite. */
bool choir__cholesky(double *a, int64_t n);
/* Solves L x = x, from element `from` on: those before are 0. */
void choir__solve_lower(const double *l, int64_t n, int64_t from, double *x);
/* Solves L' x = x. */
void choir__solve_lower_transposed(const double *l, int64_t n, double *x);
/* Stores in the lower triangle of `inverse` (n, n) the inverse of L L'. scratch: (n, n) */
void choir__invert(const double *l, int64_t n, double *scratch, double *inverse);

/* Eigenvectors of a (n, n), which is destroyed: column i of `vectors` (n, n) has the eigenvalue
 * values[i]. */
void choir__eigen(double *a, int64_t n, double *vectors, double *values);

#endif
