/* Child processes that do one job together: started, watched and stopped as a family.
 *
 * What choir_spawn (forks that run a C function) and `choir run` (programs) have in common. The
 * caller sleeps in poll on a pidfd a child (choir__family_poll) and on a pipe that a signal
 * handler writes to (choir__signals_fd), then lets choir__family_reap look who ended. The first
 * child that fails settles the outcome; choir__family_press then stops the others: a moment to
 * notice by themselves (they usually do, and their own words about it are worth having),
 * SIGTERM, and at last SIGKILL. A child asks the kernel for SIGKILL when its parent goes, so
 * nothing outlives the caller however it dies.
 *
 * Threads: whoever starts a family watches it; the kernel ties children to that thread. */
#ifndef CHOIR_LAUNCH_PROCESS_PROCESS_H
#define CHOIR_LAUNCH_PROCESS_PROCESS_H

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include "base/base.h"

enum { CHOIR__CHILDREN_MAX = 1024 };

typedef struct choir__child {
    pid_t pid; /* 0: never started */
    int pidfd; /* -1: not running */
    int code,
        status; /* how it ended, as siginfo_t's si_code and si_status; code 0: it has not */
} choir__child;

typedef struct choir__family {
    int count, alive;
    choir__child *children; /* (count) */
    bool own_groups; /* each child leads a process group, which gets what the child gets, and is
                        kept as a zombie till the end so that its number stays its own */
    double grace_s;  /* from the first failure to SIGTERM */
    double patience_s;  /* from SIGTERM to SIGKILL */
    int first;          /* who failed first; -1: nobody */
    double stopping_at; /* since when the family is being stopped; 0: it is not */
    int pressed;        /* the strongest signal that stopping has sent so far */
} choir__family;

void choir__family_init(choir__family *family, int count);
void choir__family_free(choir__family *family);

/* Forks child `index`, which runs fn(arg) and exits with its result: by choir__child_exit, or
 * not at all where fn calls exec. Error: I/O. */
typedef int choir__child_fn(void *arg);
choir_status choir__family_start(
    choir__family *family, int index, choir__child_fn *fn, void *arg);

/* Fills in one pollfd a child; returns how many (count). */
int choir__family_poll(const choir__family *family, struct pollfd *polled);

/* Notes who ended, after poll. True if somebody did. A death by signal counts as earlier than
 * an exit found at the same look, which is often its consequence. */
bool choir__family_reap(choir__family *family, const struct pollfd *polled);

void choir__family_signal(choir__family *family, int number);

/* From now on the family is being stopped, though nobody failed. */
void choir__family_stop(choir__family *family);

/* Stops the others when it is time; returns for how long to sleep, in ms; -1: no hurry. */
int choir__family_press(choir__family *family);

/* Kills what is left, process groups included, and buries all. */
void choir__family_bury(choir__family *family);

/* "exited with status 3", "was killed by SIGKILL (Killed)". */
const char *choir__end_text(const choir__child *child, char text[96]);
/* What a shell would say: the exit status, or 128 + the signal. */
int choir__end_status(const choir__child *child);

/* --- for children --- */

/* Ends a forked process without what the parent registered with atexit, which is the parent's
 * to run; the leak checker and coverage, which would have run there, do. */
_Noreturn void choir__child_exit(int status);

/* --- descendants that were left behind --- */

/* From now on orphaned descendants become children of this process. */
void choir__adopt_orphans(void);
/* Kills and reaps all children of this process, adopted ones and theirs included. */
void choir__kill_descendants(void);

/* Calls fn for each process of a process group. */
void choir__each_of_group(pid_t group, void (*fn)(pid_t pid, void *arg), void *arg);

/* --- signals, as messages --- */

typedef struct choir__signal {
    int number;
    bool typed; /* the kernel sent it, as for Ctrl-C: the whole process group has it already */
} choir__signal;

/* Takes over the handling of `numbers` (count), but for those that are ignored: an ignored
 * signal is somebody's wish. One owner at a time in a process; waits for its turn. SIGCHLD is
 * set so that exit statuses are kept. Error: I/O. */
choir_status choir__signals_take(const int *numbers, int count);
void choir__signals_give_back(void);
int choir__signals_fd(void);
bool choir__signals_next(choir__signal *next); /* false: no more for now */
/* In a forked child: as they were before they were taken. Others may be taken anew. */
void choir__signals_forget(void);

#endif
