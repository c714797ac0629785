/* fsdp: a process a device, each with its rows of weights, gradients and optimizer state. */
#include <choir/fsdp.h>

#include "base/options.h"
#include "cli/job.h"

static choir_status parse(const char *text, choir__strategy_options *o)
{
    int64_t stage = 3, shard_ranks = 0, gather = 0, reshard = 1;
    o->fsdp = choir_fsdp_defaults();
    choir__option known[] = {{"stage", CHOIR__INT, &stage, 1, 3},
        {"unit_params", CHOIR__INT, &o->fsdp.unit_params, 0, 1e15},
        {"unit_class", CHOIR__WORD, o->unit_class, 0, 0},
        {"shard_ranks", CHOIR__INT, &shard_ranks, -1, INT32_MAX},
        {"gather", CHOIR__INT, &gather, 0, 1}, {"reshard", CHOIR__INT, &reshard, 0, 1}, {NULL}};
    choir_status status = choir__options_parse(text, "strategy fsdp", known);
    o->fsdp.stage = (int)stage;
    o->fsdp.shard_ranks = (int)shard_ranks;
    o->fsdp.gather = gather;
    o->fsdp.reshard_after_forward = reshard;
    return status;
}

static choir_status build(choir__cli_part *p)
{
    const choir__strategy_options *o = &p->job->strategy_options;
    choir_fsdp_opts opts = o->fsdp;
    opts.unit_class = *o->unit_class ? o->unit_class : NULL;
    p->model = choir_fsdp(p->run, p->model, p->along, opts);
    if (choir_module_collective(p->model))
        p->evaluated = p->model;
    return CHOIR_OK; /* errors stick to the run */
}

static const char *const variants[] = {"fsdp:stage=1", "fsdp:stage=2", "fsdp", NULL};

const choir__cli_strategy choir__strategy_fsdp = {
    .name = "fsdp",
    .options = "[:stage=3,shard_ranks=0,unit_params=0,unit_class=NAME,gather=0,reshard=1]",
    .help = "a process a device, weights, gradients and state sharded",
    .dimension = "shard",
    .spread = CHOIR__DEVICE_A_RANK,
    .shards = true,
    .variants = variants,
    .parse = parse,
    .micro_each = 1,
    .build = build,
    .step = choir__strategy_plain_step,
};
