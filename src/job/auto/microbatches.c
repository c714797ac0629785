/* The cut of --strategy auto: M follows from the job alone, never from the machine, so that the
 * same command has the same bits everywhere.
 *
 * M limits how many ranks can share a batch, so more is better while each micro-batch has
 * enough work: launching its kernels and adding its gradients take time of their own. Measured
 * on two cores, an mlp of 200,000 parameters benefits from two ranks from 40 MFLOP a step on,
 * and a rank with less than fifty samples, or tokens, for each parameter loses more to its
 * update than it gains. Where --mem-cap is too small for the whole model, memory decides alone.
 * Batch norm needs samples, too: a micro-batch's statistics are its own. */
#include "job/auto/auto.h"

#include "base/base.h"

/* LEAST_FLOP: of a micro-batch, about 200 us of one core. LEAST_SHARED: of a rank whose kernels
 * several cores share, about 15 ms of one; in shorter steps the threads wait for each other too
 * often. LEAST_PER_PARAMETER: 6 FLOP times 50 items. TEAM: of its ideal speed a team of cores
 * reaches so much, an estimate. BYTES: of a parameter with its gradient and Adam's moments, and
 * as much again for results. SAMPLES: of a micro-batch with batch norm. */
static const double LEAST_FLOP = 16e6, LEAST_SHARED = 1e9, LEAST_PER_PARAMETER = 300,
                    TEAM = 0.75, BYTES = 32;
enum { MOST = 8, SAMPLES = 16 };

static bool is_worth(const choir__auto_case *c, int64_t m)
{
    const double own = c->flop / (double)m;
    if (c->batch % m)
        return false;
    if (c->cap > 0 && (double)c->parameters * BYTES > c->cap) /* ranks should share the model */
        return true;
    if (c->batch_norm && c->batch / m < SAMPLES)
        return false;
    return own >= LEAST_FLOP && own >= LEAST_PER_PARAMETER * (double)c->parameters;
}

/* The largest even number that is worth it, since most machines have an even number of devices;
 * else the largest odd one. */
int64_t choir__auto_cut(const choir__auto_case *c)
{
    for (int64_t m = MOST; m >= 2; m -= 2)
        if (is_worth(c, m))
            return m;
    for (int64_t m = MOST - 1; m >= 3; m -= 2)
        if (is_worth(c, m))
            return m;
    return 1;
}

int64_t choir__auto_threads(double flop, int devices, int ranks)
{
    return flop / ranks < LEAST_SHARED ? 1 : choir__max(1, devices / ranks);
}

double choir__auto_speed(int64_t threads)
{
    return threads > 1 ? 1 / (TEAM * (double)threads) : 1;
}
