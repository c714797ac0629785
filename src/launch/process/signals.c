/* Signals as messages: a handler writes each signal to a pipe, and a poll loop reads it later.
 * Handlers belong to the whole process, so only one owner has them at a time. */
#include "launch/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

enum { TAKEN_MAX = 16 };

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static int ends[2] = {-1, -1};
static int taken_count;
static struct taken {
    int number;
    struct sigaction before;
} taken[TAKEN_MAX];

static void on_signal(int number, siginfo_t *info, void *context)
{
    int why = errno;
    bool typed = info->si_code == SI_KERNEL && number != SIGXCPU; /* a limit of one process */
    unsigned char note[2] = {(unsigned char)number, typed};
    (void)context;
    if (write(ends[1], note, sizeof note) < 0) {
        /* full: enough signals are already queued */
    }
    errno = why;
}

static void take(int number, const struct sigaction *action)
{
    struct taken *t = &taken[taken_count];
    sigaction(number, NULL, &t->before);
    if (number != SIGCHLD && t->before.sa_handler == SIG_IGN)
        return;
    t->number = number;
    taken_count++;
    sigaction(number, action, NULL);
}

/* The kernel discards exit statuses where SIGCHLD is ignored. */
static void keep_statuses(void)
{
    struct sigaction now, plain = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, NULL, &now);
    if (now.sa_handler == SIG_IGN || (now.sa_flags & SA_NOCLDWAIT))
        take(SIGCHLD, &plain);
}

choir_status choir__signals_take(const int *numbers, int count)
{
    struct sigaction ours = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    pthread_mutex_lock(&one_at_a_time);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
        pthread_mutex_unlock(&one_at_a_time);
        return choir__error(CHOIR_ERR_IO, "no pipe for signals: %s", choir__why(errno));
    }
    for (int i = 0; i < count && i < TAKEN_MAX - 1; i++)
        take(numbers[i], &ours);
    keep_statuses();
    return CHOIR_OK;
}

static void undo(void)
{
    while (taken_count) {
        struct taken *t = &taken[--taken_count];
        sigaction(t->number, &t->before, NULL);
    }
    close(ends[0]);
    close(ends[1]);
    ends[0] = ends[1] = -1;
}

void choir__signals_give_back(void)
{
    undo();
    pthread_mutex_unlock(&one_at_a_time);
}

/* Giving back works in the child, too: the forking thread held the lock, and it is the child's
 * only thread. */
void choir__signals_forget(void)
{
    if (ends[0] >= 0)
        choir__signals_give_back();
}

int choir__signals_fd(void)
{
    return ends[0];
}

bool choir__signals_next(choir__signal *next)
{
    unsigned char note[2];
    if (read(ends[0], note, sizeof note) != (ssize_t)sizeof note)
        return false;
    *next = (choir__signal){note[0], note[1]};
    return true;
}
