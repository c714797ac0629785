/* mp and pipeline: the model cut into stages on several devices, of one process or, with
 * --nproc, of a process each.
 *
 * mp (model parallel) is the pipeline that starts a micro-batch when the one before it is
 * done: a device works while the others wait. */
#include "job/strategy/strategy.h"

#include <choir/pipeline.h>

#include "base/named.h"
#include "job/job.h"

/* mp has only the keys cuts and clocked. */
typedef struct pipeline_keys {
    char schedule[64]; /* "": mp's */
    char cuts[256];    /* "": the cheapest ones */
    int64_t chunks;    /* 0: as many as the schedule needs */
    bool clocked;      /* the cuts follow from the clock */
} pipeline_keys;

#define AT(member) CHOIR__LINE_AT(pipeline_keys, member)

static const choir__line_option mp_keys[] = {
    {"cuts", CHOIR__TEXT, AT(cuts), .argument = "PATH/PATH", .recorded = CHOIR__RECORDED_FREE},
    {"clocked", CHOIR__FLAG, AT(clocked), .argument = "1", .recorded = CHOIR__RECORDED_FREE},
    {NULL},
};

static const choir__line_option keys[] = {
    {"schedule", CHOIR__WORD, AT(schedule), .preset = "zero-bubble",
        .argument = "gpipe|1f1b|interleaved|zero-bubble", .recorded = CHOIR__RECORDED_FREE},
    {"cuts", CHOIR__TEXT, AT(cuts), .argument = "PATH/PATH", .recorded = CHOIR__RECORDED_FREE},
    {"chunks", CHOIR__INT, AT(chunks), 1, 64, .argument = "2",
        .recorded = CHOIR__RECORDED_FREE},
    {"clocked", CHOIR__FLAG, AT(clocked), .argument = "1", .recorded = CHOIR__RECORDED_FREE},
    {NULL},
};

/* Replaces the slashes between cuts by commas, as the library expects: in a strategy's text
 * commas separate keys. */
static choir_status check(void *own)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
    static const choir__name_table table = CHOIR__NAME_TABLE(schedules);
    pipeline_keys *k = own;
    for (char *cut = k->cuts; *cut; cut++)
        *cut = *cut == '/' ? ',' : *cut;
    if (*k->schedule && choir__find_named(&table, k->schedule) < 0)
        return choir__unknown_name(&table, "schedule", k->schedule);
    return CHOIR_OK;
}

static choir_status build(choir__job_rank *p)
{
    const pipeline_keys *k = p->at->keys;
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = p->devices;
    opts.device_count = p->device_count;
    if (p->at->strategy->spread == CHOIR__RANKS_TOGETHER) {
        opts.devices = NULL;
        opts.group = p->along;
    }
    opts.schedule = *k->schedule ? k->schedule : "sequential";
    if (k->chunks)
        opts.chunks = (int)k->chunks;
    opts.cuts = *k->cuts ? k->cuts : NULL;
    opts.clocked = k->clocked;
    p->model = p->evaluated = choir_pipeline(p->run, p->model, opts);
    return CHOIR_OK; /* errors stick to the run */
}

static choir_tensor *one_micro_batch(choir_scope *micro, choir_module *model, void *part)
{
    choir__job_rank *p = part;
    const choir_model_info *info = &p->job->model.info;
    choir_batch b;
    choir_status status = choir__job_rank_next(p, micro, &b);
    if (status != CHOIR_OK)
        return choir_fail(micro, status, "%s", choir_error_message());
    choir_tensor *out = choir_model_forward(info, model, b.x, b.y);
    return choir__job_rank_scaled(p, choir_model_loss_over(info, out, b.y, p->divisor));
}

static choir_status step_pipeline(choir_scope *step, choir__job_rank *p)
{
    choir_status status = choir__job_rank_begin(p, step);
    p->loss_count = p->micro_count;
    if (status != CHOIR_OK)
        return status;
    return choir_pipeline_step(p->model, step, p->micro_count, one_micro_batch, p, p->losses);
}

static const choir__job_strategy mp_over_ranks = {
    .name = "mp",
    .dimension = "pipeline",
    .chunks = CHOIR__CHUNKS_BELOW,
    .spread = CHOIR__RANKS_TOGETHER,
    .keys = mp_keys,
    .keys_bytes = sizeof(pipeline_keys),
    .check = check,
    .parts = true,
    .recovery = CHOIR__REBUILT_AS_MANY,
    .build = build,
    .step = step_pipeline,
};

const choir__job_strategy choir__job_strategy_mp = {
    .name = "mp",
    .help = "the model cut into one stage per device; one stage works at a time",
    .dimension = "pipeline",
    .chunks = CHOIR__CHUNKS_BELOW,
    .family = CHOIR__MODEL_PARALLEL,
    .spread = CHOIR__ALL_DEVICES,
    .keys = mp_keys,
    .keys_bytes = sizeof(pipeline_keys),
    .check = check,
    .parts = true,
    .build = build,
    .step = step_pipeline,
    .over_ranks = &mp_over_ranks,
};

static const char *const variants[] = {"pipeline:schedule=gpipe", "pipeline:schedule=1f1b",
    "pipeline:schedule=interleaved", "pipeline:schedule=zero-bubble", NULL};

static const choir__job_strategy pipeline_over_ranks = {
    .name = "pipeline",
    .dimension = "pipeline",
    .chunks = CHOIR__CHUNKS_BELOW,
    .spread = CHOIR__RANKS_TOGETHER,
    .keys = keys,
    .keys_bytes = sizeof(pipeline_keys),
    .check = check,
    .micro_each = 4,
    .parts = true,
    .recovery = CHOIR__REBUILT_AS_MANY,
    .build = build,
    .step = step_pipeline,
};

const choir__job_strategy choir__job_strategy_pipeline = {
    .name = "pipeline",
    .help = "stages that work on several micro-batches at once",
    .dimension = "pipeline",
    .chunks = CHOIR__CHUNKS_BELOW,
    .divides = CHOIR__LAYERS,
    .family = CHOIR__PIPELINED,
    .spread = CHOIR__ALL_DEVICES,
    .variants = variants,
    .keys = keys,
    .keys_bytes = sizeof(pipeline_keys),
    .check = check,
    .micro_each = 4,
    .parts = true,
    .build = build,
    .step = step_pipeline,
    .over_ranks = &pipeline_over_ranks,
};
