/* Linear algebra: factors of matrices, and triangular systems. Each computes the same as the
 * function of torch.linalg with the same name.
 *
 * Operands are matrices (..., rows, cols), whose leading dimensions count matrices. bf16 and
 * f16 are computed in f32 and rounded once at the end; singular values are computed in f64. All
 * are differentiable, to any order. Errors: shape, dtype, device, scope. Collective: none.
 *
 * Threads: the thread of the operands' scope. */
#ifndef CHOIR_LINALG_H
#define CHOIR_LINALG_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the lower triangular L with L L^T = x. x (..., n, n) is symmetric, and only its
 * lower triangle is read; its gradient is symmetric. Execution error: range, a matrix that is
 * not positive definite. */
choir_tensor *choir_cholesky(choir_tensor *x);

/**
 * Solves a x = b with a triangular a.
 *
 * @param a      (..., n, n) the upper, or the lower, triangle with the diagonal is read
 * @param b      (..., n, cols); leading dimensions of a and b broadcast
 * @param upper  a is an upper triangle
 * @return       (..., n, cols)
 *
 * With the transpose of a lower triangle, which is an upper one, it solves a^T x = b. A 0 on
 * the diagonal gives infinities and NaN.
 */
choir_tensor *choir_solve_triangular(choir_tensor *a, choir_tensor *b, bool upper);

/**
 * Computes singular values: x = u diag(s) vt, with k = min(m, n) columns of u and rows of vt at
 * right angles (full_matrices=False).
 *
 * @param x   (..., m, n), neither 0
 * @param u   NULL, or receives (..., m, k); never NULL after the call
 * @param vt  NULL, or receives (..., k, n); likewise
 * @return    (..., k) singular values, the greatest first
 *
 * Signs are settled: where m >= n, the first of the greatest entries of each column of u is
 * positive, and else of each row of vt. A matrix with an entry that is not finite gives NaN.
 *
 * Gradient: x. Singular vectors have none where two singular values are equal, or the number of
 * equations makes a singular value 0; terms that would divide by that 0 are left out.
 *
 * One core computes it in O(m n^2) per sweep (Hestenes, 1958), about 10 in all: a
 * matrix of 500 x 500 takes seconds.
 */
choir_tensor *choir_svd(choir_tensor *x, choir_tensor **u, choir_tensor **vt);

#ifdef __cplusplus
}
#endif
#endif
