/* The present activity of the ranks on this machine, as JSON for the page. */
#ifndef CHOIR_CLI_WATCH_RANKS_H
#define CHOIR_CLI_WATCH_RANKS_H

#include "cli/looks.h"
#include "record/text.h"

/* Adds {"jobs":[{"job":...,"world":...,"slow":{...},"ranks":[...]}]}. A rank has its devices,
 * its activity, and its last collectives as [name, seconds ago, seconds long]. before: an
 * earlier round, against which times are counted. */
void choir__watch_ranks(const choir__looks *now, const choir__looks *before, choir__text *json);

#endif
