/* Random delays as pure functions of a seed and two numbers. */
#include "base/base.h"
#include "base/math/functions.h"
#include "base/rng.h"
#include "forecast/replay.h"

#include <math.h>

/* Returns the quantile of the normal distribution whose upper tail is `tail`, below a half, by
 * Abramowitz and Stegun's 26.2.23, with an error below 4.5e-4. */
static double upper(double tail)
{
    double t = sqrt(-2 * choir__log(tail));
    return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                   (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

double choir__largest_of(uint64_t seed, uint64_t draw, uint64_t number, double n)
{
    uint32_t bits[4];
    choir__philox(seed, draw, number, bits);
    double u = ((double)bits[0] + 0.5) * 0x1p-32;
    /* The largest of n is below x with probability Phi(x)^n, so Phi(x) = u^(1/n). */
    double power = choir__log(u) / n, below = choir__exp(power);
    double tail = below > 0.5 ? -power * (1 + power * (0.5 + power / 6)) : 1 - below;
    return tail < 0.5 ? upper(tail) : -upper(1 - tail > 1e-300 ? 1 - tail : 1e-300);
}
