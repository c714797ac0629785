/* Draws plans as a picture: one panel per plan, one row per device, all in one scale of time,
 * so that plans below each other can be compared. A box is an action with its micro-batch's
 * number; later chunks are lighter. The end of a row shows how long the device is idle, and how
 * many micro-batches it holds. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/math/functions.h"
#include "parallel/plan/pipeline_plan.h"

/* Lengths in pixels. */
enum {
    MARGIN = 28,
    LABEL = 84,   /* left of the rows: "device 0" */
    TRACK = 1080, /* the longest plan's length */
    SHARE = 128,  /* right of the rows: idle, held */
    ROW = 30,
    GAP = 4, /* between rows */
    TITLE = 34,
    LEGEND = 40,
    AXIS = 40,
    BETWEEN = 26, /* between panels */
};

static const struct {
    const char *name, *fill, *ink; /* ink: color of the number in the box */
} kinds[] = {
    [CHOIR_FORWARD] = {"F: forward", "#3568b0", "#ffffff"},
    [CHOIR_BACKWARD] = {"B: backward", "#2b8a57", "#ffffff"},
    [CHOIR_BACKWARD_INPUT] = {"B: gradient of the input", "#3fc1c0", "#05302f"},
    [CHOIR_BACKWARD_WEIGHT] = {"W: gradient of the weights", "#f4b13e", "#3d2a00"},
};

#define RIGHT      "text-anchor='end' font-size='14'"
#define GREY_RIGHT "text-anchor='end' font-size='13' fill='#868e96'"

typedef struct page {
    const choir_pipeline_plan *const *plans;
    const choir_span **spans;
    int count;
    FILE *file;
    const char *unit;
    double longest; /* makespan */
    int width, height;
} page;

static double scale_of(const page *g)
{
    return g->longest > 0 ? TRACK / g->longest : 0;
}

static void text(const page *g, double x, double y, const char *style, const char *words)
{
    fprintf(g->file, "<text x='%.1f' y='%.1f' %s>%s</text>\n", x, y, style, words);
}

/* Mixes a color with white; chunk 0 has the full color. */
static unsigned lighter(const char *fill, double part)
{
    const unsigned rgb = (unsigned)strtoul(fill + 1, NULL, 16);
    unsigned mixed = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        double value = rgb >> shift & 255;
        mixed |= (unsigned)lround(value + (255 - value) * part) << shift;
    }
    return mixed;
}

static void draw_action(
    const page *g, const choir_pipeline_plan *plan, choir_action a, choir_span span, double y)
{
    const int chunk = a.stage / plan->devices;
    const double part = plan->chunks > 1 ? 0.6 * chunk / (plan->chunks - 1) : 0;
    const double x = MARGIN + LABEL + span.start * scale_of(g);
    const double width = (span.end - span.start) * scale_of(g);
    fprintf(g->file,
        "<rect class='a' x='%.2f' y='%.1f' width='%.2f' height='%d' fill='#%06x'/>\n", x, y,
        width, ROW, lighter(kinds[a.kind].fill, part));
    /* The font size at which the largest number fits. */
    const int digits = snprintf(NULL, 0, "%lld", (long long)plan->micros - 1);
    const double size = fmin(14, (width - 2) / (0.65 * digits));
    if (size >= 8)
        fprintf(g->file,
            "<text class='n' x='%.2f' y='%.1f' font-size='%.1f' fill='%s'>%lld</text>\n",
            x + width / 2, y + ROW / 2.0 + 0.36 * size, size,
            part > 0.25 ? "#1a1a1a" : kinds[a.kind].ink, (long long)a.micro);
}

/* Draws "1f1b: 4 devices, 8 micro-batches" and the plan's totals. */
static void draw_title(
    const page *g, const choir_pipeline_plan *plan, const choir_span *spans, double y)
{
    char chunks[32] = "";
    if (plan->chunks > 1)
        snprintf(chunks, sizeof chunks, " of %d chunks", plan->chunks);
    fprintf(g->file,
        "<text x='%d' y='%.1f' font-size='17'><tspan font-weight='bold'>%s</tspan>"
        "<tspan dx='12' font-size='14' fill='#495057'>%d device%s%s, %lld micro-batch%s</tspan>"
        "<tspan dx='18' font-size='14'>takes %.4g%s%s, idle %.1f %%</tspan>"
        "<tspan dx='8' font-size='14' fill='#868e96'>(equal stages, by %s: %.1f %%)</tspan>"
        "</text>\n",
        MARGIN, y + 17, plan->schedule->name, plan->devices, plan->devices > 1 ? "s" : "",
        chunks, (long long)plan->micros, plan->micros > 1 ? "es" : "",
        choir_pipeline_plan_makespan(plan, spans), *g->unit ? " " : "", g->unit,
        100 * choir_pipeline_plan_idle(plan, spans, -1), plan->schedule->bubble,
        100 * choir_pipeline_plan_idle_formula(plan));
    text(g, MARGIN + LABEL + TRACK + 66, y + 17, GREY_RIGHT, "idle");
    text(g, MARGIN + LABEL + TRACK + SHARE, y + 17, GREY_RIGHT, "holds");
}

static void draw_panel(const page *g, int index, double y)
{
    const choir_pipeline_plan *plan = g->plans[index];
    const choir_span *spans = g->spans[index];
    const double makespan = choir_pipeline_plan_makespan(plan, spans);
    double first = INFINITY;
    draw_title(g, plan, spans, y);
    y += TITLE;
    for (int i = 0; i < plan->devices * plan->each; i++)
        first = fmin(first, spans[i].start);
    for (int d = 0; d < plan->devices; d++) {
        char words[64];
        const double row = y + d * (ROW + GAP), base = row + ROW / 2.0 + 5;
        snprintf(words, sizeof words, "device %d", d);
        text(g, MARGIN, base, "font-size='14'", words);
        fprintf(g->file, "<rect x='%d' y='%.1f' width='%.2f' height='%d' fill='#eceff2'/>\n",
            MARGIN + LABEL, row, makespan * scale_of(g), ROW);
        snprintf(
            words, sizeof words, "%.1f %%", 100 * choir_pipeline_plan_idle(plan, spans, d));
        text(g, MARGIN + LABEL + TRACK + 66, base, RIGHT, words);
        snprintf(words, sizeof words, "%lld", (long long)choir_pipeline_plan_peak(plan, d));
        text(g, MARGIN + LABEL + TRACK + SHARE, base, RIGHT, words);
    }
    for (int i = 0; i < plan->devices * plan->each; i++) {
        choir_span span = {spans[i].start - first, spans[i].end - first};
        int device = choir__pipeline_plan_device(plan, plan->order[i].stage);
        draw_action(g, plan, plan->order[i], span, y + device * (ROW + GAP));
    }
}

static int panel_height(const choir_pipeline_plan *plan)
{
    return TITLE + plan->devices * (ROW + GAP) + BETWEEN;
}

/* Draws a legend of the kinds that occur. */
static void draw_legend(const page *g, double y)
{
    bool used[CHOIR_COUNT(kinds)] = {false}, chunked = false;
    double x = MARGIN + LABEL;
    for (int k = 0; k < g->count; k++) {
        const bool split = g->plans[k]->schedule->split;
        used[CHOIR_FORWARD] = true;
        used[split ? CHOIR_BACKWARD_INPUT : CHOIR_BACKWARD] = true;
        used[CHOIR_BACKWARD_WEIGHT] |= split;
        chunked |= g->plans[k]->chunks > 1;
    }
    for (size_t k = 0; k <= CHOIR_COUNT(kinds); k++) {
        const bool idle = k == CHOIR_COUNT(kinds);
        if (!idle && !used[k])
            continue;
        const char *name = idle ? "idle" : kinds[k].name;
        fprintf(g->file, "<rect x='%.1f' y='%.1f' width='18' height='18' fill='%s'/>\n", x, y,
            idle ? "#eceff2" : kinds[k].fill);
        text(g, x + 25, y + 14, "font-size='14'", name);
        x += 52 + 7.4 * (double)strlen(name);
    }
    if (chunked)
        text(g, x, y + 14, "font-size='14' fill='#495057'", "lighter: later chunks");
}

/* Returns 1, 2 or 5 times a power of ten, for about ten ticks. */
static double tick_of(double longest)
{
    const double rough = longest / 10, power = choir__pow(10, floor(choir__log10(rough)));
    const double part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static void draw_axis(const page *g, double y)
{
    const double tick = g->longest > 0 ? tick_of(g->longest) : 1;
    fprintf(g->file, "<path d='M%d %.1f h%d' stroke='#868e96'/>\n", MARGIN + LABEL, y, TRACK);
    for (int i = 0; i * tick <= g->longest * (1 + 1e-9); i++) {
        char words[64];
        const double x = MARGIN + LABEL + i * tick * scale_of(g);
        snprintf(words, sizeof words, "%.6g%s%s", i * tick, *g->unit ? " " : "", g->unit);
        fprintf(g->file, "<path d='M%.1f %.1f v6' stroke='#868e96'/>\n", x, y);
        text(g, x, y + 21, "text-anchor='middle' font-size='13' fill='#495057'", words);
    }
}

static void draw(page *g)
{
    double y = MARGIN;
    fprintf(g->file,
        "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %d %d' "
        "font-family='DejaVu Sans, Helvetica, Arial, sans-serif' fill='#212529'>\n"
        "<style>.a{stroke:#fff;stroke-width:1}.n{text-anchor:middle}</style>\n"
        "<rect width='100%%' height='100%%' fill='#ffffff'/>\n",
        g->width, g->height, g->width, g->height);
    draw_legend(g, y);
    y += LEGEND;
    for (int k = 0; k < g->count; k++) {
        draw_panel(g, k, y);
        y += panel_height(g->plans[k]);
    }
    draw_axis(g, y - BETWEEN + 8);
    fprintf(g->file, "</svg>\n");
}

static choir_status draw_to(page *g, const char *path)
{
    if (!(g->file = choir__file_try_output(path)))
        return choir__error(CHOIR_ERR_IO, "%s: %s", path, choir__file_why(errno));
    draw(g);
    bool failed = ferror(g->file);
    if (fclose(g->file) || failed)
        return choir__error(CHOIR_ERR_IO, "%s: %s", path, strerror(errno));
    return CHOIR_OK;
}

choir_status choir_pipeline_plan_svg(const choir_pipeline_plan *const *plans,
    const choir_span *const *spans, int count, const char *unit, const char *path)
{
    if (!plans)
        return choir__missing(__func__, "plans");
    if (!path)
        return choir__missing(__func__, "path");
    choir_status status = CHOIR_OK;
    if (count < 1)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "a picture: expected 1 plan or more, got %d", count);
    if (unit && strpbrk(unit, "<>&'\""))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a picture's unit of time: expected letters, such as 'ms', got '%s'", unit);
    page g = {.plans = plans, .count = count, .unit = unit ? unit : ""};
    choir_span **own = choir__calloc((size_t)count, sizeof *own);
    g.spans = choir__calloc((size_t)count, sizeof *g.spans);
    g.width = 2 * MARGIN + LABEL + TRACK + SHARE;
    g.height = 2 * MARGIN + LEGEND + AXIS - BETWEEN;
    for (int k = 0; k < count; k++) {
        const choir_span *given = spans ? spans[k] : NULL;
        status = choir__pipeline_plan_spans_check(plans[k], given);
        if (status != CHOIR_OK)
            break;
        if (!given)
            own[k] = choir__pipeline_plan_spans(plans[k]);
        g.spans[k] = own[k] ? own[k] : spans[k];
        g.longest = fmax(g.longest, choir_pipeline_plan_makespan(plans[k], g.spans[k]));
        g.height += panel_height(plans[k]);
    }
    if (status == CHOIR_OK)
        status = draw_to(&g, path);
    for (int k = 0; k < count; k++)
        free(own[k]);
    free(own);
    free(g.spans);
    return status;
}
