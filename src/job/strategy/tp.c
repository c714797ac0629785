/* tp: one process per device, each with a part of the large weights. All ranks work on every
 * micro-batch. */
#include <choir/tensor_parallel.h>

#include "job/job.h"

static choir_status build(choir__job_rank *p)
{
    choir_tensor_parallel_opts opts = choir_tensor_parallel_defaults();
    opts.slices = p->job->training.slices;
    if (choir_group_world(p->along) > 1) /* one rank has all slices: choir__job_rank_build */
        choir_tensor_parallel(p->run, p->net, p->along, opts); /* in place */
    return CHOIR_OK;                                           /* errors stick to the run */
}

const choir__cli_strategy choir__cli_strategy_tp = {
    .name = "tp",
    .help = "one process per device, large weights split by columns, rows and heads",
    .dimension = "tensor",
    .spread = CHOIR__RANKS_TOGETHER,
    .slices = true,
    .chunks = CHOIR__CHUNKS_BELOW,
    .build = build,
    .step = choir__cli_strategy_plain_step,
    .recovery = CHOIR__REBUILT_AS_MANY,
};
