/* The latest numbers over HTTP, for Prometheus: GET /metrics, on the loopback address unless
 * another one is named. The server (record/http/) answers on a thread of its own, from numbers
 * that a step leaves under a lock; so a step costs the same with any number of readers. */
#include <choir/status.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "record/http/http.h"
#include "record/metrics/openmetrics.h"
#include "record/recorder.h"

typedef struct metrics {
    choir__recorder base;
    pthread_mutex_t lock; /* guards list and params */
    choir__gauge_list list;
    json_t *params;
    choir__http *server;
} metrics;

/* Answers on the server's thread. */
static void answer(void *arg, const char *path, choir__http_request *request)
{
    static const char nothing[] = "the metrics of this run are at /metrics\n";
    static const char *const text[][2] = {{"Content-Type", "text/plain; charset=utf-8"}},
                             *const numbers[][2] = {{"Content-Type",
                                 "application/openmetrics-text; version=1.0.0; charset=utf-8"}};
    metrics *m = arg;
    if (strcmp(path, "/metrics")) {
        choir__http_reply(request, 404, nothing, sizeof nothing - 1, text, 1);
        return;
    }
    choir__text page = {0};
    pthread_mutex_lock(&m->lock);
    choir__openmetrics(&m->list, m->params, &page);
    pthread_mutex_unlock(&m->lock);
    choir__http_reply(request, 200, page.bytes, page.used, numbers, 1);
    choir__text_free(&page);
}

static choir_status end(choir__recorder *base, bool good)
{
    metrics *m = (metrics *)base;
    (void)good;
    choir__http_close(m->server);
    choir__gauges_free(&m->list);
    json_decref(m->params);
    pthread_mutex_destroy(&m->lock);
    free(m);
    return CHOIR_OK;
}

static choir_status check(const char *place)
{
    return choir__http_check_place(place, false);
}

static choir_status open_metrics(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    metrics *m = choir__calloc(1, sizeof *m);
    m->base.ops = &choir__recorder_metrics;
    m->list.step = start->resume < 0 ? 0 : start->resume;
    pthread_mutex_init(&m->lock, NULL);
    char *what = choir__format("log 'metrics:%s'", place);
    const choir__http_opts opts = {
        .what = what, .place = place, .keyless = true, .answer = answer, .arg = m};
    choir_status status = choir__http_open(&opts, &m->server);
    free(what);
    *made = &m->base;
    return status;
}

/* --- taking --- */

static choir_status begin(choir__recorder *base, const json_t *params, const char *job)
{
    metrics *m = (metrics *)base;
    (void)job;
    pthread_mutex_lock(&m->lock);
    m->params = json_deep_copy(params);
    pthread_mutex_unlock(&m->lock);
    return CHOIR_OK;
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    metrics *m = (metrics *)base;
    pthread_mutex_lock(&m->lock);
    choir__gauges_take(&m->list, row);
    pthread_mutex_unlock(&m->lock);
    return CHOIR_OK;
}

const choir__recorder_ops choir__recorder_metrics = {
    .name = "metrics",
    .place = ":PORT",
    .help = "the latest numbers in OpenMetrics' form, at http://127.0.0.1:PORT/metrics",
    .check = check,
    .open = open_metrics,
    .begin = begin,
    .step = step,
    .end = end,
#ifndef CHOIR_HAVE_MICROHTTPD
    .needs = "libmicrohttpd-dev",
#endif
};
