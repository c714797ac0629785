/* The engine that multiplies on CPU devices. Each is a class of bits: results depend on the
 * class, and not on the processor that computes it. A process has one class at a time. */
#ifndef CHOIR_CPU_MULTIPLIER_H
#define CHOIR_CPU_MULTIPLIER_H

#include "base/base.h"

typedef enum choir__multiplier {
    CHOIR__BY_ONEDNN, /* the version and the instruction set change its bits */
    CHOIR__BY_CHAIN,  /* our own products (product/product.h) */
    CHOIR__BY_AMX,    /* the same, but bf16 in the order of TDPBF16PS (product/pairs_tile.h) */
    CHOIR__MULTIPLIERS
} choir__multiplier;

/* Counts the changes of what the classes of our own products compute. 2: convolutions by quads
 * (product/winograd.h). */
enum { CHOIR__ARITHMETIC = 2 };

/* The class of this process: the job's, CHOIR_MATH's, or the chain. */
choir__multiplier choir__cpu_multiplies(void);
const char *choir__multiplier_name(choir__multiplier class);

/* Returns the class of that name, or CHOIR__MULTIPLIERS. */
choir__multiplier choir__multiplier_named(const char *name);

/* Returns true if this process can compute the class. */
bool choir__multiplier_is_here(choir__multiplier class);

/* Returns the class that CHOIR_MATH names, or CHOIR__MULTIPLIERS. */
choir__multiplier choir__multiplier_wanted(void);

/* The process computes in this class until as many calls drop it. Errors: state (a job of
 * another class runs). choir__multiplier_is_taken: until then. */
choir_status choir__multiplier_take(choir__multiplier class);
void choir__multiplier_drop(void);
bool choir__multiplier_is_taken(void);

/* Returns true if Choir's own products multiply. */
bool choir__cpu_own_products(void);

/* Reports a CHOIR_MATH that names no engine of this build. */
choir_status choir__cpu_check_multiplier(void);

#endif
