/* Reads a run folder as it grows, and writes the page's events about it. Nothing in the
 * folder is trusted: lines that are cut, huge, or no JSON are left out. If a file was
 * replaced, everything is read from the start, and a new generation number makes the page
 * start over. */
#include "cli/watch/run.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "base/number.h"
#include "base/secret.h"
#include "record/events.h"

bool choir__watch_is_run(const char *path)
{
    return choir__folder_has(path, CHOIR__METRICS_FILE) ||
           choir__folder_has(path, CHOIR__EVENTS_FILE);
}

choir__watch_run *choir__watch_run_new(const char *path)
{
    choir__watch_run *r = choir__calloc(1, sizeof *r);
    r->source.path = choir__strdup(path);
    r->metrics.path = choir__format("%s/" CHOIR__METRICS_FILE, path);
    r->events.path = choir__format("%s/" CHOIR__EVENTS_FILE, path);
    choir__watch_chain_open(&r->chain, path);
    r->first_time = r->last_time = (double)NAN;
    strcpy(r->state, "waiting");
    return r;
}

static void forget_events(choir__watch_run *r)
{
    for (int i = 0; i < CHOIR__WATCH_EVENTS; i++) {
        free(r->told[i]);
        r->told[i] = NULL;
    }
    r->event_count = 0;
}

void choir__watch_run_free(choir__watch_run *r)
{
    if (!r)
        return;
    choir__watch_table_free(&r->steps);
    choir__watch_table_free(&r->evals);
    forget_events(r);
    choir__watch_chain_close(&r->chain);
    free(r->metrics.path);
    free(r->events.path);
    free(r->source.path);
    free(r->job);
    free(r);
}

static void begin_anew(choir__watch_run *r)
{
    choir__watch_table_free(&r->steps);
    choir__watch_table_free(&r->evals);
    forget_events(r);
    choir__tail_rewind(&r->metrics);
    choir__tail_rewind(&r->events);
    choir__watch_chain_rewind(&r->chain);
    r->x = (choir__watch_x){0};
    r->first_time = r->last_time = (double)NAN;
    strcpy(r->state, "waiting");
    r->generation++;
}

/* --- steps --- */

typedef struct member {
    const char *name;
    size_t length;
    double value;
} member;

enum { MOST_MEMBERS = CHOIR__WATCH_COLUMNS + 8 };

/* Stores the members of a flat object of numbers, as run folders have it, and returns their
 * number; -1: it is something else. null becomes NaN. */
static int members_of(const char *at, member all[MOST_MEMBERS])
{
    int count = 0;
    if (*at++ != '{')
        return -1;
    while (*at == '"' && count < MOST_MEMBERS) {
        const char *name = ++at;
        at += strcspn(at, "\"\\");
        if (at[0] != '"' || at[1] != ':')
            return -1;
        member *m = &all[count++];
        *m = (member){name, (size_t)(at - name), (double)NAN};
        at += 2;
        char *end;
        if (!strncmp(at, "null", 4))
            end = (char *)at + 4;
        else
            m->value = choir__number_read(at, &end);
        if (end == at || (*end != ',' && *end != '}'))
            return -1;
        at = *end == ',' ? end + 1 : end;
    }
    return *at == '}' || count == MOST_MEMBERS ? count : -1;
}

static bool is(const member *m, const char *name)
{
    return strlen(name) == m->length && !strncmp(name, m->name, m->length);
}

static double value_of(const member *all, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (is(&all[i], name))
            return all[i].value;
    return (double)NAN;
}

static void note_time(choir__watch_run *r, double time)
{
    if (!(fabs(time) < 1e12)) /* no time of a calendar, or none at all */
        return;
    r->first_time = isnan(r->first_time) ? time : r->first_time;
    r->last_time = isnan(r->last_time) ? time : fmax(r->last_time, time);
}

static void take_step(void *arg, char *line, size_t bytes)
{
    choir__watch_run *r = arg;
    member all[MOST_MEMBERS];
    int count = bytes ? members_of(line, all) : -1, at = -1;
    double step = count > 0 ? value_of(all, count, CHOIR__KEY(line, step)) : (double)NAN;
    if (!isfinite(step)) /* 1e999, too, is a number of JSON */
        return;
    double took = value_of(all, count, CHOIR__KEY(step, step_s)),
           time = value_of(all, count, CHOIR__KEY(line, time));
    note_time(r, time);
    r->x.step = step;
    r->x.seconds = !isfinite(took) ? time - r->first_time : r->x.seconds + took;
    r->x.items = value_of(all, count, CHOIR__KEY(step, items));
    choir__watch_table_row(&r->steps, r->x);
    for (int i = 0; i < count; i++) {
        const member *m = &all[i];
        if (!is(m, CHOIR__KEY(line, step)) && !is(m, CHOIR__KEY(line, time)) &&
            !is(m, CHOIR__KEY(step, items)))
            at = choir__watch_table_put(&r->steps, m->name, m->length, m->value, at + 1);
    }
}

/* --- events --- */

static void note_state(choir__watch_run *r, const char *kind)
{
    static const struct {
        const choir__event_kind *kind;
        const char *state;
    } states[] = {
        {&choir__kind_begin, "running"},
        {&choir__kind_end, "ended"},
        {&choir__kind_failure, "failed"},
        {&choir__kind_interrupted, "interrupted"},
        {&choir__kind_membership, "running"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(states); i++)
        if (!strcmp(kind, states[i].kind->name))
            snprintf(r->state, sizeof r->state, "%s", states[i].state);
}

/* Time and items of an evaluation are its step's, which the page has. */
static void take_eval(choir__watch_run *r, json_t *event, double step)
{
    const char *key;
    json_t *value;
    int at = -1;
    choir__watch_table_row(&r->evals, (choir__watch_x){step, (double)NAN, (double)NAN});
    json_object_foreach(event, key, value)
    {
        const char *name = choir__eval_name(event, key);
        if (json_is_number(value) && choir__event_is_measured(&choir__kind_eval, key))
            at = choir__watch_table_put(
                &r->evals, name, strlen(name), json_number_value(value), at + 1);
    }
}

static void take_event(void *arg, char *line, size_t bytes)
{
    choir__watch_run *r = arg;
    json_t *event = choir__watch_json(line, bytes);
    const char *kind = json_string_value(json_object_get(event, CHOIR__KEY(line, event)));
    json_t *step = json_object_get(event, CHOIR__KEY(line, step)),
           *time = json_object_get(event, CHOIR__KEY(line, time));
    if (kind && json_is_number(step)) {
        note_time(r, json_is_number(time) ? json_number_value(time) : (double)NAN);
        note_state(r, kind);
        if (!strcmp(kind, choir__kind_eval.name))
            take_eval(r, event, json_number_value(step));
        char **place = &r->told[r->event_count++ % CHOIR__WATCH_EVENTS];
        free(*place);
        *place = choir__watch_json_event(event);
    }
    json_decref(event);
}

/* --- the job --- */

static void look_at_job(choir__watch_run *r)
{
    enum { MOST = 256 * 1024 };
    char *path = choir__format("%s/" CHOIR__JOB_FILE, r->source.path);
    struct stat s;
    if (stat(path, &s) == 0 && S_ISREG(s.st_mode) && s.st_size <= MOST) {
        double changed = (double)s.st_mtim.tv_sec + 1e-9 * (double)s.st_mtim.tv_nsec;
        if (changed < r->job_changed || changed > r->job_changed) {
            json_t *job = choir__watch_json_file(path, MOST);
            free(r->job);
            r->job = json_is_object(job) ? json_dumps(job, JSON_COMPACT | JSON_PRESERVE_ORDER)
                                         : NULL;
            if (r->job) /* an older version's file may have some */
                choir__hide_passwords(r->job);
            json_decref(job);
            r->job_changed = changed;
            r->job_version++;
        }
    }
    free(path);
}

bool choir__watch_run_look(choir__watch_run *r)
{
    look_at_job(r);
    choir__tail_state events = choir__tail_read(&r->events, take_event, r),
                      steps = choir__tail_read(&r->metrics, take_step, r),
                      chain = choir__watch_chain_look(&r->chain);
    if (events == CHOIR__TAIL_ANEW || steps == CHOIR__TAIL_ANEW || chain == CHOIR__TAIL_ANEW) {
        begin_anew(r);
        return true;
    }
    if (r->steps.rows && !strcmp(r->state, "waiting"))
        strcpy(r->state, "running"); /* a loop that logs steps alone */
    return events == CHOIR__TAIL_MORE || steps == CHOIR__TAIL_MORE || chain == CHOIR__TAIL_MORE;
}

/* --- telling --- */

static void put_head(choir__text_buffer *out, const char *event, int id, int64_t generation)
{
    choir__text_format(out, "event: %s\ndata: {", event);
    choir__text_value(out, "id", "%d", id);
    /* no key of the run's: */
    choir__text_value(out, "generation", "%lld", (long long)generation);
}

static void put_time(choir__text_buffer *out, const char *name, double time)
{
    if (isfinite(time))
        choir__text_value(out, name, "%.3f", time);
    else
        choir__text_string(out, name, NULL);
}

static void put_run(
    const choir__watch_run *r, int id, choir__watch_known *known, choir__text_buffer *out)
{
    bool same_time =
        known->last_time == r->last_time || (isnan(known->last_time) && isnan(r->last_time));
    if (known->any && same_time && known->job_version == r->job_version &&
        !strcmp(known->state, r->state))
        return;
    put_head(out, "run", id, r->generation);
    choir__text_string(out, "path", r->source.path); /* no key of the run's */
    choir__text_string(out, "state", r->state);
    put_time(out, "first_time", r->first_time);
    put_time(out, "last_time", r->last_time);
    if (r->job && (!known->any || known->job_version != r->job_version))
        choir__text_value(out, "job", "%s", r->job);
    choir__text_buffer_put(out, "}\n\n");
    known->any = true;
    known->last_time = r->last_time;
    known->job_version = r->job_version;
    memcpy(known->state, r->state, sizeof known->state);
}

/* Device figures are drawn as lines; the others with the range that a bucket covers. */
static bool is_ranged(const char *name)
{
    return strncmp(name, "device/", 7) != 0;
}

static void put_table(const choir__watch_run *r, const char *event, int id,
    const choir__watch_table *t, choir__watch_seen *seen, choir__text_buffer *out)
{
    size_t before = out->used;
    put_head(out, event, id, r->generation);
    if (choir__watch_table_news(t, seen, is_ranged, out)) {
        choir__text_buffer_put(out, "}\n\n");
    } else {
        out->used = before;
        out->bytes[before] = '\0';
    }
}

static void put_events(
    const choir__watch_run *r, int id, choir__watch_known *known, choir__text_buffer *out)
{
    if (known->events == r->event_count)
        return;
    int64_t from = choir__max(known->events, r->event_count - CHOIR__WATCH_EVENTS);
    put_head(out, "events", id, r->generation);
    choir__text_value(out, "from", "%lld", (long long)from);
    choir__text_open(out, "events", '[');
    for (int64_t i = from; i < r->event_count; i++)
        choir__text_value(out, NULL, "%s", r->told[i % CHOIR__WATCH_EVENTS]);
    choir__text_buffer_put(out, "]}\n\n");
    known->events = r->event_count;
}

static void put_chain(
    const choir__watch_run *r, int id, choir__watch_known *known, choir__text_buffer *out)
{
    size_t before = out->used;
    put_head(out, "chain", id, r->generation);
    if (choir__watch_chain_news(&r->chain, &known->chain, out)) {
        choir__text_buffer_put(out, "}\n\n");
    } else {
        out->used = before;
        out->bytes[before] = '\0';
    }
}

void choir__watch_run_news(
    const choir__watch_run *r, int id, choir__watch_known *known, choir__text_buffer *out)
{
    if (known->any && known->generation != r->generation)
        *known = (choir__watch_known){0};
    known->generation = r->generation;
    put_run(r, id, known, out);
    put_table(r, "steps", id, &r->steps, &known->steps, out); /* no key */
    put_table(r, "evals", id, &r->evals, &known->evals, out);
    put_events(r, id, known, out);
    put_chain(r, id, known, out);
}
