/* Types in which files and models keep weights, blocks of few bits among them.
 *
 * A row of a matrix is cut into blocks of equally many values. A block has integers of a few
 * bits and their factors; GGUF files have the same bytes. Reading a value is
 * one formula for processors and GPUs (decode.h), bit for bit what the package `gguf` computes.
 *
 *     q8_0   32 values: scale (f16), 32 bytes
 *     q4_0   32 values: scale (f16), 32 x 4 bits minus 8
 *     q5_0   32 values: scale (f16), 32 x 5 bits minus 16
 *     q4_K  256 values: two scales (f16), 8 scales and 8 minima of 6 bits, 256 x 4 bits
 *     q6_K  256 values: 16 scales of 8 bits, one scale (f16), 256 x 6 bits
 *
 * These are read, but not written, because published files have them and Choir makes none:
 *
 *     q4_1, q5_1    as q4_0 and q5_0, with a minimum (f16) in place of the middle
 *     q2_K, q5_K    as q4_K, with 2 and 5 bits; q2_K's 16 scales and minima have 4 bits
 *     q3_K          as q6_K, with 3 bits; its scales have 6 bits
 *
 * Pure functions, any thread. */
#ifndef CHOIR_QUANT_H
#define CHOIR_QUANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each row has the name, its text, the values and the bytes of a block, and GGUF's number. */
#define CHOIR__QUANT_LIST(X)                                                                   \
    X(F32, "f32", 1, 4, 0)                                                                     \
    X(F16, "f16", 1, 2, 1)                                                                     \
    X(BF16, "bf16", 1, 2, 30)                                                                  \
    X(Q8_0, "q8_0", 32, 34, 8)                                                                 \
    X(Q4_0, "q4_0", 32, 18, 2)                                                                 \
    X(Q5_0, "q5_0", 32, 22, 6)                                                                 \
    X(Q4_K, "q4_K", 256, 144, 12)                                                              \
    X(Q6_K, "q6_K", 256, 210, 14)                                                              \
    X(Q4_1, "q4_1", 32, 20, 3)                                                                 \
    X(Q5_1, "q5_1", 32, 24, 7)                                                                 \
    X(Q2_K, "q2_K", 256, 84, 10)                                                               \
    X(Q3_K, "q3_K", 256, 110, 11)                                                              \
    X(Q5_K, "q5_K", 256, 176, 13)

typedef enum choir__quant {
#define X(name, text, values, bytes, gguf) CHOIR__##name,
    CHOIR__QUANT_LIST(X)
#undef X
        CHOIR__QUANT_COUNT
} choir__quant;

typedef struct choir__quant_type {
    const char *name;
    int64_t values, bytes; /* per block */
    uint32_t gguf;         /* number in GGUF files */
} choir__quant_type;

extern const choir__quant_type choir__quant_types[CHOIR__QUANT_COUNT];

/* Returns the type of this number in GGUF files; CHOIR__QUANT_COUNT: no type has it. */
choir__quant choir__quant_of_gguf(uint32_t number);
/* Returns the name of a type of GGUF files that is not read here, or NULL. */
const char *choir__quant_stranger(uint32_t number);

/* Returns the bytes of n values, a multiple of a block's. */
static inline int64_t choir__quant_bytes(choir__quant type, int64_t n)
{
    return n / choir__quant_types[type].values * choir__quant_types[type].bytes;
}

/* Returns whether values can be written in this type. */
bool choir__quant_is_written(choir__quant type);

/* Writes n finite values, a multiple of a block's, as bytes of a type that is written. Values
 * beyond a type's range become its infinities, as files would have them; see choir__quant_fits.
 */
void choir__quant_encode(choir__quant type, void *to, const float *values, int64_t n);
/* Reads values [first, first + n) of a row. */
void choir__quant_decode(
    choir__quant type, float *values, const void *row, int64_t first, int64_t n);

/* Returns whether n values, a multiple of a block's, are all finite. */
bool choir__quant_is_finite(choir__quant type, const void *row, int64_t n);

/* Returns whether all values can be written: scales of blocks are f16. */
bool choir__quant_fits(choir__quant type, const float *values, int64_t n);

/* Encoders of whole blocks. */
void choir__quant_encode_q4_k(uint8_t *to, const float *values, int64_t blocks);
void choir__quant_encode_q6_k(uint8_t *to, const float *values, int64_t blocks);

#endif
