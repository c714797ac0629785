/* mp and pipeline: the model cut into stages on several devices, of one process or, with
 * --nproc, of a process each.
 *
 * mp (model parallel) is the pipeline that starts a micro-batch when the one before it is
 * done: a device works while the others wait. */
#include "cli/strategy/strategy.h"

#include <stdio.h>
#include <string.h>

#include <choir/pipeline.h>

#include "base/options.h"
#include "cli/job.h"
#include "tensor/tensor.h"

/* Cuts are told apart by slashes: commas part options. */
static void use_commas(char *cuts)
{
    for (; *cuts; cuts++)
        *cuts = *cuts == '/' ? ',' : *cuts;
}

static choir_status parse_mp(const char *text, choir__strategy_options *o)
{
    strcpy(o->schedule, "sequential");
    choir__option known[] = {{"cuts", CHOIR__TEXT, o->cuts, 0, 0}, {NULL}};
    choir_status status = choir__options_parse(text, "strategy mp", known);
    use_commas(o->cuts);
    return status;
}

static choir_status parse(const char *text, choir__strategy_options *o)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zero-bubble"};
    strcpy(o->schedule, "zero-bubble");
    choir__option known[] = {{"schedule", CHOIR__WORD, o->schedule, 0, 0},
        {"cuts", CHOIR__TEXT, o->cuts, 0, 0}, {"chunks", CHOIR__INT, &o->chunks, 1, 64},
        {NULL}};
    choir_status status = choir__options_parse(text, "strategy pipeline", known);
    use_commas(o->cuts);
    for (size_t i = 0; i < CHOIR_COUNT(schedules) && status == CHOIR_OK; i++)
        if (!strcmp(o->schedule, schedules[i]))
            return CHOIR_OK;
    return status != CHOIR_OK
               ? status
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "there is no schedule '%s'; there are gpipe, 1f1b, interleaved, "
                     "zero-bubble",
                     o->schedule);
}

static choir_status build(choir__cli_part *p)
{
    const choir__strategy_options *o = &p->job->strategy_options;
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = p->devices;
    opts.device_count = p->device_count;
    if (p->at->strategy->spread == CHOIR__RANKS_TOGETHER) {
        opts.devices = NULL;
        opts.group = p->along;
    }
    opts.schedule = o->schedule;
    if (o->chunks)
        opts.chunks = (int)o->chunks;
    opts.cuts = *o->cuts ? o->cuts : NULL;
    p->model = p->evaluated = choir_pipeline(p->run, p->model, opts);
    return CHOIR_OK; /* errors stick to the run */
}

static choir_tensor *one_micro_batch(choir_scope *micro, choir_module *model, void *part)
{
    choir__cli_part *p = part;
    const choir__model_info *info = &p->job->info;
    choir_batch b;
    choir_status status = choir_loader_next(p->loader, micro, &b);
    if (status != CHOIR_OK)
        return choir_fail(micro, status, "%s", choir_error_message());
    choir_tensor *loss =
        choir__model_loss(info, choir__model_forward(info, model, b.x, b.y), b.y);
    return choir__cli_part_scaled(p, loss);
}

static choir_status step_pipeline(choir_scope *step, choir__cli_part *p)
{
    p->loss_count = p->micro_count;
    return choir_pipeline_step(p->model, step, p->micro_count, one_micro_batch, p, p->losses);
}

static const choir__cli_strategy mp_over_ranks = {
    .name = "mp",
    .dimension = "pipeline",
    .spread = CHOIR__RANKS_TOGETHER,
    .parse = parse_mp,
    .build = build,
    .step = step_pipeline,
};

const choir__cli_strategy choir__strategy_mp = {
    .name = "mp",
    .options = "[:cuts=PATH/PATH]",
    .help = "the model cut into a stage a device, one working at a time",
    .dimension = "pipeline",
    .spread = CHOIR__ALL_DEVICES,
    .parse = parse_mp,
    .build = build,
    .step = step_pipeline,
    .over_ranks = &mp_over_ranks,
};

static const char *const variants[] = {"pipeline:schedule=gpipe", "pipeline:schedule=1f1b",
    "pipeline:schedule=interleaved", "pipeline:schedule=zero-bubble", NULL};

static const choir__cli_strategy pipeline_over_ranks = {
    .name = "pipeline",
    .dimension = "pipeline",
    .spread = CHOIR__RANKS_TOGETHER,
    .parse = parse,
    .micro_each = 4,
    .build = build,
    .step = step_pipeline,
};

const choir__cli_strategy choir__strategy_pipeline = {
    .name = "pipeline",
    .options = "[:schedule=gpipe|1f1b|interleaved|zero-bubble,cuts=PATH/PATH,chunks=2]",
    .help = "stages that work on several micro-batches at once",
    .dimension = "pipeline",
    .spread = CHOIR__ALL_DEVICES,
    .variants = variants,
    .parse = parse,
    .micro_each = 4,
    .build = build,
    .step = step_pipeline,
    .over_ranks = &pipeline_over_ranks,
};
