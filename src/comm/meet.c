/* How ranks find each other: by the job's name, on this machine. */
#include "comm/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "comm/launchers.h"

/* An integer of the environment; `otherwise` if it is not set. */
static choir_status from_environment(const char *name, int otherwise, int *value)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) {
        *value = otherwise;
        return CHOIR_OK;
    }
    errno = 0;
    long n = strtol(text, &end, 10);
    if (errno || *end || n < 0 || n > INT32_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s is '%s': want a whole number", name, text);
    *value = (int)n;
    return CHOIR_OK;
}

/* Whether mpirun or srun started this rank, and RANK does not overrule it. */
static choir_status launched(
    const char *method, const choir_group_opts *opts, choir__launcher *l, bool *yes)
{
    bool named = method && strcmp(method, "mpi://") == 0;
    *yes = false;
    if ((method && !named) || opts->rank >= 0)
        return CHOIR_OK;
    if (choir__launcher_find(named, l))
        return CHOIR_ERR_ARGUMENT;
    *yes = l->name && strcmp(l->name, "RANK") != 0;
    return *yes || !named
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "mpi:// joins what mpirun or srun started, and neither did start this: "
                     "run 'mpirun -n 2 PROGRAM'");
}

choir_status choir__meet(const char *method, const choir_group_opts *opts, choir__meeting *m)
{
    bool ask = opts->rank < 0;
    int local = 0;
    const char *job = opts->job ? opts->job : getenv("CHOIR_JOB");
    *m = (choir__meeting){
        .rank = opts->rank, .world = opts->world, .timeout_s = opts->timeout_s, .nodes = 1};
    choir__launcher launcher;
    bool yes;
    if (!(m->timeout_s > 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "timeout_s is %g: want seconds above 0", m->timeout_s);
    if (launched(method, opts, &launcher, &yes))
        return CHOIR_ERR_ARGUMENT;
    if (yes) {
        choir_status status = choir__meet_launched(&launcher, opts, m, &method);
        if (status || !method)
            return status;
    }
    if (method && strcmp(method, "env://") != 0)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "there is no way to meet at '%s': want env://", method);
    if (ask != (m->world < 0))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "rank %d of %d: give both, or neither (-1)", m->rank, m->world);
    if (ask && (from_environment("RANK", 0, &m->rank) ||
                   from_environment("WORLD_SIZE", 1, &m->world) ||
                   from_environment("LOCAL_WORLD_SIZE", m->world, &local)))
        return CHOIR_ERR_ARGUMENT;
    if (ask && local != m->world)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "%d of %d ranks are on this machine: groups across machines are not built in",
            local, m->world);
    if (m->world < 1)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "a group of %d ranks: want 1 or more", m->world);
    if (m->rank >= m->world)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "rank %d of %d: ranks count from 0", m->rank, m->world);
    if (m->world > 1 && (!job || !*job))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%d ranks need a job's name to meet under: set CHOIR_JOB to the same secret on all",
            m->world);
    if (job && strlen(job) >= sizeof m->job)
        return choir__error(CHOIR_ERR_ARGUMENT, "the job's name has %zu bytes: want up to %zu",
            strlen(job), sizeof m->job - 1);
    if (job)
        memcpy(m->job, job, strlen(job) + 1);
    if (ask && m->world > 1)
        choir__set_rank_label(m->rank);
    return CHOIR_OK;
}

void choir__meeting_free(choir__meeting *meeting)
{
    free(meeting->members);
    *meeting = (choir__meeting){0};
}
