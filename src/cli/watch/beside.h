/* The page of a run beside its training, in a process of its own. */
#ifndef CHOIR_CLI_WATCH_BESIDE_H
#define CHOIR_CLI_WATCH_BESIDE_H

#include <choir/status.h>

typedef struct choir__watch_beside choir__watch_beside;

/* Begins to serve a page of the run that will be recorded in `folder`, and prints its address
 * on standard error. To be called before this process has threads. Errors: as
 * choir__watch_page_open, io. */
choir_status choir__watch_beside_open(const char *folder, choir__watch_beside **made);
/* Ends the page, whose readers get the run's end before. NULL is fine. */
void choir__watch_beside_close(choir__watch_beside *beside);

#endif
