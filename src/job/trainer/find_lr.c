/* See find_lr.h. Rates rise by a factor per loss from 1e-7 to 10. The test ends by a loss that
 * is smoothed over the steps before it, with the start's bias removed, as in fastai and
 * Lightning. The curve that is drawn and searched is smoothed over the steps on both sides, so
 * that it lags behind none: batches differ by more than neighbouring rates do. */
#include "job/trainer/find_lr.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/math/functions.h"
#include "line/gnuplot.h"
#include "line/say.h"
#include "record/events.h"

static const double lowest = 1e-7, highest = 10, keeps = 0.9, too_much = 4;

enum { STEPS = 200, SKIPPED = 10 /* at the start, whose smoothed loss ends nothing */ };

choir_status choir__rate_test_check(choir__job *j)
{
    if (!j->training.find_lr)
        return CHOIR_OK;
    const char *dot = strrchr(j->training.find_lr, '.');
    if (!dot || (strcmp(dot, ".png") && strcmp(dot, ".svg")))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--find-lr: expected a file .png or .svg, got '%s'", j->training.find_lr);
    return choir__gnuplot_check("--find-lr", j->training.find_lr);
}

void choir__rate_test_begin(choir__rate_test *t, const choir__job *j)
{
    *t = (choir__rate_test){.best = (double)INFINITY};
    t->steps = choir__job_was_given(j, CHOIR__JOB_OPTION(training.steps)) || j->training.epochs
                   ? j->training.steps
                   : STEPS;
    t->patience = choir__job_epoch_steps(j);
    t->rates = choir__calloc((size_t)t->steps, sizeof *t->rates);
    t->losses = choir__calloc((size_t)t->steps, sizeof *t->losses);
}

double choir__rate_test_next(const choir__rate_test *t)
{
    double part = t->steps > 1 ? (double)t->count / (double)(t->steps - 1) : 0;
    return lowest * choir__pow(highest / lowest, part);
}

bool choir__rate_test_note(choir__rate_test *t, bool none, double loss)
{
    t->without = none ? t->without + 1 : 0;
    if (none)
        return t->without < t->patience;
    if (!isfinite(loss))
        return false;
    t->rates[t->count] = choir__rate_test_next(t);
    t->smooth = keeps * t->smooth + (1 - keeps) * loss;
    double now = t->smooth / (1 - choir__pow(keeps, (double)t->count + 1));
    t->losses[t->count++] = loss;
    t->best = now < t->best ? now : t->best;
    return t->count < t->steps && !(t->count > SKIPPED && now > too_much * fabs(t->best));
}

/* --- the curve --- */

/* The losses of the lowest rates, which change nothing yet: [0, to), their mean and their
 * deviation. */
typedef struct still {
    int64_t to;
    double mean, deviation;
} still;

static still still_part(const double *losses, int64_t count)
{
    still s = {.to = choir__max(count / 4, 2)};
    double n = (double)s.to, squares = 0;
    for (int64_t i = 0; i < s.to; i++)
        s.mean += losses[i] / n;
    for (int64_t i = 0; i < s.to; i++)
        squares += (losses[i] - s.mean) * (losses[i] - s.mean) / n;
    s.deviation = sqrt(squares);
    return s;
}

/* Stores for each loss the mean over it and its neighbours up to `reach` steps away. Near the
 * ends the mean is over fewer, so that both sides have equally many. */
static void mean_around(const double *losses, double *means, int64_t count, int64_t reach)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t side = choir__min(reach, choir__min(i, count - 1 - i));
        means[i] = 0;
        for (int64_t k = i - side; k <= i + side; k++)
            means[i] += losses[k] / (double)(2 * side + 1);
    }
}

/* Returns the smooth curve, on the heap: two means in a row, over half a decade of rates on
 * each side. Losses far above the first ones, where training breaks down, count as their edge,
 * so that they do not hide the fall before them. */
static double *smooth_curve(const choir__rate_test *t)
{
    size_t bytes = (size_t)t->count * sizeof(double);
    double *below = choir__alloc(bytes), *means = choir__alloc(bytes);
    still s = still_part(t->losses, t->count);
    int64_t reach = choir__max(t->steps / 32, 1);
    for (int64_t i = 0; i < t->count; i++)
        below[i] = fmin(t->losses[i], s.mean + 3 * s.deviation);
    mean_around(below, means, t->count, reach);
    mean_around(means, below, t->count, reach);
    free(means);
    return below;
}

/* Returns where the smooth curve has half of its fall behind it, on its way to its least value;
 * -1: nowhere does it fall by more than the noise of the lowest rates. The steepest place is
 * near, and depends more on chance: it follows from a few steps, this one from all. */
static int64_t halfway(const double *smooth, int64_t count)
{
    still s = still_part(smooth, count);
    int64_t at = s.to;
    for (int64_t i = s.to; i < count; i++)
        at = smooth[i] < smooth[at] ? i : at;
    if (at >= count || smooth[at] > s.mean - 3 * s.deviation)
        return -1;
    double half = (s.mean + smooth[at]) / 2;
    while (at > 0 && smooth[at] < half)
        at--;
    return at;
}

/* --- the report --- */

typedef struct picture {
    const choir__rate_test *test;
    const choir__job *job;
    const double *smooth;
    int64_t at; /* the advice, or -1 */
} picture;

/* Stores the range that shows all losses, each step's among them. Where training breaks down
 * they may be a million times the first ones, and leave the frame at its top. */
static void range_of(const picture *p, double *low, double *high)
{
    const choir__rate_test *t = p->test;
    const still s = still_part(t->losses, t->count);
    double most = t->losses[0], least = t->losses[0];
    for (int64_t i = 0; i < t->count; i++) {
        most = fmax(most, t->losses[i]);
        least = fmin(least, t->losses[i]);
    }
    most = fmin(most, s.mean + fmax(4 * s.deviation, 0.4 * (s.mean - least)));
    double room = fmax(0.05 * (most - least), 0.02 * fabs(least) + 1e-9);
    *low = least - room;
    *high = most + room;
}

/* Marks the advice on the curve. Its number stands above the frame, where no curve can be, at
 * the end of a line. */
static void mark_rate(FILE *g, double rate, double loss)
{
    static const char colour[] = "#D55E00";
    fprintf(g,
        "set arrow from %.9g, graph 0 to %.9g, graph 1 nohead back lw 1 lc rgb '%s'\n"
        "set label '' at %.9g,%.9g point pt 7 ps 1.6 lc rgb '%s' front\n"
        "set label '%.2g' at %.9g, graph 1 center offset 0,0.6 textcolor rgb '%s'\n",
        rate, rate, colour, rate, loss, colour, rate, rate, colour);
}

static void write_script(const void *arg, FILE *g)
{
    const picture *p = arg;
    const choir__rate_test *t = p->test;
    double low, high;
    range_of(p, &low, &high);
    choir__gnuplot_begin(g, p->job->training.find_lr, 960, 600, CHOIR__GNUPLOT_FONT, 1.3);
    fprintf(g, "$losses << EOD\n");
    for (int64_t i = 0; i < t->count; i++)
        fprintf(
            g, "%.9g %.9g %.9g\n", t->rates[i], choir__axis_place(t->losses[i]), p->smooth[i]);
    fprintf(g, "EOD\n");
    choir__gnuplot_panel(
        g, (choir__panel){0.12, 0.14, 0.83, 0.66}, "Loss while the learning rate rises");
    choir__gnuplot_name_y(g, 0.02, CHOIR__KEY(step, loss), 40);
    fprintf(g,
        "set logscale x\nset format x '%%g'\nset xlabel 'learning rate'\n"
        "set xrange [%g:%g]\nset yrange [%.9g:%.9g]\nset title offset 0,2.4\n"
        "set key at graph 0.5, screen 0.91 center top horizontal samplen 1.5\n",
        t->rates[0], t->rates[t->count - 1], low, high);
    if (p->at >= 0)
        mark_rate(g, t->rates[p->at], p->smooth[p->at]);
    fprintf(g, "plot $losses using 1:2 with lines lw 1 lc rgb '#B3D5E8' title 'each step', \\\n"
               "  $losses using 1:3 with lines lw 2.5 lc rgb '#0072B2' title 'smoothed'\n");
}

static void tell(const picture *p)
{
    const choir__rate_test *t = p->test;
    const char *file = p->job->training.find_lr;
    for (int64_t i = 0; i < t->count && p->job->records.json; i++)
        choir__event_print(CHOIR__TOLD(rate, .lr = t->rates[i], .loss = p->smooth[i]));
    if (p->job->records.json)
        choir__event_print(
            CHOIR__TOLD(found, .lr = p->at >= 0 ? t->rates[p->at] : (double)NAN));
    else if (p->at >= 0)
        printf("the loss is halfway down at --lr %.2g; see %s\n", t->rates[p->at], file);
    else
        printf("the loss falls at no rate; see %s\n", file);
}

choir_status choir__rate_test_report(const choir__rate_test *t, const choir__job *j)
{
    if (t->without)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--find-lr: none of the %lld steps of an epoch has a target, so there is no loss; a "
            "larger --batch-size or context may give each step one",
            (long long)t->without);
    if (t->count < 3)
        return choir__error(CHOIR_ERR_NONFINITE,
            "--find-lr: the loss is not finite after %lld steps at rates near %g",
            (long long)t->count, lowest);
    double *smooth = smooth_curve(t);
    picture p = {t, j, smooth, halfway(smooth, t->count)};
    tell(&p);
    choir_status status = choir__gnuplot(write_script, &p);
    free(smooth);
    return status;
}

void choir__rate_test_free(choir__rate_test *t)
{
    free(t->rates);
    free(t->losses);
}
