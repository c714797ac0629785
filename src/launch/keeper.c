/* Memory that an agent keeps for its workers: memfds, two per slot, whose numbers a variable of
 * the environment names. A worker opens them in /proc by the agent's process id, and refuses
 * files that are not such memfds. The verdict has a variable of its own: ranks that a worker
 * starts have no slots, but may give the job up as well. */
#include "launch/keeper.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

#define VARIABLE  "CHOIR_COPIES"
#define VERDICT   "CHOIR_VERDICT"
#define FILE_NAME "choir-copy"

enum { GIVEN_UP, LOST_PEER }; /* bytes of the verdict; the second one is worker 0's */

static int slots_of(const choir__keeper *k)
{
    return k->own + k->others;
}

/* --- the agent --- */

/* Makes a file in memory. Returns whether it was made. */
static bool make_file(int *fd)
{
    if (*fd <= 0)
        *fd = memfd_create(FILE_NAME, MFD_CLOEXEC);
    return *fd > 0;
}

static bool make_slot(int fds[2])
{
    return make_file(&fds[0]) && make_file(&fds[1]);
}

void choir__keeper_make(choir__keeper *k, int own, int others)
{
    others = choir__max(k->others, others); /* slots of machines that have come stay */
    if (own > CHOIR__KEEPER_MOST || others > CHOIR__KEEPER_MOST)
        own = others = 0;
    for (int i = 0; i < own; i++)
        if (!make_slot(k->fds[i]))
            own = 0;
    for (int i = 0; i < others && own; i++)
        if (!make_slot(k->fds[CHOIR__KEEPER_MOST + i]))
            others = 0;
    k->own = own;
    k->others = own ? others : 0;
}

void choir__keeper_free(choir__keeper *k)
{
    for (int i = 0; i < 4 * CHOIR__KEEPER_MOST; i++)
        if (k->fds[i / 2][i % 2] > 0)
            close(k->fds[i / 2][i % 2]);
    if (k->verdict > 0)
        close(k->verdict);
    *k = (choir__keeper){0};
}

void choir__keeper_listen(choir__keeper *k)
{
    if (make_file(&k->verdict) && ftruncate(k->verdict, 0) != 0) {
        /* words of workers before count again */
    }
}

static bool is_said(const choir__keeper *k, int which)
{
    char said = 0;
    return k->verdict > 0 && pread(k->verdict, &said, 1, which) == 1 && said;
}

bool choir__keeper_given_up(const choir__keeper *k)
{
    return is_said(k, GIVEN_UP);
}

bool choir__keeper_lost_peer(const choir__keeper *k, int worker)
{
    return is_said(k, LOST_PEER + worker);
}

/* Keeps an outer agent's verdict, without the worker of its own that this process is below. */
static void take_worker_out(void)
{
    const char *at = getenv(VERDICT), *worker = at ? strrchr(at, ' ') : NULL;
    if (!worker)
        return;
    char *text = choir__format("%.*s -1", (int)(worker - at), at);
    setenv(VERDICT, text, 1);
    free(text);
}

void choir__keeper_export(const choir__keeper *k, int agent_pid, int generation, int worker)
{
    char *text = choir__format("%d %d %d", agent_pid, k->verdict, worker);
    if (k->verdict > 0)
        setenv(VERDICT, text, 1);
    else
        take_worker_out();
    free(text);
    if (!k->own) {
        unsetenv(VARIABLE);
        return;
    }
    text = choir__format("%d %d %d %d", agent_pid, generation, k->own, k->others);
    for (int i = 0; i < slots_of(k); i++) {
        const int *fds = k->fds[i < k->own ? i : CHOIR__KEEPER_MOST + i - k->own];
        char *more = choir__format("%s %d %d", text, fds[0], fds[1]);
        free(text);
        text = more;
    }
    setenv(VARIABLE, text, 1);
    free(text);
}

void choir__keeper_forget(void)
{
    unsetenv(VARIABLE);
    take_worker_out();
}

/* --- a worker --- */

bool choir__keeper_is_there(void)
{
    return getenv(VARIABLE) != NULL;
}

/* Opens a descriptor of the agent; -1: it has no such file, for the agent is another process.
 */
static int open_file(int pid, int fd)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0)
        return -1;
    target[length] = '\0';
    return strstr(target, FILE_NAME) ? open(path, O_RDWR | O_CLOEXEC) : -1;
}

static bool read_number(const char **at, int least, int most, int *value)
{
    char *end;
    long n = strtol(*at, &end, 10);
    bool good = end != *at && n >= least && n <= most;
    *at = end;
    *value = good ? (int)n : 0;
    return good;
}

static bool place_of(const char *name, int *value)
{
    const char *text = getenv(name);
    return text && read_number(&text, 0, INT32_MAX, value);
}

bool choir__keeper_open(choir__keeper *k)
{
    const char *at = getenv(VARIABLE);
    int pid, generation, own, others, fd;
    *k = (choir__keeper){0};
    if (!at || !read_number(&at, 1, INT32_MAX, &pid) ||
        !read_number(&at, 1, INT32_MAX, &generation) ||
        !read_number(&at, 1, CHOIR__KEEPER_MOST, &own) ||
        !read_number(&at, 0, CHOIR__KEEPER_MOST, &others) ||
        !place_of("GROUP_RANK", &k->node) || !place_of("LOCAL_RANK", &k->local_rank) ||
        k->local_rank >= own)
        return false;
    bool good = true;
    for (int i = 0; i < own + others; i++)
        for (int half = 0; half < 2; half++) {
            good = good && read_number(&at, 0, INT32_MAX, &fd);
            k->fds[i][half] = good ? open_file(pid, fd) : -1;
            good = good && k->fds[i][half] >= 0;
        }
    k->generation = (uint64_t)generation;
    k->own = own;
    k->others = others;
    if (!good)
        choir__keeper_close(k);
    return good;
}

void choir__keeper_close(choir__keeper *k)
{
    for (int i = 0; i < slots_of(k); i++)
        for (int half = 0; half < 2; half++)
            if (k->fds[i][half] >= 0)
                close(k->fds[i][half]);
    *k = (choir__keeper){0};
}

static void say(bool of_worker, int which)
{
    const char *at = getenv(VERDICT);
    int pid, number, worker;
    if (!at || !read_number(&at, 1, INT32_MAX, &pid) ||
        !read_number(&at, 1, INT32_MAX, &number) ||
        (!read_number(&at, 0, INT32_MAX, &worker) && of_worker))
        return;
    int fd = open_file(pid, number);
    if (fd >= 0 && pwrite(fd, "\1", 1, which + (of_worker ? worker : 0)) != 1) {
        /* the agent decides without it */
    }
    if (fd >= 0)
        close(fd);
}

void choir__keeper_give_up(void)
{
    say(false, GIVEN_UP);
}

void choir__keeper_say_lost(void)
{
    say(true, LOST_PEER);
}
