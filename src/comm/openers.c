/* How each engine is opened: the plug-in that contains it, and the engine under it, if any. */
#include "comm/openers.h"

#include <stdlib.h>
#include <string.h>

#include "comm/plugin.h"
#include "comm/shm/shm.h"
#include "launch/launchers.h"

bool choir__on_one_machine(const choir__meeting *m, int *other)
{
    for (int r = 1; m->members && r < m->world; r++)
        if (strcmp(m->members[r].machine, m->members[0].machine) != 0) {
            *other = r;
            return false;
        }
    return true;
}

choir_status choir__open_ucx(choir__meeting *meeting, choir__engine **engine)
{
    choir__engine *whole;
    choir_status status = choir__plugin_engine("ucx", "libucx-dev", meeting, &whole);
    if (status == CHOIR_OK && choir__hierarchy_fits(meeting))
        return choir__hierarchy_open(whole, meeting, engine);
    if (status == CHOIR_OK)
        *engine = whole;
    return status;
}

choir_status choir__open_mpi(choir__meeting *meeting, choir__engine **engine)
{
    const char *plugin = choir__launcher_plugin();
    return choir__plugin_engine(plugin,
        strcmp(plugin, "mpi_mpich") ? "libopenmpi-dev (or libmpich-dev, to run under MPICH's "
                                      "mpirun)"
                                    : "libmpich-dev",
        meeting, engine);
}

/* Opens NCCL's engine over the engine that a job without GPUs would use, which it then owns. */
choir_status choir__open_nccl(choir__meeting *meeting, choir__engine **engine)
{
    int other;
    choir_status status = choir__on_one_machine(meeting, &other)
                              ? choir__shm_open(meeting, engine)
                              : choir__open_ucx(meeting, engine);
    if (status != CHOIR_OK)
        return status;
    choir__engine *host = *engine;
    status = choir__plugin_engine("nccl", "the CUDA toolkit and libnccl-dev", meeting, engine);
    if (status != CHOIR_OK && *engine == host) { /* NCCL's engine was not opened */
        char *why = choir__strdup(choir__message());
        host->ops->close(host);
        choir__error(status, "%s", why);
        free(why);
    }
    return status;
}
