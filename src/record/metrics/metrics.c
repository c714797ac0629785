/* The latest numbers over HTTP, for Prometheus: GET /metrics, on the loopback address unless
 * another one is named. libmicrohttpd answers on a thread of its own, from numbers that a step
 * leaves under a lock; so a step costs the same with any number of readers. */
#include <choir/status.h>

#include "record/recorder.h"

#ifdef CHOIR_HAVE_MICROHTTPD
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/library.h"
#include "record/metrics/openmetrics.h"

#define CALLS(X)                                                                               \
    X(MHD_, start_daemon)                                                                      \
    X(MHD_, stop_daemon)                                                                       \
    X(MHD_, create_response_from_buffer)                                                       \
    X(MHD_, add_response_header)                                                               \
    X(MHD_, queue_response)                                                                    \
    X(MHD_, destroy_response)
static struct {
    CALLS(CHOIR__LIBRARY_CALL)
} mhd;
static const char *const names[] = {CALLS(CHOIR__LIBRARY_NAME)};

typedef struct metrics {
    choir__recorder base;
    pthread_mutex_t lock; /* of list and params */
    choir__gauge_list list;
    json_t *params;
    struct MHD_Daemon *daemon;
    int socket; /* -1: the daemon has it */
} metrics;

/* --- answering, on the daemon's thread --- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status,
    const char *type, const char *text, size_t bytes)
{
    struct MHD_Response *r =
        mhd.create_response_from_buffer(bytes, (void *)text, MHD_RESPMEM_MUST_COPY);
    if (!r)
        return MHD_NO;
    mhd.add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = mhd.queue_response(connection, status, r);
    mhd.destroy_response(r);
    return result;
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url,
    const char *method, const char *version, const char *upload, size_t *upload_bytes,
    void **state)
{
    static const char nothing[] = "the metrics of this run are at /metrics\n";
    metrics *m = arg;
    (void)version, (void)upload, (void)upload_bytes, (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
        return MHD_NO;
    if (strcmp(url, "/metrics"))
        return reply(connection, MHD_HTTP_NOT_FOUND, "text/plain; charset=utf-8", nothing,
            sizeof nothing - 1);
    choir__text page = {0};
    pthread_mutex_lock(&m->lock);
    choir__openmetrics(&m->list, m->params, &page);
    pthread_mutex_unlock(&m->lock);
    enum MHD_Result result = reply(connection, MHD_HTTP_OK,
        "application/openmetrics-text; version=1.0.0; charset=utf-8", page.bytes, page.used);
    choir__text_free(&page);
    return result;
}

/* --- opening --- */

/* Listens at HOST:PORT, or at :PORT on the loopback address. */
static choir_status listen_at(metrics *m, const char *place)
{
    const char *colon = strrchr(place, ':'), *port = colon ? colon + 1 : "";
    char *end, host[256];
    long number = strtol(port, &end, 10);
    if (!colon || !*port || *end || number < 1 || number > 65535)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "log 'metrics:%s': expected :PORT or HOST:PORT, with a port from 1 to 65535",
            place);
    snprintf(host, sizeof host, "%.*s", (int)(colon - place), place);
    size_t length = strlen(host);
    bool bracketed = length > 1 && host[0] == '[' && host[length - 1] == ']';
    host[bracketed ? length - 1 : length] = '\0';
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found;
    int error = getaddrinfo(*host ? host + bracketed : "127.0.0.1", port, &hints, &found);
    if (error)
        return choir__error(CHOIR_ERR_IO, "log 'metrics:%s': unknown host '%s': %s", place,
            host, gai_strerror(error));
    m->socket = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int yes = 1;
    if (m->socket >= 0)
        setsockopt(m->socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    bool bound = m->socket >= 0 && bind(m->socket, found->ai_addr, found->ai_addrlen) == 0 &&
                 listen(m->socket, 16) == 0;
    error = errno;
    freeaddrinfo(found);
    if (bound)
        return CHOIR_OK;
    return error == EADDRINUSE
               ? choir__error(CHOIR_ERR_IO,
                     "log 'metrics:%s': port %ld is taken by another program; choose another "
                     "one",
                     place, number)
               : choir__error(CHOIR_ERR_IO, "log 'metrics:%s': cannot listen there: %s", place,
                     choir__why(error));
}

static choir_status end(choir__recorder *base, bool good)
{
    metrics *m = (metrics *)base;
    (void)good;
    if (m->daemon)
        mhd.stop_daemon(m->daemon);
    if (m->socket >= 0)
        close(m->socket);
    choir__gauges_free(&m->list);
    json_decref(m->params);
    pthread_mutex_destroy(&m->lock);
    free(m);
    return CHOIR_OK;
}

static choir_status start_daemon(metrics *m, const char *place)
{
    enum { MOST_READERS = 32, SILENT_S = 10 };
    m->daemon = mhd.start_daemon(MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer, m,
        MHD_OPTION_LISTEN_SOCKET, (MHD_socket)m->socket, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)MOST_READERS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SILENT_S,
        MHD_OPTION_END);
    if (!m->daemon)
        return choir__error(
            CHOIR_ERR_IO, "log 'metrics:%s': libmicrohttpd does not start", place);
    m->socket = -1;
    return CHOIR_OK;
}

static choir_status open_metrics(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    choir_status status =
        choir__library_open(CHOIR_MICROHTTPD_LIBRARY, names, CHOIR_COUNT(names), &mhd);
    if (status != CHOIR_OK)
        return status;
    metrics *m = choir__calloc(1, sizeof *m);
    m->base.ops = &choir__recorder_metrics;
    m->socket = -1;
    m->list.step = start->resume < 0 ? 0 : start->resume;
    pthread_mutex_init(&m->lock, NULL);
    status = listen_at(m, place);
    if (status == CHOIR_OK)
        status = start_daemon(m, place);
    *made = &m->base;
    if (status != CHOIR_OK) {
        (void)!end(&m->base, false);
        *made = NULL;
    }
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

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    choir__event_row made;
    choir__event_as_row(e, &made);
    return made.row.count ? step(base, &made.row) : CHOIR_OK;
}
#endif

const choir__recorder_ops choir__recorder_metrics = {
    .name = "metrics",
    .place = ":PORT",
    .help = "the latest numbers in OpenMetrics' form, at http://127.0.0.1:PORT/metrics",
#ifdef CHOIR_HAVE_MICROHTTPD
    .open = open_metrics,
    .begin = begin,
    .step = step,
    .event = event,
    .end = end,
#else
    .needs = "libmicrohttpd-dev",
#endif
};
