/* Studies of choir tune on the page: see study.h. A study is read as a whole, by the functions
 * that choir tune show uses; the pauses between are many times what that takes.
 *
 *     event: study    {"id":0,"why":null,"studies":[{"path":"runs/study.db",...},...]} */
#include "cli/watch/study.h"

#include <choir/study.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/tune/search.h"
#include "record/json_value.h"
#include "tune/storage/backend.h"

static const double pause_s = 2, times = 200; /* from one look to the next, at least */
static const double end_s = 1;                /* for a server to answer, at the end */
enum { MOST_TRIALS = 1000 /* the newest ones */, MOST_STUDIES = 16 /* trials of a storage */ };

bool choir__watch_is_storage(const char *text)
{
    struct stat s;
    return stat(text, &s) != 0 && choir__backend_is_url(text);
}

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *trial_of(const choir_study *study, const choir_trial *t)
{
    const choir_space *space = choir_study_space(study);
    json_t *values = json_array(), *params = json_object();
    for (int i = 0; i < choir_study_objectives(study); i++)
        json_array_append_new(values, number(choir_trial_value(t, i)));
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *text = choir_trial_text(t, name);
        if (text)
            json_object_set_new(params, name, choir__json_string(text));
    }
    return json_pack("{s:I, s:s, s:o, s:I, s:o}", "number", (json_int_t)choir_trial_number(t),
        "state", choir__search_state(choir_trial_result(t)), "values", values, "step",
        (json_int_t)choir_trial_last_step(t), "params", params);
}

static json_t *study_of(const char *path, const choir_study *study)
{
    int64_t count = choir_study_count(study), from = choir__max(0, count - MOST_TRIALS);
    const choir_trial *best = choir_study_best(study);
    choir__trial_job job;
    choir__outcome_job(study, &job);
    json_t *unit = choir__json_string(job.unit);
    choir__outcome_free_job(&job);
    json_t *maximizes = json_array(), *trials = json_array();
    for (int i = 0; i < choir_study_objectives(study); i++)
        json_array_append_new(maximizes, json_boolean(choir_study_maximizes(study, i)));
    for (int64_t i = from; i < count; i++)
        json_array_append_new(trials, trial_of(study, choir_study_trial(study, i)));
    return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o}", "path", choir__json_string(path),
        "count", (json_int_t)count, "unit", unit, "maximizes", maximizes, "best",
        best ? trial_of(study, best) : json_null(), "trials", trials);
}

/* Adds the studies of a storage to a list; the first that cannot be read ends it. */
static choir_status read_all(const choir__watch_study *s, json_t *studies)
{
    choir__study_names names;
    char *url = choir__tune_url(s->source.path);
    choir_status status = choir__backend_list(url, &names);
    for (int i = 0; i < names.count && i < MOST_STUDIES && status == CHOIR_OK; i++) {
        const char *place =
            s->source.far ? names.place : s->source.path; /* the place without a password */
        choir_study *study = NULL;
        char *path = names.count == 1 ? choir__strdup(place)
                                      : choir__format("%s: %s", place, names.name[i]);
        status = choir__tune_open(url, names.name[i], &study);
        if (status == CHOIR_OK)
            json_array_append_new(studies, study_of(path, study));
        choir_study_free(study);
        free(path);
    }
    choir__study_names_free(&names);
    free(url);
    return status;
}

/* Returns the news, which the caller frees; NULL: a file cannot be read now. */
static char *read_news(const choir__watch_study *s)
{
    json_t *studies = json_array();
    choir_status status = read_all(s, studies);
    json_t *why = status == CHOIR_OK ? json_null() : choir__json_string(choir_error_message());
    json_t *root =
        json_pack("{s:i, s:o, s:o}", "id", s->news.id, "why", why, "studies", studies);
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9)), *news = NULL;
    if (status == CHOIR_OK || s->source.far)
        news = choir__format("event: study\ndata: %s\n\n", text);
    free(text);
    json_decref(root);
    return news;
}

static double pause_after(double began)
{
    return fmax(pause_s, times * (choir__now() - began));
}

/* --- servers --- */

static void *ask(void *arg)
{
    choir__watch_study *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->ended) {
        double began = choir__now();
        pthread_mutex_unlock(&s->lock);
        char *news = read_news(s);
        struct timespec until = choir__in_seconds(pause_after(began));
        pthread_mutex_lock(&s->lock);
        free(s->found);
        s->found = news;
        while (!s->ended && pthread_cond_timedwait(&s->ends, &s->lock, &until) != ETIMEDOUT)
            ;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void begin_to_ask(choir__watch_study *s)
{
    pthread_mutex_init(&s->lock, NULL);
    choir__cond_init(&s->ends);
    s->asks = pthread_create(&s->asker, NULL, ask, s) == 0;
}

/* Returns whether the thread has ended; one that waits for a server keeps the study. */
static bool end_to_ask(choir__watch_study *s)
{
    struct timespec until = choir__in_seconds(end_s);
    pthread_mutex_lock(&s->lock);
    s->ended = true;
    pthread_cond_signal(&s->ends);
    pthread_mutex_unlock(&s->lock);
    if (s->asks && pthread_clockjoin_np(s->asker, NULL, CLOCK_MONOTONIC, &until) != 0) {
        pthread_detach(s->asker);
        return false;
    }
    pthread_cond_destroy(&s->ends);
    pthread_mutex_destroy(&s->lock);
    free(s->found);
    return true;
}

static char *take_found(choir__watch_study *s)
{
    pthread_mutex_lock(&s->lock);
    char *news = s->found;
    s->found = NULL;
    pthread_mutex_unlock(&s->lock);
    return news;
}

/* --- the studies of a storage --- */

choir__watch_study *choir__watch_study_new(const char *path, bool far, int id)
{
    choir__watch_study *s = choir__calloc(1, sizeof *s);
    s->source.path = choir__strdup(path);
    s->news.id = id;
    s->source.far = far;
    if (far)
        begin_to_ask(s);
    return s;
}

void choir__watch_study_free(choir__watch_study *s)
{
    if (!s || (s->source.far && !end_to_ask(s)))
        return;
    choir__text_buffer_free(&s->news.event);
    free(s->source.path);
    free(s);
}

void choir__watch_study_look(choir__watch_study *s)
{
    double now = choir__now();
    if (!s->source.far && now < s->look_at)
        return;
    char *news = s->source.far ? take_found(s) : read_news(s);
    if (news && (!s->news.event.bytes || strcmp(news, s->news.event.bytes))) {
        choir__text_buffer_clear(&s->news.event);
        choir__text_buffer_put(&s->news.event, news);
        s->news.version++;
    }
    free(news);
    s->look_at = now + pause_after(now);
}
