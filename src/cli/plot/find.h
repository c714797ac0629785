/* The runs that words of the command line name: find.c. */
#ifndef CHOIR_PLOT_FIND_H
#define CHOIR_PLOT_FIND_H

#include <stdbool.h>

#include "base/base.h"

typedef struct choir__plot_run {
    char *path;
    bool found; /* in a folder that was named */
} choir__plot_run;

typedef struct choir__plot_runs {
    choir__plot_run *run; /* (count) */
    int count;
} choir__plot_runs;

/* Finds the runs that the words name. A word without a run is kept as a path. The caller frees
 * the runs, after an error, too. Error: argument, if there are more than `most` runs, or a
 * folder has thousands of folders. */
choir_status choir__plot_find(char *const *words, int count, int most, choir__plot_runs *runs);

void choir__plot_runs_free(choir__plot_runs *runs);

#endif
