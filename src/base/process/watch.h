/* Watching a process that need not be a child of this one. */
#ifndef CHOIR_BASE_PROCESS_WATCH_H
#define CHOIR_BASE_PROCESS_WATCH_H

#include <sys/types.h>

/* Returns a descriptor that poll() shows as readable once the process has ended, whether or not
 * its parent has reaped it; the caller closes it. A fork's child inherits it, exec() closes it.
 * -1: errno is ESRCH where there is no such process, else the reason. */
int choir__process_watch(pid_t pid);

/* Returns this process's own pidfd, which other processes can be sent; the caller closes it.
 * -1: the kernel has none, and others watch this process by its number. */
int choir__process_pidfd(void);

/* Returns the number of the process that a descriptor watches, which may come from another
 * process where it is a pidfd. 0: the process has been reaped, or this is no such descriptor.
 */
pid_t choir__process_watched(int fd);

#endif
