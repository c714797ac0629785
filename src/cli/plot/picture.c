/* Curves as a picture, by gnuplot: the smooth curve, the recorded points pale behind it, and
 * evaluations as circles. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "line/gnuplot.h"
#include "cli/plot/curve.h"

enum { WIDTH = 1100, HEIGHT = 640, MOST_POINTS = 4000, FONT = CHOIR__GNUPLOT_FONT };

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
        char *eval = choir__format("%s, validation", p->curves[i].name);
        separate(g, &drawn);
        fprintf(g, "$%c%d using ($1*k):2 with lines lc rgb '%s' lw 2 title ",
            p->curves[i].smooth.count ? 's' : 'a', i, colour);
        choir__gnuplot_words(g, p->curves[i].name);
        if (p->curves[i].eval.count) {
            separate(g, &drawn);
            fprintf(g,
                "$e%d using ($1*k):2 with linespoints lc rgb '%s' lw 1.5 dt 3 pt 7 ps 0.9 title ",
                i, colour);
            choir__gnuplot_words(g, eval);
        }
        free(eval);
    }
    fprintf(g, "\n");
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

static void write_script(const void *arg, FILE *g)
{
    const choir__plot *p = arg;
    double factor;
    const char *words = choir__axis_words(p, &factor), *kind = strrchr(p->file, '.') + 1;
    char *title = title_of(p);
    fprintf(g,
        !strcmp(kind, "svg")
            ? "set terminal svg size %d,%d dynamic noenhanced background rgb 'white' "
              "font 'DejaVu Sans,Helvetica,Arial,%d'\n"
            : "set terminal pngcairo size %d,%d noenhanced font 'DejaVu Sans,%d'\n",
        WIDTH, HEIGHT, FONT);
    fprintf(g, "set encoding utf8\nset output ");
    choir__gnuplot_text(g, p->file);
    fprintf(g, "\nk = %.17g\n", factor);
    write_data(p, g);
    choir__gnuplot_panel(g, (choir__panel){0.085, 0.12, 0.885, 0.78}, title);
    fprintf(g, "k = %.17g\nset xlabel '%s' font ',%d'\nset ylabel ", factor, words, FONT - 1);
    choir__gnuplot_words(g, p->metric);
    fprintf(g,
        " font ',%d' offset 1.8,0\nset autoscale xfix\n"
        "set key top right Left reverse samplen 2 width 1 spacing 1.15 font ',%d' box "
        "lc rgb '#DDDDDD' opaque fillcolor rgb 'white'\nset offsets 0,0,graph 0.04,graph 0.04\n",
        FONT - 1, FONT - 2);
    if (p->logarithmic)
        set_logarithmic(p, g);
    write_plots(p, g);
    free(title);
}

choir_status choir__plot_picture(const choir__plot *plot)
{
    return choir__gnuplot(write_script, plot);
}
