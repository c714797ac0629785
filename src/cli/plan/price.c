/* The times of a plan: the recorded steps of its strategies, replayed on a machine.
 *
 * The machine is a cluster's file (--cluster), or this one: its calibration if it has one, and
 * else presets. Output says which. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/base.h"

enum { DRAWS = 20 };

/* Writes the kind of the job's devices, such as "cpu", and of the preset that stands for it. */
static void kinds(const choir__planning *p, char kind[16], char preset[32])
{
    const char *name = p->job.placement.device_names[0];
    snprintf(kind, 16, "%.*s", (int)strcspn(name, ":"), *name ? name : "cpu");
    snprintf(preset, 32, "%s", strcmp(kind, "cpu") == 0 ? "cpu" : "H100");
}

/* Reads this machine's calibration, if it has one. */
static choir_status read_costs(choir__planning *p, const char *kind)
{
    char key[CHOIR__COST_KEY];
    char *path = choir__costs_path(kind);
    FILE *there = choir__file_try_stream(path);
    choir_status status = there ? choir__costs_key(kind, key) : CHOIR_OK;
    if (there) {
        fclose(there);
        status = status ? status : choir__costs_read(path, key, &p->costs);
        p->calibrated = status == CHOIR_OK;
    }
    free(path);
    return status;
}

choir_status choir__plan_machine(choir__planning *p)
{
    char kind[16], preset[32];
    if (p->cluster)
        return choir__cluster_read(p->cluster, &p->machine);
    kinds(p, kind, preset);
    choir_status status = choir__cluster_preset(preset, 1, CHOIR__MAX_DEVICES, &p->machine);
    if (status == CHOIR_OK)
        status = read_costs(p, kind);
    if (p->calibrated && p->costs.beta_bytes_s > 0)
        for (int level = 0; level < CHOIR__LEVELS; level++) {
            p->machine.links[level].alpha_s = p->costs.alpha_s;
            p->machine.links[level].beta_bytes_s = p->costs.beta_bytes_s;
            p->machine.links[level].share = 1;
            p->machine.links[level].source = CHOIR__MEASURED;
        }
    return status;
}

static bool has_entries(const choir__step *s)
{
    bool all = s->program_count > 0;
    for (int i = 0; i < s->program_count; i++)
        all &= s->programs[i].entry_count > 0;
    return all;
}

choir_status choir__plan_price(const choir__planning *p, choir__plan_entry *e)
{
    choir__forecast f;
    if (!has_entries(&e->rehearsal.step))
        return CHOIR_OK; /* a step that is not recorded has no time */
    choir_status status = choir__replay(&e->rehearsal.step, &p->machine,
        p->calibrated ? &p->costs : NULL, (choir__replay_opts){.draws = DRAWS, .seed = 1}, &f);
    if (status != CHOIR_OK)
        return status;
    const double own = p->calibrated ? p->costs.step_s : 0;
    e->step_ms = 1e3 * (f.median + own);
    e->step_ms_low = 1e3 * (f.low + own);
    e->step_ms_high = 1e3 * (f.high + own);
    e->idle = f.idle;
    e->measured = f.measured;
    memcpy(e->link_bytes, f.bytes, sizeof e->link_bytes);
    choir__forecast_free(&f);
    return CHOIR_OK;
}

const char *choir__plan_figures(const choir__planning *p, char text[256])
{
    if (p->calibrated)
        snprintf(text, 256, "Times: by this machine's calibration (measured).");
    else if (p->cluster)
        snprintf(text, 256, "Times: by %s, devices of kind %s (%s).", p->machine.name,
            p->machine.device.kind, choir__figure_source_name(p->machine.device.source));
    else
        snprintf(text, 256,
            "Times: by the preset '%s' (%s); choir plan --calibrate measures this machine.",
            p->machine.device.kind, choir__figure_source_name(p->machine.device.source));
    return text;
}
