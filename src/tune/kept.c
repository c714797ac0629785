/* Stored studies: every trial is a claim on its number.
 *
 * By the rule of order each worker finds the same parameters for trial n, once it knows the
 * results that trial n follows from. The worker whose record of trial n comes first runs it;
 * the others adopt the record. A trial whose worker is dead is claimed again, with its number
 * and its parameters. So all that a worker needs to know is in the records, and nothing
 * coordinates them. */
#include "tune/kept.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tune/storage/distribution.h"
#include "tune/storage/store.h"
#include "tune/storage/worker.h"
#include "tune/kept_facts.h"
#include "tune/study.h"
#include "tune/trial.h"

struct choir__kept {
    choir__study_store *store;
    char **dists; /* (space->count) Optuna's JSON; NULL: the study is only looked at */
    int dist_count;
    double refreshed;   /* choir__now */
    int64_t given_skip; /* trials that were given to other workers, and to us not yet */
};

static const double REFRESH_S = 0.1; /* at most as often */

/* --- opening --- */

choir_status choir__kept_open(choir_study *s, const choir_study_opts *opts)
{
    bool looks = !s->space;
    choir__study_store *store;
    choir_status status = choir__study_store_open(opts->storage, !looks, &store);
    if (status != CHOIR_OK)
        return status;
    choir__kept *kept = s->kept = choir__calloc(1, sizeof *kept);
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

void choir__kept_close(choir__kept *kept)
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

static choir_status read_params(choir_trial *t, const choir__record *r)
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
        const choir__dist *dist = &space->param[i].dist;
        if (!t->study->kept->dists && dist->kind != CHOIR__CHOICE)
            t->params[i] = p->value; /* looked at only: Optuna's ranges may change */
        else
            status = choir__dist_value_of_json(dist, p->name, p->dist, p->value, &t->params[i]);
    }
    return status;
}

/* Fills in the parameters of a trial that Optuna's enqueue_trial made. */
static choir_status read_fixed(choir_trial *t, const choir__record *r)
{
    const choir_space *space = t->study->space;
    const char *text = choir__attribute_get(&r->attributes, true, CHOIR__FIXED_KEY);
    json_t *fixed = json_loads(text ? text : "{}", 0, NULL), *value;
    const char *name;
    choir_status status = CHOIR_OK;
    json_object_foreach(fixed, name, value)
    {
        int i = choir__space_find(space, name);
        char *word = json_is_string(value) ? choir__strdup(json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY);
        if (i >= 0 && status == CHOIR_OK)
            status = choir__dist_read(&space->param[i].dist, name, word, &t->params[i]);
        free(word);
    }
    json_decref(fixed);
    double *given = choir__alloc((size_t)space->count * sizeof(double));
    memcpy(given, t->params, (size_t)space->count * sizeof(double));
    choir__draws draws = {.key = choir__mix(t->study->key, (uint64_t)t->number)};
    choir__space_draw(space, &draws, t->params);
    choir__space_take_given(space, given, &draws, t->params);
    free(given);
    return status;
}

/* Takes over a record's state. A running trial whose program sends no sign of life has
 * failed, as far as this study knows. */
static void take_state(choir_trial *t, const choir__record *r, const char *self)
{
    int objectives = t->study->objectives;
    bool waits = r->state == CHOIR__STORED_WAITING, runs = r->state == CHOIR_TRIAL_RUNNING;
    bool dead = runs && choir__worker_is_dead(r, self);
    bool named = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    t->again = waits || (dead && named);
    t->state = waits || runs ? CHOIR_TRIAL_RUNNING : (choir_trial_state)r->state;
    if ((dead && !named) || r->state < 0 || r->state > CHOIR__STORED_WAITING)
        t->state = CHOIR_TRIAL_FAIL;
    if (t->state == CHOIR_TRIAL_COMPLETE && r->value_count < objectives)
        t->state = CHOIR_TRIAL_FAIL;
    if (t->state == CHOIR_TRIAL_COMPLETE && !t->values) {
        t->values = choir__alloc((size_t)objectives * sizeof(double));
        memcpy(t->values, r->values, (size_t)objectives * sizeof(double));
    }
    free(t->reports);
    t->report_count = r->report_count;
    t->reports = choir__alloc((size_t)(r->report_count + 1) * sizeof *t->reports);
    if (r->report_count)
        memcpy(t->reports, r->reports, (size_t)r->report_count * sizeof *t->reports);
    for (int i = 0; i < r->attributes.count; i++) {
        const choir__stored_attribute *a = &r->attributes.at[i];
        choir__attribute_set(&t->attributes, a->system, a->key, a->json);
    }
}

/* Takes over a record of a trial that is new here, or that this worker claimed in vain. */
static choir_status adopt(choir_study *s, choir_trial *t, const choir__record *r)
{
    choir_status status = read_params(t, r);
    if (status == CHOIR_OK && r->state == CHOIR__STORED_WAITING)
        status = read_fixed(t, r);
    t->foreign = t->adopted = true;
    t->given = choir__attribute_get(&r->attributes, true, CHOIR__GIVEN_KEY);
    take_state(t, r, choir__study_store_worker(s->kept->store));
    if (t->given && s->queue)
        choir__study_drop_given(s);
    else if (t->given)
        s->kept->given_skip++;
    return status;
}

/* Ends the segment of another worker's trial that has ended. */
static void note_end(choir_study *s, choir_trial *t)
{
    if (t->state != CHOIR_TRIAL_RUNNING && !s->segment[t->segment].ended)
        choir__study_end_segment(s, t);
}

/* Passes over the point of a grid that another worker's trial has used. */
static void pass_over(choir_study *s, const choir_trial *t)
{
    choir__history h = choir__study_history(s);
    choir__draws draws = {.key = s->key};
    double params[CHOIR_SPACE_MAX];
    if (!t->given && s->sampler->ops->has_more && s->sampler->ops->has_more(s->sampler, &h) &&
        s->sampler->ops->suggest(s->sampler, &h, &draws, params) != CHOIR_OK)
        (void)choir__message();
}

/* Takes over the record of a trial that this worker has not begun. */
static choir_status adopt_new(choir_study *s, const choir__record *r)
{
    choir_trial *t = choir__study_append(s);
    choir_status status = adopt(s, t, r);
    if (status == CHOIR_OK)
        pass_over(s, t);
    return status;
}

choir_status choir__kept_refresh(choir_study *s)
{
    choir__records records = {0};
    choir_status status = choir__study_store_load(s->kept->store, s->ended, &records);
    for (int64_t i = 0; i < records.count && status == CHOIR_OK; i++) {
        const choir__record *r = &records.at[i];
        choir_trial *t = r->number < s->count ? s->trial[r->number] : NULL;
        if (t && t->adopted && t->foreign && t->state == CHOIR_TRIAL_RUNNING)
            take_state(t, r, choir__study_store_worker(s->kept->store));
        else if (t && t->foreign && !t->adopted)
            status = adopt(s, t, r);
        else if (!t && r->number == s->count)
            status = adopt_new(s, r);
        if (status == CHOIR_OK && r->number < s->count)
            note_end(s, s->trial[r->number]);
    }
    choir__records_free(&records);
    s->kept->refreshed = choir__now();
    return status;
}

/* --- asking --- */

/* Returns the first trial whose worker is dead, or NULL. */
static choir_trial *next_again(const choir_study *s)
{
    for (int64_t i = s->ended; i < s->count; i++)
        if (s->trial[i]->again)
            return s->trial[i];
    return NULL;
}

/* Returns whether other workers' trials run. */
static bool has_others(const choir_study *s)
{
    for (int64_t i = s->ended; i < s->count; i++)
        if (s->trial[i]->foreign && s->trial[i]->state == CHOIR_TRIAL_RUNNING)
            return true;
    return false;
}

static choir_status look_for_news(choir_study *s)
{
    if (!has_others(s) || choir__now() - s->kept->refreshed < REFRESH_S)
        return CHOIR_OK;
    return choir__kept_refresh(s);
}

bool choir__kept_ready(choir_study *s)
{
    if (!s->kept->dists)
        return false;
    if (!next_again(s) && !choir__study_ready(s) && look_for_news(s) != CHOIR_OK)
        return true; /* ask tells the error */
    return next_again(s) || choir__study_ready(s);
}

static choir__change *claim_of(const choir__kept *kept, const choir_trial *t)
{
    const choir_space *space = t->study->space;
    const char *former = choir__attribute_get(&t->attributes, true, CHOIR__WORKER_KEY);
    choir__change *c =
        choir__change_new(former ? CHOIR__CHANGE_TAKE : CHOIR__CHANGE_BEGIN, t->number);
    c->worker = choir__strdup(choir__study_store_worker(kept->store));
    c->waits = t->again;
    c->given = t->given;
    c->former = former ? choir__strdup(former) : NULL;
    c->params = choir__calloc((size_t)space->count, sizeof *c->params);
    for (int i = 0; i < space->count && !former; i++)
        if (!isnan(t->params[i]))
            c->params[c->param_count++] =
                (choir__stored_param){.name = choir__strdup(space->param[i].name),
                    .dist = choir__strdup(kept->dists[i]),
                    .value = t->params[i]};
    return c;
}

/* Keeps the parameters given for a trial that another worker has begun, for the next one:
 * unless that worker was given it, too. */
static void give_back(choir_study *s, const choir_trial *t)
{
    size_t bytes = (size_t)s->space->count * sizeof(double);
    choir__given *g = choir__alloc(sizeof *g);
    *g = (choir__given){.next = s->queue, .params = choir__alloc(bytes)};
    memcpy(g->params, t->params, bytes);
    s->queue = g;
}

/* Claims a trial; *won: this worker has it. */
static choir_status claim(choir_study *s, choir_trial *t, bool *won)
{
    choir__study_store *store = s->kept->store;
    bool is_new = !t->foreign;
    choir__change *c = claim_of(s->kept, t);
    t->foreign = t->again = false;
    choir__study_store_send_awaited(store, c);
    pthread_mutex_unlock(&s->lock);
    choir_status status = choir__study_store_wait(store, c);
    pthread_mutex_lock(&s->lock);
    *won = status == CHOIR_OK && !c->lost;
    t->foreign = !*won;
    if (*won)
        choir__attribute_set(&t->attributes, true, CHOIR__WORKER_KEY, c->worker);
    choir__change_free(c);
    if (!*won && is_new && t->given)
        give_back(s, t);
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
                CHOIR_ERR_STATE, "the next trial follows from those of other processes");
        status = look_for_news(s);
        if (status != CHOIR_OK)
            return status;
    }
}

choir_status choir__kept_ask(choir_study *s, choir_trial **trial)
{
    choir_status status = CHOIR_OK;
    if (!s->kept->dists)
        return choir__error(CHOIR_ERR_STATE,
            "choir_study_ask: expected a study that was opened with a space, since it gives no "
            "trials without one");
    while (status == CHOIR_OK) {
        choir_trial *t;
        status = find_next(s, &t);
        bool won = false;
        if (status == CHOIR_OK)
            status = claim(s, t, &won);
        if (won) {
            *trial = t;
            return CHOIR_OK;
        }
        if (status == CHOIR_OK)
            status = choir__kept_refresh(s);
    }
    return status;
}

void choir__kept_stop_on(choir_study *s, int fd)
{
    if (s->kept)
        choir__study_store_stop_on(s->kept->store, fd);
}

bool choir__kept_skips_given(choir__kept *kept)
{
    if (!kept->given_skip)
        return false;
    kept->given_skip--;
    return true;
}

/* --- changes --- */

choir__change *choir__kept_tell(choir__kept *kept, const choir_trial *t)
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
    choir__study_store_send_awaited(kept->store, c);
    return c;
}

choir_status choir__kept_wait(choir__kept *kept, choir__change *told)
{
    choir_status status = choir__study_store_wait(kept->store, told);
    choir__change_free(told);
    return status;
}

choir_status choir__kept_report(
    choir__kept *kept, const choir_trial *t, int64_t step, double value)
{
    if (step > INT32_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "expected a step of at most %d in a stored study, got %lld", INT32_MAX,
            (long long)step);
    choir__change *c = choir__change_new(CHOIR__CHANGE_REPORT, t->number);
    c->step = step;
    c->values[0] = value;
    c->value_count = 1;
    choir__study_store_send(kept->store, c);
    return CHOIR_OK;
}

void choir__kept_set_attribute(
    choir__kept *kept, const choir_trial *t, const char *key, const char *json)
{
    choir__change *c = choir__change_new(CHOIR__CHANGE_ATTRIBUTE, t ? t->number : -1);
    c->attribute.key = choir__strdup(key);
    c->attribute.json = choir__strdup(json);
    choir__study_store_send(kept->store, c);
}
