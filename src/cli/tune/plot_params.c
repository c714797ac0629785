/* Pictures of parameters: each against the value, all side by side, and how important they
 * are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "cli/tune/plot.h"

enum { FONT = CHOIR__GNUPLOT_FONT, MOST_SLICES = 8, MOST_AXES = 12, MOST_BARS = 12 };
enum { MOST_LINES = 2000, BY_ROW = 4 };
/* Names below parallel axes have at most NAME letters. The others are pixels: the height of a
 * line of names, the space between two names, and the space to the right of the panel. */
enum { NAME = 20, NAME_LINE = 26, SPACE = 8, RIGHT = 60 };

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
            fprintf(g, "%.12g %.12g %.4f %d %d\n", x + aside,
                choir__plot_inside(p->range, value),
                1 - (double)i / (double)choir__max(p->count - 1, 1), p->trial[i].best,
                p->trial[i].state == CHOIR_TRIAL_PRUNED);
    }
    fprintf(g, "NaN NaN NaN 0 0\nEOD\n");
}

static int slices_of(const choir__plotted *p)
{
    return choir__min(p->param_count, (int)MOST_SLICES);
}

int choir__plot_slice_rows(const choir__plotted *p)
{
    return (slices_of(p) + BY_ROW - 1) / BY_ROW;
}

/* Draws slice i; those beside the first one of a row share its numbers of values. */
static void draw_slice(const choir__plotted *p, FILE *g, choir__panel at, int i, bool first)
{
    const choir__hyper *param = &p->space->param[p->param[i]];
    double width = at.width * p->width;
    choir__plot_axis(g, 'y', p->range);
    choir__plot_param_axis(g, 'x', param, choir__gnuplot_room(width, FONT - 2, 140));
    fprintf(g, "set xlabel ");
    choir__gnuplot_text(g, param->name, choir__gnuplot_room(width, FONT - 1, 40));
    fprintf(g, " font ',%d'\n", FONT - 1);
    if (first)
        choir__plot_name_y(p, g, at, p->metric, 24);
    else
        fprintf(g, "set format y ''\n");
    char data[32];
    snprintf(data, sizeof data, "slice%d", i);
    fprintf(g,
        "unset key\nset pointsize %g\n"
        "plot $%s using 1:($5 == 1 ? NaN : $2):3 with points pt 7 lc palette, \\\n"
        "  $%s using 1:($5 == 1 ? $2 : NaN) with points pt 6 lc rgb '#888888'",
        p->count > 400 ? 0.5 : 0.9, data, data);
    choir__plot_ring(g, data, 4);
}

void choir__plot_slices(const choir__plotted *p, FILE *g, choir__panel panel)
{
    int count = slices_of(p), rows = choir__plot_slice_rows(p);
    int columns = (count + rows - 1) / rows;
    double gap = (double)CHOIR__PLOT_SLICE_GAP / p->height;
    double width = panel.width / columns, height = (panel.height + gap) / rows;
    char *title = choir__plot_title(p,
        "Each parameter against the value (darker: later; grey: stopped early; ring: the best; "
        "choices are spread)",
        count);
    for (int i = 0; i < count; i++) {
        int row = i / columns, column = i % columns;
        choir__panel at = {panel.x + column * width, panel.y + (rows - 1 - row) * height,
            width * 0.88, height - gap};
        write_slice(p, g, i);
        choir__plot_panel(g, at, i ? "" : title, 1.2);
        fprintf(g, "%s", palette);
        draw_slice(p, g, at, i, !column);
    }
    free(title);
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
               : r.log         ? choir__log(x / r.low) / choir__log(r.high / r.low)
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
    choir__gnuplot_text(g, text, most);
    fprintf(g, " at %d,%g %s font ',%d' front\n", axis, y, how, FONT - 3);
}

/* Returns the axes' names, the value's last. */
static const char *name_of(const choir__plotted *p, int axis, int axes)
{
    return axis < axes ? p->space->param[p->param[axis]].name : p->metric;
}

/* Writes the name of an axis below it. Names that have no room side by side take turns on two
 * lines. apart: the pixels between two axes. */
static void draw_name(const char *name, FILE *g, int axis, int lines, double apart)
{
    fprintf(g, "set label ");
    choir__gnuplot_text(g, name, choir__gnuplot_room(lines * apart - SPACE, FONT - 1, NAME));
    fprintf(g, " at %d,0 center offset 0,%g font ',%d'\n", axis,
        axis % 2 && lines == 2 ? -3.4 : -2.3, FONT - 1);
}

/* Writes an axis with its ends, or the names of its choices. */
static void draw_axis(
    const choir__plotted *p, FILE *g, int axis, const choir__hyper *param, double apart)
{
    char low[32], high[32];
    int letters = choir__gnuplot_room(apart - 16, FONT - 3, 12);
    fprintf(g, "set arrow from %d,0 to %d,1 nohead back lc rgb '#444444'\n", axis, axis);
    if (param && param->dist.kind == CHOIR__CHOICE) {
        for (int i = 0; i < param->dist.choice_count && param->dist.choice_count <= 16; i++)
            label(g, axis, choir__to_cube(&param->dist, i), "left offset 0.6,0 boxed",
                param->dist.choices[i].text, letters);
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

/* Returns the pixels of an axis' name. */
static double pixels_of(const choir__plotted *p, int axis, int axes)
{
    int letters = choir__gnuplot_letters(name_of(p, axis, axes));
    return choir__gnuplot_pixels(choir__min(letters, (int)NAME), FONT - 1);
}

/* Returns whether no name reaches the next axis's name. */
static bool names_fit(const choir__plotted *p, int axes, double apart)
{
    for (int a = 0; a < axes; a++)
        if ((pixels_of(p, a, axes) + pixels_of(p, a + 1, axes)) / 2 + SPACE > apart)
            return false;
    return true;
}

void choir__plot_parallel(const choir__plotted *p, FILE *g, choir__panel panel)
{
    int axes = choir__min(p->param_count, (int)MOST_AXES);
    double beyond = fmax(
        pixels_of(p, axes, axes) / 2 - RIGHT, 0); /* part of the last name beyond the axes */
    panel.width -= beyond / p->width;
    double apart = panel.width * p->width / (axes + 0.2);
    int lines = names_fit(p, axes, apart) ? 1 : 2;
    double room = (double)(lines - 1) * NAME_LINE / p->height;
    char *title = choir__plot_title(p, "Each trial a line (darker: better)", axes);
    panel.y += room, panel.height -= room;
    write_lines(p, g, axes);
    choir__plot_panel(g, panel, title, 2.2);
    free(title);
    fprintf(g,
        "%sunset border\nunset tics\nset grid noytics\nset xrange [-0.1:%d.1]\n"
        "set yrange [-0.02:1.02]\nset clip two\nset style textbox opaque noborder margins 1,1 "
        "fillcolor rgb 'white'\n",
        palette, axes);
    for (int a = 0; a <= axes; a++) {
        draw_axis(p, g, a, a < axes ? &p->space->param[p->param[a]] : NULL, apart);
        draw_name(name_of(p, a, axes), g, a, lines, apart);
    }
    fprintf(
        g, "plot $lines using 1:2:3 with lines lw %g lc palette\n", p->count > 200 ? 0.8 : 1.4);
}

/* --- importance --- */

static int bars_of(const choir__plotted *p)
{
    return choir__min(p->param_count, (int)MOST_BARS);
}

double choir__plot_importance_side(const choir__plotted *p)
{
    int letters = 0;
    for (int i = 0; i < bars_of(p); i++)
        letters =
            choir__max(letters, choir__gnuplot_letters(p->space->param[p->param[i]].name));
    return choir__gnuplot_pixels(choir__min(letters, (int)NAME), FONT - 2) + 12;
}

/* Writes how many parameters are left out, in the row below the bars. */
static void note_rest(const choir__plotted *p, FILE *g, int bars)
{
    int rest = p->param_count - bars;
    if (!rest)
        return;
    fprintf(g, "set label 'and %d %s parameter%s' at 0,%d left offset 0.6,0 font ',%d'\n", rest,
        p->ordered ? "more" : "less important", rest == 1 ? "" : "s", bars, FONT - 2);
}

void choir__plot_importance(const choir__plotted *p, FILE *g, choir__panel panel)
{
    int bars = bars_of(p), rows = bars + (p->param_count > bars);
    double most = 0;
    fprintf(g, "$importance << EOD\n");
    for (int i = 0; i < bars; i++) {
        double share = p->share[p->param[i]];
        most = fmax(most, share);
        fprintf(g, "%d %.6f \"%.2f\"\n", i, share, share);
    }
    fprintf(g, "NaN NaN NaN\nEOD\n");
    bool fanova = p->evaluator && !strcmp(p->evaluator, "fanova");
    choir__plot_panel(g, panel, fanova ? "Importance (fANOVA)" : "Importance (PED-ANOVA)", 1.2);
    note_rest(p, g, bars);
    fprintf(g,
        "unset grid\nset grid xtics lc rgb '#DDDDDD' lt 1\nset xrange [0:%g]\n"
        "set xtics %g\nset yrange [%g:-0.6]\nset ytics scale 0 (",
        most > 0 ? 1.15 * most : 1,
        most > 0.5 || most <= 0 ? 0.2
        : most > 0.25           ? 0.1
                                : 0.05,
        fmax(rows, 3) - (rows > bars ? 0.1 : 0.4));
    for (int i = 0; i < bars; i++) {
        fprintf(g, i ? "," : "");
        choir__gnuplot_text(g, p->space->param[p->param[i]].name, NAME);
        fprintf(g, " %d", i);
    }
    fprintf(g,
        ")\nplot $importance using ($2/2):1:($2/2):(0.32) with boxxyerror lc rgb '#2171B5', \\\n"
        "  $importance using 2:1:3 with labels left offset 0.6,0 font ',%d'\n",
        FONT - 2);
}
