/* tp: one process per device, each with a part of the large weights. All ranks work on every
 * micro-batch. */
#include <choir/tensor_parallel.h>

#include "job/job.h"

typedef struct tp_keys {
    bool sequence_parallel;
} tp_keys;

static const choir__line_option keys[] = {
    {"sequence_parallel", CHOIR__FLAG, CHOIR__LINE_AT(tp_keys, sequence_parallel),
        .preset = "0", .recorded = CHOIR__RECORDED_FREE},
    {NULL},
};

static bool shares_tokens(const void *own)
{
    const tp_keys *k = own;
    return k->sequence_parallel;
}

static choir_status build(choir__job_rank *p)
{
    const tp_keys *k = p->at->keys;
    choir_tensor_parallel_opts opts = choir_tensor_parallel_defaults();
    opts.slices = p->job->training.slices;
    opts.sequence_parallel = k->sequence_parallel;
    if (choir_group_world(p->along) > 1) /* one rank has all slices: choir__job_rank_build */
        choir_tensor_parallel(p->run, p->net, p->along, opts); /* in place */
    return CHOIR_OK;                                           /* errors stick to the run */
}

/* A replica of the ranks turns as a whole. */
static bool turns_ranks(const void *own)
{
    (void)own;
    return true;
}

const choir__job_strategy choir__job_strategy_tp = {
    .name = "tp",
    .help = "one process per device, large weights split by columns, rows and heads",
    .dimension = "tensor",
    .divides = CHOIR__SLICES,
    .spread = CHOIR__RANKS_TOGETHER,
    .parts = true,
    .slices = true,
    .chunks = CHOIR__CHUNKS_BELOW,
    .keys = keys,
    .keys_bytes = sizeof(tp_keys),
    .shares_tokens = shares_tokens,
    .build = build,
    .step = choir__job_strategy_plain_step,
    .turns_ranks = turns_ranks,
    .recovery = CHOIR__REBUILT_AS_MANY,
};
