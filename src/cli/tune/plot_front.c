/* The front of a search with two metrics: the trials that no other one dominates, among all. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "cli/tune/plot.h"

enum { FONT = CHOIR__GNUPLOT_FONT };

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
    choir__plot_text(g, p->metrics[0], 32);
    fprintf(g, " font ',%d'\n", FONT - 1);
    choir__plot_name_y(p, g, panel, p->metrics[1], 32);
    fprintf(g, "plot $trials with points pt 7 lc rgb '#BBBBBB', \\\n"
               "  $front with points pt 7 ps 1.4 lc rgb '#08306B'\n");
}
