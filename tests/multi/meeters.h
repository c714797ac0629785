/* Ranks that meet and part. Each is a fork of the test with its own method and place, and
 * stores its outcome in shared memory for the test. */
#ifndef CHOIR_TESTS_MEETERS_H
#define CHOIR_TESTS_MEETERS_H

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "helpers.h"
#include "comm/engine.h"
#include "launch/meet/meeting.h"

enum { MEETERS_MAX = 32 };

typedef struct meeter {
    /* set by the test before the start */
    const char *method;
    choir_group_opts opts;
    void (*prepare)(const struct meeter *self); /* the child calls it first */
    double late_s, stays_s;
    /* set by the rank; status stays 1 if the rank did not finish */
    pid_t pid;
    int status, nodes, exit;
    double took_s;
    bool has_store;
    int cut_off_ms; /* after which the machines of its connections count as gone; -1: none */
    char message[600], job[128];
    choir__member members[MEETERS_MAX];
} meeter;

typedef struct meeters {
    int count;
    meeter each[MEETERS_MAX];
} meeters;

static inline meeters *meeters_new(const char *method, int world, double timeout_s)
{
    meeters *all = shared_memory(sizeof *all);
    all->count = world;
    for (int r = 0; r < world; r++) {
        all->each[r].method = method;
        all->each[r].opts = choir_group_defaults();
        all->each[r].opts.rank = r;
        all->each[r].opts.world = world;
        all->each[r].opts.timeout_s = timeout_s;
        all->each[r].status = 1;
    }
    return all;
}

static inline choir__meet_need need_of(const choir_group_opts *opts)
{
    return choir__engine_need(opts->backend ? opts->backend : getenv("CHOIR_BACKEND"));
}

/* Returns the shortest limit of this process's connections. */
static inline int cut_off_ms(void)
{
    int least = -1;
    for (int fd = 3; fd < 256; fd++) {
        int ms = 0;
        socklen_t bytes = sizeof ms;
        bool has = !getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, &bytes) && ms;
        least = has && (least < 0 || ms < least) ? ms : least;
    }
    return least;
}

static inline void meeter_run(meeter *m)
{
    choir__meeting meeting;
    if (m->prepare)
        m->prepare(m);
    usleep((useconds_t)(m->late_s * 1e6));
    double start = choir__now();
    choir_status status = choir__meet(m->method, &m->opts, need_of(&m->opts), &meeting);
    m->took_s = choir__now() - start;
    snprintf(m->message, sizeof m->message, "%s", status ? choir_error_message() : "");
    m->nodes = meeting.nodes;
    m->cut_off_ms = cut_off_ms();
    if (!status) {
        m->has_store = meeting.store;
        snprintf(m->job, sizeof m->job, "%s", meeting.job);
        for (int r = 0; r < meeting.world && meeting.members; r++)
            m->members[r] = meeting.members[r];
    }
    m->status = status;
    usleep((useconds_t)(m->stays_s * 1e6));
    if (!status)
        choir__meeting_free(&meeting);
}

static inline void meeters_start(meeters *all)
{
    fflush(NULL);
    for (int r = 0; r < all->count; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(60);
            meeter_run(&all->each[r]);
            _exit(0);
        }
        all->each[r].pid = pid;
    }
}

static inline void meeters_wait(meeters *all)
{
    for (int r = 0; r < all->count; r++)
        waitpid(all->each[r].pid, &all->each[r].exit, 0);
}

static inline void meeters_free(meeters *all)
{
    munmap(all, sizeof *all);
}

#endif
