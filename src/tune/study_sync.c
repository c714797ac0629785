/* Stored studies: every trial is a claim on its number.
 *
 * By the rule of order each worker finds the same parameters for trial n, once it knows the
 * results that trial n follows from. The worker whose record of trial n comes first runs it;
 * the others adopt the record. A trial whose worker is dead is claimed again, with its number
 * and its parameters. So all that a worker needs to know is in the records, and nothing
 * coordinates them. */
#include "tune/study_sync_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/storage/distribution.h"
#include "tune/storage/worker.h"
#include "tune/trial.h"

/* Looks at other workers' trials are at least so far apart, and ten times as far as one takes.
 */
static const double REFRESH_S = 0.1;

/* --- opening --- */

choir_status choir__study_sync_open(choir_study *s, const choir_study_opts *opts)
{
    bool looks = !s->space;
    choir__study_store *store;
    choir_status status = choir__study_store_open(opts->storage, !looks, &store);
    if (status != CHOIR_OK)
        return status;
    choir__study_sync *kept = s->kept = choir__calloc(1, sizeof *kept);
    kept->store = store;
    choir__stored_study about = {.objectives = s->objectives};
    if (opts->name || !looks)
        about.name = choir__strdup(opts->name ? opts->name : "study");
    for (int i = 0; i < s->objectives; i++)
        about.most[i] = s->sign[i] < 0;
    status = choir__study_store_study(store, &about);
    if (status == CHOIR_OK && looks)
        status = choir__facts_take(s, &about, store);
    else if (status == CHOIR_OK)
        status = choir__facts_agree(s, &about, opts, store);
    choir__stored_study_free(&about);
    if (status != CHOIR_OK || looks)
        return status;
    kept->dist_count = s->space->count;
    kept->dists = choir__calloc((size_t)s->space->count, sizeof(char *));
    for (int i = 0; i < s->space->count; i++)
        kept->dists[i] = choir__dist_json(&s->space->param[i].dist);
    return CHOIR_OK;
}

void choir__study_sync_close(choir__study_sync *kept)
{
    if (!kept)
        return;
    choir__study_store_close(kept->store);
    for (int i = 0; i < kept->dist_count; i++)
        free(kept->dists[i]);
    free(kept->dists);
    free(kept);
}

/* --- adopting --- */

choir_status choir__study_sync_refresh(choir_study *s)
{
    choir__stored_trials records = {0};
    bool pauses = s->scheduler->ops->pauses;
    double from = choir__now();
    /* ended trials are no news; stopped ones may be resumed */
    choir_status status =
        choir__study_store_load(s->kept->store, pauses ? 0 : s->ended, &records);
    if (status == CHOIR_OK)
        status = pauses ? choir__study_sync_follow(s, &records)
                        : choir__study_sync_adopt_all(s, &records);
    choir__stored_trials_free(&records);
    s->kept->refreshed = choir__now();
    s->kept->reading_s = s->kept->refreshed - from;
    return status;
}

/* --- asking --- */

/* Returns the trial of segment n, which runs, or NULL. */
static choir_trial *running(const choir_study *s, int64_t n)
{
    const choir__trial_segment *g = &s->segment[n];
    return g->trial < 0 || g->ended ? NULL : s->trial[g->trial];
}

/* Returns the first trial whose worker is dead, or NULL. */
static choir_trial *next_again(const choir_study *s)
{
    for (int64_t n = s->ended; n < s->segment_count; n++)
        if (running(s, n) && running(s, n)->again)
            return running(s, n);
    return NULL;
}

/* Returns whether other workers' trials run. */
static bool has_others(const choir_study *s)
{
    for (int64_t n = s->ended; n < s->segment_count; n++)
        if (running(s, n) && running(s, n)->foreign)
            return true;
    return false;
}

static choir_status look_for_news(choir_study *s)
{
    double apart = fmax(REFRESH_S, 10 * s->kept->reading_s);
    if (!has_others(s) || choir__now() - s->kept->refreshed < apart)
        return CHOIR_OK;
    return choir__study_sync_refresh(s);
}

bool choir__study_sync_ready(choir_study *s)
{
    if (!s->kept->dists)
        return false;
    if (!next_again(s) && !choir__study_ready(s) && look_for_news(s) != CHOIR_OK)
        return true; /* ask tells the error */
    return next_again(s) || choir__study_ready(s);
}

static choir__change *claim_of(const choir__study_sync *kept, const choir_trial *t)
{
    const choir_space *space = t->study->space;
    const char *former = choir__attribute_get(&t->attributes, true, CHOIR__WORKER_KEY);
    choir__change *c =
        choir__change_new(former ? CHOIR__CHANGE_TAKE : CHOIR__CHANGE_BEGIN, t->number);
    c->worker = choir__strdup(choir__study_store_worker(kept->store));
    c->waits = t->again;
    c->given = t->given && t->point ? choir__strdup(t->point) : NULL;
    c->former = former ? choir__strdup(former) : NULL;
    const char *segments = choir__attribute_get(&t->attributes, true, CHOIR__SEGMENTS_KEY);
    c->segments = former && segments ? choir__strdup(segments) : NULL;
    c->params = choir__calloc((size_t)space->count, sizeof *c->params);
    for (int i = 0; i < space->count && !former; i++)
        if (!isnan(t->params[i]))
            c->params[c->param_count++] =
                (choir__stored_param){.name = choir__strdup(space->param[i].name),
                    .dist = choir__strdup(kept->dists[i]),
                    .value = t->params[i]};
    return c;
}

/* Stores with which checkpoint a trial of a population begins. */
static void note_parent(choir_study *s, choir_trial *t)
{
    if (t->parent < 0 || choir__attribute_get(&t->attributes, false, CHOIR__PARENT_KEY))
        return;
    char *json = choir__format(
        "{\"trial\": %lld, \"step\": %lld}", (long long)t->parent, (long long)t->began);
    choir__attribute_set(&t->attributes, false, CHOIR__PARENT_KEY, json);
    choir__study_sync_set_attribute(s->kept, t, CHOIR__PARENT_KEY, json);
    free(json);
}

/* Stores the reports from after the trial was stopped, which count for this segment now. */
static void note_won(choir_study *s, choir_trial *t, const char *worker)
{
    t->adopted = true; /* the parameters are the stored ones */
    t->closed = false;
    choir__attribute_set(&t->attributes, true, CHOIR__WORKER_KEY, worker);
    note_parent(s, t);
    for (int64_t i = t->before; i < t->report_count && s->scheduler->ops->pauses; i++)
        choir__study_sync_report(s->kept, t, t->reports[i].step, t->reports[i].value);
}

/* Claims a trial; *won: this worker has it. */
static choir_status claim(choir_study *s, choir_trial *t, bool *won)
{
    choir__study_store *store = s->kept->store;
    choir__change *c = claim_of(s->kept, t);
    bool is_new = c->kind == CHOIR__CHANGE_BEGIN && !c->waits;
    t->begun = t->again && choir__attribute_get(&t->attributes, true, CHOIR__WORKER_KEY);
    t->foreign = t->again = false;
    choir__study_store_send_awaited(store, c);
    pthread_mutex_unlock(&s->lock);
    choir_status status = choir__study_store_wait(store, c);
    pthread_mutex_lock(&s->lock);
    *won = status == CHOIR_OK && !c->lost;
    t->foreign = !*won;
    if (*won)
        note_won(s, t, c->worker);
    choir__change_free(c);
    if (!*won && is_new && t->given) /* the other worker may have another point */
        choir__study_give_back(s, t);
    return status;
}

/* Finds a trial to claim: a dead worker's, or a new one. There are no more only when all trials
 * of other workers have ended. */
static choir_status find_next(choir_study *s, choir_trial **t)
{
    for (bool looked = false;; looked = true) {
        (void)choir__study_look_ahead(s); /* learns what a trial is compared with */
        *t = next_again(s);
        if (*t)
            return CHOIR_OK;
        choir_status status = choir__study_ask(s, t);
        bool waits = status == CHOIR_ERR_STATE || status == CHOIR_ERR_END;
        if (!waits || !has_others(s))
            return status;
        if (looked)
            return choir__error(
                CHOIR_ERR_STATE, "the next trial depends on running trials of other processes");
        status = look_for_news(s);
        if (status != CHOIR_OK)
            return status;
    }
}

/* Returns the change that ends a trial. */
static choir__change *end_of(const choir_trial *t)
{
    choir__change *c = choir__change_new(CHOIR__CHANGE_END, t->number);
    c->state = t->state;
    if (t->state == CHOIR_TRIAL_COMPLETE) {
        c->value_count = t->study->objectives;
        memcpy(c->values, t->values, (size_t)c->value_count * sizeof(double));
    } else if (t->state == CHOIR_TRIAL_PRUNED && t->report_count) { /* as Optuna does */
        c->values[0] = t->reports[t->report_count - 1].value;
        c->value_count = !isnan(c->values[0]);
    }
    return c;
}

/* No trial is resumed: stopped trials have ended for Optuna, too. Returns the status
 * of choir__study_ask, END, or of the storage. */
static choir_status close_trials(choir_study *s)
{
    char *why = choir__strdup(choir__message());
    choir__change *last = NULL;
    for (int64_t i = 0; i < s->count && s->scheduler->ops->pauses; i++) {
        choir_trial *t = s->trial[i];
        if (t->closed || t->state != CHOIR_TRIAL_PRUNED)
            continue;
        if (last)
            choir__study_store_send(s->kept->store, last);
        last = end_of(t);
        last->worker =
            choir__strdup(choir__attribute_get(&t->attributes, true, CHOIR__WORKER_KEY));
        t->closed = true;
    }
    choir_status status = CHOIR_OK;
    if (last) {
        choir__study_store_send_awaited(s->kept->store, last);
        pthread_mutex_unlock(&s->lock);
        status = choir__study_sync_wait(s->kept, last);
        pthread_mutex_lock(&s->lock);
    }
    if (status == CHOIR_OK) {
        choir__set_message(why);
        status = CHOIR_ERR_END;
    }
    free(why);
    return status;
}

choir_status choir__study_sync_ask(choir_study *s, choir_trial **trial)
{
    choir_status status = CHOIR_OK;
    if (!s->kept->dists)
        return choir__error(CHOIR_ERR_STATE,
            "choir_study_ask: expected a study that was opened with a space, since it gives no "
            "trials without one");
    while (status == CHOIR_OK) {
        choir_trial *t;
        status = find_next(s, &t);
        if (status == CHOIR_ERR_END)
            status = close_trials(s);
        bool won = false;
        if (status == CHOIR_OK)
            status = claim(s, t, &won);
        if (won) {
            *trial = t;
            return CHOIR_OK;
        }
        if (status == CHOIR_OK)
            status = choir__study_sync_refresh(s);
    }
    return status;
}

int64_t choir__study_sync_points_left(const choir_study *study)
{
    choir_study *s = (choir_study *)(uintptr_t)study;
    int64_t count = 0;
    pthread_mutex_lock(&s->lock);
    for (const choir__given *g = s->queue; g; g = g->next)
        count++;
    pthread_mutex_unlock(&s->lock);
    return count;
}

void choir__study_sync_stop_on(choir_study *s, int fd)
{
    if (s->kept)
        choir__study_store_stop_on(s->kept->store, fd);
}

/* --- changes --- */

choir__change *choir__study_sync_tell(choir__study_sync *kept, choir_trial *t)
{
    choir__change *c = end_of(t);
    if (t->study->scheduler->ops->pauses) {
        choir__study_sync_note_segment(t);
        c->worker = choir__strdup(choir__study_store_worker(kept->store));
        c->segments =
            choir__strdup(choir__attribute_get(&t->attributes, true, CHOIR__SEGMENTS_KEY));
        choir__study_sync_note_pause(t);
    }
    if (t->study->scheduler->ops->pauses && t->state == CHOIR_TRIAL_PRUNED) {
        c->kind = CHOIR__CHANGE_PAUSE;
        c->after = choir__worker_pause(t->parts);
    }
    choir__study_store_send_awaited(kept->store, c);
    return c;
}

choir_status choir__study_sync_wait(choir__study_sync *kept, choir__change *told)
{
    choir_status status = choir__study_store_wait(kept->store, told);
    choir__change_free(told);
    return status;
}

choir_status choir__study_sync_check_step(const choir__study_sync *kept, int64_t step)
{
    int64_t most = choir__study_store_most_step(kept->store);
    if (step <= most)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "expected a step of at most %lld, the largest in Optuna's tables in %s, got %lld; count "
        "in a larger unit, or choose another storage",
        (long long)most, choir__study_store_place(kept->store), (long long)step);
}

void choir__study_sync_report(
    choir__study_sync *kept, const choir_trial *t, int64_t step, double value)
{
    choir__change *c = choir__change_new(CHOIR__CHANGE_REPORT, t->number);
    c->step = step;
    c->values[0] = value;
    c->value_count = 1;
    choir__study_store_send(kept->store, c);
}

void choir__study_sync_set_attribute(
    choir__study_sync *kept, const choir_trial *t, const char *key, const char *json)
{
    choir__change *c = choir__change_new(CHOIR__CHANGE_ATTRIBUTE, t ? t->number : -1);
    c->attribute.key = choir__strdup(key);
    c->attribute.json = choir__strdup(json);
    choir__study_store_send(kept->store, c);
}
