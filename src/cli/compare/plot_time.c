/* Memory and use of devices over time, for the strategies that were watched.
 *
 * Memory is drawn from the start of a run, because that is when it grows. Use is drawn for
 * three of the last steps, so that the idle times of a schedule can be seen: one lane per
 * device, whose height is the busy share of each thirtieth of a step. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/math/functions.h"
#include "cli/compare/compare.h"

enum { FONT = CHOIR__GNUPLOT_FONT, BINS = 30, STEPS_SHOWN = 3, PANELS = 4 };

/* Shares of the picture's width: the first panel's axis, from one axis to the names before it,
 * and between two panels, whose lanes have names. */
static const double first_axis = 0.08, to_name = 0.062, gap = 0.06;

static const double mib = 1048576, lane_height = 0.82;

/* Okabe and Ito's colours, which people who confuse red and green can tell apart. */
static const char *colour_of(int device)
{
    static const char *const colours[] = {
        "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999933", "#444444"};
    return colours[device % (int)CHOIR_COUNT(colours)];
}

/* Returns whether the device was busy at any time. */
static bool was_used(const choir__compare_watch *w, int i)
{
    return choir__watch_busy(w, i, w->at[0], w->at[w->count - 1]) > 0;
}

/* Returns the busy seconds of all devices together up to sample k. */
static double busy_of(const choir__compare_watch *w, int k)
{
    double sum = 0;
    for (int i = 0; i < w->device_count; i++)
        sum += w->busy_s[(size_t)k * CHOIR__MAX_DEVICES + i];
    return sum;
}

/* Stores the time of the first allocation, and the time when nine tenths of the work were done.
 * The time after the last step may be long, but has little work. */
static void span_of(const choir__compare_watch *w, double *from, double *to)
{
    int first = w->count - 1, last = 0;
    for (int k = w->count - 1; k >= 0; k--)
        for (int i = 0; i < w->device_count; i++)
            first = w->bytes[(size_t)k * CHOIR__MAX_DEVICES + i] > 0 ? k : first;
    while (last + 1 < w->count && busy_of(w, last) < 0.9 * busy_of(w, w->count - 1))
        last++;
    *from = w->at[first];
    *to = fmax(w->at[last], *from + 1e-3);
}

double choir__compare_tick(double range)
{
    double power = choir__pow(10, floor(choir__log10(range / 4))), digit = range / 4 / power;
    return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

/* Returns the lane in which a device is drawn, in the order of names, or -1 if it was not used.
 */
static int lane_of(const choir__compare_watch *w, int device)
{
    int lane = 0;
    for (int i = 0; i < w->device_count; i++)
        lane += was_used(w, i) && strcmp(w->device[i], w->device[device]) < 0;
    return was_used(w, device) ? lane : -1;
}

/* Returns whether sample k has the same memory as the one before. */
static bool as_before(const choir__compare_watch *w, int k)
{
    const double *now = w->bytes + (size_t)k * CHOIR__MAX_DEVICES;
    for (int i = 0; i < w->device_count; i++)
        if (k < 1 || now[i] != now[i - CHOIR__MAX_DEVICES])
            return false;
    return true;
}

/* Writes a row before and after each change, and at both ends. */
static void write_memory(const choir__compare_watch *w, FILE *g, double from, double to)
{
    fprintf(g, "$memory << EOD\n");
    for (int k = 0; k < w->count; k++) {
        bool last = k + 1 == w->count || w->at[k + 1] > to;
        if (w->at[k] < from || w->at[k] > to ||
            (as_before(w, k) && !last && as_before(w, k + 1)))
            continue;
        fprintf(g, "%.6f", w->at[k] - from);
        for (int i = 0; i < w->device_count; i++)
            fprintf(g, " %.6g", w->bytes[k * CHOIR__MAX_DEVICES + i] / mib);
        fprintf(g, "\n");
    }
    fprintf(g, "EOD\n");
}

static void memory(
    const choir__compare_entry *e, FILE *g, choir__panel p, double most, bool labelled)
{
    const choir__compare_watch *w = e->watch;
    char label[64];
    double from, to;
    bool first = true;
    span_of(w, &from, &to);
    choir__compare_label(e, label);
    write_memory(w, g, from, to);
    choir__gnuplot_panel(g, p, "");
    fprintf(g, "set title ");
    choir__gnuplot_text(g, label,
        choir__gnuplot_room((p.width + gap) * CHOIR__COMPARE_WIDTH, FONT + 1, sizeof label));
    fprintf(g,
        "\nset xrange [0:%.6f]\nset yrange [0:%.6g]\nset xtics %g offset 0,0.3\nset ytics %g\n"
        "set xlabel 'seconds since it began' offset 0,0.7 font ',%d'\n",
        to - from, most * 1.1 / mib, choir__compare_tick(to - from),
        choir__compare_tick(most * 1.1 / mib), FONT - 3);
    if (labelled)
        choir__gnuplot_name_y(g, p.x - to_name, "memory, MiB", 40);
    else
        fprintf(g, "set format y ''\n");
    for (int i = 0; i < w->device_count; i++) {
        int lane =
            lane_of(w, i); /* the first is the thickest, so that equal lines stay visible */
        if (lane < 0)
            continue;
        fprintf(g, "%s $memory using 1:%d with lines lc rgb '%s' lw %g", first ? "plot" : ",",
            i + 2, colour_of(lane), lane < 4 ? 6 - 1.5 * lane : 1.5);
        first = false;
    }
    fprintf(g, "\n");
}

static void use(
    const choir__compare_entry *e, FILE *g, choir__panel p, int most_lanes, bool labelled)
{
    const choir__compare_watch *w = e->watch;
    double from, to;
    int lanes = 0, bins = BINS * STEPS_SHOWN;
    span_of(w, &from, &to);
    from = fmax(from, to - STEPS_SHOWN * w->step_s);
    double wide = (to - from) / bins;
    fprintf(g, "$use << EOD\n");
    for (int k = 0; k < bins; k++)
        for (int side = 0; side < 2; side++) {
            fprintf(g, "%.6f", (k + side) * wide * 1e3);
            for (int i = 0; i < w->device_count; i++)
                fprintf(g, " %.4f",
                    choir__watch_busy(w, i, from + k * wide, from + (k + 1) * wide));
            fprintf(g, "\n");
        }
    fprintf(g, "EOD\n");
    choir__gnuplot_panel(g, p, "");
    fprintf(g,
        "unset grid\nset xrange [0:%.6f]\n"
        "set xlabel 'milliseconds in three steps' offset 0,0.6 font ',%d'\n",
        (to - from) * 1e3, FONT - 2);
    fprintf(g, "set xtics %g offset 0,0.3\nset ytics scale 0 (",
        choir__compare_tick((to - from) * 1e3));
    for (int i = 0; i < w->device_count; i++) {
        int lane = lane_of(w, i);
        if (lane >= 0)
            fprintf(g, "%s'%s' %g", lanes++ ? "," : "", w->device[i], most_lanes - lane - 0.6);
    }
    fprintf(g, ")\nset yrange [0:%d]\n", most_lanes);
    if (labelled)
        choir__gnuplot_name_y(g, p.x - to_name, "busy", 40);
    lanes = 0;
    for (int i = 0; i < w->device_count; i++) {
        int lane = lane_of(w, i), floor = most_lanes - lane - 1;
        if (lane < 0)
            continue;
        fprintf(g,
            "%s %g with lines lc rgb '#BBBBBB', $use using 1:(%d+%g*$%d) with filledcurves y1=%d "
            "lc rgb '%s'",
            lanes++ ? "," : "plot", floor + lane_height, floor, lane_height, i + 2, floor,
            colour_of(lane));
    }
    fprintf(g, "\n");
}

/* Lists the entries that were watched, and computes the values that their panels share. */
static int watched(const choir__compare *c, const choir__compare_entry *list[PANELS],
    double *most, int *most_lanes)
{
    int count = 0;
    *most = 0;
    *most_lanes = 1;
    for (int i = 0; i < c->count; i++) {
        const choir__compare_watch *w = c->entries[i].watch;
        if (!w || w->count < 3 || count == PANELS)
            continue;
        int lanes = 0;
        for (int d = 0; d < w->device_count; d++) {
            lanes += was_used(w, d);
            for (int k = 0; k < w->count; k++)
                *most = fmax(*most, w->bytes[k * CHOIR__MAX_DEVICES + d]);
        }
        if (!lanes)
            continue;
        *most_lanes = (int)choir__max(*most_lanes, lanes);
        list[count++] = &c->entries[i];
    }
    return count;
}

void choir__plot_time(const choir__compare *c, FILE *g)
{
    const choir__compare_entry *list[PANELS];
    double most;
    int lanes, count = watched(c, list, &most, &lanes);
    for (int i = 0; i < count; i++) {
        double each = (0.98 - first_axis + gap) / count, x = first_axis + i * each;
        choir__panel above = {x, 0.285, each - gap, 0.14}, below = {x, 0.065, each - gap, 0.15};
        memory(list[i], g, above, most, i == 0);
        use(list[i], g, below, lanes, i == 0);
    }
}
