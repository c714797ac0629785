/* MLflow's server, by its REST interface: the run is made at once, and its metrics are sent in
 * batches by a thread, so that a step never waits for the network. A server that does not
 * answer loses the run, not the training: the next step reports it. */
#include "record/mlflow/mlflow.h"

#ifdef CHOIR_HAVE_MLFLOW
#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/library.h"
#include "record/text.h"

#undef curl_easy_setopt
#undef curl_easy_getinfo
#define CALLS(X)                                                                               \
    X(curl_, global_init)                                                                      \
    X(curl_, easy_init)                                                                        \
    X(curl_, easy_setopt)                                                                      \
    X(curl_, easy_getinfo)                                                                     \
    X(curl_, easy_perform)                                                                     \
    X(curl_, easy_strerror)                                                                    \
    X(curl_, easy_cleanup)                                                                     \
    X(curl_, slist_append)                                                                     \
    X(curl_, slist_free_all)
static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} curl;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};

enum { BATCH = 1000, MOST_WAITING = 1000000, TIMEOUT_S = 30, ANSWER_MAX = 1 << 20 };

typedef struct server {
    choir__recorder base;
    char *url, run_id[65];
    CURL *curl;
    struct curl_slist *headers;
    choir__text answer;
    int64_t resume;
    pthread_t thread;
    bool started;
    /* --- under the lock --- */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    json_t *waiting; /* array of metrics */
    bool ending;
    choir_status failed;
    char *why;
} server;

/* --- one call --- */

static size_t receive(char *data, size_t size, size_t count, void *arg)
{
    choir__text *answer = arg;
    if (answer->used + size * count > ANSWER_MAX)
        return 0;
    choir__text_add(answer, data, size * count);
    return size * count;
}

/* Posts a body, which it frees, and stores the reply unless it is NULL. */
static choir_status call(server *s, const char *path, json_t *body, json_t **reply)
{
    char *url = choir__format("%s/api/2.0/mlflow/%s", s->url, path),
         *text = json_dumps(body, JSON_COMPACT);
    long http = 0;
    choir__text_clear(&s->answer);
    curl.easy_setopt(s->curl, CURLOPT_URL, url);
    curl.easy_setopt(s->curl, CURLOPT_POSTFIELDS, text);
    CURLcode code = curl.easy_perform(s->curl);
    curl.easy_getinfo(s->curl, CURLINFO_RESPONSE_CODE, &http);
    json_t *got = json_loads(s->answer.bytes ? s->answer.bytes : "", 0, NULL);
    const char *said = json_string_value(json_object_get(got, "message"));
    choir_status status = CHOIR_OK;
    if (code != CURLE_OK)
        status = choir__error(
            CHOIR_ERR_IO, "MLflow at %s does not answer: %s", s->url, curl.easy_strerror(code));
    else if (http != 200)
        status = choir__error(CHOIR_ERR_IO, "MLflow at %s refuses %s (HTTP status %ld): %s",
            s->url, path, http, said ? said : "is it a server of MLflow?");
    if (status == CHOIR_OK && reply)
        *reply = json_incref(got);
    json_decref(got);
    json_decref(body);
    free(text);
    free(url);
    return status;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- the thread --- */

/* Sends metrics in as many calls as they need. */
static choir_status send_all(server *s, const json_t *all)
{
    choir_status status = CHOIR_OK;
    for (size_t at = 0; at < json_array_size(all) && status == CHOIR_OK;) {
        json_t *metrics = json_array();
        for (; at < json_array_size(all) && json_array_size(metrics) < BATCH; at++)
            json_array_append(metrics, json_array_get(all, at));
        status = call(s, "runs/log-batch",
            json_pack("{s:s, s:o}", "run_id", s->run_id, "metrics", metrics), NULL);
    }
    return status;
}

static void *send_batches(void *arg)
{
    server *s = arg;
    pthread_mutex_lock(&s->lock);
    while (s->failed == CHOIR_OK && (!s->ending || json_array_size(s->waiting))) {
        if (!json_array_size(s->waiting)) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        json_t *all = s->waiting;
        s->waiting = json_array();
        pthread_mutex_unlock(&s->lock);
        choir_status status = send_all(s, all);
        json_decref(all);
        pthread_mutex_lock(&s->lock);
        if (status != CHOIR_OK && s->failed == CHOIR_OK) {
            s->failed = status;
            s->why = choir__strdup(choir__message());
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* --- opening --- */

static choir_status end(choir__recorder *base, bool good);

/* Finds the experiment, or makes it. */
static choir_status find_experiment(server *s, char id[65])
{
    json_t *reply = NULL;
    choir_status status = call(s, "experiments/search",
        json_pack(
            "{s:s, s:i}", "filter", "name = '" CHOIR__MLFLOW_EXPERIMENT "'", "max_results", 1),
        &reply);
    const char *found = json_string_value(json_object_get(
        json_array_get(json_object_get(reply, "experiments"), 0), "experiment_id"));
    snprintf(id, 65, "%s", found ? found : "");
    json_decref(reply);
    reply = NULL;
    if (status != CHOIR_OK || *id)
        return status;
    status = call(
        s, "experiments/create", json_pack("{s:s}", "name", CHOIR__MLFLOW_EXPERIMENT), &reply);
    found = json_string_value(json_object_get(reply, "experiment_id"));
    snprintf(id, 65, "%s", found ? found : "0");
    json_decref(reply);
    return status;
}

/* Finds the run that goes on, by the tag that its first part has. */
static choir_status find_run(server *s, const char *experiment, const char *id)
{
    json_t *reply = NULL;
    char *filter = choir__format("tags.\"choir.id\" = '%s'", id);
    choir_status status = call(s, "runs/search",
        json_pack("{s:[s], s:s, s:i}", "experiment_ids", experiment, "filter", filter,
            "max_results", 1),
        &reply);
    const char *found = json_string_value(json_object_get(
        json_object_get(json_array_get(json_object_get(reply, "runs"), 0), "info"), "run_id"));
    snprintf(s->run_id, sizeof s->run_id, "%s", found ? found : "");
    json_decref(reply);
    free(filter);
    return status;
}

static choir_status make_run(server *s, const choir__record_start *start)
{
    char experiment[65];
    json_t *reply = NULL;
    choir_status status = find_experiment(s, experiment);
    if (status == CHOIR_OK && start->resume >= 0)
        status = find_run(s, experiment, start->id);
    if (status != CHOIR_OK || *s->run_id)
        return status;
    status = call(s, "runs/create",
        json_pack("{s:s, s:I, s:s, s:[{s:s, s:s}, {s:s, s:s}]}", "experiment_id", experiment,
            "start_time", (json_int_t)now_ms(), "run_name", start->name, "tags", "key",
            "mlflow.source.name", "value", "choir", "key", "choir.id", "value", start->id),
        &reply);
    const char *made = json_string_value(
        json_object_get(json_object_get(json_object_get(reply, "run"), "info"), "run_id"));
    snprintf(s->run_id, sizeof s->run_id, "%s", made ? made : "");
    json_decref(reply);
    if (status == CHOIR_OK && !*s->run_id)
        status = choir__error(CHOIR_ERR_IO, "MLflow at %s made a run without an id", s->url);
    return status;
}

static void set_up(server *s)
{
    s->curl = curl.easy_init();
    s->headers = curl.slist_append(NULL, "Content-Type: application/json");
    curl.easy_setopt(s->curl, CURLOPT_HTTPHEADER, s->headers);
    curl.easy_setopt(s->curl, CURLOPT_WRITEFUNCTION, receive);
    curl.easy_setopt(s->curl, CURLOPT_WRITEDATA, &s->answer);
    curl.easy_setopt(s->curl, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(s->curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
}

static const choir__recorder_ops server_ops;

choir_status choir__mlflow_server(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    choir_status status =
        choir__library_open(CHOIR_MLFLOW_LIBRARY, names, CHOIR_COUNT(names), &curl);
    if (status != CHOIR_OK)
        return status;
    curl.global_init(CURL_GLOBAL_DEFAULT);
    server *s = choir__calloc(1, sizeof *s);
    s->base.ops = &server_ops;
    s->url = choir__strdup(place);
    while (*s->url && s->url[strlen(s->url) - 1] == '/')
        s->url[strlen(s->url) - 1] = '\0';
    s->resume = start->resume;
    s->waiting = json_array();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    set_up(s);
    status = make_run(s, start);
    *made = &s->base;
    if (status != CHOIR_OK) {
        *s->run_id = '\0';
        (void)!end(&s->base, false);
        *made = NULL;
    }
    return status;
}

/* --- writing --- */

/* The thread has the connection from the first metric on. */
static choir_status begin(choir__recorder *base, const json_t *params, const char *job)
{
    server *s = (server *)base;
    json_t *list = json_array(), *value;
    const char *name;
    (void)job;
    json_object_foreach((json_t *)params, name, value)
    {
        char clean[256], *text = choir__json_plain(value);
        choir__mlflow_name(name, clean);
        json_array_append_new(
            list, json_pack("{s:s, s:o}", "key", clean, "value", choir__json_string(text)));
        free(text);
    }
    bool any = json_array_size(list) > 0 && s->resume < 0; /* parameters are set once */
    choir_status status = CHOIR_OK;
    if (any)
        status = call(s, "runs/log-batch",
            json_pack("{s:s, s:O}", "run_id", s->run_id, "params", list), NULL);
    json_decref(list);
    if (status == CHOIR_OK && pthread_create(&s->thread, NULL, send_batches, s) != 0)
        return choir__error(CHOIR_ERR_IO, "MLflow at %s: no thread can be started", s->url);
    s->started = status == CHOIR_OK;
    return status;
}

/* Returns the thread's error, or one for a server that is slower than the job. */
static choir_status look(server *s)
{
    if (s->failed == CHOIR_OK && json_array_size(s->waiting) > MOST_WAITING) {
        s->failed = choir__error(CHOIR_ERR_IO,
            "MLflow at %s is slower than the job: %zu numbers wait for it", s->url,
            json_array_size(s->waiting));
        s->why = choir__strdup(choir__message());
    }
    if (s->failed != CHOIR_OK)
        choir__set_message(s->why);
    return s->failed;
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    server *s = (server *)base;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < row->count && s->failed == CHOIR_OK; i++) {
        const choir__number *n = &row->numbers[i];
        char clean[256];
        choir__mlflow_name(n->name, clean);
        /* its JSON writes other numbers as texts */
        json_t *value = isfinite(n->value) ? json_real(n->value)
                        : isnan(n->value)  ? json_string("NaN")
                        : n->value > 0     ? json_string("Infinity")
                                           : json_string("-Infinity");
        json_array_append_new(s->waiting,
            json_pack("{s:s, s:o, s:I, s:I}", "key", clean, "value", value, "timestamp",
                (json_int_t)(1e3 * row->time), "step", (json_int_t)row->step));
    }
    pthread_cond_signal(&s->changed);
    choir_status status = look(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    choir__event_row made;
    choir__event_as_row(e, &made);
    return made.row.count ? step(base, &made.row) : CHOIR_OK;
}

static choir_status end(choir__recorder *base, bool good)
{
    server *s = (server *)base;
    pthread_mutex_lock(&s->lock);
    s->ending = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->started)
        pthread_join(s->thread, NULL);
    choir_status status = look(s);
    if (status == CHOIR_OK && *s->run_id)
        status = call(s, "runs/update",
            json_pack("{s:s, s:s, s:I}", "run_id", s->run_id, "status",
                good ? "FINISHED" : "FAILED", "end_time", (json_int_t)now_ms()),
            NULL);
    curl.easy_cleanup(s->curl);
    curl.slist_free_all(s->headers);
    choir__text_free(&s->answer);
    json_decref(s->waiting);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->why);
    free(s->url);
    free(s);
    return status;
}

static const choir__recorder_ops server_ops = {
    .name = "mlflow",
    .begin = begin,
    .step = step,
    .event = event,
    .end = end,
};
#else
choir_status choir__mlflow_server(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    (void)start, (void)made;
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "log 'mlflow:%s': this build has no libcurl; install libcurl4-openssl-dev and build "
        "again, or name a folder",
        place);
}
#endif
