/* Reductions along one dimension that are made of other ops: deviations, log sum exp, products,
 * and whether any or every entry is not 0. */
#include <math.h>

#include <choir/select.h>

#include "tensor/autocast.h"
#include "tensor/op.h"

#define REDUCTION(title)                                                                       \
    {                                                                                          \
        .name = title, .composed = true, .cast = CHOIR__CAST_F32                               \
    }
static const choir__op std_op = REDUCTION("std"), logsumexp_op = REDUCTION("logsumexp"),
                       prod_op = REDUCTION("prod");

/* Begins an op on floating x; 16-bit values are f32 from here on. Returns false with *poisoned.
 */
static bool begin(const choir__op *op, choir_tensor **x, int *dim, choir_tensor **poisoned)
{
    choir_scope *scope = choir__begin(op, x, 1, poisoned);
    if (!scope)
        return false;
    int asked = *dim;
    *poisoned = !choir__fix_dim(*x, dim)        ? choir__bad_dim(op->name, *x, asked)
                : !choir__is_float((*x)->dtype) ? choir__poison(scope, CHOIR_ERR_DTYPE,
                                                      "%s: expected a floating tensor, got %s",
                                                      op->name, choir_dtype_name((*x)->dtype))
                                                : NULL;
    return !*poisoned;
}

/* Removes dimension dim of size 1, unless it is kept, and gives the result the caller's dtype.
 */
static choir_tensor *finished(choir_tensor *y, int dim, bool keep, choir_dtype dtype)
{
    choir_shape shape = y->shape;
    if (y->poisoned)
        return y;
    for (int d = dim; d < shape.ndim - 1 && !keep; d++)
        shape.dim[d] = shape.dim[d + 1];
    shape.ndim -= !keep;
    y = choir_reshape(y, shape);
    return choir__is_half(dtype) && !y->scope->autocast.on ? choir_cast(y, dtype) : y;
}

static choir_tensor *sum_kept(choir_tensor *x, int dim)
{
    choir_shape shape = x->shape;
    shape.dim[dim] = 1;
    return choir_reshape(choir_sum_dim(x, dim), shape);
}

choir_tensor *choir_std_dim(choir_tensor *x, int dim, int64_t correction, bool keepdim)
{
    choir_tensor *poisoned;
    choir_dtype dtype = choir_tensor_dtype(x);
    if (!begin(&std_op, &x, &dim, &poisoned))
        return poisoned;
    choir_tensor *var = choir_var_dim(x, dim, correction, true);
    choir_tensor *flat = choir_compare(var, CHOIR_EQ, 0);
    choir_tensor *root = choir_sqrt(choir_masked_fill(var, flat, 1));
    return finished(choir_masked_fill(root, flat, 0), dim, keepdim, dtype);
}

choir_tensor *choir_logsumexp_dim(choir_tensor *x, int dim, bool keepdim)
{
    choir_tensor *poisoned;
    choir_dtype dtype = choir_tensor_dtype(x);
    if (!begin(&logsumexp_op, &x, &dim, &poisoned))
        return poisoned;
    bool grad = choir_set_grad(x->scope, false);
    choir_tensor *most = choir_max_dim(x, dim, true, NULL);
    choir_tensor *infinite = choir_compare(choir_abs(most), CHOIR_EQ, INFINITY);
    most = choir_masked_fill(most, infinite, 0);
    choir_set_grad(x->scope, grad);
    choir_tensor *y = choir_log(sum_kept(choir_exp(choir_sub(x, most)), dim));
    return finished(choir_add(y, most), dim, keepdim, dtype);
}

/* Multiplies the first half of the entries by the second until one is left. */
choir_tensor *choir_prod_dim(choir_tensor *x, int dim, bool keepdim)
{
    choir_tensor *poisoned;
    choir_dtype dtype = choir_tensor_dtype(x);
    if (!begin(&prod_op, &x, &dim, &poisoned))
        return poisoned;
    int64_t n = x->shape.dim[dim];
    if (n == 0)
        return finished(choir_affine(sum_kept(x, dim), 0, 1), dim, keepdim, dtype);
    for (; n > 1; n = (n + 1) / 2) {
        choir_tensor *y =
            choir_mul(choir_narrow(x, dim, 0, n / 2), choir_narrow(x, dim, n / 2, n / 2));
        if (n % 2)
            y = choir_cat((choir_tensor *[]){y, choir_narrow(x, dim, n - 1, 1)}, 2, dim);
        x = y;
        if (x->poisoned)
            return x;
    }
    return finished(x, dim, keepdim, dtype);
}

/* --- any and all --- */

static choir_tensor *set_in(const char *name, choir_tensor *x, int dim, bool keep, bool every)
{
    const choir__op op = {.name = name, .any_dtype = true, .composed = true};
    choir_tensor *poisoned;
    int at = dim;
    if (!choir__begin(&op, &x, 1, &poisoned))
        return poisoned;
    if (!choir__fix_dim(x, &at))
        return choir__bad_dim(name, x, dim);
    choir_tensor *set = choir_cast(choir_compare(x, CHOIR_NE, 0), CHOIR_F32);
    choir_tensor *sum = choir_sum_dim(every ? choir_affine(set, -1, 1) : set, at);
    choir_tensor *y = choir_compare(sum, every ? CHOIR_EQ : CHOIR_NE, 0);
    choir_shape kept = x->shape;
    kept.dim[at] = 1;
    return keep ? choir_reshape(y, kept) : y;
}

choir_tensor *choir_any_dim(choir_tensor *x, int dim, bool keepdim)
{
    return set_in("any", x, dim, keepdim, false);
}

choir_tensor *choir_all_dim(choir_tensor *x, int dim, bool keepdim)
{
    return set_in("all", x, dim, keepdim, true);
}
