/* Mixed precision of a job: bf16 and fp16 are autocast, O0 to O3 Apex's levels. */
#include "job/model/amp.h"

#include <stdlib.h>
#include <string.h>

#include "job/choices.h"
#include "job/job.h"
#include "base/base.h"

static const choir__amp_level levels[] = {
    {.name = "off", .apex = 0},
    {.name = "bf16", .apex = -1, .dtype = CHOIR_BF16},
    {.name = "fp16", .apex = -1, .dtype = CHOIR_F16, .scaled = true},
    {.name = "O0", .apex = 0},
    {.name = "O1", .apex = 1, .dtype = CHOIR_F16, .scaled = true},
    {.name = "O2", .apex = 2, .dtype = CHOIR_F16, .scaled = true},
    {.name = "O3", .apex = 3, .dtype = CHOIR_F16, .halved = true},
};

/* The type's own name, which other commands use, is another name of a level. */
static const char *const other_f16 = "f16";

static bool has_name(const choir__amp_level *level, const char *name)
{
    return !strcmp(level->name, name) ||
           (!strcmp(level->name, "fp16") && !strcmp(name, other_f16));
}

const choir__amp_level *choir__amp_find(const char *name)
{
    for (size_t i = 0; i < CHOIR_COUNT(levels); i++)
        if (has_name(&levels[i], name ? name : "off"))
            return &levels[i];
    return NULL;
}

const char *choir__job_amp_level_names(size_t i)
{
    size_t count = CHOIR_COUNT(levels);
    return i < count ? levels[i].name : i == count ? other_f16 : NULL;
}

/* Uses the processor's description of itself, because a measurement could differ between ranks.
 */
static void say_what_it_costs(const choir__job_rank *p, const choir__amp_level *level)
{
    if (p->env.rank != 0 || choir_device_multiplies(p->env.device, level->dtype))
        return;
    char *note = choir__format(
        "--amp %s saves memory here but no time: this processor multiplies %s no faster than f32; "
        "docs/benchmarks.md says how much slower a step is",
        level->name, choir_dtype_name(level->dtype));
    choir__job_tell_notes(p->job, note);
    free(note);
}

choir_status choir__amp_apply(
    choir_scope *run, choir_module *net, const choir__amp_level *level)
{
    if (level->dtype == CHOIR_F32)
        return CHOIR_OK;
    if (level->apex < 0)
        choir_autocast(run, level->dtype);
    else
        choir_amp_level(run, level->apex);
    return level->halved ? choir_module_cast(net, level->dtype) : CHOIR_OK;
}

choir_status choir__amp_begin(choir__job_rank *p)
{
    const choir__amp_level *level = choir__amp_find(p->job->optim.amp);
    if (level->dtype != CHOIR_F32)
        say_what_it_costs(p, level);
    return choir__amp_apply(p->run, p->net, level);
}

choir_tensor *choir__job_rank_scaled(const choir__job_rank *p, choir_tensor *loss)
{
    return p->scaler ? choir_scaler_scale(p->scaler, loss) : loss;
}

choir_status choir__amp_step(choir__job_rank *p)
{
    if (!p->scaler)
        return choir_optim_step(p->optim);
    choir_status status = choir_scaler_step(p->scaler, p->optim);
    return status == CHOIR_OK ? choir_scaler_update(p->scaler) : status;
}
