/* single: one process on one device, the baseline of the other strategies. */
#include "job/job.h"

static choir_status build(choir__job_rank *p)
{
    (void)p;
    return CHOIR_OK;
}

const choir__job_strategy choir__job_strategy_single = {
    .name = "single",
    .help = "one device",
    .chunks = CHOIR__CHUNKS_BELOW,
    .family = CHOIR__UNDIVIDED,
    .spread = CHOIR__ONE_DEVICE,
    .micro_each = 1,
    .build = build,
    .step = choir__job_strategy_plain_step,
};
