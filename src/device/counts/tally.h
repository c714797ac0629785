/* Counted time: a yardstick for pieces of a program, which depends on the program alone.
 *
 * While a thread counts, each kernel that it issues adds the seconds that its FLOPs and its
 * bytes would take at fixed rates. They say which of two pieces is longer, and by how much, and
 * are no prediction. */
#ifndef CHOIR_TALLY_H
#define CHOIR_TALLY_H

#include "device/device.h"

/* Begins to count this thread's kernels on devices of the kind of `device`; NULL: ends. */
void choir__tally_count(const choir_device *device);
/* Returns the seconds that the thread has counted since the last call. */
double choir__tally_take(void);

/* Counts a task that the thread issues. It does nothing unless the thread counts. */
void choir__tally_note(choir__queue_task *fn, const void *args);

#endif
