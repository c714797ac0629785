/* Reports the results of a pipeline's setup: its stages, their costs, its plan. */
#include <stdlib.h>

#include "nn/module.h"
#include "parallel/pipeline/pipeline.h"

int choir_pipeline_stages(const choir_module *pipeline)
{
    const choir__pipeline *p = choir__pipeline_of(pipeline);
    return p ? p->stages : 0;
}

const choir_stage_cost *choir_pipeline_costs(const choir_module *pipeline)
{
    const choir__pipeline *p = choir__pipeline_of(pipeline);
    return p && p->placed ? p->stage_costs : NULL;
}

int64_t choir_pipeline_bytes(const choir_module *pipeline, int stage)
{
    const choir__pipeline *p = choir__pipeline_of(pipeline);
    return p && p->placed && stage >= 0 && stage < p->stages ? (int64_t)p->bytes[stage] : 0;
}

const choir_pipeline_plan *choir_pipeline_plan_of(const choir_module *pipeline)
{
    const choir__pipeline *p = choir__pipeline_of(pipeline);
    return p ? p->plan : NULL;
}

static int64_t stage_params(const choir__pipeline *p, int stage)
{
    int count;
    int64_t sum = 0;
    choir__param **params = choir__module_params(p->module, &count);
    for (int i = 0; i < count; i++)
        sum += params[i]->stage == stage ? params[i]->tensor->count : 0;
    free(params);
    return sum;
}

void choir_pipeline_print_stages(const choir_module *pipeline, FILE *file)
{
    if (choir__use_module(pipeline, __func__) != CHOIR_OK)
        return;
    if (choir__lacks(file, __func__, "file"))
        return;
    const choir__pipeline *p = choir__pipeline_of(pipeline);
    if (!p || !p->placed) {
        fprintf(file, "pipeline: %s\n",
            !p               ? "none; the module is another one"
            : p->stages == 1 ? "one device, one stage"
                             : "no stages yet: the first two steps tell what ops cost");
        return;
    }
    fprintf(file, "%5s  %-8s %11s  %-24s %12s %9s %9s %9s %9s\n", "stage", "device", "ops",
        "begins in", "parameters", "MiB", "F ms", "B ms", "W ms");
    for (int s = 0; s < p->stages; s++) {
        const choir_stage_cost *c = &p->stage_costs[s];
        char ops[32];
        snprintf(ops, sizeof ops, "%d-%d", p->first[s], p->first[s + 1] - 1);
        fprintf(file, "%5d  %-8s %11s  %-24s %12lld %9.1f %9.3f %9.3f %9.3f\n", s,
            choir_device_name(choir__stage_device(p, s)), ops, p->paths[p->first[s]],
            (long long)stage_params(p, s), p->bytes[s] / 1048576, c->forward * 1e3,
            c->backward_input * 1e3, c->backward_weight * 1e3);
    }
}
