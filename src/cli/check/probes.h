/* Small calls of each kind of op: `choir info --kernels` looks how they are computed, and
 * `choir check` what comes out. */
#ifndef CHOIR_CLI_CHECK_PROBES_H
#define CHOIR_CLI_CHECK_PROBES_H

#include <choir/choir.h>

/* An op on x, and on w unless its shape is a scalar's. The sizes are those from which on
 * products are not small. */
typedef struct choir__probe {
    const char *name; /* NULL: the table's end */
    choir_shape x, w;
    choir_tensor *(*op)(choir_tensor *x, choir_tensor *w);
} choir__probe;

extern const choir__probe choir__probes[];

enum { CHOIR__PROBE_DTYPES = 4 };
extern const choir_dtype choir__probe_dtypes[CHOIR__PROBE_DTYPES];

/* Returns an operand: random numbers of the name and the step. leaf: it needs a gradient;
 * *source is then the tensor that gets one, before the cast to dtype. May be NULL. */
choir_tensor *choir__probe_operand(choir_scope *step, choir_shape shape, const char *name,
    choir_dtype dtype, bool leaf, choir_tensor **source);

#endif
