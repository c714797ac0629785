/* Pictures of trials in their order: how the best value falls, and where trials stopped. */
#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "cli/tune/plot.h"

enum { FONT = CHOIR__GNUPLOT_FONT, MOST_RUNGS = 12, MOST_CURVES = 2000, FEW_STEPS = 8 };

/* --- history --- */

static void write_state(
    const choir__plotted *p, FILE *g, const char *name, choir_trial_state state)
{
    fprintf(g, "$%s << EOD\n", name);
    for (int64_t i = 0; i < p->count; i++) {
        const choir__plotted_trial *t = &p->trial[i];
        bool drawn = state == CHOIR_TRIAL_FAIL || !isnan(t->value);
        if (t->state == state && drawn)
            fprintf(g, "%lld %.12g\n", (long long)i,
                isnan(t->value) ? p->range.low : choir__plot_inside(p->range, t->value));
    }
    fprintf(g, "NaN NaN\nEOD\n");
}

/* The study's best trial, complete or stopped. */
static void write_chosen(const choir__plotted *p, FILE *g)
{
    fprintf(g, "$chosen << EOD\n");
    for (int64_t i = 0; i < p->count; i++)
        if (p->trial[i].best)
            fprintf(g, "%lld %.12g 1\n", (long long)i,
                choir__plot_inside(p->range, p->trial[i].value));
    fprintf(g, "NaN NaN 0\nEOD\n");
}

/* The best value of the complete trials up to each one. */
static void write_best(const choir__plotted *p, FILE *g)
{
    double best = (double)NAN;
    fprintf(g, "$best << EOD\n");
    for (int64_t i = 0; i < p->count; i++) {
        double x = p->trial[i].value;
        bool counts = p->trial[i].state == CHOIR_TRIAL_COMPLETE && !isnan(x);
        if (counts && (isnan(best) || (p->most ? x > best : x < best)))
            best = x;
        if (!isnan(best))
            fprintf(g, "%lld %.12g\n", (long long)i, choir__plot_inside(p->range, best));
    }
    fprintf(g, "NaN NaN\nEOD\n");
}

void choir__plot_history(const choir__plotted *p, FILE *g, choir__panel panel)
{
    write_state(p, g, "complete", CHOIR_TRIAL_COMPLETE);
    write_state(p, g, "stopped", CHOIR_TRIAL_PRUNED);
    write_state(p, g, "failed", CHOIR_TRIAL_FAIL);
    write_best(p, g);
    write_chosen(p, g);
    choir__plot_panel(g, panel, "History", 1.2);
    choir__plot_axis(g, 'y', p->range);
    choir__plot_name_y(p, g, panel, p->metric, 32);
    fprintf(g,
        "set xlabel 'trial' font ',%d'\nset xrange [-0.5:%lld.5]\n%s"
        "set key at graph 1, graph 1 right bottom horizontal samplen 1.5 font ',%d'\n"
        "set pointsize %g\n"
        "plot $complete with points pt 7 lc rgb '#6BAED6' title 'complete'",
        FONT - 1, (long long)choir__max(p->count - 1, 1), p->count <= 8 ? "set xtics 1\n" : "",
        FONT - 2, p->count > 400 ? 0.6 : 1.0);
    if (choir__plot_has_state(p, CHOIR_TRIAL_PRUNED))
        fprintf(g, ", \\\n  $stopped with points pt 6 lc rgb '#888888' title 'stopped early'");
    if (choir__plot_has_state(p, CHOIR_TRIAL_FAIL))
        fprintf(g, ", \\\n  $failed with points pt 2 lc rgb '#D55E00' title 'failed'");
    if (choir__plot_has_state(p, CHOIR_TRIAL_COMPLETE))
        fprintf(g, ", \\\n  $best with steps lw 3 lc rgb '#08306B' title 'best so far'");
    choir__plot_ring(g, "chosen", 3);
}

/* --- rungs --- */

/* A step at which trials stopped. */
typedef struct rung {
    int64_t step, stopped;
} rung;

typedef struct curves {
    const choir__plotted *p;
    int64_t *step; /* reports of the trial that is being drawn */
    double *value;
    int64_t room;
    int64_t first, last; /* steps of all trials; first: above 0 */
    choir__plot_range range;
    rung rung[MOST_RUNGS];
    int rungs;
} curves;

static int64_t read_reports(curves *c, const choir_trial *t)
{
    int64_t count = choir_trial_reports(t, NULL, NULL, 0);
    if (count > c->room) {
        c->room = 2 * count;
        c->step = choir__realloc(c->step, (size_t)c->room * sizeof *c->step);
        c->value = choir__realloc(c->value, (size_t)c->room * sizeof *c->value);
    }
    return choir__min(choir_trial_reports(t, c->step, c->value, c->room), count);
}

/* Counts a trial that stopped at a step; of more than MOST_RUNGS steps the first ones. */
static void count_stop(curves *c, int64_t step)
{
    int at = 0;
    while (at < c->rungs && c->rung[at].step < step)
        at++;
    if (at < c->rungs && c->rung[at].step == step) {
        c->rung[at].stopped++;
        return;
    }
    if (c->rungs == MOST_RUNGS && at == MOST_RUNGS)
        return;
    c->rungs = c->rungs < MOST_RUNGS ? c->rungs + 1 : MOST_RUNGS;
    for (int i = c->rungs - 1; i > at; i--)
        c->rung[i] = c->rung[i - 1];
    c->rung[at] = (rung){step, 1};
}

static void measure(curves *c)
{
    double *all = NULL;
    int64_t count = 0;
    c->first = INT64_MAX;
    for (int64_t i = 0; i < c->p->count; i++) {
        int64_t n = read_reports(c, c->p->trial[i].trial);
        for (int64_t k = 0; k < n; k++) {
            CHOIR__GROW(all, count);
            all[count++] = c->value[k];
            c->last = choir__max(c->last, c->step[k]);
            if (c->step[k] > 0)
                c->first = choir__min(c->first, c->step[k]);
        }
        if (n && c->p->trial[i].state == CHOIR_TRIAL_PRUNED)
            count_stop(c, c->step[n - 1]);
    }
    c->range = choir__plot_range_of(all, count, c->p->most);
    free(all);
}

/* Writes the curves of the trials in a state, and where they end. */
static void write_curves(curves *c, FILE *g, const char *name, choir_trial_state state)
{
    int64_t every = c->p->count / MOST_CURVES + 1;
    fprintf(g, "$%s << EOD\n", name);
    for (int64_t i = 0; i < c->p->count; i += every) {
        int64_t n = c->p->trial[i].state == state ? read_reports(c, c->p->trial[i].trial) : 0;
        for (int64_t k = 0; k < n; k++)
            if (isfinite(c->value[k]))
                fprintf(g, "%lld %.12g %d\n", (long long)c->step[k],
                    choir__plot_inside(c->range, c->value[k]), k == n - 1);
        if (n)
            fprintf(g, "\n");
    }
    fprintf(g, "NaN NaN NaN\nEOD\n");
}

/* Writes a line at each step where several trials stopped, with their number where there is
 * room for it. */
static void draw_rungs(const curves *c, FILE *g, bool logs, double from, double to)
{
    double last = -1;
    int64_t least = c->p->count / 50 + 2;
    for (int i = 0; i < c->rungs; i++) {
        const rung *r = &c->rung[i];
        if (r->stopped < least || (logs && r->step < 1))
            continue;
        double x = (double)r->step;
        double at =
            logs ? choir__log(x / from) / choir__log(to / from) : (x - from) / (to - from);
        fprintf(g,
            "set arrow from %lld, graph 0 to %lld, graph 1 nohead back dt 3 lc rgb "
            "'#888888'\n",
            (long long)r->step, (long long)r->step);
        if (at - last < 0.07)
            continue;
        last = at;
        fprintf(g, "set label '%lld' at %lld, graph 1 center offset 0,0.5 font ',%d'\n",
            (long long)r->stopped, (long long)r->step, FONT - 2);
    }
}

void choir__plot_rungs(const choir__plotted *p, FILE *g, choir__panel panel)
{
    curves c = {.p = p};
    measure(&c);
    write_curves(&c, g, "ended", CHOIR_TRIAL_COMPLETE);
    write_curves(&c, g, "left", CHOIR_TRIAL_PRUNED);
    bool logs = c.first < INT64_MAX && c.last > 30 * c.first;
    double from = logs ? (double)c.first / 1.15 : 0,
           to = logs ? (double)c.last * 1.15 : (double)c.last * 1.03;
    choir__plot_panel(g, panel, "Where trials stopped, and how many", 2.2);
    choir__plot_axis(g, 'x', (choir__plot_range){from, fmax(to, 1), logs});
    if (to < FEW_STEPS) /* no half epochs */
        fprintf(g, "set xtics 1\n");
    choir__plot_axis(g, 'y', c.range);
    draw_rungs(&c, g, logs, from, to);
    fprintf(g, "set xlabel ");
    choir__gnuplot_text(g, p->unit, 32);
    fprintf(g, " font ',%d'\n", FONT - 1);
    choir__plot_name_y(p, g, panel, p->metric, 32);
    fprintf(g,
        "set pointsize 0.8\n"
        "plot $left with lines lc rgb '#BBBBBB' lw 1, $ended with lines lc rgb '#2171B5' lw 1.5,"
        " \\\n  $left using 1:($3 > 0 ? $2 : NaN) with points pt 6 lc rgb '#666666', \\\n"
        "  $ended using 1:($3 > 0 ? $2 : NaN) with points pt 7 lc rgb '#08306B'\n");
    free(c.step);
    free(c.value);
}
