/* A plan for people, as an aligned table, and for programs, as lines of JSON. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "line/printed.h"
#include "record/events.h"

static const double mib = 1048576;

/* --- the table --- */

static void print_row(const choir__plan_entry *e)
{
    const choir__rehearsal *r = &e->rehearsal;
    const choir_dry_counts *most = &r->devices[0].counts;
    size_t least = most->bytes_peak;
    for (int i = 1; i < r->device_count; i++) {
        const choir_dry_counts *c = &r->devices[i].counts;
        most = c->bytes_peak > most->bytes_peak ? c : most;
        least = choir__min(least, c->bytes_peak);
    }
    printf("%-30s %-6s %5d  %-4s %10.1f %10.1f %10.1f %9.1f %9.1f %11.1f %9.1f %8.1f\n",
        e->text, *e->mesh ? e->mesh : "-", r->world * r->each, e->fits ? "yes" : "no",
        (double)most->bytes_peak / mib, (double)least / mib, (double)most->peak_weights / mib,
        (double)most->peak_gradients / mib, (double)most->peak_optimizer / mib,
        (double)most->peak_activations / mib, (double)most->peak_workspace / mib,
        (double)most->peak_messages / mib);
}

void choir__plan_table(const choir__planning *p)
{
    char memory[32];
    const bool cpus = !strncmp(p->devices, "cpu", 3);
    printf("strategy                       mesh      on  fits   peak MiB      least "
           "parameters gradients optimizer activations workspace messages\n");
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].planned)
            print_row(&p->entries[i]);
    printf(
        "\nPeak: of the device that holds most, with its parts; least: of the one that holds "
        "least.\n%s has %s.\n",
        choir__plan_has_nodes(p) ? "Each node"
        : cpus                   ? "The machine"
                                 : "Each device",
        choir__plan_size(
            cpus ? (double)p->memory : (double)p->machine.place.device.memory_bytes, memory));
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].planned && !p->entries[i].fits)
            printf("%s does not fit: %s.\n", p->entries[i].text, p->entries[i].lacks);
    for (int i = 0; i < p->count && p->count > 1; i++)
        if (!p->entries[i].planned && !p->strategies)
            printf("Left out: %s%s%s (%s).\n", p->entries[i].text,
                *p->entries[i].mesh ? " on " : "", p->entries[i].mesh, p->entries[i].error);
    const choir__plan_entry *best = choir__plan_best(p), *shown = best ? best : p->nearest;
    if (shown)
        choir__plan_print_holders(shown);
    choir__plan_times(p);
    char *sentence = choir__plan_sentence(p, best);
    printf("\n%s\n", sentence);
    free(sentence);
    if (best) {
        char *command = choir__plan_command(p, best, "");
        printf("\n  %s\n", command);
        free(command);
    }
    choir__plan_print_remedies(p);
    if (p->other)
        printf("\n%s\n\n  %s\n", p->other, p->other_command);
}

/* --- JSON --- */

static void print_entry(const choir__planning *p, const choir__plan_entry *e)
{
    const choir__rehearsal *r = &e->rehearsal;
    const int world = r->world * r->each, count = r->names ? world : r->device_count;
    choir__told_planned *devices = choir__calloc((size_t)count, sizeof *devices);
    for (int i = 0; i < count; i++) {
        const int of = r->names ? r->class_of[i / r->each] * r->each + i % r->each : i;
        const choir_dry_counts *c = &r->devices[of].counts;
        devices[i] =
            (choir__told_planned){.device = r->names ? r->names[i] : r->devices[i].name,
                .alike = r->names ? 1 : r->devices[i].alike,
                .peak_bytes = (int64_t)c->bytes_peak,
                .weights_bytes = (int64_t)c->peak_weights,
                .gradients_bytes = (int64_t)c->peak_gradients,
                .optimizer_bytes = (int64_t)c->peak_optimizer,
                .other_bytes = (int64_t)c->peak_other,
                .activations_bytes = (int64_t)c->peak_activations,
                .workspace_bytes = (int64_t)c->peak_workspace,
                .messages_bytes = (int64_t)c->peak_messages,
                .reserved_bytes = (int64_t)c->bytes_reserved,
                .flops = c->flops};
    }
    choir__told_held *held = choir__calloc((size_t)r->part_count + 1, sizeof *held);
    for (int i = 0; i < r->part_count; i++)
        held[i] = (choir__told_held){.kind = r->parts[i].kind,
            .name = r->parts[i].name,
            .bytes = (double)r->parts[i].bytes};
    choir__told_moved links[CHOIR__LEVELS];
    int64_t levels = 0;
    for (int l = 0; l < CHOIR__LEVELS; l++)
        if (e->price.link_bytes[l] > 0)
            links[levels++] = (choir__told_moved){
                .level = choir__level_name((choir__level)l), .bytes = e->price.link_bytes[l]};
    choir__event_print(CHOIR__TOLD(plan, .strategy = e->text, .mesh = *e->mesh ? e->mesh : NULL,
        .world = world, .microbatches = e->microbatches, .fits = e->fits,
        .step_ms = e->price.ms, .step_ms_low = e->price.low_ms,
        .step_ms_high = e->price.high_ms, .items_per_s = e->items / (e->price.ms * 1e-3),
        .idle = e->price.idle, .measured = e->price.measured,
        .whole_s = choir__plan_seconds(p, e),
        .cost = choir__plan_has_price(p) ? choir__plan_cost(p, e) : NAN, .links = links,
        .links_count = levels, .memory_bytes = (int64_t)e->bytes,
        .resident_bytes = p->cluster || strncmp(p->devices, "cpu", 3)
                              ? -1
                              : (int64_t)choir__rehearsal_resident(r),
        .lacks = e->fits ? NULL : e->lacks, .devices = devices, .devices_count = count,
        .held = held, .held_count = r->part_count));
    free(held);
    free(devices);
}

/* Returns the strategies that cannot run; the caller frees them. */
static choir__told_left_out *left_out(const choir__planning *p, int *count)
{
    choir__told_left_out *all = choir__calloc((size_t)p->count + 1, sizeof *all);
    *count = 0;
    for (int i = 0; i < p->count; i++) {
        const choir__plan_entry *e = &p->entries[i];
        if (!e->planned)
            all[(*count)++] = (choir__told_left_out){
                .strategy = e->text, .mesh = *e->mesh ? e->mesh : NULL, .why = e->error};
    }
    return all;
}

void choir__plan_json(const choir__planning *p)
{
    int outside;
    for (int i = 0; i < p->count; i++)
        if (p->entries[i].planned)
            print_entry(p, &p->entries[i]);
    const choir__plan_entry *best = choir__plan_best(p);
    char *why = choir__plan_sentence(p, best);
    char *command = best ? choir__plan_command(p, best, "") : NULL;
    choir__told_remedy *remedies = choir__calloc((size_t)p->remedy_count + 1, sizeof *remedies);
    for (int i = 0; i < p->remedy_count; i++)
        remedies[i] = (choir__told_remedy){.change = p->remedies[i].words,
            .command = p->remedies[i].command,
            .memory_bytes = (int64_t)p->remedies[i].bytes};
    choir__told_left_out *others = left_out(p, &outside);
    choir__event_print(CHOIR__TOLD(advice, .strategy = best ? best->text : NULL,
        .command = command, .why = why, .other_microbatches = p->other_cut,
        .other_step_ms = p->other_cut ? p->other_ms : NAN, .other_command = p->other_command,
        .remedies = remedies, .remedies_count = p->remedy_count, .left_out = others,
        .left_out_count = outside));
    free(others);
    free(remedies);
    free(command);
    free(why);
}
