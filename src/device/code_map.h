/* The numbers for which the codes of 8-bit optimizer state stand. */
#ifndef CHOIR_CODE_MAP_H
#define CHOIR_CODE_MAP_H

#include <stdint.h>
#include <string.h>

enum {
    CHOIR__FIRST_CELL = (127 - 24) << 7, /* cell of 2^-24; below it zero is the nearest code */
    CHOIR__CODE_CELLS = (24 << 7) + 1
};

/* A dynamic tree (Dettmers, 2016): each of seven powers of ten has twice as many numbers as the
 * one below, evenly spread over its last 9/10; 0 and 1 are added. bitsandbytes'
 * create_dynamic_map gives these numbers. */
typedef struct choir__code_map {
    float value[256];  /* ascending */
    float middle[256]; /* between value[i] and value[i + 1]; the last is infinite */
    /* the code nearest to a cell's smallest number; cells are indexed by the sign, the exponent
     * and seven bits of the fraction, for magnitudes from 2^-24 to 1 */
    uint8_t least[2][CHOIR__CODE_CELLS];
} choir__code_map;

/* Returns the code whose number is nearest to x, for x from -1 to 1; the code of 0 for NaN. All
 * numbers of a cell have one of two adjacent codes, so a look-up and one comparison find it. */
static inline uint8_t choir__code_of(const choir__code_map *map, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t cell = (int64_t)((bits & 0x7fffffff) >> 16) - CHOIR__FIRST_CELL;
    cell = !(x == x) || cell < 0 ? 0 : cell < CHOIR__CODE_CELLS ? cell : CHOIR__CODE_CELLS - 1;
    uint8_t code = map->least[bits >> 31][cell];
    while (x > map->middle[code])
        code++;
    return code;
}

typedef struct choir__code_maps {
    choir__code_map m,
        v; /* maps of first moments, with signs, and of second moments, without */
} choir__code_maps;

/* Returns the maps. Any thread. */
const choir__code_maps *choir__code_maps_get(void);

#endif
