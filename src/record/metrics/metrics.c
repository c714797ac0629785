/* The latest numbers over HTTP, for Prometheus: GET /metrics, on the loopback address unless
 * another one is named. The server (record/http/) answers on a thread of its own, from numbers
 * that a step leaves under a lock; so a step costs the same with any number of readers. */
#include <choir/status.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record/http/http.h"
#include "record/json_value.h"
#include "record/metrics/openmetrics.h"
#include "record/recorder.h"

/* --- the page ---
 *
 * OpenMetrics 1.0: families of gauges, each with its TYPE, and EOF at the end. All lines of a
 * family stand together, so a family is written when its first name comes. */

static double number_of(const choir__row *row, const char *name)
{
    for (int i = 0; i < row->count; i++)
        if (!strcmp(row->numbers[i].name, name))
            return row->numbers[i].value;
    return (double)NAN;
}

/* Adds the step to those whose mean rate the next page has. */
static void note_rate(choir__gauge_list *l, const choir__row *row)
{
    double seconds = number_of(row, CHOIR__KEY(step, step_s)),
           rate = number_of(row, CHOIR__KEY(step, items_per_s));
    if (!(seconds > 0) || !isfinite(rate * seconds))
        return;
    l->items += rate * seconds;
    l->seconds += seconds;
}

static void settle_rate(choir__gauge_list *l)
{
    for (int i = 0; i < l->count && l->seconds > 0; i++)
        if (!strcmp(l->names[i], CHOIR__KEY(step, items_per_s)))
            l->values[i] = l->items / l->seconds;
    l->items = l->seconds = 0;
}

void choir__gauges_take(choir__gauge_list *l, const choir__row *row)
{
    int near = -1;
    l->step = row->step;
    note_rate(l, row);
    for (int i = 0; i < row->count; i++) {
        int at = l->count;
        for (int k = 0; k < l->count; k++) {
            int guess = (near + 1 + k) % l->count;
            if (!strcmp(l->names[guess], row->numbers[i].name)) {
                at = guess;
                break;
            }
        }
        if (at == l->count) {
            CHOIR__GROW(l->names, at);
            CHOIR__GROW(l->values, at);
            l->names[l->count++] = choir__strdup(row->numbers[i].name);
        }
        l->values[at] = row->numbers[i].value;
        near = at;
    }
}

void choir__gauges_free(choir__gauge_list *l)
{
    for (int i = 0; i < l->count; i++)
        free(l->names[i]);
    free(l->names);
    free(l->values);
    *l = (choir__gauge_list){0};
}

/* --- the page --- */

/* A name as a family, and the device that is its label. */
typedef struct family {
    char name[256], device[64];
} family;

static void clean(char *name)
{
    for (; *name; name++) {
        bool fits = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
                    (*name >= '0' && *name <= '9');
        *name = fits ? *name : '_';
    }
}

static family family_of(const char *name)
{
    static const char prefix[] = "device/";
    family f = {.device = ""};
    const char *device =
        strncmp(name, prefix, sizeof prefix - 1) ? NULL : name + sizeof prefix - 1;
    const char *slash = device ? strrchr(device, '/') : NULL;
    if (slash && slash - device < (long)sizeof f.device) {
        snprintf(f.device, sizeof f.device, "%.*s", (int)(slash - device), device);
        snprintf(f.name, sizeof f.name, "choir_device_%s", slash + 1);
    } else {
        snprintf(f.name, sizeof f.name, "choir_%s", name);
    }
    clean(f.name);
    return f;
}

/* Adds the value of a label, in quotation marks. */
static void put_label(choir__text_buffer *t, const char *value)
{
    choir__text_buffer_put(t, "\"");
    for (; *value; value++)
        if (*value == '"' || *value == '\\') {
            choir__text_buffer_put(t, "\\");
            choir__text_buffer_add(t, value, 1);
        } else {
            choir__text_buffer_add(t, *value == '\n' ? "\\n" : value, *value == '\n' ? 2 : 1);
        }
    choir__text_buffer_put(t, "\"");
}

static void put_value(choir__text_buffer *t, double x)
{
    char text[CHOIR__NUMBER_TEXT];
    if (isfinite(x))
        choir__text_buffer_add(t, text, (size_t)choir__number_text(x, text));
    else
        choir__text_buffer_put(t, isnan(x) ? "NaN" : x < 0 ? "-Inf" : "+Inf");
    choir__text_buffer_put(t, "\n");
}

static void put_type(choir__text_buffer *t, const char *name, const char *type)
{
    choir__text_buffer_put(t, "# TYPE ");
    choir__text_buffer_put(t, name);
    choir__text_buffer_put(t, type);
}

/* Two names may become one family ("a b" and "a_b"): the first that has a device counts. */
static bool is_repeated(const choir__gauge_list *l, int at, const family *f)
{
    for (int i = 0; i < at; i++) {
        family before = family_of(l->names[i]);
        if (!strcmp(before.name, f->name) && !strcmp(before.device, f->device))
            return true;
    }
    return false;
}

static void put_family(const choir__gauge_list *l, int first, choir__text_buffer *t)
{
    family f = family_of(l->names[first]);
    for (int i = 0; i < first; i++) {
        family before = family_of(l->names[i]);
        if (!strcmp(before.name, f.name))
            return; /* stands there already */
    }
    put_type(t, f.name, " gauge\n");
    for (int i = first; i < l->count; i++) {
        family other = family_of(l->names[i]);
        if (strcmp(other.name, f.name) || is_repeated(l, i, &other))
            continue;
        choir__text_buffer_put(t, f.name);
        if (*other.device) {
            choir__text_buffer_put(t, "{device=");
            put_label(t, other.device);
            choir__text_buffer_put(t, "}");
        }
        choir__text_buffer_put(t, " ");
        put_value(t, l->values[i]);
    }
}

/* "choir_run_info{lr="0.001",model="gpt2"} 1": parameters whose names agree count once. */
static void put_params(const json_t *params, choir__text_buffer *t)
{
    const char *name;
    json_t *value;
    choir__text_buffer seen = {0};
    int count = 0;
    choir__text_buffer_put(&seen, " ");
    json_object_foreach((json_t *)params, name, value)
    {
        char label[128], *text = choir__json_plain(value);
        snprintf(label, sizeof label, "p_%s ", name);
        label[strlen(label) - 1] = '\0';
        clean(label);
        char *word = choir__format(" %s ", label + 2);
        bool digit = label[2] >= '0' && label[2] <= '9';
        if (!strstr(seen.bytes, word)) {
            choir__text_buffer_put(t, count++ ? "," : "");
            choir__text_buffer_put(t, digit ? label : label + 2);
            choir__text_buffer_put(t, "=");
            put_label(t, text);
            choir__text_buffer_put(&seen, word);
        }
        free(word);
        free(text);
    }
    choir__text_buffer_free(&seen);
}

void choir__openmetrics(choir__gauge_list *l, const json_t *params, choir__text_buffer *t)
{
    choir__text_buffer_clear(t);
    settle_rate(l);
    if (json_object_size(params)) {
        put_type(t, "choir_run", " info\nchoir_run_info{");
        put_params(params, t);
        choir__text_buffer_put(t, "} 1\n");
    }
    put_type(t, "choir_step", " gauge\nchoir_step ");
    put_value(t, (double)l->step);
    for (int i = 0; i < l->count; i++)
        put_family(l, i, t);
    choir__text_buffer_put(t, "# EOF\n");
}

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
    choir__text_buffer page = {0};
    pthread_mutex_lock(&m->lock);
    choir__openmetrics(&m->list, m->params, &page);
    pthread_mutex_unlock(&m->lock);
    choir__http_reply(request, 200, page.bytes, page.used, numbers, 1);
    choir__text_buffer_free(&page);
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
