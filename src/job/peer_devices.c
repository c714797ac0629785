/* Reads the boards of a job's other ranks, twice per second. Finding them walks through /proc,
 * so the list is kept while it is complete, and made again when a rank is gone. */
#include "job/peer_devices.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double look_s = 0.5, list_s = 5;

static void forget(choir__peer_devices *p)
{
    for (int i = 0; i < p->pid_count; i++)
        choir__seen_free(p->seen[i]);
    free(p->seen);
    free(p->pids);
    p->seen = NULL;
    p->pids = NULL;
    p->pid_count = 0;
}

/* Lists this job's other processes. */
static void list(choir__peer_devices *p)
{
    int *all = NULL, count = choir__board_processes(&all), kept = 0;
    uint64_t job = choir__board_own_job();
    forget(p);
    for (int i = 0; i < count && job; i++) {
        choir__board *board = all[i] == getpid() ? NULL : choir__board_read(all[i]);
        bool ours = board && choir__board_who_is(board).job == job &&
                    choir__board_who_is(board).rank >= 0;
        if (ours)
            all[kept++] = all[i];
        if (board)
            choir__board_free(board);
    }
    p->pids = all;
    p->pid_count = kept;
    p->seen = choir__calloc((size_t)kept + 1, sizeof(choir__seen *));
}

void choir__peer_devices_look(choir__peer_devices *p, int world, choir__peer_fn *fn, void *arg)
{
    double now = choir__now();
    if (world < 2 || now - p->looked < look_s)
        return;
    p->looked = now;
    if (p->pid_count < world - 1 && now - p->listed > (p->listed > 0 ? list_s : 0)) {
        list(p);
        p->listed = now;
    }
    for (int i = 0; i < p->pid_count; i++) {
        choir__seen *seen = choir__flight_read(p->pids[i]);
        if (!seen) { /* that rank is gone, and another may replace it */
            forget(p);
            return;
        }
        for (int d = 0; d < seen->device_count; d++)
            fn(seen->who.rank, &seen->devices[d],
                p->seen[i] ? choir__seen_busy(seen, p->seen[i], d) : (double)NAN, arg);
        choir__seen_free(p->seen[i]);
        p->seen[i] = seen;
    }
}

void choir__peer_devices_free(choir__peer_devices *p)
{
    forget(p);
}
