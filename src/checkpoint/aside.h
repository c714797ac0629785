/* Threads that work aside: they receive no signals, which are for the threads of the program.
 */
#ifndef CHOIR_ASIDE_H
#define CHOIR_ASIDE_H

#include <pthread.h>
#include "base/base.h"

/* Returns false if no thread can be started. */
bool choir__aside_start(pthread_t *thread, void *(*run)(void *arg), void *arg);
/* Lets the calling thread, and threads that it starts, run only where a core has nothing else
 * to do. */
void choir__aside_yield(void);

#endif
