/* All that the page shows: the runs and studies in the named places, and the ranks on this
 * machine and others. It is read when a reader of the page asks, so that without readers it
 * costs nothing. */
#ifndef CHOIR_CLI_WATCH_OVERVIEW_H
#define CHOIR_CLI_WATCH_OVERVIEW_H

#include <stddef.h>

#include "base/text.h"
#include "cli/machines.h"

typedef struct choir__watch_overview choir__watch_overview;

/* The places and machines of a page. */
typedef struct choir__watch_shows {
    /* (count) folders of runs or studies, folders that hold such folders, which may come later,
     * or files of studies; they outlive the overview */
    char *const *paths;
    int count;
    /* others whose ranks are shown, NULL: none; the overview closes them */
    choir__machines *machines;
} choir__watch_shows;

choir__watch_overview *choir__watch_overview_new(const choir__watch_shows *shows);
/* call it when no reader is left */
void choir__watch_overview_free(choir__watch_overview *overview);

/* Ends the readers and waits some seconds for them. Each gets all present news before its end.
 */
void choir__watch_overview_end(choir__watch_overview *overview);

/* A reader of the page: server-sent events, as many as there are to tell. Threads: a reader
 * belongs to one thread. */
typedef struct choir__watch_reader choir__watch_reader;

enum { CHOIR__WATCH_READERS = 32 }; /* at once */

/* Returns NULL if there are too many. */
choir__watch_reader *choir__watch_reader_new(choir__watch_overview *overview);
void choir__watch_reader_free(void *reader);
/* See choir__http_read. */
size_t choir__watch_reader_read(void *reader, char *bytes, size_t room);

#endif
