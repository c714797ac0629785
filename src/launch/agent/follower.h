/* A follower reads a job's ledger as it grows, holds the membership after the newest entry that
 * this agent knows, and appends changes of it to the ledger.
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
    double round_at; /* time when this agent saw the round begin */
    double entry_at; /* time when it read the entry */
    bool gathers;    /* in the newest entry the agents still gather */
    double gathering_at,
        gathered_at; /* time when the running generation ended, and when its last rank ended */
    /* entries that were not shown yet: lines for people, and events for programs */
    char *news, *events;
    int voters; /* number of voters at the last line about them; 0: no line yet */
} choir__follower;

choir_status choir__follower_open(choir__follower *f);
void choir__follower_close(choir__follower *f);
void choir__follower_wake(choir__follower *f);

/* Reads up to the newest entry, and skips entries that the ledger no longer has. *none: the
 * ledger is empty. */
choir_status choir__follower_catch_up(choir__follower *f, choir__ledger *ledger, bool *none);
/* Waits for the next entry. TIMEOUT: no entry came. */
choir_status choir__follower_next(choir__follower *f, choir__ledger *ledger, double wait_s);

/* Tells people, in the news, how many agents decide on the ledger, once that has changed. */
void choir__follower_note_voters(choir__follower *f, const choir__ledger *ledger);

/* Changes the membership: calls fn on a copy of the newest membership, and writes the result as
 * the next entry. If another agent's entry comes first, this is repeated. fn returns false to
 * change nothing. */
typedef bool choir__change_fn(choir__agent_state *m, void *arg);
choir_status choir__follower_change(
    choir__follower *f, choir__ledger *ledger, choir__change_fn *fn, void *arg);

#endif
