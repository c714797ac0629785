/* 16-bit floats: the dtype in which an op computes, and the dtype in which its result is
 * stored. */
#ifndef CHOIR_AUTOCAST_INTERNAL_H
#define CHOIR_AUTOCAST_INTERNAL_H

#include "tensor/op.h"

/* Facts of a tensor that holds a parameter's values in another dtype
 * (autograd/param_casts.c). */
typedef struct choir__param_cast {
    choir_tensor *of;   /* the parameter, or another cast of it */
    uint64_t values;    /* choir__values_of it, when the cast was made */
    choir_tensor *next; /* next in the scope's list of casts */
    int readers;        /* number of entries on the tape that have it as an operand */
} choir__param_cast;

/* Returns the scope's cast of a parameter, which it makes for the first op that needs it. */
choir_tensor *choir__cast_param(choir_scope *scope, choir_tensor *x, choir_dtype dtype);
/* Returns memory for x's values in another dtype. */
choir_tensor *choir__cast_like(choir_scope *scope, const choir_tensor *x, choir_dtype dtype);

/* The last part of choir__begin: casts operands to the dtypes in which the op computes, as its
 * choir__op says. bf16 and f16 operands become f32, with a tape entry, except for products and
 * on devices whose kernels all take 16-bit floats. Returns false if the scope has an error. */
bool choir__set_dtypes(choir_scope *scope, const choir__op *op, choir_tensor **in, int count);
/* Returns the op's result in the dtype in which the op received its operands, and releases
 * their f32 copies. */
choir_tensor *choir__as_stored(choir_tensor *y);
/* Casts x to another floating dtype on x's device, with a tape entry. */
choir_tensor *choir__cast_in_place(choir_scope *scope, choir_tensor *x, choir_dtype dtype);
/* Makes a released cast again. */
choir_status choir__cast_again(choir_tensor *t);
/* Returns x's values as f32, without a tape entry: x itself, or a copy in scope. */
choir_tensor *choir__wide(choir_scope *scope, choir_tensor *x);
extern const choir__op choir__cast_op, choir__recast_op, choir__widen_op;

static inline bool choir__is_half(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

/* Returns the dtype of the tensors that accompany operands of `dtype`: norms' weights,
 * statistics, losses. */
static inline choir_dtype choir__beside(choir_dtype dtype)
{
    return choir__is_half(dtype) ? CHOIR_F32 : dtype;
}

/* True if an op made y in f32 and choir__as_stored will round it, so that y itself is not
 * kept. */
static inline bool choir__to_be_rounded(const choir_tensor *y)
{
    return choir__is_half(y->scope->op.stored) && !choir__is_half(y->dtype);
}

#endif
