/* Waiting: progress, spin or yield, sleep, and a regular check of the peers.
 *
 * If every rank on this machine has its own core, a waiter polls without pause for a moment;
 * with more ranks than cores it yields the core between polls. (Yielding to processes other
 * than the ranks costs milliseconds.) Then it sleeps on UCX's event and its own, because
 * another thread may move its messages. It wakes every 50 ms to check: has a rank failed (the
 * store knows), has a rank that it waits for ended, is the time over?
 *
 * After 200 ms a waiter also sends the ranks that it waits for the call in which it waits. A
 * rank that waits in a different call then notices, and a broken connection has something to
 * lose. */
#include "comm/ucx/ucx.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/flight/flight.h"

static const double spin_s = 50e-6, yield_s = 20e-6, look_s = 0.05, tell_s = 0.2;

/* A waiter's state. */
typedef struct wait {
    choir__ucx *g;
    choir__request *requests;
    int at, count; /* index of the first that is not done; their number */
    /* times of the start, the last progress, the last check */
    double since, moved, looked;
    double tell_at, tell_every;
    int losses;
    bool *awaited; /* (world) ranks that this one waits for */
} wait;

/* Under the lock. Returns true if there is nothing to wait for any more. */
static bool look(wait *w)
{
    choir__ucx *g = w->g;
    while (w->at < w->count && w->requests[w->at].done)
        w->at++;
    return w->at == w->count || g->found != CHOIR_OK || *g->told || w->losses != g->net->losses;
}

/* Moves messages for a moment; *moved: there was work. */
static bool progress(wait *w, bool *moved)
{
    choir__ucx_net *net = w->g->net;
    bool over = false;
    *moved = false;
    pthread_mutex_lock(&net->lock);
    for (int i = 0; i < 8 && !over; i++) {
        *moved |= ucp_worker_progress(net->worker) != 0;
        over = look(w);
    }
    pthread_mutex_unlock(&net->lock);
    return over;
}

static bool sleep_a_while(wait *w)
{
    choir__ucx *g = w->g;
    struct pollfd events[] = {
        {.fd = g->net->efd, .events = POLLIN}, {.fd = g->wake_fd, .events = POLLIN}};
    uint64_t drain;
    pthread_mutex_lock(&g->net->lock);
    while (ucp_worker_progress(g->net->worker))
        ;
    bool over = look(w);
    bool armed = !over && ucp_worker_arm(g->net->worker) == UCS_OK;
    g->sleeping = armed;
    pthread_mutex_unlock(&g->net->lock);
    if (!armed)
        return over;
    poll(events, 2, (int)(look_s * 1000));
    pthread_mutex_lock(&g->net->lock);
    g->sleeping = false;
    pthread_mutex_unlock(&g->net->lock);
    if (events[1].revents && read(g->wake_fd, &drain, sizeof drain) < 0)
        return false; /* another thread has read it */
    return false;
}

/* --- checking the peers --- */

static void mark_awaited(wait *w)
{
    memset(w->awaited, 0, (size_t)w->g->base.world * sizeof *w->awaited);
    for (int i = w->at; i < w->count; i++)
        if (!w->requests[i].done)
            w->awaited[w->requests[i].peer] = true;
}

/* The peer has left without sending the awaited message. Under the lock. */
static bool will_never_come(choir__ucx *g, int peer)
{
    const choir__ucx_peer *p = &g->peers[peer];
    if (!p->left)
        return false;
    for (const choir__ucx_op *op = p->receives_first; op; op = op->next)
        if (op->header.number >= p->left_after)
            return true;
    for (const choir__ucx_op *op = g->under_way; op; op = op->next)
        if (op->peer == peer && op->request)
            return g->net->far[p->net_rank].lost != UCS_OK;
    return false;
}

static choir_status has_left(choir__ucx *g, int peer)
{
    char who[CHOIR__PEER_TEXT], call[CHOIR__CALL_TEXT];
    return choir__ucx_fail(g, CHOIR_ERR_PEER_LOST, "%s has left the group, and %s needs it",
        choir__engine_peer(&g->base, peer, who), choir__call_text(&g->now, call));
}

static choir_status has_ended(choir__ucx *g, int peer)
{
    char text[CHOIR__ENDED_TEXT];
    int pidfd = g->net->far[g->peers[peer].net_rank].pid_fd;
    return choir__ucx_fail(g, CHOIR_ERR_PEER_LOST, "%s",
        choir__engine_ended(&g->base, peer, pidfd, &g->now, text));
}

/* Returns true if the process has ended without a goodbye. A rank that left in order may end
 * before its last messages are read here, so all pending messages are read first. */
static bool is_dead(wait *w, int peer)
{
    choir__ucx_net *net = w->g->net;
    double until = choir__now() + 1;
    bool left = false;
    if (!choir__ucx_dead(w->g, peer))
        return false;
    for (int idle = 0; idle < 10 && !left && choir__now() < until;) {
        pthread_mutex_lock(&net->lock);
        bool moved = ucp_worker_progress(net->worker) != 0;
        left = w->g->peers[peer].left;
        pthread_mutex_unlock(&net->lock);
        idle += !moved;
        if (!moved)
            poll(NULL, 0, 1);
    }
    return !left;
}

/* Waits for the reason of a broken connection: the peer failed and said so, it left, or it
 * ended. */
static choir_status explain_loss(wait *w, int peer)
{
    choir__ucx *g = w->g;
    char who[CHOIR__PEER_TEXT], call[CHOIR__CALL_TEXT];
    double until = choir__now() + 1;
    bool moved;
    do {
        progress(w, &moved);
        if (choir__ucx_ask_store(g, w->awaited) != CHOIR_OK)
            return g->base.failed;
        if (is_dead(w, peer))
            return has_ended(g, peer);
        if (g->peers[peer].left)
            return CHOIR_OK; /* the next check finds out whether that matters */
        poll(NULL, 0, 10);
    } while (choir__now() < until);
    return choir__ucx_fail(g, CHOIR_ERR_PEER_LOST, "the connection to %s broke during %s: %s",
        choir__engine_peer(&g->base, peer, who), choir__call_text(&g->now, call),
        ucs_status_string(g->net->far[g->peers[peer].net_rank].lost));
}

static void tell_awaited(wait *w)
{
    choir__ucx *g = w->g;
    pthread_mutex_lock(&g->net->lock);
    for (int r = 0; r < g->base.world; r++)
        if (w->awaited[r] && g->net->far[g->peers[r].net_rank].lost == UCS_OK)
            choir__ucx_tell(g, r, CHOIR__UCX_WAITING);
    pthread_mutex_unlock(&g->net->lock);
    w->tell_every = w->tell_every < 5 ? 2 * w->tell_every : 5;
    w->tell_at = choir__now() + w->tell_every;
}

/* Not CHOIR_OK if waiting longer is pointless. */
static choir_status look_after_peers(wait *w)
{
    choir__ucx *g = w->g;
    double now = choir__now();
    w->looked = now;
    pthread_mutex_lock(&g->net->lock);
    bool over = look(w);
    w->losses = g->net->losses;
    bool found = g->found != CHOIR_OK;
    mark_awaited(w);
    pthread_mutex_unlock(&g->net->lock);
    if (over && w->at == w->count)
        return CHOIR_OK;
    if (choir__ucx_ask_store(g, w->awaited) != CHOIR_OK)
        return g->base.failed;
    if (found)
        return choir__ucx_fail(g, g->found, "%s", g->found_text);
    int gone = -1; /* left earlier; another rank's death may be the reason */
    for (int r = 0; r < g->base.world; r++) {
        pthread_mutex_lock(&g->net->lock);
        bool left = g->peers[r].left, never = will_never_come(g, r);
        bool lost = g->net->far[g->peers[r].net_rank].lost != UCS_OK;
        pthread_mutex_unlock(&g->net->lock);
        if (never)
            gone = r;
        else if (lost && !left)
            return explain_loss(w, r);
        else if (!left && is_dead(w, r))
            return has_ended(g, r);
    }
    if (gone >= 0)
        return has_left(g, gone);
    if (now > w->tell_at)
        tell_awaited(w);
    return now - w->since > g->base.timeout_s ? choir__ucx_late(g, w->awaited) : CHOIR_OK;
}

/* --- waiting --- */

static choir_status wait_long(wait *w)
{
    choir__ucx *g = w->g;
    bool crowded = g->net->crowded;
    bool moved;
    for (;;) {
        bool over = progress(w, &moved);
        if (over && w->at == w->count)
            return CHOIR_OK;
        double now = choir__now();
        w->moved = moved ? now : w->moved;
        if ((over || now - w->looked > look_s) && look_after_peers(w) != CHOIR_OK)
            return g->base.failed;
        if (now - w->moved > (crowded ? yield_s : spin_s))
            sleep_a_while(w);
        else if (crowded)
            sched_yield();
    }
}

/* Called after the engine has failed: ends all operations in progress. */
static void end_all(choir__ucx *g)
{
    pthread_mutex_lock(&g->net->lock);
    choir__ucx_spread(g);
    choir__ucx_abandon(g);
    pthread_mutex_unlock(&g->net->lock);
}

static choir_status look_at(wait *w, int peer, bool needed)
{
    choir__ucx *g = w->g;
    pthread_mutex_lock(&g->net->lock);
    bool left = g->peers[peer].left;
    bool lost = g->net->far[g->peers[peer].net_rank].lost != UCS_OK;
    pthread_mutex_unlock(&g->net->lock);
    if (left)
        return needed ? has_left(g, peer) : CHOIR_OK;
    return lost ? explain_loss(w, peer) : is_dead(w, peer) ? has_ended(g, peer) : CHOIR_OK;
}

choir_status choir__ucx_look(choir__engine *engine, const choir__stamp *during, bool needed)
{
    choir__ucx *g = (choir__ucx *)engine;
    wait w = {.g = g};
    bool moved;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    g->now = *during;
    progress(&w, &moved);
    w.awaited = choir__calloc((size_t)engine->world, sizeof *w.awaited);
    choir_status status = choir__ucx_ask_store(g, w.awaited);
    for (int r = 0; r < engine->world && status == CHOIR_OK; r++)
        if (r != engine->rank)
            status = look_at(&w, r, needed);
    if (status != CHOIR_OK)
        end_all(g);
    free(w.awaited);
    return status;
}

choir_status choir__ucx_wait(choir__engine *engine, choir__request *requests, int count)
{
    choir__ucx *g = (choir__ucx *)engine;
    double now;
    bool moved;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    wait w = {.g = g, .requests = requests, .count = count};
    if (progress(&w, &moved) && w.at == count)
        return CHOIR_OK;
    now = choir__now();
    w.since = w.moved = w.looked = now;
    w.tell_every = tell_s;
    w.tell_at = now + tell_s;
    w.awaited = choir__calloc((size_t)engine->world, sizeof *w.awaited);
    g->waiting = true;
    choir_status status = wait_long(&w);
    pthread_mutex_lock(&g->net->lock);
    g->waiting = false;
    pthread_mutex_unlock(&g->net->lock);
    if (status != CHOIR_OK)
        end_all(g);
    free(w.awaited);
    return status;
}
