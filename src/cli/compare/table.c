/* A comparison for people, as an aligned table, and for programs, as lines of JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare/compare.h"
#include "record/events.h"
#include "job/report/report.h"

enum { COLUMNS = 10, SEPARATE_DEVICES = 4, LINE = 79 };

static const double mib = 1048576;

/* --- the table --- */

/* Writes "812 640", or for many devices the smallest and the largest: "640-812". */
static void list_of(const choir__outcome *o, const char *key, double scale, char text[96])
{
    const json_t *devices = json_object_get(o->summary, CHOIR__KEY(summary, devices)), *device;
    size_t i, count = json_array_size(devices), length = 0;
    double low = INFINITY, high = -INFINITY;
    *text = '\0';
    json_array_foreach(devices, i, device)
    {
        double value = json_number_value(json_object_get(device, key)) * scale;
        low = fmin(low, value);
        high = fmax(high, value);
        if (count <= SEPARATE_DEVICES)
            length += (size_t)snprintf(text + length, 96 - length, "%s%.*f", i ? " " : "",
                value < 9.95 ? 1 : 0, value);
    }
    if (count > SEPARATE_DEVICES)
        snprintf(text, 96, "%.*f-%.*f", high < 9.95 ? 1 : 0, low, high < 9.95 ? 1 : 0, high);
}

static void fill_row(const choir__compare_entry *e, char cells[COLUMNS][96])
{
    int places = e->items_per_s < 99.5 ? 1 : 0;
    snprintf(cells[0], 96, "%.*s", 95, e->text);
    snprintf(cells[1], 96, "%.*f ± %.*f", places, e->items_per_s, places, e->spread);
    snprintf(cells[2], 96, isnan(e->foreseen_items_per_s) ? "-" : "%.*f",
        e->foreseen_items_per_s < 99.5 ? 1 : 0, e->foreseen_items_per_s);
    snprintf(cells[3], 96, "%.2f", e->speed_up);
    snprintf(cells[4], 96, "%.0f %%", 100 * e->efficiency);
    list_of(&e->runs[0], CHOIR__KEY(device, peak_bytes), 1 / mib, cells[5]);
    list_of(&e->runs[0], CHOIR__KEY(device, busy), 100, cells[6]);
    snprintf(cells[7], 96, "%.*f", e->moved_bytes < 10 * mib ? 1 : 0, e->moved_bytes / mib);
    snprintf(cells[8], 96, isnan(e->final_loss) ? "-" : "%.4f", e->final_loss);
    snprintf(cells[9], 96, "%s", e->same_bits ? "yes" : "no");
}

/* Returns the number of characters: continuation bytes of UTF-8 do not count. */
static int columns_of(const char *text)
{
    int count = 0;
    for (; *text; text++)
        count += (*text & 0xc0) != 0x80;
    return count;
}

static void print_row(char cells[COLUMNS][96], const int width[COLUMNS])
{
    for (int k = 0; k < COLUMNS; k++) {
        int pad = width[k] - columns_of(cells[k]);
        if (k)
            printf("  %*s%s", pad, "", cells[k]);
        else
            printf("%s%*s", cells[k], pad, "");
    }
    printf("\n");
}

/* Prints text with lines broken at blanks. */
static void print_wrapped(const char *text)
{
    while (*text) {
        int length = (int)strlen(text);
        if (length > LINE)
            for (length = LINE; length && text[length] != ' ';)
                length--;
        length = length ? length : (int)strlen(text);
        printf("%.*s\n", length, text);
        text += length;
        text += *text == ' ';
    }
}

static void print_heading(const choir__compare *c)
{
    const choir__job *j = &c->job;
    printf(
        "%s, batch %lld in %lld micro-batch%s of %lld, %s; %lld run%s of %lld steps each\n\n",
        json_string_value(
            json_object_get(c->entries[0].runs[0].summary, CHOIR__KEY(summary, model))),
        (long long)j->training.batch_size, (long long)j->training.microbatches,
        j->training.microbatches > 1 ? "es" : "",
        (long long)(j->training.batch_size / j->training.microbatches), c->devices,
        (long long)c->repeats, c->repeats > 1 ? "s" : "", (long long)j->training.steps);
}

static void print_splits(const choir__compare *c)
{
    printf("\n%-32s", "samples per split:");
    for (int s = 0; s < c->split_count; s++)
        printf(" %8lld", (long long)c->splits[s]);
    printf("\n");
    for (int i = 0; i < c->count; i++) {
        const choir__compare_entry *e = &c->entries[i];
        if (!choir__compare_is(e, CHOIR__PIPELINED) || e->failed)
            continue;
        printf("%-32s", e->text);
        for (int s = 0; s < c->split_count; s++)
            if (e->split_runs[s])
                printf(" %8.*f", e->items_per_s < 99.5 ? 1 : 0,
                    choir__median(e->split[s], e->split_runs[s]));
            else
                printf(" %8s", "-");
        printf("\n");
    }
}

void choir__compare_table(const choir__compare *c)
{
    char heading[COLUMNS][96] = {"strategy", "", "foreseen", "speed-up", "efficiency",
        "peak MiB", "busy %", "moved MiB", "loss", "same bits"};
    char(*rows)[COLUMNS][96] = choir__calloc((size_t)c->count + 1, sizeof *rows), advice[1024];
    int width[COLUMNS] = {0}, pipelines = 0;
    snprintf(heading[1], 96, "%s/s", choir__compare_items(c));
    memcpy(rows[c->count], heading, sizeof heading);
    for (int i = 0; i < c->count; i++)
        if (!c->entries[i].failed)
            fill_row(&c->entries[i], rows[i]);
    for (int i = 0; i <= c->count; i++)
        for (int k = 0; k < COLUMNS; k++)
            width[k] = (int)choir__max(width[k], columns_of(rows[i][k]));
    print_heading(c);
    print_row(rows[c->count], width);
    for (int i = 0; i < c->count; i++) {
        pipelines += choir__compare_is(&c->entries[i], CHOIR__PIPELINED);
        if (!c->entries[i].failed)
            print_row(rows[i], width);
    }
    free(rows);
    if (c->split_count && pipelines)
        print_splits(c);
    printf("\nPeak and busy: per device; moved: by all devices, per step; ±: half of the %s.\n",
        c->repeats < 5 ? "range of the runs" : "runs' middle half");
    printf("Rates leave out a run's first %d steps, in which strategies measure and record",
        CHOIR__JOB_REPORT_WARM_UP);
    if (c->untimed)
        printf("; they are of runs of %lld steps", (long long)c->timed_steps);
    printf(".\n");
    printf("Foreseen: the rate by 'choir plan', which names its figures.\n");
    for (int i = 0; i < c->count; i++)
        if (c->entries[i].failed)
            printf("Left out: %s (%s).\n", c->entries[i].text, c->entries[i].error);
    choir__compare_advice(c, advice, sizeof advice);
    printf("\n");
    print_wrapped(advice);
}

/* --- JSON --- */

static void put(json_t *object, const char *key, double value)
{
    json_object_set_new(object, key, isfinite(value) ? json_real(value) : json_null());
}

static void print(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
    printf("\n");
    json_decref(object);
}

/* Prints train's summary of the first run, with the rate of all runs. */
static void print_entry(const choir__compare_entry *e, int untimed)
{
    json_t *o = json_deep_copy(e->runs[0].summary), *runs = json_array();
    for (int r = untimed; r < e->run_count; r++)
        json_array_append_new(runs,
            json_real(choir__outcome_number(&e->runs[r], CHOIR__KEY(summary, items_per_s))));
    put(o, CHOIR__KEY(summary, items_per_s), e->items_per_s);
    put(o, CHOIR__KEY(summary, step_ms_median), e->step_ms);
    put(o, "items_per_s_spread", e->spread);
    json_object_set_new(o, "items_per_s_runs", runs);
    put(o, "speed_up", e->speed_up);
    put(o, "efficiency", e->efficiency);
    put(o, "foreseen_step_ms", e->foreseen_step_ms);
    put(o, "foreseen_items_per_s", e->foreseen_items_per_s);
    json_object_set_new(o, "same_bits", json_boolean(e->same_bits));
    print(o);
}

static void print_entry_splits(const choir__compare *c, const choir__compare_entry *e)
{
    for (int s = 0; s < c->split_count; s++) {
        if (!e->split_runs[s])
            continue;
        json_t *o = json_pack("{s:s, s:s, s:I, s:I}", "event", "split", "strategy", e->text,
            "split", (json_int_t)c->splits[s], "microbatches",
            (json_int_t)(c->job.training.batch_size / c->splits[s]));
        put(o, CHOIR__KEY(summary, items_per_s), choir__median(e->split[s], e->split_runs[s]));
        put(o, "items_per_s_spread", choir__run_spread(e->split[s], e->split_runs[s]));
        print(o);
    }
}

void choir__compare_json(const choir__compare *c)
{
    char advice[1024];
    for (int i = 0; i < c->count; i++) {
        const choir__compare_entry *e = &c->entries[i];
        if (e->failed)
            print(json_pack(
                "{s:s, s:s, s:s}", "event", "failed", "strategy", e->text, "error", e->error));
        else
            print_entry(e, c->untimed);
    }
    for (int i = 0; i < c->count; i++)
        if (!c->entries[i].failed)
            print_entry_splits(c, &c->entries[i]);
    choir__compare_advice(c, advice, sizeof advice);
    print(json_pack("{s:s, s:s}", "event", "advice", "text", advice));
}
