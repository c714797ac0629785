/* Inside tensors.
 *
 * A tensor is a handle in its scope's arena: shape, strides, and a counted reference to
 * storage. Scopes are in scope.h. op.h says how ops make and record results, and launch.h has
 * the kernels that work on tensors without a tape entry. */
#ifndef CHOIR_TENSOR_INTERNAL_H
#define CHOIR_TENSOR_INTERNAL_H

#include <choir/ops.h>
#include <choir/tensor.h>
#include "tensor/storage.h"

typedef struct choir__tape_entry choir__tape_entry;
typedef struct choir__param choir__param;
typedef struct choir__hook choir__hook;
typedef struct choir__partition choir__partition;

struct choir_tensor {
    choir_scope *scope;
    choir__storage *storage; /* NULL: poisoned, or freed by backward */
    choir_device *device;    /* device of the storage, also after that is freed */
    choir_shape shape;
    int64_t stride[CHOIR_MAX_DIMS]; /* elements */
    int64_t count, offset;          /* elements */
    choir_dtype dtype;
    bool requires_grad, poisoned, freed, kept;
    bool watched;      /* a hook has seen the tensor and may come back to it */
    bool grad_owned;   /* a backward may add to grad's memory */
    bool for_products; /* a model says so: several products read it, so its gradient is f32 */
    bool of_params;    /* an op's result; its operands are parameters, such results, and tensors
                          of the run */
    choir_tensor *grad;          /* during backward; of a leaf, also afterwards */
    choir__tape_entry *producer; /* NULL: a leaf */
    choir__param *param;         /* parameter, whose gradient is in a book; else NULL */
    choir__hook *hooks;
    /* Rare properties; NULL: this tensor does not have them. */
    const choir__partition *split;    /* not NULL: one rank's part of a tensor (strategy.h) */
    const struct choir__held *held;   /* a weight in fewer bits, as words: held.h */
    struct choir__route *route;       /* made in a pipeline: strategy.h */
    struct choir__released *released; /* set while its memory is released (segment.h) */
    struct choir__param_cast *cast;   /* a parameter's values in another dtype: autocast.h */
    /* values in 16 bits, written by the same kernel: of a gradient (ops/add.c) or a norm */
    choir_tensor *twin;
    choir_tensor *next; /* next in the scope's list, for closing */
};

/* --- making and releasing handles --- */

/* Makes a handle without memory in scope. */
choir_tensor *choir__tensor_bare(choir_scope *scope, choir_dtype dtype, choir_shape shape);
/* Makes a row-major, uninitialised tensor. If memory runs out, records the error and returns a
 * poisoned tensor. */
choir_tensor *choir__tensor_new(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape);
/* Makes a tensor with the dtype and shape of x, and with x's memory order if that is dense;
 * otherwise row-major. */
choir_tensor *choir__tensor_like(choir_scope *scope, const choir_tensor *x);
/* Makes a tensor whose rows begin `row` elements apart. */
choir_tensor *choir__tensor_spaced(choir_scope *scope, choir_device *device, choir_dtype dtype,
    choir_shape shape, int64_t row);
/* Makes a view of x's memory, without history. */
choir_tensor *choir__tensor_alias(choir_scope *scope, const choir_tensor *x);
/* Makes a view of `length` entries of x along dimension dim, from `start` on. */
choir_tensor *choir__tensor_part(
    choir_scope *scope, choir_tensor *x, int dim, int64_t start, int64_t length);
/* Makes a tensor over memory that the caller keeps alive. */
choir_tensor *choir__tensor_wrap(
    choir_scope *scope, choir_device *device, choir_dtype dtype, choir_shape shape, void *data);
/* Allocates memory for a handle that has none. Returns false, with the error recorded, if
 * memory runs out. */
bool choir__tensor_allocate(choir_tensor *t, choir_device *device);
/* Releases the tensor's memory, and its twin's; the handle stays, marked as freed. */
void choir__tensor_release(choir_tensor *t);
/* Releases the tensor's twin, for one: the tensor's values change. */
void choir__drop_twin(choir_tensor *t);

/* --- where and how the values are stored --- */

void *choir__data(const choir_tensor *t);
/* Returns whether t is a parameter or computed from parameters, so it has no tokens and is
 * equal on all ranks that have the parameters. */
static inline bool choir__is_weight(const choir_tensor *t)
{
    return t->param || t->of_params;
}
choir_device *choir__device_of(const choir_tensor *t);
bool choir__is_contiguous(const choir_tensor *t);
/* True if t's order is some permutation of row-major, without holes. */
bool choir__is_dense(const choir_tensor *t);
bool choir__same_layout(const choir_tensor *a, const choir_tensor *b);
/* Returns the elements from one row of t as a matrix to the next, at least its columns; 0: its
 * rows are not evenly apart, or not contiguous. A row-major tensor returns its columns. */
int64_t choir__row_of(const choir_tensor *t);
void choir__set_row_major(choir_tensor *t);
/* Row-major, but for rows that begin `row` elements apart. */
void choir__set_rows(choir_tensor *t, int64_t row);
/* Returns rows [first, first + rows) of t as a handle of the caller's, which is not released.
 */
choir_tensor choir__rows_view(const choir_tensor *t, int64_t first, int64_t rows);
void choir__set_channels_last(choir_tensor *t); /* logically (N, C, ...) */
/* Returns x with channels last in memory: x itself, or a copy in scope. */
choir_tensor *choir__channels_last(choir_scope *scope, choir_tensor *x);

/* --- shapes and dtypes --- */

bool choir__same_shape(choir_shape a, choir_shape b);
/* Stores the shape to which a and b broadcast, as NumPy's do. Returns false if they do not. */
bool choir__broadcast(choir_shape a, choir_shape b, choir_shape *out);
int64_t choir__shape_count(choir_shape shape);
/* Returns true if a tensor can have the shape: its dimensions are not negative, and its bytes
 * and strides can be counted. */
bool choir__shape_fits(choir_shape shape);
/* Returns a poisoned tensor of the scope: no tensor can have the shape. `what` precedes the
 * sentence: "" or, for example, "parameter 'weight': ". */
choir_tensor *choir__bad_shape(choir_scope *scope, const char *what, choir_shape shape);
/* Returns a text such as "(2, 3)", in one of a few static buffers of this thread. */
const char *choir__shape_text(choir_shape shape);
/* Sets the least and the greatest double of a dtype of whole numbers. */
void choir__range_of(choir_dtype dtype, double *least, double *most);
/* Returns whether the value, without its fraction, can be converted to the dtype. */
bool choir__holds(choir_dtype dtype, double value);
/* Returns a poisoned tensor: the dtype does not hold the value. */
choir_tensor *choir__bad_value(
    choir_scope *scope, const char *op, choir_dtype dtype, double value);
/* Converts a dimension that is counted from the end (-1) to one counted from the front. Returns
 * false if x has no such dimension. */
bool choir__fix_dim(const choir_tensor *x, int *dim);
choir_tensor *choir__bad_dim(const char *op, choir_tensor *x, int dim);
bool choir__is_float(choir_dtype dtype);

/* Returns the message that choir_device_find left when it returned NULL. */
const char *choir__missing_device(void);

/* Rows and columns of t as a matrix: the last dimension against all others. */
static inline int64_t choir__cols(const choir_tensor *t)
{
    return t->shape.ndim ? t->shape.dim[t->shape.ndim - 1] : 1;
}

static inline int64_t choir__rows(const choir_tensor *t)
{
    int64_t cols = choir__cols(t);
    return cols ? t->count / cols : 0;
}

#endif
