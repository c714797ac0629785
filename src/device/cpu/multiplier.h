/* The engine that multiplies on CPU devices. */
#ifndef CHOIR_CPU_MULTIPLIER_H
#define CHOIR_CPU_MULTIPLIER_H

#include "base/base.h"

/* Returns true if Choir's own products multiply: CHOIR_MATH says so, or oneDNN is not built in.
 */
bool choir__cpu_own_products(void);

/* Reports a CHOIR_MATH that names no engine of this build. */
choir_status choir__cpu_check_multiplier(void);

#endif
