/* A recording: the list of tasks, events, waits, bytes moved and host calls that one step made,
 * in order.
 *
 * Replaying issues the list again. Tasks keep their arguments, so the memory that they name
 * must stay allocated; the recorder ensures that (choir_step gives the step its own pool).
 * Places in queues differ between replays, so events are numbered, and waits name the
 * number. */
#include "device/recording_list.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/floats.h"

static _Thread_local choir__recording *open_recording;

/* All closed recordings. A queue that is freed marks those that name it. */
static pthread_mutex_t closed_lock = PTHREAD_MUTEX_INITIALIZER;
static choir__recording *closed;

static entry *append(choir__recording *r, enum kind kind, choir__queue *queue)
{
    CHOIR__GROW(r->entries, r->count);
    entry *e = &r->entries[r->count++];
    *e = (entry){.kind = kind, .queue = queue};
    return e;
}

void choir__recording_note_task(
    choir__queue *queue, choir__queue_task *fn, const void *args, size_t bytes)
{
    choir__recording *r = open_recording;
    if (!r)
        return;
    size_t need = (bytes + 15) & ~(size_t)15;
    if (r->args_used + need > r->args_capacity) {
        r->args_capacity = 2 * (r->args_used + need);
        r->args = choir__realloc(r->args, r->args_capacity);
    }
    entry *e = append(r, TASK, queue);
    e->as.fn = fn;
    e->bytes = (uint32_t)bytes;
    e->args_at = r->args_used;
    if (bytes)
        memcpy(r->args + r->args_used, args, bytes);
    r->args_used += need;
}

void choir__recording_note_event(choir__event event)
{
    choir__recording *r = open_recording;
    if (!r)
        return;
    append(r, EVENT, event.queue)->as.event = r->event_count;
    CHOIR__GROW(r->events, r->event_count);
    r->events[r->event_count++] = event;
}

void choir__recording_note_wait(choir__queue *queue, choir__event event)
{
    choir__recording *r = open_recording;
    if (!r)
        return;
    for (int i = r->event_count - 1; i >= 0; i--)
        if (r->events[i].queue == event.queue && r->events[i].seq == event.seq) {
            append(r, WAIT, queue)->as.event = i;
            return;
        }
    /* An event from before the recording has been reached before anything is replayed. */
}

void choir__recording_note_moved(choir__queue *to, choir__queue *from, uint64_t bytes)
{
    choir__recording *r = open_recording;
    if (!r)
        return;
    entry *e = append(r, MOVED, to);
    e->as.moved.from = from;
    e->as.moved.bytes = bytes;
}

choir__recording *choir__recording_open(void)
{
    return open_recording = choir__calloc(1, sizeof(choir__recording));
}

void choir__recording_close(choir__recording *recording)
{
    if (open_recording != recording)
        return;
    open_recording = NULL;
    pthread_mutex_lock(&closed_lock);
    recording->next = closed;
    closed = recording;
    pthread_mutex_unlock(&closed_lock);
}

static void take_off_list(const choir__recording *r)
{
    pthread_mutex_lock(&closed_lock);
    choir__recording **link = &closed;
    while (*link && *link != r)
        link = &(*link)->next;
    if (*link)
        *link = r->next;
    pthread_mutex_unlock(&closed_lock);
}

static bool names(const choir__recording *r, const choir__queue *queue)
{
    bool found = false;
    for (int i = 0; i < r->count && !found; i++)
        found = r->entries[i].queue == queue;
    return found;
}

/* Frees the recordings' graphs now: captured work, for example a library's calls, belongs to
 * the queue's owner, which may not be able to free it later. */
void choir__recordings_lose(const choir__queue *queue)
{
    pthread_mutex_lock(&closed_lock);
    for (choir__recording *r = closed; r; r = r->next)
        if (!r->lost && names(r, queue)) {
            choir__graphs_free(r);
            r->lost = true;
        }
    pthread_mutex_unlock(&closed_lock);
}

void choir__recording_free(choir__recording *recording)
{
    if (!recording)
        return;
    choir__recording_close(recording);
    take_off_list(recording);
    choir__graphs_free(recording);
    free(recording->entries);
    free(recording->args);
    free(recording->events);
    free(recording);
}

bool choir__recording_active(void)
{
    return open_recording != NULL;
}

/* Calls a host function in the default floating-point environment, because its numbers reach
 * the step's tasks. */
static choir_status call(choir_status (*fn)(void *arg), void *arg)
{
    CHOIR__DEFAULT_FLOATS;
    return fn(arg);
}

static choir_status issue_again(choir__recording *r, const entry *e)
{
    switch (e->kind) {
    case TASK:
        choir__queue_issue_raw(e->queue, e->as.fn, r->args + e->args_at, e->bytes);
        break;
    case EVENT: r->events[e->as.event] = choir__queue_record(e->queue); break;
    case WAIT: return choir__queue_wait_event_raw(e->queue, r->events[e->as.event]);
    case MOVED: choir__queue_moved_raw(e->queue, e->as.moved.from, e->as.moved.bytes); break;
    case HOST: return call(e->as.host.fn, e->as.host.arg);
    }
    return CHOIR_OK;
}

choir_status choir__recording_replay(choir__recording *r)
{
    choir_status status = CHOIR_OK;
    if (r->lost)
        return choir__error(CHOIR_ERR_STATE,
            "the recorded step uses a group or a device that is gone: free groups after the "
            "runs that use them");
    for (int i = 0; i < r->count && status == CHOIR_OK;) {
        int after = choir__graphs_launch(r, i);
        if (after == i)
            status = issue_again(r, &r->entries[i++]);
        else
            i = after;
    }
    return status;
}

choir_status choir__host_call(choir_status (*fn)(void *arg), void *arg)
{
    choir__recording *r = open_recording;
    if (r) {
        entry *e = append(r, HOST, NULL);
        e->as.host.fn = fn;
        e->as.host.arg = arg;
    }
    open_recording = NULL;
    choir_status status = call(fn, arg);
    open_recording = r;
    return status;
}
