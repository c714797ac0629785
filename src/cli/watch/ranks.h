/* The present activity of ranks, as JSON for the page. */
#ifndef CHOIR_CLI_WATCH_RANKS_H
#define CHOIR_CLI_WATCH_RANKS_H

#include "cli/view.h"
#include "base/text.h"

/* Adds {"jobs":[{"job":...,"world":...,"slow":{...},"ranks":[...]}],"troubles":[...]}. A rank
 * has its machine, its devices, its activity, and its last collectives as [name, seconds ago,
 * seconds long]. troubles: sentences about machines that are not seen. */
void choir__watch_ranks(const choir__ranks_view *view, choir__text *json);

#endif
