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

/* Checks the entries in (count) of a tensor named `name`, all of it or a part. Counters pass.
 * Returns `code` and names the file, the tensor and the first entry that is not finite. */
typedef struct choir__checked {
    const char *path, *name;
    choir_shape whole;
    choir_dtype dtype;
    bool part; /* the entries are a part of the whole */
} choir__checked;
choir_status choir__check_finite(
    choir_status code, const choir__checked *what, const void *in, size_t count);

#endif
