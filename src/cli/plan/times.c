/* The second table of a plan: times and costs. A training is its steps, its validations and its
 * checkpoints. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double mib = 1048576;

/* A validation batch takes a third of a step: an estimate, by FLOPs. */
static const double FORWARD = 1.0 / 3;

/* --- a training --- */

static double steps_of(const choir__planning *p, const choir__plan_entry *e)
{
    return p->items > 0 ? ceil(p->items / e->items) : (double)e->steps;
}

double choir__plan_seconds(const choir__planning *p, const choir__plan_entry *e)
{
    const double steps = steps_of(p, e), step = e->price.ms * 1e-3;
    const double evals = e->eval_every ? floor(steps / (double)e->eval_every) : 0,
                 saves = e->save_every ? floor(steps / (double)e->save_every) : 0;
    return steps * step + (evals + e->eval_at_end) * (double)e->eval_batches * step * FORWARD +
           saves * p->machine.place.failures.save_s;
}

double choir__plan_cost(const choir__planning *p, const choir__plan_entry *e)
{
    const double price = p->price > 0 ? p->price : p->machine.place.price_per_device_hour;
    return price * choir__plan_seconds(p, e) / 3600 * e->rehearsal.world * e->rehearsal.each;
}

bool choir__plan_has_price(const choir__planning *p)
{
    return p->price > 0 || p->machine.place.price_per_device_hour > 0;
}

/* --- the table --- */

/* Writes seconds as people read them: "12.3 s", "4 h 10 min", "3.2 days". */
static const char *duration(double s, char text[32])
{
    if (s < 600)
        snprintf(text, 32, "%.3g s", s);
    else if (s < 2 * 86400.0)
        snprintf(text, 32, "%d h %02d min", (int)(s / 3600), (int)(fmod(s, 3600) / 60));
    else
        snprintf(text, 32, "%.1f days", s / 86400);
    return text;
}

/* Writes the bytes that a step sends, by level: "core 12.1, node 3.4". */
static const char *moved(const choir__plan_entry *e, char text[96])
{
    size_t used = 0;
    *text = '\0';
    for (int l = 0; l < CHOIR__LEVELS; l++)
        if (e->price.link_bytes[l] > 0 && used < 96)
            used += (size_t)snprintf(text + used, 96 - used, "%s%s %.*f", used ? ", " : "",
                choir__level_name((choir__level)l), e->price.link_bytes[l] < 10 * mib ? 2 : 0,
                e->price.link_bytes[l] / mib);
    return used ? text : "-";
}

static void print_row(const choir__planning *p, const choir__plan_entry *e)
{
    char step[32], low[32], high[32], times[96] = "-", sent[96], whole[32], cost[32] = "";
    if (!isfinite(e->price.ms)) {
        printf("%-30s %-6s %s\n", e->text, *e->mesh ? e->mesh : "-", "-");
        return;
    }
    snprintf(times, sizeof times, "%s (%s to %s)", choir__plan_time(e->price.ms, step),
        choir__plan_time(e->price.low_ms, low), choir__plan_time(e->price.high_ms, high));
    if (choir__plan_has_price(p))
        snprintf(cost, sizeof cost, "  %.2f", choir__plan_cost(p, e));
    printf("%-30s %-6s %-32s %10.4g %4.0f %%  %-13s %s%s\n", e->text, *e->mesh ? e->mesh : "-",
        times, e->items / (e->price.ms * 1e-3), 100 * e->price.idle,
        duration(choir__plan_seconds(p, e), whole), moved(e, sent), cost);
}

void choir__plan_times(const choir__planning *p)
{
    char figures[256];
    const choir__plan_entry *first = NULL;
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].planned && isfinite(p->entries[i].price.ms) && !first)
            first = &p->entries[i];
    if (!first)
        return;
    printf(
        "\nstrategy                       mesh   step                              %s/s   idle  "
        "training      sent MiB%s\n",
        first->tokens ? " tokens" : "samples", choir__plan_has_price(p) ? "  cost" : "");
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].planned)
            print_row(p, &p->entries[i]);
    printf(
        "\nStep: with its 5th and 95th of 100. Idle: of the devices' time. Training: of %.4g %s, "
        "with its validations%s.\nSent: per step by all devices, by the level of the links.\n",
        steps_of(p, first) * first->items, first->tokens ? "tokens" : "samples",
        p->machine.place.failures.save_s > 0 ? " and checkpoints" : "");
    printf("Times: by %s%s.\n", choir__machine_figures(&p->machine, figures),
        p->machine.calibrated || p->machine.described
            ? ""
            : "; choir plan --calibrate measures this machine");
}
