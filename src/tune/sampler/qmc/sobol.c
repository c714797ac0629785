/* Sobol points: see sobol.h.
 *
 * A coordinate has a generator matrix C of bits: the digits of the coordinate are C times the
 * digits of the point's index. The matrix follows from a primitive polynomial of degree s over
 * two elements, and from s free numbers. Published tables list good ones; here they are found
 * when a sequence is made: each coordinate tries some, and takes those that, together with the
 * coordinates before, give means of functions the least error. */
#include "tune/sampler/qmc/sobol.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/functions.h"
#include "base/rng.h"

enum { BITS = 32, MEASURED = 11, DEGREES = 12 };

struct choir__sobol {
    int dims;
    uint64_t key;
    /* (dims) columns of the matrix C, with the first digit in the highest bit */
    uint32_t (*column)[BITS];
};

/* --- generator matrices --- */

/* Returns whether the polynomial, whose bit i is the coefficient of x^i, is primitive: the
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

/* --- the measure --- */

/* The worst error of a mean over the first 2^m points, squared, in a space of functions in
 * which any set of coordinates counts `weight` to the power of its size: it is 1 less than the
 * mean over the points of the product over the coordinates of these factors. */
static double factor(uint32_t digits, double weight)
{
    double power = digits ? ldexp(0.5, 31 - __builtin_clz(digits) - BITS) : 0;
    return 1 + weight * (1 - 6 * power);
}

/* Sums the logarithm of that error over m. product: (2^MEASURED) of the coordinates before;
 * replaced if `taken`. The points come in the order of a Gray code, which has the same first
 * 2^m. */
static double measure(const uint32_t column[BITS], double weight, double *product, bool taken)
{
    double sum = 0, value = 0;
    uint32_t digits = 0;
    for (uint32_t i = 0; i < 1u << MEASURED; i++) {
        if (i)
            digits ^= column[__builtin_ctz(i)];
        double p = product[i] * factor(digits, weight);
        if (taken)
            product[i] = p;
        sum += p - 1;
        if (i >= 3 && !(i & (i + 1)))
            value += choir__log(fmax(sum / (i + 1), 1e-300));
    }
    return value;
}

/* Chooses the free numbers of a coordinate; the more coordinates there are, the fewer it
 * tries. */
static void choose(
    choir__sobol *s, int dim, uint32_t polynomial, int degree, double weight, double *product)
{
    int tries = dim < 16 ? 128 : 2048 / dim;
    double least = (double)INFINITY;
    uint64_t key = choir__rng_key((uint64_t)dim, "sobol");
    for (int i = 0; i < tries; i++) {
        uint32_t number[DEGREES], column[BITS];
        for (int k = 0; k < degree; k++) {
            key = choir__mix(key, (uint64_t)k);
            number[k] = ((uint32_t)(key >> 32) & ((2u << k) - 1)) | 1;
        }
        fill_columns(column, polynomial, degree, number);
        double value = measure(column, weight, product, false);
        if (value < least) {
            least = value;
            memcpy(s->column[dim], column, sizeof column);
        }
    }
}

choir__sobol *choir__sobol_new(int dims, uint64_t key)
{
    choir__sobol *s = choir__calloc(1, sizeof *s);
    s->dims = dims;
    s->key = key;
    s->column = choir__calloc((size_t)dims, sizeof *s->column);
    double *product = choir__alloc(((size_t)1 << MEASURED) * sizeof *product);
    double weight = 1.0 / dims;
    for (int i = 0; i < 1 << MEASURED; i++)
        product[i] = 1;
    for (int i = 0; i < BITS; i++) /* van der Corput's: the digits backwards */
        s->column[0][i] = (uint32_t)1 << (BITS - 1 - i);
    uint32_t polynomial = 1;
    int degree = 1;
    for (int d = 0; d < dims; d++) {
        if (d > 0) {
            degree = next_polynomial(&polynomial, degree);
            choose(s, d, polynomial, degree, weight, product);
        }
        measure(s->column[d], weight, product, true);
    }
    free(product);
    return s;
}

void choir__sobol_free(choir__sobol *s)
{
    if (!s)
        return;
    free(s->column);
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
