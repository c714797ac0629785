/* Minimises smooth functions in a box, by L-BFGS. */
#ifndef CHOIR_TUNE_MINIMIZE_H
#define CHOIR_TUNE_MINIMIZE_H

#include "base/base.h"

enum { CHOIR__MINIMIZE_MAX = 260 }; /* variables */

/* A function of x (n): returns its value, infinity where it has none, and stores its gradient.
 */
typedef double (*choir__function)(void *of, const double *x, double *gradient);

/* Moves x (n) from where it is towards a least value inside the box from low (n) to high (n),
 * and returns the value there. It ends when no element of the gradient that points inwards
 * exceeds `tolerance`, or after `steps` steps. */
double choir__minimize(choir__function f, void *of, int n, const double *low,
    const double *high, double tolerance, int steps, double *x);

#endif
