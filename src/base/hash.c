/* A seed that no file can foresee, for tables whose keys come from files or from peers. It is
 * random where the kernel has random bytes already, else from the clock and the stack's
 * address. */
#include "base/hash.h"

#include <sys/random.h>
#include <time.h>

uint64_t choir__hash_secret(void)
{
    uint64_t seed;
    struct timespec now;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) == (ssize_t)sizeof seed)
        return seed;
    clock_gettime(CLOCK_MONOTONIC, &now); /* a machine that has just begun */
    return (uint64_t)now.tv_nsec * UINT64_C(0x9E3779B97F4A7C15) ^ (uint64_t)(uintptr_t)&seed;
}
