/* Sampling of cases: on the soft GPU, which takes seconds for work that a real GPU does in
 * milliseconds, and of combinations of strategies, models and ranks, of which there are many.
 *
 * SOFTGPU_SAMPLE=SEED makes a test run some of its cases, different ones for each seed; without
 * it a test runs all of them. script/test chooses a seed, CHOIR_TEST_SAMPLE, prints it and
 * passes it on (tests/softgpu/with_gpu.sh); script/test --full and a real GPU leave nothing
 * out. */
#ifndef CHOIR_TEST_SAMPLE_H
#define CHOIR_TEST_SAMPLE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/rng.h"

static inline bool sample_seed(const char *variable, uint64_t *seed)
{
    const char *text = getenv(variable);
    *seed = text ? strtoull(text, NULL, 10) : 0;
    return text && *text;
}

/* Returns whether this run samples the cases of the soft GPU, and the seed if it does. */
static inline bool sampling(uint64_t *seed)
{
    return sample_seed("SOFTGPU_SAMPLE", seed);
}

/* Returns whether the GPU of this process is the software-emulated one. */
static inline bool on_soft_gpu(void)
{
    return dlopen("libsoftgpu.so", RTLD_NOW | RTLD_NOLOAD) != NULL;
}

/* Four random words, different ones at each call. */
static inline void sample_words(uint64_t seed, uint32_t words[4])
{
    static uint64_t calls;
    choir__philox(seed, 77, calls++, words);
}

/* Returns true for one case of n on average; for every case where the run does not sample. */
static inline bool sample_one_of(uint32_t n)
{
    uint64_t seed;
    uint32_t words[4];
    if (!sampling(&seed))
        return true;
    sample_words(seed, words);
    return words[0] % n == 0;
}

/* Returns n if a run tries one trial of a kernel in n: SOFTGPU_SAMPLE_RATE, which is larger
 * where a checker makes each trial slower. */
static inline uint32_t sample_rate(void)
{
    const char *text = getenv("SOFTGPU_SAMPLE_RATE");
#ifdef __SANITIZE_ADDRESS__
    uint32_t usual = 12;
#else
    uint32_t usual = 4;
#endif
    return text ? (uint32_t)strtoul(text, NULL, 10) : usual;
}

/* Returns true for one combination of n on average, on any machine. */
static inline bool sample_combination(uint32_t n)
{
    uint64_t seed;
    uint32_t words[4];
    if (!sample_seed("CHOIR_TEST_SAMPLE", &seed))
        return true;
    sample_words(seed, words);
    return words[0] % n == 0;
}

#endif
