/* The times of rehearsed steps, and the machine that they are replayed on. */
#include "job/rehearsal/price.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"

/* Fewer draws of steps with many entries still tell the spread of a step. */
enum { LEAST_DRAWS = 4, MOST_ENTRIES = 4000000 };

/* --- the machine --- */

/* Reads this machine's calibration, if it has one. */
static choir_status read_costs(const char *kind, choir__machine *m)
{
    char key[CHOIR__COST_KEY];
    char *path = choir__costs_path(kind);
    FILE *there = choir__file_try_stream(path);
    choir_status status = there ? choir__costs_key(kind, key) : CHOIR_OK;
    if (there) {
        fclose(there);
        status = status ? status : choir__costs_read(path, key, &m->costs);
        m->calibrated = status == CHOIR_OK;
    }
    free(path);
    return status;
}

choir_status choir__machine_find(const char *file, const char *device, choir__machine *m)
{
    char kind[16];
    *m = (choir__machine){.described = file != NULL};
    if (file)
        return choir__cluster_read(file, &m->place);
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(device, ":"), *device ? device : "cpu");
    choir_status status = choir__cluster_preset(
        strcmp(kind, "cpu") == 0 ? "cpu" : "H100", 1, CHOIR__MAX_DEVICES, &m->place);
    if (status == CHOIR_OK)
        status = read_costs(kind, m);
    if (m->calibrated && m->costs.beta_bytes_s > 0)
        for (int level = 0; level < CHOIR__LEVELS; level++) {
            m->place.links[level].alpha_s = m->costs.alpha_s;
            m->place.links[level].beta_bytes_s = m->costs.beta_bytes_s;
            m->place.links[level].share = 1;
            m->place.links[level].source = CHOIR__MEASURED;
        }
    return status;
}

void choir__machine_extend(choir__machine *m, int64_t devices)
{
    choir__cluster *c = &m->place;
    if (m->described || devices <= choir__cluster_devices(c))
        return;
    if (strcmp(c->device.kind, "cpu")) /* a maker's nodes */
        c->devices_per_node = 8;
    c->nodes = (devices + c->devices_per_node - 1) / c->devices_per_node;
}

void choir__machine_free(choir__machine *m)
{
    choir__costs_free(&m->costs);
    *m = (choir__machine){0};
}

const char *choir__machine_figures(const choir__machine *m, char text[256])
{
    const char *source = choir__figure_source_name(m->place.device.source);
    if (m->calibrated)
        snprintf(text, 256, "this machine's calibration (measured)");
    else if (m->described)
        snprintf(text, 256, "%s, devices of kind %s (%s)", m->place.name, m->place.device.kind,
            source);
    else
        snprintf(text, 256, "the preset '%s' (%s)", m->place.device.kind, source);
    return text;
}

/* --- the price --- */

static bool has_entries(const choir__step *s)
{
    bool all = s->program_count > 0;
    for (int i = 0; i < s->program_count; i++)
        all &= s->programs[i].entry_count > 0;
    return all;
}

static int draws_of(const choir__step *s, int asked)
{
    int64_t entries = 1;
    for (int i = 0; i < s->program_count; i++)
        entries += s->programs[i].entry_count;
    return (int)choir__min(asked, choir__max(LEAST_DRAWS, MOST_ENTRIES / entries));
}

choir_status choir__rehearsal_price(const choir__rehearsal *r, const choir__machine *m,
    int draws, choir__step_price *price, choir__forecast *times)
{
    choir__forecast f;
    const choir__replay_opts opts = {
        .draws = draws_of(&r->step, draws), .seed = 1, .times = times != NULL};
    *price = (choir__step_price){.ms = NAN, .low_ms = NAN, .high_ms = NAN};
    if (times)
        *times = (choir__forecast){0};
    if (!has_entries(&r->step))
        return CHOIR_OK;
    choir_status status =
        choir__replay(&r->step, &m->place, m->calibrated ? &m->costs : NULL, opts, &f);
    if (status != CHOIR_OK)
        return status;
    const double own = m->calibrated ? m->costs.step_s : 0;
    price->ms = 1e3 * (f.median + own);
    price->low_ms = 1e3 * (f.low + own);
    price->high_ms = 1e3 * (f.high + own);
    price->idle = f.idle;
    price->measured = f.measured;
    memcpy(price->link_bytes, f.bytes, sizeof price->link_bytes);
    if (times)
        *times = f;
    else
        choir__forecast_free(&f);
    return CHOIR_OK;
}
