/* Reading curves out of metrics.jsonl and events.jsonl, whose lines the record layer writes
 * (record/run_folder.c): one object each, without nested ones in front of the numbers. A line
 * that a running or killed process has not finished is left out. */
#include "cli/plot/curve.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "base/math/functions.h"
#include "base/named.h"
#include "base/number.h"
#include "record/events.h"

static void add(choir__points *p, double x, double y)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    CHOIR__GROW(p->x, p->count);
    CHOIR__GROW(p->y, p->count);
    p->x[p->count] = x;
    p->y[p->count++] = y;
}

/* Returns the number after "KEY": in a line, or NaN. */
static double number_in(const char *line, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = line; (at = strchr(at, '"')); at++) {
        if (strncmp(at + 1, key, length) || strncmp(at + 1 + length, "\":", 2))
            continue;
        char *end;
        double x = choir__number_read(at + length + 3, &end);
        return end > at + length + 3 ? x : (double)NAN;
    }
    return (double)NAN;
}

/* Returns the number of a validation's line: one of --metric has a name of its own. */
static double number_of_evaluation(const char *line, const char *metric)
{
    char *own = choir__format("\"%s\":\"%s\"", CHOIR__KEY(eval, metric_name), metric);
    double x = number_in(line, strstr(line, own) ? CHOIR__KEY(eval, metric) : metric);
    free(own);
    return x;
}

/* --- the x of a step --- */

/* The place in the files so far, for x and for evaluations, which say their step alone. */
typedef struct progress {
    double step, x, seconds, first_time;
} progress;

static void advance(progress *at, const choir__plot *plot, const char *line)
{
    double took = number_in(line, CHOIR__KEY(step, step_s)),
           time = number_in(line, CHOIR__KEY(line, time));
    at->step = number_in(line, CHOIR__KEY(line, step));
    at->first_time = isnan(at->first_time) ? time : at->first_time;
    at->seconds = isnan(took) ? time - at->first_time : at->seconds + took;
    at->x = plot->axis == CHOIR__STEPS     ? at->step
            : plot->axis == CHOIR__SECONDS ? at->seconds
                                           : number_in(line, CHOIR__KEY(step, items));
}

typedef struct line {
    char *text; /* the line without its end */
    size_t bytes, room;
} line;

/* Reads the next line that is an object. A line longer than any of ours is skipped and costs no
 * memory. Returns false at the end of the file. */
static bool next_object(FILE *f, line *l)
{
    enum { LONGEST = 1 << 22 };
    for (int c = 0; c != EOF;) {
        bool whole = true;
        for (l->bytes = 0; (c = getc_unlocked(f)) != EOF && c != '\n';) {
            if (l->bytes + 1 >= l->room && l->room < LONGEST) {
                l->room = l->room ? 2 * l->room : 256;
                l->text = choir__realloc(l->text, l->room);
            }
            whole &= l->bytes + 1 < l->room;
            if (whole)
                l->text[l->bytes++] = (char)c;
        }
        whole &= c == '\n' && l->bytes > 1 && l->text[0] == '{';
        if (whole && l->text[l->bytes - 1] == '}') {
            l->text[l->bytes] = '\0';
            return true;
        }
    }
    return false;
}

/* Adds the evaluations up to the step that `at` has reached; the next one waits in line. */
typedef struct evaluations {
    FILE *file;
    line line;
    double step; /* step of the waiting number; NaN: none */
} evaluations;

static void next_evaluation(evaluations *e)
{
    char head[32];
    int length = snprintf(
        head, sizeof head, "{\"%s\":\"%s\"", CHOIR__KEY(line, event), choir__kind_eval.name);
    e->step = (double)NAN;
    while (e->file && next_object(e->file, &e->line))
        if (!strncmp(e->line.text, head, (size_t)length)) {
            e->step = number_in(e->line.text, CHOIR__KEY(line, step));
            return;
        }
}

static void take_evaluations(
    evaluations *e, const choir__plot *plot, const progress *at, choir__curve *c)
{
    for (; e->step <= at->step; next_evaluation(e))
        add(&c->eval, at->x, number_of_evaluation(e->line.text, plot->metric));
}

/* --- a whole curve --- */

/* Exponential smoothing whose beginning is corrected for the missing past, as in TensorBoard.
 */
static void smoothen(choir__curve *c, double weight)
{
    double sum = 0, norm = 0;
    for (int64_t i = 0; i < c->all.count && weight > 0; i++) {
        sum = weight * sum + (1 - weight) * c->all.y[i];
        norm = weight * norm + (1 - weight);
        add(&c->smooth, c->all.x[i], sum / norm);
    }
}

static choir_status no_metric(const char *run, const choir__plot *plot, const char *text)
{
    json_t *row = text ? json_loads(text, 0, NULL) : NULL, *value;
    const char *name, **names = choir__calloc(json_object_size(row) + 1, sizeof *names);
    choir__name_table table = {names, 0, sizeof *names, false};
    char list[512];
    json_object_foreach(row, name, value)
    {
        if (strcmp(name, CHOIR__KEY(line, step)) && strcmp(name, CHOIR__KEY(line, time)))
            names[table.count++] = name;
    }
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT, "%s has no metric '%s' %s%s%s", run,
        plot->metric, plot->axis == CHOIR__ITEMS ? "over items" : "yet",
        table.count ? "; it has " : "", choir__list_names(&table, list, sizeof list));
    json_decref(row);
    free(names);
    return status;
}

choir_status choir__curve_read(choir__plot *plot, const char *run, choir__curve *c)
{
    const char *name = run + strlen(run);
    while (name > run && name[-1] != '/')
        name--;
    *c = (choir__curve){.run = run, .name = *name ? name : run};
    FILE *f = choir__file_try_stream_in(run, CHOIR__METRICS_FILE);
    if (!f)
        return choir__error(CHOIR_ERR_IO,
            "%s is no folder of a recorded run%s: metrics.jsonl: %s; choir train --save or "
            "--run makes one",
            run, choir__is_folder(run) ? ", and has none in it" : "", choir__file_why(errno));
    evaluations e = {.file = choir__file_try_stream_in(run, CHOIR__EVENTS_FILE)};
    progress at = {.first_time = (double)NAN};
    line row = {0};
    char *first = NULL;
    bool is_curve = false;
    choir_status status = CHOIR_OK;
    next_evaluation(&e);
    while (next_object(f, &row)) {
        if (!first)
            first = choir__strdup(row.text);
        advance(&at, plot, row.text);
        double y = number_in(row.text, plot->metric);
        is_curve |= !isnan(y);
        add(&c->all, at.x, y);
        take_evaluations(&e, plot, &at, c);
    }
    at.step = INFINITY;
    take_evaluations(&e, plot, &at, c);
    for (int64_t i = 0; i < c->eval.count && !is_curve; i++) /* steps have no such number */
        add(&c->all, c->eval.x[i], c->eval.y[i]);
    is_curve |= c->eval.count > 0;
    smoothen(c, plot->smooth);
    if (!is_curve || !c->all.count)
        status = no_metric(run, plot, first);
    free(first);
    free(row.text);
    free(e.line.text);
    fclose(f);
    if (e.file)
        fclose(e.file);
    return status;
}

void choir__curve_free(choir__curve *c)
{
    choir__points *of[] = {&c->all, &c->smooth, &c->eval};
    for (size_t i = 0; i < CHOIR_COUNT(of); i++) {
        free(of[i]->x);
        free(of[i]->y);
    }
}

const choir__points *choir__curve_drawn(const choir__curve *c)
{
    return c->smooth.count ? &c->smooth : &c->all;
}

choir__points choir__points_thin(const choir__points *p, int64_t most)
{
    choir__points thin = {0};
    int64_t each = p->count / choir__max(most / 2, 1) + 1;
    for (int64_t from = 0; from < p->count; from += each) {
        int64_t to = choir__min(from + each, p->count), low = from, high = from;
        for (int64_t i = from; i < to; i++) {
            low = p->y[i] < p->y[low] ? i : low;
            high = p->y[i] > p->y[high] ? i : high;
        }
        add(&thin, p->x[choir__min(low, high)], p->y[choir__min(low, high)]);
        if (low != high)
            add(&thin, p->x[choir__max(low, high)], p->y[choir__max(low, high)]);
    }
    if (p->count && thin.x[thin.count - 1] < p->x[p->count - 1]) /* the end is looked at most */
        add(&thin, p->x[p->count - 1], p->y[p->count - 1]);
    return thin;
}

/* --- axes --- */

const char *choir__axis_words(const choir__plot *plot, double *factor)
{
    double last = 0;
    *factor = 1;
    if (plot->axis == CHOIR__STEPS)
        return "steps"; /* no key */
    for (int i = 0; i < plot->count; i++) {
        const choir__points *p = &plot->curves[i].all;
        last = fmax(last, p->x[p->count - 1]);
    }
    double in_seconds[] = {1, 60, 3600}, in_items[] = {1, 1e3, 1e6, 1e9};
    static const char *const seconds[] = {"seconds", "minutes", "hours"},
                             *const items[] = {"tokens or samples",
                                 "thousand tokens or samples", "million tokens or samples",
                                 "billion tokens or samples"};
    int unit = 0;
    if (plot->axis == CHOIR__SECONDS) {
        while (unit < 2 && last > 3 * in_seconds[unit + 1])
            unit++;
        *factor = 1 / in_seconds[unit];
        return seconds[unit];
    }
    while (unit < 3 && last > 3 * in_items[unit + 1])
        unit++;
    *factor = 1 / in_items[unit];
    return items[unit];
}

double choir__axis_step(double low, double high, int count)
{
    double rough = (high - low) / count, power = choir__pow(10, floor(choir__log10(rough)));
    double times = rough / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

static int power_of(double value)
{
    return (int)floor(choir__log10(fabs(value)));
}

void choir__axis_text(char *text, double value, double step)
{
    enum { LEAST = 3, MOST = 15 };
    int digits = LEAST;
    if (value != 0 && step > 0 && isfinite(step)) /* one digit more than tells marks apart */
        digits = (int)choir__max(LEAST, choir__min(power_of(value) - power_of(step) + 2, MOST));
    bool whole = value == floor(value) || power_of(value) >= digits; /* no exponent */
    if (whole && fabs(value) < 1e7)
        snprintf(text, CHOIR__AXIS_TEXT, "%.0f", value);
    else
        snprintf(text, CHOIR__AXIS_TEXT, "%.*g", digits, value);
}
