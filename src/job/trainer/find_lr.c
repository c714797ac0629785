/* See find_lr.h. Rates rise by a factor per loss from 1e-7 to 10. A loss is smoothed over the
 * steps before it, with the start's bias removed, as in fastai and Lightning. */
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

enum { STEPS = 200, SKIPPED = 10 /* at the start, of the search for the steepest fall */ };

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
    t->losses[t->count++] = now;
    t->best = now < t->best ? now : t->best;
    return t->count < t->steps && !(t->count > SKIPPED && now > too_much * fabs(t->best));
}

/* The losses of the lowest rates, which change nothing yet: [from, to), their mean and their
 * deviation. */
typedef struct still {
    int64_t from, to;
    double mean, deviation, most;
} still;

static still still_part(const choir__rate_test *t)
{
    still s = {.to = choir__max(t->count / 4, 2)};
    s.from = choir__min(SKIPPED, s.to / 2);
    s.most = t->losses[s.from];
    double n = (double)(s.to - s.from), squares = 0;
    for (int64_t i = s.from; i < s.to; i++) {
        s.mean += t->losses[i] / n;
        s.most = fmax(s.most, t->losses[i]);
    }
    for (int64_t i = s.from; i < s.to; i++)
        squares += (t->losses[i] - s.mean) * (t->losses[i] - s.mean) / n;
    s.deviation = sqrt(squares);
    return s;
}

/* Returns where the smoothed loss falls fastest over the logarithm of the rate, on its way to
 * its least value; -1: nowhere does it fall by more than the noise of the lowest rates. */
static int64_t steepest(const choir__rate_test *t)
{
    still s = still_part(t);
    int64_t least = s.to, at = -1, reach = choir__max(t->count / 40, 1);
    for (int64_t i = s.to; i < t->count; i++)
        least = t->losses[i] < t->losses[least] ? i : least;
    if (least >= t->count || t->losses[least] > s.mean - 3 * s.deviation)
        return -1;
    double most = 0;
    for (int64_t i = choir__max(s.from, reach); i <= least && i + reach < t->count; i++) {
        double slope = t->losses[i + reach] - t->losses[i - reach];
        if (slope < most) {
            most = slope;
            at = i;
        }
    }
    return at;
}

typedef struct picture {
    const choir__rate_test *test;
    const choir__job *job;
    int64_t at;
} picture;

static void write_script(const void *arg, FILE *g)
{
    const picture *p = arg;
    const choir__rate_test *t = p->test;
    double low = t->best, high = t->losses[0], start = still_part(t).most;
    for (int64_t i = 0; i < t->count; i++)
        high = t->losses[i] > high ? t->losses[i] : high;
    high = fmin(high, start + (start - low)); /* the end goes through the roof */
    double room = fmax(0.08 * (high - low), 0.02 * fabs(low) + 1e-9);
    fprintf(g, "set terminal %s size 960,600 font 'sans,%d'\nset output ",
        strstr(p->job->training.find_lr, ".svg") ? "svg" : "pngcairo", CHOIR__GNUPLOT_FONT);
    choir__gnuplot_text(g, p->job->training.find_lr);
    fprintf(g, "\n$losses << EOD\n");
    for (int64_t i = 0; i < t->count; i++)
        fprintf(g, "%.9g %.9g\n", t->rates[i], t->losses[i]);
    fprintf(g, "EOD\n");
    choir__gnuplot_panel(
        g, (choir__panel){0.1, 0.14, 0.85, 0.74}, "Loss while the learning rate rises");
    fprintf(g,
        "set logscale x\nset format x '%%.0e'\nset xlabel 'learning rate'\n"
        "set ylabel 'loss, smoothed'\nset xrange [%g:%g]\nset yrange [%.9g:%.9g]\n",
        t->rates[0], t->rates[t->count - 1], low - room, high + room);
    if (p->at >= 0)
        fprintf(g,
            "set label 1 '%.2g' at %.9g,%.9g offset 1,1 point pt 7 ps 1.6 lc rgb '#D55E00' "
            "textcolor rgb '#D55E00'\n",
            t->rates[p->at], t->rates[p->at], t->losses[p->at]);
    fprintf(g, "plot $losses using 1:2 with lines lw 2.5 lc rgb '#0072B2'\n");
}

static void print(const choir__event_kind *kind, const void *told)
{
    choir__text_buffer line = {0};
    choir__event_write(&line, CHOIR__TO_OUT, kind, told);
    choir__text_print(&line, stdout);
    choir__text_buffer_free(&line);
}

choir_status choir__rate_test_report(const choir__rate_test *t, const choir__job *j)
{
    picture p = {t, j, steepest(t)};
    if (t->without)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--find-lr: none of the %lld steps of an epoch has a target, so there is no loss; a "
            "larger --batch-size or context may give each step one",
            (long long)t->without);
    if (t->count < 3)
        return choir__error(CHOIR_ERR_NONFINITE,
            "--find-lr: the loss is not finite after %lld steps at rates near %g",
            (long long)t->count, lowest);
    for (int64_t i = 0; i < t->count && j->records.json; i++)
        print(CHOIR__TOLD(rate, .lr = t->rates[i], .loss = t->losses[i]));
    if (j->records.json)
        print(CHOIR__TOLD(found, .lr = p.at >= 0 ? t->rates[p.at] : (double)NAN));
    else if (p.at >= 0)
        printf("the loss falls fastest at --lr %.2g; see %s\n", t->rates[p.at],
            j->training.find_lr);
    else
        printf("the loss falls at no rate; see %s\n", j->training.find_lr);
    return choir__gnuplot(write_script, &p);
}

void choir__rate_test_free(choir__rate_test *t)
{
    free(t->rates);
    free(t->losses);
}
