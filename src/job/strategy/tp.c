/* tp: one process per device, each with a part of the large weights. All ranks work on every
 * micro-batch. */
#include <choir/tensor_parallel.h>

#include "job/job.h"

static choir_status build(choir__job_rank *p)
{
    p->model =
        choir_tensor_parallel(p->run, p->model, p->along, choir_tensor_parallel_defaults());
    return CHOIR_OK; /* errors stick to the run */
}

static bool own_numbers(const void *keys, int ranks, int64_t microbatches)
{
    (void)keys, (void)microbatches;
    return ranks > 1;
}

const choir__cli_strategy choir__cli_strategy_tp = {
    .name = "tp",
    .help = "one process per device, large weights split by columns, rows and heads",
    .dimension = "tensor",
    .spread = CHOIR__RANKS_TOGETHER,
    .build = build,
    .step = choir__cli_strategy_plain_step,
    .own_numbers = own_numbers,
    .recovery = CHOIR__REBUILT_AS_MANY,
};
