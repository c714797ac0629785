/* The strategies that a plan looks at: those that the user names, or all that the devices
 * allow, with the meshes on which compositions have all of the devices. */
#include "cli/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static choir_status add(choir__planning *p, const char *text, size_t length, const char *mesh)
{
    choir__plan_entry e = {0};
    if (length >= sizeof e.text)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--strategies: expected at most %zu characters per strategy, got '%s'",
            sizeof e.text - 1, text);
    memcpy(e.text, text, length);
    snprintf(e.mesh, sizeof e.mesh, "%s", mesh ? mesh : "");
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->entries[i].text, e.text) && !strcmp(p->entries[i].mesh, e.mesh))
            return CHOIR_OK;
    CHOIR__GROW(p->entries, p->count);
    p->entries[p->count++] = e;
    return CHOIR_OK;
}

/* Returns whether a mesh with `inner` ranks per replica is planned unasked. Each stage or slice
 * of a large world is rehearsed, which takes long: there they divide a node. */
static bool is_planned(const choir__planning *p, int inner)
{
    const int all = p->job.placement.device_count;
    return inner > 1 &&
           (all <= CHOIR__MAX_DEVICES ||
               (inner <= CHOIR__MAX_DEVICES && p->machine.place.devices_per_node % inner == 0));
}

/* Adds a composition of two strategies on each mesh of all devices, or of more on --mesh. */
static choir_status add_composition(choir__planning *p, const char *text, size_t length)
{
    const int all = p->job.placement.device_count;
    choir_status status = CHOIR_OK;
    if (p->job.placement.mesh)
        return add(p, text, length, p->job.placement.mesh);
    for (int outer = 2; outer <= all / 2 && status == CHOIR_OK; outer++) {
        char mesh[32];
        if (all % outer || !is_planned(p, all / outer))
            continue;
        snprintf(mesh, sizeof mesh, "%dx%d", outer, all / outer);
        status = add(p, text, length, mesh);
    }
    return status;
}

static choir_status add_text(choir__planning *p, const char *text, size_t length)
{
    choir__composition c = {0};
    char *own = choir__format("%.*s", (int)length, text);
    choir_status status = choir__composition_parse(own, &c);
    int parts = c.count;
    choir__composition_free(&c);
    free(own);
    if (status != CHOIR_OK)
        return choir__error(status, "--strategies %s: %s", text, choir_error_message());
    return parts > 1 ? add_composition(p, text, length) : add(p, text, length, NULL);
}

static choir_status add_named(choir__planning *p, const char *text)
{
    choir_status status = CHOIR_OK;
    if (!*text)
        return choir__error(CHOIR_ERR_ARGUMENT, "--strategies: expected a list, got ''");
    while (*text && status == CHOIR_OK) {
        const char *end = choir__strategy_end(text);
        status = add_text(p, text, (size_t)(end - text));
        text = end + (*end == ',');
    }
    return status;
}

/* Adds all forms, or, on a single device, the forms that use one device. */
static choir_status add_all(choir__planning *p)
{
    choir_status status = CHOIR_OK;
    const choir__job_strategy *s;
    const char *form;
    for (int i = 0; status == CHOIR_OK && (form = choir__job_strategy_form(i, &s)); i++)
        if (!s)
            status = add_composition(p, form, strlen(form));
        else if (p->job.placement.device_count > 1 || s->spread == CHOIR__ONE_DEVICE)
            status = add_text(p, form, strlen(form));
    return status;
}

static const char *kind_of(const choir__job_placement *p, int i, char kind[16])
{
    snprintf(kind, 16, "%.*s", (int)strcspn(p->device_names[i], ":"), p->device_names[i]);
    return kind;
}

/* Takes `count` devices, which need not be here. */
static choir_status imagine(choir__planning *p, const char *kind, int64_t count)
{
    if (count > CHOIR__MOST_RANKS)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--cluster %s has %lld devices, and a plan follows at most %d: expected --nproc with "
            "the number of devices that the job takes",
            p->cluster, (long long)count, CHOIR__MOST_RANKS);
    p->job.placement.device_count = (int)count;
    for (int i = 0; i < choir__min(p->job.placement.device_count, CHOIR__MAX_DEVICES); i++)
        snprintf(p->job.placement.device_names[i], CHOIR__JOB_DEVICE_NAME, "%s:%d", kind, i);
    return CHOIR_OK;
}

/* Returns the number of places of a mesh, or, beyond `most`, some number above it. */
static int64_t places_of(const char *mesh, int64_t most)
{
    int64_t places = 1;
    for (char *end; mesh && places <= most; mesh = *end ? end + 1 : NULL)
        places *= choir__min(choir__max(strtol(mesh, &end, 10), 1), CHOIR__MOST_RANKS);
    return places;
}

/* Ranks of a training may share devices. A plan has the memory and the kernels of one kind, and
 * a device for each place of a mesh. */
static choir_status check_devices(const choir__job_placement *place)
{
    char first[16], other[16];
    kind_of(place, 0, first);
    for (int i = 1; i < choir__min(place->device_count, CHOIR__MAX_DEVICES); i++)
        if (strcmp(kind_of(place, i, other), first)) /* later ones continue a range */
            return choir__error(CHOIR_ERR_ARGUMENT,
                "--devices %s: a plan has devices of one kind, got %s and %s", place->devices,
                place->device_names[0], place->device_names[i]);
    const int64_t places = places_of(place->mesh, place->device_count);
    return places <= place->device_count
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "--mesh %s with --devices %s: a plan has a device for each place of the "
                     "mesh, got %d",
                     place->mesh, place->devices, place->device_count);
}

/* Lists the job's devices. alone: the command line itself places the one strategy; several
 * strategies take all devices, or --nproc of them. */
static choir_status list_devices(choir__planning *p, bool alone)
{
    choir__job_placement *place = &p->job.placement;
    const bool described = p->cluster && !place->devices;
    const int64_t asked = place->nproc,
                  there = described ? choir__cluster_devices(&p->machine.place) : 0;
    char kind[16];
    if (described)
        return imagine(p, strcmp(p->machine.place.device.kind, "cpu") ? "cuda" : "cpu",
            asked && (!alone || asked > there || there > CHOIR__MOST_RANKS) ? asked : there);
    choir_status status = choir__job_devices_list(place->devices, place->device_names,
        CHOIR_COUNT(place->device_names), &place->device_count);
    if (status == CHOIR_OK && place->devices)
        status = check_devices(place);
    if (status != CHOIR_OK)
        return status;
    if (place->devices && !alone && !place->mesh && asked && asked != place->device_count)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--nproc %d with %d --devices: several strategies are planned on all devices; "
            "leave one of both options out",
            place->nproc, place->device_count);
    if (!place->devices && asked && (!alone || asked > place->device_count))
        return imagine(p, place->device_count ? kind_of(place, 0, kind) : "cpu", asked);
    return CHOIR_OK;
}

choir_status choir__plan_list(choir__planning *p)
{
    const choir__job_placement *place = &p->job.placement;
    const bool asked =
        choir__job_was_given(&p->job, CHOIR__JOB_OPTION(placement.strategy_text));
    const bool alone = !p->strategies && asked && strcmp(place->strategy_text, "auto");
    choir_status status = list_devices(p, alone);
    if (status != CHOIR_OK)
        return status;
    choir__job_devices_text(place, p->devices, sizeof p->devices);
    if (alone)
        return add(p, place->strategy_text, strlen(place->strategy_text), place->mesh);
    status = choir__job_common_cut(&p->job);
    if (status != CHOIR_OK)
        return status;
    return p->strategies ? add_named(p, p->strategies) : add_all(p);
}
