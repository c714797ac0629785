/* Llama 3's rotary positions: each frequency is divided by a factor of its wave length. A GGUF
 * file has the factors, and config.json has their origin. Other programs compute factors in
 * f32, so a comparison has a tolerance. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "checkpoint/gguf/family.h"

void choir__gguf_factors(
    const choir__gguf_llama3 *s, double theta, int64_t width, float *factors)
{
    for (int64_t i = 0; i < width / 2; i++) {
        const double wave =
            2 * 3.14159265358979323846 * choir__pow(theta, 2 * (double)i / (double)width);
        const double smooth = (s->original / wave - s->low) / (s->high - s->low);
        factors[i] =
            (float)(wave < s->original / s->high  ? 1
                    : wave > s->original / s->low ? s->factor
                                                  : 1 / ((1 - smooth) / s->factor + smooth));
    }
}

static bool alike(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-3f * fabsf(b[i])))
            return false;
    return true;
}

bool choir__gguf_factors_known(
    const float *factors, double theta, int64_t width, choir__gguf_llama3 *s)
{
    enum { LEAST = 16, MOST = 1 << 20 }; /* original contexts */
    float *made = choir__calloc((size_t)width / 2 + 1, sizeof *made);
    *s = (choir__gguf_llama3){.factor = 1, .low = 1, .high = 4};
    for (int64_t i = 0; i < width / 2; i++) /* the longest wave has all of it */
        s->factor = factors[i] > s->factor ? (double)factors[i] : s->factor;
    bool found = false;
    for (int64_t original = LEAST; !found && original <= MOST; original *= 2) {
        s->original = (double)original;
        choir__gguf_factors(s, theta, width, made);
        found = alike(factors, made, width / 2);
    }
    free(made);
    return found;
}
