/* Normal draws and powers of floats: frequent uses that need fewer than 53 bits of exp, log,
 * sin and cos. Each intermediate value is one double here; exp_log.c and trig.c explain the
 * formulas. */
#include <math.h>
#include <stdlib.h>

#include "base/math/functions.h"
#include "base/math/log_split.h"

/* log x for normal x > 0, with a relative error of about 2^-52. */
static inline double quick_log(double x)
{
    log_split s = log_begin(x);
    double z = s.r.hi, square = z * z;
    double p = (1.0 / 5 - z * (1.0 / 6)) + square * (1.0 / 7 - z * (1.0 / 8));
    p = (1.0 / 3 - z * (1.0 / 4)) + square * p;
    dd whole = log_end(s);
    return whole.hi + (z + (whole.lo + square * (z * p - 0.5)));
}

static inline double sine_of(int i)
{
    dd s = choir__sin_table[64 - abs(64 - (i & 127))];
    return (1 - 2 * (i >> 7 & 1)) * (s.hi + s.lo);
}

void choir__normal_pair(double u, double turn, double *a, double *b)
{
    double radius = sqrt(-2 * quick_log(u)), n = dd_round(turn * 256);
    double r =
        (turn - n * (1.0 / 256)) * 0x1.921fb54442d18p2; /* 2 pi; the difference is exact */
    double z = r * r, sine = ((1.0 / 120 - z * (1.0 / 5040)) * z - 1.0 / 6) * z * r + r;
    double cosine = ((1.0 / 24 - z * (1.0 / 720)) * z - 0.5) * z;
    int i = (int)n;
    double s = sine_of(i), c = sine_of(i + 64);
    *a = radius * (c + (c * cosine - s * sine));
    *b = radius * (s + (s * cosine + c * sine));
}

float choir__powf(float x, float y)
{
    if (x > 0 && x < INFINITY) {
        double log = (double)y * quick_log((double)x);
        if (fabs(log) < 87) { /* a normal float, with a relative error of less than 2^-43 */
            double power = choir__exp(log);
            int64_t bits;
            memcpy(&bits, &power, sizeof bits);
            int64_t middle = (bits & 0x1fffffff) - 0x10000000; /* between floats */
            if (middle < -0x1000 || middle > 0x1000)
                return (float)power;
        }
    }
    return (float)choir__pow((double)x, (double)y);
}
