/* Sobol points: see sobol.h.
 *
 * A coordinate has a generator matrix C of bits: the digits of the coordinate are C times the
 * digits of the point's index. The matrix follows from a primitive polynomial of degree s over
 * two elements, and from s free numbers. Published tables list good ones; here they are found
 * when a sequence is made. Each coordinate tries some, and takes those whose pairs with the
 * coordinates before are the most even by Joe and Kuo's measure. */
#include "tune/sampler/qmc/sobol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { BITS = 32, MEASURED = 14, DEGREES = 12 };

struct choir__sobol {
    int dims;
    uint64_t key;
    uint32_t (*column)[BITS]; /* (dims) of C, the first digit in the highest bit */
    uint32_t (*row)[BITS];    /* (dims) of C, the first column in the lowest bit */
};

/* --- generator matrices --- */

/* Returns whether the polynomial, bit i of which is the coefficient of x^i, is primitive: the
 * powers of x modulo it are all but 0. */
static bool primitive(uint32_t polynomial, int degree)
{
    uint32_t power = 1, order = 0;
    do {
        power <<= 1;
        if (power >> degree)
            power ^= polynomial;
        order++;
    } while (power > 1 && order < 1u << degree);
    return power == 1 && order == (1u << degree) - 1;
}

/* Finds the next polynomial after *polynomial, by degree. */
static int next_polynomial(uint32_t *polynomial, int degree)
{
    do {
        *polynomial += 2;
        if (*polynomial >> (degree + 1))
            degree++;
    } while (!primitive(*polynomial, degree));
    return degree;
}

/* Fills in columns from the first `degree` numbers, odd and below 2^(i + 1). */
static void fill_columns(
    uint32_t column[BITS], uint32_t polynomial, int degree, const uint32_t *number)
{
    for (int i = 0; i < degree; i++)
        column[i] = number[i] << (BITS - 1 - i);
    for (int i = degree; i < BITS; i++) {
        column[i] = column[i - degree] ^ (column[i - degree] >> degree);
        for (int k = 1; k < degree; k++)
            if (polynomial >> (degree - k) & 1)
                column[i] ^= column[i - k];
    }
}

static void fill_rows(uint32_t row[BITS], const uint32_t column[BITS])
{
    memset(row, 0, BITS * sizeof *row);
    for (int i = 0; i < BITS; i++)
        for (int k = 0; k < BITS; k++)
            row[i] |= (column[k] >> (BITS - 1 - i) & 1) << k;
}

/* --- the measure --- */

/* Reduces a row by those of a basis, whose member b has b as its lowest bit, and adds the
 * remainder. Returns false if that is 0. */
static bool add_row(uint32_t basis[BITS], uint32_t row)
{
    while (row) {
        int lowest = __builtin_ctz(row);
        if (!basis[lowest]) {
            basis[lowest] = row;
            return true;
        }
        row ^= basis[lowest];
    }
    return false;
}

/* The quality t of the first 2^m points of two coordinates: every box of volume 2^(t - m) has
 * equally many. The first a rows of one and b of the other are independent for a + b = m - t.
 */
static int quality(const uint32_t *x, const uint32_t *y, int m)
{
    uint32_t mask = (uint32_t)(((uint64_t)1 << m) - 1), begun[BITS] = {0};
    int least = m;
    for (int a = 0; a <= least; a++) {
        uint32_t basis[BITS];
        int b = 0;
        memcpy(basis, begun, sizeof basis);
        while (a + b < least && add_row(basis, y[b] & mask))
            b++;
        least = a + b < least ? a + b : least;
        if (!add_row(begun, x[a] & mask))
            break;
    }
    return m - least;
}

/* Joe and Kuo's measure with q = 6, the greatest over the coordinates before: less is better.
 * Given up beyond `most`. */
static double measure(
    uint32_t (*row)[BITS], int dim, const uint32_t candidate[BITS], double most)
{
    double worst = 0;
    for (int d = dim - 1; d >= 0 && worst < most; d--)
        for (int m = 2; m <= MEASURED; m += 2) {
            int t = quality(row[d], candidate, m);
            double value = pow(t, 6) / (m - t + 1) * pow(0.9999, d);
            worst = value > worst ? value : worst;
        }
    return worst;
}

/* Chooses the free numbers of a coordinate; the more coordinates there are, the fewer it tries.
 */
static void choose(choir__sobol *s, int dim, uint32_t polynomial, int degree)
{
    int tries = dim < 16 ? 128 : 2048 / dim;
    double least = (double)INFINITY;
    uint64_t key = choir__rng_key((uint64_t)dim, "sobol");
    for (int i = 0; i < tries; i++) {
        uint32_t number[DEGREES], column[BITS], row[BITS];
        for (int k = 0; k < degree; k++) {
            key = choir__mix(key, (uint64_t)k);
            number[k] = (uint32_t)(key >> 32) & ((2u << k) - 1);
            number[k] |= 1;
        }
        fill_columns(column, polynomial, degree, number);
        fill_rows(row, column);
        double value = measure(s->row, dim, row, least);
        if (value < least) {
            least = value;
            memcpy(s->column[dim], column, sizeof column);
            memcpy(s->row[dim], row, sizeof row);
        }
    }
}

choir__sobol *choir__sobol_new(int dims, uint64_t key)
{
    choir__sobol *s = choir__calloc(1, sizeof *s);
    s->dims = dims;
    s->key = key;
    s->column = choir__calloc((size_t)dims, sizeof *s->column);
    s->row = choir__calloc((size_t)dims, sizeof *s->row);
    uint32_t polynomial = 1;
    int degree = 1;
    for (int d = 0; d < dims; d++) {
        if (d > 0) {
            degree = next_polynomial(&polynomial, degree);
            choose(s, d, polynomial, degree);
            continue;
        }
        for (int i = 0; i < BITS; i++) /* van der Corput's: the digits backwards */
            s->column[0][i] = (uint32_t)1 << (BITS - 1 - i);
        fill_rows(s->row[0], s->column[0]);
    }
    return s;
}

void choir__sobol_free(choir__sobol *s)
{
    if (!s)
        return;
    free(s->column);
    free(s->row);
    free(s);
}

/* --- points --- */

/* Flips each digit or leaves it, as the digits before it decide; digits below the sequence's
 * are random. */
static double scramble(uint32_t digits, uint64_t key)
{
    uint32_t flips = 0;
    for (int i = 0; i < BITS; i++) {
        uint64_t before = ((uint64_t)1 << i) | ((uint64_t)digits >> (BITS - i));
        flips |= (uint32_t)(choir__mix(key, before) & 1) << (BITS - 1 - i);
    }
    uint64_t below = choir__mix(key, ((uint64_t)1 << BITS) | digits) >> 43;
    return (double)(((uint64_t)(digits ^ flips) << 21) | below) * 0x1p-53;
}

double choir__sobol_at(const choir__sobol *s, int64_t index, int dim)
{
    uint32_t digits = 0;
    for (int i = 0; index; i++, index >>= 1)
        if (index & 1)
            digits ^= s->column[dim][i];
    return scramble(digits, choir__mix(s->key, (uint64_t)dim));
}
