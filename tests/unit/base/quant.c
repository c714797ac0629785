/* Weights in few bits: q8_0, q4_0 and q5_0 are written with the bytes of the package gguf, q4_K
 * and q6_K with llama.cpp's. Hashes of these bytes, and of values that are read, are recorded
 * here; tests/interop/gguf/ compares with the programs themselves. Any part of a row is read as
 * it is in the whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/quant/quant.h"
#include "base/rng.h"
#include "conformance/blocks_fixture.h"

enum { N = 256 * 24 };

/* Numbers of many sizes; some runs are all zeros, or all equal. */
static void fill(float *x)
{
    for (int i = 0; i < N; i += 4) {
        uint32_t word[4];
        choir__philox(38, 0, (uint64_t)i, word);
        for (int j = 0; j < 4; j++)
            x[i + j] = ldexpf(choir__unit(word[j]) - 0.5f, i / 256 % 20 - 14);
    }
    memset(x + 512, 0, 300 * sizeof *x);
    for (int i = 1024; i < 1100; i++)
        x[i] = 0.25f;
}

static uint64_t hash(const void *data, int64_t bytes)
{
    return choir__hash_bytes(CHOIR__HASH_SEED, data, (size_t)bytes);
}

static const struct {
    choir__quant type;
    uint64_t bytes, values; /* hashes */
} recorded[] = {
    {CHOIR__F16, UINT64_C(0x47854288fa4026a2), UINT64_C(0xe275be1dacead2eb)},
    {CHOIR__BF16, UINT64_C(0xcba106d2bea6ac6f), UINT64_C(0xd8020d60e68e54ff)},
    {CHOIR__Q8_0, UINT64_C(0xc719dcd8005c486f), UINT64_C(0x41852309b7f03bbf)},
    {CHOIR__Q4_0, UINT64_C(0xc02031a85154f3e6), UINT64_C(0x779aaeef1fb5ca65)},
    {CHOIR__Q5_0, UINT64_C(0x4bfe828351f2787f), UINT64_C(0xb5885382f6b27b5d)},
    {CHOIR__Q4_K, UINT64_C(0x96082b6c9931ced0), UINT64_C(0x072f9b2e188f01b0)},
    {CHOIR__Q6_K, UINT64_C(0xeb5a57134da97a34), UINT64_C(0x925ecde7994f84fb)},
    {CHOIR__Q4_1, UINT64_C(0x62f7610a4c0360c9), UINT64_C(0x1eed52daa139e3d6)},
    {CHOIR__Q5_1, UINT64_C(0xb292a7ae8d170c55), UINT64_C(0xe47fd9f9ba88e550)},
    {CHOIR__Q2_K, UINT64_C(0x4c897b92c3f58cd0), UINT64_C(0x586492ec4e53308b)},
    {CHOIR__Q3_K, UINT64_C(0xfd91bdc627b9715d), UINT64_C(0x21423eae138db768)},
    {CHOIR__Q5_K, UINT64_C(0xe4c7fa6460bd4105), UINT64_C(0x78a23a680795d4dc)},
};

static void bytes_are_others(void **state)
{
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    uint8_t *b = malloc(N * sizeof *x);
    fill(x);
    for (size_t i = 0; i < CHOIR_COUNT(recorded); i++) {
        const choir__quant type = recorded[i].type;
        some_blocks(type, b, x, N, 1);
        choir__quant_decode(type, y, b, 0, N);
        const uint64_t bytes = hash(b, choir__quant_bytes(type, N)), values = hash(y, N * 4);
        if (bytes != recorded[i].bytes || values != recorded[i].values)
            fail_msg("%s: bytes 0x%llx, values 0x%llx", choir__quant_types[type].name,
                (unsigned long long)bytes, (unsigned long long)values);
    }
    free(x);
    free(y);
    free(b);
}

static void parts_are_as_in_the_whole(void **state)
{
    static const int64_t parts[][2] = {
        {0, 1}, {7, 300}, {31, 2}, {64, 192}, {255, 514}, {N - 1, 1}};
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y),
          *part = malloc(N * sizeof *part);
    uint8_t *b = malloc(N * sizeof *x);
    fill(x);
    for (int type = 0; type < CHOIR__QUANT_COUNT; type++) {
        some_blocks((choir__quant)type, b, x, N, 1);
        choir__quant_decode((choir__quant)type, y, b, 0, N);
        for (size_t i = 0; i < CHOIR_COUNT(parts); i++) {
            choir__quant_decode((choir__quant)type, part, b, parts[i][0], parts[i][1]);
            assert_memory_equal(part, y + parts[i][0], (size_t)parts[i][1] * sizeof *y);
        }
    }
    free(x);
    free(y);
    free(part);
    free(b);
}

static void numbers_and_limits(void **state)
{
    const float most[] = {65504, 65536, NAN, INFINITY};
    for (int type = 0; type < CHOIR__QUANT_COUNT; type++) {
        assert_int_equal(choir__quant_of_gguf(choir__quant_types[type].gguf), type);
        assert_false(choir__quant_fits((choir__quant)type, most + 2, 1));
    }
    assert_int_equal(choir__quant_of_gguf(20), CHOIR__QUANT_COUNT);
    assert_string_equal(choir__quant_stranger(20), "iq4_nl");
    assert_null(choir__quant_stranger(99));
    assert_true(choir__quant_fits(CHOIR__F16, most, 1));
    assert_false(choir__quant_fits(CHOIR__F16, most + 1, 1));
    assert_true(choir__quant_fits(CHOIR__Q4_0, most + 1, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_others),
        cmocka_unit_test(parts_are_as_in_the_whole),
        cmocka_unit_test(numbers_and_limits),
    };
    return cmocka_run_group_tests_name("quant", tests, NULL, NULL);
}
