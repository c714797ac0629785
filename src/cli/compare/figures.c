/* The figures of a comparison, computed over all its runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare/compare.h"
#include "record/events.h"

static const double small_job = 16 * 1048576.0; /* bytes */

/* --- a run --- */

double choir__outcome_number(const choir__outcome *o, const char *key)
{
    const json_t *value = json_object_get(o->summary, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

void choir__outcome_free(choir__outcome *o)
{
    json_decref(o->summary);
    json_decref(o->plan);
    free(o->bits);
    *o = (choir__outcome){0};
}

/* --- statistics --- */

/* Returns the quantile of the sorted values, linearly interpolated between neighbours. */
static double quantile(const double *sorted, int count, double share)
{
    double at = share * (count - 1);
    int low = (int)at;
    return low + 1 < count ? sorted[low] + (at - low) * (sorted[low + 1] - sorted[low])
                           : sorted[count - 1];
}

static double between(const double *values, int count, double low, double high)
{
    if (count < 1)
        return NAN;
    double *sorted = choir__alloc((size_t)count * sizeof *sorted);
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, choir__by_number);
    double a = quantile(sorted, count, low), b = quantile(sorted, count, high);
    free(sorted);
    return low == high ? a : b - a;
}

double choir__median(const double *values, int count)
{
    return between(values, count, 0.5, 0.5);
}

double choir__run_spread(const double *values, int count)
{
    return count < 5 ? between(values, count, 0, 1) / 2
                     : between(values, count, 0.25, 0.75) / 2;
}

/* --- an entry --- */

static bool same(const choir__outcome *a, const choir__outcome *b)
{
    const char *x =
        json_string_value(json_object_get(a->summary, CHOIR__KEY(summary, weights_sha256)));
    const char *y =
        json_string_value(json_object_get(b->summary, CHOIR__KEY(summary, weights_sha256)));
    return x && y && !strcmp(x, y) && a->steps > 0 && a->steps == b->steps &&
           !memcmp(a->bits, b->bits, (size_t)a->steps * sizeof *a->bits);
}

static void devices_of(choir__compare_entry *e, const choir__outcome *o)
{
    const json_t *devices = json_object_get(o->summary, CHOIR__KEY(summary, devices)), *device;
    size_t i;
    double moved = 0, steps = choir__outcome_number(o, CHOIR__KEY(summary, steps));
    json_array_foreach(devices, i, device)
    {
        e->peak_bytes = fmax(e->peak_bytes,
            json_number_value(json_object_get(device, CHOIR__KEY(device, peak_bytes))));
        moved += json_number_value(json_object_get(device, CHOIR__KEY(device, comm_bytes)));
    }
    e->moved_bytes = moved / fmax(1, steps);
}

static double items_of_step(const choir__outcome *o)
{
    return choir__outcome_number(o, CHOIR__KEY(summary, items_per_s)) *
           choir__outcome_number(o, CHOIR__KEY(summary, step_ms_median)) * 1e-3;
}

static void figures_of(choir__compare *c, choir__compare_entry *e)
{
    const choir__compare_entry *single = &c->entries[0];
    int timed = e->run_count - c->untimed;
    double *rates = choir__calloc((size_t)timed, sizeof *rates);
    e->same_bits = !c->untimed || same(&e->runs[0], &single->runs[0]);
    for (int r = 0; r < timed; r++) {
        const choir__outcome *o = &e->runs[c->untimed + r];
        rates[r] = choir__outcome_number(o, CHOIR__KEY(summary, items_per_s));
        e->same_bits = e->same_bits && same(o, &single->runs[c->untimed]);
    }
    e->items_per_s = choir__median(rates, timed);
    e->spread = choir__run_spread(rates, timed);
    e->step_ms = items_of_step(&e->runs[0]) / e->items_per_s * 1e3;
    e->world = (int)choir__outcome_number(&e->runs[0], CHOIR__KEY(summary, world));
    e->final_loss = choir__outcome_number(&e->runs[0], CHOIR__KEY(summary, final_loss));
    e->speed_up = e->items_per_s / single->items_per_s;
    e->efficiency = e->speed_up / fmax(1, e->world);
    devices_of(e, &e->runs[0]);
    free(rates);
}

void choir__compare_figures(choir__compare *c)
{
    for (int i = 0; i < c->count; i++)
        if (!c->entries[i].failed)
            figures_of(c, &c->entries[i]);
}

/* --- which is best --- */

/* Returns the fastest entry that `want` accepts, and, if it is not NULL, of the family. */
static choir__compare_entry *fastest(const choir__compare *c,
    bool (*want)(const choir__compare_entry *entry), const choir__strategy_family *family)
{
    choir__compare_entry *best = NULL;
    for (int i = 0; i < c->count; i++) {
        choir__compare_entry *e = &c->entries[i];
        if (!e->failed && (!want || want(e)) && (!family || choir__compare_is(e, *family)) &&
            (!best || e->items_per_s > best->items_per_s))
            best = e;
    }
    return best;
}

choir__compare_entry *choir__compare_best(
    const choir__compare *c, bool (*want)(const choir__compare_entry *entry))
{
    return fastest(c, want, NULL);
}

choir__compare_entry *choir__compare_best_of(
    const choir__compare *c, choir__strategy_family family)
{
    return fastest(c, NULL, &family);
}

/* Returns the entry whose fullest device uses the least memory. */
static const choir__compare_entry *lightest(const choir__compare *c)
{
    const choir__compare_entry *best = NULL;
    for (int i = 0; i < c->count; i++)
        if (!c->entries[i].failed && (!best || c->entries[i].peak_bytes < best->peak_bytes))
            best = &c->entries[i];
    return best;
}

/* Returns the fastest other entry whose speed differs from the best by no more than the spread
 * of the runs, or NULL. */
static const choir__compare_entry *equal_to(
    const choir__compare *c, const choir__compare_entry *best)
{
    const choir__compare_entry *other = NULL;
    for (int i = 0; i < c->count; i++) {
        const choir__compare_entry *e = &c->entries[i];
        if (e != best && !e->failed &&
            best->items_per_s - e->items_per_s <= best->spread + e->spread &&
            (!other || e->items_per_s > other->items_per_s))
            other = e;
    }
    return other;
}

const char *choir__compare_items(const choir__compare *c)
{
    return items_of_step(&c->entries[0].runs[0]) > 1.5 * (double)c->job.training.batch_size
               ? "tokens"
               : "samples";
}

/* Writes MiB as the table does: "20", or "4.2", since small numbers differ in the decimal. */
static const char *in_mib(double bytes, char text[32])
{
    double mib = bytes / 1048576;
    snprintf(text, 32, "%.*f MiB", mib < 9.95 ? 1 : 0, mib);
    return text;
}

/* Names the entry that takes the least memory. No device lacks the memory of a small job. */
static void advise_memory(
    const choir__compare *c, const choir__compare_entry *best, char *text, size_t room)
{
    const choir__compare_entry *light = lightest(c);
    char most[32], least[32];
    if (best->peak_bytes < small_job || light->peak_bytes > 0.9 * best->peak_bytes)
        return;
    size_t used = strlen(text);
    snprintf(text + used, room - used,
        " If memory is short: %s takes %s of its fullest device, %s takes %s, at %.2f times one "
        "device%s.",
        best->text, in_mib(best->peak_bytes, most), light->text,
        in_mib(light->peak_bytes, least), light->speed_up,
        light->same_bits ? "" : " and with other bits");
}

static bool has_same_bits(const choir__compare_entry *e)
{
    return e->same_bits;
}

static bool is_noisy(const choir__compare_entry *e)
{
    return e->spread > 0.2 * e->items_per_s;
}

/* Names faster entries whose result differs from run to run. */
static void advise_others(
    const choir__compare *c, const choir__compare_entry *best, char *text, size_t room)
{
    const choir__compare_entry *first = choir__compare_best(c, NULL);
    if (first->same_bits ||
        first->items_per_s - best->items_per_s <= first->spread + best->spread)
        return;
    size_t used = strlen(text);
    snprintf(text + used, room - used,
        " %s is faster still, %.2f times one device, but its result is not that of one device.",
        first->text, first->speed_up);
}

void choir__compare_advice(const choir__compare *c, char *text, size_t room)
{
    const choir__compare_entry *single = &c->entries[0],
                               *best = choir__compare_best(c, has_same_bits);
    best = best ? best : single;
    const choir__compare_entry *other = equal_to(c, best);
    if (is_noisy(best) || is_noisy(single) ||
        (best != single &&
            best->items_per_s - single->items_per_s <= best->spread + single->spread)) {
        int used = best == single
                       ? snprintf(text, room, "No advice: ")
                       : snprintf(text, room, "No advice: %s was %.2f times one device, but ",
                             best->text, best->speed_up);
        snprintf(text + used, room - (size_t)used,
            "runs of the same strategy differ by too much; more --repeats or --steps, or a machine "
            "that is less busy, would tell.");
        return;
    }
    if (best == single)
        snprintf(text, room,
            "Stay with single: of these, nothing is faster on this model, batch and machine; more "
            "work for each device (a larger --batch-size or model) may change that.");
    else
        snprintf(text, room,
            "Choose %s: %.2f times one device, %.0f %% of what %d could give, with the same "
            "bits%s%s%s.",
            best->text, best->speed_up, 100 * best->efficiency, best->world, other ? "; " : "",
            other ? other->text : "",
            other ? " is as fast, within the spread of the runs" : "");
    advise_others(c, best, text, room);
    advise_memory(c, best, text, room);
    size_t used = strlen(text);
    if (c->repeats == 1)
        snprintf(text + used, room - used, " One run each is little to go by: see --repeats.");
}

void choir__compare_label(const choir__compare_entry *e, char label[64])
{
    static const char middle[] = ":schedule=";
    const char *at = strstr(e->text, middle);
    if (at)
        snprintf(label, 64, "%.*s %.30s", (int)choir__min(at - e->text, 30), e->text,
            at + strlen(middle));
    else
        snprintf(label, 64, "%.60s", e->text);
}
