/* The memory of trials. */
#ifndef CHOIR_TUNE_MEMORY_H
#define CHOIR_TUNE_MEMORY_H

#include <sys/types.h>

#include "base/base.h"

/* Returns the bytes of memory of a process, its group and their descendants; a page that
 * several of them share counts once. 0: they are not more than `most`. */
int64_t choir__memory_beyond(pid_t root, int64_t most);

/* In a trial's first process: the kernel kills trials rather than the search. */
void choir__memory_offer(void);

#endif
