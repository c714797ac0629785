/* choir_spawn: ranks as forks of the calling process.
 *
 * The parent sleeps on a pidfd a child and on a pipe that its signal handler writes to. The
 * first child that fails settles the outcome; the others get a moment to notice by themselves
 * (they usually do, and their own words about it are worth having), then SIGTERM, then
 * SIGKILL. A child asks the kernel for SIGKILL when its parent goes, so nothing outlives the
 * caller however it dies.
 *
 * A child ends by _exit: what the parent registered with atexit is the parent's to run. The
 * leak checker and coverage, which would have run there, are called by name when they are
 * linked in. */
#include <choir/group.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "device/queue.h"

enum { RANKS_MAX = 1024 };

static const double grace_s = 1.5, patience_s = 5;

extern void __lsan_do_leak_check(void) __attribute__((weak));
extern void __gcov_dump(void) __attribute__((weak));

typedef struct child {
    pid_t pid;
    int pidfd; /* -1: reaped */
} child;

typedef struct family {
    int world, alive;
    child *children; /* (world) */
    choir_status outcome;
    char message[200];
    double failed_at; /* 0: nobody has */
    int stopped_with; /* the strongest signal sent to the others so far */
    bool interrupted;
} family;

/* --- signals: one choir_spawn at a time owns the handlers --- */

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static int signal_pipe[2] = {-1, -1};

typedef struct old_actions {
    struct sigaction interrupt, terminate, child;
} old_actions;

/* Ctrl-C reaches the whole process group by itself (the kernel is its sender): only what
 * somebody sent to this process alone is to be passed on. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    int why = errno;
    unsigned char note[2] = {(unsigned char)number, info->si_code != SI_KERNEL};
    (void)context;
    if (write(signal_pipe[1], note, sizeof note) < 0) {
        /* full: enough of them are on their way */
    }
    errno = why;
}

static void take_signal(int number, struct sigaction *old)
{
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(number, NULL, old);
    if (old->sa_handler != SIG_IGN)
        sigaction(number, &ours, NULL);
}

static void take_signals(old_actions *old)
{
    struct sigaction plain = {.sa_handler = SIG_DFL};
    take_signal(SIGINT, &old->interrupt);
    take_signal(SIGTERM, &old->terminate);
    sigaction(SIGCHLD, NULL, &old->child);
    if (old->child.sa_handler == SIG_IGN || (old->child.sa_flags & SA_NOCLDWAIT))
        sigaction(SIGCHLD, &plain, NULL); /* else exit statuses are thrown away */
}

static void give_back_signals(const old_actions *old)
{
    sigaction(SIGINT, &old->interrupt, NULL);
    sigaction(SIGTERM, &old->terminate, NULL);
    sigaction(SIGCHLD, &old->child, NULL);
}

static void send_to_all(family *f, int number)
{
    for (int r = 0; r < f->world; r++)
        if (f->children[r].pidfd >= 0)
            kill(f->children[r].pid, number); /* not reaped: the number is still its own */
}

static void pass_signals_on(family *f)
{
    unsigned char note[2];
    while (read(signal_pipe[0], note, sizeof note) == (ssize_t)sizeof note) {
        f->interrupted = true;
        if (note[1])
            send_to_all(f, note[0]);
    }
}

/* --- the child --- */

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static _Noreturn void be_rank(
    int rank, int world, const char *job, pid_t parent, choir_spawn_fn *fn, void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* it died before we could ask */
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
    set_number("WORLD_SIZE", world);
    set_number("LOCAL_WORLD_SIZE", world);
    setenv("CHOIR_JOB", job, 1);
    choir__set_rank_label(rank);
    int status = fn(rank, world, arg);
    choir__queues_quiesce();
    fflush(NULL);
    if (__lsan_do_leak_check)
        __lsan_do_leak_check();
    if (__gcov_dump)
        __gcov_dump();
    _exit(status && !(status & 0xff) ? 1 : status);
}

/* --- the parent --- */

static void fail(family *f, choir_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void fail(family *f, choir_status status, const char *format, ...)
{
    va_list args;
    if (f->outcome)
        return;
    va_start(args, format);
    vsnprintf(f->message, sizeof f->message, format, args);
    va_end(args);
    f->outcome = status;
    f->failed_at = choir__now();
}

static void note_end(family *f, int rank, const siginfo_t *end)
{
    int pid = (int)f->children[rank].pid;
    if (end->si_code == CLD_EXITED && end->si_status == 0)
        return;
    if (end->si_code == CLD_EXITED)
        fail(f, CHOIR_ERR_PEER_LOST, "rank %d (pid %d) exited with status %d", rank, pid,
            end->si_status);
    else
        fail(f, CHOIR_ERR_PEER_LOST, "rank %d (pid %d) was killed by SIG%s (%s)", rank, pid,
            sigabbrev_np(end->si_status), strsignal(end->si_status));
}

/* Those found dead at one look: a signal before an exit status, which is often its
 * consequence. */
static void reap(family *f, const struct pollfd *ready)
{
    siginfo_t ends[RANKS_MAX];
    for (int r = 0; r < f->world; r++) {
        child *c = &f->children[r];
        ends[r].si_pid = 0;
        if (c->pidfd < 0 || !ready[r].revents)
            continue;
        if (waitid(P_PID, (id_t)c->pid, &ends[r], WEXITED | WNOHANG) != 0)
            ends[r] = (siginfo_t){.si_pid = c->pid, .si_code = CLD_EXITED, .si_status = 255};
        if (!ends[r].si_pid)
            continue;
        close(c->pidfd);
        c->pidfd = -1;
        f->alive--;
    }
    for (int round = 0; round < 2; round++)
        for (int r = 0; r < f->world; r++)
            if (ends[r].si_pid && (round || ends[r].si_code != CLD_EXITED))
                note_end(f, r, &ends[r]);
}

/* After a failure: first time to notice, then SIGTERM, then SIGKILL. */
static void press(family *f)
{
    double waited = f->failed_at ? choir__now() - f->failed_at : 0;
    if (waited > grace_s && !f->stopped_with) {
        f->stopped_with = SIGTERM;
        send_to_all(f, SIGTERM);
    }
    if (waited > grace_s + patience_s && f->stopped_with == SIGTERM) {
        f->stopped_with = SIGKILL;
        send_to_all(f, SIGKILL);
    }
}

static void watch(family *f)
{
    struct pollfd ready[RANKS_MAX + 1];
    while (f->alive) {
        for (int r = 0; r < f->world; r++)
            ready[r] = (struct pollfd){.fd = f->children[r].pidfd, .events = POLLIN};
        ready[f->world] = (struct pollfd){.fd = signal_pipe[0], .events = POLLIN};
        if (poll(ready, (nfds_t)f->world + 1, f->failed_at ? 100 : -1) < 0)
            continue; /* EINTR: the pipe holds why */
        pass_signals_on(f);
        reap(f, ready);
        press(f);
    }
}

static bool start(
    family *f, const char *job, const old_actions *old, choir_spawn_fn *fn, void *arg)
{
    pid_t parent = getpid();
    for (int r = 0; r < f->world; r++) {
        sigset_t ours,
            before; /* a child must not meet a signal with our handler still in place */
        sigemptyset(&ours);
        sigaddset(&ours, SIGINT);
        sigaddset(&ours, SIGTERM);
        pthread_sigmask(SIG_BLOCK, &ours, &before);
        pid_t pid = fork();
        if (pid == 0) {
            for (int i = 0; i < r; i++)
                close(f->children[i].pidfd);
            close(signal_pipe[0]);
            close(signal_pipe[1]);
            pthread_mutex_unlock(&one_at_a_time); /* a rank may spawn, too */
            give_back_signals(old);
            pthread_sigmask(SIG_SETMASK, &before, NULL);
            be_rank(r, f->world, job, parent, fn, arg);
        }
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        if (pidfd < 0) {
            fail(f, CHOIR_ERR_IO, "cannot start rank %d of %d: %s", r, f->world,
                strerror(errno));
            if (pid > 0) {
                kill(pid, SIGKILL);
                waitpid(pid, NULL, 0);
            }
            return false;
        }
        f->children[r] = (child){pid, pidfd};
        f->alive++;
    }
    return true;
}

static choir_status random_job(char text[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return choir__error(CHOIR_ERR_IO, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return CHOIR_OK;
}

choir_status choir_spawn(int world, choir_spawn_fn *fn, void *arg)
{
    char job[33];
    old_actions old;
    family f = {.world = world};
    if (world < 1 || world > RANKS_MAX)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "spawn of %d ranks: want 1 to %d", world, RANKS_MAX);
    if (random_job(job))
        return CHOIR_ERR_IO;
    pthread_mutex_lock(&one_at_a_time);
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK)) {
        pthread_mutex_unlock(&one_at_a_time);
        return choir__error(CHOIR_ERR_IO, "spawn: no pipe: %s", strerror(errno));
    }
    f.children = choir__calloc((size_t)world, sizeof *f.children);
    for (int r = 0; r < world; r++)
        f.children[r].pidfd = -1;
    choir__queues_quiesce(); /* a fork has one thread: no worker may be at work */
    fflush(NULL);            /* or every child would write what is buffered again */
    take_signals(&old);
    if (!start(&f, job, &old, fn, arg))
        send_to_all(&f, SIGKILL);
    watch(&f);
    give_back_signals(&old);
    close(signal_pipe[0]);
    close(signal_pipe[1]);
    pthread_mutex_unlock(&one_at_a_time);
    free(f.children);
    if (f.outcome && f.interrupted)
        return choir__error(CHOIR_ERR_INTERRUPTED, "interrupted; %s", f.message);
    return f.outcome ? choir__error(f.outcome, "%s", f.message) : CHOIR_OK;
}
