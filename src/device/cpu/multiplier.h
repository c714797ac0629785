/* The engine that multiplies on CPU devices. Each is a class of bits: the processors that have
 * it give the same results. */
#ifndef CHOIR_CPU_MULTIPLIER_H
#define CHOIR_CPU_MULTIPLIER_H

#include "base/base.h"

typedef enum choir__multiplier {
    CHOIR__BY_ONEDNN, /* the instruction set changes its bits */
    CHOIR__BY_CHAIN,  /* our own products (product/product.h) */
    CHOIR__BY_AMX     /* the same, but bf16 in the order of TDPBF16PS (product/pairs_tile.h) */
} choir__multiplier;

choir__multiplier choir__cpu_multiplies(void);

/* Returns true if Choir's own products multiply: CHOIR_MATH says so, or oneDNN is not built in.
 */
bool choir__cpu_own_products(void);

/* Reports a CHOIR_MATH that names no engine of this build. */
choir_status choir__cpu_check_multiplier(void);

#endif
