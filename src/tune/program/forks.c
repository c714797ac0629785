/* choir_tune with forks: the search starts them, answers their messages, and notes how they
 * end. A fork that ends without having said how has failed: it crashed, was killed, or called
 * exit. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tune/program/link.h"
#include "tune/program/program.h"
#include "tune/study.h"

typedef struct forked {
    choir__attempt base;
    bool open; /* fd, this side's end of the socket */
    int fd;
    choir__link_inbox inbox;
} forked;

/* The arguments of a fork. */
typedef struct child {
    choir__driver *driver;
    choir_trial *trial;
    int fd;
} child;

/* --- the fork --- */

/* Locks begin open, since a fork has one thread. */
static int be_child(void *arg)
{
    const child *c = arg;
    choir_study *study = c->driver->study;
    double values[CHOIR_STUDY_OBJECTIVES];
    choir__trial_link link = {.fd = c->fd};
    for (int i = 0; i < c->driver->parallel; i++) {
        const forked *f = (const forked *)c->driver->attempt[i];
        if (f->open)
            close(f->fd);
    }
    pthread_mutex_init(&study->lock, NULL);
    c->trial->link = &link;
    study->forked = true;
    choir_status status = choir__program_call(c->driver->arg, c->trial, values);
    choir__link_end(c->trial, status, values, status == CHOIR_OK ? "" : choir__message());
    if (!study->kept)
        return 0;
    fflush(NULL);
    _exit(0); /* a leak checker would miss the stack of the storage's thread */
}

/* --- the parent --- */

static choir_status start(choir__driver *d, choir__attempt *a)
{
    int fd[2];
    forked *f = (forked *)a;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
        return choir__error(CHOIR_ERR_IO, "cannot make a socket: %s", choir__why(errno));
    child c = {.driver = d, .trial = a->trial, .fd = fd[1]};
    f->fd = fd[0];
    f->open = true;
    choir__tune_rest();
    pthread_mutex_lock(&d->study->lock);
    choir_status status = choir__family_start(&a->family, 0, be_child, &c);
    pthread_mutex_unlock(&d->study->lock);
    close(fd[1]);
    return status;
}

static int poll_socket(const choir__attempt *a, struct pollfd polled[CHOIR__ATTEMPT_FDS])
{
    const forked *f = (const forked *)a;
    polled[0] = (struct pollfd){.fd = f->open ? f->fd : -1, .events = POLLIN};
    return 1;
}

/* Reads once from a fork that lives: one that reports without pause keeps no other one waiting.
 * What it leaves in the socket ends the search's sleep at once. */
static bool look(choir__attempt *a)
{
    forked *f = (forked *)a;
    int64_t got = 0;
    do
        got = f->open ? choir__link_read(&f->inbox, f->fd, a->trial) : 0;
    while (got > 0 && !a->family.alive);
    if (got < 0) {
        close(f->fd);
        f->open = false;
    }
    return true;
}

/* A fork that was to stop may just have left. */
static choir__trial_end end(choir__attempt *a, char *why)
{
    char text[96];
    const choir__child *c = &a->family.children[0];
    const choir__link_inbox *in = &((const forked *)a)->inbox;
    bool left = !in->ended && choir_trial_should_stop(a->trial) && !choir__end_status(c);
    if (!why && in->ended && in->status != CHOIR_OK)
        why = choir__strdup(in->message);
    else if (!why && !in->ended && !left)
        why = choir__strdup(choir__end_text(c, text));
    return choir__program_end(a->trial, in->values, why);
}

static void clear(choir__attempt *a)
{
    forked *f = (forked *)a;
    choir__family_bury(&a->family);
    choir__link_free(&f->inbox);
    if (f->open)
        close(f->fd);
    f->open = false;
}

const choir__runner_ops choir__fork_runner = {.bytes = sizeof(forked),
    .start = start,
    .poll = poll_socket,
    .look = look,
    .end = end,
    .clear = clear};
