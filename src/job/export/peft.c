/* Exports an adapter alone, as a folder that peft reads: its weights, and a configuration
 * that names the base model and peft's task for it. */
#include "checkpoint/weights/adapter.h"
#include "job/export/export.h"

/* peft's task for a model, or NULL. */
static const char *task_of(const choir_model_info *info)
{
    if (info->task == CHOIR_CLASSIFICATION && info->output.ndim)
        return "TOKEN_CLS";
    if (choir_task_has_classes(info->task) || (info->task == CHOIR_REGRESSION && info->vocab))
        return "SEQ_CLS";
    return info->task == CHOIR_LANGUAGE && !info->masked ? "CAUSAL_LM" : NULL;
}

static choir_status write_adapter(const choir__export *e, const char *folder)
{
    return choir__adapter_write(e->model.net,
        &(choir__adapter_made){.base = e->base,
            .task = task_of(&e->model.info),
            .base_sha256 = e->base_sha256,
            .dtype = e->dtype},
        folder);
}

const choir__export_format choir__export_peft = {.name = "peft",
    .help = "the adapter alone, as peft loads it",
    .library = "peft",
    .adapters = true,
    .write = write_adapter};
