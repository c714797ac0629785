/* Prints a plan in the terminal: one row per device, time to the right, to scale.
 *
 *     device 0  F0 F1 .  .  B0--- F2 B1--- F3 ...
 *     device 1  .  F0 B0--- F1 B1--- ...
 *
 * The scale is the smallest at which the shortest action has room for its name. F3b is the
 * forward of micro-batch 3 in the second of several chunks. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "parallel/plan/pipeline_plan.h"

enum { COLUMNS = 100, MOST_PIECES = 20, SHOWN = 16 };

typedef struct grid {
    const choir_pipeline_plan *plan;
    const choir_span *spans;
    double first, makespan; /* first: the earliest start */
    double scale;           /* columns per unit of time */
    int label, name;        /* lengths of "device 0  " and of the longest name, such as "F3b" */
    int cell;               /* columns of the shortest action */
    int columns, piece;     /* columns of all the time, and of one printed piece */
} grid;

static int digits_of(int64_t n)
{
    return snprintf(NULL, 0, "%lld", (long long)n);
}

static char letter(choir_action_kind kind)
{
    return kind == CHOIR_FORWARD ? 'F' : kind == CHOIR_BACKWARD_WEIGHT ? 'W' : 'B';
}

static grid grid_of(const choir_pipeline_plan *plan, const choir_span *spans)
{
    grid g = {.plan = plan, .spans = spans, .first = INFINITY};
    double shortest = INFINITY;
    for (int i = 0; i < plan->devices * plan->each; i++) {
        double duration = spans[i].end - spans[i].start;
        shortest = duration > 0 ? fmin(shortest, duration) : shortest;
        g.first = fmin(g.first, spans[i].start);
    }
    g.makespan = choir_pipeline_plan_makespan(plan, spans);
    g.label = 9 + digits_of(plan->devices - 1);
    g.name = 1 + digits_of(plan->micros - 1) + (plan->chunks > 1);
    const int room = COLUMNS - g.label;
    const double cells = g.makespan > 0 ? g.makespan / shortest : 1;
    g.cell = cells * (g.name + 1) > room && cells * g.name <= room ? g.name : g.name + 1;
    g.piece = room / g.cell * g.cell;
    double columns = fmin(cells * g.cell, (double)g.piece * MOST_PIECES);
    g.scale = g.makespan > 0 ? columns / g.makespan : 0;
    g.columns = (int)lround(columns);
    return g;
}

static void put_action(const grid *g, char *row, choir_action action, choir_span span)
{
    char name[32];
    const int from = (int)lround((span.start - g->first) * g->scale);
    const int to = (int)lround((span.end - g->first) * g->scale);
    int length =
        snprintf(name, sizeof name, "%c%lld", letter(action.kind), (long long)action.micro);
    if (g->plan->chunks > 1)
        name[length++] = (char)('a' + action.stage / g->plan->devices % 26);
    for (int i = from; i < to; i++)
        row[i] = i - from < length ? name[i - from] : i < to - 1 ? '-' : ' ';
    if (to - from < length) /* part of a number would look like another number */
        for (int i = from + 1; i < to; i++)
            row[i] = '-';
}

/* Draws the rows of all devices (devices, columns). */
static char *rows_of(const grid *g)
{
    const choir_pipeline_plan *plan = g->plan;
    const size_t columns = (size_t)g->columns;
    char *rows = choir__alloc((size_t)plan->devices * columns + 1);
    for (size_t i = 0; i < (size_t)plan->devices * columns; i++)
        rows[i] = i % columns % (size_t)g->cell ? ' ' : '.';
    for (int i = 0; i < plan->devices * plan->each; i++) {
        int device = choir__pipeline_plan_device(plan, plan->order[i].stage);
        put_action(g, &rows[(size_t)device * columns], plan->order[i], g->spans[i]);
    }
    return rows;
}

static void print_rows(const grid *g, const char *rows, FILE *file)
{
    for (int at = 0; at < g->columns; at += g->piece) {
        if (at)
            fputc('\n', file);
        for (int d = 0; d < g->plan->devices; d++) {
            const char *row = &rows[(size_t)d * (size_t)g->columns + (size_t)at];
            int length = (int)choir__min(g->piece, g->columns - at);
            while (length > 0 && row[length - 1] == ' ')
                length--;
            fprintf(file, "device %-*d%.*s\n", g->label - 7, d, length, row);
        }
    }
}

static void print_sums(const grid *g, FILE *file)
{
    const choir_pipeline_plan *plan = g->plan;
    const int shown = (int)choir__min(plan->devices, SHOWN);
    fprintf(file, "takes %.6g, idle %.1f %%; equal stages, by %s: %.1f %%\n", g->makespan,
        100 * choir_pipeline_plan_idle(plan, g->spans, -1), plan->schedule->bubble,
        100 * choir_pipeline_plan_idle_formula(plan));
    fprintf(file, "idle a device:");
    for (int d = 0; d < shown; d++)
        fprintf(file, " %.0f", 100 * choir_pipeline_plan_idle(plan, g->spans, d));
    fprintf(file, "%s %%\nactivations held:", shown < plan->devices ? " ..." : "");
    for (int d = 0; d < shown; d++)
        fprintf(file, " %lld", (long long)choir_pipeline_plan_peak(plan, d));
    fprintf(file, "%s\n", shown < plan->devices ? " ..." : "");
}

choir_status choir_pipeline_plan_print(
    const choir_pipeline_plan *plan, const choir_span *spans, FILE *file)
{
    choir_status status = choir__pipeline_plan_spans_check(plan, spans);
    if (status != CHOIR_OK)
        return status;
    choir_span *own = spans ? NULL : choir__pipeline_plan_spans(plan);
    const grid g = grid_of(plan, spans ? spans : own);
    char *rows = rows_of(&g);
    char chunks[32] = "";
    if (plan->chunks > 1)
        snprintf(chunks, sizeof chunks, " of %d chunks", plan->chunks);
    fprintf(file, "%s: %d device%s%s, %lld micro-batch%s\n", plan->schedule->name,
        plan->devices, plan->devices > 1 ? "s" : "", chunks, (long long)plan->micros,
        plan->micros > 1 ? "es" : "");
    print_rows(&g, rows, file);
    print_sums(&g, file);
    free(rows);
    free(own);
    return ferror(file)
               ? choir__error(CHOIR_ERR_IO, "a plan could not be written: %s", strerror(errno))
               : CHOIR_OK;
}
