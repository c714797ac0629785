/* choir compare: which strategy should I choose?
 *
 * Every strategy runs with the same model, data, seed and micro-batches, each run in a separate
 * process. The runs of the strategies alternate, so that a machine that becomes slower does so
 * for all of them. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/compare/compare.h"
#include "record/events.h"
#include "line/gnuplot.h"
#include "line/say.h"
#include "launch/process/process.h"

/* Steps of a run that is watched, and the shortest time they may take: */
enum { WATCHED_STEPS = 10, MOST_WATCHED = 200 };
static const double watched_s = 0.6;

/* The progress shown on a terminal. */
typedef struct progress {
    bool terminal;
    int done, all;
    double started;
} progress;

static void show(progress *p, const char *what)
{
    if (!p->terminal)
        return;
    fprintf(stderr, "\r\033[K%d of %d: %s", p->done + 1, p->all, what);
    if (p->done) {
        double rest = (choir__now() - p->started) / p->done * (double)(p->all - p->done);
        fprintf(stderr, ", about %lld:%02d left", (long long)rest / 60, (int)rest % 60);
    }
    fflush(stderr);
}

static void clear(const progress *p)
{
    if (p->terminal)
        fprintf(stderr, "\r\033[K");
}

/* --- the runs --- */

/* Stores the error of a failed run. A failure on the single device ends the comparison. */
static choir_status take_failure(
    choir__compare *c, choir__compare_entry *e, const choir__outcome *o)
{
    e->failed = true;
    snprintf(e->error, sizeof e->error, "%s", o->error);
    return e == c->entries ? choir__error(CHOIR_ERR_STATE, "%s", e->error) : CHOIR_OK;
}

static choir_status run_entry(choir__compare *c, choir__compare_entry *e)
{
    int64_t steps = e->run_count < c->untimed ? c->job.training.steps : c->timed_steps;
    choir__outcome *o = &e->runs[e->run_count++];
    choir_status status =
        choir__compare_run(c, e, c->job.training.microbatches, steps, NULL, o);
    if (status == CHOIR_OK && (o->status || !o->summary))
        status = take_failure(c, e, o);
    return status;
}

static choir_status run_split(choir__compare *c, choir__compare_entry *e, int split)
{
    choir__outcome o;
    int64_t m = c->job.training.batch_size / c->splits[split];
    choir_status status = choir__compare_run(c, e, m, c->timed_steps, NULL, &o);
    if (status == CHOIR_OK && !o.status && o.summary) {
        if (!e->split[split])
            e->split[split] = choir__calloc((size_t)c->repeats, sizeof(double));
        e->split[split][e->split_runs[split]++] =
            choir__outcome_number(&o, CHOIR__KEY(summary, items_per_s));
    } /* a cut that does not fit is not drawn */
    choir__outcome_free(&o);
    return status;
}

typedef int ranks_fn(const choir__composition *composition, int ranks);

/* Returns the smallest number that the ranks of each entry divide which share weights, or
 * sequences. */
static int64_t smallest_cut(const choir__compare *c, ranks_fn *sharing)
{
    int64_t parts = 1;
    for (int i = 0; i < c->count; i++) {
        int ranks = sharing(&c->entries[i].composition, c->job.placement.device_count);
        int64_t step = parts;
        while (parts % ranks)
            parts += step;
    }
    return parts;
}

/* Sets a cut of all runs, of at most `most` parts, unless the user did. A model that cannot be
 * cut so shows in a short run of the single device; it is then not cut, and strategies that
 * would share its parts fail. */
static choir_status choose_cut(
    choir__compare *c, int64_t *parts, ranks_fn *sharing, int64_t most)
{
    choir__outcome o;
    if (*parts)
        return CHOIR_OK;
    *parts = smallest_cut(c, sharing);
    if (*parts == 1 || *parts > most) {
        *parts = 0;
        return CHOIR_OK;
    }
    choir_status status =
        choir__compare_run(c, &c->entries[0], c->job.training.microbatches, 1, NULL, &o);
    if (status == CHOIR_OK && o.status)
        *parts = 0;
    choir__outcome_free(&o);
    return status;
}

static choir_status choose_cuts(choir__compare *c)
{
    choir_status status =
        choose_cut(c, &c->job.training.slices, choir__composition_slicers, CHOIR__MOST_SLICES);
    return status == CHOIR_OK ? choose_cut(c, &c->job.training.chunks,
                                    choir__composition_sharers, CHOIR__MOST_CHUNKS)
                              : status;
}

static choir_status measure(choir__compare *c, progress *p)
{
    char what[400];
    choir_status status = CHOIR_OK;
    for (int64_t r = 0; r < c->untimed + c->repeats; r++) {
        for (int i = 0; i < c->count && status == CHOIR_OK; i++, p->done++) {
            snprintf(what, sizeof what, "%s, run %lld of %lld", c->entries[i].text,
                (long long)r + 1, (long long)(c->untimed + c->repeats));
            show(p, what);
            if (!c->entries[i].failed)
                status = run_entry(c, &c->entries[i]);
        }
        for (int i = 0; i < c->count && r >= c->untimed; i++)
            for (int s = 0;
                 s < c->split_count && choir__compare_is(&c->entries[i], CHOIR__PIPELINED) &&
                 status == CHOIR_OK;
                 s++, p->done++) {
                snprintf(what, sizeof what, "%s in splits of %lld", c->entries[i].text,
                    (long long)c->splits[s]);
                show(p, what);
                if (!c->entries[i].failed)
                    status = run_split(c, &c->entries[i], s);
            }
    }
    return status;
}

/* --- memory and use over time: a separate short run, so that the others are not slowed --- */

static choir_status watch(choir__compare *c, choir__compare_entry *e, progress *p)
{
    choir__outcome o;
    if (!e || e->failed || e->watch)
        return CHOIR_OK;
    char what[400];
    snprintf(what, sizeof what, "%s over time", e->text);
    show(p, what);
    p->done++;
    double step_s = e->step_ms * 1e-3;
    e->watch = choir__calloc(1, sizeof *e->watch);
    e->watch->interval = step_s > 0.1 ? step_s / 50 : 0.002;
    int64_t steps = step_s > 0 ? (int64_t)fmin(watched_s / step_s, MOST_WATCHED) : 0;
    steps = choir__max(steps, WATCHED_STEPS);
    choir_status status =
        choir__compare_run(c, e, c->job.training.microbatches, steps, e->watch, &o);
    e->watch->step_s = choir__outcome_number(&o, CHOIR__KEY(summary, step_ms_median)) * 1e-3;
    choir__outcome_free(&o);
    return status;
}

static choir_status watch_some(choir__compare *c, progress *p)
{
    choir_status status = watch(c, &c->entries[0], p);
    if (status == CHOIR_OK)
        status = watch(c, choir__compare_best_of(c, CHOIR__MODEL_PARALLEL), p);
    if (status == CHOIR_OK)
        status = watch(c, choir__compare_best_of(c, CHOIR__PIPELINED), p);
    return status == CHOIR_OK ? watch(c, choir__compare_best_of(c, CHOIR__DATA_PARALLEL), p)
                              : status;
}

static choir_status run_all(choir__compare *c)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    progress p = {.terminal = isatty(STDERR_FILENO), .started = choir__now()};
    int pipelines = 0;
    for (int i = 0; i < c->count; i++)
        pipelines += choir__compare_is(&c->entries[i], CHOIR__PIPELINED);
    p.all = (int)c->repeats * (c->count + pipelines * c->split_count) + c->untimed * c->count +
            (c->plot ? 4 : 0);
    choir_status status = choir__signals_take(numbers, CHOIR_COUNT(numbers));
    if (status != CHOIR_OK)
        return status;
    status = choose_cuts(c);
    if (status == CHOIR_OK)
        status = measure(c, &p);
    if (status == CHOIR_OK)
        choir__compare_figures(c);
    for (int i = 0; i < c->count && status == CHOIR_OK; i++)
        status = choir__compare_foresee(c, &c->entries[i]);
    if (status == CHOIR_OK && c->plot)
        status = watch_some(c, &p);
    choir__signals_give_back();
    clear(&p);
    return status;
}

/* --- the command --- */

/* Returns the exit status. A strategy that does not fit is left out; it is a failure if the
 * user named it, or if it crashed. */
static int verdict(const choir__compare *c)
{
    int status = CHOIR__EXIT_OK;
    for (int i = 0; i < c->count; i++) {
        const choir__compare_entry *e = &c->entries[i];
        bool crashed = e->run_count && e->runs[e->run_count - 1].crashed;
        if (e->failed && (c->chosen || crashed)) {
            choir__line_tell("compare", "strategy %s: %s", e->text, e->error);
            status = CHOIR__EXIT_FAILED;
        }
    }
    return status;
}

static choir_status compare(choir__compare *c)
{
    choir_status status = c->plot ? choir__gnuplot_check("--plot", c->plot) : CHOIR_OK;
    if (status == CHOIR_OK)
        status = run_all(c);
    if (status == CHOIR_OK) {
        (c->job.records.json ? choir__compare_json : choir__compare_table)(c);
        status = choir__line_flush();
    }
    if (status == CHOIR_OK && c->plot)
        status = choir__compare_plot(c);
    if (status == CHOIR_OK && c->plot && !c->job.records.json) {
        printf("\nThe picture is %s.\n", c->plot);
        status = choir__line_flush();
    }
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    choir__compare c = {.job = choir__job_new(command->name)};
    choir__line_operands operands;
    c.job.placement.strategy_text = "single"; /* what the job is judged by */
    c.args = choir__calloc((size_t)argc + 1, sizeof *c.args);
    int exit_status = choir__line_parse(command, &c, argc, argv, &operands);
    if (exit_status == CHOIR__EXIT_OK) {
        c.job.data.path = operands.count ? operands.words[0] : NULL;
        exit_status = choir__compare_prepare(&c);
    }
    if (exit_status == CHOIR__EXIT_OK) {
        choir_status status = compare(&c);
        exit_status = status == CHOIR_OK ? verdict(&c) : choir__line_fail();
        exit_status = status == CHOIR_ERR_INTERRUPTED ? 128 + c.interrupted : exit_status;
    }
    choir__compare_free(&c);
    return exit_status;
}

const choir__line_command choir__cli_compare = {
    .name = "compare",
    .summary = "run the same job under every strategy, side by side",
    .usage = "[OPTION]... [DATA]",
    .about =
        "Trains the same model on the same data under one strategy after the other, each run in "
        "a process of its own, and shows side by side: items per second with their spread, "
        "speed-up and efficiency against one device, memory and utilisation of each device, "
        "bytes moved, "
        "the loss, and whether every bit equals the result of one device.",
    .example_title = "model parallel, one device and pipelines of ResNet-50 on two cores",
    .example =
        "  choir compare --model resnet50:image=64 --batch-size 120 --microbatches 6 \\\n"
        "    --steps 5 --devices cpu:0,cpu:1 --plot compare.png random",
    .options = choir__compare_options,
    .inherited = choir__job_options,
    .inherited_at = offsetof(choir__compare, job),
    .operand = "DATA",
    .operand_elsewhere = "train_file dataset dataset_name dataset_path data_path",
    .most = 1,
    .took = choir__compare_took,
    .run = run,
};
