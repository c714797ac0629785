/* The first GPU, which the tests of a group use; without one, or without the feature that they
 * are about, they fail before they begin. */
#ifndef CHOIR_TESTS_FIRST_GPU_H
#define CHOIR_TESTS_FIRST_GPU_H

#include "check.h"
#include "base/half.h"
#include "base/rng.h"
#include "conformance/on_device.h"

static choir_device *device;

static inline int find_device(void **state)
{
    device = choir_device_find("cuda:0");
    if (!device)
        print_message("%s\n", choir_error_message());
    return device ? 0 : -1;
}

/* Returns uniform bf16 numbers, which the caller frees. */
static inline uint16_t *uniform_bf16(int64_t n, uint64_t call, float low, float high)
{
    uint16_t *x = malloc((size_t)(n + 4) * sizeof *x);
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        choir__philox(20240607, call, (uint64_t)i, word);
        for (int j = 0; j < 4; j++)
            x[i + j] = choir__bf16_from_f32(low + (high - low) * choir__unit(word[j]));
    }
    return x;
}

/* Returns memory of the device without values. */
static inline on_device room(int64_t n, size_t size)
{
    on_device d = {choir__block_new(device, (size_t)n * size), (size_t)n * size};
    assert_non_null(d.block);
    return d;
}

#endif
