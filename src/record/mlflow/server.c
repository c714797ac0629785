/* MLflow's server, by its REST interface: the run is made at once, and its metrics are sent in
 * batches by a thread, so that a step never waits for the network. A server that does not
 * answer for a while loses the run, not the training: the next step reports it. */
#include "record/mlflow/mlflow.h"

#ifdef CHOIR_HAVE_MLFLOW
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "record/json_value.h"

enum { BATCH = 1000, MOST_WAITING = 1000000 };

typedef struct server {
    choir__recorder base;
    choir__mlflow_client *client;
    char run_id[65]; /* "": the run is not there yet */
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

/* Calls insist once the run is there. */
static choir_status call(server *s, const char *path, json_t *body, json_t **reply)
{
    return choir__mlflow_call(s->client, path, *s->run_id, body, reply);
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

/* Finds the continued run by the tag of its first part. */
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
        status = choir__error(CHOIR_ERR_IO, "MLflow at %s made a run without an id",
            choir__mlflow_client_url(s->client));
    return status;
}

static const choir__recorder_ops server_ops;

choir_status choir__mlflow_server(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    choir__mlflow_client *client;
    choir_status status = choir__mlflow_client_open(place, &client);
    if (status != CHOIR_OK)
        return status;
    server *s = choir__calloc(1, sizeof *s);
    s->base.ops = &server_ops;
    s->client = client;
    s->resume = start->resume;
    s->waiting = json_array();
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    status = make_run(s, start);
    *made = &s->base;
    if (status != CHOIR_OK)
        *s->run_id = '\0';
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
        return choir__error(CHOIR_ERR_IO, "MLflow at %s: no thread can be started",
            choir__mlflow_client_url(s->client));
    s->started = status == CHOIR_OK;
    return status;
}

/* Returns the thread's error, or one for a server that is slower than the job. */
static choir_status look(server *s)
{
    if (s->failed == CHOIR_OK && json_array_size(s->waiting) > MOST_WAITING) {
        s->failed = choir__error(CHOIR_ERR_IO,
            "MLflow at %s is slower than the job: %zu numbers wait for it",
            choir__mlflow_client_url(s->client), json_array_size(s->waiting));
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
        /* MLflow's JSON writes other numbers as texts */
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
    choir__mlflow_client_close(s->client);
    json_decref(s->waiting);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s->why);
    free(s);
    return status;
}

static const choir__recorder_ops server_ops = {
    .name = "mlflow",
    .begin = begin,
    .step = step,
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
