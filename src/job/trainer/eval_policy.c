/* Judges an evaluation: which checkpoint is the best by --best, whether --patience is over, and
 * the rate of --schedule plateau. A score's measure is turned so that less is better. All of it
 * is saved with checkpoints; by another measure nothing has been the best yet. */
#include "job/trainer/eval_policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/named.h"
#include "base/options.h"
#include "job/trainer/metric.h"
#include "record/events.h"

static const char *const metrics[] = {CHOIR__KEY(eval, loss), CHOIR__KEY(eval, accuracy)};

typedef enum metric_kind { LOSS, ACCURACY, OWN } metric_kind;

typedef struct metric {
    metric_kind of;
    bool max;
    char name[CHOIR__METRIC_NAME];
} metric;

/* Reads --best "METRIC[:min|max]". More is better, but of losses. */
static choir_status read_metric(const char *text, metric *m)
{
    text = text ? text : metrics[LOSS];
    size_t length = strcspn(text, ":");
    const char *way = text[length] ? text + length + 1 : NULL;
    *m = (metric){.of = OWN};
    snprintf(m->name, sizeof m->name, "%.*s", (int)length, text);
    for (int i = 0; i < (int)CHOIR_COUNT(metrics); i++)
        if (!strcmp(m->name, metrics[i]))
            m->of = (metric_kind)i;
    m->max = way ? !strcmp(way, "max") : m->of != LOSS;
    if (way && strcmp(way, "min") && strcmp(way, "max"))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--best %s: expected 'min' or 'max' behind the colon, got '%s'", text, way);
    return CHOIR_OK;
}

/* Checks that validations have the metric. */
static choir_status check_metric(const choir__job *j, const metric *m)
{
    char own[CHOIR__METRIC_NAME];
    choir__metric_name(&j->training, own);
    const char *const names[] = {metrics[LOSS], metrics[ACCURACY], own};
    const choir__name_table table = {names, *own ? 3 : 2, sizeof *names, false};
    if (m->of != OWN || !strcmp(m->name, own))
        return CHOIR_OK;
    if (*own || !j->saves.resume)
        return choir__unknown_name(&table, "metric of --best", m->name);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--best %s: give --metric %s=COMMAND again: commands in a run's record are never started",
        m->name, m->name);
}

char *choir__eval_policy_measure(const char *best)
{
    metric m;
    (void)!read_metric(best, &m); /* a record's, or checked */
    return choir__format("%s:%s", m.name, m.max ? "max" : "min");
}

static bool has_plateau(const choir__job *j)
{
    choir_plateau p;
    return choir__job_plateau(j, &p);
}

choir_status choir__eval_policy_check(choir__job *j)
{
    metric m;
    if (read_metric(j->training.best, &m) != CHOIR_OK || check_metric(j, &m) != CHOIR_OK)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s", choir_error_message());
    if (has_plateau(j) && !j->training.eval_every && !j->training.eval_epochs)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--schedule plateau without --eval-every: the rate falls when the validation loss "
            "stops to fall");
    return CHOIR_OK;
}

choir_status choir__eval_policy_check_task(const choir__job *j)
{
    metric m;
    choir_status status = read_metric(j->training.best, &m);
    return status == CHOIR_OK && m.of == ACCURACY && j->model.info.task == CHOIR_REGRESSION
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "--best %s: this model's outputs have no accuracy: choose loss",
                     j->training.best)
               : status;
}

choir__eval_policy choir__eval_policy_new(const choir__job *j)
{
    choir__eval_policy judge = {
        .best = (double)NAN, .regular = (double)NAN, .base_lr = (double)NAN};
    if (choir__job_plateau(j, &judge.plateau))
        judge.base_lr = j->optim.lr;
    return judge;
}

static bool is_loss(const choir__job_training *t)
{
    metric m;
    (void)!read_metric(t->best, &m); /* checked */
    return m.of == LOSS && !m.max;
}

void choir__eval_policy_to_state(
    const choir__eval_policy *judge, const choir__job_training *t, choir_train_state *s)
{
    s->best = judge->best;
    s->best_loss = is_loss(t) ? judge->best : (double)NAN;
    s->best_regular = judge->regular;
    s->stale = judge->stale;
    s->base_lr = judge->base_lr;
    s->plateau_best = judge->plateau.started ? judge->plateau.best : (double)NAN;
    s->plateau_bad = judge->plateau.bad;
    s->plateau_cooling = judge->plateau.cooling;
}

/* Returns whether the command line gives another rate than the job had that is resumed. */
static bool has_other_rate(const choir__job *j)
{
    double was;
    const char *text = choir__job_recorded(&j->saves, "lr");
    return text && choir__parse_float(text, 0, (double)INFINITY, &was) && was != j->optim.lr;
}

/* Returns whether the measure has changed: by another measure no checkpoint is the best yet. */
static bool has_other_measure(const choir__job *j)
{
    const char *was = choir__job_recorded(&j->saves, "best");
    char *before = choir__eval_policy_measure(was),
         *now = choir__eval_policy_measure(j->training.best);
    bool other = strcmp(before, now) != 0;
    free(before);
    free(now);
    return other;
}

void choir__eval_policy_from_state(
    choir__eval_policy *judge, const choir__job *j, const choir_train_state *s, bool resumed)
{
    *judge = choir__eval_policy_new(j);
    if (!resumed || !has_other_measure(j)) {
        judge->best = isnan(s->best) && is_loss(&j->training) ? s->best_loss : s->best;
        judge->regular = s->best_regular;
        judge->stale = s->stale;
    }
    if (isnan(judge->base_lr) || isnan(s->base_lr))
        return;
    if (!resumed || !has_other_rate(j))
        judge->base_lr = s->base_lr;
    judge->plateau.started = !isnan(s->plateau_best);
    judge->plateau.best = s->plateau_best;
    judge->plateau.bad = s->plateau_bad;
    judge->plateau.cooling = s->plateau_cooling;
}

bool choir__eval_policy_decides(const choir__job *j)
{
    return j->training.patience || has_plateau(j);
}

static double measure_of(const choir__job_training *t, const choir_score *score, double own)
{
    metric m;
    (void)!read_metric(t->best, &m); /* checked */
    double value = m.of == OWN ? own : m.of == ACCURACY ? score->accuracy : score->loss;
    return m.max ? -value : value;
}

/* A repetition is no better than before; any number is better than none. */
static bool is_better(double measure, double best)
{
    return !isnan(measure) && !(measure >= best);
}

bool choir__eval_policy_score(choir__eval_policy *judge, const choir__job_training *t,
    const choir_score *score, double own, bool regular)
{
    if (!score->targets) /* none that counts: nothing was measured */
        return false;
    double measure = measure_of(t, score, own);
    bool best = is_better(measure, judge->best);
    if (best)
        judge->best = measure;
    if (!regular)
        return best;
    judge->stale = is_better(measure, judge->regular) ? 0 : judge->stale + 1;
    if (!judge->stale)
        judge->regular = measure;
    if (!isnan(judge->base_lr))
        judge->base_lr =
            (double)choir_plateau_next(&judge->plateau, (float)judge->base_lr, score->loss);
    return best;
}

bool choir__eval_policy_patience_is_over(
    const choir__eval_policy *judge, const choir__job_training *t)
{
    return t->patience && judge->stale >= t->patience;
}

void choir__eval_policy_set_rate(const choir__eval_policy *judge, choir_optim *optim)
{
    if (!isnan(judge->base_lr))
        choir_optim_set_lr(optim, (float)judge->base_lr);
}
