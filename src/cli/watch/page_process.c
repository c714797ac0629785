/* The page of a run beside its training: see beside.h. The server is a process, so that its
 * work never delays a step, and no child of the training, so that no wait for children returns
 * it.
 *
 *     choir__page_process_close: one byte on `orders` -> the server sends its readers the last
 *                                news and ends -> `words` hangs up
 *
 * If the training dies, `orders` hangs up when the last of its ranks has ended, and the server
 * ends, too. */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/watch/page.h"
#include "launch/process/signal_table.h"

struct choir__page_process {
    int orders, words; /* pipes to and from the server */
};

/* --- the server --- */

/* Tells how it went: the status, then the sentence of an error or the address. */
static void tell(int words, choir_status status, const char *text)
{
    char all[1024] = {0};
    memcpy(all, &status, sizeof status);
    snprintf(all + sizeof status, sizeof all - sizeof status, "%s", text);
    (void)!write(words, all, sizeof all); /* a reader that is gone needs nothing */
}

static void serve(const char *folder, int orders, int words)
{
    char *places[] = {(char *)folder};
    const choir__watch_shows shows = {.paths = places, .count = 1};
    choir__watch_page *page;
    struct pollfd end = {.fd = orders, .events = POLLIN};
    choir_status status = choir__watch_page_open("--page", ":0", NULL, &shows, &page);
    tell(words, status,
        status == CHOIR_OK ? choir__watch_page_url(page) : choir_error_message());
    while (status == CHOIR_OK && poll(&end, 1, -1) < 0 && errno == EINTR)
        ;
    if (status == CHOIR_OK)
        choir__watch_page_close(page);
}

/* The server outlives signals to the whole process group, which the ranks answer; their last
 * events are seen on the page, too. */
static void be_server(const char *folder, const int orders[2], const int words[2])
{
    choir__signals_outlive();
    pid_t second = fork();
    if (second != 0)
        _exit(second < 0);
    /* A reader of the output must not wait for the server, and `choir top` must not see a
     * process of the job in it. */
    int nowhere = open("/dev/null", O_RDWR);
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        dup2(nowhere, fd);
    for (int fd = STDERR_FILENO + 1; fd < 1024; fd++)
        if (fd != orders[0] && fd != words[1])
            close(fd);
    serve(folder, orders[0], words[1]);
    _exit(0);
}

/* --- the training --- */

static void close_pair(const int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

/* Reads what the server has to say at first. */
static choir_status hear(int words)
{
    char all[1025] = {0};
    size_t got = 0;
    ssize_t n;
    choir_status status;
    while (got < sizeof all - 1 && ((n = read(words, all + got, sizeof all - 1 - got)) > 0 ||
                                       (n < 0 && errno == EINTR)))
        got += n > 0 ? (size_t)n : 0;
    if (got < sizeof status + 1)
        return choir__error(CHOIR_ERR_IO, "--page: its process has ended at once");
    memcpy(&status, all, sizeof status);
    if (status != CHOIR_OK)
        choir__set_message(all + sizeof status);
    else
        fprintf(stderr, "page of the run: %s\n", all + sizeof status);
    return status;
}

choir_status choir__page_process_open(const char *folder, choir__page_process **made)
{
    int orders[2] = {-1, -1}, words[2] = {-1, -1}, ended = 1;
    *made = NULL;
    bool good = pipe2(orders, O_CLOEXEC) == 0 && pipe2(words, O_CLOEXEC) == 0;
    pid_t pid = good ? fork() : -1;
    if (pid == 0)
        be_server(folder, orders, words);
    int error = errno;
    good = pid > 0 && waitpid(pid, &ended, 0) == pid && ended == 0;
    if (!good) {
        close_pair(orders);
        close_pair(words);
        return choir__error(
            CHOIR_ERR_IO, "--page: cannot start its process: %s", choir__why(error));
    }
    close(orders[0]);
    close(words[1]);
    choir__page_process *b = choir__calloc(1, sizeof *b);
    *b = (choir__page_process){orders[1], words[0]};
    choir_status status = hear(b->words);
    if (status == CHOIR_OK)
        *made = b;
    else
        choir__page_process_close(b);
    return status;
}

void choir__page_process_close(choir__page_process *b)
{
    char byte = 0;
    if (!b)
        return;
    /* The server's end of the pipe is gone if the server has ended. */
    struct sigaction ignored = {.sa_handler = SIG_IGN}, was;
    sigaction(SIGPIPE, &ignored, &was);
    (void)!write(b->orders, &byte, 1);
    sigaction(SIGPIPE, &was, NULL);
    while (read(b->words, &byte, 1) < 0 && errno == EINTR)
        ;
    close(b->orders);
    close(b->words);
    free(b);
}
