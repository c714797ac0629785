/* Holding weights in fewer bits (choir/hold.h) for callers inside of the library, which
 * choose a type for each weight by its name, or hold only the weights that are not held yet.
 */
#ifndef CHOIR_NN_HOLD_H
#define CHOIR_NN_HOLD_H

#include <choir/hold.h>

#include "base/quant/quant.h"

/* Returns the type in which a weight is held; F32: it stays as it is. */
typedef choir__quant choir__hold_choice(const char *name, void *arg);

/* Like choir_module_hold, with types by name. A type whose blocks do not divide the rows is
 * left out. */
choir_status choir__module_hold_each(
    choir_module *module, choir__hold_choice *choice, void *arg);

/* Like choir_module_hold, for weights that are not held yet. */
choir_status choir__module_hold_rest(choir_module *module, choir_hold type, bool tables);

#endif
