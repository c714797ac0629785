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

/* On the group's queue: fails the task that runs now if status is a failure, with the group's
 * sentence. */
void choir__group_report(choir_group *group, choir_status status);

/* Returns whether the task only gives work to the queue's stream, so that it can be captured.
 */
bool choir__group_capturable(choir__task *fn, const void *args);

/* kept.c: a copy of data on the heap that lives until the call has run and releases it, at most
 * as long as the group; as long as the group where a step is being recorded, which will run the
 * call again. */
void *choir__group_keep(choir_group *group, const void *data, size_t bytes);
void choir__group_let_go(choir_group *group, const void *kept);
/* Releases the memory of a call that was not issued, whatever is being recorded. */
void choir__group_drop(choir_group *group, const void *kept);
/* Releases all memory that is still kept; for the end of a group. */
void choir__group_drop_all(choir_group *group);

/* The name of the collective that a task runs, for traces. */
const char *choir__group_task_name(choir__task *fn, const void *args);

#endif
