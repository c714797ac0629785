/* A study's trials as numbers to be drawn: the range and scale of an axis, outliers aside;
 * which parameters vary, and their values. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "base/number.h"
#include "cli/tune/plot.h"

/* --- ranges --- */

/* Returns the finite values (*n), sorted, on the heap. */
static double *sorted_of(const double *value, int64_t *n)
{
    double *sorted = choir__alloc((size_t)(*n + 1) * sizeof(double));
    int64_t count = 0;
    for (int64_t i = 0; i < *n; i++)
        if (isfinite(value[i]))
            sorted[count++] = choir__axis_place(value[i]);
    qsort(sorted, (size_t)count, sizeof(double), choir__by_number);
    *n = count;
    return sorted;
}

static void widen(choir__plot_range *r)
{
    if (r->log) {
        double factor = choir__exp(0.05 * (choir__log(r->high) - choir__log(r->low)));
        r->low /= factor, r->high = choir__axis_place(r->high * factor);
        return;
    }
    double margin = 0.05 * (r->high - r->low);
    if (margin <= 0)
        margin = fmax(fabs(r->low) * 0.05, 1e-9);
    r->low -= margin, r->high += margin;
}

/* Values of several powers of ten have a logarithmic axis. Else, where a tenth of them would
 * leave the others a fifth of the axis, it ends before these. */
choir__plot_range choir__plot_range_of(const double *value, int64_t n, bool most)
{
    double *v = sorted_of(value, &n);
    choir__plot_range r = {0, 1, false};
    if (n) {
        double usual = v[(int64_t)((most ? 0.1 : 0.9) * (double)(n - 1))];
        double best = most ? v[n - 1] : v[0];
        r = (choir__plot_range){v[0], v[n - 1], v[0] > 0 && v[n - 1] / v[0] > 100};
        bool far = r.high - r.low > 5 * fabs(usual - best) && usual != best;
        if (far && !r.log && most)
            r.low = best - 1.3 * (best - usual);
        else if (far && !r.log)
            r.high = best + 1.3 * (usual - best);
        widen(&r);
    }
    free(v);
    return r;
}

double choir__plot_inside(choir__plot_range r, double value)
{
    return fmin(fmax(value, r.low), r.high);
}

/* Marks a logarithmic axis of less than two decades, where gnuplot would write one or two
 * numbers.
 */
static void print_marks(FILE *g, char axis, choir__plot_range r)
{
    static const double at[] = {1, 2, 5};
    const char *comma = "";
    fprintf(g, "set %ctics (", axis);
    for (double decade = choir__pow(10, floor(choir__log10(r.low))); decade <= r.high;
         decade *= 10)
        for (size_t i = 0; i < CHOIR_COUNT(at); i++)
            if (at[i] * decade >= r.low && at[i] * decade <= r.high) {
                fprintf(g, "%s%.12g", comma, at[i] * decade);
                comma = ", ";
            }
    fprintf(g, ")\n");
}

/* Numbers of a logarithmic axis of more decades are at most five powers of ten. */
void choir__plot_axis(FILE *g, char axis, choir__plot_range r)
{
    fprintf(g, "%sset logscale %c\nset %crange [%.12g:%.12g]\nset format %c '%%g'\n",
        r.log ? "" : "un", axis, axis, r.low, r.high, axis);
    if (!r.log)
        fprintf(g, "set %ctics autofreq\n", axis);
    else if (r.high < 100 * r.low)
        print_marks(g, axis, r);
    else
        fprintf(g, "set %ctics %g\n", axis,
            choir__pow(10, ceil(choir__log10(r.high / r.low) / 4.5)));
}

void choir__plot_panel(FILE *g, choir__panel panel, const char *title, double lines)
{
    choir__gnuplot_panel(g, panel, "");
    fprintf(g, "set label '%s' at graph 0, graph 1 left offset 0,%g font ',%d'\n", title, lines,
        CHOIR__GNUPLOT_FONT + 1);
}

/* --- texts --- */

void choir__plot_name_y(
    const choir__plotted *p, FILE *g, choir__panel panel, const char *name, int most)
{
    enum { LEFT = 86 }; /* pixels from the axis */
    int room = choir__gnuplot_room(panel.height * p->height, CHOIR__GNUPLOT_FONT - 1, most);
    choir__gnuplot_name_y(g, panel.x - (double)LEFT / p->width, name, room);
}

void choir__plot_ring(FILE *g, const char *data, int column)
{
    fprintf(g,
        ", \\\n  $%s using 1:($%d == 1 ? $2 : NaN) with points pt 6 ps 2.2 lw 2.5 lc rgb "
        "'#D55E00' title 'best'\n",
        data, column);
}

char *choir__plot_title(const choir__plotted *p, const char *title, int shown)
{
    bool by_share = p->has_shares && !p->ordered;
    if (shown >= p->param_count)
        return choir__strdup(title);
    return choir__format(by_share ? "%s; the %d most important of %d parameters"
                                  : "%s; the first %d of %d parameters",
        title, shown, p->param_count);
}

/* --- parameters --- */

/* Keeps numbers such as 100000 apart, since an axis has room for fewer of them than gnuplot
 * writes. */
static void spread_numbers(FILE *g, const choir__dist *d, choir__plot_range r, int letters)
{
    static const double steps[] = {1, 2, 2.5, 5, 10};
    int longest = (int)choir__max(
        choir__max(snprintf(NULL, 0, "%g", d->low), snprintf(NULL, 0, "%g", d->high)),
        d->kind == CHOIR__INTEGER ? 1 : 3);
    double least = (r.high - r.low) * (longest + 1) / letters;
    double power = choir__pow(10, floor(choir__log10(least))), step = 0;
    for (size_t i = 0; i < CHOIR_COUNT(steps) && step < least; i++)
        step = steps[i] * power;
    if (letters < 8 * (longest + 1) && isfinite(step))
        fprintf(g, "set xtics %.12g\n", step);
}

void choir__plot_param_axis(FILE *g, char axis, const choir__hyper *param, int letters)
{
    const choir__dist *d = &param->dist;
    choir__plot_range r = {d->low, d->high, d->kind == CHOIR__LOG || d->log};
    if (d->kind == CHOIR__NORMAL)
        r.low = d->low - 3 * d->high, r.high = d->low + 3 * d->high;
    if (d->kind == CHOIR__CHOICE)
        r = (choir__plot_range){-0.5, d->choice_count - 0.5, false};
    else
        widen(&r);
    choir__plot_axis(g, axis, r);
    if (axis == 'x' && d->kind != CHOIR__CHOICE && !r.log)
        spread_numbers(g, d, r, letters);
    if (d->kind != CHOIR__CHOICE || d->choice_count > 24)
        return;
    fprintf(g, "set %ctics (", axis);
    for (int i = 0; i < d->choice_count; i++) {
        fprintf(g, i ? "," : "");
        choir__gnuplot_text(
            g, d->choices[i].text, (int)choir__max(letters / d->choice_count - 1, 3));
        fprintf(g, " %d", i);
    }
    fprintf(g, ")\n");
}

double choir__plot_param(const choir_trial *trial, const choir__hyper *param)
{
    const char *text = choir_trial_text(trial, param->name);
    for (int i = 0; text && i < param->dist.choice_count; i++)
        if (!strcmp(param->dist.choices[i].text, text))
            return i;
    return choir_trial_real(trial, param->name);
}

/* --- the trials --- */

static void read_trials(choir__plotted *p)
{
    p->count = choir_study_count(p->study);
    p->trial = choir__calloc((size_t)p->count + 1, sizeof *p->trial);
    double *value = choir__alloc((size_t)(p->count + 1) * sizeof(double));
    const choir_trial *best = p->objective ? NULL : choir_study_best(p->study);
    for (int64_t i = 0; i < p->count; i++) {
        const choir_trial *t = choir_study_trial(p->study, i);
        choir_trial_state state = choir_trial_result(t);
        p->trial[i] = (choir__plotted_trial){.trial = t,
            .state = state,
            .value = choir_trial_value(t, p->objective),
            .place = 1,
            .best = t == best};
        if (!isfinite(p->trial[i].value) || state == CHOIR_TRIAL_FAIL)
            p->trial[i].value = (double)NAN;
        value[i] = p->trial[i].value;
        p->has_values = p->has_values || !isnan(value[i]);
        p->has_reports = p->has_reports || choir_trial_reports(t, NULL, NULL, 0) > 1;
    }
    p->range = choir__plot_range_of(value, p->count, p->most);
    int64_t n = p->count;
    double *sorted = sorted_of(value, &n);
    for (int64_t i = 0; i < p->count && n > 1; i++) {
        const double *at = isnan(value[i]) ? NULL
                                           : bsearch(&value[i], sorted, (size_t)n,
                                                 sizeof(double), choir__by_number);
        double place = at ? (double)(at - sorted) / (double)(n - 1) : 1;
        p->trial[i].place = at && p->most ? 1 - place : place;
    }
    free(sorted);
    free(value);
}

static choir_status read_params(choir__plotted *p, const char *names)
{
    char *copy = choir__strdup(names), *rest = copy, *name;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (name = strsep(&rest, ","))) {
        int i = choir__space_find(p->space, name);
        if (i < 0)
            status = choir__error(
                CHOIR_ERR_ARGUMENT, "--params: the study has no parameter '%s'", name);
        else if (p->param_count < p->space->count)
            p->param[p->param_count++] = i;
    }
    free(copy);
    return status;
}

/* Returns whether two trials have different values, or one of them has none. */
static bool varies(const choir__plotted *p, int param)
{
    double first = (double)NAN;
    for (int64_t i = 0; i < p->count; i++) {
        double x = choir__plot_param(p->trial[i].trial, &p->space->param[param]);
        if (i && x != first && !(isnan(x) && isnan(first)))
            return true;
        first = x;
    }
    return false;
}

static void order_params(choir__plotted *p)
{
    for (int i = 0; i < p->space->count; i++) {
        if (!varies(p, i))
            continue;
        int at = p->param_count++;
        while (at > 0 && p->share[p->param[at - 1]] < p->share[i])
            p->param[at] = p->param[at - 1], at--;
        p->param[at] = i;
    }
}

choir_status choir__plotted_choose(choir__plotted *p, const char *metric)
{
    int i = 0, count = choir_study_objectives(p->study);
    while (metric && i < count && strcmp(p->metrics[i], metric) != 0)
        i++;
    if (i == count)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--metric: %s has no metric '%s'", p->name, metric);
    p->objective = i;
    p->metric = p->metrics[i];
    p->most = choir_study_maximizes(p->study, i);
    return CHOIR_OK;
}

choir_status choir__plotted_read(choir__plotted *p, const char *params)
{
    read_trials(p);
    p->param = choir__calloc((size_t)p->space->count + 1, sizeof(int));
    if (!p->count)
        return choir__error(CHOIR_ERR_STATE, "%s: expected a study with trials", p->name);
    p->has_shares =
        choir_study_importance_by(p->study, p->evaluator ? p->evaluator : "ped-anova",
            p->objective, p->share) == CHOIR_OK;
    p->ordered = params != NULL;
    if (params)
        return read_params(p, params);
    order_params(p);
    return CHOIR_OK;
}

void choir__plotted_free(choir__plotted *p)
{
    free(p->trial);
    free(p->param);
}

bool choir__plot_has_state(const choir__plotted *p, choir_trial_state state)
{
    for (int64_t i = 0; i < p->count; i++)
        if (p->trial[i].state == state)
            return true;
    return false;
}
