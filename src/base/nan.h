/* One NaN for files, hashes and comparisons. Which NaN an operation returns depends on the
 * processor (the default one is negative on x86-64 and positive on ARM), and on the order of
 * its operands, which is the compiler's choice; all other results have the same bits. */
#ifndef CHOIR_NAN_H
#define CHOIR_NAN_H

#include <stddef.h>
#include <choir/dtype.h>

/* Replaces each NaN among `count` floats by the positive quiet one without payload: 0x7fc00000
 * for f32, and alike for f64, bf16 and f16. Other dtypes stay as they are. */
void choir__one_nan(void *data, choir_dtype dtype, size_t count);

#endif
