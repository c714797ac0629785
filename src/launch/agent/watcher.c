/* A thread that follows the ledger. It renews this agent's sign of life, reports agents that
 * are gone or silent for too long while others wait for them, and starts a generation when it
 * is due: the first agent in the list, or the next ones in turn if it does not. */
#include "launch/agent/watcher.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hold_signals.h"

static const double beat_s = 1;
static const double look_s = 0.2;  /* for agents that are gone, and while nodes gather */
static const double silence_s = 5; /* seconds of silence of an agent that the others wait for */
static const double turn_s = 0.5;  /* until the next agent does what the first one should */

/* --- agents that are gone --- */

typedef struct loss {
    char id[CHOIR__JOB_TEXT];
    double quiet_s;
} loss;

static bool lose(choir__agent_state *m, void *arg)
{
    const loss *l = arg;
    return choir__agent_state_lost(m, l->id, l->quiet_s);
}

/* Returns for how long an agent may be silent now. A stopped agent does no harm while its ranks
 * work, but it neither tells that they are done nor stops them. */
static double patience_with(
    const choir__watcher *w, const choir__agent_state *m, const choir__agent_node *n)
{
    bool some_done = false;
    for (int i = 0; i < m->count; i++)
        some_done |= m->nodes[i].stage == CHOIR__DONE;
    if (n->stage != CHOIR__BUSY)
        return INFINITY;
    if (m->phase == CHOIR__GATHERING)
        return silence_s;
    return some_done ? w->patience.timeout_s : INFINITY;
}

/* Finds an agent that is gone; returns false if all are present. */
static bool find_lost(choir__watcher *w, loss *found)
{
    choir__follower *f = w->follower;
    pthread_mutex_lock(&f->lock);
    choir__agent_state m = choir__agent_state_copy(&f->now);
    pthread_mutex_unlock(&f->lock);
    bool any = false;
    for (int i = 0; i < m.count && !any && m.phase != CHOIR__OVER; i++) {
        const choir__agent_node *n = &m.nodes[i];
        double quiet_s = strcmp(n->id, w->id) ? w->ledger->ops->quiet_s(w->ledger, n->id) : 0;
        any = isinf(quiet_s) || quiet_s > patience_with(w, &m, n);
        if (any) {
            snprintf(found->id, sizeof found->id, "%s", n->id);
            found->quiet_s = quiet_s;
        }
    }
    choir__agent_state_free(&m);
    return any;
}

choir_status choir__watcher_report_lost(choir__watcher *w)
{
    choir_status status = CHOIR_OK;
    loss l;
    while (status == CHOIR_OK && find_lost(w, &l))
        status = choir__follower_change(w->follower, w->ledger, lose, &l);
    return status;
}

/* --- starting --- */

typedef struct proposal {
    choir__patience patience;
    char secret[CHOIR__JOB_TEXT];
} proposal;

static bool advance(choir__agent_state *m, void *arg)
{
    const proposal *p = arg;
    return choir__agent_state_advance(m, &p->patience, p->secret);
}

/* Returns whether this agent should write the next entry: one agent does it at once, and the
 * others in turn if it does not. */
static bool is_my_turn(const choir__watcher *w, double since_entry_s)
{
    const choir__agent_state *m = &w->follower->now;
    int before = 0;
    while (before < m->count && strcmp(m->nodes[before].id, w->id) != 0)
        before++;
    return before < m->count && since_entry_s >= turn_s * before;
}

static choir_status start_if_due(choir__watcher *w)
{
    choir__follower *f = w->follower;
    proposal p = {.patience = w->patience};
    double now = choir__now();
    pthread_mutex_lock(&f->lock);
    bool mine = f->now.phase == CHOIR__GATHERING && is_my_turn(w, now - f->entry_at);
    p.patience.waited_s = now - f->round_at;
    pthread_mutex_unlock(&f->lock);
    if (!mine)
        return CHOIR_OK;
    choir_status status = choir__job_random(p.secret);
    return status == CHOIR_OK ? choir__follower_change(f, w->ledger, advance, &p) : status;
}

/* --- the thread --- */

/* Returns how long to wait for an entry. */
static double tick(const choir__watcher *w, bool *over)
{
    choir__follower *f = w->follower;
    pthread_mutex_lock(&f->lock);
    bool gathering = f->now.phase == CHOIR__GATHERING;
    *over = f->now.phase == CHOIR__OVER;
    pthread_mutex_unlock(&f->lock);
    return gathering || w->ledger->looks ? look_s : beat_s;
}

/* Judges a ledger that does not answer. */
static choir_status judge_silence(choir__watcher *w)
{
    double silent_s = w->ledger->silent_s, fence_s = w->ledger->fence_s;
    if (fence_s > 0 && silent_s > fence_s && !atomic_exchange(&w->fenced, true))
        choir__follower_wake(w->follower);
    bool needed = fence_s > 0 || atomic_load(&w->waiting);
    if (!needed || silent_s <= w->patience.timeout_s)
        return CHOIR_OK;
    return choir__error(
        CHOIR_ERR_TIMEOUT, "%s has not answered for %.0f s", w->patience.where, silent_s);
}

/* Reads the next entry. A ledger keeps the newest entries alone, so the next one may never
 * come: others were written since. looks: it is time to find out; a ledger that did not wait
 * for the entry knows. */
static choir_status next_entry(choir__watcher *w, double wait_s, bool looks)
{
    double began = choir__now();
    choir_status status = choir__follower_next(w->follower, w->ledger, wait_s);
    bool none, waited = choir__now() - began >= wait_s / 2;
    if (status != CHOIR_ERR_TIMEOUT || w->ledger->silent_s > 0 || (waited && !looks))
        return status;
    return choir__follower_catch_up(w->follower, w->ledger, &none);
}

static void *run(void *arg)
{
    choir__watcher *w = arg;
    choir_status status = CHOIR_OK;
    bool over = false;
    double beaten = 0;
    while (status == CHOIR_OK && !over && !atomic_load(&w->closing)) {
        double wait_s = tick(w, &over);
        if (over)
            break;
        status = next_entry(w, wait_s, choir__now() - beaten >= beat_s);
        if (status == CHOIR_ERR_TIMEOUT)
            status = judge_silence(w);
        double now = choir__now();
        if (status == CHOIR_OK && now - beaten >= beat_s && w->ledger->silent_s <= 0) {
            status = w->ledger->ops->beat(w->ledger);
            beaten = now;
        }
        choir__follower_note_voters(w->follower, w->ledger);
        if (status == CHOIR_OK && w->ledger->silent_s <= 0)
            status = choir__watcher_report_lost(w);
        if (status == CHOIR_OK && w->ledger->silent_s <= 0)
            status = start_if_due(w);
        if (status == CHOIR_ERR_TIMEOUT && w->ledger->silent_s <= w->patience.timeout_s)
            status = CHOIR_OK; /* the next round sees */
    }
    if (status != CHOIR_OK) {
        w->status = status;
        snprintf(w->why, sizeof w->why, "%s", choir_error_message());
        atomic_store(&w->ended, true);
        choir__follower_wake(w->follower);
    }
    return NULL;
}

choir_status choir__watcher_start(choir__watcher *w)
{
    int why = choir__thread_start(&w->thread, run, w);
    w->started = why == 0;
    return why ? choir__error(CHOIR_ERR_IO, "cannot start a thread that watches the agents: %s",
                     choir__why(why))
               : CHOIR_OK;
}

void choir__watcher_stop(choir__watcher *w)
{
    atomic_store(&w->closing, true);
    if (w->started)
        pthread_join(w->thread, NULL);
    w->started = false;
}
