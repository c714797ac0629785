/* Where the trials of a search lie, in the plane of two parameters: a grid beside random
 * points, for example. Marks at the edges show how many values of each parameter were tried:
 * nine trials of a grid try three, nine random ones nine.
 *
 * Source: Bergstra and Bengio, "Random search for hyper-parameter optimization" (2012),
 * figure 1. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/number.h"
#include "cli/tune/plot.h"

enum { FONT = CHOIR__GNUPLOT_FONT, MOST_MARKS = 400, BESIDE = 100 };
/* Beside the vertical axis: letters per choice, and pixels to the middle of the axis' name. */
enum { CHOICE = 8, LEFT = 118 };

/* Marks the values of a parameter that were tried outside the axes, and returns their number.
 */
static int64_t mark_values(
    const choir__plotted *p, FILE *g, const choir__hyper *param, char axis)
{
    double *x = choir__alloc((size_t)(p->count + 1) * sizeof(double));
    int64_t count = 0, different = 0;
    for (int64_t i = 0; i < p->count; i++) {
        x[count] = choir__plot_param(p->trial[i].trial, param);
        count += !isnan(x[count]);
    }
    qsort(x, (size_t)count, sizeof(double), choir__by_number);
    for (int64_t i = 0; i < count; i++) {
        if (i && x[i] == x[i - 1])
            continue;
        if (different++ >= MOST_MARKS)
            continue;
        if (axis == 'x')
            fprintf(g, "set arrow from %.12g, graph 1.02 to %.12g, graph 1.06", x[i], x[i]);
        else
            fprintf(g, "set arrow from graph 1.02, first %.12g to graph 1.06, first %.12g",
                x[i], x[i]);
        fprintf(g, " nohead lw 2 lc rgb '#2171B5'\n");
    }
    free(x);
    return different;
}

static void write_points(
    const choir__plotted *p, FILE *g, const choir__hyper *x, const choir__hyper *y)
{
    const choir__plotted_trial *best = NULL;
    fprintf(g, "$points << EOD\n");
    for (int64_t i = 0; i < p->count; i++) {
        const choir__plotted_trial *t = &p->trial[i];
        double at_x = choir__plot_param(t->trial, x), at_y = choir__plot_param(t->trial, y);
        if (isnan(at_x) || isnan(at_y))
            continue;
        fprintf(
            g, "%.12g %.12g %.4f %d\n", at_x, at_y, t->place, t->state == CHOIR_TRIAL_PRUNED);
        if (!isnan(t->value) && (!best || t->place < best->place))
            best = t;
    }
    fprintf(g, "NaN NaN NaN 0\nEOD\n$best << EOD\n");
    if (best)
        fprintf(g, "%.12g %.12g\n", choir__plot_param(best->trial, x),
            choir__plot_param(best->trial, y));
    fprintf(g, "NaN NaN\nEOD\n");
}

/* Returns the title, on the heap; the names of both axes may be too long for it. */
static char *title_of(const choir__plotted *p, double pixels, const choir__hyper *x, int64_t xs,
    const choir__hyper *y, int64_t ys)
{
    char *title =
        choir__format("%lld trials: %lld value%s of %s, %lld of %s", (long long)p->count,
            (long long)xs, xs == 1 ? "" : "s", x->name, (long long)ys, y->name);
    if (choir__gnuplot_pixels(choir__gnuplot_letters(title), FONT + 1) <= pixels)
        return title;
    free(title);
    return choir__format("%lld trials: %lld value%s to the right, %lld upwards",
        (long long)p->count, (long long)xs, xs == 1 ? "" : "s", (long long)ys);
}

void choir__plot_points(const choir__plotted *p, FILE *g, choir__panel panel)
{
    const choir__hyper *x = &p->space->param[p->param[0]], *y = &p->space->param[p->param[1]];
    write_points(p, g, x, y);
    choir__gnuplot_panel(g, panel, "");
    int64_t xs = mark_values(p, g, x, 'x'), ys = mark_values(p, g, y, 'y');
    char *title = title_of(p, panel.width * p->width + BESIDE, x, xs, y, ys);
    fprintf(g, "set title ");
    choir__gnuplot_text(g, title, 100);
    fprintf(g, " offset 0,1\nset label ");
    choir__gnuplot_text(g, p->name, 48);
    fprintf(g,
        " at graph 0.5, graph -0.145 center font ',%d'\n"
        "set label 'darker: better; ring: the best%s' at graph 0.5, graph -0.18 center "
        "font ',%d' tc rgb '#555555'\n",
        FONT, choir__plot_has_state(p, CHOIR_TRIAL_PRUNED) ? "; grey: stopped early" : "",
        FONT - 2);
    free(title);
    choir__plot_param_axis(g, 'x', x, 70);
    choir__plot_param_axis(g, 'y', y, (CHOICE + 1) * y->dist.choice_count);
    fprintf(g, "set xlabel ");
    choir__gnuplot_text(g, x->name, 24);
    fprintf(g, " font ',%d'\n", FONT - 1);
    choir__gnuplot_name_y(g, panel.x - (double)LEFT / p->width, y->name, 24);
    fprintf(g,
        "set palette defined (0 '#08306B', 0.4 '#2171B5', 0.75 '#6BAED6', 1 "
        "'#C6DBEF')\nset cbrange [0:1]\nunset colorbox\n"
        "plot $points using 1:($4 == 1 ? NaN : $2):3 with points pt 7 ps 1.8 lc palette, \\\n"
        "  $points using 1:($4 == 1 ? $2 : NaN) with points pt 6 ps 1.8 lc rgb '#888888', \\\n"
        "  $best with points pt 6 ps 3 lw 2 lc rgb '#D55E00'\n");
}

/* --- the front of a search with two metrics ---
 *
 * It is the trials that no other one dominates, among all. */

/* Returns the range that shows an objective. */
static choir__plot_range range_of(const choir__plotted *p, int objective)
{
    double *value = choir__alloc((size_t)(p->count + 1) * sizeof(double));
    for (int64_t i = 0; i < p->count; i++)
        value[i] = choir_trial_value(p->trial[i].trial, objective);
    choir__plot_range r =
        choir__plot_range_of(value, p->count, choir_study_maximizes(p->study, objective));
    free(value);
    return r;
}

static void write_trial(FILE *g, const choir_trial *t, choir__plot_range x, choir__plot_range y)
{
    double a = choir_trial_value(t, 0), b = choir_trial_value(t, 1);
    if (choir_trial_result(t) == CHOIR_TRIAL_COMPLETE && isfinite(a) && isfinite(b))
        fprintf(g, "%.12g %.12g\n", choir__plot_inside(x, a), choir__plot_inside(y, b));
}

void choir__plot_front(const choir__plotted *p, FILE *g, choir__panel panel)
{
    choir__plot_range x = range_of(p, 0), y = range_of(p, 1);
    choir_trial **front = choir__alloc((size_t)(p->count + 1) * sizeof(choir_trial *));
    int64_t count = choir__min(choir_study_pareto(p->study, front, p->count), p->count);
    fprintf(g, "$trials << EOD\n");
    for (int64_t i = 0; i < p->count; i++)
        write_trial(g, p->trial[i].trial, x, y);
    fprintf(g, "NaN NaN\nEOD\n$front << EOD\n");
    for (int64_t i = 0; i < count; i++)
        write_trial(g, front[i], x, y);
    fprintf(g, "NaN NaN\nEOD\n");
    free(front);
    choir__plot_panel(g, panel, "Trials that no other one dominates", 1.2);
    choir__plot_axis(g, 'x', x);
    choir__plot_axis(g, 'y', y);
    fprintf(g, "set xlabel ");
    choir__gnuplot_text(g, p->metrics[0], 32);
    fprintf(g, " font ',%d'\n", FONT - 1);
    choir__plot_name_y(p, g, panel, p->metrics[1], 32);
    fprintf(g, "plot $trials with points pt 7 lc rgb '#BBBBBB', \\\n"
               "  $front with points pt 7 ps 1.4 lc rgb '#08306B'\n");
}
