/* The cores and the memory that this process may use: the machine's, as far as its control
 * groups allow. root: "" or, for tests, a folder in place of "/". */
#ifndef CHOIR_BASE_USABLE_H
#define CHOIR_BASE_USABLE_H

/* Returns the number of cores that this process may use: its affinity's, limited by the CPU
 * time that its control groups allow. */
int choir__usable_cores(const char *root);
/* Returns the bytes that this process may use: the machine's memory, and no more than its
 * control groups allow. */
double choir__usable_memory(const char *root);

/* Returns the bytes that the process's control groups let it take beside what their processes
 * have, apart from files that the kernel may drop; INFINITY: no group has a limit. More than
 * that does not fail: the kernel kills a process of the group. */
double choir__usable_room(const char *root);

#endif
