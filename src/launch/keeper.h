/* Memory that an agent keeps for its workers, and that outlives them: for copies of the ranks'
 * state, from which the ranks of the next generation continue (parallel/elastic/copies.h). An
 * agent keeps its own workers' copies, and those that the ranks of another machine have sent
 * here.
 *
 *     slot 0 ... own - 1              the copies of this machine's ranks, by local rank
 *     slot own ... own + others - 1   slots of the previous machine, by local rank there
 *
 * Each slot is two memfds, which take turns. One more, the verdict, receives the workers' words
 * to the agent: that no start would help the job, or whose failure only follows from another
 * rank's. They have no memory until a rank writes to them. A worker opens them in
 * /proc by the agent's process id, which its environment names; so they reach it through any
 * shell or script. */
#ifndef CHOIR_LAUNCH_KEEPER_H
#define CHOIR_LAUNCH_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

enum { CHOIR__KEEPER_MOST = 64 }; /* workers of a machine whose copies are kept */

typedef struct choir__keeper {
    int own, others;      /* slots */
    uint64_t generation;  /* generation of the workers that have the slots */
    int node, local_rank; /* this worker's machine among the job's machines, and its slot */
    int fds[2 * CHOIR__KEEPER_MOST][2];
    int verdict; /* the agent's memfd: a byte for all workers, then one for each */
} choir__keeper;

/* --- the agent --- */

/* Makes the missing slots for a generation. Without descriptors, or with too many workers, it
 * makes no slots, and ranks continue from their checkpoints. */
void choir__keeper_make(choir__keeper *keeper, int own, int others);
void choir__keeper_free(choir__keeper *keeper);

/* Makes the verdict, of workers that have said nothing yet. */
void choir__keeper_listen(choir__keeper *keeper);
/* Returns whether a worker has given the job up, so that it is not to be started again. */
bool choir__keeper_given_up(const choir__keeper *keeper);
/* Returns whether the worker has lost a peer. */
bool choir__keeper_lost_peer(const choir__keeper *keeper, int worker);

/* In a worker, before it runs the command: puts the slots into its environment. */
void choir__keeper_export(
    const choir__keeper *keeper, int agent_pid, int generation, int worker);
/* In a process that is no worker's rank itself: takes them out. Such a process may still give
 * the job up. */
void choir__keeper_forget(void);

/* --- a worker --- */

/* Returns whether an agent keeps memory for this process. */
bool choir__keeper_is_there(void);
/* Opens the slots. Returns false without slots. */
bool choir__keeper_open(choir__keeper *keeper);
void choir__keeper_close(choir__keeper *keeper);
/* Tells the agent of this process, or of the worker that has started it, that the job is given
 * up. Without an agent that starts workers again, it does nothing. */
void choir__keeper_give_up(void);
/* Tells the agent that this worker has lost a peer, whose node knows why. */
void choir__keeper_say_lost(void);

#endif
