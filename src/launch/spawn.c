/* Ranks as forks of the calling process, which supervises them (launch/process). They share its
 * process group, so Ctrl-C and the terminal reach them as they reach the caller. The public
 * choir_spawn (comm/spawn.c) adds the handling of devices. */
#include "launch/spawn.h"

#include <signal.h>
#include <stdio.h>

#include "base/base.h"
#include "launch/process/signal_table.h"
#include "launch/replace.h"

/* --- the parent --- */

static void watch(choir__supervisor *w)
{
    choir__family *f = &w->family;
    struct pollfd polled[CHOIR__CHILDREN_MAX + 1 + CHOIR__WATCHED_MOST];
    while (f->alive) {
        int n = choir__family_poll(f, polled);
        polled[n] = (struct pollfd){.fd = choir__signals_fd(), .events = POLLIN};
        int heard = choir__watch_poll(polled + n + 1);
        int ms = choir__spawn_sleep(w, choir__family_press(f));
        if (poll(polled, (nfds_t)(n + 1 + heard), ms) < 0)
            continue; /* EINTR: the pipe holds the signal */
        choir__watch_heard(polled + n + 1, heard);
        choir__spawn_signals(w);
        choir__family_reap(f, polled);
    }
}

static choir_status start(choir__family *f, choir__spawning *r, int spares)
{
    choir_status status = CHOIR_OK;
    int first = r->place.rank, local = r->place.local_world;
    for (int i = 0; i < local && status == CHOIR_OK; i++) {
        r->place.rank = first + i;
        r->place.local_rank = i;
        status = choir__spawn_seat(f, r, i);
    }
    for (int i = 0; i < spares && status == CHOIR_OK; i++)
        status = choir__spawn_seat(f, r, choir__crew_seat(r->crew));
    r->place.rank = first;
    return status;
}

/* Describes the outcome. An interrupted rank may end as it likes, but not by a crash. */
static choir_status verdict(const choir__supervisor *w, int first_rank)
{
    const choir__family *f = &w->family;
    char end[96];
    int crashed = choir__family_crashed(f);
    int named = w->interrupted && crashed >= 0 ? crashed : f->first;
    if (named < 0)
        return CHOIR_OK;
    const choir__child *c = &f->children[named];
    char late[64];
    return choir__error(
        w->interrupted && crashed < 0 ? CHOIR_ERR_INTERRUPTED : CHOIR_ERR_PEER_LOST,
        "%srank %d (pid %d) %s%s", w->interrupted ? "interrupted; " : "", first_rank + named,
        (int)c->pid, choir__end_text(c, end), choir__spawn_late(w, late));
}

static choir_status check(const choir__spawn_host *host, int local, choir_spawn_opts opts)
{
    choir_status status;
    if (opts.nodes < 1 || opts.node < 0 || opts.node >= opts.nodes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn: expected a node from 0 to nodes - 1, got %d of %d; begin with "
            "choir_spawn_defaults()",
            opts.node, opts.nodes);
    if (local < 1 || local > CHOIR__CHILDREN_MAX)
        return choir__error(CHOIR_ERR_ARGUMENT, "spawn: expected 1 to %d ranks, got %d",
            CHOIR__CHILDREN_MAX, local);
    if (local > INT32_MAX / opts.nodes)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn of %d ranks on each of %d nodes: too many", local, opts.nodes);
    if (opts.max_restarts < 0 || opts.spares < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn: expected 0 or more restarts and spares, got %d and %d", opts.max_restarts,
            opts.spares);
    if (opts.rebuild && (opts.least < 0 || opts.least > local))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn: expected a least number of ranks from 0 to %d, got %d", local, opts.least);
    if ((opts.max_restarts || opts.spares) && opts.method)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn: ranks that are replaced meet by themselves: expected no method, got '%s'",
            opts.method);
    if ((opts.max_restarts || opts.spares) &&
        (opts.nodes > 1 || local > CHOIR__MEMBERS_MAX ||
            opts.max_restarts > CHOIR__SEATS_MAX - local - opts.spares))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn: ranks that are replaced: expected one node, up to %d ranks and %d processes "
            "in all, got %d, %d and %lld",
            CHOIR__MEMBERS_MAX, CHOIR__SEATS_MAX, opts.nodes, local,
            (long long)local + opts.spares + opts.max_restarts);
    status = host->may_fork();
    if (status != CHOIR_OK)
        return status;
    if (opts.nodes > 1 && !opts.method)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "spawn on %d nodes: name a meeting point, as tcp://host:port", opts.nodes);
    return CHOIR_OK;
}

/* Starts the ranks and waits until all have ended. */
static choir_status supervise(choir__supervisor *w, choir__spawning *r)
{
    const choir_spawn_opts *opts = r->opts;
    int local = r->place.local_world, seats = local + opts->spares + opts->max_restarts;
    choir_status status = CHOIR_OK;
    if (seats > local)
        status = choir__crew_new(local, r->job, &r->crew);
    if (status != CHOIR_OK)
        return status;
    if (r->crew && opts->rebuild)
        choir__crew_rebuild(r->crew, opts->least);
    choir__family_init(&w->family, seats);
    w->family.stopped_max_s = opts->timeout_s;
    w->family.outlives = r->crew;
    r->host->quiesce(); /* a fork has one thread, so no other thread may be at work */
    fflush(NULL);       /* otherwise each child would write buffered text again */
    choir__watch_before(r->place.rank, local + opts->spares);
    status = start(&w->family, r, opts->spares);
    choir__watch_forked();
    if (status == CHOIR_OK && opts->started)
        opts->started(r->arg);
    if (status == CHOIR_OK && r->crew) {
        status = choir__spawn_replace(w);
    } else if (status == CHOIR_OK) {
        watch(w);
        status = verdict(w, opts->node * local);
    }
    choir__family_bury(&w->family);
    choir__watch_after();
    choir__family_free(&w->family);
    choir__crew_free(r->crew);
    return status;
}

/* Returns whether the calling program has a handler of its own for a signal. */
static bool handles_own(int number)
{
    struct sigaction now;
    sigaction(number, NULL, &now);
    return now.sa_handler != SIG_DFL;
}

/* Lists the table's signals. One that asks for the report stays the caller's if it handles it.
 */
static int list_taken(int taken[CHOIR__SIGNALS_MOST])
{
    int count = 0;
    for (const choir__signal_row *row = choir__signal_table; row->number; row++)
        if (row->does != CHOIR__SIGNAL_SHOWS || !handles_own(row->number))
            taken[count++] = row->number;
    return count;
}

choir_status choir__spawn(const choir__spawn_host *host, int local, choir_spawn_fn *fn,
    void *arg, choir_spawn_opts opts)
{
    int taken[CHOIR__SIGNALS_MOST];
    char job[CHOIR__JOB_TEXT];
    choir__spawning r = {.host = host, .opts = &opts, .job = job, .fn = fn, .arg = arg};
    choir__supervisor w = {.spawning = &r, .restarts_left = opts.max_restarts};
    choir_status status = check(host, local, opts);
    if (opts.interrupted_by)
        *opts.interrupted_by = 0;
    if (opts.restarts_left)
        *opts.restarts_left = -1;
    if (status == CHOIR_OK)
        status = choir__job_random(job);
    w.saves = handles_own(SIGUSR1);
    if (status == CHOIR_OK)
        status = choir__signals_take(taken, list_taken(taken));
    if (status != CHOIR_OK)
        return status;
    r.place = (choir__job_place){.rank = opts.node * local,
        .world = opts.nodes * local,
        .local_world = local,
        .node = opts.node,
        .nodes = opts.nodes};
    choir__job_place_master(&r.place, opts.method);
    status = supervise(&w, &r);
    if (opts.restarts_left && w.emptied)
        *opts.restarts_left = w.restarts_left;
    if (opts.interrupted_by)
        *opts.interrupted_by = w.interrupted;
    choir__signals_give_back();
    return status;
}
