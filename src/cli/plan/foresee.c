/* The needs of one strategy. Its job is made from the command line, as choir train would make
 * it, and rehearsed. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "job/run.h"

enum { DRAWS = 20 }; /* replays with jitter */

/* Places the command line's job as the entry says, on the plan's devices. The command line
 * itself places a strategy that is asked for alone. */
static void place(const choir__planning *p, const choir__plan_entry *e, choir__job *j)
{
    choir__job_placement *to = &j->placement;
    const bool alone = p->count == 1 && !p->strategies;
    to->strategy_text = e->text;
    to->mesh = *e->mesh ? e->mesh : NULL;
    if (!j->training.microbatches)
        j->training.microbatches = p->job.training.microbatches;
    if (alone)
        return;
    to->devices = p->devices;
    to->nproc = 0;
}

/* A plan writes nothing and waits for nothing; what needs a folder or a log is left out with
 * it. How often it would save stays known. */
static void quieten(choir__job *j)
{
    const choir__line_option *const unsaid[] = {CHOIR__JOB_OPTION(saves.every),
        CHOIR__JOB_OPTION(saves.keep), CHOIR__JOB_OPTION(saves.warn)};
    for (size_t i = 0; i < CHOIR_COUNT(unsaid); i++)
        choir__job_unsay(j, unsaid[i]);
    j->training.on_spike = j->records.audit = NULL;
    j->records.log_histograms = 0;
    j->saves.dir = j->records.run = j->records.trace = NULL;
    free(j->records.logs);
    j->records.logs = NULL;
    j->records.log = NULL;
    j->records.json = true; /* no notes on the terminal */
    j->records.page = false;
}

static void fail(choir__plan_entry *e)
{
    e->planned = false;
    snprintf(e->error, sizeof e->error, "%s", choir_error_message());
}

/* Rehearses the job. If a device refuses memory, keeps its sentence and rehearses again without
 * the limit. */
static choir_status rehearse(choir__plan_entry *e, choir__job *j)
{
    choir_status status = choir__job_rehearse(j, &e->rehearsal);
    if (status != CHOIR_ERR_MEMORY || !j->placement.mem_cap)
        return status;
    snprintf(e->lacks, sizeof e->lacks, "%s", choir_error_message());
    choir__rehearsal_free(&e->rehearsal);
    j->placement.mem_cap = 0;
    return choir__job_rehearse(j, &e->rehearsal);
}

static double sum_peaks(const choir__rehearsal *r)
{
    double sum = 0;
    for (int i = 0; i < r->device_count; i++)
        sum += (double)r->devices[i].counts.bytes_peak * r->devices[i].alike;
    return sum;
}

/* Returns the memory of each device, where devices have their own; 0: they share the machine's.
 */
static double memory_of_device(const choir__planning *p)
{
    return strncmp(p->job.placement.device_names[0], "cpu", 3)
               ? (double)p->machine.place.device.memory_bytes
               : 0;
}

bool choir__plan_has_nodes(const choir__planning *p)
{
    return p->cluster && memory_of_device(p) <= 0 &&
           !strcmp(p->machine.place.device.kind, "cpu");
}

/* Returns the bytes of all devices of the fullest node. */
static double fullest_node(const choir__planning *p, const choir__rehearsal *r)
{
    double most = 0, sum = 0;
    for (int d = 0; d < r->world * r->each; d++) {
        const int of = r->class_of[d / r->each] * r->each + d % r->each;
        sum = d % p->machine.place.devices_per_node ? sum : 0;
        sum += (double)r->devices[of].counts.bytes_peak;
        most = choir__max(most, sum);
    }
    return most;
}

/* Returns the bytes that need room in one memory: of all devices, of the fullest node, or of
 * the fullest device. */
static double bytes_in_one_memory(const choir__planning *p, const choir__rehearsal *r)
{
    double most = 0;
    if (choir__plan_has_nodes(p))
        return fullest_node(p, r);
    if (memory_of_device(p) <= 0)
        return sum_peaks(r);
    for (int i = 0; i < r->device_count; i++)
        most = choir__max(most, (double)r->devices[i].counts.bytes_peak);
    return most;
}

static void judge(const choir__planning *p, choir__plan_entry *e)
{
    char needs[32], has[32], holder[300];
    const double each = memory_of_device(p), room = each > 0 ? each : (double)p->memory;
    const bool nodes = choir__plan_has_nodes(p);
    e->bytes = bytes_in_one_memory(p, &e->rehearsal);
    e->fits = !*e->lacks && e->bytes <= room;
    choir__plan_say_holder(&e->rehearsal, holder, sizeof holder);
    if (!e->fits && !*e->lacks)
        snprintf(e->lacks, sizeof e->lacks, "%s %s and %s has %s: %s",
            nodes      ? "the devices of its fullest node need"
            : each > 0 ? "its fullest device needs"
                       : "its devices need",
            choir__plan_size(e->bytes, needs),
            nodes      ? "a node"
            : each > 0 ? "such a device"
                       : "the machine",
            choir__plan_size(room, has), holder);
}

static void note_numbers(choir__plan_entry *e, const choir__job *j)
{
    char *own = choir__composition_numbers(
        &j->placement.composition, j->placement.nproc, j->training.microbatches);
    e->apart = *own != '\0';
    free(own);
}

static void note_training(choir__plan_entry *e, const choir__job *j)
{
    const choir__job_training *t = &j->training;
    const int64_t all = choir_dataset_length(j->data.validation) / t->batch_size;
    e->tokens = j->model.info.items > 1;
    e->steps = t->steps;
    e->save_every = j->saves.every;
    e->eval_every = t->eval_every;
    e->eval_batches = t->eval_batches ? choir__min(t->eval_batches, all) : all;
    e->eval_at_end = !t->no_eval;
}

void choir__plan_foresee(choir__planning *p, choir__plan_entry *e)
{
    choir__planning *own = choir__alloc(sizeof *own);
    bool usage;
    e->price.ms = NAN;
    choir_status status = choir__plan_parse_again(p, own) ? CHOIR_ERR_ARGUMENT : CHOIR_OK;
    if (status == CHOIR_OK) {
        place(p, e, &own->job);
        if (e->change)
            e->change(e, &own->job);
        quieten(&own->job);
        status = choir__job_make_ready(&own->job, &usage);
    }
    e->rehearsal.holds = e->when != NULL;
    if (status == CHOIR_OK)
        status = rehearse(e, &own->job);
    e->planned = status == CHOIR_OK;
    if (e->planned) {
        e->microbatches = own->job.training.microbatches;
        e->ranks = own->job.placement.nproc;
        judge(p, e);
        note_numbers(e, &own->job);
        e->items = (double)(own->job.training.batch_size * own->job.model.info.items);
        note_training(e, &own->job);
        if (choir__rehearsal_price(&e->rehearsal, &p->machine, DRAWS, &e->price, e->when) !=
            CHOIR_OK)
            fail(e);
        if (p->job.placement.device_count > CHOIR__MAX_DEVICES)
            choir__step_free(&e->rehearsal.step); /* each may have millions of entries */
    } else {
        fail(e);
    }
    choir__job_leave_folders(&own->job.saves, true);
    choir__job_free(&own->job);
    free(own);
}
