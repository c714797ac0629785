/* Ops that compare, choose, look up, order, and reduce along one dimension: each computes the
 * same as PyTorch's function of the same name.
 *
 * As in ops.h, floating operands are f32, bf16, f16 or f64; indices are i64 and masks bool. A
 * negative dim counts from the end. Results are differentiable in their floating operands
 * unless a comment says otherwise; masks and indices have no gradient. Sums have a fixed order,
 * so the bits depend neither on the number of threads nor on timing, on GPUs, too. Errors:
 * shape, dtype, device, scope. Execution error: range, an index outside its dimension; the
 * message names the index and its position. Collective: none.
 *
 * Threads: the thread of the operands' scope. */
#ifndef CHOIR_SELECT_H
#define CHOIR_SELECT_H

#include <choir/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- comparisons: bool, of two tensors of one dtype (any), broadcast --- */

choir_tensor *choir_eq(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_ne(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_lt(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_le(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_gt(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_ge(choir_tensor *a, choir_tensor *b);

typedef enum choir_comparison {
    CHOIR_EQ,
    CHOIR_NE,
    CHOIR_LT,
    CHOIR_LE,
    CHOIR_GT,
    CHOIR_GE
} choir_comparison;

/** Compares x with a number: choir_compare(x, CHOIR_GT, 0.5). If x is floating, the number is
 * first converted to its dtype; whole numbers are compared with the number as it is. */
choir_tensor *choir_compare(choir_tensor *x, choir_comparison how, double value);

/** The logical ops take any dtype; numbers other than 0 are true. */
choir_tensor *choir_logical_and(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_logical_or(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_logical_xor(choir_tensor *a, choir_tensor *b);
choir_tensor *choir_logical_not(choir_tensor *x);

/* --- choices --- */

/** Returns a where mask is true and b elsewhere; all three broadcast. a and b have one dtype.
 */
choir_tensor *choir_where(choir_tensor *mask, choir_tensor *a, choir_tensor *b);
/** Returns x with `value` where mask, which broadcasts with x, is true. Whole numbers take it
 * without its fraction. Error: argument (x's dtype cannot hold it). */
choir_tensor *choir_masked_fill(choir_tensor *x, choir_tensor *mask, double value);

/* --- along one dimension, which is removed, or kept with size 1 if keepdim is true --- */

/** Returns the greatest (least) entries, and stores their indices in *index unless index is
 * NULL. Among equal entries the first is chosen; a NaN is chosen before all numbers. The
 * gradient goes to the chosen entry. */
choir_tensor *choir_max_dim(choir_tensor *x, int dim, bool keepdim, choir_tensor **index);
choir_tensor *choir_min_dim(choir_tensor *x, int dim, bool keepdim, choir_tensor **index);
/** Returns the indices alone. */
choir_tensor *choir_argmax_dim(choir_tensor *x, int dim, bool keepdim);
choir_tensor *choir_argmin_dim(choir_tensor *x, int dim, bool keepdim);
/** Computes sum (x - mean)^2 / (n - correction); PyTorch's correction is 1. */
choir_tensor *choir_var_dim(choir_tensor *x, int dim, int64_t correction, bool keepdim);
/** Computes the square root of choir_var_dim; its gradient is 0 where the deviation is 0. */
choir_tensor *choir_std_dim(choir_tensor *x, int dim, int64_t correction, bool keepdim);
/** Computes log sum exp x without overflow; -INFINITY where all entries are. */
choir_tensor *choir_logsumexp_dim(choir_tensor *x, int dim, bool keepdim);
/** Multiplies the entries, pairs first; the gradient is right beside zeros, too. */
choir_tensor *choir_prod_dim(choir_tensor *x, int dim, bool keepdim);
/** bool: whether any (every) entry is not 0, of any dtype. */
choir_tensor *choir_any_dim(choir_tensor *x, int dim, bool keepdim);
choir_tensor *choir_all_dim(choir_tensor *x, int dim, bool keepdim);
/** Computes (sum |x|^p)^(1/p); p is INFINITY for the greatest |x|, -INFINITY for the least; p =
 * 0 counts the nonzero entries, without a gradient. Where the norm is 0, the gradient is 0. If
 * several entries have the greatest (least) |x|, they share the gradient equally. 16-bit
 * operands are computed in f32. */
choir_tensor *choir_norm_dim(choir_tensor *x, double p, int dim, bool keepdim);
/** Computes sum x y / (max(|x|, eps) max(|y|, eps)) along dim, which is removed; x and y have
 * one dtype and broadcast. PyTorch's eps is 1e-8. 16-bit operands are computed in f32. */
choir_tensor *choir_cosine_similarity(choir_tensor *x, choir_tensor *y, int dim, double eps);
/** Returns the running sums along dim, of x's shape; the sums are f64. */
choir_tensor *choir_cumsum(choir_tensor *x, int dim);

/* --- in order --- */

/** Sorts the entries along dim, and stores their indices in *index unless index is NULL. Equal
 * entries keep their order, and a NaN counts as greater than all numbers: it is last in
 * ascending order. x has any dtype. The gradient goes to the entries' places in x. */
choir_tensor *choir_sort(choir_tensor *x, int dim, bool descending, choir_tensor **index);
/** Returns the indices alone, i64 of x's shape. */
choir_tensor *choir_argsort(choir_tensor *x, int dim, bool descending);
/** Returns the k largest entries along dim, the largest first, or the k smallest, the smallest
 * first, as the first k entries that choir_sort returns. Along dim the results have size k, 0
 * to x's size. Errors: also argument (k outside this range). */
choir_tensor *choir_topk(
    choir_tensor *x, int64_t k, int dim, bool largest, choir_tensor **index);

/* --- lookups --- */

/** Replaces the coordinate of dimension dim by an index: y[i, j] = x[index[i, j], j] for dim 0
 * of two dimensions. index has as many dimensions as x, of at most x's sizes except along dim;
 * y has index's shape. x has any dtype. */
choir_tensor *choir_gather_dim(choir_tensor *x, int dim, choir_tensor *index);
/** Returns x with from[i, j] added to entry [index[i, j], j] (for dim 0 of two dimensions). The
 * terms of one entry are added in order. from has index's shape and x's dtype, which is
 * floating or i64. */
choir_tensor *choir_scatter_add(
    choir_tensor *x, int dim, choir_tensor *index, choir_tensor *from);
/** Selects entries ids (n) of dimension dim, which then has size n. For large tables of rows,
 * choir_embedding is faster. */
choir_tensor *choir_index_select(choir_tensor *x, int dim, choir_tensor *ids);
/** Returns i64 (..., classes): 1 at the class that ids (...) names, 0 elsewhere. */
choir_tensor *choir_one_hot(choir_tensor *ids, int64_t classes);

/* --- places --- */

/** Returns the entries along dim in reverse order. x has any dtype. */
choir_tensor *choir_flip(choir_tensor *x, int dim);
/** Moves the entries along dim on by `shift` places; those that leave the end enter at the
 * front. x has any dtype. */
choir_tensor *choir_roll(choir_tensor *x, int64_t shift, int dim);
/** Keeps the lower (upper) triangle of the last two dimensions, and makes the others 0. Entry
 * (i, j) belongs to the lower one if j <= i + diagonal, and to the upper one if j >= i +
 * diagonal. x is floating. */
choir_tensor *choir_tril(choir_tensor *x, int64_t diagonal);
choir_tensor *choir_triu(choir_tensor *x, int64_t diagonal);
/** Returns i64 (n, dimensions): the places of the n entries of x that are not 0, in row-major
 * order. x has any dtype. It waits for the device, and a recorded step refuses it (error:
 * state). */
choir_tensor *choir_nonzero(choir_tensor *x);

/** Adds entries of `value` around x, or cuts entries where a width is negative. widths has two
 * numbers for each dimension, before and after, the last dimension first (as
 * torch.nn.functional.pad); count is their number. */
choir_tensor *choir_pad(choir_tensor *x, const int64_t *widths, int count, double value);

#ifdef __cplusplus
}
#endif
#endif
