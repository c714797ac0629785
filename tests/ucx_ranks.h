/* Work of the ranks in tests of the engine "ucx". */
#ifndef CHOIR_TEST_UCX_RANKS_H
#define CHOIR_TEST_UCX_RANKS_H

#include "ucx_fixture.h"

static inline choir__stamp stamp_of(choir__engine *e, uint64_t count)
{
    return (choir__stamp){
        .count = count, .seq = ++e->seq, .kind = CHOIR__ALL_REDUCE, .dtype = CHOIR_F32};
}

/* Every rank sends `bytes` bytes to every other. late_us: delay of the receives, in
 * microseconds. */
static inline bool swap_all(choir__engine *e, size_t bytes, int late_us)
{
    choir__request requests[2 * MAX_RANKS];
    choir__stamp stamp = stamp_of(e, bytes);
    char *out = malloc(bytes), *in[MAX_RANKS] = {0};
    int n = 0, wrong = 0;
    choir_status status = CHOIR_OK;
    memset(out, 'a' + e->rank, bytes);
    for (int r = 0; r < e->world && !status; r++)
        if (r != e->rank)
            status = e->ops->send(e, r, out, bytes, &stamp, &requests[n++]);
    usleep((unsigned)late_us);
    for (int r = 0; r < e->world && !status; r++) {
        in[r] = calloc(1, bytes);
        if (r != e->rank)
            status = e->ops->receive(e, r, in[r], bytes, &stamp, &requests[n++]);
    }
    if (!status)
        status = e->ops->wait(e, requests, n);
    for (int r = 0; r < e->world; r++) {
        for (size_t i = 0; !status && r != e->rank && i < bytes; i++)
            wrong += in[r][i] != 'a' + r;
        free(in[r]);
    }
    free(out);
    if (wrong)
        choir__engine_fail(e, CHOIR_ERR_INTERNAL, "%d of %zu bytes are wrong", wrong, bytes);
    return !e->failed;
}

static inline void do_swaps(choir__engine *e, stage *s)
{
    static const size_t sizes[] = {1, 100, 8000, 9000, 70000, 300000, 3 << 20};
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; i < CHOIR_COUNT(sizes); i++) {
            if (!swap_all(e, sizes[i], late * 3000 * e->rank))
                return;
            in_stage(s, e->rank, 2 + (int)i);
        }
}

/* Exchanges messages until a call fails. */
static inline void swap_on(choir__engine *e, stage *s)
{
    for (int i = 0; swap_all(e, 200 << (i % 12), 0); i++)
        in_stage(s, e->rank, 2 + i % 100);
}

/* Runs an all-reduce with the engine: the sum over ranks of (rank + 1) * i. */
static inline bool reduce_all(choir__engine *e, int64_t count, choir__algorithm algorithm)
{
    float *data = malloc((size_t)count * sizeof *data);
    int64_t wrong = 0;
    choir__stamp stamp = stamp_of(e, (uint64_t)count);
    stamp.algorithm = (uint8_t)algorithm;
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)((e->rank + 1) * (i % 1000));
    choir__call call = {.stamp = stamp, .in = data, .out = data};
    choir_status status = e->ops->run(e, &call);
    float ranks = (float)(e->world * (e->world + 1) / 2);
    for (int64_t i = 0; i < count && !status; i++)
        wrong += data[i] != ranks * (float)(i % 1000);
    free(data);
    if (wrong)
        choir__engine_fail(e, CHOIR_ERR_INTERNAL, "%lld of %lld sums are wrong",
            (long long)wrong, (long long)count);
    return !e->failed;
}
#endif
