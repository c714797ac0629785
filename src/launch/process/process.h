/* A family: child processes that do one job together, and are started, watched and stopped
 * together.
 *
 * choir_spawn (forks that run a C function) and `choir run` (programs) both use it. The caller
 * sleeps in poll on one pidfd per child (choir__family_poll) and on a pipe that a signal
 * handler writes to (choir__signals_fd), then calls choir__family_reap to note which children
 * have ended. The first child that fails settles the outcome. choir__family_press then stops
 * the others: a moment to notice by themselves (they usually do, and their own messages are
 * useful), then SIGTERM, and at last SIGKILL. A child asks the kernel for SIGKILL when its
 * parent dies, so no child outlives the caller, however the caller ends.
 *
 * An ended child remains a zombie until choir__family_bury: the number of its process group is
 * not reused, and the other ranks can read how it ended (choir__wait_status).
 *
 * Threads: the thread that starts a family also watches it; the kernel ties children to that
 * thread. */
#ifndef CHOIR_LAUNCH_PROCESS_PROCESS_H
#define CHOIR_LAUNCH_PROCESS_PROCESS_H

#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include "base/base.h"

enum { CHOIR__CHILDREN_MAX = 1024 };

typedef struct choir__child {
    pid_t pid;        /* 0: never started */
    int pidfd;        /* -1: not running */
    int code, status; /* siginfo_t's si_code and si_status; code 0: still running */
    double stopped_s; /* seconds that it has been stopped (SIGSTOP) while others have ended */
    bool given_up;    /* stopped for too long */
    bool starved;     /* killed while the kernel was killing for want of memory */
} choir__child;

typedef struct choir__family {
    int count, alive;
    choir__child *children; /* (count) */
    bool own_groups; /* each child leads a process group, which receives the child's signals */
    double grace_s;  /* seconds from the first failure to SIGTERM */
    double patience_s; /* seconds from SIGTERM to SIGKILL */
    /* A child that is stopped for longer than stopped_max_s seconds, while another has ended,
     * has failed; 0: no limit. Its ranks' group cannot notice this once the others have made
     * their last call. */
    double stopped_max_s, looked_at;
    int first;            /* index of the child that failed first; -1: none */
    bool outlives;        /* a failed child does not stop the others */
    double stopping_at;   /* time when stopping began; 0: not stopping */
    int pressed;          /* strongest signal sent so far to stop the family */
    int64_t memory_kills; /* choir__memory_kills() at the beginning */
} choir__family;

void choir__family_init(choir__family *family, int count);
void choir__family_free(choir__family *family);

/* Forks child `index`, which runs fn(arg) and exits with its result, by choir__child_exit. fn
 * may call exec instead of returning. Error: I/O. */
typedef int choir__child_fn(void *arg);
choir_status choir__family_start(
    choir__family *family, int index, choir__child_fn *fn, void *arg);

/* Fills in one pollfd per child and returns their number (count). */
int choir__family_poll(const choir__family *family, struct pollfd *polled);

/* Notes, after poll, which children have ended; returns true if any did. A death by signal
 * counts as earlier than an exit found in the same call, because the exit is often its
 * consequence. */
bool choir__family_reap(choir__family *family, const struct pollfd *polled);

void choir__family_signal(choir__family *family, int number);

/* Begins to stop the family although no child failed. */
void choir__family_stop(choir__family *family);

/* Looks for children that stay stopped, and sends the remaining ones the next signal when it is
 * due. Returns the ms to sleep at most; -1: no limit. */
int choir__family_press(choir__family *family);

/* Kills all remaining children, process groups included, and reaps them. */
void choir__family_bury(choir__family *family);

/* Returns whether a child that has ended did so by a signal, or with another status than 0. */
bool choir__child_failed(const choir__child *child);
/* Returns "exited with status 3" or "was killed by SIGKILL (Killed)". */
const char *choir__end_text(const choir__child *child, char text[96]);
/* Returns a shell's exit status: the child's own, or 128 + the signal. */
int choir__end_status(const choir__child *child);
/* Returns whether a fault (SIGSEGV, SIGABRT) has killed the child, even if it was to end. */
bool choir__end_crashed(const choir__child *child);
/* Returns the index of a child that a fault has killed; -1: no child. */
int choir__family_crashed(const choir__family *family);

/* Returns how many processes of this one's control group, or of this machine, the kernel has
 * killed for want of memory. */
int64_t choir__memory_kills(void);

/* Returns the wait status, as waitpid's, of a process that has ended, whichever process started
 * it; -1: unknown. */
int choir__wait_status(int pidfd);

/* --- for children --- */

/* Ends a forked process without running the parent's atexit handlers, which belong to the
 * parent. Still runs the leak checker and writes coverage, which would otherwise run there. */
_Noreturn void choir__child_exit(int status);

/* --- descendants left behind --- */

/* Makes orphaned descendants children of this process from now on. */
void choir__adopt_orphans(void);
/* Kills and reaps all children of this process, adopted ones and their descendants included. */
void choir__kill_descendants(void);

/* Kills and reaps the adopted children whose environment has `word`, such as "NAME=value", and
 * their descendants. */
void choir__kill_orphans(const char *word);

/* Kills all processes of this user whose environment has a word that begins with `begin`,
 * repeatedly, because they may start others. A forked child may call it, also if the parent has
 * threads. */
void choir__kill_marked(const char *begin);

/* Calls fn for a process, for all processes of the group that it leads, and for all
 * descendants, which may lead groups of their own. */
void choir__each_of_tree(pid_t root, void (*fn)(pid_t pid, void *arg), void *arg);
/* Calls fn for each process of a process group. */
void choir__each_of_group(pid_t group, void (*fn)(pid_t pid, void *arg), void *arg);

/* --- signals, as messages --- */

typedef struct choir__signal {
    int number;
    bool typed; /* sent by the kernel, as for Ctrl-C: the whole process group received it */
} choir__signal;

/* Takes over the handling of `numbers` (count), except signals that the process ignores,
 * because the user wants that. A process has one owner at a time; the call waits for its turn.
 * Sets SIGCHLD such that exit statuses are kept. Error: I/O. */
choir_status choir__signals_take(const int *numbers, int count);
void choir__signals_give_back(void);
int choir__signals_fd(void);
bool choir__signals_next(choir__signal *next); /* false: none pending */
/* Restores, in a forked child, the handlers from before choir__signals_take, which the child
 * may call again. */
void choir__signals_forget(void);

#endif
