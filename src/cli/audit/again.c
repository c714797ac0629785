/* Running a span of a training again: `choir train` in a process of its own, by the run's own
 * job and from one of its checkpoints, with records in another folder. Its audit is read line
 * by line while it grows, and the process is stopped at the last line that is needed. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/training.h>

#include "base/files/file.h"
#include "cli/audit/audit.h"
#include "job/document/document.h"
#include "launch/process/process.h"
#include "line/say.h"

typedef struct child {
    char **argv, *command;
    int out[2], err; /* a pipe: read, write; a file */
} child;

static int become_train(void *arg)
{
    const child *c = arg;
    dup2(c->out[1], STDOUT_FILENO);
    dup2(c->err, STDERR_FILENO);
    execv(c->command, c->argv);
    fprintf(stderr, "choir: cannot run %s: %s\n", c->command, strerror(errno));
    return CHOIR__EXIT_FAILED;
}

/* --- its command line --- */

/* Adds the checkpoint, which is found by a link: the process may save beside it, and nothing is
 * written to the run's folder. */
static choir_status add_start(const choir__again *a, char **argv, int *n)
{
    char whole[PATH_MAX];
    const char *name = strrchr(a->start, '/');
    char *folder = choir__format("%s/from", a->folder);
    char *link = choir__format("%s/%s", folder, name ? name + 1 : a->start);
    choir_status status = CHOIR_OK;
    if (!realpath(a->start, whole) || (mkdir(folder, 0777) != 0 && errno != EEXIST) ||
        (symlink(whole, link) != 0 && errno != EEXIST))
        status = choir__error(CHOIR_ERR_IO, "cannot use %s: %s", a->start, strerror(errno));
    argv[(*n)++] = choir__format("--resume=%s", link);
    free(folder);
    free(link);
    return status;
}

/* Returns "--without=...", the job's options that would end the second run early, or send it
 * back: the batches that the recorded run left out are in its --skip-batches. The second run
 * validates nothing, so no validation chooses a checkpoint or the end. */
static char *make_without(const json_t *options)
{
    const char *const names[] = {CHOIR__JOB_OPTION(training.on_spike)->name,
        CHOIR__JOB_OPTION(training.best)->name, CHOIR__JOB_OPTION(training.patience)->name};
    char *list = choir__format("--without=%s", CHOIR__JOB_OPTION(training.max_time)->name);
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        if (json_object_get(options, names[i])) {
            char *more = choir__format("%s,%s", list, names[i]);
            free(list);
            list = more;
        }
    return list;
}

/* Adds that sums are cut as in the recorded run where its job does not say so: another layout
 * would choose a cut of its own. A checkpoint keeps its cut. */
static void add_cuts(const choir__again *a, const json_t *options, char **argv, int *n)
{
    for (const choir__line_option *o = choir__job_options; a->option_count && o->name; o++)
        if (o->recorded == CHOIR__RECORDED_CUT && !json_object_get(options, o->name))
            argv[(*n)++] = choir__format("--%s=1", o->name);
}

static choir_status make_args(const choir__again *a, child *c)
{
    int n = 0;
    json_t *job = choir__file_json(a->job, 0, NULL);
    const json_t *options = json_object_get(job, "options");
    c->argv = choir__calloc((size_t)a->option_count + 12, sizeof *c->argv);
    c->argv[n++] = choir__strdup("choir");
    c->argv[n++] = choir__strdup("train");
    c->argv[n++] = choir__strdup(a->job);
    choir_status status = a->start ? add_start(a, c->argv, &n) : CHOIR_OK;
    c->argv[n++] = choir__format("--run=%s/run", a->folder);
    c->argv[n++] =
        choir__format("--audit=every=%lld%s", (long long)a->every, a->dump ? ",dump" : "");
    c->argv[n++] = choir__strdup("--no-eval");
    c->argv[n++] = make_without(options);
    c->argv[n++] = choir__strdup("--json");
    for (int i = 0; i < a->option_count; i++)
        c->argv[n++] = choir__strdup(a->options[i]);
    if (!a->start)
        add_cuts(a, options, c->argv, &n);
    json_decref(job);
    struct stat build;
    bool folder = a->build && stat(a->build, &build) == 0 && S_ISDIR(build.st_mode);
    c->command = !a->build ? choir__strdup("/proc/self/exe")
                           : choir__format("%s%s", a->build, folder ? "/choir" : "");
    return status;
}

/* --- while it runs --- */

/* Looks at the lines that were added. Returns whether more are needed. */
static bool look_at_lines(
    FILE **file, const choir__again *a, choir__again_look *look, void *arg, int64_t *last)
{
    char *line = NULL;
    size_t room = 0;
    bool more = true;
    if (!*file)
        *file = choir__file_try_stream_in(a->folder, "run/" CHOIR__AUDIT_FILE);
    for (ssize_t n; more && *file && (n = getline(&line, &room, *file)) > 0;) {
        json_t *object = json_loadb(line, (size_t)n, 0, NULL);
        const json_t *step = json_object_get(object, "step");
        *last = step ? json_integer_value(step) : *last;
        more = !step || (look(arg, object) && *last < a->until);
        json_decref(object);
    }
    if (*file)
        clearerr(*file);
    free(line);
    return more;
}

/* Returns the first signal that has come; 0: none. */
static int asked_to_stop(void)
{
    choir__signal s;
    return choir__signals_next(&s) ? s.number : 0;
}

/* How a process was attended to until its end. */
typedef struct attended {
    bool stopped; /* no more lines were needed */
    int signal;   /* the signal that stopped it; 0: none */
} attended;

/* Reads the output of the process until it ends; a line of it is a step, after which its
 * audit's line follows. */
static attended attend(
    choir__family *f, const child *c, const choir__again *a, choir__again_look *look, void *arg)
{
    FILE *lines = NULL;
    char text[4096];
    attended done = {false, 0};
    int64_t last = 0;
    struct pollfd at[3];
    bool open = true;
    while (f->alive) {
        int pids = choir__family_poll(f, at);
        at[pids] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
        at[pids + 1] = (struct pollfd){.fd = open ? c->out[0] : -1, .events = POLLIN};
        if (poll(at, (nfds_t)pids + 2, choir__family_press(f)) < 0)
            continue;
        if (at[pids + 1].revents)
            open = read(c->out[0], text, sizeof text) > 0;
        done.signal = done.signal ? done.signal : asked_to_stop();
        if (!done.stopped && (done.signal || !look_at_lines(&lines, a, look, arg, &last))) {
            done.stopped = true;
            choir__family_stop(f);
        }
        choir__family_reap(f, at);
    }
    if (!done.stopped)
        look_at_lines(&lines, a, look, arg, &last);
    if (lines)
        fclose(lines);
    return done;
}

/* Advice for choir train, by its first words, and what an audit says in its place. */
static const struct {
    const char *begin, *instead;
} advices[] = {
    {CHOIR__OTHER_DATA, ": an audit needs them as they were"},
    {": name the same data", ": an audit needs them as they were"},
    {": choose --", ": an audit cuts sums as the run did"},
};

/* Ends the process's sentence before its advice. Returns the words in place of the advice. */
static const char *end_at_advice(char *said)
{
    for (size_t i = 0; i < CHOIR_COUNT(advices); i++) {
        char *at = strstr(said, advices[i].begin);
        if (!at)
            continue;
        *at = '\0';
        return advices[i].instead;
    }
    return "";
}

/* Returns what the process said without names of the temporary folder, and without advice for
 * choir train; takes it. */
static char *of_run(const choir__again *a, char *said)
{
    char *file = choir__format("%s: ", a->job), *from = choir__format("%s/from", a->folder);
    const char *instead = end_at_advice(said);
    char *at;
    while ((at = strstr(said, file)) || (at = strstr(said, from))) {
        const char *rest = at + strlen(strncmp(at, file, strlen(file)) ? from : file);
        bool is_file = rest[-1] == ' ';
        *at = '\0';
        char *more = choir__format("%s%s%s", said, is_file ? "" : a->run, rest);
        free(said);
        said = more;
    }
    free(file);
    free(from);
    char *whole = choir__format("%s%s", said, instead);
    free(said);
    return whole;
}

/* Returns the error with which the process ended: its own last line. */
static choir_status failed(const choir__again *a, const choir__child *process)
{
    char *path = choir__format("%s/err", a->folder), *line = NULL, *said = NULL, end[96];
    size_t room = 0;
    FILE *file = choir__file_try_stream(path);
    while (file && getline(&line, &room, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        free(said);
        said = choir__strdup(
            !strncmp(line, "choir", 5) && strstr(line, ": ") ? strstr(line, ": ") + 2 : line);
    }
    if (file)
        fclose(file);
    said = said && *said ? of_run(a, said) : said;
    choir_status status = choir__error(CHOIR_ERR_STATE, "%s could not be run again%s%s: %s",
        a->run, a->build ? " by " : "", a->build ? a->build : "",
        said && *said ? said : choir__end_text(process, end));
    free(said);
    free(line);
    free(path);
    return status;
}

choir_status choir__again_run(const choir__again *a, choir__again_look *look, void *arg)
{
    child c = {.out = {-1, -1}, .err = -1};
    choir__family family;
    attended done = {true, 0};
    char *path = choir__format("%s/err", a->folder);
    choir_status status = make_args(a, &c);
    if (status == CHOIR_OK && pipe2(c.out, O_CLOEXEC) != 0)
        status = choir__error(CHOIR_ERR_IO, "cannot make a pipe: %s", strerror(errno));
    if (status == CHOIR_OK)
        status =
            choir__file_open(path, O_WRONLY | O_CREAT | O_TRUNC, CHOIR__FILE_OUTPUT, &c.err);
    choir__family_init(&family, 1);
    family.grace_s = 0;
    if (status == CHOIR_OK)
        status = choir__family_start(&family, 0, become_train, &c);
    if (c.out[1] >= 0)
        close(c.out[1]);
    if (status == CHOIR_OK)
        done = attend(&family, &c, a, look, arg);
    *a->signal = done.signal ? done.signal : *a->signal;
    if (done.signal)
        status = choir__error(CHOIR_ERR_INTERRUPTED, "interrupted");
    else if (!done.stopped && choir__end_status(&family.children[0]) != 0)
        status = failed(a, &family.children[0]);
    choir__family_bury(&family);
    choir__family_free(&family);
    if (c.out[0] >= 0)
        close(c.out[0]);
    if (c.err >= 0)
        close(c.err);
    for (int i = 0; c.argv[i]; i++)
        free(c.argv[i]);
    free(c.argv);
    free(c.command);
    free(path);
    return status;
}
