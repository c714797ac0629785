/* The positions of a vision transformer for images of another size: the square of its patches'
 * positions is resized by bicubic interpolation, with the numbers of torch's interpolate (A =
 * -0.75, edges repeated), as transformers does it. The class's position stays. */
#include <math.h>
#include <string.h>

#include "nn/models/vit.h"

static const float bend = -0.75f;

/* Returns the weight of a number at a distance from 1 to 2. */
static float far(float x)
{
    return ((bend * x - 5 * bend) * x + 8 * bend) * x - 4 * bend;
}

/* Returns the weight of a number at a distance from 0 to 1. */
static float near(float x)
{
    return ((bend + 2) * x - (bend + 3)) * x * x + 1;
}

/* Four places of a side and their weights, for a place of another side. */
typedef struct taps {
    int64_t at[4];
    float weight[4];
} taps;

static taps taps_of(int64_t place, int64_t from, int64_t to)
{
    float scale = (float)from / (float)to;
    float real = scale * ((float)place + 0.5f) - 0.5f, below = floorf(real), x = real - below;
    taps t = {.weight = {far(x + 1), near(x), near(1 - x), far(2 - x)}};
    for (int k = 0; k < 4; k++)
        t.at[k] = choir__min(choir__max((int64_t)below - 1 + k, 0), from - 1);
    return t;
}

/* Returns the side of a square of patches beside which the class has a row, or 0. */
static int64_t side_of(int64_t rows)
{
    int64_t side = (int64_t)sqrt((double)(rows - 1));
    return rows > 1 && side * side == rows - 1 ? side : 0;
}

bool choir__vit_fit(
    const char *name, const float *stored, choir_shape from, choir_shape wanted, float *values)
{
    if (strcmp(name, CHOIR__VIT_PLACES) != 0 || from.ndim != 3 || from.dim[0] != 1 ||
        from.dim[2] != wanted.dim[2])
        return false;
    int64_t a = side_of(from.dim[1]), b = side_of(wanted.dim[1]), width = from.dim[2];
    if (!a || !b)
        return false;
    memcpy(values, stored, (size_t)width * sizeof *values);
    for (int64_t row = 0; row < b; row++)
        for (int64_t column = 0; column < b; column++) {
            taps y = taps_of(row, a, b), x = taps_of(column, a, b);
            float *out = values + (1 + row * b + column) * width;
            for (int64_t c = 0; c < width; c++) {
                float sum = 0;
                for (int j = 0; j < 4; j++) {
                    const float *line = stored + (1 + y.at[j] * a) * width + c;
                    float across = 0;
                    for (int k = 0; k < 4; k++)
                        across += line[x.at[k] * width] * x.weight[k];
                    sum += across * y.weight[j];
                }
                out[c] = sum;
            }
        }
    return true;
}
