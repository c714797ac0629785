/* fANOVA, with the definitions of Optuna 5's FanovaImportanceEvaluator.
 *
 * Which share of the value's variance over the whole space does a parameter explain alone? A
 * random forest of 64 regression trees is fitted to the trials. A tree is a function that is
 * constant in each of its leaves, which are boxes, so its mean over all parameters but one
 * follows from the leaves' sizes, as a function of that one. The variance of that function, by
 * the variance of the tree, is the share; the parameter's importance is its mean over the
 * trees.
 *
 *     tree(x) = sum over leaves l of  value(l) [x in l]
 *     mean over all but U: f(u) = sum over l of  value(l) size of l outside of U [u in l]
 *
 * Numbers are not transformed. A choice of k is k columns that are 0 or 1, and the space is all
 * that lies between. Parameters that some complete trials lack are left out, and have 0.
 *
 * Source: Hutter, Hoos and Leyton-Brown, "An Efficient Approach for Assessing Hyperparameter
 * Importance" (2014); Optuna's FanovaImportanceEvaluator. Its forest draws other random
 * numbers, so the shares differ as between two seeds. */
#include "tune/importance/forest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tune/importance/evaluators.h"
#include "tune/study.h"

enum { TREES = 64 };

/* --- a tree's variance --- */

/* The share of the space that a leaf has in some columns. */
static double size_of(const choir__leaves *l, int64_t leaf, const double *low,
    const double *high, int from, int to)
{
    const double *box = l->box + 2 * leaf * l->columns;
    double size = 1;
    for (int c = from; c < to; c++)
        size *= (box[2 * c + 1] - box[2 * c]) / (high[c] - low[c]);
    return size;
}

static double mean_of(const choir__leaves *l, const double *low, const double *high)
{
    double sum = 0;
    for (int64_t i = 0; i < l->count; i++)
        sum += l->value[i] * size_of(l, i, low, high, 0, l->columns);
    return sum;
}

double choir__fanova_variance(const choir__leaves *l, const double *low, const double *high)
{
    double mean = mean_of(l, low, high), sum = 0;
    for (int64_t i = 0; i < l->count; i++)
        sum += (l->value[i] - mean) * (l->value[i] - mean) *
               size_of(l, i, low, high, 0, l->columns);
    return sum;
}

/* A leaf's value, from the tree's mean, times its size outside of some columns. */
static double outside(const choir__leaves *l, int64_t leaf, double mean, const double *low,
    const double *high, int first, int count)
{
    return (l->value[leaf] - mean) * size_of(l, leaf, low, high, 0, first) *
           size_of(l, leaf, low, high, first + count, l->columns);
}

/* --- numbers --- */

/* Where the marginal of a column changes. */
typedef struct change {
    double at, by;
} change;

static int by_place(const void *a, const void *b)
{
    const change *x = a, *y = b;
    return x->at != y->at ? (x->at > y->at) - (x->at < y->at)
                          : (x->by > y->by) - (x->by < y->by); /* one order of additions */
}

/* The marginal is constant between the ends of leaves. */
static double marginal_of_number(
    const choir__leaves *l, const double *low, const double *high, int column)
{
    size_t ends = 2 * (size_t)l->count;
    change *changes = choir__alloc(ends * sizeof *changes);
    double mean = mean_of(l, low, high), f = 0, sum = 0;
    for (int64_t i = 0; i < l->count; i++) {
        const double *side = l->box + 2 * (i * l->columns + column);
        double by = outside(l, i, mean, low, high, column, 1);
        changes[2 * i] = (change){side[0], by};
        changes[2 * i + 1] = (change){side[1], -by};
    }
    qsort(changes, ends, sizeof *changes, by_place);
    for (size_t i = 0; i + 1 < ends; i++) {
        f += changes[i].by;
        sum += f * f * (changes[i + 1].at - changes[i].at);
    }
    free(changes);
    return sum / (high[column] - low[column]);
}

/* --- choices --- */

typedef enum half { BOTH, LOWER, UPPER } half;

/* Leaves that are alike in the columns of a choice. */
typedef struct alike {
    unsigned char *halves; /* (columns) half of the choices, per column */
    double sum;            /* sum of their values, times sizes outside */
} alike;

static int by_halves(const void *a, const void *b, void *columns)
{
    return memcmp(
        ((const alike *)a)->halves, ((const alike *)b)->halves, (size_t) * (int *)columns);
}

/* Returns the share of the space that both kinds of leaves have. */
static double shared(const alike *a, const alike *b, int columns)
{
    double size = 1;
    for (int c = 0; c < columns; c++) {
        if (a->halves[c] + b->halves[c] == LOWER + UPPER && a->halves[c] && b->halves[c])
            return 0;
        if (a->halves[c] || b->halves[c])
            size /= 2;
    }
    return size;
}

static double marginal_of_choice(
    const choir__leaves *l, const double *low, const double *high, int first, int columns)
{
    alike *kinds = choir__alloc((size_t)l->count * sizeof *kinds);
    unsigned char *halves = choir__calloc((size_t)l->count, (size_t)columns);
    double mean = mean_of(l, low, high), sum = 0;
    for (int64_t i = 0; i < l->count; i++) {
        const double *box = l->box + 2 * (i * l->columns + first);
        kinds[i].halves = halves + i * columns;
        kinds[i].sum = outside(l, i, mean, low, high, first, columns);
        for (int c = 0; c < columns; c++)
            kinds[i].halves[c] = box[2 * c] > low[first + c]        ? UPPER
                                 : box[2 * c + 1] < high[first + c] ? LOWER
                                                                    : BOTH;
    }
    qsort_r(kinds, (size_t)l->count, sizeof *kinds, by_halves, &columns);
    int64_t count = 0;
    for (int64_t i = 1; i < l->count; i++)
        if (by_halves(&kinds[count], &kinds[i], &columns))
            kinds[++count] = kinds[i];
        else
            kinds[count].sum += kinds[i].sum;
    for (int64_t i = 0; i <= count; i++)
        for (int64_t k = 0; k <= count; k++)
            sum += kinds[i].sum * kinds[k].sum * shared(&kinds[i], &kinds[k], columns);
    free(kinds);
    free(halves);
    return sum;
}

double choir__fanova_marginal(
    const choir__leaves *l, const double *low, const double *high, int first, int count)
{
    return count == 1 ? marginal_of_number(l, low, high, first)
                      : marginal_of_choice(l, low, high, first, count);
}

/* --- the trials as a table --- */

/* Returns whether all complete trials have the parameter, which has several values. */
static bool takes_part(const choir_study *s, int param)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->trial[i]->state == CHOIR_TRIAL_COMPLETE && isnan(s->trial[i]->params[param]))
            return false;
    return choir__dist_size(&s->space->param[param].dist) != 1;
}

/* Returns how many columns a parameter has. */
static int width_of(const choir_study *s, int param)
{
    const choir__dist *d = &s->space->param[param].dist;
    return !takes_part(s, param) ? 0 : d->kind == CHOIR__CHOICE ? d->choice_count : 1;
}

/* Fills in a number. Values beyond the distribution, as in studies whose ranges have changed,
 * widen the space. */
static void fill_number(
    choir__forest_table *t, const choir__dist *d, const choir__valued *v, int param, int column)
{
    bool normal = d->kind == CHOIR__NORMAL; /* as the storages write it */
    double low = normal ? d->low - 9 * d->high : d->low;
    double high = normal ? d->low + 9 * d->high : d->high;
    for (int64_t i = 0; i < t->rows; i++) {
        double x = t->x[column * t->rows + i] = v->trial[i]->params[param];
        low = fmin(low, x), high = fmax(high, x);
    }
    t->low[column] = low, t->high[column] = high;
}

static void fill_choice(
    choir__forest_table *t, const choir__valued *v, int param, int column, int n)
{
    for (int c = column; c < column + n; c++) {
        for (int64_t i = 0; i < t->rows; i++)
            t->x[c * t->rows + i] = (int)v->trial[i]->params[param] == c - column;
        t->low[c] = 0, t->high[c] = 1;
    }
}

/* Values with mean 0 and variance 1, or all 0. */
static void fill_values(choir__forest_table *t, const choir__valued *v)
{
    double mean = 0, squares = 0;
    for (int64_t i = 0; i < t->rows; i++)
        mean += v->loss[i] / (double)t->rows;
    for (int64_t i = 0; i < t->rows; i++)
        squares += (v->loss[i] - mean) * (v->loss[i] - mean) / (double)t->rows;
    for (int64_t i = 0; i < t->rows; i++)
        t->y[i] = squares > 0 && isfinite(squares) ? (v->loss[i] - mean) / sqrt(squares) : 0;
}

static choir__forest_table table_of(const choir_study *s, const choir__valued *v)
{
    choir__forest_table t = {.rows = v->count};
    for (int i = 0; i < s->space->count; i++)
        t.columns += width_of(s, i);
    size_t columns = (size_t)t.columns + 1, rows = (size_t)t.rows;
    t.x = choir__alloc(columns * rows * sizeof(double));
    t.y = choir__alloc(rows * sizeof(double));
    t.low = choir__alloc(columns * sizeof(double));
    t.high = choir__alloc(columns * sizeof(double));
    int column = 0;
    for (int i = 0; i < s->space->count; i++) {
        const choir__dist *d = &s->space->param[i].dist;
        int n = width_of(s, i);
        if (n && d->kind == CHOIR__CHOICE)
            fill_choice(&t, v, i, column, n);
        else if (n)
            fill_number(&t, d, v, i, column);
        column += n;
    }
    fill_values(&t, v);
    choir__table_sort(&t);
    return t;
}

/* --- the evaluator --- */

static void evaluate(const choir_study *s, const choir__valued *v, double *importance)
{
    choir__forest_table t = table_of(s, v);
    choir__leaves leaves = {.count = 0};
    uint64_t key = choir__rng_key(0, "fanova");
    int trees = 0;
    for (int n = 0; n < TREES && t.columns; n++) {
        choir__forest_tree(&t, choir__mix(key, (uint64_t)n), &leaves);
        double variance = choir__fanova_variance(&leaves, t.low, t.high);
        trees += variance > 0;
        for (int i = 0, column = 0; i < s->space->count && variance > 0; i++) {
            int width = width_of(s, i);
            if (width)
                importance[i] +=
                    choir__fanova_marginal(&leaves, t.low, t.high, column, width) / variance;
            column += width;
        }
    }
    for (int i = 0; i < s->space->count && trees; i++)
        importance[i] = fmax(importance[i] / trees, 0);
    choir__leaves_free(&leaves);
    free(t.x);
    free(t.y);
    free(t.low);
    free(t.high);
    free(t.order);
}

const choir__importance_ops choir__importance_fanova = {
    .name = "fanova",
    .evaluate = evaluate,
};
