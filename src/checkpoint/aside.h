/* Threads that work aside: they receive no signals, which are for the threads of the program.
 */
#ifndef CHOIR_ASIDE_H
#define CHOIR_ASIDE_H

#include <pthread.h>
#include "base/base.h"

/* Returns false if no thread can be started, or the calling thread yields: the caller then does
 * the work itself. */
bool choir__aside_start(pthread_t *thread, void *(*run)(void *arg), void *arg);
/* Gives the calling thread the lowest priority. It still receives 1.5 % of a busy core, so it
 * starts no threads of its own: with the three of a save, ranks that computed on all cores took
 * 5 % longer for a step. (The class of idle threads receives less, but busy cores can keep such
 * a thread from running for minutes, and no waiter can change its class.) */
void choir__aside_yield(void);

#endif
