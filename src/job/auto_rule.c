/* The rule of --strategy auto, without the job around it: see auto_rule.h.
 *
 * Ranks of ddp each have the model and their own micro-batches. A rank adds to a step its
 * share of the all-reduce and the whole update of its copy of the parameters, and takes off its
 * share of the products. So ranks pay while a step has enough work for each:
 * measured on two cores, an mlp of 200,000 parameters gains from 40 MFLOP a step on, and one
 * rank with less than fifty samples, or tokens, for each parameter loses more to its update
 * than it gains. Batch norm needs samples, too: a micro-batch's statistics are its own. Where
 * devices have a limit of memory that the whole model would exceed, ranks share it. */
#include "job/auto_rule.h"

#include "base/base.h"

/* LEAST_FLOP: per rank, about 200 us of one core. LEAST_SHARED: of a rank whose kernels several
 * cores share, about 15 ms of one; in shorter steps the threads wait for each other too often.
 * LEAST_PER_PARAMETER: 6 FLOP times 50 items. BYTES: of a parameter with its gradient and
 * Adam's moments, and as much again for results. SAMPLES: of a micro-batch with batch norm. */
static const double LEAST_FLOP = 16e6, LEAST_SHARED = 1e9, LEAST_PER_PARAMETER = 300,
                    BYTES = 32;
enum { SAMPLES = 16 };

bool choir__auto_shards(const choir__auto_case *c)
{
    return c->cap > 0 && (double)c->parameters * BYTES > c->cap;
}

static bool pays(const choir__auto_case *c, int ranks)
{
    int64_t m = c->microbatches ? c->microbatches : ranks;
    double own = c->flop / ranks, parameters = (double)c->parameters;
    if (m % ranks || c->batch % m)
        return false;
    if (choir__auto_shards(c)) /* one device would lack room: time does not decide */
        return true;
    if (c->batch_norm && !c->microbatches && c->batch / m < SAMPLES)
        return false;
    if (c->memory > 0 && parameters * BYTES * ranks > c->memory)
        return false;
    return own >= LEAST_FLOP && own >= LEAST_PER_PARAMETER * parameters;
}

int choir__auto_ranks(const choir__auto_case *c)
{
    int ranks = (int)choir__min(c->devices, c->batch);
    while (ranks > 1 && !pays(c, ranks))
        ranks--;
    return ranks > 1 ? ranks : 1;
}

int choir__auto_threads(const choir__auto_case *c, int ranks)
{
    return c->flop / ranks < LEAST_SHARED ? 1 : choir__max(1, c->devices / ranks);
}
