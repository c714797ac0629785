/* Trials of other workers, and of earlier ones, as a stored study takes them over. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/study_sync_inside.h"
#include "tune/storage/distribution.h"
#include "tune/storage/worker.h"
#include "tune/trial.h"

static choir_status read_params(choir_trial *t, const choir__stored_trial *r)
{
    const choir_space *space = t->study->space;
    choir_status status = CHOIR_OK;
    for (int i = 0; i < space->count; i++)
        t->params[i] = (double)NAN;
    for (int k = 0; k < r->param_count && status == CHOIR_OK; k++) {
        const choir__stored_param *p = &r->params[k];
        int i = choir__space_find(space, p->name);
        if (i < 0)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "trial %lld of the stored study has a parameter %s, which the space lacks",
                (long long)r->number, p->name);
        choir__dist *dist = &space->param[i].dist;
        if (!t->study->kept->dists && dist->kind != CHOIR__CHOICE)
            t->params[i] = p->value; /* looked at only: Optuna's ranges may change */
        else
            status = choir__dist_value_of_json(dist, p->name, p->dist, p->value, &t->params[i]);
        if (status == CHOIR_OK && t->study->kept->dists && choir__dist_learn(dist, p->dist)) {
            /* Optuna refuses trials whose distributions differ. */
            free(t->study->kept->dists[i]);
            t->study->kept->dists[i] = choir__dist_json(dist);
        }
    }
    return status;
}

/* Fills in the parameters of a trial that Optuna's enqueue_trial made: the given ones, and if
 * the trial is to run here, drawn ones beside them. Optuna checks the given ones only when it
 * runs the trial; where the study is looked at, a wrong one is left out. */
static choir_status read_fixed(choir_trial *t, const choir__stored_trial *r)
{
    const choir_space *space = t->study->space;
    const char *text = choir__attribute_get(&r->attributes, true, CHOIR__FIXED_KEY);
    bool others, looks = !t->study->kept->dists;
    double *given = choir__alloc((size_t)space->count * sizeof(double));
    choir_status status = choir__point_read(space, text ? text : "{}", given, &others);
    for (int i = 0; i < space->count; i++)
        if (isnan(given[i]))
            given[i] = t->params[i];
    if (looks)
        memcpy(t->params, given, (size_t)space->count * sizeof(double));
    if (looks || status != CHOIR_OK) {
        free(given);
        return looks ? CHOIR_OK
                     : choir__error(status, "trial %lld, which waits: %s", (long long)r->number,
                           choir__message());
    }
    choir__draws draws = {.key = choir__mix(t->study->key, (uint64_t)t->number)};
    choir__space_draw(space, &draws, t->params);
    choir__space_take_given(space, given, &draws, t->params);
    free(given);
    return status;
}

void choir__study_sync_take_attributes(choir_trial *t, const choir__stored_trial *r)
{
    for (int i = 0; i < r->attributes.count; i++) {
        const choir__stored_attribute *a = &r->attributes.at[i];
        choir__attribute_set(&t->attributes, a->system, a->key, a->json);
    }
}

bool choir__study_sync_take_values(choir_trial *t, const choir__stored_trial *r)
{
    int objectives = t->study->objectives;
    if (r->value_count < objectives)
        return false;
    free(t->values);
    t->values = choir__alloc((size_t)objectives * sizeof(double));
    memcpy(t->values, r->values, (size_t)objectives * sizeof(double));
    return true;
}

bool choir__study_sync_is_abandoned(
    const choir_study *s, const choir__stored_trial *r, bool *named)
{
    *named = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    return r->state == CHOIR_TRIAL_RUNNING &&
           choir__worker_is_dead(r, choir__study_store_worker(s->kept->store));
}

/* A study that is only looked at has no scheduler to tell with which checkpoint a trial began.
 */
static void take_parent(choir_trial *t)
{
    const char *text = choir__attribute_get(&t->attributes, false, CHOIR__PARENT_KEY);
    json_t *about = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *trial = json_object_get(about, "trial"),
                 *step = json_object_get(about, "step");
    if (json_is_integer(trial) && json_is_integer(step)) {
        t->parent = json_integer_value(trial);
        t->began = json_integer_value(step);
    }
    json_decref(about);
}

/* Takes over a record's state. A running trial has failed if its program, which is not Choir's,
 * sends no sign of life; but a study that is opened only to be read counts a program that never
 * sent one (Optuna's without heartbeats) as running. A trial between two segments is one that
 * was stopped. */
static void take_state(choir_study *s, choir_trial *t, const choir__stored_trial *r)
{
    bool named, dead = choir__study_sync_is_abandoned(s, r, &named);
    bool unknown = !s->kept->dists && isnan(r->silent_s); /* only read, and no heartbeats */
    bool waits = r->state == CHOIR__STORED_WAITING, runs = r->state == CHOIR_TRIAL_RUNNING;
    const char *worker = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    t->again = waits || (dead && named);
    t->state = waits || runs ? CHOIR_TRIAL_RUNNING : (choir_trial_state)r->state;
    if (runs && choir__worker_paused(worker) >= 0)
        t->state = CHOIR_TRIAL_PRUNED;
    t->silent = dead && !named && !unknown;
    if (t->silent || r->state < 0 || r->state > CHOIR__STORED_WAITING)
        t->state = CHOIR_TRIAL_FAIL;
    if (t->state == CHOIR_TRIAL_COMPLETE && !choir__study_sync_take_values(t, r))
        t->state = CHOIR_TRIAL_FAIL;
    free(t->reports);
    t->report_count = r->report_count;
    t->reports = choir__alloc((size_t)(r->report_count + 1) * sizeof *t->reports);
    if (r->report_count)
        memcpy(t->reports, r->reports, (size_t)r->report_count * sizeof *t->reports);
    t->before = 0;
    while (t->before < t->report_count &&
           t->reports[t->before].step <= choir__study_sync_last_step(r))
        t->before++;
    choir__study_sync_take_attributes(t, r);
    if (!s->kept->dists)
        take_parent(t);
}

choir_status choir__study_sync_adopt(
    choir_study *s, choir_trial *t, const choir__stored_trial *r)
{
    choir_status status = read_params(t, r);
    if (status == CHOIR_OK && r->state == CHOIR__STORED_WAITING)
        status = read_fixed(t, r);
    t->foreign = t->adopted = true;
    if (status != CHOIR_OK)
        return status;
    const char *point = choir__attribute_get(&r->attributes, true, CHOIR__FIXED_KEY);
    t->given = choir__attribute_get(&r->attributes, true, CHOIR__GIVEN_KEY);
    choir__trial_give(t, point ? choir__strdup(point) : NULL);
    if (t->given || t->point)
        choir__study_forget_given(s, t);
    return CHOIR_OK;
}

/* Ends the segment of another worker's trial that has ended. */
static void note_end(choir_study *s, choir_trial *t)
{
    if (t->state != CHOIR_TRIAL_RUNNING && !s->segment[t->segment].ended)
        choir__study_end_segment(s, t);
}

void choir__study_sync_pass_over(choir_study *s, const choir_trial *t)
{
    choir__history h = choir__study_history(s);
    choir__draws draws = {.key = s->key};
    double params[CHOIR_SPACE_MAX];
    bool has_used = !t->given && t->parent < 0 && s->sampler->ops->has_more;
    if (has_used && s->sampler->ops->has_more(s->sampler, &h) &&
        s->sampler->ops->suggest(s->sampler, &h, &draws, params) != CHOIR_OK)
        (void)choir__message();
}

/* Takes over a record of a trial of one segment. */
static choir_status adopt_whole(choir_study *s, choir_trial *t, const choir__stored_trial *r)
{
    choir_status status = choir__study_sync_adopt(s, t, r);
    take_state(s, t, r);
    return status;
}

/* Takes over the record of a trial that this worker has not begun. */
static choir_status adopt_new(choir_study *s, const choir__stored_trial *r)
{
    choir_trial *t = choir__study_append(s);
    choir_status status = adopt_whole(s, t, r);
    if (status == CHOIR_OK)
        choir__study_sync_pass_over(s, t);
    return status;
}

choir_status choir__study_sync_adopt_all(choir_study *s, const choir__stored_trials *records)
{
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < records->count && status == CHOIR_OK; i++) {
        const choir__stored_trial *r = &records->at[i];
        choir_trial *t = r->number < s->count ? s->trial[r->number] : NULL;
        if (t && t->adopted && t->foreign && t->state == CHOIR_TRIAL_RUNNING)
            take_state(s, t, r);
        else if (t && t->foreign && !t->adopted)
            status = adopt_whole(s, t, r);
        else if (!t && r->number == s->count)
            status = adopt_new(s, r);
        if (status == CHOIR_OK && r->number < s->count)
            note_end(s, s->trial[r->number]);
    }
    return status;
}
