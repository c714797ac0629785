/* A process copies the bytes of a pipe to the old standard error and to the file. It is a
 * process, not a thread, so that the last words before a crash are copied, too; and no
 * child of this one, so that no wait for children returns it.
 *
 *     standard error of all ranks -> pipe -> copier -> terminal, stderr.log
 *     choir__tee_close: one byte on `orders` -> the copier drains the pipe and ends -> `end`
 *                       hangs up
 *
 * If the process that opened it dies, nothing comes on `orders`; the copier continues until the
 * last writer is gone. */
#include "line/tee.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "line/terminal.h"
#include "launch/process/signal_table.h"

struct choir__tee {
    int was, orders, end; /* the old standard error; pipes to and from the copier */
};

static void write_all(int fd, const char *bytes, size_t count)
{
    while (count) {
        ssize_t n = write(fd, bytes, count);
        if (n < 0 && errno != EINTR)
            return; /* the loss cannot be reported anywhere */
        bytes += n > 0 ? n : 0;
        count -= n > 0 ? (size_t)n : 0;
    }
}

/* Folds whole lines for a narrow terminal; the file has them as they are. */
static void show(int terminal, const char *bytes, size_t count)
{
    int columns = choir__fold_columns(terminal);
    if (columns == INT_MAX || memchr(bytes, '\0', count) || bytes[count - 1] != '\n') {
        write_all(terminal, bytes, count);
        return;
    }
    char *folded = choir__fold(bytes, count, columns);
    write_all(terminal, folded, strlen(folded));
    free(folded);
}

/* Copies until the pipe ends or, once an order has come, is empty. */
static void copy(int from, int orders, int terminal, int file)
{
    char bytes[4096];
    bool ending = false;
    struct pollfd polled[2] = {{from, POLLIN, 0}, {orders, POLLIN, 0}};
    for (;;) {
        if (poll(polled, 2, ending ? 0 : -1) < 0 && errno != EINTR)
            return;
        if (polled[0].revents) {
            ssize_t n = read(from, bytes, sizeof bytes);
            if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
                return;
            if (n > 0) {
                show(terminal, bytes, (size_t)n);
                write_all(file, bytes, (size_t)n);
            }
        } else if (ending) {
            return;
        }
        if (polled[1].revents) {
            ending |= read(orders, bytes, 1) == 1;
            polled[1].fd = -1;
        }
        polled[1].revents = 0;
    }
}

/* The copier: outlives signals to the whole process group, which the ranks answer. */
static void be_copier(const int from[2], const int orders[2], const int end[2], int file)
{
    choir__signals_outlive();
    pid_t second = fork();
    if (second != 0)
        _exit(second < 0);
    /* A reader of the output must not wait for the copier, and `choir top` must not see a
     * process of the job in it. */
    for (int fd = 0; fd < 1024; fd++)
        if (fd != from[0] && fd != orders[0] && fd != end[1] && fd != file &&
            fd != STDERR_FILENO)
            close(fd);
    copy(from[0], orders[0], STDERR_FILENO, file);
    _exit(0);
}

static void close_pair(const int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

static bool start(choir__tee *t, int file)
{
    int from[2] = {-1, -1}, orders[2] = {-1, -1}, end[2] = {-1, -1}, status = 1;
    bool made = pipe2(from, O_CLOEXEC) == 0 && pipe2(orders, O_CLOEXEC) == 0 &&
                pipe2(end, O_CLOEXEC) == 0;
    pid_t pid = made ? fork() : -1;
    if (pid == 0)
        be_copier(from, orders, end, file);
    made = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    t->was = made ? fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3) : -1;
    if (t->was < 0 || dup2(from[1], STDERR_FILENO) < 0) {
        if (t->was >= 0)
            close(t->was);
        close_pair(from);
        close_pair(orders);
        close_pair(end);
        return false;
    }
    close_pair(from);
    close(orders[0]);
    close(end[1]);
    t->orders = orders[1];
    t->end = end[0];
    return true;
}

choir__tee *choir__tee_open(const char *path)
{
    int file = choir__file_try(path, O_WRONLY | O_CREAT | O_APPEND, CHOIR__FILE_PRIVATE);
    if (file < 0)
        return NULL;
    choir__tee *t = choir__calloc(1, sizeof *t);
    if (!start(t, file)) {
        free(t);
        t = NULL;
    }
    close(file);
    return t;
}

void choir__tee_drain(const choir__tee *t)
{
    char byte = 0;
    (void)!write(t->orders, &byte, 1); /* while standard error keeps the copier alive */
    while (read(t->end, &byte, 1) < 0 && errno == EINTR)
        ;
}

void choir__tee_close(choir__tee *t)
{
    if (!t)
        return;
    choir__tee_drain(t);
    dup2(t->was, STDERR_FILENO);
    close(t->was);
    close(t->orders);
    close(t->end);
    free(t);
}
