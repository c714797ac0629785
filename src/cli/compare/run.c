/* One run of a comparison: `choir train --json` in a separate process, so that no run finds
 * memory, threads or compiled kernels of another. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/flight/flight.h"
#include "line/say.h"
#include "base/text.h"
#include "cli/compare/compare.h"
#include "launch/process/process.h"
#include "record/events.h"

#define TRAIN "choir train: " /* how messages of a run begin */

/* --- devices ---
 *
 * A run's devices over time. Its process and the ones it started publish their figures on
 * boards (base/board/board.h), so the run itself needs no code for this. */

/* Returns the column of a device, or -1 if there are too many devices. */
static int column(choir__compare_watch *w, const char *name)
{
    for (int i = 0; i < w->device_count; i++)
        if (!strcmp(w->device[i], name))
            return i;
    if (w->device_count == CHOIR__MAX_DEVICES)
        return -1;
    snprintf(w->device[w->device_count], sizeof w->device[0], "%s", name);
    return w->device_count++;
}

/* Ranks of one job have a device each, and each sees all: the figures of a name are added. */
static bool add(choir__compare_watch *w, int pid)
{
    choir__seen *seen = choir__flight_read(pid);
    for (int i = 0; seen && i < seen->device_count; i++) {
        int at = column(w, seen->devices[i].name);
        if (at < 0)
            continue;
        w->bytes[w->count * CHOIR__MAX_DEVICES + at] += (double)seen->devices[i].now;
        w->busy_s[w->count * CHOIR__MAX_DEVICES + at] += seen->devices[i].busy_s;
    }
    bool found = seen && seen->device_count > 0;
    choir__seen_free(seen);
    return found;
}

/* Keeps the busy time of processes that have ended. */
static void keep_ended(choir__compare_watch *w)
{
    for (int i = 0; i < w->device_count && w->count; i++) {
        double *now = &w->busy_s[w->count * CHOIR__MAX_DEVICES + i];
        *now = fmax(*now, now[-CHOIR__MAX_DEVICES]);
    }
}

/* Takes a sample of the process and its children. */
static void take_sample(choir__compare_watch *w, int pid)
{
    char path[64], children[1024] = "", *rest = children;
    size_t row = CHOIR__MAX_DEVICES * sizeof(double);
    CHOIR__GROW(w->at, w->count);
    w->bytes = choir__grow(w->bytes, (size_t)w->count, row);
    w->busy_s = choir__grow(w->busy_s, (size_t)w->count, row);
    memset(w->bytes + w->count * CHOIR__MAX_DEVICES, 0, row);
    memset(w->busy_s + w->count * CHOIR__MAX_DEVICES, 0, row);
    w->at[w->count] = choir__now();
    bool found = add(w, pid);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    if (f && fgets(children, sizeof children, f))
        for (long child; (child = strtol(rest, &rest, 10)) > 0;)
            found = add(w, (int)child) || found;
    if (f)
        fclose(f);
    keep_ended(w);
    w->count += found;
}

/* Returns the busy seconds of device i up to a time, interpolated between two samples. */
static double busy_until(const choir__compare_watch *w, int i, double at)
{
    int low = 0, high = w->count - 1;
    if (high < 0 || at <= w->at[0])
        return high < 0 ? 0 : w->busy_s[i];
    if (at >= w->at[high])
        return w->busy_s[high * CHOIR__MAX_DEVICES + i];
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(w->at[middle] <= at ? &low : &high) = middle;
    }
    double a = w->busy_s[low * CHOIR__MAX_DEVICES + i],
           b = w->busy_s[high * CHOIR__MAX_DEVICES + i];
    return a + (b - a) * (at - w->at[low]) / (w->at[high] - w->at[low]);
}

double choir__watch_busy(const choir__compare_watch *w, int i, double from, double to)
{
    double busy = busy_until(w, i, to) - busy_until(w, i, from);
    return fmin(1, fmax(0, busy / (to - from)));
}

void choir__watch_free(choir__compare_watch *w)
{
    if (!w)
        return;
    free(w->at);
    free(w->bytes);
    free(w->busy_s);
    free(w);
}

/* A running process, and its output so far. */
typedef struct run {
    char **argv;
    int out[2], err[2]; /* pipes: read, write */
    choir__text_buffer line;
    char error[600];
    size_t error_length;
    choir__outcome *outcome;
} run;

/* --- in the child --- */

static int become_train(void *arg)
{
    run *r = arg;
    dup2(r->out[1], STDOUT_FILENO);
    dup2(r->err[1], STDERR_FILENO);
    execv("/proc/self/exe", r->argv);
    fprintf(stderr, TRAIN "cannot run it: %s\n", strerror(errno));
    return CHOIR__EXIT_FAILED;
}

/* --- its output --- */

static void take_line(choir__outcome *o, const char *line)
{
    json_t *json = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(json, CHOIR__KEY(line, event)));
    json_t *bits =
        json_object_get(json, CHOIR__KEY(step, loss_bits)); /* null: the step had no target */
    if (event && !strcmp(event, choir__kind_step.name) && bits) {
        CHOIR__GROW(o->bits, o->steps);
        o->bits[o->steps++] = json_is_string(bits)
                                  ? (uint32_t)strtoul(json_string_value(bits), NULL, 16)
                                  : UINT32_MAX;
    } else if (event && !strcmp(event, choir__kind_summary.name)) {
        json_decref(o->summary);
        o->summary = json_incref(json);
    } else if (event && !strcmp(event, choir__kind_plan.name)) {
        json_decref(o->plan);
        o->plan = json_incref(json);
    }
    json_decref(json);
}

static void take_text(run *r, const char *text, size_t bytes)
{
    choir__text_buffer_add(&r->line, text, bytes);
    char *at = r->line.bytes;
    for (char *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = '\0';
        take_line(r->outcome, at);
    }
    choir__text_buffer_drop(&r->line, (size_t)(at - r->line.bytes));
}

/* Reads what the pipe has. Returns false if the other end is closed. */
static bool drain(run *r, int fd)
{
    char text[4096];
    ssize_t got = read(fd, text, sizeof text);
    if (got <= 0)
        return got < 0 && (errno == EINTR || errno == EAGAIN);
    if (fd == r->out[0]) {
        take_text(r, text, (size_t)got);
    } else {
        size_t space = sizeof r->error - 1 - r->error_length;
        size_t taken = (size_t)got < space ? (size_t)got : space;
        memcpy(r->error + r->error_length, text, taken);
        r->error_length += taken;
    }
    return true;
}

/* --- watching it --- */

/* Returns the milliseconds to sleep until the next sample, or until a child that does not stop
 * must be pressed again. */
static int until(const choir__compare_watch *w, double next, int pressing)
{
    if (!w)
        return pressing;
    int ms = (int)ceil(fmax(0, next - choir__now()) * 1e3);
    return pressing >= 0 && pressing < ms ? pressing : ms;
}

/* Returns the first signal that has come; 0: none. */
static int asked_to_stop(void)
{
    choir__signal s;
    int first = 0;
    while (choir__signals_next(&s))
        first = first ? first : s.number;
    return first;
}

/* Attends to the run until it has ended and both pipes are empty. */
static void attend(choir__compare *c, run *r, choir__family *f, choir__compare_watch *w)
{
    struct pollfd at[4];
    bool open[2] = {true, true};
    double next = choir__now();
    while (f->alive || open[0] || open[1]) {
        int pids = choir__family_poll(f, at);
        at[pids] = (struct pollfd){.fd = open[0] ? r->out[0] : -1, .events = POLLIN};
        at[pids + 1] = (struct pollfd){.fd = open[1] ? r->err[0] : -1, .events = POLLIN};
        at[pids + 2] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
        int ready = poll(
            at, (nfds_t)pids + 3, until(f->alive ? w : NULL, next, choir__family_press(f)));
        if (w && f->alive && choir__now() >= next) {
            take_sample(w, f->children[0].pid);
            next = fmax(next + w->interval, choir__now());
        }
        if (ready <= 0)
            continue;
        for (int i = 0; i < 2; i++)
            if (at[pids + i].revents)
                open[i] = drain(r, at[pids + i].fd);
        choir__family_reap(f, at);
        int by = at[pids + 2].revents ? asked_to_stop() : 0;
        if (by) {
            c->interrupted = by;
            choir__family_stop(f);
        }
    }
}

/* Takes the last line of its standard error as the error, without overwritten text before it.
 */
static void settle(run *r, const choir__child *child)
{
    choir__outcome *o = r->outcome;
    char end[96], *text = r->error;
    o->status = choir__end_status(child);
    o->crashed = o->status > 128 && o->status != 128 + SIGINT && o->status != 128 + SIGTERM;
    r->error[r->error_length] = '\0';
    while (r->error_length && r->error[r->error_length - 1] == '\n')
        r->error[--r->error_length] = '\0';
    if (strrchr(text, '\n'))
        text = strrchr(text, '\n') + 1;
    if (!strncmp(text, TRAIN, strlen(TRAIN)))
        text += strlen(TRAIN);
    if (*text && !o->crashed)
        snprintf(o->error, sizeof o->error, "%s", text);
    else
        snprintf(o->error, sizeof o->error, "it %s", choir__end_text(child, end));
}

/* --- starting it --- */

static choir_status open_pipes(run *r)
{
    if (pipe2(r->out, O_CLOEXEC) != 0 || pipe2(r->err, O_CLOEXEC) != 0)
        return choir__error(CHOIR_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    return CHOIR_OK;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

enum { TEXTS = 7 }; /* options that the comparison sets, with values of its own */

/* Lists the user's options, then those that the comparison sets. */
static char **args_of(const char *command, const choir__compare *c,
    const choir__compare_entry *e, int64_t microbatches, int64_t steps,
    char texts[TEXTS][CHOIR__MAX_DEVICES * 16 + 32])
{
    char **argv = choir__calloc((size_t)c->arg_count + TEXTS + 8, sizeof *argv);
    int n = 0;
    argv[n++] = "choir";
    argv[n++] = (char *)command;
    for (int i = 0; i < c->arg_count; i++)
        argv[n++] = c->args[i];
    snprintf(texts[0], sizeof texts[0], "--strategy=%s", e->text);
    snprintf(texts[1], sizeof texts[1], "--devices=%s", c->devices);
    snprintf(texts[2], sizeof texts[2], "--microbatches=%lld", (long long)microbatches);
    snprintf(texts[3], sizeof texts[3], "--steps=%lld", (long long)steps);
    snprintf(texts[4], sizeof texts[4], "--slices=%lld", (long long)c->job.training.slices);
    snprintf(texts[5], sizeof texts[5], "--chunks=%lld", (long long)c->job.training.chunks);
    snprintf(texts[6], sizeof texts[6], "--mesh=%s", e->mesh);
    for (int i = 0; i < TEXTS; i++)
        if ((i != 4 || c->job.training.slices) && (i != 5 || c->job.training.chunks) &&
            (i != 6 || *e->mesh))
            argv[n++] = texts[i];
    argv[n++] = "--json";
    argv[n++] = "--no-eval";
    argv[n++] = "--";
    if (c->job.data.path)
        argv[n++] = (char *)c->job.data.path;
    return argv;
}

static choir_status run_command(const char *command, choir__compare *c,
    const choir__compare_entry *entry, int64_t microbatches, int64_t steps,
    choir__compare_watch *watch, choir__outcome *outcome)
{
    char texts[TEXTS][CHOIR__MAX_DEVICES * 16 + 32];
    run r = {.out = {-1, -1}, .err = {-1, -1}, .outcome = outcome};
    choir__family family;
    *outcome = (choir__outcome){0};
    r.argv = args_of(command, c, entry, microbatches, steps, texts);
    choir__family_init(&family, 1);
    family.grace_s = 0;
    choir_status status = open_pipes(&r);
    if (status == CHOIR_OK)
        status = choir__family_start(&family, 0, become_train, &r);
    shut(&r.out[1]);
    shut(&r.err[1]);
    if (status == CHOIR_OK) {
        attend(c, &r, &family, watch);
        settle(&r, &family.children[0]);
    }
    choir__family_bury(&family);
    choir__family_free(&family);
    shut(&r.out[0]);
    shut(&r.err[0]);
    choir__text_buffer_free(&r.line);
    free(r.argv);
    if (status == CHOIR_OK && c->interrupted)
        return choir__error(CHOIR_ERR_INTERRUPTED, "interrupted");
    return status;
}

choir_status choir__compare_run(choir__compare *c, const choir__compare_entry *entry,
    int64_t microbatches, int64_t steps, choir__compare_watch *watch, choir__outcome *outcome)
{
    return run_command("train", c, entry, microbatches, steps, watch, outcome);
}

choir_status choir__compare_foresee(choir__compare *c, choir__compare_entry *e)
{
    choir__outcome o;
    e->foreseen_items_per_s = e->foreseen_step_ms = NAN;
    choir_status status =
        run_command("plan", c, e, c->job.training.microbatches, c->timed_steps, NULL, &o);
    const json_t *ms = json_object_get(o.plan, CHOIR__KEY(plan, step_ms)),
                 *rate = json_object_get(o.plan, CHOIR__KEY(plan, items_per_s));
    if (json_is_number(ms) && json_is_number(rate)) {
        e->foreseen_step_ms = json_number_value(ms);
        e->foreseen_items_per_s = json_number_value(rate);
    }
    choir__outcome_free(&o);
    return status;
}
