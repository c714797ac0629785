/* The order of entries along a dimension: the indices come from one kernel, and the values from
 * a lookup by them, whose gradient goes back to where the values were. */
#include <choir/select.h>

#include "tensor/launch.h"
#include "tensor/ops/lookup.h"

static const choir__op argsort_op = {.name = "argsort", .any_dtype = true};
static const choir__op sort_op = {.name = "sort", .any_dtype = true};
static const choir__op topk_op = {.name = "topk", .any_dtype = true};

/* Returns memory for the entries of as many lines as one call of the kernel shall sort at once.
 */
static choir_tensor *scratch_for(choir_scope *scope, const choir_tensor *x, int64_t n)
{
    int64_t at_once = choir__min(x->count, 1 << 20), entries = 0;
    if (n > CHOIR__SORT_SHORT)
        entries = 2 * choir__max(n, at_once);
    return choir__tensor_new(
        scope, choir__device_of(x), CHOIR_I64, choir_dims(entries, 2)); /* key, place */
}

/* Returns the indices of the first *top entries along dim; top NULL: of all. */
static choir_tensor *order_of(const choir__op *op, choir_scope *scope, choir_tensor *x, int dim,
    const int64_t *top, bool descending)
{
    int at = dim;
    if (!choir__fix_dim(x, &at))
        return choir__bad_dim(op->name, x, dim);
    choir_shape shape = x->shape;
    int64_t n = shape.dim[at], inner = 1;
    if (top && (*top < 0 || *top > n))
        return choir__poison(scope, CHOIR_ERR_ARGUMENT,
            "%s: expected 0 to %lld entries of dimension %d, got %lld", op->name, (long long)n,
            at, (long long)*top);
    shape.dim[at] = top ? *top : n;
    for (int d = at + 1; d < shape.ndim; d++)
        inner *= shape.dim[d];
    choir_tensor *dense = choir__dense_rows(scope, x), *scratch = scratch_for(scope, x, n);
    choir_tensor *index = choir__tensor_new(scope, choir__device_of(x), CHOIR_I64, shape);
    if (dense->poisoned || scratch->poisoned || index->poisoned)
        return dense->poisoned ? dense : scratch->poisoned ? scratch : index;
    choir__k_sort args = {.x = choir__data(dense),
        .index = choir__data(index),
        .scratch = choir__data(scratch),
        .outer = index->count ? x->count / n / inner : 0,
        .n = n,
        .inner = inner,
        .top = shape.dim[at],
        .room = scratch->shape.dim[0],
        .descending = descending,
        .dtype = x->dtype};
    if (index->count)
        choir__launch(choir__device_of(x), CHOIR_F32, sort, &args);
    choir__tensor_release(scratch);
    return index;
}

/* Returns the values in order, and stores their indices. Begun as an op, both see one x. */
static choir_tensor *ordered(const choir__op *op, choir_tensor *x, int dim, const int64_t *top,
    bool descending, choir_tensor **index)
{
    choir_tensor *y;
    choir_scope *scope = choir__begin(op, &x, 1, &y);
    choir_tensor *places = scope ? order_of(op, scope, x, dim, top, descending) : y;
    y = places->poisoned ? places : choir__gather_distinct(x, dim, places);
    if (index)
        *index = y->poisoned ? y : places;
    return y;
}

choir_tensor *choir_argsort(choir_tensor *x, int dim, bool descending)
{
    choir_tensor *poisoned;
    choir_scope *scope = choir__begin(&argsort_op, &x, 1, &poisoned);
    return scope ? order_of(&argsort_op, scope, x, dim, NULL, descending) : poisoned;
}

choir_tensor *choir_sort(choir_tensor *x, int dim, bool descending, choir_tensor **index)
{
    return ordered(&sort_op, x, dim, NULL, descending, index);
}

choir_tensor *choir_topk(
    choir_tensor *x, int64_t k, int dim, bool largest, choir_tensor **index)
{
    return ordered(&topk_op, x, dim, &k, largest, index);
}
