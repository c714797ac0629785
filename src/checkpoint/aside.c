/* Threads aside: see aside.h. */
#include "checkpoint/aside.h"

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOWEST_PRIORITY = 19 };

bool choir__aside_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* The lowest priority would still take 1.5 % of a core for each of the three threads of a save:
 * two ranks on two cores trained 5 % more slowly beside one. */
void choir__aside_yield(void)
{
    struct sched_param none = {0};
    if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
        setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST_PRIORITY);
}
