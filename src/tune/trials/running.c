/* A trial that runs as a process: see running.h. */
#include "tune/trials/running.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "tune/trial.h"
#include "tune/trials/checkpoints.h"
#include "tune/trials/command.h"

/* READS at a time are more than a pipe holds. */
enum { LONGEST_LINE = 1 << 20, NOT_STARTED = 127, READS = 64 };

static const double late_s = 1; /* for the output of processes that the first one has left */

/* --- starting --- */

/* The child's arguments, which it reads after the fork. */
typedef struct child {
    char **line;
    const char *dir, *params;
    int64_t number, step, budget;
    int out, err;
    struct rlimit files;
} child;

static void set_number(const char *name, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    setenv(name, text, 1);
}

static int be_child(void *arg)
{
    const child *c = arg;
    set_number("CHOIR_TRIAL_NUMBER", c->number);
    set_number("CHOIR_TRIAL_STEP", choir__max(c->step, 0));
    if (c->budget)
        set_number("CHOIR_TRIAL_BUDGET", c->budget);
    else
        unsetenv("CHOIR_TRIAL_BUDGET");
    setenv("CHOIR_TRIAL_PARAMS", c->params, 1);
    if (c->dir)
        setenv("CHOIR_TRIAL_DIR", c->dir, 1);
    else
        unsetenv("CHOIR_TRIAL_DIR"); /* may be inherited from an outer trial */
    setrlimit(RLIMIT_NOFILE, &c->files);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, STDIN_FILENO);
    dup2(c->out, STDOUT_FILENO);
    dup2(c->err, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    execvp(c->line[0], c->line);
    fprintf(stderr, "cannot run %s: %s\n", c->line[0], choir__why(errno));
    return NOT_STARTED;
}

/* Returns the trial's parameters as a JSON object, which the caller frees. */
static char *params_json(const choir_space *space, const choir_trial *t)
{
    json_t *object = json_object();
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *text = choir_trial_text(t, name);
        double x = choir_trial_real(t, name);
        if (!text)
            continue;
        bool whole = x == floor(x) && fabs(x) <= 0x1p53;
        json_t *value = isnan(x) ? json_stringn_nocheck(text, strlen(text))
                        : whole  ? json_integer((json_int_t)x)
                                 : json_real(x);
        json_object_set_new(object, name, value);
    }
    char *text = json_dumps(object, JSON_COMPACT);
    json_decref(object);
    return text;
}

/* Opens a pipe whose end here does not block, and the file that gets a copy. */
static choir_status open_stream(
    choir__trial_stream *s, const char *dir, const char *name, int *childs)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC))
        return choir__error(CHOIR_ERR_IO, "cannot make a pipe: %s", choir__why(errno));
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    s->fd = fd[0];
    *childs = fd[1];
    if (!dir)
        return CHOIR_OK;
    char *path = choir__format("%s/%s", dir, name);
    s->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    choir_status status = CHOIR_OK;
    if (s->file < 0)
        status = choir__error(CHOIR_ERR_IO, "cannot write %s: %s", path, choir__why(errno));
    free(path);
    return status;
}

static choir_status make_dir(choir__running *r)
{
    if (!r->job->dir)
        return CHOIR_OK;
    r->dir = choir__format("%s/%lld", r->job->dir, (long long)choir_trial_number(r->trial));
    if (mkdir(r->dir, 0777) && errno != EEXIST)
        return choir__error(
            CHOIR_ERR_IO, "cannot make the folder %s: %s", r->dir, choir__why(errno));
    return CHOIR_OK;
}

struct rlimit choir__running_room(void)
{
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    struct rlimit most = {before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &most);
    return before;
}

static choir_status start(choir__running *r)
{
    const choir__trial_job *job = r->job;
    const choir_trial *trial = r->trial;
    child c = {.number = choir_trial_number(trial),
        .step = choir_trial_step(trial),
        .budget = choir_trial_budget(trial),
        .out = -1,
        .err = -1,
        .files = job->files};
    choir_status status = make_dir(r);
    if (status == CHOIR_OK && choir_trial_parent(trial) >= 0 && job->copies)
        status =
            choir__checkpoint_inherit(job->dir, c.number, choir_trial_parent(trial), c.step);
    if (status == CHOIR_OK)
        status = open_stream(&r->out, r->dir, "stdout", &c.out);
    if (status == CHOIR_OK)
        status = open_stream(&r->err, r->dir, "stderr", &c.err);
    c.dir = r->dir;
    char *checkpoint = job->pauses ? choir__checkpoint_path(job->dir, c.number) : NULL;
    c.line = choir__command_of(job->command, job->space, trial, r->dir, checkpoint);
    free(checkpoint);
    char *params = params_json(job->space, trial);
    c.params = params;
    if (status == CHOIR_OK)
        status = choir__family_start(&r->family, 0, be_child, &c);
    if (c.out >= 0)
        close(c.out);
    if (c.err >= 0)
        close(c.err);
    choir__command_free(c.line);
    free(params);
    return status;
}

choir_status choir__running_start(
    choir__running *r, const choir__trial_job *job, choir_trial *trial)
{
    *r = (choir__running){.job = job,
        .trial = trial,
        .step = -1,
        .started = choir__now(),
        .out = {-1, -1, NULL, 0},
        .err = {-1, -1, NULL, 0}};
    choir__family_init(&r->family, 1);
    r->family.own_groups = true;
    r->family.grace_s = 0;
    r->family.patience_s = 30;
    if (start(r) != CHOIR_OK)
        r->cannot = choir__strdup(choir__message());
    return CHOIR_OK;
}

/* --- reading --- */

/* Parses a line. JSON has no NaN and no infinity, which Python writes: they become null. */
static json_t *parse_line(const char *line)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    json_t *object = json_loads(line, 0, NULL);
    if (object)
        return object;
    char *copy = choir__strdup(line);
    for (size_t i = 0; i < CHOIR_COUNT(words); i++)
        for (char *at = copy; (at = strstr(at, words[i]));) {
            size_t length = strlen(words[i]);
            if (length < 4) { /* no room for null: an empty object is no number, either */
                memcpy(at, "{ }", 3);
            } else {
                memset(at, ' ', length);
                memcpy(at, "null", 4);
            }
        }
    object = json_loads(copy, 0, NULL);
    free(copy);
    return object;
}

/* Takes the metric from a line of standard output. A value that is no number, such as null, is
 * one that is not finite. */
static void take_output(choir__running *r, const char *line)
{
    if (line[strspn(line, " \t")] != '{')
        return;
    json_t *object = parse_line(line);
    const json_t *value = json_object_get(object, r->job->metric);
    const json_t *step = json_object_get(object, "step"),
                 *event = json_object_get(object, "event");
    static const char prefix[] = "eval_"; /* {"event":"eval","loss":x} is an eval_loss */
    if (!step && json_is_string(event) && !strcmp(json_string_value(event), "summary"))
        step = json_object_get(object, "steps");
    if (!value && json_is_string(event) && !strcmp(json_string_value(event), "eval") &&
        !strncmp(r->job->metric, prefix, strlen(prefix)))
        value = json_object_get(object, r->job->metric + strlen(prefix));
    if (value && !json_is_string(value)) {
        r->value = json_is_number(value) ? json_number_value(value) : (double)NAN;
        r->has_value = true;
        if (json_is_integer(step) && json_integer_value(step) >= 0) {
            r->step = json_integer_value(step);
            if (choir_trial_report(r->trial, r->step, r->value) != CHOIR_OK)
                r->step = -1;
        }
    }
    json_decref(object);
}

static void take_line(choir__running *r, choir__trial_stream *s)
{
    s->line[s->bytes] = '\0';
    s->bytes = 0;
    if (s == &r->out) {
        take_output(r, s->line);
    } else if (s->line[strspn(s->line, " \t\r")]) {
        free(r->last_error);
        r->last_error = choir__clean(choir__strdup(s->line));
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

int choir__running_poll(const choir__running *r, struct pollfd polled[CHOIR__RUNNING_FDS])
{
    polled[0] = (struct pollfd){.fd = r->out.fd, .events = POLLIN};
    polled[1] = (struct pollfd){.fd = r->err.fd, .events = POLLIN};
    choir__family_poll(&r->family, &polled[2]);
    return CHOIR__RUNNING_FDS;
}

/* Returns whether nothing more is read of a trial whose process has ended. */
static bool is_over(choir__running *r)
{
    double now = choir__now();
    bool closed = r->out.fd < 0 && r->err.fd < 0;
    if (!r->ended)
        r->ended = now;
    if (!closed && !r->family.pressed && now - r->ended < late_s)
        return false;
    close_stream(r, &r->out);
    close_stream(r, &r->err);
    return true;
}

bool choir__running_look(choir__running *r)
{
    struct pollfd polled;
    if (r->cannot)
        return true;
    choir__family_poll(&r->family, &polled);
    poll(&polled, 1, 0);
    choir__family_reap(&r->family, &polled);
    read_stream(r, &r->out);
    read_stream(r, &r->err);
    if (!r->family.alive)
        return is_over(r);
    if (!r->stopped && choir_trial_should_stop(r->trial)) {
        r->stopped = true;
        choir__family_stop(&r->family);
    }
    if (r->job->timeout_s > 0 && !r->timed_out && !r->stopped &&
        choir__now() - r->started > r->job->timeout_s) {
        r->timed_out = true;
        choir__family_stop(&r->family);
    }
    choir__family_press(&r->family);
    return false;
}

static int in_ms(double seconds)
{
    return seconds <= 0 ? 0 : seconds > 3600 ? 3600000 : (int)(seconds * 1e3) + 1;
}

int choir__running_patience(const choir__running *r)
{
    if (r->cannot)
        return 0;
    if (r->ended > 0)
        return in_ms(late_s - (choir__now() - r->ended));
    if (r->family.stopping_at > 0)
        return 100;
    if (r->job->timeout_s <= 0)
        return -1;
    return in_ms(r->job->timeout_s - (choir__now() - r->started));
}

/* --- the end --- */

choir_trial_state choir__running_end(const choir__running *r, char **why)
{
    char text[96];
    const choir__child *c = &r->family.children[0];
    *why = NULL;
    if (!r->cannot && !r->timed_out && choir_trial_should_stop(r->trial))
        return CHOIR_TRIAL_PRUNED;
    bool ended = !choir__end_status(c) && r->job->pauses;
    if (r->cannot)
        *why = choir__format("could not be started: %s", r->cannot);
    else if (r->timed_out)
        *why = choir__format("took longer than %g s", r->job->timeout_s);
    else if (choir__end_status(c) != 0)
        *why = r->last_error ? choir__format("%s: %s", choir__end_text(c, text), r->last_error)
                             : choir__strdup(choir__end_text(c, text));
    else if (!r->has_value && ended && choir_trial_last_step(r->trial) >= 0)
        return CHOIR_TRIAL_PRUNED; /* nothing was left to be done */
    else if (!r->has_value)
        *why = choir__format("printed no line of JSON with a number \"%s\"", r->job->metric);
    else if (isnan(r->value))
        *why = choir__format("%s is not a number", r->job->metric);
    return *why ? CHOIR_TRIAL_FAIL : CHOIR_TRIAL_COMPLETE;
}

void choir__running_free(choir__running *r)
{
    choir__family_bury(&r->family);
    choir__family_free(&r->family);
    close_stream(r, &r->out);
    close_stream(r, &r->err);
    if (r->out.file >= 0)
        close(r->out.file);
    if (r->err.file >= 0)
        close(r->err.file);
    free(r->out.line);
    free(r->err.line);
    free(r->last_error);
    free(r->cannot);
    free(r->dir);
}
