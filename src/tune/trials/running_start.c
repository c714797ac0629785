/* How a trial's process begins: its folder, checkpoint, streams, environment and devices. */
#include "base/files/file.h"
#include "tune/trials/running.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/number.h"
#include "record/json_value.h"
#include "tune/study.h"
#include "tune/trial.h"
#include "tune/trials/checkpoints.h"
#include "tune/trials/command.h"
#include "tune/trials/ended.h"
#include "tune/trials/memory.h"

enum { NOT_STARTED = 127 }; /* a shell's exit status */

/* The child's arguments, which it reads after the fork. */
typedef struct child {
    char **line;
    const char *dir, *params, *unit;
    int64_t number, step, budget;
    int out, err;
    struct rlimit files;
    const choir__device_share *share; /* NULL: it is not bound to devices */
} child;

char *choir__running_mark(int64_t number, pid_t search)
{
    return choir__format(CHOIR__TRIAL_MARK "%d/%lld", (int)search, (long long)number);
}

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
    putenv(choir__running_mark(c->number, getppid()));
    set_number("CHOIR_TRIAL_STEP", choir__max(c->step, 0));
    if (c->budget)
        set_number("CHOIR_TRIAL_BUDGET", c->budget);
    else
        unsetenv("CHOIR_TRIAL_BUDGET");
    setenv("CHOIR_TRIAL_PARAMS", c->params, 1);
    setenv("CHOIR_TRIAL_UNIT", c->unit, 1);
    char *dir = c->dir ? realpath(c->dir, NULL) : NULL; /* a program may change its folder */
    if (c->dir)
        setenv("CHOIR_TRIAL_DIR", dir ? dir : c->dir, 1);
    else
        unsetenv("CHOIR_TRIAL_DIR"); /* may be inherited from an outer trial */
    if (c->share)
        choir__device_share_enter(c->share);
    else
        unsetenv("CHOIR_TRIAL_DEVICES");
    choir__memory_offer();
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

/* Writes a text as JSON. */
static void write_text(FILE *out, const char *text)
{
    json_t *value = choir__json_string(text);
    char *json = json_dumps(value, JSON_ENCODE_ANY);
    fputs(json, out);
    free(json);
    json_decref(value);
}

/* Returns the trial's parameters as a JSON object, which the caller frees. */
static char *params_json(const choir_space *space, const choir_trial *t)
{
    char *json = NULL, number[CHOIR__NUMBER_TEXT];
    size_t bytes;
    FILE *out = open_memstream(&json, &bytes);
    const char *sign = "{";
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i), *text = choir_trial_text(t, name);
        double x = choir_trial_real(t, name);
        if (!text)
            continue;
        fputs(sign, out);
        sign = ",";
        write_text(out, name);
        fputc(':', out);
        if (isnan(x))
            write_text(out, text);
        else
            fwrite(number, 1, (size_t)choir__number_text(x, number), out);
    }
    fputs(*sign == '{' ? "{}" : "}", out);
    fclose(out);
    return json;
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
    s->file = choir__file_try(path, O_WRONLY | O_CREAT | O_APPEND, CHOIR__FILE_OUTPUT);
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
    r->dir =
        choir__format("%s/%lld", r->job->dir, (long long)choir_trial_number(r->base.trial));
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

/* Provides the checkpoint with which the trial's segment begins, and a copy of it. */
static choir_status prepare_checkpoint(const choir__trial_job *job, const choir_trial *t)
{
    int64_t number = choir_trial_number(t), step = choir_trial_step(t);
    bool first = t->parts == 1;
    choir_status status = CHOIR_OK;
    if (t->retaken)
        status = choir__checkpoint_restore(job->dir, number, first, step);
    if (status == CHOIR_OK && first && choir_trial_parent(t) >= 0 && job->copies)
        status = choir__checkpoint_inherit(job->dir, number, choir_trial_parent(t), step);
    if (status == CHOIR_OK && !first && t->study->kept)
        status = choir__checkpoint_keep(job->dir, number, step);
    return status;
}

static choir_status start(choir__running *r, const choir__device_share *share)
{
    const choir__trial_job *job = r->job;
    const choir_trial *trial = r->base.trial;
    child c = {.number = choir_trial_number(trial),
        .step = choir_trial_step(trial),
        .budget = choir_trial_budget(trial),
        .out = -1,
        .err = -1,
        .unit = job->unit,
        .files = job->files,
        .share = share};
    choir_status status = make_dir(r);
    if (status == CHOIR_OK && job->pauses)
        status = prepare_checkpoint(job, trial);
    if (status == CHOIR_OK)
        status = open_stream(&r->out, r->dir, "stdout", &c.out);
    if (status == CHOIR_OK)
        status = open_stream(&r->err, r->dir, "stderr", &c.err);
    c.dir = r->dir;
    char *checkpoint = job->pauses ? choir__checkpoint_path(job->dir, c.number) : NULL;
    c.line = choir__command_of_trial(job->command, job->space, trial, r->dir, checkpoint);
    free(checkpoint);
    if (status == CHOIR_OK && r->dir && choir__command_is_train(job->command) &&
        (trial->begun || r->base.failed))
        status = choir__checkpoint_clear(c.line, r->dir);
    char *params = params_json(job->space, trial);
    c.params = params;
    if (status == CHOIR_OK)
        status = choir__family_start(&r->base.family, 0, be_child, &c);
    if (status == CHOIR_OK && job->warden)
        choir__warden_watch(job->warden, r->base.family.children[0].pid);
    if (c.out >= 0)
        close(c.out);
    if (c.err >= 0)
        close(c.err);
    choir__command_free(c.line);
    free(params);
    return status;
}

choir_status choir__running_start(
    choir__attempt *a, const choir__trial_job *job, const choir__device_share *share)
{
    choir__running *r = (choir__running *)a;
    *r = (choir__running){.base = *a,
        .job = job,
        .memory_kills = choir__memory_kills(),
        .step = -1,
        .out = {-1, -1, NULL, 0},
        .err = {-1, -1, NULL, 0}};
    a->family.own_groups = true;
    a->family.patience_s = 30;
    return start(r, share);
}
