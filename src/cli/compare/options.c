/* The options of choir compare. The options of a training job are the options of train; they
 * are checked as train checks them, and passed on to the runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"
#include "job/choices.h"
#include "cli/compare/compare.h"
#include "job/report/report.h"
#include "line/say.h"
#include "launch/launchers.h"

enum { SPLITS_UNASKED = 6, MOST_MICRO = 24 };

#define AT(member) CHOIR__LINE_AT(choir__compare, member)
#define MANY       CHOIR__LINE_NO_LIMIT

const choir__line_option choir__compare_options[] = {
    {"strategies", CHOIR__STRING, AT(strategies), .argument = "LIST",
        .help = "strategies to compare, with their keys and compositions such as ddp+pipeline "
                "as choir train takes them (default: all that fit)",
        .choices = choir__job_strategy_names},
    {"mesh", CHOIR__STRING, AT(mesh), .argument = "RxC",
        .help = "sizes of compositions (default: two devices for the innermost)"},
    {"devices", CHOIR__STRING, AT(job.placement.devices), .argument = "LIST",
        .help = "devices such as cpu:0,cpu:1 or cuda:0-3, or auto: all GPUs, or all cores of a "
                "machine without GPUs (default auto)"},
    {"batch-size", CHOIR__INT, AT(job.training.batch_size), 1, MANY, .preset = "32",
        .argument = "N", .help = "number of samples in the global batch", .passed_on = true},
    {"microbatches", CHOIR__INT, AT(job.training.microbatches), 1, MANY, .argument = "M",
        .help = "number of micro-batches, the same for all strategies (default: four per "
                "device, or the next fewer that divide the batch)"},
    {"slices", CHOIR__INT, AT(job.training.slices), 1, CHOIR__MOST_SLICES, .argument = "T",
        .help = "number of slices of large weights, the same for all strategies (default: as "
                "many as the compared forms of tp need, if the model has such weights)"},
    {"chunks", CHOIR__INT, AT(job.training.chunks), 1, CHOIR__MOST_CHUNKS, .argument = "S",
        .help = "number of chunks of each sequence, the same for all strategies (default: as "
                "many as the compared forms of cp need, if the model can be cut so)"},
    {"steps", CHOIR__INT, AT(job.training.steps), 1, MANY, .preset = "20", .argument = "N",
        .help = "steps of each run"},
    {"repeats", CHOIR__INT, AT(repeats), 1, 1000, .preset = "3", .argument = "N",
        .help = "runs of each strategy, in turns"},
    {"plot", CHOIR__STRING, AT(plot), .argument = "FILE",
        .help =
            "draw a picture, .png or .svg, by gnuplot: throughput with its spread, over split "
            "sizes, and memory and utilisation of devices over time"},
    {"splits", CHOIR__STRING, AT(splits_text), .argument = "LIST",
        .help = "samples per micro-batch at which pipelines run as well (default: none; with "
                "--plot up to six that divide the batch)"},
    {"json", CHOIR__FLAG, AT(job.records.json),
        .help = "print one JSON object per strategy: train's summary and more"},
    {NULL},
};

int choir__compare_took(void *values, const choir__line_option *o, const char *text)
{
    choir__compare *c = values;
    if (o->passed_on)
        c->args[c->arg_count++] = choir__line_word(o, text);
    return CHOIR__EXIT_OK;
}

/* --- strategies --- */

/* Uses --mesh. Without it, the innermost of two strategies gets two devices. */
static int choose_mesh(const choir__compare *c, choir__compare_entry *e)
{
    int devices = c->job.placement.device_count;
    if (e->composition.count < 2)
        return CHOIR__EXIT_OK;
    if (c->mesh)
        snprintf(e->mesh, sizeof e->mesh, "%s", c->mesh);
    else if (e->composition.count == 2 && devices % 2 == 0)
        snprintf(e->mesh, sizeof e->mesh, "%dx2", devices / 2);
    else
        return choir__line_usage("compare",
            "--strategies %s on %d device%s: missing --mesh with the sizes, as in --mesh 2x2",
            e->text, devices, devices > 1 ? "s" : "");
    if (choir__composition_mesh(&e->composition, e->mesh) != CHOIR_OK)
        return choir__line_usage("compare", "--mesh %s: %s", e->mesh, choir_error_message());
    return CHOIR__EXIT_OK;
}

static int add_entry(choir__compare *c, const char *text, size_t length)
{
    choir__compare_entry e = {0};
    if (length >= sizeof e.text)
        return choir__line_usage("compare",
            "--strategies: expected at most %d characters per strategy, got '%s'",
            (int)sizeof e.text - 1, text);
    memcpy(e.text, text, length);
    for (int i = 0; i < c->count; i++)
        if (!strcmp(c->entries[i].text, e.text))
            return CHOIR__EXIT_OK;
    int status = CHOIR__EXIT_OK;
    if (choir__composition_parse(e.text, &e.composition) != CHOIR_OK)
        status =
            choir__line_usage("compare", "--strategies %s: %s", e.text, choir_error_message());
    if (status == CHOIR__EXIT_OK)
        status = choose_mesh(c, &e);
    if (status != CHOIR__EXIT_OK) {
        choir__composition_free(&e.composition);
        return status;
    }
    CHOIR__GROW(c->entries, c->count);
    c->entries[c->count++] = e;
    return CHOIR__EXIT_OK;
}

static int list_strategies(choir__compare *c)
{
    const int devices = c->job.placement.device_count;
    int status = add_entry(c, "single", strlen("single")); /* the baseline of all figures */
    const choir__job_strategy *s;
    const char *text = c->strategies, *form;
    for (int i = 0; !text && (form = choir__job_strategy_form(i, &s)); i++)
        if (status == CHOIR__EXIT_OK && (s || (devices >= 4 && devices % 2 == 0)))
            status = add_entry(c, form, strlen(form));
    while (text && *text && status == CHOIR__EXIT_OK) {
        const char *end = choir__strategy_end(text);
        status = add_entry(c, text, (size_t)(end - text));
        text = end + (*end == ',');
    }
    for (int i = 0; i < c->count; i++) {
        c->entries[i].strategy = choir__composition_strategy(&c->entries[i].composition);
        c->entries[i].runs =
            choir__calloc((size_t)(c->untimed + c->repeats), sizeof *c->entries[i].runs);
    }
    return status;
}

/* --- sizes --- */

static int choose_cut(choir__compare *c)
{
    const choir__job_training *t = &c->job.training;
    const int64_t m = t->microbatches;
    if (m && t->batch_size % m) {
        choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld does not divide into %lld micro-batches; %lld would",
            (long long)t->batch_size, (long long)m, (long long)((t->batch_size / m + 1) * m));
        return choir__line_fail();
    }
    return choir__job_common_cut(&c->job) == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_fail();
}

static int read_splits(choir__compare *c)
{
    for (const char *at = c->splits_text; *at;) {
        char word[24];
        int64_t n;
        size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (!choir__parse_int(word, 1, c->job.training.batch_size, &n) ||
            c->job.training.batch_size % n)
            return choir__line_usage("compare",
                "--splits: expected sizes that divide the batch of %lld, got '%s'",
                (long long)c->job.training.batch_size, c->splits_text);
        if (c->split_count == CHOIR__MAX_SPLITS)
            return choir__line_usage("compare", "--splits: expected at most %d, got '%s'",
                CHOIR__MAX_SPLITS, c->splits_text);
        c->splits[c->split_count++] = n;
        at += length + (at[length] == ',');
    }
    return CHOIR__EXIT_OK;
}

/* Chooses divisors of the batch, evenly spread over the list of all of them. */
static void choose_splits(choir__compare *c)
{
    int64_t batch = c->job.training.batch_size, divisors[64];
    int count = 0;
    for (int64_t n = choir__max(1, batch / MOST_MICRO); n <= batch && count < 64; n++)
        if (batch % n == 0)
            divisors[count++] = n;
    for (int i = 0; i < SPLITS_UNASKED; i++) {
        int64_t n = divisors[i * (count - 1) / (SPLITS_UNASKED - 1)];
        if (!c->split_count || c->splits[c->split_count - 1] != n)
            c->splits[c->split_count++] = n;
    }
}

static int check_start(const choir__compare *c)
{
    choir__launcher l;
    if (choir__launcher_find(false, &l) != CHOIR_OK)
        return choir__line_usage("compare", "%s", choir_error_message());
    if (l.name && (l.world > 1 || !strcmp(l.name, "RANK")))
        return choir__line_usage(
            "compare", "cannot run as a rank of a job, as it starts ranks itself");
    const char *dot = c->plot ? strrchr(c->plot, '.') : NULL;
    if (c->plot && (!dot || (strcmp(dot, ".png") && strcmp(dot, ".svg"))))
        return choir__line_usage(
            "compare", "--plot: expected a name that ends in .png or .svg, got '%s'", c->plot);
    return CHOIR__EXIT_OK;
}

static void plan_steps(choir__compare *c)
{
    int64_t least = 2 * CHOIR__JOB_REPORT_WARM_UP + 1;
    c->untimed = c->job.training.steps < least;
    c->timed_steps = c->untimed
                         ? choir__max(c->job.training.steps + CHOIR__JOB_REPORT_WARM_UP, least)
                         : c->job.training.steps;
}

static int check_job(choir__job *j)
{
    bool usage = false;
    choir_status status = choir__job_check(j, &usage);
    if (status == CHOIR_OK) {
        status = choir__job_devices_once(&j->placement);
        usage = status != CHOIR_OK;
    }
    return status == CHOIR_OK ? CHOIR__EXIT_OK : choir__line_refuse("compare", usage);
}

int choir__compare_prepare(choir__compare *c)
{
    c->chosen = c->strategies != NULL;
    plan_steps(c);
    int status = check_start(c);
    if (status == CHOIR__EXIT_OK)
        status = check_job(&c->job);
    if (status == CHOIR__EXIT_OK)
        status = choose_cut(c);
    if (status == CHOIR__EXIT_OK)
        status = list_strategies(c);
    if (status == CHOIR__EXIT_OK && c->splits_text)
        status = read_splits(c);
    else if (status == CHOIR__EXIT_OK && c->plot)
        choose_splits(c);
    choir__job_devices_text(&c->job.placement, c->devices, sizeof c->devices);
    return status;
}

void choir__compare_free(choir__compare *c)
{
    for (int i = 0; i < c->count; i++) {
        choir__compare_entry *e = &c->entries[i];
        for (int64_t r = 0; r < c->untimed + c->repeats && e->runs; r++)
            choir__outcome_free(&e->runs[r]);
        for (int s = 0; s < CHOIR__MAX_SPLITS; s++)
            free(e->split[s]);
        choir__watch_free(e->watch);
        choir__composition_free(&e->composition);
        free(e->runs);
    }
    for (int i = 0; i < c->arg_count; i++)
        free(c->args[i]);
    free(c->args);
    free(c->entries);
    choir__composition_free(&c->job.placement.composition);
}
