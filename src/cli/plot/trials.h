/* Curves of choir tune's trials: trials.c. */
#ifndef CHOIR_CLI_PLOT_TRIALS_H
#define CHOIR_CLI_PLOT_TRIALS_H

#include "cli/plot/curve.h"

/* Names the curves of trials by their numbers, also in `names` (plot->count), whose texts the
 * caller frees; other runs' names stay NULL there. Where the search's study is in a file beside
 * the trials, it says which trial is the best one and which ones were stopped early. */
void choir__plot_name_trials(choir__plot *plot, char **names);

#endif
