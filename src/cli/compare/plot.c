/* The picture of a comparison: a script for gnuplot.
 *
 *     +------------------------------+----------------------------+
 *     | one bar per strategy         | over split sizes           |
 *     +------------------------------+----------------------------+
 *     | memory over time, one panel per watched strategy         |
 *     | use of devices over three steps, one lane per device     |
 *     +-----------------------------------------------------------+
 *
 * A part without data leaves no gap: the others take its place. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/compare/compare.h"
#include "record/events.h"

enum { WIDTH = CHOIR__COMPARE_WIDTH, HEIGHT = 1000, FONT = CHOIR__GNUPLOT_FONT };

static const char *colour_of(const choir__compare_entry *e)
{
    static const char *const colours[] = {[CHOIR__OTHER_FAMILY] = "0xCC79A7",
        [CHOIR__UNDIVIDED] = "0x7F7F7F",
        [CHOIR__DATA_PARALLEL] = "0x009E73",
        [CHOIR__MODEL_PARALLEL] = "0xD55E00",
        [CHOIR__PIPELINED] = "0x0072B2"};
    return colours[e->strategy->family];
}

/* --- bars --- */

/* Returns whether numbers are shown in thousands, so that an axis has room for its labels. The
 * scripts multiply by k. */
static bool in_thousands(const choir__compare *c)
{
    return choir__compare_best(c, NULL)->items_per_s >= 1e5;
}

/* "thousand samples per second" */
static void rate_text(const choir__compare *c, char text[64])
{
    snprintf(text, 64, "%s%s per second", in_thousands(c) ? "thousand " : "",
        choir__compare_items(c));
}

/* Names a vertical axis, beyond numbers of six digits. */
static void rates_upwards(const choir__compare *c, FILE *g, choir__panel p)
{
    enum { BESIDE = 96 }; /* pixels from the axis */
    char text[64];
    rate_text(c, text);
    choir__gnuplot_name_y(g, p.x - (double)BESIDE / WIDTH, text, 40);
}

/* "2.45× (other bits)" */
static int speed_text(const choir__compare_entry *e, char text[32])
{
    return snprintf(text, 32, "%.2f×%s", e->speed_up, e->same_bits ? "" : " (other bits)");
}

/* Returns the share of the picture's width that the longest name beside the bars takes. */
static double room_for_names(const choir__compare *c)
{
    char label[64];
    double letters = 0;
    for (int i = 0; i < c->count; i++) {
        choir__compare_label(&c->entries[i], label);
        letters = fmax(letters, c->entries[i].failed ? 0 : (double)strlen(label));
    }
    return (0.8 * (FONT - 2) * letters + 24) / WIDTH;
}

/* Returns the end of the axis at which the bar, its error and its label fit. */
static double end_for(const choir__compare_entry *e, choir__panel p)
{
    char text[32];
    double letters = speed_text(e, text) + 2, letter = 0.68 * (FONT - 2);
    double label = fmin(letters * letter / (p.width * WIDTH), 0.7); /* share of the panel */
    return (e->items_per_s + e->spread) / (1 - label);
}

/* Draws a bar per strategy, the first on top. */
static void all_bars(const choir__compare *c, FILE *g, choir__panel p)
{
    char label[64], speed[32], rate[64];
    int row = 0;
    double most = 0;
    fprintf(g, "$all << EOD\n");
    for (int i = 0; i < c->count; i++) {
        const choir__compare_entry *e = &c->entries[i];
        if (e->failed)
            continue;
        choir__compare_label(e, label);
        speed_text(e, speed);
        most = fmax(most, end_for(e, p));
        fprintf(g, "\"%s\" %.9g %.9g %s \"%s\" %d\n", label, e->items_per_s, e->spread,
            colour_of(e), speed, row++);
    }
    fprintf(g, "EOD\n");
    choir__gnuplot_panel(g, p, "Throughput, in multiples of one device");
    rate_text(c, rate);
    fprintf(g,
        "set xlabel '%s' font ',%d'\nset yrange [%g:-0.7]\nset xrange [0:%.9g*k]\nset xtics %g*k\n"
        "unset grid\nset grid xtics lc rgb '#DDDDDD' lt 1\n"
        "plot $all using ($2*k):6:(0):($2*k):($6-0.36):($6+0.36):4:ytic(1) with boxxyerror "
        "lc rgb variable, \\\n"
        "  $all using ($2*k):6:($3*k) with xerrorbars lc rgb 'black' lw 2 pt 7 ps 0.2, \\\n"
        "  $all using (($2+$3)*k):6:5 with labels left offset 0.8,0 font ',%d'\n",
        rate, FONT - 1, row - 0.3, most, choir__compare_tick(most), FONT - 2);
}

/* --- split sizes --- */

/* Colours by schedule. */
static const char *const colours[4] = {"#56B4E9", "#0072B2", "#00304D", "#D81B60"};

static void write_splits(const choir__compare *c, FILE *g, int index)
{
    const choir__compare_entry *e = &c->entries[index];
    fprintf(g, "$split%d << EOD\n", index);
    for (int s = 0; s < c->split_count; s++)
        if (e->split_runs[s])
            fprintf(g, "%lld %.9g %.9g\n", (long long)c->splits[s],
                choir__median(e->split[s], e->split_runs[s]),
                choir__run_spread(e->split[s], e->split_runs[s]));
    fprintf(g, "EOD\n");
}

static bool has_splits(const choir__compare_entry *e)
{
    int points = 0;
    for (int s = 0; s < CHOIR__MAX_SPLITS; s++)
        points += e->split_runs[s] > 0;
    return !e->failed && points > 0;
}

/* Returns the highest end of a bar that shows an error. */
static double highest_split(const choir__compare *c)
{
    double most = c->entries[0].items_per_s;
    for (int i = 0; i < c->count; i++) {
        const choir__compare_entry *e = &c->entries[i];
        for (int s = 0; s < c->split_count && has_splits(e); s++)
            if (e->split_runs[s])
                most = fmax(most, choir__median(e->split[s], e->split_runs[s]) +
                                      choir__run_spread(e->split[s], e->split_runs[s]));
    }
    return most;
}

/* Draws a line per pipeline, and its legend above all of them. */
static void over_splits(const choir__compare *c, FILE *g, choir__panel p)
{
    enum { ROWS = 5, ROW = 23, SAMPLE = 60 }; /* lines of the legend, and pixels */
    char label[64];
    int line = 0, lines = 1;
    for (int i = 0; i < c->count; i++)
        if (has_splits(&c->entries[i])) {
            write_splits(c, g, i);
            lines++;
        }
    const int columns = (lines + ROWS - 1) / ROWS, rows = (lines + columns - 1) / columns;
    const int room = choir__gnuplot_room(p.width * WIDTH / columns - SAMPLE, FONT - 2, 60);
    const double below = 1 - (double)(rows * ROW + ROW) / (p.height * HEIGHT);
    choir__gnuplot_panel(g, p, "Pipelines over split sizes");
    rates_upwards(c, g, p);
    fprintf(g,
        "set logscale x 2\nset xlabel 'samples per split' font ',%d'\nset yrange [0:%.9g*k]\n"
        "set offsets graph 0.05,graph 0.05,0,0\nset xtics (",
        FONT - 1, highest_split(c) / below);
    for (int s = 0; s < c->split_count; s++)
        fprintf(g, "%s%lld", s ? "," : "", (long long)c->splits[s]);
    fprintf(g,
        ")\nset key top left Left reverse samplen 1.6 maxrows %d font ',%d'\n"
        "plot %.9g*k with lines lc rgb '#7F7F7F' lw 2 dt 2 title 'single'",
        rows, FONT - 2, c->entries[0].items_per_s);
    for (int i = 0; i < c->count; i++) {
        if (!has_splits(&c->entries[i]))
            continue;
        choir__compare_label(&c->entries[i], label);
        fprintf(g,
            ", \\\n  $split%d using 1:($2*k):(($2>$3?$2-$3:0)*k):(($2+$3)*k) with yerrorlines "
            "lc rgb '%s' lw 2.5 pt %d ps 1.3 title ",
            i, colours[line % 4], 5 + 2 * (line % 4));
        choir__gnuplot_text(g, label, room);
        line++;
    }
    fprintf(g, "\n");
}

/* --- the whole picture --- */

static void heading(const choir__compare *c, FILE *g)
{
    const char *model = json_string_value(
        json_object_get(c->entries[0].runs[0].summary, CHOIR__KEY(summary, model)));
    char *text = choir__format("%s on %d devices",
        c->job.model.name ? c->job.model.name : model, c->job.placement.device_count);
    char *more =
        choir__format("batch of %lld in %lld micro-batches; bars: median of %lld run%s%s",
            (long long)c->job.training.batch_size, (long long)c->job.training.microbatches,
            (long long)c->repeats, c->repeats > 1 ? "s" : "",
            c->repeats < 2   ? ""
            : c->repeats < 5 ? " and half of their range"
                             : " and half of the distance between the quartiles");
    fprintf(g, "set label 1 at screen 0.02,0.972 left font ',%d' ", FONT + 5);
    choir__gnuplot_text(g, text, choir__gnuplot_room(0.96 * WIDTH, FONT + 5, 200));
    fprintf(
        g, "\nset label 2 at screen 0.02,0.935 left font ',%d' tc rgb '#555555' ", FONT - 2);
    choir__gnuplot_text(g, more, 200);
    fprintf(g, "\nunset border\nunset tics\nunset key\nplot [0:1][0:1] NaN\n");
    free(text);
    free(more);
}

static void write_script(const void *arg, FILE *g)
{
    const choir__compare *c = arg;
    choir__gnuplot_begin(g, c->plot, WIDTH, HEIGHT, FONT, 1.3);
    fprintf(g, "set multiplot\nk = %s\n", in_thousands(c) ? "0.001" : "1");
    heading(c, g);
    bool splits = false;
    for (int i = 0; i < c->count; i++)
        splits = splits || has_splits(&c->entries[i]);
    double left = fmax(0.08, room_for_names(c)), right = splits ? 0.585 : 0.97;
    all_bars(c, g, (choir__panel){left, 0.545, right - left, 0.33});
    if (splits)
        over_splits(c, g, (choir__panel){0.68, 0.545, 0.3, 0.33});
    choir__plot_time(c, g);
    fprintf(g, "unset multiplot\n");
}

choir_status choir__compare_plot(const choir__compare *c)
{
    return choir__gnuplot(write_script, c);
}
