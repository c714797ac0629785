/* The functions with which queues notify a recording (queue.h describes its use). */
#ifndef CHOIR_RECORDING_H
#define CHOIR_RECORDING_H

#include "device/queue.h"

/* These do nothing unless a recording is open on this thread. */
void choir__recording_note_task(
    choir__queue *queue, choir__queue_task *fn, const void *args, size_t bytes);
void choir__recording_note_event(choir__event event);
void choir__recording_note_wait(choir__queue *queue, choir__event event);
void choir__recording_note_moved(choir__queue *to, choir__queue *from, uint64_t bytes);

/* Marks recordings that name the queue as lost when the queue is freed, so that they are not
 * replayed again. */
void choir__recordings_lose(const choir__queue *queue);

/* The parts of issue, wait_event and moved without recording; replays call them. */
void choir__queue_issue_raw(
    choir__queue *queue, choir__queue_task *fn, const void *args, size_t bytes);
choir_status choir__queue_wait_event_raw(choir__queue *queue, choir__event event);
void choir__queue_moved_raw(choir__queue *to, choir__queue *from, uint64_t bytes);

#endif
