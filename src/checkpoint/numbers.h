/* Numbers of files: of any type, at any address. */
#ifndef CHOIR_NUMBERS_H
#define CHOIR_NUMBERS_H

#include <choir/tensor.h>
#include "base/base.h"

/* Floats become floats of any size, by way of f32; other types only themselves. */
bool choir__convertible(choir_dtype to, choir_dtype from);
/* out (count) of type `to` = in (count) of type `from`. */
void choir__numbers_convert(
    void *out, choir_dtype to, const void *in, choir_dtype from, size_t count);

/* The index of the first of in (count) that is not finite as f32; -1: all are. */
int64_t choir__first_nonfinite(const void *in, choir_dtype dtype, size_t count, float *value);

#endif
