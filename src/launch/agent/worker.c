/* Workers: each has an environment with torchrun's names and runs the command. */
#include "launch/agent/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOT_FOUND = 127, CANNOT_RUN = 126 };

typedef struct worker {
    const choir__workers *all;
    int index;
} worker;

/* --- does the command exist? --- */

static int no_command(const char *command, int why)
{
    struct stat s;
    if (why == EACCES && stat(command, &s) == 0 && S_ISDIR(s.st_mode))
        why = EISDIR;
    const char *hint = "";
    size_t length = strlen(command);
    if (length > 3 && !strcmp(command + length - 3, ".py"))
        hint = "; with --run-path it is run by Python";
    fprintf(stderr, "choir run: cannot run %s: %s%s\n", command,
        why == ENOENT && !strchr(command, '/') ? "command not found" : choir__why(why), hint);
    return why == ENOENT || why == ENOTDIR ? NOT_FOUND : CANNOT_RUN;
}

static int can_run(const char *path)
{
    struct stat s;
    if (stat(path, &s))
        return errno;
    return S_ISREG(s.st_mode) && access(path, X_OK) == 0 ? 0 : EACCES;
}

/* Searches PATH as a shell would. */
int choir__workers_check(const char *command)
{
    const char *path = getenv("PATH");
    int why = ENOENT;
    if (strchr(command, '/') || !*command) {
        why = can_run(command);
        return why ? no_command(command, why) : 0;
    }
    for (const char *at = path ? path : "/usr/local/bin:/bin:/usr/bin";; at++) {
        int length = (int)strcspn(at, ":");
        char *file = choir__format("%.*s/%s", length ? length : 1, length ? at : ".", command);
        int reason = can_run(file);
        free(file);
        if (!reason)
            return 0;
        if (reason == EACCES)
            why = reason;
        at += length;
        if (!*at)
            return no_command(command, why);
    }
}

/* --- the worker's process --- */

static void set_environment(const choir__workers *w, const choir__job_place *place)
{
    choir__job_place_export(place);
    setenv("ROLE_NAME", w->opts->role, 1);
    choir__set_number("TORCHELASTIC_RESTART_COUNT", w->roster->restarts);
    choir__set_number("TORCHELASTIC_MAX_RESTARTS", w->opts->max_restarts);
    choir__set_number("CHOIR_GENERATION", w->roster->generation);
    choir__set_number("CHOIR_AGENT", w->agent_pid);
    choir__keeper_export(w->keeper, w->agent_pid, w->roster->generation, place->local_rank);
    setenv("TORCHELASTIC_RUN_ID", w->roster->run_id, 1);
    /* rank 0 serves the store at MASTER_PORT */
    setenv("TORCHELASTIC_USE_AGENT_STORE", "False", 1);
    setenv("CHOIR_JOB", w->roster->job, 1);
    unsetenv("CHOIR_INIT"); /* may be inherited from an outer job */
    if (w->opts->key_file)
        setenv("CHOIR_KEY_FILE", w->opts->key_file, 1);
    if (w->opts->nproc > 1)
        setenv("OMP_NUM_THREADS", "1", 0);
}

static void set_input(const choir__workers *w, int rank)
{
    int null = rank ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (rank == 0 && w->input != STDIN_FILENO)
        dup2(w->input, STDIN_FILENO);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
}

static int be_worker(void *arg)
{
    const worker *self = arg;
    const choir__workers *w = self->all;
    choir__job_place place = w->roster->place;
    place.rank += self->index;
    place.local_rank = self->index;
    set_input(w, place.rank);
    choir__output_redirect(w->output, self->index);
    set_environment(w, &place);
    setrlimit(RLIMIT_NOFILE, &w->files);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGTTOU, SIG_DFL);
    execvp(w->opts->command[0], w->opts->command);
    _exit(no_command(w->opts->command[0], errno));
}

/* --- the agent's side --- */

/* The agent needs several descriptors per worker, possibly more than the usual limit. Workers
 * get the original limit. */
void choir__workers_room(choir__workers *w)
{
    rlim_t copies = 2 * ((rlim_t)w->opts->nproc + CHOIR__KEEPER_MOST);
    rlim_t wanted = 64 + 5 * (rlim_t)w->opts->nproc + copies;
    getrlimit(RLIMIT_NOFILE, &w->files);
    struct rlimit more = w->files;
    if (more.rlim_cur < wanted)
        more.rlim_cur = more.rlim_max < wanted ? more.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &more);
}

choir_status choir__workers_start(choir__workers *w)
{
    choir__family_init(&w->family, w->opts->nproc);
    w->family.own_groups = true;
    w->family.patience_s = w->opts->shutdown_s;
    w->family.stopped_max_s = w->opts->timeout_s;
    for (int i = 0; i < w->opts->nproc; i++) {
        worker self = {w, i};
        choir_status status = choir__family_start(&w->family, i, be_worker, &self);
        if (status != CHOIR_OK)
            return status;
    }
    choir__output_started(w->output);
    return CHOIR_OK;
}
