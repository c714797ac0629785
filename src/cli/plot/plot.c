/* choir plot: curves of recorded runs, as a picture or in the terminal. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "line/command.h"
#include "line/gnuplot.h"
#include "cli/plot/curve.h"
#include "cli/plot/find.h"
#include "line/say.h"
#include "line/terminal.h"

/* --- a picture ---
 *
 * Curves as a picture, by gnuplot: the smooth curve, the recorded points pale behind it, and
 * evaluations as circles. */

enum { WIDTH = 1100, HEIGHT = 640, MOST_POINTS = 4000, FONT = CHOIR__GNUPLOT_FONT };
enum { NAME = 35 }; /* letters of a name in the legend */

static const char validation[] = ", validation";

/* Okabe and Ito's colours, which people with any colour vision can tell apart, and the same
 * colours pale. */
static const char *const colours[] = {
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F"};
static const char *const pale[] = {
    "#B3D5E8", "#F3CEB2", "#B3E2D5", "#F0D7E5", "#F8E2B3", "#CCE8F8", "#CCCCCC", "#DDD2B8"};

static void write_points(FILE *g, char kind, int curve, const choir__points *points)
{
    choir__points thin = choir__points_thin(points, MOST_POINTS);
    fprintf(g, "$%c%d << EOD\n", kind, curve);
    for (int64_t i = 0; i < thin.count; i++)
        fprintf(g, "%.9g %.9g\n", choir__axis_place(thin.x[i]), choir__axis_place(thin.y[i]));
    fprintf(g, "EOD\n");
    free(thin.x);
    free(thin.y);
}

static void write_data(const choir__plot *p, FILE *g)
{
    for (int i = 0; i < p->count; i++) {
        const choir__curve *c = &p->curves[i];
        write_points(g, 'a', i, &c->all);
        if (c->smooth.count)
            write_points(g, 's', i, &c->smooth);
        if (c->eval.count)
            write_points(g, 'e', i, &c->eval);
    }
}

static void separate(FILE *g, int *drawn)
{
    fputs((*drawn)++ ? ", \\\n  " : "plot ", g);
}

static void write_plots(const choir__plot *p, FILE *g)
{
    int drawn = 0;
    for (int i = 0; i < p->count; i++)
        if (p->curves[i].smooth.count) {
            separate(g, &drawn);
            fprintf(g, "$a%d using ($1*k):2 with lines lc rgb '%s' lw 1 notitle", i,
                pale[(size_t)i % CHOIR_COUNT(pale)]);
        }
    for (int i = 0; i < p->count; i++) {
        const char *colour = colours[(size_t)i % CHOIR_COUNT(colours)];
        char *eval = choir__format("%s%s", p->curves[i].name, validation);
        separate(g, &drawn);
        fprintf(g, "$%c%d using ($1*k):2 with lines lc rgb '%s' lw 2 title ",
            p->curves[i].smooth.count ? 's' : 'a', i, colour);
        choir__gnuplot_text(g, p->curves[i].name, NAME);
        if (p->curves[i].eval.count) {
            separate(g, &drawn);
            fprintf(g,
                "$e%d using ($1*k):2 with linespoints lc rgb '%s' lw 1.5 dt 3 pt 7 ps 0.9 title ",
                i, colour);
            choir__gnuplot_text(g, eval, NAME);
        }
        free(eval);
    }
    fprintf(g, "\n");
}

/* Returns the least of all values, or 0 without any. */
static double least_of(const choir__plot *p)
{
    double least = (double)INFINITY;
    for (int i = 0; i < p->count; i++) {
        const choir__points *of[] = {&p->curves[i].all, &p->curves[i].eval};
        for (size_t k = 0; k < CHOIR_COUNT(of); k++)
            for (int64_t at = 0; at < of[k]->count; at++)
                least = fmin(least, of[k]->y[at]);
    }
    return isfinite(least) ? least : 0;
}

/* The range of positive values. Within a decade and a half, marks are as on a plain axis. */
static void set_logarithmic(const choir__plot *p, FILE *g)
{
    double low = INFINITY, high = 0;
    for (int i = 0; i < p->count; i++) {
        const choir__points *of[] = {&p->curves[i].all, &p->curves[i].eval};
        for (size_t k = 0; k < CHOIR_COUNT(of); k++)
            for (int64_t at = 0; at < of[k]->count; at++)
                if (of[k]->y[at] > 0) {
                    low = fmin(low, of[k]->y[at]);
                    high = fmax(high, choir__axis_place(of[k]->y[at]));
                }
    }
    if (!(low < high)) /* nothing to scale */
        return;
    fprintf(g, "set logscale y\nset yrange [%.9g:%.9g]\nset offsets 0,0,0,0\n", low * 0.97,
        high * 1.03);
    if (high / low > 30)
        return;
    double step = choir__axis_step(low, high, 8);
    int marks = 0;
    fprintf(g, "set ytics (");
    for (double mark = ceil(low / step) * step; mark <= high; mark += step)
        fprintf(g, "%s%.9g", marks++ ? "," : "", mark);
    fprintf(g, ")\n");
}

/* "loss, smoothed with 0.9" */
static char *title_of(const choir__plot *p)
{
    return p->smooth > 0 ? choir__format("%s, smoothed with %g", p->metric, p->smooth)
                         : choir__strdup(p->metric);
}

/* Returns the part of the picture's width that the legend beside the curves needs: the longest
 * name, and a sample of its line. */
static double legend_width(const choir__plot *p)
{
    enum { SAMPLE = 60 };
    int letters = 0;
    for (int i = 0; i < p->count; i++) {
        const choir__curve *c = &p->curves[i];
        int own = choir__gnuplot_letters(c->name) +
                  (c->eval.count ? choir__gnuplot_letters(validation) : 0);
        letters = (int)choir__max(letters, choir__min(own, NAME));
    }
    return (SAMPLE + choir__gnuplot_pixels(letters, FONT - 2)) / WIDTH;
}

static void write_script(const void *arg, FILE *g)
{
    const choir__plot *p = arg;
    double factor, legend = legend_width(p);
    const char *words = choir__axis_words(p, &factor);
    char *title = title_of(p);
    choir__gnuplot_begin(g, p->file, WIDTH, HEIGHT, FONT, 1);
    fprintf(g, "k = %.17g\n", factor);
    write_data(p, g);
    choir__gnuplot_panel(g, (choir__panel){0.125, 0.12, 0.855 - legend, 0.78}, title);
    choir__gnuplot_name_y(g, 0.018, p->metric, 40);
    fprintf(g,
        "k = %.17g\nset xlabel '%s' font ',%d'\nset autoscale xfix\n"
        "set key outside right top Left reverse samplen 2 width 1 spacing 1.15 font ',%d'\n"
        "set offsets 0,0,graph 0.04,graph 0.04\nset format y '%%.8g'\n%s",
        factor, words, FONT - 1, FONT - 2,
        least_of(p) >= 0 ? "set yrange [0<*:*]\n" : ""); /* a rate has no marks below 0 */
    if (p->logarithmic)
        set_logarithmic(p, g);
    write_plots(p, g);
    free(title);
}

/* Draws into plot->file. */
static choir_status draw_picture(const choir__plot *plot)
{
    return choir__gnuplot(write_script, plot);
}

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

/* Runs in folders of one name ("a/run", "b/run") are named by their paths. */
static void name_apart(choir__plot *p, char **paths)
{
    bool shared[MOST_RUNS] = {false};
    for (int i = 0; i < p->count; i++)
        for (int k = 0; k < p->count; k++)
            shared[i] |= i != k && !strcmp(p->curves[i].name, p->curves[k].name);
    for (int i = 0; i < p->count; i++)
        if (shared[i])
            p->curves[i].name = paths[i];
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
    choir_status status = p->file ? choir__gnuplot_check("choir plot", p->file) : CHOIR_OK;
    p->curves = choir__calloc((size_t)runs->count, sizeof *p->curves);
    if (status == CHOIR_OK)
        status = read_curves(p, runs);
    if (status == CHOIR_OK)
        status = check_logarithms(p);
    if (status == CHOIR_OK) {
        char **names = choir__calloc((size_t)p->count, sizeof *names);
        for (int i = 0; i < p->count; i++) { /* a folder's name may command the terminal */
            const choir__curve *c = &p->curves[i];
            names[i] = choir__clean(choir__strdup(c->run));
            p->curves[i].name = names[i] + (c->name - c->run);
        }
        name_apart(p, names);
        if (p->file)
            status = draw_picture(p);
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
