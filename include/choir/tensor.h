/* Tensors: shaped, strided views of device memory.
 *
 * A tensor belongs to a scope, which frees it; handles are never freed one by one. Ops return
 * new tensors at once, while the device works behind; choir_item and choir_read wait. Ops never
 * return NULL: see scope.h on errors. Shapes are outermost first.
 *
 * Backward frees the memory of intermediate results as it consumes them: what is wanted
 * afterwards is kept with choir_keep before.
 *
 * Threads: those of the tensor's scope. */
#ifndef CHOIR_TENSOR_H
#define CHOIR_TENSOR_H

#include <choir/dtype.h>
#include <choir/scope.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CHOIR_MAX_DIMS = 6 };

/** Sizes by value: choir_dims(64, 784). */
typedef struct choir_shape {
    int ndim;
    int64_t dim[CHOIR_MAX_DIMS];
} choir_shape;

#define choir_dims(...)                                                                        \
    (choir_shape)                                                                              \
    {                                                                                          \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),                                    \
        {                                                                                      \
            __VA_ARGS__                                                                        \
        }                                                                                      \
    }

/** The shape (): one value. */
#define CHOIR_SCALAR ((choir_shape){0, {0}})

choir_shape choir_tensor_shape(const choir_tensor *t);
int choir_tensor_ndim(const choir_tensor *t);
/** Size of dimension dim; negative dims count from the end. 0 if there is no such dimension. */
int64_t choir_tensor_size(const choir_tensor *t, int dim);
int64_t choir_tensor_count(const choir_tensor *t);
choir_dtype choir_tensor_dtype(const choir_tensor *t);
choir_device *choir_tensor_device(const choir_tensor *t);
choir_scope *choir_tensor_scope(const choir_tensor *t);

/* --- making --- */

choir_tensor *choir_zeros(choir_scope *scope, choir_dtype dtype, choir_shape shape);
choir_tensor *choir_full(
    choir_scope *scope, choir_dtype dtype, choir_shape shape, double value);

/** A copy of host memory: count(shape) values of dtype, row-major. */
choir_tensor *choir_from(
    choir_scope *scope, choir_dtype dtype, choir_shape shape, const void *data);

/** Uniform in [low, high), or normal; keyed by the run's seed, step and `name`. f32. */
choir_tensor *choir_rand(
    choir_scope *scope, choir_shape shape, const char *name, double low, double high);
choir_tensor *choir_randn(choir_scope *scope, choir_shape shape, const char *name);

/** Asks for t's gradient: t must be a leaf of f32 or f64. Returns t. */
choir_tensor *choir_require_grad(choir_tensor *t);

/** The gradient choir_backward left for a leaf or a parameter, over all micro-batches since the
 * last optimizer step; NULL if there is none. Looking at a parameter's completes it: the next
 * backward starts anew. For parameters under a group: collective. */
choir_tensor *choir_grad(choir_tensor *t);

/* --- reading: these wait --- */

/** The value of a tensor of one element; NaN on error. */
double choir_item(const choir_tensor *t);

/** Copies all of t, row-major, in its own dtype. bytes must be count * size. */
choir_status choir_read(const choir_tensor *t, void *data, size_t bytes);

/** Overwrites t from host memory, in place. A backward that had saved it then fails. */
choir_status choir_write(choir_tensor *t, const void *data, size_t bytes);

/** Prints shape, dtype, device and, shortened, the values, as PyTorch does. */
void choir_print(const choir_tensor *t);

/* --- views: no copy, unless said --- */

/** One dimension may be -1. Copies if the memory order asks for it. */
choir_tensor *choir_reshape(choir_tensor *x, choir_shape shape);
/** Dimensions from `first` on become one. */
choir_tensor *choir_flatten(choir_tensor *x, int first);
choir_tensor *choir_transpose(choir_tensor *x, int dim0, int dim1);
choir_tensor *choir_permute(choir_tensor *x, choir_shape order);
/** length entries of dimension dim from start on. */
choir_tensor *choir_narrow(choir_tensor *x, int dim, int64_t start, int64_t length);
/** Dimensions of size 1 stretch, as NumPy broadcasts. */
choir_tensor *choir_expand(choir_tensor *x, choir_shape shape);
/** Row-major memory: x itself, or a copy. */
choir_tensor *choir_contiguous(choir_tensor *x);
/** Joins tensors that agree but for dimension dim. Copies. */
choir_tensor *choir_cat(choir_tensor *const *parts, int count, int dim);
/** Joins tensors of one shape along a new dimension dim: scalars become a vector. Copies. */
choir_tensor *choir_stack(choir_tensor *const *parts, int count, int dim);
/**
 * Views of `size` entries of dimension dim, the last one of what is left, in parts, which has
 * room for `room` of them. Returns how many there are. Errors: shape, argument, with one
 * poisoned part.
 */
int choir_split_dim(choir_tensor *x, int64_t size, int dim, choir_tensor **parts, int room);
/** The same, count views of ceil(length / count) entries; so 10 in 4 are pieces of 3, 3, 3 and
 * 1, and 5 in 4 are only three, of 2, 2 and 1. */
int choir_chunk(choir_tensor *x, int count, int dim, choir_tensor **parts);
/** Another dtype; copies unless it has that already. Floats: differentiable. */
choir_tensor *choir_cast(choir_tensor *x, choir_dtype dtype);
/** x on another device; copies unless it is there. Differentiable. */
choir_tensor *choir_to(choir_tensor *x, choir_device *device);

#ifdef __cplusplus
}
#endif
#endif
