/* The registry of strategies, and what several of them share. */
#include "cli/strategy/strategy.h"

#include <stdio.h>
#include <string.h>

#include <choir/autograd.h>

#include "base/options.h"
#include "cli/job.h"
#include "tensor/tensor.h"

const choir__strategy *const choir__strategies[] = {
    &choir__strategy_single,
    &choir__strategy_dp,
    &choir__strategy_dp_balanced,
    &choir__strategy_ddp,
    &choir__strategy_fsdp,
    &choir__strategy_tp,
    &choir__strategy_mp,
    &choir__strategy_pipeline,
    &choir__strategy_hogwild,
    &choir__strategy_diloco,
    &choir__strategy_local_sgd,
    NULL,
};

choir_status choir__strategy_find(const char *text, const choir__strategy **strategy)
{
    char name[64], list[320] = "";
    choir_status status = choir__options_name(text, name, sizeof name);
    if (status != CHOIR_OK)
        return status;
    for (int i = 0; choir__strategies[i]; i++) {
        if (!strcmp(choir__strategies[i]->name, name)) {
            *strategy = choir__strategies[i];
            return CHOIR_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "",
            choir__strategies[i]->name);
    }
    return choir__error(
        CHOIR_ERR_ARGUMENT, "there is no strategy '%s'; there are %s", name, list);
}

int choir__strategy_workers(const choir__job *job)
{
    int product = 1;
    switch (job->strategy->spread) {
    case CHOIR__ALL_DEVICES: return job->device_count;
    case CHOIR__DEVICE_A_RANK:
    case CHOIR__RANKS_TOGETHER: return job->nproc;
    case CHOIR__ON_A_MESH:
        for (int d = 0; d < job->composition.count; d++)
            product *= job->composition.dims[d].size;
        return product;
    default: return 1;
    }
}

int choir__strategy_dealt(const choir__job *job)
{
    int product = 1;
    for (int d = 0; d < job->composition.count; d++)
        if (job->composition.dims[d].strategy->spread == CHOIR__DEVICE_A_RANK)
            product *= job->composition.count > 1 ? job->composition.dims[d].size : job->nproc;
    return product;
}

int64_t choir__strategy_microbatches(const choir__job *job)
{
    const choir__composition *c = &job->composition;
    int64_t product = 1;
    for (int d = 0; d < c->count; d++) {
        int64_t each = c->dims[d].strategy->micro_each;
        int size = c->count > 1 ? c->dims[d].size : choir__strategy_workers(job);
        product *= each ? each * size : 1;
    }
    return product;
}

bool choir__strategy_is_whole(const choir__job *job)
{
    for (int d = 0; d < job->composition.count; d++) {
        choir__spread spread = job->composition.dims[d].strategy->spread;
        if (spread != CHOIR__ONE_DEVICE && spread != CHOIR__DEVICE_A_RANK)
            return false;
    }
    return true;
}

choir_status choir__strategy_plain_step(choir_scope *step, choir__cli_part *p)
{
    const choir__model_info *info = &p->job->info;
    choir_status status = CHOIR_OK;
    for (int64_t m = 0; m < p->micro_count && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, p->micro_first + m);
        choir_batch b;
        status = choir_loader_next(p->loader, micro, &b);
        if (status == CHOIR_OK) {
            choir_tensor *out = choir__model_forward(info, p->model, b.x, b.y);
            choir_tensor *loss = choir__cli_part_scaled(p, choir__model_loss(info, out, b.y));
            status = choir_backward(loss);
            p->losses[m] = choir_keep(p->run, loss);
        }
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    p->loss_count = p->micro_count;
    return status;
}

/* --- single --- */

static choir_status parse_single(const char *text, choir__strategy_options *options)
{
    (void)options;
    return choir__options_parse(text, "strategy single", (choir__option[]){{NULL}});
}

static choir_status build_single(choir__cli_part *p)
{
    (void)p;
    return CHOIR_OK;
}

const choir__strategy choir__strategy_single = {
    .name = "single",
    .options = "",
    .help = "one device",
    .spread = CHOIR__ONE_DEVICE,
    .parse = parse_single,
    .micro_each = 1,
    .build = build_single,
    .step = choir__strategy_plain_step,
};
