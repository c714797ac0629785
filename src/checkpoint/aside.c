/* Starts threads with all signals blocked, which are for the program's own threads. A thread
 * that yields runs at nice 19, and its work starts no further threads. */
#include "checkpoint/aside.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LOWEST_PRIORITY = 19 };

static _Thread_local bool yields;

bool choir__aside_start(pthread_t *thread, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    if (yields)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(thread, NULL, run, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

void choir__aside_yield(void)
{
    setpriority(PRIO_PROCESS, (id_t)gettid(), LOWEST_PRIORITY);
    yields = true;
}
