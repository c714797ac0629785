/* A family of child processes. A child is forked with all signals blocked, so that none meets
 * the parent's handlers, and dies with its parent; the parent gets a pidfd. The first failure
 * stops the others: SIGTERM, and SIGKILL after a grace. */
#include "launch/process/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/board/board.h"
#include "base/hold_signals.h"
#include "base/process/watch.h"

extern void __lsan_do_leak_check(void) __attribute__((weak));
extern void __gcov_dump(void) __attribute__((weak));

void choir__family_init(choir__family *f, int count)
{
    *f = (choir__family){.count = count,
        .first = -1,
        .memory_kills = choir__memory_kills(),
        .grace_s = 1.5,
        .patience_s = 5,
        .children = choir__calloc((size_t)count, sizeof *f->children)};
    for (int i = 0; i < count; i++)
        f->children[i].pidfd = -1;
}

void choir__family_free(choir__family *f)
{
    for (int i = 0; i < f->count; i++)
        if (f->children[i].pidfd >= 0)
            close(f->children[i].pidfd);
    free(f->children);
    *f = (choir__family){.first = -1};
}

/* --- the child --- */

_Noreturn void choir__child_exit(int status)
{
    fflush(NULL);
    if (__lsan_do_leak_check)
        __lsan_do_leak_check();
    if (__gcov_dump)
        __gcov_dump();
    _exit(status && !(status & 0xff) ? 1 : status);
}

static _Noreturn void be_child(
    choir__family *f, pid_t parent, const sigset_t *mask, choir__child_fn *fn, void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* the parent died before prctl */
    if (f->own_groups)
        setpgid(0, 0);
    for (int i = 0; i < f->count; i++)
        if (f->children[i].pidfd >= 0)
            close(f->children[i].pidfd);
    choir__signals_forget();
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    choir__child_exit(fn(arg));
}

choir_status choir__family_start(choir__family *f, int index, choir__child_fn *fn, void *arg)
{
    pid_t parent = getpid();
    /* a child must not receive a signal while our handlers are still in place */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    if (pid == 0)
        be_child(f, parent, &before, fn, arg);
    int why = errno, pidfd = -1;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid > 0) {
        if (f->own_groups)
            setpgid(
                /* parent and child both do this; fails harmlessly after the child's exec */
                pid, pid);
        pidfd = choir__process_watch(pid);
        why = errno;
    }
    if (pidfd < 0) {
        if (pid > 0) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
        }
        return choir__error(CHOIR_ERR_IO, "cannot start process %d of %d: %s%s", index,
            f->count, choir__why(why),
            why == EAGAIN ? ": this user or container may have no more processes (ulimit -u)"
                          : "");
    }
    f->children[index] = (choir__child){.pid = pid, .pidfd = pidfd};
    f->alive++;
    return CHOIR_OK;
}

/* --- watching --- */

int choir__family_poll(const choir__family *f, struct pollfd *polled)
{
    for (int i = 0; i < f->count; i++)
        polled[i] = (struct pollfd){.fd = f->children[i].pidfd, .events = POLLIN};
    return f->count;
}

bool choir__child_failed(const choir__child *c)
{
    return c->code != CLD_EXITED || c->status != 0;
}

/* Looks whether a child has ended, and how. */
static bool look(choir__child *c)
{
    siginfo_t end = {.si_pid = 0};
    if (waitid(P_PID, (id_t)c->pid, &end, WEXITED | WNOHANG | WNOWAIT) != 0)
        end.si_pid = c->pid, end.si_code = CLD_EXITED, end.si_status = 255;
    if (!end.si_pid)
        return false;
    c->code = end.si_code;
    c->status = end.si_status;
    return true;
}

bool choir__family_reap(choir__family *f, const struct pollfd *polled)
{
    int exited = -1, killed = -1;
    bool any = false;
    for (int i = f->count - 1; i >= 0; i--) {
        choir__child *c = &f->children[i];
        if (c->pidfd < 0 || !polled[i].revents || !look(c))
            continue;
        close(c->pidfd);
        c->pidfd = -1;
        f->alive--;
        any = true;
        c->starved = c->code == CLD_KILLED && c->status == SIGKILL && !f->pressed &&
                     choir__memory_kills() > f->memory_kills;
        if (choir__child_failed(c))
            *(c->code == CLD_EXITED ? &exited : &killed) = i;
    }
    if (f->first < 0)
        f->first = killed >= 0 ? killed : exited;
    if (f->first >= 0 && !f->outlives)
        choir__family_stop(f);
    return any;
}

/* --- stopping --- */

void choir__family_signal(choir__family *f, int number)
{
    for (int i = 0; i < f->count; i++) {
        choir__child *c = &f->children[i];
        if (f->own_groups && c->pid)
            /* a group whose leader is a zombie may have other members left */
            kill(-c->pid, number);
        else if (c->pidfd >= 0)
            kill(c->pid, number); /* not reaped, so the number is still its own */
    }
}

void choir__family_stop(choir__family *f)
{
    if (!f->stopping_at)
        f->stopping_at = choir__now();
}

/* Adds up for how long children have been stopped. Time in which this process was stopped, too,
 * counts as one look. Returns for how many ms to sleep. */
static int find_stopped(choir__family *f)
{
    static const double look_s = 0.5;
    double now = choir__now(), passed = now - f->looked_at;
    bool alone = f->alive == f->count; /* all run: they watch each other */
    if (alone || !f->alive || !(f->stopped_max_s > 0))
        return -1;
    if (f->looked_at && passed < look_s)
        return 1 + (int)(1e3 * (look_s - passed));
    for (int i = 0; i < f->count; i++) {
        choir__child *c = &f->children[i];
        bool stopped = c->pidfd >= 0 && choir__process_state(c->pid) == 'T';
        c->stopped_s = stopped ? c->stopped_s + (f->looked_at ? look_s : 0) : 0;
        if (stopped && c->stopped_s >= f->stopped_max_s && f->first < 0) {
            c->given_up = true;
            f->first = i;
            choir__family_stop(f);
        }
    }
    f->looked_at = now;
    return f->stopping_at ? 0 : (int)(1e3 * look_s);
}

int choir__family_press(choir__family *f)
{
    if (!f->stopping_at) {
        int ms = find_stopped(f);
        if (!f->stopping_at)
            return ms;
    }
    double waited = choir__now() - f->stopping_at, next = f->grace_s;
    if (waited >= next && !f->pressed) {
        f->pressed = SIGTERM;
        choir__family_signal(f, SIGTERM);
        /* wakes stopped processes, so that they receive SIGTERM */
        choir__family_signal(f, SIGCONT);
    }
    if (f->pressed)
        next += f->patience_s;
    if (waited >= next && f->pressed == SIGTERM) {
        f->pressed = SIGKILL;
        choir__family_signal(f, SIGKILL);
    }
    if (f->pressed == SIGKILL)
        return -1;
    return 1 + (int)(1e3 * (next - waited));
}

void choir__family_bury(choir__family *f)
{
    if (f->alive || f->own_groups)
        choir__family_signal(f, SIGKILL);
    for (int i = 0; i < f->count; i++) {
        choir__child *c = &f->children[i];
        siginfo_t end;
        if (!c->pid)
            continue;
        if (waitid(P_PID, (id_t)c->pid, &end, WEXITED) == 0 && !c->code) {
            c->code = end.si_code;
            c->status = end.si_status;
        }
        if (c->pidfd >= 0) {
            close(c->pidfd);
            f->alive--;
        }
        c->pidfd = -1;
        c->pid = 0;
    }
}

/* --- in words --- */

const char *choir__end_text(const choir__child *c, char text[96])
{
    const char *name = sigabbrev_np(c->status);
    if (c->given_up)
        snprintf(
            text, 96, "was stopped (SIGSTOP) for %.0f s while others had ended", c->stopped_s);
    else if (c->code == CLD_EXITED)
        snprintf(text, 96, "exited with status %d", c->status);
    else if (!c->code)
        snprintf(text, 96, "is running");
    else if (c->starved)
        snprintf(text, 96, "was killed by SIGKILL, as memory ran out");
    else if (name)
        snprintf(text, 96, "was killed by SIG%s (%.40s%s)", name, strsignal(c->status),
            c->code == CLD_DUMPED ? ", core dumped" : "");
    else
        snprintf(text, 96, "was killed by signal %d", c->status);
    return text;
}

int choir__end_status(const choir__child *c)
{
    if (c->given_up)
        return 1;
    return c->code == CLD_EXITED ? c->status : 128 + c->status;
}

bool choir__end_crashed(const choir__child *c)
{
    return c->code && c->code != CLD_EXITED && choir__is_fault(c->status);
}

int choir__family_crashed(const choir__family *f)
{
    int i = 0;
    while (i < f->count && !choir__end_crashed(&f->children[i]))
        i++;
    return i < f->count ? i : -1;
}
