/* 16-bit floats: the dtype in which an op computes, and in which its result is stored. */
#ifndef CHOIR_AUTOCAST_INTERNAL_H
#define CHOIR_AUTOCAST_INTERNAL_H

#include "tensor/op.h"

/* What a tensor has that holds a parameter's values in another dtype. */
typedef struct choir__param_cast {
    choir_tensor *of;   /* the parameter, or another cast of it */
    choir_tensor *next; /* in the scope's list of casts */
    int readers;        /* records on the tape of which it is an operand */
} choir__param_cast;

/* The end of choir__begin: casts operands to the dtype that the op computes in, which the
 * choir__op says. bf16 and f16 operands become f32, recorded, except for products and on
 * devices whose kernels all take 16-bit floats. false: the scope has an error. */
bool choir__set_dtypes(choir_scope *scope, const choir__op *op, choir_tensor **in, int count);
/* Returns the result of an op that was begun, in the dtype in which its operands came; releases
 * their f32 copies. */
choir_tensor *choir__as_stored(choir_tensor *y);
/* x in another floating dtype, recorded, on x's device. */
choir_tensor *choir__cast_in_place(choir_scope *scope, choir_tensor *x, choir_dtype dtype);
/* Makes a cast that was released once more. */
choir_status choir__cast_again(choir_tensor *t);
/* x's values as f32, without a record: x itself, or a copy in scope. */
choir_tensor *choir__wide(choir_scope *scope, choir_tensor *x);
extern const choir__op choir__cast_op, choir__recast_op, choir__widen_op;

static inline bool choir__is_half(choir_dtype dtype)
{
    return dtype == CHOIR_BF16 || dtype == CHOIR_F16;
}

/* The dtype of what accompanies operands of `dtype`: norms' weights, statistics, losses. */
static inline choir_dtype choir__beside(choir_dtype dtype)
{
    return choir__is_half(dtype) ? CHOIR_F32 : dtype;
}

/* True if an op made y in f32 and choir__as_stored will round it: y itself is not kept. */
static inline bool choir__to_be_rounded(const choir_tensor *y)
{
    return choir__is_half(y->scope->stored) && !choir__is_half(y->dtype);
}

#endif
