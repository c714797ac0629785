/* The queue of a stored study and its writer thread. The writer takes all queued changes as one
 * batch; if the server is lost, it repeats the batch until it answers, and says so once.
 * Between batches it sends heartbeats of this worker's trials. */
#include "tune/storage/store.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/process/forks.h"
#include "tune/storage/backend.h"
#include "tune/storage/worker.h"

enum { MOST_AT_ONCE = 4096 }; /* changes of a batch */
static const double RECONNECT_S = 0.5;

struct choir__study_store {
    choir__study_backend *backend;
    char *worker;
    pthread_t writer;
    bool has_writer;
    int stop_fd;                  /* readable: wait no more for a server; -1: none */
    pthread_mutex_t backend_lock; /* the writer's, or a reader's */

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work, written;
    choir__change *first, **last;
    bool busy, closing;
    choir__forkable forkable;
    choir_status failed; /* the writer gave up */
    char *why;
    int64_t *running; /* (running_count) trials of this worker, which send heartbeats */
    int64_t running_count;
};

/* --- the writer --- */

static void pause_for(choir__study_store *s, double seconds)
{
    struct timespec until = choir__in_seconds(seconds);
    pthread_cond_timedwait(&s->work, &s->lock, &until);
}

static bool is_to_stop(const choir__study_store *s)
{
    struct pollfd stop = {.fd = s->stop_fd, .events = POLLIN};
    return poll(&stop, 1, 0) > 0;
}

/* Repeats a call until the server answers. The lock is held before and after. */
static choir_status insist(choir__study_store *s, choir_status (*call)(void *), void *arg)
{
    bool said = false;
    for (bool again = false;; again = true) {
        double from = choir__now();
        pthread_mutex_unlock(&s->lock);
        pthread_mutex_lock(&s->backend_lock);
        choir_status status = call(arg);
        pthread_mutex_unlock(&s->backend_lock);
        pthread_mutex_lock(&s->lock);
        if (status != CHOIR_ERR_PEER_LOST) {
            if (said)
                fprintf(stderr, "choir: %s answers again\n", s->backend->place);
            return status;
        }
        if (s->closing || is_to_stop(s))
            return status;
        if (!again && choir__now() - from < 1) /* perhaps only the connection was cut */
            continue;
        if (!said)
            fprintf(stderr, "choir: %s; the study's trials wait\n", choir__message());
        said = true;
        pause_for(s, RECONNECT_S);
    }
}

typedef struct batch {
    choir__study_store *store;
    choir__change *changes[MOST_AT_ONCE];
    int count;
} batch;

static choir_status write_batch(void *arg)
{
    batch *b = arg;
    choir__study_backend *backend = b->store->backend;
    choir_status status = choir__backend_check(backend);
    return status == CHOIR_OK ? backend->ops->write(backend, b->changes, b->count) : status;
}

static void note_running(choir__study_store *s, const choir__change *c)
{
    bool begins = c->kind == CHOIR__CHANGE_BEGIN || c->kind == CHOIR__CHANGE_TAKE;
    if (begins && !c->lost) {
        CHOIR__GROW(s->running, s->running_count);
        s->running[s->running_count++] = c->number;
    }
    bool ends = c->kind == CHOIR__CHANGE_END || c->kind == CHOIR__CHANGE_PAUSE;
    for (int64_t i = 0; i < s->running_count && ends; i++)
        if (s->running[i] == c->number)
            s->running[i] = s->running[--s->running_count];
}

static void queue(choir__study_store *s, choir__change *c)
{
    c->next = NULL;
    *s->last = c;
    s->last = &c->next;
    pthread_cond_signal(&s->work);
}

/* Writes the queued changes, and wakes the threads that wait for them. */
static void write_queued(choir__study_store *s, batch *b)
{
    for (b->count = 0; s->first && b->count < MOST_AT_ONCE; s->first = s->first->next)
        b->changes[b->count++] = s->first;
    if (!s->first)
        s->last = &s->first;
    s->busy = true;
    choir_status status = s->failed;
    if (status == CHOIR_OK) {
        status = insist(s, write_batch, b);
        if (status != CHOIR_OK) {
            s->failed = status;
            s->why = choir__strdup(choir__message());
        }
    }
    for (int i = 0; i < b->count; i++) {
        choir__change *c = b->changes[i];
        c->status = status;
        if (status == CHOIR_OK)
            note_running(s, c);
        c->done = true;
        if (!c->awaited)
            choir__change_free(c);
    }
    s->busy = false;
    pthread_cond_broadcast(&s->written);
}

static void *work(void *arg)
{
    choir__study_store *s = arg;
    batch *b = choir__calloc(1, sizeof *b);
    b->store = s;
    double beat = choir__now();
    pthread_mutex_lock(&s->lock);
    while (s->first || !s->closing) {
        double left = beat + CHOIR__BEAT_S - choir__now();
        if (left <= 0) {
            for (int64_t i = 0; i < s->running_count; i++)
                queue(s, choir__change_new(CHOIR__CHANGE_BEAT, s->running[i]));
            beat = choir__now();
        } else if (!s->first) {
            pause_for(s, left);
        }
        if (s->first)
            write_queued(s, b);
    }
    pthread_mutex_unlock(&s->lock);
    free(b);
    return NULL;
}

/* --- forks: the writer is in the middle of nothing --- */

static void before_fork(void *self)
{
    choir__study_store *s = self;
    pthread_mutex_lock(&s->lock);
    pthread_mutex_lock(&s->backend_lock);
}

static void after_fork(void *self)
{
    choir__study_store *s = self;
    pthread_mutex_unlock(&s->backend_lock);
    pthread_mutex_unlock(&s->lock);
}

/* --- opening --- */

choir_status choir__study_store_open(const char *url, bool create, choir__study_store **store)
{
    choir__study_backend *backend;
    choir_status status = choir__backend_open(url, create, &backend);
    if (status != CHOIR_OK)
        return status;
    choir__study_store *s = choir__calloc(1, sizeof *s);
    s->backend = backend;
    s->worker = choir__worker_name(s);
    s->last = &s->first;
    s->stop_fd = -1;
    choir__cond_init(&s->work);
    choir__cond_init(&s->written);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->backend_lock, NULL);
    *store = s;
    if (!create)
        return CHOIR_OK;
    s->has_writer = pthread_create(&s->writer, NULL, work, s) == 0;
    s->forkable = (choir__forkable){
        .before = before_fork, .in_parent = after_fork, .in_child = after_fork, .self = s};
    choir__forkable_add(&s->forkable);
    if (s->has_writer)
        return CHOIR_OK;
    choir__study_store_close(s);
    return choir__error(CHOIR_ERR_IO, "cannot start a thread that writes to %s", url);
}

void choir__study_store_close(choir__study_store *s)
{
    if (!s)
        return;
    choir__forkable_remove(&s->forkable);
    pthread_mutex_lock(&s->lock);
    for (int64_t i = 0; i < s->running_count; i++) { /* others need not wait for silence */
        choir__change *leave = choir__change_new(CHOIR__CHANGE_LEAVE, s->running[i]);
        leave->worker = choir__strdup(s->worker);
        queue(s, leave);
    }
    s->closing = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (s->has_writer)
        pthread_join(s->writer, NULL);
    s->backend->ops->close(s->backend);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->written);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->backend_lock);
    free(s->running);
    free(s->worker);
    free(s->why);
    free(s);
}

typedef struct about {
    choir__study_store *store;
    choir__stored_study *study;
} about;

static choir_status find(void *arg)
{
    about *a = arg;
    choir__study_backend *b = a->store->backend;
    choir_status status = a->study->name ? CHOIR_OK : choir__backend_only(b, a->study);
    return status == CHOIR_OK ? b->ops->study(b, a->store->has_writer, a->study) : status;
}

choir_status choir__study_store_study(choir__study_store *s, choir__stored_study *study)
{
    about a = {s, study};
    pthread_mutex_lock(&s->lock);
    choir_status status = insist(s, find, &a);
    pthread_mutex_unlock(&s->lock);
    return status;
}

void choir__study_store_stop_on(choir__study_store *s, int fd)
{
    pthread_mutex_lock(&s->lock);
    s->stop_fd = fd;
    pthread_mutex_unlock(&s->lock);
}

/* --- reading --- */

typedef struct reading {
    choir__study_store *store;
    int64_t from;
    choir__stored_trials *records;
} reading;

static choir_status load(void *arg)
{
    reading *r = arg;
    choir__stored_trials_free(r->records);
    choir_status status = r->store->backend->ops->load(r->store->backend, r->from, r->records);
    for (int64_t i = 0; i < r->records->count; i++)
        choir__stored_trial_settle(&r->records->at[i]);
    return status;
}

choir_status choir__study_store_load(
    choir__study_store *s, int64_t from, choir__stored_trials *records)
{
    reading r = {s, from, records};
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy)
        pthread_cond_wait(&s->written, &s->lock);
    choir_status status = insist(s, load, &r);
    pthread_mutex_unlock(&s->lock);
    return status;
}

/* --- changes --- */

void choir__study_store_send(choir__study_store *s, choir__change *c)
{
    pthread_mutex_lock(&s->lock);
    queue(s, c);
    pthread_mutex_unlock(&s->lock);
}

void choir__study_store_send_awaited(choir__study_store *s, choir__change *c)
{
    c->awaited = true;
    choir__study_store_send(s, c);
}

choir_status choir__study_store_wait(choir__study_store *s, choir__change *c)
{
    pthread_mutex_lock(&s->lock);
    while (!c->done)
        pthread_cond_wait(&s->written, &s->lock);
    choir_status status = c->status;
    if (status != CHOIR_OK)
        choir__set_message(s->why);
    pthread_mutex_unlock(&s->lock);
    return status;
}

const char *choir__study_store_worker(const choir__study_store *s)
{
    return s->worker;
}

int64_t choir__study_store_most_step(const choir__study_store *s)
{
    return s->backend->ops->most_step;
}

const char *choir__study_store_place(const choir__study_store *s)
{
    return s->backend->place;
}
