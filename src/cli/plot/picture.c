/* Curves as a picture, by gnuplot: the smooth curve, the recorded points pale behind it, and
 * evaluations as circles. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "cli/plot/curve.h"
#include "line/gnuplot.h"

enum { WIDTH = 1100, HEIGHT = 640, MOST_POINTS = 4000, FONT = CHOIR__GNUPLOT_FONT };
enum { NAME = 35 }; /* letters of a name in the legend */
enum {
    LINE = 23,
    LINES = 20
}; /* pixels of a line of the legend, and those HEIGHT has room for */

static const char validation[] = ", validation", stopped_early[] = "stopped early";

/* Okabe and Ito's colours, which people with any colour vision can tell apart, and the same
 * colours pale. */
static const char *const colours[] = {
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F"};
static const char *const pale[] = {
    "#B3D5E8", "#F3CEB2", "#B3E2D5", "#F0D7E5", "#F8E2B3", "#CCE8F8", "#CCCCCC", "#DDD2B8"};

/* Trials that their search has stopped early are grey, behind the others. */
static const char stopped[] = "#AAAAAA", stopped_pale[] = "#DDDDDD";

/* Curves that share a colour differ in their dashes, and in the marks of their evaluations. */
static const int dashes[] = {1, 2, 4, 5}, shapes[] = {7, 5, 9, 13};

static int stopped_of(const choir__plot *p)
{
    int count = 0;
    for (int i = 0; i < p->count; i++)
        count += p->curves[i].stopped;
    return count;
}

/* Returns the number of evaluations that may have lines of their own in the legend. */
static int evaluations_of(const choir__plot *p)
{
    int count = 0;
    for (int i = 0; i < p->count; i++)
        count += p->curves[i].eval.count > 0 && !p->curves[i].stopped;
    return count;
}

/* Returns the lines of the legend for curves: one for all trials that were stopped. */
static int names_of(const choir__plot *p)
{
    return p->count - stopped_of(p) + (stopped_of(p) > 0);
}

/* The evaluations of many runs have one line of the legend, of a few a line each. */
static bool name_evaluations(const choir__plot *p)
{
    return names_of(p) + evaluations_of(p) <= LINES;
}

/* Returns the picture's height, with room for the legend beside the curves. */
static int height_of(const choir__plot *p)
{
    const int lines = names_of(p) + (name_evaluations(p) ? evaluations_of(p) : 1);
    return HEIGHT + (int)choir__max(0, lines - LINES) * LINE * 4 / 3;
}

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

static void write_curve(const choir__plot *p, FILE *g, int i, int *drawn)
{
    const choir__curve *c = &p->curves[i];
    const char *colour = colours[(size_t)i % CHOIR_COUNT(colours)];
    const size_t round = (size_t)i / CHOIR_COUNT(colours) % CHOIR_COUNT(dashes);
    separate(g, drawn);
    fprintf(g, "$%c%d using ($1*k):2 with lines lc rgb '%s' lw 2 dt %d title ",
        c->smooth.count ? 's' : 'a', i, colour, dashes[round]);
    choir__gnuplot_text(g, c->name, NAME);
    if (!c->eval.count)
        return;
    separate(g, drawn);
    fprintf(g, "$e%d using ($1*k):2 with linespoints lc rgb '%s' lw 1.5 dt 3 pt %d ps 0.9 ", i,
        colour, shapes[round]);
    if (!name_evaluations(p)) {
        fprintf(g, "notitle");
        return;
    }
    char *eval = choir__format("%s%s", c->name, validation);
    fprintf(g, "title ");
    choir__gnuplot_text(g, eval, NAME);
    free(eval);
}

/* The circles of its evaluations are left out. */
static void write_stopped(const choir__plot *p, FILE *g, int i, int *drawn)
{
    separate(g, drawn);
    fprintf(g, "$%c%d using ($1*k):2 with lines lc rgb '%s' lw 2 notitle",
        p->curves[i].smooth.count ? 's' : 'a', i, stopped);
}

static void write_plots(const choir__plot *p, FILE *g)
{
    int drawn = 0;
    for (int i = 0; i < p->count; i++)
        if (p->curves[i].smooth.count) {
            separate(g, &drawn);
            fprintf(g, "$a%d using ($1*k):2 with lines lc rgb '%s' lw 1 notitle", i,
                p->curves[i].stopped ? stopped_pale : pale[(size_t)i % CHOIR_COUNT(pale)]);
        }
    for (int i = 0; i < p->count; i++)
        if (p->curves[i].stopped)
            write_stopped(p, g, i, &drawn);
    for (int i = 0; i < p->count; i++)
        if (!p->curves[i].stopped)
            write_curve(p, g, i, &drawn);
    if (stopped_of(p))
        fprintf(
            g, ", \\\n  NaN with lines lc rgb '%s' lw 2 title '%s'", stopped, stopped_early);
    if (!name_evaluations(p) && evaluations_of(p))
        fprintf(g, ", \\\n  NaN with linespoints lc rgb '#666666' lw 1.5 dt 3 pt 7 ps 0.9 "
                   "title 'validation'");
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
    int letters = name_evaluations(p) ? 0 : choir__gnuplot_letters(validation);
    if (stopped_of(p))
        letters = (int)choir__max(letters, choir__gnuplot_letters(stopped_early));
    for (int i = 0; i < p->count; i++) {
        const choir__curve *c = &p->curves[i];
        if (c->stopped)
            continue;
        int own =
            choir__gnuplot_letters(c->name) +
            (c->eval.count && name_evaluations(p) ? choir__gnuplot_letters(validation) : 0);
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
    choir__gnuplot_begin(g, p->file, WIDTH, height_of(p), FONT, 1);
    fprintf(g, "k = %.17g\n", factor);
    write_data(p, g);
    choir__gnuplot_panel(g, (choir__panel){0.125, 0.12, 0.855 - legend, 0.78}, title);
    choir__gnuplot_name_y(g, 0.018, p->metric, 40);
    fprintf(g,
        "k = %.17g\nset xlabel '%s' font ',%d'\nset autoscale xfix\n"
        "set key outside right top vertical maxcols 1 Left reverse samplen 2 width 1\n"
        "set key spacing 1.15 font ',%d'\n"
        "set offsets 0,0,graph 0.04,graph 0.04\nset format y '%%.8g'\n%s",
        factor, words, FONT - 1, FONT - 2,
        least_of(p) >= 0 ? "set yrange [0<*:*]\n" : ""); /* a rate has no marks below 0 */
    if (p->logarithmic)
        set_logarithmic(p, g);
    write_plots(p, g);
    free(title);
}

choir_status choir__plot_picture(const choir__plot *plot)
{
    return choir__gnuplot(write_script, plot);
}
