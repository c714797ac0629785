/* The path of a group's calls onto its queue. */
#ifndef CHOIR_COMM_ISSUE_H
#define CHOIR_COMM_ISSUE_H

#include "comm/group.h"

/* Queues the call, or adds it to the open batch. If work is given, returns at once; else waits
 * for the call. */
choir_status choir__group_issue(choir_group *group, const choir__call *call, choir_work *work);

/* Runs on the group's queue: numbers the call, records it in the flight recorder, and runs
 * it. */
choir_status choir__group_run(choir_group *group, choir__call *call);

/* batch.c: runs all calls of a batch, on the group's queue. */
choir_status choir__read_batch_run(choir_group *group, choir__call *calls, int count);

/* Runs on the group's queue: if status is a failure, fails the current task with the group's
 * sentence. */
void choir__group_report(choir_group *group, choir_status status);

/* Returns true if the task only gives work to the queue's stream, so that it can be
 * captured. */
bool choir__group_capturable(choir__queue_task *fn, const void *args);

/* Returns the calls of a group's task, their number and the group; NULL: the task makes none.
 * The calls of a batch live until it has run, or as long as the group if a step is recorded. */
const choir__call *choir__group_calls_of(
    choir__queue_task *fn, const void *args, choir_group **group, int *count);

/* call_memory.c: choir__group_keep returns a copy of data on the heap, which lives until the
 * call has run and releases it by choir__group_let_go. If a step is being recorded, the copy
 * lives as long as the group, because the step runs the call again. */
void *choir__group_keep(choir_group *group, const void *data, size_t bytes);
void choir__group_let_go(choir_group *group, const void *kept);
/* Releases the memory of a call that was not issued, whatever is being recorded. */
void choir__group_drop(choir_group *group, const void *kept);
/* Releases all memory that is still kept; called at the end of a group. */
void choir__group_drop_all(choir_group *group);

#endif
