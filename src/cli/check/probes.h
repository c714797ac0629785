/* Small calls, one for each kind of op. `choir info --kernels` lists the kernels that compute
 * them, and `choir check` compares their results with known answers. */
#ifndef CHOIR_CLI_CHECK_PROBES_H
#define CHOIR_CLI_CHECK_PROBES_H

#include <choir/choir.h>

/* An op on x, and on w unless w's shape is a scalar's. Operands are large enough for the
 * kernels that large products use. */
typedef struct choir__probe {
    const char *name; /* NULL: the table's end */
    choir_shape x, w;
    choir_tensor *(*op)(choir_tensor *x, choir_tensor *w);
} choir__probe;

extern const choir__probe choir__probes[];

enum { CHOIR__PROBE_DTYPES = 4 };
extern const choir_dtype choir__probe_dtypes[CHOIR__PROBE_DTYPES];

/* Returns an operand: random numbers that follow from the name and the step. leaf: the operand
 * needs a gradient, and *source is the tensor that gets it, before the cast to dtype. source
 * may be NULL. */
choir_tensor *choir__probe_operand(choir_scope *step, choir_shape shape, const char *name,
    choir_dtype dtype, bool leaf, choir_tensor **source);

#endif
