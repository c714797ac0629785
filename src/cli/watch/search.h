/* The search for runs and studies in a folder and those below it. */
#ifndef CHOIR_CLI_WATCH_SEARCH_H
#define CHOIR_CLI_WATCH_SEARCH_H

#include <sys/stat.h>

#include "base/base.h"

/* Functions that get each run and each study. The file is the run's folder or the study's file:
 * its st_dev and st_ino are the same for each path that leads to it. */
typedef struct choir__watch_finds {
    void (*run)(void *arg, const char *path, const struct stat *file);
    void (*study)(void *arg, const char *path, const struct stat *file);
    void *arg;
} choir__watch_finds;

/* Looks at the place, which may be a study's file, too, and if it is no run at the folders up
 * to three levels below it, those that are near first; a symbolic link to a folder comes after
 * the folders. Of a very large tree some folders are left out; returns their number. */
int64_t choir__watch_search(const char *place, const choir__watch_finds *finds);

#endif
