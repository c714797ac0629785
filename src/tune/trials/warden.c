/* The warden: a process that kills the trials' processes if the search dies. It sleeps until
 * the search's end of a pipe is closed, which the kernel does however the search ends, and
 * then reads the process groups from memory that both share. It has only the pipe open, so
 * it keeps nothing else alive. */
#include "tune/trials/running.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launch/process/process.h"

struct choir__warden {
    pid_t pid;
    int pipe; /* this process's end */
    int most;
    _Atomic pid_t *group; /* (most) shared; 0: none */
};

static size_t bytes_of(const choir__warden *w)
{
    return (size_t)w->most * sizeof *w->group;
}

static void close_one_by_one(void)
{
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = 1; fd < (most > 0 && most < 1 << 20 ? most : 1 << 20); fd++)
        close(fd);
}

/* Keeps nothing of the search open but the pipe. Signals of the terminal are for the search. */
static _Noreturn void be_warden(const choir__warden *w, int end)
{
    char none, mark[48];
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    snprintf(mark, sizeof mark, CHOIR__TRIAL_MARK "%d/", (int)getppid());
    setsid();
    dup2(end, STDIN_FILENO);
    if (syscall(SYS_close_range, 1u, ~0u, 0u)) /* Linux 5.9 */
        close_one_by_one();
    while (read(STDIN_FILENO, &none, 1) < 0 && errno == EINTR)
        ;
    for (int i = 0; i < w->most; i++)
        if (w->group[i])
            kill(-w->group[i], SIGKILL);
    choir__kill_marked(mark); /* processes that left their group */
    _exit(0);
}

choir_status choir__warden_new(int most, choir__warden **warden)
{
    choir__warden *w = choir__calloc(1, sizeof *w);
    int end[2];
    w->most = most;
    w->group =
        mmap(NULL, bytes_of(w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w->group == MAP_FAILED || pipe2(end, O_CLOEXEC)) {
        free(w);
        return choir__error(
            CHOIR_ERR_IO, "cannot make a pipe for the trials' warden: %s", choir__why(errno));
    }
    w->pid = fork();
    if (w->pid == 0) {
        close(end[1]);
        be_warden(w, end[0]);
    }
    close(end[0]);
    w->pipe = end[1];
    *warden = w;
    if (w->pid > 0)
        return CHOIR_OK;
    choir_status status =
        choir__error(CHOIR_ERR_IO, "cannot start the trials' warden: %s", choir__why(errno));
    choir__warden_free(w);
    return status;
}

static void replace(choir__warden *w, pid_t from, pid_t to)
{
    for (int i = 0; i < w->most; i++)
        if (w->group[i] == from) {
            w->group[i] = to;
            return;
        }
}

void choir__warden_watch(choir__warden *w, pid_t group)
{
    replace(w, 0, group);
}

void choir__warden_forget(choir__warden *w, pid_t group)
{
    replace(w, group, 0);
}

void choir__warden_free(choir__warden *w)
{
    if (!w)
        return;
    close(w->pipe);
    while (w->pid > 0 && waitpid(w->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    munmap(w->group, bytes_of(w));
    free(w);
}
