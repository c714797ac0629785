/* A team: threads that compute parts of a kernel beside the thread that runs the queue. */
#ifndef CHOIR_CPU_TEAM_H
#define CHOIR_CPU_TEAM_H

#include "base/base.h"

typedef struct choir__team choir__team;

/* thread: 0 is the caller. */
typedef void choir__team_work(const void *arg, int thread, int threads);

/* A team of `threads`, the caller's among them. The others start when there is work. */
choir__team *choir__team_new(int threads);
void choir__team_free(choir__team *team); /* accepts NULL */

/* Runs work in all threads of the team and returns when all have ended. Only one thread at a
 * time may call it. If the system gives fewer threads, those that exist compute it all: `work`
 * must not rely on a number. */
void choir__team_run(choir__team *team, choir__team_work *work, const void *arg);

#endif
