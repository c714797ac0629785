/* A follower reads a job's ledger as it grows, and adds to it: it holds the membership after
 * the newest entry that this agent knows.
 *
 * Threads: any; each passes a ledger object of its own. */
#ifndef CHOIR_LAUNCH_AGENT_FOLLOWER_H
#define CHOIR_LAUNCH_AGENT_FOLLOWER_H

#include <pthread.h>

#include "launch/agent/ledger.h"
#include "launch/agent/agent_state.h"

typedef struct choir__follower {
    pthread_mutex_t lock;
    int event; /* an eventfd: readable after each new entry */
    /* the rest under the lock */
    choir__agent_state now;
    int64_t at;      /* the entry's number; 0: none */
    double round_at; /* time when this agent saw the round begin, and */
    double entry_at; /* the entry */
    bool gathers;    /* the newest entry is of a gathering */
    double gathering_at,
        gathered_at; /* time when the running generation ended, and when its last rank ended */
    /* entries that were not shown yet: lines for people, and events for programs */
    char *news, *events;
    int voters; /* number of voters at the last line about them; 0: no line yet */
} choir__follower;

choir_status choir__follower_open(choir__follower *f);
void choir__follower_close(choir__follower *f);
void choir__follower_wake(choir__follower *f);

/* Goes to the newest entry, also over a gap. *none: the ledger is empty. */
choir_status choir__follower_catch_up(choir__follower *f, choir__ledger *ledger, bool *none);
/* Waits for the next entry. TIMEOUT: no entry came. */
choir_status choir__follower_next(choir__follower *f, choir__ledger *ledger, double wait_s);

/* Tells people, in the news, how many agents decide on the ledger, once that has changed. */
void choir__follower_note_voters(choir__follower *f, const choir__ledger *ledger);

/* Changes the membership: calls fn on a copy of the newest one until its result is the next
 * entry, or fn returns false: then nothing changes. */
typedef bool choir__change_fn(choir__agent_state *m, void *arg);
choir_status choir__follower_change(
    choir__follower *f, choir__ledger *ledger, choir__change_fn *fn, void *arg);

#endif
