/* A run folder: what a training leaves for people, and for `choir plot` and other readers.
 *
 *     DIR/job.json        the job, as text
 *     DIR/metrics.jsonl   {"step":1,"time":1764000000.25,"loss":4.1,"lr":0.001,...}
 *     DIR/events.jsonl    {"event":"eval","step":50,"time":...,"loss":2.5,"accuracy":null}
 *
 * A line of metrics is one row. Lines are added with one write() each and ascend by step, so
 * other processes can read the files while they grow. A run that continues after step N first
 * drops the rows, evaluations, checkpoints and epochs after N, which it will make again;
 * failures and changes of the ranks stay, since they did happen. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "base/files/temp_file.h"
#include "record/lines.h"
#include "record/recorder.h"

typedef struct run_folder {
    choir__recorder base;
    char *folder;
    choir__lines metrics, events;
    choir__text_buffer text; /* text of a line */
} run_folder;

/* --- what stays --- */

/* Finds "KEY": in a line that this file wrote, and returns the address of its value. */
static const char *value_of(const char *line, size_t bytes, const char *key)
{
    char quoted[32];
    int length = snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = memmem(line, bytes, quoted, (size_t)length);
    return at ? at + length : NULL;
}

/* The records that do not stay. */
typedef struct dropped {
    int64_t resume, steps; /* steps that stay; steps that are dropped */
    bool evaluates_again;  /* the evaluation after the last step that stays is dropped */
    double seconds, until; /* time that they took; of the last one */
} dropped;

static double number_of(const char *line, size_t bytes, const char *key)
{
    const char *value = value_of(line, bytes, key);
    char *end = NULL;
    double x = value ? choir__number_read(value, &end) : 0;
    return end != value && isfinite(x) ? x : 0;
}

static bool row_stays(const char *line, size_t bytes, void *arg)
{
    dropped *d = arg;
    const char *step = value_of(line, bytes, CHOIR__KEY(line, step));
    bool stays = step && strtoll(step, NULL, 10) <= d->resume;
    if (!stays && step) {
        d->steps++;
        d->seconds += number_of(line, bytes, CHOIR__KEY(step, step_s));
        d->until = fmax(d->until, number_of(line, bytes, CHOIR__KEY(line, time)));
    }
    return stays;
}

static bool is_kind(const char *line, size_t bytes, const char *name)
{
    const char *kind = value_of(line, bytes, CHOIR__KEY(line, event));
    size_t length = strlen(name);
    return kind && *kind == '"' && !strncmp(kind + 1, name, length) && kind[1 + length] == '"';
}

static bool event_stays(const char *line, size_t bytes, dropped *d)
{
    const char *step = value_of(line, bytes, CHOIR__KEY(line, step));
    bool again = d->evaluates_again && is_kind(line, bytes, choir__kind_eval.name),
         stays = step && strtoll(step, NULL, 10) <= d->resume - again;
    if (!stays)
        d->seconds += number_of(line, bytes, CHOIR__KEY(eval, eval_s)) +
                      number_of(line, bytes, CHOIR__KEY(checkpoint, save_s));
    return stays;
}

static bool is_made_again(const char *line, size_t bytes)
{
    static const choir__event_kind *const again[] = {
        &choir__kind_eval, &choir__kind_checkpoint, &choir__kind_epoch};
    for (size_t i = 0; i < CHOIR_COUNT(again); i++)
        if (is_kind(line, bytes, again[i]->name))
            return true;
    return false;
}

/* Rewrites a file of events without those that will be made again. */
static choir_status drop_events(const char *path, dropped *d)
{
    FILE *from = choir__file_try_stream(path);
    if (!from)
        return CHOIR_OK;
    char *line = NULL;
    size_t room = 0;
    choir__temp_file fresh;
    FILE *to = choir__temp_file_begin(&fresh, path);
    for (ssize_t n; to && (n = getline(&line, &room, from)) > 0;) {
        bool whole = line[n - 1] == '\n';
        if (whole && !(is_made_again(line, (size_t)n) && !event_stays(line, (size_t)n, d)))
            fwrite(line, 1, (size_t)n, to);
    }
    int unread = ferror(from) ? EIO : 0, error = choir__temp_file_end(&fresh, !unread, false);
    error = unread ? unread : error;
    fclose(from);
    free(line);
    return error ? choir__record_failed(path, error) : CHOIR_OK;
}

static bool any_stays(const char *line, size_t bytes, void *arg)
{
    (void)line, (void)bytes, (void)arg;
    return true;
}

/* --- the recorder --- */

static choir_status end(choir__recorder *base, bool good)
{
    run_folder *r = (run_folder *)base;
    (void)good;
    choir_status status = choir__lines_close(&r->metrics),
                 also = choir__lines_close(&r->events);
    choir__text_buffer_free(&r->text);
    free(r->folder);
    free(r);
    return status == CHOIR_OK ? also : status;
}

static choir_status add_line(choir__lines *to, choir__text_buffer *line)
{
    choir__text_buffer_put(line, "\n");
    return choir__lines_add(to, line->bytes, line->used);
}

/* Begins the line of an event. */
static void begin_event(run_folder *r, const char *kind, int64_t step, double time)
{
    choir__text_buffer_clear(&r->text);
    choir__text_open(&r->text, NULL, '{');
    choir__text_string(&r->text, CHOIR__KEY(line, event), kind);
    choir__text_value(&r->text, CHOIR__KEY(line, step), "%lld", (long long)step);
    choir__text_value(&r->text, CHOIR__KEY(line, time), "%.6f", time);
}

static choir_status tell_repeat(run_folder *r, const dropped *d)
{
    begin_event(r, choir__kind_repeat.name, d->resume, choir__wall_time());
    choir__text_value(&r->text, CHOIR__KEY(repeat, steps), "%lld", (long long)d->steps);
    choir__text_buffer_number(&r->text, CHOIR__KEY(repeat, took_s), d->seconds);
    choir__text_buffer_number(&r->text, CHOIR__KEY(repeat, until), d->until);
    choir__text_close(&r->text, '}');
    return add_line(&r->events, &r->text);
}

static choir_status open_files(run_folder *r, int64_t resume, bool evaluates_again)
{
    char *metrics = choir__format("%s/" CHOIR__METRICS_FILE, r->folder),
         *events = choir__format("%s/" CHOIR__EVENTS_FILE, r->folder);
    dropped d = {.resume = resume, .evaluates_again = evaluates_again};
    choir_status status =
        choir__lines_open(&r->metrics, metrics, resume < 0 ? NULL : row_stays, &d);
    if (status == CHOIR_OK && resume >= 0)
        status = drop_events(events, &d);
    if (status == CHOIR_OK)
        status = choir__lines_open(&r->events, events, resume < 0 ? NULL : any_stays, NULL);
    if (status == CHOIR_OK && d.steps)
        status = tell_repeat(r, &d);
    free(metrics);
    free(events);
    return status;
}

static choir_status open_folder(
    const char *place, const choir__record_start *start, choir__recorder **made)
{
    int error = choir__folders_make(place);
    if (error)
        return choir__error(
            CHOIR_ERR_IO, "cannot write a run's records to %s: %s", place, choir__why(error));
    run_folder *r = choir__calloc(1, sizeof *r);
    r->base.ops = &choir__recorder_run;
    r->folder = choir__strdup(place);
    choir_status status = open_files(r, start->resume, start->evaluates_again);
    *made = &r->base;
    return status;
}

/* Writes job.json, whole or not at all. */
static choir_status begin(choir__recorder *base, const json_t *params, const char *job)
{
    run_folder *r = (run_folder *)base;
    if (!job && !json_object_size(params))
        return CHOIR_OK; /* events alone are added: the job that is there stays */
    char *path = choir__format("%s/" CHOIR__JOB_FILE, r->folder);
    char *text =
        job ? choir__strdup(job) : json_dumps(params, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    char *line = choir__format("%s\n", text);
    int error = choir__temp_file_write(path, line, strlen(line), false);
    choir_status status = error ? choir__record_failed(path, error) : CHOIR_OK;
    free(line);
    free(text);
    free(path);
    return status;
}

static choir_status step(choir__recorder *base, const choir__row *row)
{
    run_folder *r = (run_folder *)base;
    choir__text_buffer_clear(&r->text);
    choir__text_open(&r->text, NULL, '{');
    choir__text_value(&r->text, CHOIR__KEY(line, step), "%lld", (long long)row->step);
    choir__text_value(&r->text, CHOIR__KEY(line, time), "%.6f", row->time);
    for (int i = 0; i < row->count; i++)
        choir__text_buffer_number(&r->text, row->numbers[i].name, row->numbers[i].value);
    choir__text_close(&r->text, '}');
    return add_line(&r->metrics, &r->text);
}

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    run_folder *r = (run_folder *)base;
    char *fields = json_dumps(e->fields, JSON_COMPACT | JSON_PRESERVE_ORDER);
    begin_event(r, e->kind, e->step, e->time);
    choir__text_buffer_put(&r->text, json_object_size(e->fields) ? "," : "");
    choir__text_buffer_put(&r->text, fields + 1); /* with the brace at its end */
    free(fields);
    return add_line(&r->events, &r->text);
}

const choir__recorder_ops choir__recorder_run = {
    .name = "run",
    .place = "DIR",
    .help = "a run folder, as --run makes it: metrics.jsonl, events.jsonl, job.json",
    .open = open_folder,
    .begin = begin,
    .step = step,
    .event = event,
    .end = end,
};
