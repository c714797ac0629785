/* Ranks as forks of the calling process, and those parts of the program that must know of it.
 */
#ifndef CHOIR_LAUNCH_SPAWN_H
#define CHOIR_LAUNCH_SPAWN_H

#include <stdbool.h>
#include <stdio.h>
#include <choir/group.h>

/* What a fork means to the layers above, which the caller of choir__spawn fills in. */
typedef struct choir__spawn_host {
    choir_status (*may_fork)(void);   /* an error if this process can have no forks */
    void (*quiesce)(void);            /* brings all other threads of the process to rest */
    bool (*show)(int pid, FILE *out); /* writes what a rank is doing; false: nothing known */
} choir__spawn_host;

/* Starts `local` ranks as forks and waits until all have ended; the rest is choir_spawn_with's.
 */
choir_status choir__spawn(const choir__spawn_host *host, int local, choir_spawn_fn *fn,
    void *arg, choir_spawn_opts opts);

/* A watcher is told of each spawn: children make their own what they have inherited. */
typedef struct choir__spawn_watcher {
    void (*before)(void *arg, int first_rank, int count); /* in the parent; NULL: nothing */
    void (*child)(void *arg, int rank); /* in each child, before its function; NULL: nothing */
    void (*leaving)(void *arg, int rank); /* in the child, after it; NULL: nothing */
    void (*left)(void *arg);              /* behind all watchers' leaving; NULL: nothing */
    void (*after)(void *arg); /* in the parent, when all children are gone; NULL: nothing */
    void *arg;
    struct choir__spawn_watcher *next;
} choir__spawn_watcher;

/* Watches all spawns from now on, until it is taken back. The watcher stays the caller's. Any
 * thread may call these. */
void choir__spawn_watch(choir__spawn_watcher *watcher);
void choir__spawn_unwatch(choir__spawn_watcher *watcher);

#endif
