/* choir_spawn: the ranks are forks (launch/spawn.c). This file adds the rules of devices and of
 * the flight recorder for forks, because src/launch knows neither. */
#include <stdio.h>

#include <choir/group.h>

#include "base/base.h"
#include "comm/flight/flight.h"
#include "device/device.h"
#include "device/queue.h"
#include "launch/launchers.h"
#include "launch/spawn.h"

static choir_status may_fork(void)
{
    if (!choir__device_forbids_fork())
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_STATE,
        "spawn: this process uses a GPU already, which no fork of it could: spawn ranks first, "
        "or start them by 'choir run'");
}

/* Notes that the ranks of a launcher each start a job, which is seldom meant. Ranks that start
 * the parts of one job say so by opts->nodes. */
static void note_launcher(const choir_spawn_opts *opts)
{
    choir__launcher l;
    if (choir__launcher_find(false, &l) != CHOIR_OK)
        (void)choir_error_message(); /* choir_env_init reports it */
    else if (l.name && l.world > 1 && l.rank == 0 && opts->nodes == 1)
        fprintf(stderr,
            "choir: note: this is rank 0 of %d of a launcher; choir_spawn starts a job of its "
            "own in each rank\n",
            l.world);
}

choir_spawn_opts choir_spawn_defaults(void)
{
    return (choir_spawn_opts){.nodes = 1, .timeout_s = 1800};
}

choir_status choir_spawn_with(int local, choir_spawn_fn *fn, void *arg, choir_spawn_opts opts)
{
    static const choir__spawn_host host = {
        .may_fork = may_fork,
        .quiesce = choir__queues_quiesce,
        .show = choir__flight_dump,
        .progress = choir__seen_progress,
    };
    note_launcher(&opts);
    return choir__spawn(&host, local, fn, arg, opts);
}

choir_status choir_spawn(int world, choir_spawn_fn *fn, void *arg)
{
    return choir_spawn_with(world, fn, arg, choir_spawn_defaults());
}
