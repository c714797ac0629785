/* hogwild: one process per device. All train one set of weights without waiting for each other.
 */
#include <choir/hogwild.h>

#include "job/job.h"

static choir_status build(choir__job_rank *p)
{
    choir_hogwild_opts opts = choir_hogwild_defaults();
    opts.group = p->along;
    p->model = choir_hogwild(p->run, p->model, opts);
    return CHOIR_OK; /* errors stick to the run */
}

static choir_status meet(choir__job_rank *p)
{
    choir_status status =
        choir_hogwild_exchange(p->net); /* all ranks have added their updates */
    return status == CHOIR_OK ? choir_device_sync(p->env.device) : status;
}

static choir_status resumed(choir__job_rank *p)
{
    return choir_hogwild_restart(p->net, p->env.group);
}

static bool own_numbers(const void *keys, int ranks, int64_t microbatches)
{
    (void)keys, (void)microbatches;
    return ranks > 1;
}

static const char *forgets(const void *keys, int ranks)
{
    (void)keys;
    return ranks > 1 ? "the numbers of several ranks differ from run to run" : NULL;
}

const choir__job_strategy choir__job_strategy_hogwild = {
    .name = "hogwild",
    .help = "one process per device, one set of weights, no locks",
    .spread = CHOIR__DEVICE_A_RANK,
    .micro_each = 1,
    .build = build,
    .step = choir__job_strategy_plain_step,
    .meet = meet,
    .resumed = resumed,
    .own_numbers = own_numbers,
    .recovery = CHOIR__IN_PLACE,
    .forgets = forgets,
};
