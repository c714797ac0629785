/* Tensors of numbers in a row, random choices, and Fourier transforms. Each computes the same
 * as PyTorch's function of the same name, apart from the random draws themselves.
 *
 * Random draws have a key, as choir_rand's: the run's seed, the step and `name`, so that they
 * depend neither on the device nor on the rank. A recorded step refuses them (error: state).
 * Errors: argument, shape, dtype, scope. Collective: none.
 *
 * Threads: the thread of the scope. */
#ifndef CHOIR_MAKE_H
#define CHOIR_MAKE_H

#include <choir/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Returns start, start + step, ... below end (above it, if step is negative), computed in f64
 * and converted to dtype. */
choir_tensor *choir_arange(
    choir_scope *scope, choir_dtype dtype, double start, double end, double step);
/** Returns `count` evenly spaced numbers from start to end, both included. */
choir_tensor *choir_linspace(
    choir_scope *scope, choir_dtype dtype, double start, double end, int64_t count);
/** Returns (rows, cols) with 1 on the diagonal and 0 elsewhere. */
choir_tensor *choir_eye(choir_scope *scope, choir_dtype dtype, int64_t rows, int64_t cols);

/** Draws whole numbers in [low, high), i64. Error: argument (an empty range, or one of more
 * than 2^24 numbers). */
choir_tensor *choir_randint(
    choir_scope *scope, choir_shape shape, const char *name, int64_t low, int64_t high);
/** Draws 1 with probability p and else 0, of p's shape and dtype. No gradient. */
choir_tensor *choir_bernoulli(choir_tensor *p, const char *name);
/**
 * Draws indices of the last dimension in proportion to weights.
 *
 * @param weights      (..., C) floating, not negative; their sum need not be 1
 * @param draws        number of draws per row; without replacement at most C
 * @return             (..., draws) i64
 *
 * Without replacement, entries of weight 0 come after all others. No gradient.
 */
choir_tensor *choir_multinomial(
    choir_tensor *weights, int64_t draws, bool replacement, const char *name);

/* --- Fourier transforms of the dimension before the last: (..., n, 2), whose last dimension
 * has the real and the imaginary parts (torch.view_as_real) ---
 *
 * X[k] = sum_j x[j] exp(-2 pi i j k / n). n is split into factors, and each is a product with
 * the matrix of its transform; so sums have the order of products, gradients of any order
 * exist, and a large prime n costs n^2. */

choir_tensor *choir_fft(choir_tensor *x);
/** Computes the inverse, with 1 / n. */
choir_tensor *choir_ifft(choir_tensor *x);
/** Transforms real numbers: (..., n) -> (..., n/2 + 1, 2), the others being conjugates of
 * these. */
choir_tensor *choir_rfft(choir_tensor *x);
/** Computes the inverse of choir_rfft: (..., n/2 + 1, 2) -> (..., n) for n numbers. */
choir_tensor *choir_irfft(choir_tensor *x, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
