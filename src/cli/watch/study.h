/* The studies of a storage of choir tune while they run, as JSON for the page. A file is read
 * in passing; a server is asked by a thread, since it may be far away or gone. */
#ifndef CHOIR_CLI_WATCH_STUDY_H
#define CHOIR_CLI_WATCH_STUDY_H

#include <pthread.h>

#include "cli/watch/source.h"

typedef struct choir__watch_study {
    choir__watch_source source; /* far: a server */
    choir__watch_news news;     /* the newest trials */
    double look_at;             /* choir__now(), when it is read again */
    /* A server is asked by a thread, which leaves the last event in `found`. */
    bool asks;
    pthread_t asker;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    bool ended;
    char *found; /* NULL: nothing new */
} choir__watch_study;

/* Returns whether the text names a storage, such as postgresql://..., and no file or folder. */
bool choir__watch_is_storage(const char *text);

/* path: a file or folder, or, if it is far, what choir__watch_is_storage takes. */
choir__watch_study *choir__watch_study_new(const char *path, bool far, int id);
void choir__watch_study_free(choir__watch_study *study);
/* Reads the studies if it is time. A file that cannot be read now has the news of before; the
 * news of a server say why it cannot be. */
void choir__watch_study_look(choir__watch_study *study);

#endif
