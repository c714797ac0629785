/* fsdp: one process per device, each with its rows of weights, gradients and optimizer state.
 */
#include <choir/fsdp.h>

#include "job/job.h"

typedef struct fsdp_keys {
    int64_t stage, shard_ranks, unit_params;
    char unit_class[64], ignored[256];
    bool gather, reshard;
} fsdp_keys;

#define AT(member) CHOIR__LINE_AT(fsdp_keys, member)

static const choir__line_option keys[] = {
    {"stage", CHOIR__INT, AT(stage), 1, 3, .preset = "3", .recorded = CHOIR__RECORDED_FREE},
    {"shard_ranks", CHOIR__INT, AT(shard_ranks), -1, INT32_MAX, .preset = "0",
        .recorded = CHOIR__RECORDED_FREE},
    {"unit_params", CHOIR__INT, AT(unit_params), 0, 1e15, .preset = "0",
        .recorded = CHOIR__RECORDED_FREE},
    {"unit_class", CHOIR__WORD, AT(unit_class), .argument = "NAME",
        .recorded = CHOIR__RECORDED_FREE},
    {"ignored", CHOIR__TEXT, AT(ignored), .argument = "PATTERN[/...]",
        .recorded = CHOIR__RECORDED_FREE},
    {"gather", CHOIR__FLAG, AT(gather), .preset = "0", .recorded = CHOIR__RECORDED_FREE},
    {"reshard", CHOIR__FLAG, AT(reshard), .preset = "1", .recorded = CHOIR__RECORDED_FREE},
    {NULL},
};

static choir_status build(choir__job_rank *p)
{
    const fsdp_keys *k = p->at->keys;
    char patterns[sizeof k->ignored];
    for (size_t i = 0; i < sizeof patterns; i++) /* a comma ends a key */
        patterns[i] = k->ignored[i] == '/' ? ',' : k->ignored[i];
    choir_fsdp_opts opts = choir_fsdp_defaults();
    opts.stage = (int)k->stage;
    opts.shard_ranks = (int)k->shard_ranks;
    opts.unit_params = k->unit_params;
    opts.unit_class = *k->unit_class ? k->unit_class : NULL;
    opts.ignored = *patterns ? patterns : NULL;
    opts.gather = k->gather;
    opts.reshard_after_forward = k->reshard;
    opts.offload = choir__job_offload(&p->job->optim, &opts.offload_folder);
    if (!opts.offload)
        opts.offload_folder = NULL; /* the optimizer's */
    p->model = choir_fsdp(p->run, p->model, p->along, opts);
    if (choir_module_collective(p->model))
        p->evaluated = p->model;
    return CHOIR_OK; /* errors stick to the run */
}

/* The ranks of one machine share a model with -1: a plan's are on one. */
static int sharers(const void *own, int ranks)
{
    const fsdp_keys *k = own;
    return k->shard_ranks > 0 && ranks % k->shard_ranks == 0 ? (int)k->shard_ranks : ranks;
}

/* Copies of the model have as many ranks each. */
static choir__recovery recovers(const void *own)
{
    const fsdp_keys *k = own;
    return k->shard_ranks ? CHOIR__REBUILT_AS_MANY : CHOIR__REBUILT;
}

static bool turns_ranks(const void *own)
{
    const fsdp_keys *k = own;
    return !k->shard_ranks && !*k->ignored;
}

static const char *const variants[] = {"fsdp:stage=1", "fsdp:stage=2", "fsdp", NULL};

const choir__job_strategy choir__job_strategy_fsdp = {
    .name = "fsdp",
    .help = "one process per device, weights, gradients and state sharded",
    .dimension = "shard",
    .chunks = CHOIR__CHUNKS_BELOW,
    .divides = CHOIR__MICRO_BATCHES,
    .spread = CHOIR__DEVICE_A_RANK,
    .parts = true,
    .shards = true,
    .sharers = sharers,
    .variants = variants,
    .keys = keys,
    .keys_bytes = sizeof(fsdp_keys),
    .micro_each = 1,
    .recovery = CHOIR__REBUILT,
    .recovers = recovers,
    .turns_ranks = turns_ranks,
    .build = build,
    .step = choir__job_strategy_plain_step,
};
