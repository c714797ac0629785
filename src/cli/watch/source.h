/* The source of something that the page shows, a run, a study or a plan, and its news. */
#ifndef CHOIR_CLI_WATCH_SOURCE_H
#define CHOIR_CLI_WATCH_SOURCE_H

#include <stdbool.h>
#include <sys/stat.h>

#include "base/text.h"

typedef struct choir__watch_source {
    char *path;   /* a file or folder; if it is far, the URL of a storage */
    dev_t device; /* device of the file or folder */
    ino_t inode;
    bool far;
} choir__watch_source;

/* A server-sent event with all of a study or plan. */
typedef struct choir__watch_news {
    int id; /* number of the study or plan in the event */
    choir__text_buffer event;
    int64_t version; /* changes with the event */
} choir__watch_news;

#endif
