/* The code maps of 8-bit optimizer state, made at the first use: the middles of intervals that
 * are equal within a decade, finer towards 1. A table of cells by the upper bits of a float
 * finds the nearest code without a search. */
#include "device/code_map.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

static choir__code_maps maps;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Appends the middles of the 2^power intervals into which [0.1, 1] * 10^(decade - 6) is cut,
 * ascending in magnitude, or mirrored below 0. */
static int add_decade(float *value, int decade, int power, bool mirrored)
{
    static const float scale[] = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
    int count = 1 << power;
    for (int i = 0; i < count; i++) {
        float low = (float)(0.1 + 0.9 * i / count), high = (float)(0.1 + 0.9 * (i + 1) / count);
        float middle = scale[decade] * ((low + high) / 2);
        value[mirrored ? count - 1 - i : i] = mirrored ? -middle : middle;
    }
    return count;
}

/* Returns the code nearest to the least number of a cell. The first cell also has all numbers
 * nearer to 0. */
static uint8_t least_of(const choir__code_map *map, int sign, int cell)
{
    uint32_t bits = (uint32_t)(CHOIR__FIRST_CELL + cell + sign) << 16;
    float least;
    int code = 0;
    memcpy(&least, &bits, sizeof least);
    least = sign ? -least : cell ? least : 0;
    while (least > map->middle[code])
        code++;
    return (uint8_t)code;
}

static void fill(choir__code_map *map, bool has_sign)
{
    int n = 0;
    for (int decade = 6; has_sign && decade >= 0; decade--)
        n += add_decade(&map->value[n], decade, decade, true);
    map->value[n++] = 0;
    for (int decade = 0; decade < 7; decade++)
        n += add_decade(&map->value[n], decade, has_sign ? decade : decade + 1, false);
    map->value[n] = 1;
    for (int i = 0; i < 255; i++)
        map->middle[i] = (map->value[i] + map->value[i + 1]) * 0.5f;
    map->middle[255] = INFINITY;
    for (int sign = 0; sign < 2; sign++)
        for (int cell = 0; cell < CHOIR__CODE_CELLS; cell++)
            map->least[sign][cell] = least_of(map, sign, cell);
}

static void fill_both(void)
{
    fill(&maps.m, true);
    fill(&maps.v, false);
}

const choir__code_maps *choir__code_maps_get(void)
{
    pthread_once(&once, fill_both);
    return &maps;
}
