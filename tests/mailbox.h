/* An engine for tests: ranks are threads of one process, and messages are stored in mailboxes
 * under one lock. Every other message is copied when it is sent; the rest stay in the sender's
 * memory until the receiver fetches them, so that a sender that reuses memory too early is
 * found out. */
#ifndef CHOIR_TESTS_MAILBOX_H
#define CHOIR_TESTS_MAILBOX_H

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/engine.h"

enum { MAILBOX_WORLD = 64, MAILBOX_PATIENCE_S = 20 };

typedef struct letter {
    struct letter *next;
    const void *data; /* NULL: in copy */
    size_t bytes;
    choir__stamp stamp;
    bool taken;
    char copy[];
} letter;

typedef struct mailbox_pair {
    letter *first, *last;
    int sent, expected, fetched; /* letters; receives posted; receives done */
} mailbox_pair;

struct errand;

typedef struct post_office {
    pthread_mutex_t lock;
    pthread_cond_t change;
    mailbox_pair pairs[MAILBOX_WORLD][MAILBOX_WORLD];
    int world;
    bool failed;
    char message[512];
    struct errand *errands; /* all unfinished ones: a group that failed leaves some */
} post_office;

typedef struct mailbox {
    choir__engine base;
    post_office *office;
} mailbox;

/* A receive that waits, or a send that the peer has not fetched. */
typedef struct errand {
    struct errand *next, **link;
    void *data;
    size_t bytes;
    choir__stamp stamp;
    int number;
    letter *sent;
} errand;

static inline errand *errand_new(post_office *office)
{
    errand *e = calloc(1, sizeof *e);
    e->next = office->errands;
    e->link = &office->errands;
    if (e->next)
        e->next->link = &e->next;
    return office->errands = e;
}

static inline void errand_free(errand *e)
{
    if (e->sent && e->sent->taken)
        free(e->sent);
    *e->link = e->next;
    if (e->next)
        e->next->link = e->link;
    free(e);
}

static inline choir_status mailbox_send(choir__engine *engine, int peer, const void *data,
    size_t bytes, const choir__stamp *stamp, choir__request *request)
{
    post_office *office = ((mailbox *)engine)->office;
    mailbox_pair *pair = &office->pairs[engine->rank][peer];
    pthread_mutex_lock(&office->lock);
    bool copied = pair->sent++ % 2;
    letter *l = calloc(1, sizeof *l + (copied ? bytes : 0));
    l->bytes = bytes;
    l->stamp = *stamp;
    l->data = copied ? NULL : data;
    if (copied && bytes)
        memcpy(l->copy, data, bytes);
    if (pair->last)
        pair->last->next = l;
    else
        pair->first = l;
    pair->last = l;
    request->done = copied;
    request->peer = peer;
    if (!copied) {
        errand *e = errand_new(office);
        e->sent = l;
        request->handle = e;
    }
    pthread_cond_broadcast(&office->change);
    pthread_mutex_unlock(&office->lock);
    return CHOIR_OK;
}

static inline choir_status mailbox_receive(choir__engine *engine, int peer, void *data,
    size_t bytes, const choir__stamp *stamp, choir__request *request)
{
    post_office *office = ((mailbox *)engine)->office;
    pthread_mutex_lock(&office->lock);
    errand *e = errand_new(office);
    e->data = data;
    e->bytes = bytes;
    e->stamp = *stamp;
    e->number = office->pairs[peer][engine->rank].expected++;
    request->handle = e;
    request->peer = peer;
    pthread_mutex_unlock(&office->lock);
    return CHOIR_OK;
}

static inline choir_status mailbox_fail(mailbox *box, choir_status status, const char *text)
{
    post_office *office = box->office;
    if (!office->failed)
        snprintf(office->message, sizeof office->message, "%s", text);
    office->failed = true;
    pthread_cond_broadcast(&office->change);
    return choir__engine_fail(&box->base, status, "%s", office->message);
}

/* Fetches the request's letter if it has arrived and is next in order. */
static inline choir_status mailbox_try(mailbox *box, choir__request *request)
{
    post_office *office = box->office;
    errand *e = request->handle;
    mailbox_pair *pair = &office->pairs[request->peer][box->base.rank];
    letter *l = pair->first;
    if (e->sent) {
        request->done = e->sent->taken;
    } else if (l && pair->fetched == e->number) {
        if (memcmp(&l->stamp, &e->stamp, sizeof l->stamp) != 0 || l->bytes != e->bytes)
            return mailbox_fail(box, CHOIR_ERR_MISMATCH, "ranks disagree");
        if (l->bytes)
            memcpy(e->data, l->data ? l->data : l->copy, l->bytes);
        pair->first = l->next;
        if (!l->next)
            pair->last = NULL;
        pair->fetched++;
        l->taken = true;
        if (!l->data)
            free(l);
        request->done = true;
        pthread_cond_broadcast(&office->change);
    }
    if (request->done)
        errand_free(e);
    return CHOIR_OK;
}

static inline choir_status mailbox_wait(
    choir__engine *engine, choir__request *requests, int count)
{
    mailbox *box = (mailbox *)engine;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MAILBOX_PATIENCE_S;
    choir_status status = CHOIR_OK;
    pthread_mutex_lock(&box->office->lock);
    for (;;) {
        int left = 0;
        for (int i = 0; i < count && !status; i++) {
            if (!requests[i].done)
                status = mailbox_try(box, &requests[i]);
            left += !requests[i].done;
        }
        if (!status && !left)
            break;
        if (!status && box->office->failed)
            status = mailbox_fail(box, CHOIR_ERR_PEER_LOST, "");
        if (!status &&
            pthread_cond_timedwait(&box->office->change, &box->office->lock, &until) != 0)
            status = mailbox_fail(box, CHOIR_ERR_TIMEOUT, "a letter never came");
        if (status)
            break;
    }
    pthread_mutex_unlock(&box->office->lock);
    return status;
}

static const choir__engine_ops mailbox_ops = {.name = "mailbox",
    .run = choir__message_run,
    .run_batch = choir__message_batch,
    .send = mailbox_send,
    .receive = mailbox_receive,
    .wait = mailbox_wait};

/* per_node > 0: ranks are distributed over machines in order, per_node to each. */
static inline mailbox *mailbox_open(post_office *office, int rank, int per_node)
{
    mailbox *box = calloc(1, sizeof *box);
    box->base = (choir__engine){.ops = &mailbox_ops,
        .rank = rank,
        .world = office->world,
        .nodes = 1,
        .timeout_s = MAILBOX_PATIENCE_S};
    box->office = office;
    if (per_node) {
        box->base.members = calloc((size_t)office->world, sizeof(choir__member));
        for (int r = 0; r < office->world; r++) {
            box->base.members[r].node = r / per_node;
            box->base.members[r].local_rank = r % per_node;
        }
        box->base.nodes = (office->world + per_node - 1) / per_node;
    }
    return box;
}

/* --- ranks as threads --- */

typedef int mailbox_fn(choir__engine *engine, void *arg);

typedef struct mailbox_thread {
    post_office *office;
    mailbox_fn *fn;
    void *arg;
    int rank, per_node, result;
    pthread_t thread;
} mailbox_thread;

static inline void *mailbox_main(void *arg)
{
    mailbox_thread *t = arg;
    mailbox *box = mailbox_open(t->office, t->rank, t->per_node);
    t->result = t->fn(&box->base, t->arg);
    if (t->result) { /* the others need not wait for it */
        pthread_mutex_lock(&t->office->lock);
        mailbox_fail(box, CHOIR_ERR_PEER_LOST, "a rank has failed");
        pthread_mutex_unlock(&t->office->lock);
    }
    choir__engine_free(&box->base);
    return NULL;
}

/* Runs fn on `world` ranks. Returns how many of them returned other than 0. */
static inline int mailbox_run(int world, int per_node, mailbox_fn *fn, void *arg)
{
    post_office *office = calloc(1, sizeof *office);
    mailbox_thread threads[MAILBOX_WORLD];
    int bad = 0;
    office->world = world;
    pthread_mutex_init(&office->lock, NULL);
    pthread_cond_init(&office->change, NULL);
    for (int r = 0; r < world; r++) {
        threads[r] = (mailbox_thread){office, fn, arg, r, per_node, 0, 0};
        pthread_create(&threads[r].thread, NULL, mailbox_main, &threads[r]);
    }
    for (int r = 0; r < world; r++) {
        pthread_join(threads[r].thread, NULL);
        bad += threads[r].result != 0;
    }
    for (int from = 0; from < world && !office->failed; from++)
        for (int to = 0; to < world; to++)
            bad += office->pairs[from][to].first != NULL; /* a letter that was never received */
    while (office->errands)
        errand_free(office->errands);
    for (int from = 0; from < world; from++)
        for (int to = 0; to < world; to++)
            for (letter *l = office->pairs[from][to].first, *next; l; l = next) {
                next = l->next;
                free(l);
            }
    pthread_cond_destroy(&office->change);
    pthread_mutex_destroy(&office->lock);
    free(office);
    return bad;
}

#endif
