/* Lines of a journal: how changes of trials become operations of Optuna's. */
#include "tune/storage/journal_file.h"
#include "base/number.h"
#include "tune/storage/worker.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Returns a number as Python's JSON has it. */
static const char *real(char text[32], double x)
{
    if (isfinite(x))
        choir__number_print(text, 32, "%.17g", x);
    else
        snprintf(text, 32, "%s", isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
    return text;
}

static const char *now(char text[48])
{
    struct timespec t;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &utc);
    size_t n = strftime(text, 48, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, 48 - n, ".%06ld+00:00", t.tv_nsec / 1000);
    return text;
}

char *choir__journal_quote(const char *text)
{
    json_t *string = json_stringn_nocheck(text, strlen(text));
    char *json = json_dumps(string, JSON_ENCODE_ANY);
    json_decref(string);
    return json ? json : choir__strdup("");
}

void choir__journal_put(choir__journal_file *j, choir__journal_op op, char *members)
{
    char *line = choir__format(
        "{\"op_code\":%d,\"worker_id\":\"choir-%d\",%s}", (int)op, (int)getpid(), members);
    if (!choir__journal_apply(&j->state, line) && j->refused == CHOIR_OK)
        j->refused = choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected names and values in UTF-8, as JSON has them, got '%.200s'",
            j->base.place, members);
    j->lines++;
    fprintf(j->out, "%s\n", line);
    free(line);
    free(members);
}

static void put_attribute(choir__journal_file *j, int64_t id, bool of_trial, bool system,
    const char *key, const char *json)
{
    char *name = choir__journal_quote(key);
    int op = (of_trial ? CHOIR__JOURNAL_TRIAL_USER : CHOIR__JOURNAL_STUDY_USER) + system;
    choir__journal_put(j, (choir__journal_op)op,
        choir__format("\"%s_id\":%lld,\"%s_attr\":{%s:%s}", of_trial ? "trial" : "study",
            (long long)id, system ? "system" : "user", name, json));
    free(name);
}

static void put_beat(choir__journal_file *j, int64_t id)
{
    char text[32];
    put_attribute(j, id, true, true, CHOIR__BEAT_KEY, real(text, choir__journal_now()));
}

/* --- changes --- */

static void begin_waiting(choir__journal_file *j, const choir__change *c, int64_t id)
{
    char text[48];
    choir__journal_put(j, CHOIR__JOURNAL_STATE,
        choir__format("\"trial_id\":%lld,\"state\":0,\"values\":null,\"datetime_start\":\"%s\"",
            (long long)id, now(text)));
    for (int i = 0; i < c->param_count; i++) {
        char *name = choir__journal_quote(c->params[i].name),
             *dist = choir__journal_quote(c->params[i].dist);
        choir__journal_put(j, CHOIR__JOURNAL_PARAM,
            choir__format("\"trial_id\":%lld,\"param_name\":%s,\"param_value_internal\":%s,"
                          "\"distribution\":%s",
                (long long)id, name, real(text, c->params[i].value), dist));
        free(name);
        free(dist);
    }
    put_attribute(j, id, true, true, CHOIR__WORKER_KEY, c->worker);
    put_beat(j, id);
}

static void begin_new(choir__journal_file *j, const choir__change *c)
{
    char *members = NULL, text[48];
    size_t bytes;
    FILE *out = open_memstream(&members, &bytes);
    fprintf(out,
        "\"study_id\":%lld,\"datetime_start\":\"%s\",\"state\":0,\"value\":null,"
        "\"values\":null,\"user_attrs\":{},\"intermediate_values\":{},\"distributions\":{",
        (long long)j->study, now(text));
    for (int i = 0; i < c->param_count; i++) {
        char *name = choir__journal_quote(c->params[i].name),
             *dist = choir__journal_quote(c->params[i].dist);
        fprintf(out, "%s%s:%s", i ? "," : "", name, dist);
        free(name);
        free(dist);
    }
    fprintf(out, "},\"params\":{");
    for (int i = 0; i < c->param_count; i++) {
        char *name = choir__journal_quote(c->params[i].name);
        fprintf(out, "%s%s:%s", i ? "," : "", name, real(text, c->params[i].value));
        free(name);
    }
    fprintf(out, "},\"system_attrs\":{\"%s\":%s,\"%s\":%s", CHOIR__WORKER_KEY, c->worker,
        CHOIR__BEAT_KEY, real(text, choir__journal_now()));
    if (c->given)
        fprintf(out, ",\"%s\":true,\"%s\":%s", CHOIR__GIVEN_KEY, CHOIR__FIXED_KEY, c->given);
    fprintf(out, "}");
    fclose(out);
    choir__journal_put(j, CHOIR__JOURNAL_TRIAL, members);
}

static void pause_trial(choir__journal_file *j, const choir__change *c, int64_t id)
{
    put_attribute(j, id, true, true, CHOIR__SEGMENTS_KEY, c->segments);
    put_attribute(j, id, true, true, CHOIR__WORKER_KEY, c->after);
    j->ends = true;
}

/* A trial that was pruned at the end of a study is resumed, since the study has more trials
 * now. Optuna takes no notice of it: for its journals, such a trial has ended. */
static void reopen(choir__journal_file *j, int64_t id)
{
    choir__journal_put(j, CHOIR__JOURNAL_STATE,
        choir__format("\"trial_id\":%lld,\"state\":0,\"values\":null", (long long)id));
}

static void end_trial(choir__journal_file *j, const choir__change *c, int64_t id)
{
    char *values = choir__strdup("null"), text[48];
    if (c->segments)
        put_attribute(j, id, true, true, CHOIR__SEGMENTS_KEY, c->segments);
    for (int i = 0; i < c->value_count; i++) {
        char *more = i ? choir__format("%.*s,%s]", (int)strlen(values) - 1, values,
                             real(text, c->values[i]))
                       : choir__format("[%s]", real(text, c->values[i]));
        free(values);
        values = more;
    }
    choir__journal_put(j, CHOIR__JOURNAL_STATE,
        choir__format("\"trial_id\":%lld,\"state\":%d,\"values\":%s,\"datetime_complete\":"
                      "\"%s\"",
            (long long)id, c->state, values, now(text)));
    free(values);
    j->ends = true;
}

static bool has_segments(const choir__stored_trial *r, const char *expected)
{
    const char *segments = choir__attribute_get(&r->attributes, true, CHOIR__SEGMENTS_KEY);
    return segments && expected ? !strcmp(segments, expected) : segments == expected;
}

static void change_trial(choir__journal_file *j, choir__change *c)
{
    const choir__journal_study *s = &j->state.study[j->study];
    bool begins = c->kind == CHOIR__CHANGE_BEGIN;
    if (begins && !c->waits && c->number == s->trials.count) {
        begin_new(j, c);
        c->lost = false;
        return;
    }
    if (c->number >= s->trials.count)
        return;
    const choir__stored_trial *r = &s->trials.at[c->number];
    int64_t id = s->ids[c->number];
    const char *worker = choir__attribute_get(&r->attributes, true, CHOIR__WORKER_KEY);
    bool ours = worker && c->worker && !strcmp(worker, c->worker); /* a repeated call */
    bool runs = r->state == CHOIR_TRIAL_RUNNING, was_former;
    char text[32];
    switch (c->kind) {
    case CHOIR__CHANGE_BEGIN:
        c->lost = !ours;
        if (c->waits && r->state == CHOIR__STORED_WAITING)
            begin_waiting(j, c, id), c->lost = false;
        break;
    case CHOIR__CHANGE_TAKE:
        c->lost = !ours;
        was_former = worker && !strcmp(worker, c->former) && has_segments(r, c->segments);
        if (r->state == CHOIR_TRIAL_PRUNED && was_former && choir__worker_paused(worker) >= 0)
            reopen(j, id), runs = true;
        if (runs && was_former) {
            put_attribute(j, id, true, true, CHOIR__WORKER_KEY, c->worker);
            put_beat(j, id);
            c->lost = false;
        }
        break;
    case CHOIR__CHANGE_REPORT:
        choir__journal_put(j, CHOIR__JOURNAL_REPORT,
            choir__format("\"trial_id\":%lld,\"step\":%lld,\"intermediate_value\":%s",
                (long long)id, (long long)c->step, real(text, c->values[0])));
        break;
    case CHOIR__CHANGE_ATTRIBUTE:
        put_attribute(j, id, true, c->attribute.system, c->attribute.key, c->attribute.json);
        break;
    case CHOIR__CHANGE_PAUSE:
        if (ours)
            pause_trial(j, c, id);
        break;
    case CHOIR__CHANGE_END:
        if (runs && (ours || !c->worker))
            end_trial(j, c, id);
        break;
    case CHOIR__CHANGE_BEAT: put_beat(j, id); break;
    case CHOIR__CHANGE_LEAVE:
        if (ours)
            put_attribute(j, id, true, true, CHOIR__WORKER_KEY, CHOIR__WORKER_LEFT);
        break;
    }
}

typedef struct batch {
    choir__change *const *changes;
    int count;
} batch;

static void compose_changes(choir__journal_file *j, void *arg)
{
    const batch *b = arg;
    const choir__journal_study *s = &j->state.study[j->study];
    if (s->deleted) { /* readers ignore lines of a deleted study */
        j->refused = choir__backend_deleted(&j->base, s->about.name);
        return;
    }
    for (int i = 0; i < b->count; i++) {
        choir__change *c = b->changes[i];
        if (c->number >= 0)
            change_trial(j, c);
        else
            put_attribute(
                j, j->study, false, c->attribute.system, c->attribute.key, c->attribute.json);
    }
}

choir_status choir__journal_write(
    choir__study_backend *b, choir__change *const *changes, int count)
{
    batch all = {changes, count};
    return choir__journal_transact((choir__journal_file *)(void *)b, compose_changes, &all);
}
