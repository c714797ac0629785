/* choir plot: curves of recorded runs, as a picture or in the terminal. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "line/command.h"
#include "cli/plot/curve.h"
#include "cli/plot/find.h"
#include "cli/plot/trials.h"
#include "line/say.h"
#include "line/terminal.h"

enum { MOST_RUNS = 26, COLUMNS = 80 };

typedef struct request {
    const char *metric, *against;
    double smooth;
    bool logarithmic;
} request;

static const char *const axes[] = {"steps", "time", "items", "tokens"};

static const char *axis_names(size_t i)
{
    return i < CHOIR_COUNT(axes) ? axes[i] : NULL;
}

static choir__plot_axis axis_of(const char *name)
{
    return !strcmp(name, "steps")  ? CHOIR__STEPS
           : !strcmp(name, "time") ? CHOIR__SECONDS
                                   : CHOIR__ITEMS;
}

static bool is_picture(const char *word)
{
    const char *dot = strrchr(word, '.');
    return dot && (!strcmp(dot, ".png") || !strcmp(dot, ".svg"));
}

static int columns_of_terminal(void)
{
    int columns = COLUMNS;
    choir__terminal_size(STDOUT_FILENO, &columns, NULL);
    return (int)choir__min(columns, COLUMNS);
}

/* Runs of one name ("a/run", "b/run") are named by their paths. */
static void name_apart(choir__plot *p, char **names)
{
    bool shared[MOST_RUNS] = {false};
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->count; k++)
            shared[i] |= i != k && !strcmp(p->curves[i].name, p->curves[k].name);
    for (int i = 0; i < p->count; i++)
        if (shared[i]) {
            free(names[i]); /* a folder's name may command the terminal */
            p->curves[i].name = names[i] = choir__clean(choir__strdup(p->curves[i].run));
        }
}

static int64_t count_positive(const choir__points *points)
{
    int64_t count = 0;
    for (int64_t i = 0; i < points->count; i++)
        count += points->y[i] > 0;
    return count;
}

/* A logarithmic axis has no place for numbers below or at 0. */
static choir_status check_logarithms(const choir__plot *p)
{
    int64_t positive = 0, all = 0;
    for (int i = 0; p->logarithmic && i < p->count; i++) {
        const choir__points *points = choir__curve_drawn(&p->curves[i]);
        positive += count_positive(points);
        all += points->count;
    }
    if (all && !positive)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--log-scale: expected numbers above 0, and %s has none: leave it out", p->metric);
    char *note =
        choir__format("--log-scale leaves out %lld of %lld values, which are not above 0",
            (long long)(all - positive), (long long)all);
    if (positive < all)
        choir__line_notes("plot", note);
    free(note);
    return CHOIR_OK;
}

/* Reads the curves. Runs that were found in a folder and have no such curve are left out with a
 * note each, if others have it. */
static choir_status read_curves(choir__plot *p, const choir__plot_runs *runs)
{
    choir_status status = CHOIR_OK, left_out = CHOIR_OK;
    char *notes = choir__strdup("");
    for (int i = 0; i < runs->count && status == CHOIR_OK; i++) {
        choir__curve *c = &p->curves[p->count];
        choir_status read = choir__curve_read(p, runs->run[i].path, c);
        if (read == CHOIR_OK) {
            p->count++;
            continue;
        }
        choir__curve_free(c);
        if (runs->run[i].found) {
            char *more = choir__format("%s%s\n", notes, choir_error_message());
            free(notes);
            notes = more;
            left_out = read;
        } else {
            status = read;
        }
    }
    if (status == CHOIR_OK && !p->count)
        status = left_out;
    if (status == CHOIR_OK)
        choir__line_notes("plot", notes);
    free(notes);
    return status;
}

static choir_status draw(choir__plot *p, const choir__plot_runs *runs)
{
    choir_status status = p->file ? choir__gnuplot_check("the picture", p->file) : CHOIR_OK;
    p->curves = choir__calloc((size_t)runs->count, sizeof *p->curves);
    if (status == CHOIR_OK)
        status = read_curves(p, runs);
    if (status == CHOIR_OK)
        status = check_logarithms(p);
    if (status == CHOIR_OK) {
        char **names = choir__calloc((size_t)p->count, sizeof *names);
        choir__plot_name_trials(p, names);
        for (int i = 0; i < p->count; i++)
            if (!names[i])
                p->curves[i].name = names[i] = choir__clean(choir__strdup(p->curves[i].name));
        name_apart(p, names);
        if (p->file)
            status = choir__plot_picture(p);
        else
            choir__plot_braille(
                p, columns_of_terminal(), isatty(STDOUT_FILENO) && !getenv("NO_COLOR"));
        for (int i = 0; i < p->count; i++)
            free(names[i]);
        free(names);
    }
    for (int i = 0; i < p->count; i++)
        choir__curve_free(&p->curves[i]);
    free(p->curves);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {0};
    choir__line_operands given;
    int status = choir__line_parse(command, &r, argc, argv, &given);
    if (status != CHOIR__EXIT_OK)
        return status;
    choir__plot p = {.metric = r.metric,
        .axis = axis_of(r.against),
        .logarithmic = r.logarithmic,
        .smooth = r.smooth};
    if (is_picture(given.words[given.count - 1]))
        p.file = given.words[--given.count];
    if (given.count > MOST_RUNS)
        return choir__line_usage(
            command->name, "expected at most %d runs, got %d", MOST_RUNS, given.count);
    if (!given.count)
        return choir__line_usage(command->name, "missing RUN before %s", p.file);
    choir__plot_runs runs;
    choir_status drawn = choir__plot_find(given.words, given.count, MOST_RUNS, &runs);
    if (drawn == CHOIR_OK)
        drawn = draw(&p, &runs);
    choir__plot_runs_free(&runs);
    if (drawn != CHOIR_OK)
        return choir__line_fail();
    if (p.file)
        printf("%s\n", p.file);
    return CHOIR__EXIT_OK;
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"metric", CHOIR__STRING, AT(metric), .preset = "loss", .argument = "NAME",
        .help = "a number of the runs' metrics.jsonl, such as lr, grad_norm or items_per_s"},
    {"against", CHOIR__STRING, AT(against), .preset = "steps", .argument = "AXIS",
        .help =
            "the other axis: time is the time of the steps, and items are tokens of language "
            "models, samples elsewhere",
        .choices = axis_names, .strict = true},
    {"smooth", CHOIR__FLOAT, AT(smooth), 0, 0.9999, .preset = "0", .argument = "X",
        .help = "weight of the past in a moving average, such as 0.9"},
    {"log-scale", CHOIR__FLAG, AT(logarithmic), .help = "logarithmic axis of the metric"},
    {NULL},
};

const choir__line_command choir__cli_plot = {
    .name = "plot",
    .summary = "draw the curves of recorded runs",
    .usage = "[OPTION]... RUN... [FILE.png|FILE.svg]",
    .about =
        "Draws a metric of runs, over each other. RUN is a folder that choir train --save or "
        "--run has written, or a folder of such folders. Without FILE, the curves are drawn in "
        "the terminal.",
    .example_title = "two runs over each other, as a picture",
    .example = "  choir plot --smooth 0.9 runs/first runs/second loss.png",
    .options = options,
    .operand = "RUN",
    .least = 1,
    .most = MOST_RUNS + 1,
    .run = run,
};
