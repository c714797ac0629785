/* A descriptor that tells when a process ends: a pidfd, by Linux 5.3 and later. Older kernels,
 * as in RHEL 8, have no pidfds. There a thread looks at /proc every few milliseconds, and
 * writes into a pipe, whose other end is the descriptor:
 *
 *     caller: poll(reader)  <--- pipe ---  the thread: /proc/PID/stat is gone, a zombie's, or
 *                                          of a process that started at another time
 *
 * A pipe is found again by its inode, as callers may duplicate their end. */
#include "base/process/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/process/forks.h"
#include "base/hold_signals.h"

enum { LOOK_MS = 5 };

typedef struct watched {
    struct watched *next;
    pid_t pid;
    unsigned long long started; /* in the kernel's ticks since it booted */
    ino_t pipe;
    int writer; /* -1: the process has ended */
} watched;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static watched *all; /* the newest first */
static bool looking; /* a thread does */

/* Returns when the process started, in ticks; 0: it has ended. Allocates
 * no memory, as a fork may find the thread here. */
static unsigned long long start_of(pid_t pid)
{
    char path[64], text[1024];
    unsigned long long started = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[bytes > 0 ? bytes : 0] = '\0';
    /* The name may hold spaces and parentheses. The third field is the state, the 22nd the
     * time. */
    char state = 0;
    const char *rest = strrchr(text, ')');
    if (!rest ||
        sscanf(rest + 1,
            " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
            "%llu",
            &state, &started) != 2)
        return 0;
    return state == 'Z' || state == 'X' ? 0 : started;
}

/* Tells of processes that have ended. Returns whether any is left to look at. */
static bool look(void)
{
    bool left = false;
    for (watched *w = all; w; w = w->next) {
        if (w->writer < 0)
            continue;
        if (start_of(w->pid) == w->started) {
            left = true;
            continue;
        }
        while (write(w->writer, "", 1) < 0 && errno == EINTR)
            ;
        close(w->writer);
        w->writer = -1;
    }
    return left;
}

static void *keep_looking(void *arg)
{
    bool more = true;
    while (more) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
        pthread_mutex_lock(&lock);
        more = looking = look();
        pthread_mutex_unlock(&lock);
    }
    return arg;
}

/* --- forks: in a child the parent's thread tells of what the parent watches --- */

static void before_fork(void *self)
{
    (void)self;
    pthread_mutex_lock(&lock);
}

static void in_parent(void *self)
{
    (void)self;
    pthread_mutex_unlock(&lock);
}

static void in_child(void *self)
{
    for (watched *w = all; w; w = w->next)
        if (w->writer >= 0) {
            close(w->writer);
            w->writer = -1;
        }
    looking = false;
    pthread_mutex_unlock(&lock);
    choir__forkable_add(self);
}

static void take_part_in_forks(void)
{
    static choir__forkable forkable = {
        .before = before_fork, .in_parent = in_parent, .in_child = in_child, .self = &forkable};
    choir__forkable_add(&forkable);
}

/* --- */

/* Adds a watched process, and starts the thread. Returns 0 or an error number. */
static int add(pid_t pid, unsigned long long started, const int ends[2])
{
    struct stat pipe;
    if (fstat(ends[0], &pipe))
        return errno;
    watched *w = choir__calloc(1, sizeof *w);
    *w = (watched){.pid = pid, .started = started, .pipe = pipe.st_ino, .writer = ends[1]};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, take_part_in_forks);
    int why = 0;
    pthread_mutex_lock(&lock);
    w->next = all;
    all = w;
    pthread_t thread;
    if (!looking && (why = choir__thread_start(&thread, keep_looking, NULL)) == 0) {
        looking = true;
        pthread_detach(thread);
    }
    if (why) {
        all = w->next;
        free(w);
    }
    pthread_mutex_unlock(&lock);
    return why;
}

/* Watches a process as kernels before 5.3 allow it. */
static int watch_by_looking(pid_t pid)
{
    unsigned long long started = start_of(pid);
    int ends[2];
    if (!started && kill(pid, 0)) /* a zombie is still one that can be watched */
        return -1;
    if (pipe2(ends, O_CLOEXEC))
        return -1;
    int why = add(pid, started ? started : 1, ends);
    if (!why)
        return ends[0];
    close(ends[0]);
    close(ends[1]);
    errno = why;
    return -1;
}

int choir__process_watch(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    return fd < 0 && errno == ENOSYS ? watch_by_looking(pid) : fd;
}

int choir__process_pidfd(void)
{
    return (int)syscall(SYS_pidfd_open, getpid(), 0);
}

/* Returns the process behind a pidfd; 0: it has been reaped; -1: this is no pidfd. */
static pid_t behind_pidfd(int fd)
{
    char path[64], line[128];
    int pid = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    while (f && pid < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "Pid: %d", &pid) == 1 && pid < 0)
            pid = 0;
    if (f)
        fclose(f);
    return pid;
}

pid_t choir__process_watched(int fd)
{
    pid_t pid = behind_pidfd(fd);
    struct stat pipe;
    if (pid >= 0 || fstat(fd, &pipe))
        return pid > 0 ? pid : 0;
    pthread_mutex_lock(&lock);
    const watched *w = all;
    while (w && w->pipe != pipe.st_ino)
        w = w->next;
    pid = w && kill(w->pid, 0) == 0 ? w->pid : 0;
    pthread_mutex_unlock(&lock);
    return pid;
}
