/* The promise: at six micro-batches a step, 1, 2 and 3 processes end with the same bits. */
#include <stdio.h>
#include <string.h>
#include <choir/choir.h>

static int train(int rank, int world, void *arg)
{
    choir_env env;
    choir_check(choir_env_init(&env));
    env.microbatches = 6;
    int64_t first, count;
    ...
}
