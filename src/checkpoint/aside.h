/* Threads that work aside: they receive no signals, which are for the threads of the program.
 */
#ifndef CHOIR_ASIDE_H
#define CHOIR_ASIDE_H

#include <pthread.h>
#include "base/base.h"

/* Returns false if no thread can be started, or the calling thread yields: the caller then does
 * the work itself. */
bool choir__aside_start(pthread_t *thread, void *(*run)(void *arg), void *arg);
/* Gives the calling thread the lowest priority. A busy core still runs it for 1.5 % of the
 * time, so it starts no threads of its own: three threads of a save took 5 % of each core from
 * ranks that computed on all. (Idle priority is a fifth of that, but lasts until the thread's
 * end.) */
void choir__aside_yield(void);

#endif
