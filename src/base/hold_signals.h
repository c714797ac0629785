/* Holding back the signals whose handlers may run later. Faults are not among them: a thread
 * that blocks the signal of its own fault is ended without its handler. */
#ifndef CHOIR_HOLD_SIGNALS_H
#define CHOIR_HOLD_SIGNALS_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "base/floats.h"

/* Returns whether the signal is what a fault of the program raises. */
static inline bool choir__is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
           number == SIGTRAP || number == SIGABRT || number == SIGSYS;
}

/* Blocks in this thread all signals that are not faults. *before receives the earlier mask,
 * which pthread_sigmask restores. */
static inline void choir__hold_signals(sigset_t *before)
{
    sigset_t held;
    sigfillset(&held);
    for (int i = 1; i < NSIG; i++)
        if (choir__is_fault(i))
            sigdelset(&held, i);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

/* Starts a thread that holds them back always, since signals are for the program's own threads,
 * and that computes in the default environment (floats.h). The threads that it starts inherit
 * both. Returns 0 or an error number, as pthread_create does. */
static inline int choir__thread_start(pthread_t *thread, void *(*work)(void *arg), void *arg)
{
    CHOIR__DEFAULT_FLOATS;
    sigset_t before;
    choir__hold_signals(&before);
    int why = pthread_create(thread, NULL, work, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return why;
}

#endif
