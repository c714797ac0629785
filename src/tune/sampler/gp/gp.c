/* Bayesian optimisation with a Gaussian process: a regression (regression.h) over the complete
 * trials predicts the value at any point, and the next trial is the point with the largest
 * expected improvement (acquire.h).
 *
 * Trials that run count with the mean that the regression predicts for them ("kriging
 * believer"), so that trials that run at once differ. The first `startup` trials are random.
 * Fitting takes the third power of the number of trials; if there are more than `points`, the
 * better half of `points` and the newest others are used.
 *
 * The regression is fitted again for each trial, from one start, so that it follows from
 * the trials alone.
 *
 * Sources: Jones, Schonlau, Welch, "Efficient global optimization of expensive black-box
 * functions" (1998); Ginsbourger et al., "Kriging is well-suited to parallelize optimization"
 * (2010); Optuna's GPSampler, whose kernel, priors and numbers these are. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/sampler/gp/acquire.h"
#include "tune/sampler/sampler.h"

typedef struct gp {
    choir__tune_sampler base;
    int64_t startup, candidates, starts, points;
} gp;

static choir_status open_gp(
    const choir__history *first, uint64_t seed, const char *text, choir__tune_sampler **sampler)
{
    (void)seed;
    gp *g = choir__calloc(1, sizeof *g);
    *g = (gp){.base.ops = &choir__tune_sampler_gp,
        .startup = 10,
        .candidates = 2048,
        .starts = 9,
        .points = 400};
    const choir__option known[] = {
        {"startup", CHOIR__INT, &g->startup, 0, 1e9},
        {"candidates", CHOIR__INT, &g->candidates, 1, 1e6},
        {"starts", CHOIR__INT, &g->starts, 1, 1e6},
        {"points", CHOIR__INT, &g->points, 10, 1e4},
        {NULL},
    };
    choir_status status = choir__options_parse(text, "sampler gp", known);
    if (status == CHOIR_OK && first->objectives > 1)
        status = choir__error(CHOIR_ERR_UNSUPPORTED,
            "sampler gp: expected one direction, got %d; nsga2 takes several",
            first->objectives);
    if (status == CHOIR_OK)
        *sampler = &g->base;
    else
        free(g);
    return status;
}

static void free_gp(choir__tune_sampler *s)
{
    free(s);
}

/* --- the trials so far --- */

static int newest_first(const void *a, const void *b)
{
    const choir__ranked *x = a, *y = b;
    return (x->number < y->number) - (x->number > y->number);
}

/* Returns the complete trials that the regression uses, the best one first; the caller frees
 * them. */
static choir__ranked *choose(const gp *g, const choir__history *h, int64_t *count)
{
    choir__ranked *all = choir__alloc((size_t)(h->count + 1) * sizeof *all);
    int64_t n = 0;
    for (int64_t i = 0; i < h->count; i++)
        if (h->trial[i]->known == CHOIR_TRIAL_COMPLETE)
            all[n++] = (choir__ranked){i, h->sign[0] * h->trial[i]->values[0]};
    qsort(all, (size_t)n, sizeof *all, choir__by_value);
    if (n > g->points) {
        int64_t half = g->points / 2;
        qsort(all + half, (size_t)(n - half), sizeof *all, newest_first);
        n = g->points;
    }
    *count = n;
    return all;
}

/* Scales the merits, of which more is better, to mean 0 and variance 1; infinite ones become
 * the finite ones' extremes. */
static void standardize(const choir__ranked *from, int64_t n, double *y)
{
    double low = (double)INFINITY, high = -low, mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(from[i].value))
            low = fmin(low, -from[i].value), high = fmax(high, -from[i].value);
    for (int64_t i = 0; i < n; i++) {
        y[i] = low <= high ? fmin(fmax(-from[i].value, low), high) : 0;
        mean += y[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        square += (y[i] - mean) * (y[i] - mean) / (double)n;
    double scale = square > 0 ? 1 / sqrt(square) : 1;
    for (int64_t i = 0; i < n; i++)
        y[i] = (y[i] - mean) * scale;
}

/* --- suggesting --- */

static int64_t running(const choir__history *h)
{
    int64_t count = 0;
    for (int64_t i = 0; i < h->count; i++)
        count += h->trial[i]->known == CHOIR_TRIAL_RUNNING;
    return count;
}

/* Adds the trials that run to the regression, at the means that it predicts. */
static void believe(choir__regression *r, const choir__history *h, double *scratch)
{
    int64_t n = r->count, all = n;
    for (int64_t i = 0; i < h->count; i++) {
        if (h->trial[i]->known != CHOIR_TRIAL_RUNNING)
            continue;
        double *x = r->x + all * r->dims, variance;
        choir__coordinates(h->space, h->trial[i]->params, x);
        choir__regression_predict(r, x, scratch, &r->y[all++], &variance, NULL, NULL);
    }
    if (all > n)
        choir__regression_solve(r, all);
}

static choir_status suggest(
    choir__tune_sampler *s, const choir__history *h, choir__draws *draws, double *params)
{
    const gp *g = (const gp *)(const void *)s;
    int64_t n;
    choir__ranked *from = choose(g, h, &n);
    if (n < g->startup || !n) {
        free(from);
        choir__space_draw(h->space, draws, params);
        return CHOIR_OK;
    }
    int64_t all = n + running(h), dims = h->space->count;
    bool is_choice[CHOIR_SPACE_MAX];
    for (int i = 0; i < dims; i++)
        is_choice[i] = h->space->param[i].dist.kind == CHOIR__CHOICE;
    choir__regression *r = choir__regression_new(all, (int)dims, is_choice);
    double *scratch = choir__alloc((size_t)(all * (2 + dims)) * sizeof *scratch);
    for (int64_t i = 0; i < n; i++)
        choir__coordinates(h->space, h->trial[from[i].number]->params, r->x + i * dims);
    standardize(from, n, r->y);
    choir__regression_fit(r, n);
    choir__regression_solve(r, n);
    believe(r, h, scratch);
    choir__acquisition a = {.space = h->space,
        .regression = r,
        .best = r->y[0],
        .candidates = g->candidates,
        .starts = g->starts,
        .scratch = scratch};
    memcpy(params, h->trial[from[0].number]->params, (size_t)dims * sizeof *params);
    if (!choir__acquire(&a, draws, params))
        choir__space_draw(h->space, draws, params); /* the study may refuse the point */
    choir__regression_free(r);
    free(scratch);
    free(from);
    return CHOIR_OK;
}

const choir__tune_sampler_ops choir__tune_sampler_gp = {
    .name = "gp", .open = open_gp, .suggest = suggest, .free = free_gp};
