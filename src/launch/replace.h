/* Between the files of choir_spawn: spawn.c starts processes (spawn_rank.c) and ends with the
 * first that fails; replace.c supervises ranks that are replaced. */
#ifndef CHOIR_LAUNCH_REPLACE_H
#define CHOIR_LAUNCH_REPLACE_H

#include "launch/process/process.h"
#include "launch/crew/crew.h"
#include "launch/spawn.h"

/* The arguments with which the processes of a spawn start. */
typedef struct choir__spawning {
    choir__job_place place;
    const choir__spawn_host *host;
    const choir_spawn_opts *opts;
    const char *job;
    choir_spawn_fn *fn;
    void *arg;
    choir__crew *crew; /* NULL: ranks that fail are not replaced */
    int seat;          /* seat of the process that is about to start */
} choir__spawning;

/* The calling process, while it waits for them. */
typedef struct choir__supervisor {
    choir__spawning *spawning;
    choir__family family;
    int interrupted;   /* the signal; 0: none */
    double overdue_at; /* time at which ranks that an interruption has not ended are; 0: none */
    bool saves;        /* the program handles SIGUSR1: its ranks are to get it */
    int restarts_left;
    double looked_at; /* last check for ranks that are stopped or silent */
    bool done;        /* the job's work is done */
    bool emptied;     /* all ranks were lost at once, and the job's state with them */
    int failed;       /* the seat whose end is the job's; -1: none */
} choir__supervisor;

/* --- spawn_watch.c: the parts of the library that watch forks --- */

/* Takes the lock, which is kept over the fork, and calls the watchers' `before`. */
void choir__watch_before(int first_rank, int count);
/* Gives the lock back, in the parent. */
void choir__watch_forked(void);
void choir__watch_after(void);
void choir__watch_child(int number);
void choir__watch_leaving(int number);
/* Adds the descriptors that watchers hear, at most CHOIR__WATCHED_MOST, and returns how many
 * these are; after poll(), calls the watchers that hear something. */
enum { CHOIR__WATCHED_MOST = 4 };
int choir__watch_poll(struct pollfd *polled);
void choir__watch_heard(const struct pollfd *polled, int count);

/* --- spawn_rank.c --- */

/* Starts the process of a seat; the watchers' lock is held. */
choir_status choir__spawn_seat(choir__family *family, choir__spawning *spawning, int seat);
/* Starts the process of one more seat, later than the others. */
choir_status choir__spawn_more(choir__supervisor *supervisor, int seat);
/* Passes on the signals that this process has received, and ends ranks that have not ended in
 * time after one. */
void choir__spawn_signals(choir__supervisor *supervisor);
/* Returns for how many ms to sleep at most, and not longer than ms; -1: until something
 * happens.
 */
int choir__spawn_sleep(const choir__supervisor *supervisor, int ms);
/* Returns ": it had not ended after 30 s" if ranks were ended for that, else "". */
const char *choir__spawn_late(const choir__supervisor *supervisor, char text[64]);

/* replace.c: waits for the job's end, and replaces ranks until then. Error: the first cause of
 * its failure. */
choir_status choir__spawn_replace(choir__supervisor *supervisor);

#endif
