/* Grid search: every combination of the parameters' values, once, the last parameter fastest.
 *
 * An odometer counts through the combinations. A parameter that a combination lacks has no
 * digit in it, and combinations that the space does not allow are passed over, a bounded number
 * of them per suggestion: a condition that never holds would keep a study for hours. */
#include <math.h>
#include <stdlib.h>

#include "tune/sampler/sampler.h"

typedef struct grid {
    choir__tune_sampler base;
    int64_t points; /* per continuous parameter, and the most per int; 0: unspecified */
    bool begun, ended, stands; /* stands: the digits belong to a point to be given */
    int64_t digit[];           /* (space->count) */
} grid;

enum { POINTS = 5, MOST_POINTS = 1000000, MOST_PASSED = 1000000 };

static choir_status open_grid(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    (void)seed;
    grid *g = choir__calloc(1, sizeof *g + (size_t)first->space->count * sizeof g->digit[0]);
    const choir__option known[] = {
        {"points", CHOIR__INT, &g->points, 1, MOST_POINTS},
        {NULL},
    };
    g->base.ops = &choir__tune_sampler_grid;
    choir_status status = choir__options_parse(text, "sampler grid", known);
    if (status == CHOIR_OK)
        *sampler = &g->base;
    else
        free(g);
    return status;
}

/* The number of the parameter's values on the grid. */
static int64_t size_of(const grid *g, const choir__dist *d)
{
    int64_t size = choir__dist_size(d);
    if (size < 0)
        return g->points ? g->points : POINTS;
    return d->kind == CHOIR__INTEGER && g->points ? choir__min(size, g->points) : size;
}

/* Returns the value of a digit of the grid. Both ends of a range are on the grid; for a normal
 * distribution the values are the middles of equally likely parts. */
static double value_at(const choir__dist *d, int64_t digit, int64_t size)
{
    if (d->kind == CHOIR__CHOICE)
        return (double)digit;
    if (d->kind == CHOIR__NORMAL)
        return choir__from_inner(d, ((double)digit + 0.5) / (double)size);
    if (d->kind == CHOIR__INTEGER && size == choir__dist_size(d))
        return d->low + d->step * (double)digit;
    double low = choir__to_inner(d, d->low), high = choir__to_inner(d, d->high);
    double part = size > 1 ? (double)digit / (double)(size - 1) : 0;
    return choir__from_inner(d, low + (high - low) * part);
}

/* Writes the values at the digits. */
static void write(const grid *g, const choir_space *space, double *params)
{
    for (int i = 0; i < space->count; i++) {
        const choir__dist *d = &space->param[i].dist;
        params[i] = choir__space_active(space, i, params)
                        ? value_at(d, g->digit[i], size_of(g, d))
                        : (double)NAN;
    }
}

/* Counts on by one; returns false after the last combination. params: the present one. */
static bool step(grid *g, const choir_space *space, const double *params)
{
    for (int i = space->count - 1; i >= 0; i--) {
        if (!isnan(params[i]) && ++g->digit[i] < size_of(g, &space->param[i].dist))
            return true;
        g->digit[i] = 0;
    }
    return false;
}

/* Moves on to the next point that the space allows, unless the grid stands at one. */
static bool has_more(choir__tune_sampler *s, const choir__history *h)
{
    grid *g = (grid *)(void *)s;
    double params[CHOIR_SPACE_MAX];
    for (int passed = 0; !g->ended && !g->stands && passed < MOST_PASSED; passed++) {
        write(g, h->space, params);
        if (g->begun)
            g->ended = !step(g, h->space, params);
        g->begun = true;
        write(g, h->space, params);
        g->stands = !g->ended && choir__space_allows(h->space, params);
    }
    return !g->ended;
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    (void)draws;
    grid *g = (grid *)(void *)s;
    if (!has_more(s, h))
        return choir__error(CHOIR_ERR_END, "the grid has no more points");
    if (!g->stands)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "none of %d points of the grid in a row fulfils the space's conditions, such as "
            "'%s': give it fewer points or another sampler",
            MOST_PASSED, h->space->require_text[0]);
    write(g, h->space, params);
    g->stands = false;
    return CHOIR_OK;
}

static void free_grid(choir__tune_sampler *s)
{
    free(s);
}

const choir__tune_sampler_ops choir__tune_sampler_grid = {.name = "grid",
    .open = open_grid,
    .suggest = suggest,
    .has_more = has_more,
    .free = free_grid};
