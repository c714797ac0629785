/* The choice of --strategy auto: placements are rehearsed (job/rehearsal), which gives their
 * bytes exactly and the time of a step roughly. The fastest one that fits is taken.
 *
 * A placement replaces an earlier one for a clear gain alone, and the first ones need the
 * fewest devices and move the fewest bytes. So a small step is not shared, and a job with a
 * step that is nearly as short as its devices allow is not rehearsed further. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/usable.h"
#include "job/auto/auto.h"
#include "job/rehearsal/price.h"
#include "job/trainer/trainer.h"

/* GAIN: of the time of a step, below which a placement is not worth more devices. NEAR: a step
 * that is so near to the ideal one is good enough. SHORT_MS: a step is not worth to be shared.
 * OWN: bytes of a process beside its tensors, about. */
static const double GAIN = 0.9, NEAR = 1.1, SHORT_MS = 0.4, OWN = 16 << 20;
enum { MOST_FORMS = 64, RECORDED = 8 }; /* RECORDED: steps until one is recorded */

typedef struct outcome {
    choir__auto_form form;
    bool runs, fits;
    double bytes, ms; /* in one memory; ms NaN: unknown */
    int64_t threads;
} outcome;

typedef struct search {
    const choir__job *job;
    choir__machine machine;
    int devices;
    double flop, room;           /* bytes of the machine, which CPU devices share; else 0 */
    outcome single, best, least; /* least: does not fit, and lacks least */
    char refused[512];           /* the first sentence of a placement that cannot run */
    char lacks[512];             /* the first sentence of a device under --mem-cap */
    choir__auto_form lacking;    /* the placement that got it */
} search;

/* --- one placement --- */

static choir_status prepare(const search *s, const choir__auto_form *f, choir__job *own)
{
    *own = *s->job;
    own->placement.composition = (choir__composition){0};
    own->placement.strategy_text = f->strategy;
    own->placement.mesh = *f->mesh ? f->mesh : NULL;
    own->placement.nproc = f->ranks;
    own->placement.undecided = false;
    choir_status status = choir__job_settle_place(own);
    own->training.steps = choir__max(own->training.steps, RECORDED);
    return status == CHOIR_OK ? choir__job_check_restarts(own) : status;
}

static double bytes_of(const search *s, const choir__rehearsal *r)
{
    double sum = 0, most = 0;
    for (int i = 0; i < r->device_count; i++) {
        const double peak = (double)r->devices[i].counts.bytes_peak;
        sum += peak * r->devices[i].alike;
        most = fmax(most, peak);
    }
    return s->room > 0 ? sum + OWN * r->world : most;
}

/* Rehearses a placement. */
static outcome look(search *s, const choir__auto_form *f)
{
    outcome o = {.form = *f, .ms = NAN, .threads = s->job->placement.threads};
    choir__job *own = choir__alloc(sizeof *own);
    choir__rehearsal r = {0};
    choir__step_price price;
    const bool free_cores = s->room > 0 && !s->job->placement.devices &&
                            !choir__job_was_given(s->job, CHOIR__JOB_OPTION(placement.threads));
    choir_status status = prepare(s, f, own);
    if (status == CHOIR_OK) {
        status = choir__job_rehearse(own, &r);
        o.runs = status == CHOIR_OK || status == CHOIR_ERR_MEMORY;
        if (status == CHOIR_ERR_MEMORY && !*s->lacks) {
            snprintf(s->lacks, sizeof s->lacks, "%s", choir_error_message());
            s->lacking = *f;
        }
    }
    if (status == CHOIR_OK)
        status = choir__rehearsal_price(&r, &s->machine, 0, &price, NULL);
    if (status == CHOIR_OK) {
        if (free_cores)
            o.threads = choir__auto_threads(s->flop, s->devices, f->ranks);
        o.bytes = bytes_of(s, &r);
        o.fits = s->room <= 0 || o.bytes <= s->room;
        o.ms = price.ms * choir__auto_speed(o.threads);
    } else if (!o.runs && !*s->refused) {
        snprintf(s->refused, sizeof s->refused, "%s", choir_error_message());
    }
    choir__rehearsal_free(&r);
    choir__composition_free(&own->placement.composition);
    free(own);
    return o;
}

/* --- the search --- */

static bool is_better(const outcome *a, const outcome *b)
{
    if (!a->fits || !b->fits)
        return a->fits;
    return isfinite(a->ms) && isfinite(b->ms) && a->ms < GAIN * b->ms;
}

/* Looks at a form. Returns whether it became the best one. */
static bool consider(search *s, const choir__auto_form *f)
{
    const outcome o = look(s, f);
    if (o.runs && !o.fits && o.bytes > 0 && (!s->least.runs || o.bytes < s->least.bytes))
        s->least = o;
    if (!o.runs || !is_better(&o, &s->best))
        return false;
    s->best = o;
    return true;
}

/* Returns whether nothing that is left could be much better. */
static bool is_good_enough(const search *s)
{
    if (!s->best.fits)
        return false;
    return !isfinite(s->best.ms) || s->best.ms < SHORT_MS ||
           s->best.ms <= NEAR * s->single.ms / s->devices;
}

/* The first strategy that divides micro-batches, with as many ranks as the cut has parts for,
 * then with half as many while that is better; then all the forms of all devices. */
static void find(search *s)
{
    choir__auto_form forms[MOST_FORMS];
    int data = (int)choir__min(s->devices, s->job->training.microbatches), count;
    for (int ranks = data; ranks > 1 && !is_good_enough(s); ranks /= 2) {
        choir__auto_form plain = {.ranks = ranks};
        snprintf(plain.strategy, sizeof plain.strategy, "%s",
            choir__job_strategy_dividing(CHOIR__MICRO_BATCHES, 0)->name);
        if (!consider(s, &plain) && s->best.fits)
            break;
    }
    if (is_good_enough(s))
        return;
    count = choir__auto_forms(&s->job->training, s->devices, forms, MOST_FORMS);
    for (int i = 0; i < count && !is_good_enough(s); i++)
        consider(s, &forms[i]);
    if (s->best.fits || data == s->devices || data < 2)
        return;
    count = choir__auto_forms(&s->job->training, data, forms, MOST_FORMS);
    for (int i = 0; i < count && !is_good_enough(s); i++)
        consider(s, &forms[i]);
}

static void find_for_ranks(search *s, int ranks)
{
    choir__auto_form forms[MOST_FORMS];
    const int count = choir__auto_forms(&s->job->training, ranks, forms, MOST_FORMS);
    for (int i = 0; i < count && !is_good_enough(s); i++)
        consider(s, &forms[i]);
}

/* --- words --- */

static void size(double bytes, char text[32])
{
    const bool large = bytes >= 1024.0 * 1024 * 1024;
    snprintf(text, 32, large ? "%.1f GiB" : "%.1f MiB", bytes / (large ? 0x1p30 : 0x1p20));
}

static void lasting(double ms, char text[32])
{
    const bool brief = ms < 999.5;
    snprintf(text, 32, brief ? "%.3g ms" : "%.4g s", brief ? ms : ms * 1e-3);
}

/* Sets the error message to what the first placement without room lacks, with the advice that
 * its training would give, on a dry device. */
static void advise(const search *s)
{
    choir__job *own = choir__alloc(sizeof *own);
    choir_device *device = choir_device_find("dry:0");
    const choir_status status = prepare(s, &s->lacking, own);
    choir__set_message(s->lacks);
    if (status == CHOIR_OK && device && choir__job_strategy_is_whole(&own->placement) &&
        own->training.chunks < 2 && choir_dry_restart(device) == CHOIR_OK) {
        const int64_t dealt = choir__job_strategy_dealt(&own->placement);
        choir_device_set_limit(device, (size_t)own->placement.mem_cap);
        choir__explain_memory(own, device, (own->training.microbatches + dealt - 1) / dealt);
    } else {
        choir__error(CHOIR_ERR_MEMORY, "%s; 'choir plan' says what would fit", s->lacks);
    }
    choir__composition_free(&own->placement.composition);
    free(own);
}

static void refuse(const search *s, struct choir__auto_choice *c)
{
    char needs[32], has[32];
    c->status = CHOIR_ERR_MEMORY;
    size(s->least.bytes, needs);
    size(s->room, has);
    if (s->least.runs) {
        snprintf(c->words, sizeof c->words,
            "--strategy auto: no strategy fits: %s on %d device%s lacks least, it needs %s and %s "
            "may be used; 'choir plan' says what would fit",
            s->least.form.strategy, s->least.form.ranks, s->least.form.ranks > 1 ? "s" : "",
            needs, has);
    } else if (*s->lacks) {
        advise(s);
        snprintf(c->words, sizeof c->words,
            "--strategy auto: no strategy fits on %d device%s: %s: %s", s->devices,
            s->devices > 1 ? "s" : "", s->lacking.strategy, choir_error_message());
    } else {
        c->status = CHOIR_ERR_ARGUMENT;
        snprintf(c->words, sizeof c->words, "%s", s->refused);
    }
}

static void explain(const search *s, struct choir__auto_choice *c)
{
    const outcome *b = &s->best, *one = &s->single;
    char bytes[32], step[32], alone[32], rest[128] = "", figures[256];
    size(b->bytes, bytes);
    lasting(b->ms, step);
    lasting(one->ms, alone);
    if (!isfinite(b->ms)) {
        snprintf(c->words, sizeof c->words,
            "%s; its step is not recorded, so it has no forecast", bytes);
        return;
    }
    if (b->form.ranks > 1 && !one->fits)
        snprintf(rest, sizeof rest, " (single does not fit)");
    else if (b->form.ranks > 1)
        snprintf(rest, sizeof rest, " (single: %s)", alone);
    else if (s->devices > 1 && b->ms < SHORT_MS)
        snprintf(rest, sizeof rest, ", too short to share");
    else if (s->devices > 1)
        snprintf(rest, sizeof rest, ", which more ranks would not shorten");
    snprintf(c->words, sizeof c->words, "about %s per step%s, %s, by %s", step, rest, bytes,
        choir__machine_figures(&s->machine, figures));
}

void choir__auto_choose(
    const choir__job *job, int devices, int ranks, double flop, struct choir__auto_choice *c)
{
    const choir__auto_form single = {.strategy = "single", .ranks = 1};
    const bool cores = strncmp(job->placement.device_names[0], "cpu", 3) == 0;
    search *s = choir__calloc(1, sizeof *s);
    *s = (search){.job = job,
        .devices = ranks ? ranks : devices,
        .flop = flop,
        .room = cores ? fmin(choir__usable_memory(""), choir__usable_room("")) : 0};
    choir_status status =
        choir__machine_find(NULL, job->placement.device_names[0], &s->machine);
    if (status != CHOIR_OK) { /* a calibration of another machine: presets will do */
        choir__machine_free(&s->machine);
        (void)choir_error_message();
        s->machine.place = (choir__cluster){0};
        status = choir__cluster_preset(
            cores ? "cpu" : "H100", 1, CHOIR__MAX_DEVICES, &s->machine.place);
    }
    consider(s, &single);
    s->single = s->best;
    if (ranks) {
        s->best = s->least = (outcome){0};
        *s->lacks = '\0';
        find_for_ranks(s, ranks);
    } else {
        find(s);
    }
    *c = (struct choir__auto_choice){.microbatches = job->training.microbatches};
    if (s->best.fits) {
        c->form = s->best.form;
        c->threads = s->best.threads;
        explain(s, c);
    } else {
        refuse(s, c);
    }
    choir__machine_free(&s->machine);
    free(s);
}
