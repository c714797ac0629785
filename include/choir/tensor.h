/* Tensors: shaped, strided views of device memory.
 *
 * A tensor belongs to a scope, which frees it; handles are never freed one by one. Ops return
 * new tensors at once while the device is still computing; choir_item and choir_read wait. Ops
 * never return NULL: scope.h describes errors. Shapes list the outermost dimension first.
 *
 * Backward frees the memory of intermediate results as it consumes them. Call choir_keep
 * before backward for a result that is used afterwards.
 *
 * Threads: the thread of the tensor's scope. */
#ifndef CHOIR_TENSOR_H
#define CHOIR_TENSOR_H

#include <choir/dtype.h>
#include <choir/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR_MAX_DIMS = 6 };

/** Sizes of the dimensions, passed by value: choir_dims(64, 784). */
typedef struct choir_shape {
    int ndim;
    int64_t dim[CHOIR_MAX_DIMS];
} choir_shape;

#ifndef __cplusplus
#define choir_dims(...)                                                                        \
    (choir_shape)                                                                              \
    {                                                                                          \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                    \
        {                                                                                      \
            __VA_ARGS__                                                                        \
        }                                                                                      \
    }

/** The shape () of a tensor with one value. */
#define CHOIR_SCALAR ((choir_shape){0, {0}})
#else
} /* templates have no C linkage */
template <class... T> choir_shape choir_dims(T... sizes)
{
    return choir_shape{(int)sizeof...(sizes), {(int64_t)sizes...}};
}
#define CHOIR_SCALAR (choir_shape{0, {0}})
extern "C" {
#endif

choir_shape choir_tensor_shape(const choir_tensor *t);
int choir_tensor_ndim(const choir_tensor *t);
/** Returns the size of dimension dim; negative dims count from the end. 0 if the dimension does
 * not exist. */
int64_t choir_tensor_size(const choir_tensor *t, int dim);
int64_t choir_tensor_count(const choir_tensor *t);
choir_dtype choir_tensor_dtype(const choir_tensor *t);
choir_device *choir_tensor_device(const choir_tensor *t);
choir_scope *choir_tensor_scope(const choir_tensor *t);

/* --- new tensors --- */

choir_tensor *choir_zeros(choir_scope *scope, choir_dtype dtype, choir_shape shape);
/** Fills a new tensor with the value; integer dtypes drop its fraction. Error: argument (the
 * dtype cannot hold the value). */
choir_tensor *choir_full(
    choir_scope *scope, choir_dtype dtype, choir_shape shape, double value);

/** Copies host memory into a new tensor: count(shape) values of dtype, row-major. */
choir_tensor *choir_from(
    choir_scope *scope, choir_dtype dtype, choir_shape shape, const void *data);

/** Draws f32 values: uniform in [low, high) (choir_rand) or standard normal (choir_randn). The
 * key of the random numbers is the run's seed, the step and `name`. */
choir_tensor *choir_rand(
    choir_scope *scope, choir_shape shape, const char *name, double low, double high);
choir_tensor *choir_randn(choir_scope *scope, choir_shape shape, const char *name);

/** Marks t as requiring a gradient. t must be a leaf of f32 or f64. Returns t. */
choir_tensor *choir_require_grad(choir_tensor *t);

/** Returns the gradient that choir_backward left for a leaf or a parameter, over all
 * micro-batches since the last optimizer step; NULL without a gradient. Reading a parameter's
 * gradient completes it: the next backward starts a new one. Collective for parameters under a
 * group. */
choir_tensor *choir_grad(choir_tensor *t);

/** Drops the gradient of a leaf that choir_require_grad has marked, so that the next backward
 * starts a new one. Releases the tensor that choir_grad returned. Error: argument (t is the
 * result of an op, or a parameter: see choir_optim_zero). */
CHOIR_CHECKED choir_status choir_zero_grad(choir_tensor *t);

/* --- reading and writing: these functions wait for the device --- */

/** Returns the value of a tensor of one element; NaN on error. */
double choir_item(const choir_tensor *t);

/** Copies all of t, row-major, in its own dtype. Argument bytes must be count * size. */
CHOIR_CHECKED choir_status choir_read(const choir_tensor *t, void *data, size_t bytes);

/** Overwrites t from host memory, in place. A later backward that saved t's old values
 * fails. */
CHOIR_CHECKED choir_status choir_write(choir_tensor *t, const void *data, size_t bytes);

/** Prints shape, dtype, device and, shortened, the values, as PyTorch does. */
void choir_print(const choir_tensor *t);

/* --- views: no copy, unless the comment says so --- */

/** Changes the shape; one dimension may be -1. Copies if the memory order requires it. */
choir_tensor *choir_reshape(choir_tensor *x, choir_shape shape);
/** Joins the dimensions from `first` on into one. */
choir_tensor *choir_flatten(choir_tensor *x, int first);
choir_tensor *choir_transpose(choir_tensor *x, int dim0, int dim1);
choir_tensor *choir_permute(choir_tensor *x, choir_shape order);
/** Selects `length` entries of dimension dim, beginning at start. */
choir_tensor *choir_narrow(choir_tensor *x, int dim, int64_t start, int64_t length);
/** Stretches dimensions of size 1, as NumPy broadcasts. */
choir_tensor *choir_expand(choir_tensor *x, choir_shape shape);
/** Returns x if its memory is row-major, else a copy that is. */
choir_tensor *choir_contiguous(choir_tensor *x);
/** Joins tensors whose shapes agree in all dimensions except dim. Copies. */
choir_tensor *choir_cat(choir_tensor *const *parts, int count, int dim);
/** Joins tensors of one shape along a new dimension dim: scalars become a vector. Copies. */
choir_tensor *choir_stack(choir_tensor *const *parts, int count, int dim);
/** Splits x into views of `size` entries of dimension dim; the last view has the rest. Stores
 * them in parts, which has room for `room` views, and returns their number. Errors: shape,
 * argument; then one poisoned part is stored. */
int choir_split_dim(choir_tensor *x, int64_t size, int dim, choir_tensor **parts, int room);
/** Splits x into at most `count` views of ceil(length / count) entries of dimension dim, as
 * torch.chunk does: 10 entries in 4 chunks give 3, 3, 3 and 1, while 5 entries in 4 chunks
 * give only three views of 2, 2 and 1. Stores them in parts and returns their number. */
int choir_chunk(choir_tensor *x, int count, int dim, choir_tensor **parts);
/** Converts x to another dtype; copies unless x has it already. Differentiable for floats. What
 * numbers out of range become is said in ops.h. */
choir_tensor *choir_cast(choir_tensor *x, choir_dtype dtype);
/** Moves x to another device; copies unless x is on it already. Differentiable. */
choir_tensor *choir_to(choir_tensor *x, choir_device *device);

#ifdef __cplusplus
}
#endif
#endif
