/* The end of a meeting: rank 0 keeps its store for ranks that still read it, then frees it. */
#include "launch/meet/meeting.h"

#include <sodium.h>
#include <stdlib.h>
#include <time.h>

#include "base/base.h"
#include "launch/store/store.h"

static const double linger_s = 1; /* for rank 0, after the failure of a group that had met */

void choir__meeting_stay(const choir__meeting *m, double at_most_s)
{
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    double until = choir__now() + at_most_s;
    while (choir__store_clients(m->server) > 1 && choir__now() < until)
        nanosleep(&pause, NULL);
}

void choir__meeting_linger(const choir__meeting *meeting)
{
    if (meeting->server && meeting->consulted)
        choir__meeting_stay(meeting, linger_s);
}

void choir__meeting_free(choir__meeting *meeting)
{
    choir_store_free(meeting->store);
    choir_store_server_free(meeting->server);
    free(meeting->members);
    sodium_memzero(meeting, sizeof *meeting);
}
