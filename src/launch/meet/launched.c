/* Joining ranks that mpirun or srun started.
 *
 * If all ranks are on one machine they meet there under the job's name, so that the best engine
 * of one machine can carry the group. Otherwise, or if the engine over MPI was requested, they
 * meet by MPI. Slurm's ranks call the first host of their step if srun has no PMI for MPI, or
 * if they have a key, which that requires. */
#include "launch/launchers.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* Returns true if there is a key, with which ranks can meet without MPI. */
static bool has_key(const choir_group_opts *opts)
{
    const char *file = opts->key_file ? opts->key_file : getenv("CHOIR_KEY_FILE");
    return file && *file;
}

choir_status choir__meet_launched(const choir__launcher *l, const choir_group_opts *opts,
    choir__meet_need need, choir__meeting *m, const char **method)
{
    *method = NULL;
    m->rank = l->rank;
    m->world = l->world;
    m->nodes = 1;
    memcpy(m->launched, l->job, sizeof m->launched);
    if (m->world > 1)
        choir__set_rank_label(m->rank);
    if (need == CHOIR__NEEDS_PLACE || m->world == 1)
        return CHOIR_OK;
    const char *job = opts->job ? opts->job : l->job;
    if (l->local_world == l->world && *job) {
        if (strlen(job) >= sizeof m->job)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "the job's name: expected up to %zu bytes, got %zu", sizeof m->job - 1,
                strlen(job));
        memcpy(m->job, job, strlen(job) + 1);
    } else if (l->mpi && !(*l->method && has_key(opts))) {
        m->by_launcher = true;
    } else if (*l->method) {
        *method = l->method;
    } else {
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s started %d ranks on several machines and does not say where they can meet: set "
            "MASTER_ADDR and MASTER_PORT",
            l->name, l->world);
    }
    return CHOIR_OK;
}
