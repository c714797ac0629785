/* The picture of a plan: a step of the advised strategy, as it is replayed. Above, the memory
 * of the device that holds most, stacked by kind; below, the work of all queues: a lane for
 * each device of each rank (or class of equal ranks), with kernels, copies and collectives. */
#include "cli/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "line/gnuplot.h"

enum { WIDTH = 1280, HEIGHT = 800, FONT = CHOIR__GNUPLOT_FONT, LANES = 16, PIXELS = 1200 };

typedef struct picture {
    const char *file;
    const choir__plan_entry *entry;
    const choir__forecast *when;
    double end_ms;
} picture;

static const double mib = 1048576;

/* Okabe and Ito's colours. */
static const struct {
    const char *name, *colour;
} kinds[CHOIR__STEP_HELD] = {{"parameters", "#0072B2"}, {"gradients", "#E69F00"},
    {"optimizer", "#009E73"}, {"activations", "#CC79A7"}, {"work space", "#56B4E9"},
    {"messages", "#D55E00"}},
  work[] = {{"kernels", "#0072B2"}, {"copies", "#009E73"}, {"collectives", "#D55E00"}};

/* --- memory --- */

static int64_t sum_of(const int64_t *held)
{
    int64_t sum = 0;
    for (int k = 0; k < CHOIR__STEP_HELD; k++)
        sum += held[k];
    return sum;
}

/* Returns the program whose first device holds most. */
static int fullest(const choir__step *s)
{
    int64_t most = -1;
    int at = 0;
    for (int p = 0; p < s->program_count; p++)
        for (int64_t i = 0; s->programs[p].held && i < s->programs[p].entry_count; i++)
            if (sum_of(s->programs[p].held + i * CHOIR__STEP_HELD) > most) {
                most = sum_of(s->programs[p].held + i * CHOIR__STEP_HELD);
                at = p;
            }
    return at;
}

/* Writes the corners of the sum of the kinds from `kind` on, as steps. */
static void write_memory(const picture *d, FILE *g, int program, int kind)
{
    const choir__step_program *p = &d->entry->rehearsal.step.programs[program];
    double last = 0;
    fprintf(g, "$held%d << EOD\n", kind);
    for (int64_t i = 0; i < p->entry_count; i++) {
        const int64_t *held = p->held + i * CHOIR__STEP_HELD;
        double sum = 0;
        if (!sum_of(held))
            continue;
        for (int k = 0; k <= kind; k++)
            sum += (double)held[k];
        const double at = 1e3 * d->when->times[program][i].start;
        fprintf(g, "%.6g %.6g\n%.6g %.6g\n", at, last > 0 ? last : sum / mib, at, sum / mib);
        last = sum / mib;
    }
    fprintf(g, "%.6g %.6g\nEOD\n", d->end_ms, last);
}

/* Puts the legend between the panel and its title, which makes room. */
static void set_key(FILE *g, double y)
{
    fprintf(g,
        "set title offset 0,1.9\n"
        "set key at screen 0.97,%g right top horizontal maxrows 1 samplen 1 font ',%d'\n",
        y, FONT);
}

static void draw_memory(const picture *d, FILE *g)
{
    const choir__step *s = &d->entry->rehearsal.step;
    const int program = fullest(s);
    char title[512];
    if (!s->programs[program].held)
        return;
    snprintf(title, sizeof title, "%s%s%s: memory of rank %lld%s over a step (MiB)",
        d->entry->text, *d->entry->mesh ? " on " : "", d->entry->mesh,
        (long long)s->programs[program].first,
        d->entry->rehearsal.each > 1 ? "'s first device" : "");
    choir__gnuplot_panel(g, (choir__panel){0.07, 0.56, 0.9, 0.31}, title);
    fprintf(g, "set xrange [0:%.6g]\nset yrange [0:*]\nset format x ''\n", d->end_ms);
    set_key(g, 0.93);
    for (int k = 0; k < CHOIR__STEP_HELD; k++)
        write_memory(d, g, program, k);
    fprintf(g, "plot ");
    for (int k = CHOIR__STEP_HELD - 1; k >= 0; k--)
        fprintf(g,
            "%s$held%d using 1:2 with filledcurves x1 fs solid 1 noborder lc rgb '%s' "
            "title '%s'",
            k < CHOIR__STEP_HELD - 1 ? ", " : "", k, kinds[k].colour, kinds[k].name);
    fprintf(g, "\n");
}

/* --- the timeline --- */

static int work_of(const choir__step_entry *e)
{
    return e->kind == CHOIR__ENTRY_KERNEL       ? 0
           : e->kind == CHOIR__ENTRY_COPY       ? 1
           : e->kind == CHOIR__ENTRY_COLLECTIVE ? 2
                                                : -1;
}

/* A lane of the timeline: a device of a program. */
typedef struct lane {
    int program, device;
} lane;

static int list_lanes(const choir__step *s, lane lanes[LANES])
{
    int count = 0;
    for (int p = 0; p < s->program_count; p++) {
        int devices = 1;
        for (int q = 0; q < s->programs[p].queue_count; q++)
            devices = (int)choir__max(devices, s->programs[p].queues[q].device + 1);
        for (int d = 0; d < devices && count < LANES; d++)
            lanes[count++] = (lane){p, d};
    }
    return count;
}

/* Returns whether the entry belongs to the lane: groups' queues are the first device's. */
static bool is_in(const choir__step_program *p, const choir__step_entry *e, int device)
{
    return choir__max(p->queues[e->queue].device, 0) == device;
}

/* Writes the work of a kind in a lane as boxes (from, to, lane); neighbours that no pixel parts
 * are one. */
static void write_lane(const picture *d, FILE *g, int kind, lane l, int number)
{
    const choir__step_program *p = &d->entry->rehearsal.step.programs[l.program];
    const double near = d->end_ms / PIXELS;
    double from = -1, to = -1;
    for (int64_t i = 0; i < p->entry_count; i++) {
        const choir__entry_time *t = &d->when->times[l.program][i];
        if (work_of(&p->entries[i]) != kind || !is_in(p, &p->entries[i], l.device) ||
            t->end <= t->start)
            continue;
        if (from >= 0 && 1e3 * t->start <= to + near && 1e3 * t->start >= from) {
            to = fmax(to, 1e3 * t->end);
            continue;
        }
        if (from >= 0)
            fprintf(g, "%.6g %.6g %d\n", from, to, number);
        from = 1e3 * t->start;
        to = 1e3 * t->end;
    }
    if (from >= 0)
        fprintf(g, "%.6g %.6g %d\n", from, to, number);
}

static void draw_timeline(const picture *d, FILE *g)
{
    const choir__step *s = &d->entry->rehearsal.step;
    lane lanes[LANES];
    char title[160], step[32];
    const int count = list_lanes(s, lanes);
    snprintf(title, sizeof title, "Timeline of the step of %s: rank, or rank.device, over ms",
        choir__plan_time(d->entry->price.ms, step));
    choir__gnuplot_panel(g, (choir__panel){0.07, 0.07, 0.9, 0.33}, title);
    set_key(g, 0.46);
    fprintf(g, "set xrange [0:%.6g]\nset yrange [%d.5:-0.5]\nset format x '%%g'\nset ytics (",
        d->end_ms, count - 1);
    for (int i = 0; i < count; i++) {
        const bool several = count > s->program_count;
        fprintf(g, "%s'%lld", i ? ", " : "", (long long)s->programs[lanes[i].program].first);
        if (several)
            fprintf(g, ".%d", lanes[i].device);
        fprintf(g, "' %d", i);
    }
    fprintf(g, ")\n");
    for (size_t k = 0; k < CHOIR_COUNT(work); k++) {
        fprintf(g, "$work%zu << EOD\n-1 -1 0\n", k);
        for (int i = 0; i < count; i++)
            write_lane(d, g, (int)k, lanes[i], i);
        fprintf(g, "EOD\n");
    }
    fprintf(g, "plot ");
    for (size_t k = 0; k < CHOIR_COUNT(work); k++)
        fprintf(g,
            "%s$work%zu using 1:3:1:2:($3+%g):($3+%g) with boxxyerror fs solid 1 noborder "
            "lc rgb '%s' title '%s'",
            k ? ", " : "", k, k == 2 ? 0.12 : -0.4, k == 2 ? 0.4 : 0.1, work[k].colour,
            work[k].name);
    fprintf(g, "\n");
}

static void write_script(const void *arg, FILE *g)
{
    const picture *d = arg;
    choir__gnuplot_begin(g, d->file, WIDTH, HEIGHT, FONT, 1.3);
    fprintf(g, "set multiplot\n");
    draw_memory(d, g);
    draw_timeline(d, g);
    fprintf(g, "unset multiplot\n");
}

choir_status choir__plan_plot(choir__planning *p, const choir__plan_entry *entry)
{
    choir__forecast when = {0};
    choir__plan_entry e = {.change = entry->change, .times = entry->times, .when = &when};
    memcpy(e.text, entry->text, sizeof e.text);
    memcpy(e.mesh, entry->mesh, sizeof e.mesh);
    choir__plan_foresee(p, &e);
    choir_status status = CHOIR_OK;
    if (!e.planned)
        status = choir__error(CHOIR_ERR_STATE, "--plot %s: %s", p->plot, e.error);
    else if (!when.times)
        status = choir__error(CHOIR_ERR_STATE,
            "--plot %s: the step of %s is not recorded, so it has no times", p->plot, e.text);
    else
        status = choir__gnuplot(write_script,
            &(picture){
                .file = p->plot, .entry = &e, .when = &when, .end_ms = 1e3 * when.seconds});
    choir__forecast_free(&when);
    choir__rehearsal_free(&e.rehearsal);
    return status;
}
