/* The crew of a job: which processes of this machine are its ranks, while ranks die and new
 * ones come.
 *
 * The supervisor of a job (choir_spawn) outlives its ranks, so it alone decides who is a rank.
 * Each process has a *seat* in memory that all of them share. A *generation* is a group of
 * ranks that have met; it ends as a whole, and the next one has another name, hence other
 * sockets and other shared memory: no message of the old one can reach it.
 *
 *     seat       vacant -> starting -> ready -> member -> gone          (one process each)
 *     rank       works in generation g -> has left g -> works in g + 1 -> ...
 *
 *   1. A member leaves generation g when its group has failed (a peer is dead or silent), or,
 * in order, at a step boundary that rank 0 has announced because a new process is ready. It
 * then waits (choir__crew_next).
 *   2. Once every living member has left g, and not before, the supervisor writes the list of
 *      the members of g + 1 and wakes them: the remaining members, in their order, then as many
 * ready processes as fit. The other ready ones are spares.
 *   3. The members meet under the name of g + 1. If one of them dies before all have met, g + 1
 *      is *broken*: the others leave it, and 2 repeats.
 *
 * Ranks read the list while they are members that work, and the supervisor writes it while none
 * is, so the list needs no lock. A rank that has not left g a while after another one has, or
 * that stays stopped, is killed by the supervisor (choir__crew_late) and is then a death like
 * any other.
 *
 * At an orderly change all ranks must leave at the same step boundary. Rank 0 announces it one
 * step ahead: before it begins step s it writes "leave before s + 1" to the crew. No rank can
 * finish step s without rank 0's part of it, so every rank sees the note in time. Where ranks
 * would lose steps by leaving, rank 0 waits until the step after which they lose none. Ranks
 * that step by themselves leave before their next step, whatever its number.
 *
 *   seat.c    a rank's side         form.c    the supervisor's side: no processes, only seats
 */
#ifndef CHOIR_LAUNCH_CREW_H
#define CHOIR_LAUNCH_CREW_H

#include <stdalign.h>
#include <stdatomic.h>
#include <choir/membership.h>
#include "base/base.h"
#include "launch/process/job.h"

enum {
    CHOIR__SEATS_MAX = 1024,
    CHOIR__MEMBERS_MAX = 64, /* ranks of a group in shared memory */
    CHOIR__LEFT_MAX = 64,    /* ranks that one change names */
    CHOIR__TOOK = 64,        /* steps whose times are known */
    CHOIR__WHY_TEXT = 400
};

typedef enum choir__seat_state {
    CHOIR__VACANT,
    CHOIR__STARTING, /* the process is preparing itself */
    CHOIR__READY,    /* the process can become a member at any time */
    CHOIR__MEMBER,
    CHOIR__GONE
} choir__seat_state;

/* A process's seat; its own cache line, because the process writes to it while others work. */
typedef struct choir__seat {
    alignas(64) _Atomic uint32_t state;
    _Atomic int32_t left_why; /* reason for which the process left (choir_status), and */
    _Atomic uint64_t left;    /* the newest generation that it has left */
    _Atomic int64_t left_at;  /* time of leaving: ns of choir__now */
    int32_t pid, local;       /* local: number of its place on the machine, as LOCAL_RANK */
    int32_t rank; /* rank in the newest generation that it was a member of; -1: none */
    char words[CHOIR__WHY_TEXT];  /* error message that the process wrote before it exited */
    char killed[CHOIR__WHY_TEXT]; /* why the supervisor has killed it; "": it has not */
    char end[CHOIR__WHY_TEXT];    /* how the process has ended; "": it has not */
    uint64_t progress; /* the supervisor's: changes whenever the process finishes something */
    double idle_s; /* the supervisor's: seconds without progress, waits for others left out */
} choir__seat;

typedef struct choir__crew {
    /* a futex, which changes whenever waiting ranks have something to look at */
    alignas(64) _Atomic uint32_t turn;
    _Atomic uint32_t over;       /* rank 0 has finished the job's work, or all give it up */
    _Atomic uint32_t anew;       /* all members end, and the caller may begin the job again */
    _Atomic uint64_t generation; /* the newest one, which `newest` describes */
    _Atomic uint64_t broken;     /* the newest generation that has lost a member */
    _Atomic uint64_t failed;     /* the newest generation that a member has left as it failed */
    _Atomic uint64_t due;        /* the generation that newcomers wait to replace */
    /* step boundary at which all leave generation `due`; -1: not set */
    _Atomic int64_t leave_at;
    _Atomic uint64_t reported; /* the newest generation whose change rank 0 has reported */
    /* the times of rank 0's last steps, in a ring, and the number of all */
    _Atomic float took_s[CHOIR__TOOK];
    _Atomic uint32_t took;
    int bell;      /* eventfd with which ranks wake the supervisor */
    bool rebuild;  /* a generation's ranks rebuild everything, and none prepares itself alone */
    int32_t least; /* with `rebuild`: least number of members of a generation; 0: one */
    /* With `rebuild`: memfds, two per rank, for copies of the ranks' state. The supervisor has
     * them as well, so they outlive all ranks. */
    int copies[CHOIR__MEMBERS_MAX][2];
    int32_t world, seat_count; /* members if all places are taken; seats in use */
    char job[CHOIR__JOB_TEXT]; /* name of generation 1; other generations' names follow from it
                                */
    /* The newest generation, and how it differs from the one whose change was reported last:
     * without `step` and `resumed_s`, which ranks know. Its lists are the next two. */
    choir_membership newest;
    choir_leaver left[CHOIR__LEFT_MAX]; /* ranks lost since then follow the list */
    int joined[CHOIR__MEMBERS_MAX];
    int32_t members[CHOIR__MEMBERS_MAX]; /* seat of each rank */
    double began_at; /* choir__now when `newest` became due: a loss, or newcomers */
    /* The supervisor's account of the next change: the length of `left` with the ranks lost
     * since, and choir__now when the change became due; 0: it is not. */
    int32_t lost;
    double due_at;
    choir__seat seats[CHOIR__SEATS_MAX];
} choir__crew;

/* --- form.c: the supervisor --- */

/* Makes a crew whose first `world` seats are generation 1. Error: memory, I/O. */
choir_status choir__crew_new(int world, const char *job, choir__crew **crew);
void choir__crew_free(choir__crew *crew); /* NULL is fine */

/* Makes the crew's ranks rebuild everything in each generation, which has `least` members or
 * more. Call it before the first rank starts. If the system has no files for copies, `copies`
 * stay -1. */
void choir__crew_rebuild(choir__crew *crew, int least);

/* Takes the next seat for a process that is about to start; -1: no free seat. */
int choir__crew_seat(choir__crew *crew);

/* Notes that the process of a seat has ended. Returns whether it was a member. */
bool choir__crew_lost(choir__crew *crew, int seat, const char *why);

/* Writes and announces the next generation if every living member has left the last one; else,
 * if there are newcomers and room for them, asks the members to leave in order. */
void choir__crew_form(choir__crew *crew);

/* choir__crew_alive returns the number of members that are alive, choir__crew_living the number
 * of all live processes: members, and processes that are or will be ready. */
int choir__crew_alive(const choir__crew *crew);
int choir__crew_living(const choir__crew *crew);

/* Returns a member that has kept the others waiting for so long that it counts as lost, and
 * notes why it is killed; -1: none. after_silence: the limit once another member has found it
 * silent; after_loss: the limit otherwise. Both in seconds. */
int choir__crew_late(choir__crew *crew, double after_silence, double after_loss);

/* Returns for how many seconds a rank may finish nothing, while others wait for it, before it
 * counts as live-locked: 50 usual steps of this job, but one minute or more, and `timeout` at
 * most, which also holds until enough steps are known. */
double choir__crew_patience(const choir__crew *crew, double timeout);

/* --- seat.c: a rank --- */

/* Seats this process, a child of the supervisor. */
void choir__crew_sit(choir__crew *crew, int seat);
/* Returns the crew of this process's job, or NULL if the job has none. */
choir__crew *choir__crew_mine(void);
/* Returns this process's place on the machine. */
int choir__crew_local(void);
/* True until this process has the state of the job's work: it is a member of generation 1, or a
 * member of a later one has given it the state (choir__crew_settled). */
bool choir__crew_is_new(void);
void choir__crew_settled(void);
/* choir__crew_membership describes the generation of this process, which is a member and has
 * not left it; choir__crew_rank returns the process's rank in it. */
const choir_membership *choir__crew_membership(void);
int choir__crew_rank(void);
/* Describes the change of membership for the program. step: steps done before; resumed_at:
 * choir__now when one more was done. Rank 0's call reports the change for the job. */
choir_membership choir__crew_report(int64_t step, double resumed_at);

/* Joins the generation in which this process prepares itself with others. Returns false if it
 * prepares itself alone: it is new, or it has come here before, and leaves that generation. */
bool choir__crew_enter(void);
/* choir__crew_enter of a crew whose ranks rebuild everything: returns false if this process has
 * to wait for the next generation (choir__crew_next). If it was in one, that one has failed. */
bool choir__crew_begin(void);

/* Leaves the generation that this process belongs to. why: CHOIR_OK in order, else the status
 * with which the generation has failed here; TIMEOUT: a peer was silent for too long. */
void choir__crew_leave(choir_status why);
/* Leaves the generation because it has failed, and tells all other members, whatever they wait
 * for. */
void choir__crew_fail(choir_status why);
/* Leaves the generation that this process belongs to, if any, and joins the next one in which
 * it is a member. If no such generation comes, it does not return: the supervisor ends this
 * process. */
void choir__crew_next(choir_status why);

/* Before each step, on every rank: true if all ranks leave the generation now, in order. next:
 * after the next step they may. step -1: ranks step by themselves, and leave at any step. */
bool choir__crew_parts(int rank, int64_t step, bool next);

/* Notes how long rank 0's last step has taken. */
void choir__crew_took(double seconds);

/* True if the generation has lost a member, or a member has found that it failed; a meeting of
 * it cannot succeed. */
bool choir__crew_stale(void);
/* True if the generation is stale and the crew's ranks rebuild everything, so that no call in
 * any of its groups can succeed. */
bool choir__crew_void(void);

/* Writes the name under which a generation meets. */
enum { CHOIR__GENERATION_TEXT = CHOIR__JOB_TEXT + 24 };
void choir__crew_name(uint64_t generation, char name[CHOIR__GENERATION_TEXT]);

/* choir__crew_finish, on rank 0, ends the job's work: no process is replaced any more.
 * choir__crew_wait_over waits for that on the other ranks, and returns false if the generation
 * has lost a member before. */
void choir__crew_finish(void);
bool choir__crew_wait_over(void);

/* For members that all end by an error. choir__crew_give_up: the job ends with them.
 * choir__crew_begin_anew: none of them is replaced, and the caller of the spawn may begin the
 * job again outside of this crew, which costs one restart. Both do nothing without a crew. */
void choir__crew_give_up(void);
void choir__crew_begin_anew(void);

/* Leaves this process's last words, for the sentence about its end. */
void choir__crew_say(const char *words);

#endif
