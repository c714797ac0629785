/* How a study gives trials: new ones with their parameters, and resumed ones. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/study.h"
#include "tune/trial.h"

enum { ATTEMPTS = 1000 }; /* at a suggestion that fulfils the conditions */

/* Puts given values in place of suggested ones, from the first parameter on, since later ones
 * may depend on them. */
void choir__space_take_given(
    const choir_space *space, const double *given, choir__draws *draws, double *params)
{
    for (int i = 0; i < space->count; i++) {
        if (!choir__space_active(space, i, params))
            params[i] = (double)NAN;
        else if (!isnan(given[i]))
            params[i] = given[i];
        else if (isnan(params[i]))
            params[i] = choir__dist_draw(&space->param[i].dist, draws);
    }
}

/* Writes the parameters of a new trial: its parent's, changed, or given or suggested ones. */
static choir_status suggest(choir_study *s, const choir__given *g, double *params)
{
    choir__history h = choir__study_history(s);
    choir__draws draws = {.key = choir__mix(s->key, (uint64_t)s->count)};
    size_t bytes = (size_t)s->space->count * sizeof(double);
    for (int i = 0; i < ATTEMPTS; i++) {
        choir_status status = CHOIR_OK;
        if (s->turn.trial >= 0) {
            memcpy(params, s->trial[s->turn.trial]->params, bytes);
            s->scheduler->ops->explore(s->scheduler, &h, &draws, params);
        } else if (g) {
            choir__space_draw(s->space, &draws, params);
            choir__space_take_given(s->space, g->params, &draws, params);
        } else {
            status = s->sampler->ops->suggest(s->sampler, &h, &draws, params);
        }
        if (status != CHOIR_OK)
            return status;
        if (choir__space_allows(s->space, params))
            return CHOIR_OK;
    }
    return choir__error(CHOIR_ERR_ARGUMENT,
        "none of %d suggestions for trial %lld%s fulfils the space's conditions, such as '%s'",
        ATTEMPTS, (long long)s->count, g ? ", some of whose parameters are given," : "",
        s->space->require_text[0]);
}

bool choir__study_ready(choir_study *s)
{
    return choir__study_look_ahead(s) != CHOIR__PROSPECT_WAIT;
}

choir_trial *choir__study_append(choir_study *s)
{
    CHOIR__GROW(s->trial, s->count);
    choir_trial *t =
        choir__calloc(1, sizeof *t + (size_t)s->space->count * sizeof t->params[0]);
    t->study = s;
    t->number = s->count;
    s->trial[s->count++] = t;
    if (!s->has_turn) /* another worker began the trial */
        s->turn = (choir__next_segment){
            .kind = CHOIR__TURN_NEW, .trial = -1, .budget = CHOIR__NO_BUDGET};
    t->parent = s->turn.trial;
    t->began = t->parent >= 0 ? s->turn.from : -1;
    choir__study_begin_segment(s, t);
    return t;
}

static choir_status begin_new(choir_study *s, choir_trial **trial)
{
    double *params = choir__alloc((size_t)s->space->count * sizeof(double));
    bool given = s->turn.trial < 0 && s->queue;
    char *point = given ? choir__point_json(s->space, s->queue->params) : NULL;
    choir_status status = suggest(s, given ? s->queue : NULL, params);
    if (given)
        choir__study_drop_given(s);
    if (status == CHOIR_OK) {
        choir_trial *t = *trial = choir__study_append(s);
        t->given = given;
        choir__trial_give(t, point);
        memcpy(t->params, params, (size_t)s->space->count * sizeof(double));
    }
    if (status != CHOIR_OK)
        free(point);
    free(params);
    return status;
}

choir_status choir__study_ask(choir_study *s, choir_trial **trial)
{
    switch (choir__study_look_ahead(s)) {
    case CHOIR__PROSPECT_WAIT:
        return choir__error(CHOIR_ERR_STATE,
            "the next trial follows from trial %lld, which has not ended (the window is %lld)",
            (long long)s->segment[s->ended].trial, (long long)s->window);
    case CHOIR__PROSPECT_END:
        return s->trials && s->count >= s->trials
                   ? choir__error(
                         CHOIR_ERR_END, "the study has its %lld trials", (long long)s->trials)
                   : choir__error(CHOIR_ERR_END, "the space has no more points");
    case CHOIR__PROSPECT_TURN: break;
    }
    if (s->turn.kind == CHOIR__TURN_NEW)
        return begin_new(s, trial);
    *trial = s->trial[s->turn.trial];
    choir__study_begin_segment(s, *trial);
    return CHOIR_OK;
}
