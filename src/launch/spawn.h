/* Who has to know of choir_spawn: what children inherit and must make their own. */
#ifndef CHOIR_COMM_SPAWN_H
#define CHOIR_COMM_SPAWN_H

typedef struct choir__spawn_watcher {
    void (*before)(void *arg, int first_rank, int count); /* in the parent; NULL: nothing */
    void (*child)(void *arg, int rank); /* in each child, before its function; NULL: nothing */
    void (*leaving)(void *arg, int rank); /* in the child, after it; NULL: nothing */
    void (*left)(void *arg);              /* behind all watchers' leaving; NULL: nothing */
    void (*after)(void *arg); /* in the parent, when all children are gone; NULL: nothing */
    void *arg;
    struct choir__spawn_watcher *next;
} choir__spawn_watcher;

/* From now on; the watcher stays the caller's. Any thread. */
void choir__spawn_watch(choir__spawn_watcher *watcher);
void choir__spawn_unwatch(choir__spawn_watcher *watcher);

#endif
