/* The processes that `choir top` and `choir watch` show at one moment, on this machine and, on
 * request, on others. The previous reading is kept, too, because the use of a device follows
 * from two readings. */
#ifndef CHOIR_CLI_VIEW_H
#define CHOIR_CLI_VIEW_H

#include "cli/machines.h"

typedef struct choir__ranks_view {
    choir__looks now, before;     /* borrowed from the looks below, sorted */
    choir__looks here[2], far[2]; /* now, and before */
    choir__machines *machines;    /* NULL: this machine alone */
} choir__ranks_view;

/* Looks again. pids: only these of this machine, all if pid_count is 0. */
void choir__view_look(choir__ranks_view *view, const int *pids, int pid_count);
/* Closes the machines, too. */
void choir__view_free(choir__ranks_view *view);

/* Returns the number of machines that the job of process `from` has in view. */
int choir__view_machines(const choir__ranks_view *view, int from);

#endif
