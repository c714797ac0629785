/* Scrambled Sobol points: a sequence in the unit cube that fills it evenly.
 *
 * Of any 2^k points that begin at a multiple of 2^k, each coordinate has one in each of 2^k
 * equal intervals, and nearly the same holds for the boxes of pairs of coordinates. Owen's
 * scrambling, which follows from the key, keeps that, and makes each point uniformly
 * distributed.
 *
 * Sources: Sobol, "On the distribution of points in a cube" (1967); Dick, Kuo, Pillichshammer,
 * Sloan, "Construction algorithms for polynomial lattice rules" (2005), for the measure that
 * chooses direction numbers; Owen, "Randomly permuted (t,m,s)-nets" (1995). */
#ifndef CHOIR_TUNE_SOBOL_H
#define CHOIR_TUNE_SOBOL_H

#include "base/base.h"

typedef struct choir__sobol choir__sobol;

enum { CHOIR__SOBOL_MAX = 256 }; /* coordinates */

/* Returns the sequence of points of `dims` coordinates. */
choir__sobol *choir__sobol_new(int dims, uint64_t key);
void choir__sobol_free(choir__sobol *s);
/* Returns coordinate `dim`, in [0, 1), of point `index`, below 2^32. */
double choir__sobol_at(const choir__sobol *s, int64_t index, int dim);

#endif
