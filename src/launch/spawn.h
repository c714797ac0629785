/* Spawning: ranks as forks of the calling process, and hooks for the parts of the program that
 * forks affect. */
#ifndef CHOIR_LAUNCH_SPAWN_H
#define CHOIR_LAUNCH_SPAWN_H

#include <stdbool.h>
#include <stdio.h>
#include <choir/group.h>

/* Hooks of the layers above, filled in by the caller of choir__spawn. */
typedef struct choir__spawn_host {
    choir_status (*may_fork)(void);   /* error if this process cannot fork */
    void (*quiesce)(void);            /* brings all other threads of the process to rest */
    bool (*show)(int pid, FILE *out); /* writes what a rank is doing; false: unknown */
    /* Returns a number that changes whenever a rank has finished something; *waits: it waits
     * for other ranks. */
    uint64_t (*progress)(int pid, bool *waits);
} choir__spawn_host;

/* Starts `local` ranks as forks and waits until all have ended. Otherwise as
 * choir_spawn_with. */
choir_status choir__spawn(const choir__spawn_host *host, int local, choir_spawn_fn *fn,
    void *arg, choir_spawn_opts opts);

/* A watcher is called at each spawn, so that children can take over inherited state. */
typedef struct choir__spawn_watcher {
    void (*before)(void *arg, int first_rank,
        int count);            /* called in the parent, before the forks; may be NULL */
    void (*forked)(void *arg); /* called in the parent, after the forks; may be NULL */
    void (*child)(
        void *arg, int rank); /* called in each child, before its function; may be NULL */
    void (*leaving)(
        void *arg, int rank); /* called in the child, after its function; may be NULL */
    void (*left)(void *arg);  /* called after all watchers' `leaving`; may be NULL */
    void (*after)(
        void *arg); /* called in the parent, once all children have ended; may be NULL */
    void *arg;
    struct choir__spawn_watcher *next;
} choir__spawn_watcher;

/* Register and remove a watcher of all spawns. The caller keeps the watcher. Any thread may
 * call these. */
void choir__spawn_watch(choir__spawn_watcher *watcher);
void choir__spawn_unwatch(choir__spawn_watcher *watcher);

#endif
