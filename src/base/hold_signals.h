/* Holding back the signals whose handlers may run later. Faults are not among them: a thread
 * that blocks the signal of its own fault is ended without its handler. */
#ifndef CHOIR_HOLD_SIGNALS_H
#define CHOIR_HOLD_SIGNALS_H

#include <signal.h>
#include <stddef.h>

/* Blocks them in this thread. before: out: the mask that pthread_sigmask sets again. */
static inline void choir__hold_signals(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&held, faults[i]);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

#endif
