/* How a group's calls get onto its queue. */
#ifndef CHOIR_COMM_ISSUE_H
#define CHOIR_COMM_ISSUE_H

#include "comm/group.h"

/* Queues the call, or adds it to the open batch. With work: returns at once; without: waits. */
choir_status choir__group_issue(choir_group *group, const choir__call *call, choir_work *work);

/* On the group's queue: numbers the call, keeps the recorder, runs it. */
choir_status choir__group_run(choir_group *group, choir__call *call);

/* batch.c, on the group's queue: all calls of a batch. */
choir_status choir__batch_run(choir_group *group, choir__call *calls, int count);

/* tree_reduce.c: a tree reduction by an algorithm that has none, and how it runs. */
bool choir__tree_by_name(const choir__call *call);
choir_status choir__tree_run_by_name(choir__engine *engine, const choir__call *call);

/* A copy of data on the heap that lives until the call has run and lets it go, at most as long
 * as the group; as long as that where a step is being recorded, which will run it again. */
void *choir__group_keep(choir_group *group, const void *data, size_t bytes);
void choir__group_let_go(choir_group *group, const void *kept);
/* The same of a call that was not issued: now, whatever is being recorded. */
void choir__group_drop(choir_group *group, const void *kept);

/* The name of the collective that a task runs, for traces. */
const char *choir__group_task_name(choir__task *fn, const void *args);

#endif
