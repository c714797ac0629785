/* A trial that runs as a process: its streams are cut into lines, metrics are read from lines
 * of JSON, the last lines of standard error are kept for the reason of a failure, and a trial
 * that takes more memory than it may is killed. */
#include "tune/trials/running.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/number.h"
#include "record/events.h"
#include "record/json_value.h"
#include "tune/python_json.h"
#include "tune/trial.h"
#include "tune/trials/ended.h"
#include "tune/trials/memory.h"

/* READS at a time are more than a pipe holds. */
enum { LONGEST_LINE = 1 << 20, READS = 64, MIB = 1 << 20 };

static const double late_s = 1;    /* for the output of processes that the first one has left */
static const double weigh_s = 0.2; /* between looks at the trial's memory */

/* --- reading --- */

static bool is_event(const json_t *object, const char *name)
{
    const json_t *event = json_object_get(object, CHOIR__KEY(line, event));
    return json_is_string(event) && !strcmp(json_string_value(event), name);
}

/* Stores the number that a value is, NaN for null and the like. A text is one if it is NaN or
 * Infinity, which Python writes; returns false for another one. */
static bool read_number(const json_t *value, double *number)
{
    const char *text = json_string_value(value);
    char *end = NULL;
    *number = text                    ? choir__number_read(text, &end)
              : json_is_number(value) ? json_number_value(value)
                                      : (double)NAN;
    return value && (!text || (*text && !*end && !isfinite(*number)));
}

/* Stores a metric of a line; {"event":"eval","loss":x} has an eval_loss. Returns false if the
 * line has none, as {"event":"step","loss":null,"loss_bits":null}: a step without a target. */
static bool read_metric(const json_t *object, const char *metric, double *number)
{
    static const char prefix[] = "eval_";
    const json_t *value = json_object_get(object, metric);
    if (!strcmp(metric, CHOIR__KEY(step, loss)) &&
        json_is_null(json_object_get(object, CHOIR__KEY(step, loss_bits))))
        return false;
    if (!value && is_event(object, choir__kind_eval.name) &&
        !strncmp(metric, prefix, strlen(prefix)))
        value = json_object_get(object, metric + strlen(prefix));
    return read_number(value, number);
}

static void report(choir__running *r, const json_t *object)
{
    const json_t *step = json_object_get(object, r->job->unit);
    if (!step && is_event(object, choir__kind_summary.name)) { /* "steps" */
        char *all = choir__format("%ss", r->job->unit);
        step = json_object_get(object, all);
        free(all);
    }
    int64_t n = json_is_integer(step) ? json_integer_value(step) : -1;
    if (r->refused)
        return;
    /* a whole number beyond an int64_t was read as a real one */
    if (json_is_real(step) && json_real_value(step) >= 0x1p63)
        r->refused =
            choir__format("printed a wrong %s: expected a step of at most %lld, got %.17g",
                r->job->unit, (long long)CHOIR__MOST_STEP, json_real_value(step));
    if (n < 0)
        return;
    if (choir_trial_report(r->base.trial, n, r->value[0]) == CHOIR_OK)
        r->step = n;
    else
        r->refused = choir__format("printed a wrong %s: %s", r->job->unit, choir__message());
}

/* Takes the metrics from a line of standard output. */
static void take_output(choir__running *r, const char *line)
{
    if (line[strspn(line, " \t")] != '{')
        return;
    json_t *object = choir__python_json(line, false);
    for (int i = 0; i < r->job->metrics; i++) {
        double number;
        if (!read_metric(object, r->job->metric[i], &number))
            continue;
        r->value[i] = number;
        r->has_value[i] = true;
        if (i == 0)
            report(r, object);
    }
    json_decref(object);
}

/* Keeps a line of standard error among the last ones. */
static void keep_line(choir__running *r, const char *line)
{
    if (r->line_count == CHOIR__LAST_LINES) {
        free(r->lines[0]);
        memmove(r->lines, r->lines + 1, (CHOIR__LAST_LINES - 1) * sizeof *r->lines);
        r->line_count--;
    }
    r->lines[r->line_count++] = choir__clean(choir__strdup(line));
}

static void take_line(choir__running *r, choir__trial_stream *s)
{
    s->line[s->bytes] = '\0';
    s->bytes = 0;
    char first = s->line[strspn(s->line, " \t\r")];
    if (s == &r->out)
        take_output(r, s->line);
    if (first && s == &r->err) {
        keep_line(r, s->line);
    } else if (first && first != '{') {
        free(r->last_output);
        r->last_output = choir__clean(choir__strdup(s->line));
    }
}

/* Splits a stream into lines; the rest of a line beyond LONGEST_LINE is lost. */
static void take_bytes(
    choir__running *r, choir__trial_stream *s, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (!s->line)
            s->line = choir__alloc(LONGEST_LINE + 1);
        if (from[i] == '\n')
            take_line(r, s);
        else if (s->bytes < LONGEST_LINE)
            s->line[s->bytes++] = from[i];
    }
}

/* A full disk loses the copy, not the trial. */
static void copy_bytes(choir__trial_stream *s, const char *from, size_t bytes)
{
    while (s->file >= 0 && bytes) {
        ssize_t n = write(s->file, from, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            close(s->file);
            s->file = -1;
            return;
        }
        from += n, bytes -= (size_t)n;
    }
}

static void close_stream(choir__running *r, choir__trial_stream *s)
{
    if (s->bytes)
        take_line(r, s);
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* Reads until nothing is left for now, or it was much. */
static void read_stream(choir__running *r, choir__trial_stream *s)
{
    char buffer[1 << 14];
    for (int reads = 0; s->fd >= 0 && reads < READS; reads++) {
        ssize_t n = read(s->fd, buffer, sizeof buffer);
        if (n > 0) {
            copy_bytes(s, buffer, (size_t)n);
            take_bytes(r, s, buffer, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close_stream(r, s);
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

int choir__running_poll(const choir__attempt *a, struct pollfd polled[CHOIR__ATTEMPT_FDS])
{
    const choir__running *r = (const choir__running *)a;
    polled[0] = (struct pollfd){.fd = r->out.fd, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = r->err.fd, .events = POLLIN};
    return 2;
}

/* Returns whether nothing more is read of a trial whose process has ended. */
static bool is_over(choir__running *r)
{
    double now = choir__now();
    bool closed = r->out.fd < 0 && r->err.fd < 0;
    if (!r->ended)
        r->ended = now;
    if (!closed && !r->base.family.pressed && now - r->ended < late_s)
        return false;
    close_stream(r, &r->out);
    close_stream(r, &r->err);
    return true;
}

/* Kills a trial that takes more memory than it may, before it takes other trials' memory. */
static void weigh(choir__running *r)
{
    if (!r->job->memory_max || r->bytes || r->stopped || choir__now() - r->weighed < weigh_s)
        return;
    r->weighed = choir__now();
    r->bytes = choir__memory_beyond(r->base.family.children[0].pid, r->job->memory_max);
    if (r->bytes) {
        choir__family_stop(&r->base.family);
        choir__family_signal(&r->base.family, SIGKILL);
    }
}

bool choir__running_look(choir__attempt *a)
{
    choir__running *r = (choir__running *)a;
    read_stream(r, &r->out);
    read_stream(r, &r->err);
    if (!a->family.alive)
        return is_over(r);
    if (!r->stopped && (r->refused || choir_trial_should_stop(a->trial))) {
        r->stopped = true;
        choir__family_stop(&a->family);
    }
    weigh(r);
    return false;
}

int choir__running_patience(const choir__attempt *a)
{
    const choir__running *r = (const choir__running *)a;
    double left = r->ended > 0 ? late_s - (choir__now() - r->ended) : weigh_s;
    return r->ended > 0 || r->job->memory_max ? choir__in_ms(left) : -1;
}

/* --- the end --- */

/* Returns why a process that ended well has no valid values, or NULL. */
static char *why_no_value(const choir__running *r)
{
    for (int i = 0; i < r->job->metrics; i++) {
        if (!r->has_value[i])
            return choir__format(
                "printed no line of JSON with a number \"%s\"", r->job->metric[i]);
        if (!isfinite(r->value[i]))
            return choir__trial_no_number(r->job->metric[i], r->value[i]);
    }
    if (r->job->pauses && choir_trial_last_step(r->base.trial) < 0)
        return choir__format("printed no line of JSON with \"%s\" and a whole number \"%s\"",
            r->job->metric[0], r->job->unit);
    return NULL;
}

/* Takes the value of the last report that this segment has from an earlier one, which ran past
 * its budget: whether a program is stopped at once must not show in the table. */
static bool takes_late_value(choir__running *r)
{
    int64_t count = choir_trial_reports(r->base.trial, NULL, NULL, 0);
    if (count <= r->base.trial->before)
        return false;
    double *values = choir__calloc((size_t)count, sizeof *values);
    choir_trial_reports(r->base.trial, NULL, values, count);
    r->value[0] = values[count - 1];
    free(values);
    return true;
}

/* Notes more than the reason has room for. */
static void note_lines(const choir__running *r)
{
    json_t *lines = json_array();
    for (int i = 0; i < r->line_count; i++)
        json_array_append_new(lines, choir__json_string(r->lines[i]));
    char *text = json_dumps(lines, JSON_COMPACT);
    if (r->line_count > 1)
        (void)!choir_trial_set_attribute(r->base.trial, CHOIR__LINES_KEY, text);
    free(text);
    json_decref(lines);
}

/* Returns why a process failed, or NULL. */
static char *why_failed(const choir__running *r)
{
    char text[96];
    const choir__child *c = &r->base.family.children[0];
    const char *words = r->line_count ? r->lines[r->line_count - 1] : r->last_output;
    if (r->refused)
        return choir__strdup(r->refused);
    if (r->bytes)
        return choir__format("took %.4g MiB of memory, more than the %.4g MiB of a trial",
            (double)r->bytes / MIB, (double)r->job->memory_max / MIB);
    if (choir__end_status(c) == 0)
        return NULL;
    return choir__format("%s%s%s%s", choir__end_text(c, text),
        !c->starved && choir__memory_kills() > r->memory_kills ? ", and memory ran out" : "",
        words ? ": " : "", words ? words : "");
}

choir__trial_end choir__running_end(choir__attempt *a, char *why)
{
    choir__running *r = (choir__running *)a;
    choir__trial_end end = {.state = CHOIR_TRIAL_COMPLETE, .why = why};
    bool stopped = !why && !r->refused && !r->bytes && choir_trial_should_stop(a->trial);
    if (!end.why && !stopped)
        end.why = why_failed(r);
    bool had_ended = !r->has_value[0] && r->job->pauses && choir_trial_last_step(a->trial) >= 0;
    if (stopped || (!end.why && had_ended && !takes_late_value(r)))
        end.state = CHOIR_TRIAL_PRUNED;
    else if (!end.why && !had_ended)
        end.why = why_no_value(r);
    if (end.why) {
        note_lines(r);
        end.state = CHOIR_TRIAL_FAIL;
    }
    memcpy(end.values, r->value, sizeof end.values);
    return end;
}

void choir__running_clear(choir__attempt *a)
{
    choir__running *r = (choir__running *)a;
    char *mark = choir__running_mark(choir_trial_number(a->trial), getpid());
    if (r->job->warden && a->family.children[0].pid)
        choir__warden_forget(r->job->warden, a->family.children[0].pid);
    choir__family_bury(&a->family);
    choir__kill_orphans(mark);
    free(mark);
    read_stream(r, &r->out); /* a killed trial's reports count when it is resumed */
    close_stream(r, &r->out);
    close_stream(r, &r->err);
    if (r->out.file >= 0)
        close(r->out.file);
    if (r->err.file >= 0)
        close(r->err.file);
    free(r->out.line);
    free(r->err.line);
    for (int i = 0; i < r->line_count; i++)
        free(r->lines[i]);
    free(r->last_output);
    free(r->refused);
    free(r->dir);
}
