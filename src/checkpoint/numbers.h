/* Numbers of any type at any address, as files contain them. */
#ifndef CHOIR_NUMBERS_H
#define CHOIR_NUMBERS_H

#include <choir/tensor.h>
#include "base/base.h"

/* Returns whether `from` can be converted to `to`: any float type to any float type, through
 * f32; every other type only to itself. */
bool choir__convertible(choir_dtype to, choir_dtype from);
/* Converts in (count) of type `from` to out (count) of type `to`. */
void choir__numbers_convert(
    void *out, choir_dtype to, const void *in, choir_dtype from, size_t count);

/* Returns the index of the first entry of in (count) that is not finite as f32, or -1. */
int64_t choir__first_nonfinite(const void *in, choir_dtype dtype, size_t count, float *value);

#endif
