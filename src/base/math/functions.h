/* exp, log, pow, sin and others: the same bits on every processor, with every compiler and
 * beside every C library. libm's last bits differ between its versions, between libraries, and
 * with the processor under one library. Therefore no number that reaches a weight, a loss, a
 * random draw or a decision may come from it, and nothing in the library or the command calls
 * its inexact functions (script/imports). What IEEE 754 defines to the last bit stays C's:
 * sqrt, fabs, fma, floor, rint, fmod, ldexp and the like.
 *
 * Each function adds, subtracts, multiplies and divides doubles in one written order, with
 * about 65 bits or more until the last rounding. The result is nearly always the double next to
 * the exact one: errors are below 0.502 ulp, 0.51 for choir__exp, 0.7 for choir__erfc and 1.5
 * for choir__erf, as unit.math measures. Results for zeros, infinities, NaN and denormals
 * follow C's Annex F; errno and the flags of floating-point exceptions mean nothing. f32
 * results are f64 ones, rounded. Callers round to nearest. */
#ifndef CHOIR_MATH_FUNCTIONS_H
#define CHOIR_MATH_FUNCTIONS_H

double choir__exp(double x);
double choir__log(double x);
double choir__log1p(double x);
double choir__expm1(double x);
double choir__log10(double x);
double choir__pow(double x, double y);
/* The result of choir__pow, rounded, in less time. */
float choir__powf(float x, float y);

/* For every double: huge ones are reduced by as many bits of pi as they need. choir__sin_cos
 * gives the results of both functions in less time. */
double choir__sin(double x);
double choir__cos(double x);
double choir__tan(double x);
void choir__sin_cos(double x, double *sine, double *cosine);

/* Box and Muller's two normal draws from uniform ones, u in [2^-1022, 1] and a turn in [0, 1]:
 *   a = sqrt(-2 log u) cos(2 pi turn),  b = sqrt(-2 log u) sin(2 pi turn)
 * with errors of a few 2^-53 of the root, which suffice for floats. */
void choir__normal_pair(double u, double turn, double *a, double *b);

double choir__atan(double x);
double choir__tanh(double x);
double choir__erfc(double x);
double choir__erf(double x);

#endif
