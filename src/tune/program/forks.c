/* choir_tune with forks: a loop starts them, answers their messages, and notes how they end. A
 * fork that ends without having said how has failed: it crashed, was killed, or called exit. */
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/process/process.h"
#include "tune/program/link.h"
#include "tune/program/tuning.h"
#include "tune/study.h"

typedef struct slot {
    bool busy, open, timed_out; /* open: the socket is */
    choir__tuned one;
    choir__family family;
    int fd;
    choir__link_inbox inbox;
    double started;
} slot;

/* The arguments of a fork. */
typedef struct child {
    choir__tuning *tuning;
    const slot *slots; /* (parallel) */
    slot *own;
    int fd;
} child;

/* --- the fork --- */

/* Locks begin open, since a fork has one thread. */
static int be_child(void *arg)
{
    const child *c = arg;
    choir__tuning *t = c->tuning;
    choir__tuned *one = &c->own->one;
    choir__trial_link link = {.fd = c->fd};
    for (int i = 0; i < t->opts.parallel; i++)
        if (c->slots[i].open)
            close(c->slots[i].fd);
    pthread_mutex_init(&t->study->lock, NULL);
    one->trial->link = &link;
    t->study->forked = true;
    choir__tuned_run(t, one);
    choir__link_end(one->trial, one->status, one->values, one->why ? one->why : "");
    if (!t->study->kept)
        return 0;
    fflush(NULL);
    _exit(0); /* a leak checker would miss the stack of the storage's thread */
}

/* --- the parent --- */

static choir_status start(choir__tuning *t, slot *slots, slot *s)
{
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
        return choir__error(CHOIR_ERR_IO, "cannot make a socket: %s", choir__why(errno));
    child c = {.tuning = t, .slots = slots, .own = s, .fd = fd[1]};
    choir__family_init(&s->family, 1);
    s->family.grace_s = 0;
    s->fd = fd[0];
    s->open = true;
    s->timed_out = false;
    s->started = choir__now();
    choir__tune_rest();
    pthread_mutex_lock(&t->study->lock);
    choir_status status = choir__family_start(&s->family, 0, be_child, &c);
    pthread_mutex_unlock(&t->study->lock);
    close(fd[1]);
    return status;
}

static void clear(slot *s)
{
    choir__family_bury(&s->family);
    choir__family_free(&s->family);
    choir__link_free(&s->inbox);
    if (s->open)
        close(s->fd);
    s->open = false;
}

/* Starts a part, or notes why it cannot be started. */
static void begin(choir__tuning *t, slot *slots, slot *s)
{
    s->busy = true;
    if (start(t, slots, s) != CHOIR_OK)
        s->one.why = choir__format("could not be started: %s", choir__message());
}

/* Notes how a fork has ended, and runs its trial again if that is due. */
static void end(choir__tuning *t, slot *slots, slot *s)
{
    char text[96];
    choir__tuned *one = &s->one;
    const choir__link_inbox *in = &s->inbox;
    bool stopped = choir_trial_should_stop(one->trial);
    memcpy(one->values, in->values, sizeof one->values);
    if (one->why) /* it did not begin */
        (void)0;
    else if (s->timed_out)
        one->why = choir__format("took longer than %g s", t->opts.timeout_s);
    else if (!in->ended && !(stopped && !choir__end_status(&s->family.children[0])))
        one->why = choir__strdup(choir__end_text(&s->family.children[0], text));
    else if (in->ended && in->status != CHOIR_OK)
        one->why = choir__strdup(in->message);
    clear(s);
    s->busy = false;
    if (choir__tuning_end(t, one))
        begin(t, slots, s);
}

/* Returns whether the fork has ended, and all that it sent has been read. */
static bool look(choir__tuning *t, slot *s)
{
    struct pollfd polled;
    if (s->one.why)
        return true;
    if (s->open && !choir__link_read(&s->inbox, s->fd, s->one.trial)) {
        close(s->fd);
        s->open = false;
    }
    choir__family_poll(&s->family, &polled);
    poll(&polled, 1, 0);
    choir__family_reap(&s->family, &polled);
    if (!s->family.alive) {
        if (s->open) /* its last messages */
            (void)choir__link_read(&s->inbox, s->fd, s->one.trial);
        return true;
    }
    if (t->opts.timeout_s > 0 && !s->timed_out &&
        choir__now() - s->started > t->opts.timeout_s) {
        s->timed_out = true;
        choir__family_stop(&s->family);
    }
    choir__family_press(&s->family);
    return false;
}

/* Returns for how many ms to sleep at most, or -1. */
static int patience(const choir__tuning *t, const slot *slots, bool idle)
{
    int ms = idle && t->study->kept ? CHOIR__OTHERS_MS : -1;
    for (int i = 0; i < t->opts.parallel; i++) {
        if (!slots[i].busy)
            continue;
        double left = t->opts.timeout_s - (choir__now() - slots[i].started);
        int own = slots[i].one.why        ? 0
                  : slots[i].timed_out    ? 100
                  : t->opts.timeout_s > 0 ? (int)(1e3 * fmin(fmax(left, 0), 3600)) + 1
                                          : -1;
        if (own >= 0 && (ms < 0 || own < ms))
            ms = own;
    }
    return ms;
}

static void sleep_until_something(const choir__tuning *t, const slot *slots, bool idle)
{
    struct pollfd *polled = choir__calloc(2 * (size_t)t->opts.parallel, sizeof *polled);
    nfds_t count = 0;
    for (int i = 0; i < t->opts.parallel; i++) {
        if (!slots[i].busy || slots[i].one.why)
            continue;
        if (slots[i].open)
            polled[count++] = (struct pollfd){.fd = slots[i].fd, .events = POLLIN};
        count += (nfds_t)choir__family_poll(&slots[i].family, polled + count);
    }
    poll(polled, count, patience(t, slots, idle));
    free(polled);
}

void choir__tune_by_forks(choir__tuning *t)
{
    slot *slots = choir__calloc((size_t)t->opts.parallel, sizeof *slots);
    for (;;) {
        int busy = 0;
        bool idle = false;
        for (int i = 0; i < t->opts.parallel; i++) {
            slot *s = &slots[i];
            if (!s->busy && !idle && choir__tuning_begin(t, i, &s->one))
                begin(t, slots, s);
            idle = idle || !s->busy;
            busy += s->busy;
        }
        if (!busy && t->over)
            break;
        sleep_until_something(t, slots, idle);
        for (int i = 0; i < t->opts.parallel; i++)
            if (slots[i].busy && look(t, &slots[i]))
                end(t, slots, &slots[i]);
    }
    free(slots);
}
