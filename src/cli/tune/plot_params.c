/* Pictures of parameters: each against the value, all side by side, and how important they
 * are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "cli/tune/plot.h"

enum { FONT = CHOIR__GNUPLOT_FONT, MOST_SLICES = 8, MOST_AXES = 12, MOST_BARS = 12 };
enum { MOST_LINES = 2000, BY_ROW = 4 };

/* From dark, for what matters, to light. */
static const char palette[] =
    "set palette defined (0 '#08306B', 0.4 '#2171B5', 0.75 '#6BAED6', 1 '#C6DBEF')\n"
    "set cbrange [0:1]\nunset colorbox\n";

/* --- slices: a parameter against the value --- */

/* Choices' points are spread, each by its trial's number, so that equal ones can be seen. */
static void write_slice(const choir__plotted *p, FILE *g, int slice)
{
    const choir__hyper *param = &p->space->param[p->param[slice]];
    bool spread = param->dist.kind == CHOIR__CHOICE;
    fprintf(g, "$slice%d << EOD\n", slice);
    for (int64_t i = 0; i < p->count; i++) {
        double x = choir__plot_param(p->trial[i].trial, param), value = p->trial[i].value;
        double aside = spread ? 0.5 * (fmod((double)i * 0.618034, 1) - 0.5) : 0;
        if (!isnan(x) && !isnan(value))
            fprintf(g, "%.12g %.12g %.4f\n", x + aside, choir__plot_inside(p->range, value),
                1 - (double)i / (double)choir__max(p->count - 1, 1));
    }
    fprintf(g, "NaN NaN NaN\nEOD\n");
}

void choir__plot_slices(const choir__plotted *p, FILE *g, choir__panel panel)
{
    int count = choir__min(p->param_count, (int)MOST_SLICES);
    int rows = (count + BY_ROW - 1) / BY_ROW, columns = (count + rows - 1) / rows;
    double width = panel.width / columns, height = panel.height / rows;
    for (int i = 0; i < count; i++) {
        const choir__hyper *param = &p->space->param[p->param[i]];
        int row = i / columns, column = i % columns;
        choir__panel at = {panel.x + column * width,
            panel.y + panel.height - (row + 1) * height + 0.22 * (rows > 1) * height,
            width * 0.88, height * (rows > 1 ? 0.78 : 1)};
        write_slice(p, g, i);
        choir__plot_panel(
            g, at, i ? "" : "Each parameter against the value (darker: later trials)", 1.2);
        fprintf(g, "%s", palette);
        choir__plot_axis(g, 'y', p->range);
        choir__plot_param_axis(g, 'x', param, 140 / columns);
        fprintf(g, "set xlabel ");
        choir__plot_text(g, param->name, 24);
        fprintf(g, " font ',%d'\n%s", FONT - 1, column ? "set format y ''\n" : "set ylabel ");
        if (!column)
            choir__plot_text(g, p->metric, 24);
        fprintf(g,
            "\nset pointsize %g\nplot $slice%d using 1:2:3 with points pt 7 lc palette\n",
            p->count > 400 ? 0.5 : 0.9, i);
    }
}

/* --- parallel coordinates --- */

/* Returns the values' range without a margin. */
static choir__plot_range ends_of(const choir__plotted *p)
{
    choir__plot_range r = {(double)INFINITY, -(double)INFINITY, p->range.log};
    for (int64_t i = 0; i < p->count; i++) {
        double x = choir__plot_inside(p->range, p->trial[i].value);
        if (!isnan(p->trial[i].value))
            r.low = fmin(r.low, x), r.high = fmax(r.high, x);
    }
    return r;
}

/* Returns the place of a value on a vertical axis from 0 to 1. */
static double height_of(
    const choir__plotted *p, choir__plot_range r, const choir__plotted_trial *t, int axis)
{
    if (axis == choir__min(p->param_count, (int)MOST_AXES)) {
        double x = choir__plot_inside(r, t->value);
        return r.high <= r.low ? 0.5
               : r.log         ? log(x / r.low) / log(r.high / r.low)
                               : (x - r.low) / (r.high - r.low);
    }
    const choir__hyper *param = &p->space->param[p->param[axis]];
    double x = choir__plot_param(t->trial, param);
    return isnan(x) ? x : choir__to_cube(&param->dist, x);
}

static int by_place(const void *a, const void *b)
{
    const choir__plotted_trial *x = a, *y = b;
    return (x->place < y->place) - (x->place > y->place);
}

/* Writes a line per trial, the best one last and so on top. A line passes the axes of
 * parameters without a value. */
static void write_lines(const choir__plotted *p, FILE *g, int axes)
{
    size_t bytes = (size_t)p->count * sizeof *p->trial;
    choir__plotted_trial *t = choir__alloc(bytes);
    choir__plot_range ends = ends_of(p);
    int64_t count = 0;
    for (int64_t i = 0; i < p->count; i++)
        if (!isnan(p->trial[i].value))
            t[count++] = p->trial[i];
    qsort(t, (size_t)count, sizeof *t, by_place);
    fprintf(g, "$lines << EOD\n");
    for (int64_t i = 0; i < count; i++) {
        if (count - i > MOST_LINES && i % (count / MOST_LINES + 1))
            continue;
        for (int a = 0; a <= axes; a++) {
            double y = height_of(p, ends, &t[i], a);
            if (!isnan(y))
                fprintf(g, "%d %.5f %.4f\n", a, y, t[i].place);
        }
        fprintf(g, "\n");
    }
    fprintf(g, "NaN NaN NaN\nEOD\n");
    free(t);
}

static void label(FILE *g, int axis, double y, const char *how, const char *text, int most)
{
    fprintf(g, "set label ");
    choir__plot_text(g, text, most);
    fprintf(g, " at %d,%g %s font ',%d' front\n", axis, y, how, FONT - 3);
}

/* Writes the ends of an axis, or the names of its choices, and its name below. */
static void draw_axis(const choir__plotted *p, FILE *g, int axis, const choir__hyper *param)
{
    char low[32], high[32];
    const char *name = param ? param->name : p->metric;
    fprintf(g, "set arrow from %d,0 to %d,1 nohead back lc rgb '#444444'\n", axis, axis);
    fprintf(g, "set label ");
    choir__plot_text(g, name, 20);
    fprintf(g, " at %d,0 center offset 0,-2.3 font ',%d'\n", axis, FONT - 1);
    if (param && param->dist.kind == CHOIR__CHOICE) {
        for (int i = 0; i < param->dist.choice_count && param->dist.choice_count <= 16; i++)
            label(g, axis, choir__to_cube(&param->dist, i), "left offset 0.6,0 boxed",
                param->dist.choices[i].text, 12);
        return;
    }
    choir__plot_range r = ends_of(p);
    if (param)
        r = (choir__plot_range){param->dist.low, param->dist.high, false};
    if (param && param->dist.kind == CHOIR__NORMAL)
        snprintf(low, sizeof low, "low"), snprintf(high, sizeof high, "high");
    else
        snprintf(low, sizeof low, "%.4g", r.low), snprintf(high, sizeof high, "%.4g", r.high);
    label(g, axis, 0, "center offset 0,-0.9", low, 12);
    label(g, axis, 1, "center offset 0,0.8", high, 12);
}

void choir__plot_parallel(const choir__plotted *p, FILE *g, choir__panel panel)
{
    int axes = choir__min(p->param_count, (int)MOST_AXES);
    write_lines(p, g, axes);
    choir__plot_panel(g, panel, "Each trial a line (darker: better)", 2.2);
    fprintf(g,
        "%sunset border\nunset tics\nset grid noytics\nset xrange [-0.1:%d.1]\n"
        "set yrange [-0.02:1.02]\nset clip two\nset style textbox opaque noborder margins 1,1 "
        "fillcolor rgb 'white'\n",
        palette, axes);
    for (int a = 0; a <= axes; a++)
        draw_axis(p, g, a, a < axes ? &p->space->param[p->param[a]] : NULL);
    fprintf(
        g, "plot $lines using 1:2:3 with lines lw %g lc palette\n", p->count > 200 ? 0.8 : 1.4);
}

/* --- importance --- */

void choir__plot_importance(const choir__plotted *p, FILE *g, choir__panel panel)
{
    int count = choir__min(p->param_count, (int)MOST_BARS);
    double most = 0;
    fprintf(g, "$importance << EOD\n");
    for (int i = 0; i < count; i++) {
        double share = p->share[p->param[i]];
        most = fmax(most, share);
        fprintf(g, "%d %.6f \"%.2f\"\n", i, share, share);
    }
    fprintf(g, "NaN NaN NaN\nEOD\n");
    bool fanova = p->evaluator && !strcmp(p->evaluator, "fanova");
    choir__plot_panel(g, panel, fanova ? "Importance (fANOVA)" : "Importance (PED-ANOVA)", 1.2);
    fprintf(g,
        "unset grid\nset grid xtics lc rgb '#DDDDDD' lt 1\nset xrange [0:%g]\n"
        "set yrange [%g:-0.6]\nset ytics (",
        most > 0 ? 1.15 * most : 1, fmax(count, 3) - 0.4);
    for (int i = 0; i < count; i++) {
        fprintf(g, i ? "," : "");
        choir__plot_text(g, p->space->param[p->param[i]].name, 20);
        fprintf(g, " %d", i);
    }
    fprintf(g,
        ")\nplot $importance using ($2/2):1:($2/2):(0.32) with boxxyerror lc rgb '#2171B5', \\\n"
        "  $importance using 2:1:3 with labels left offset 0.6,0 font ',%d'\n",
        FONT - 2);
}
