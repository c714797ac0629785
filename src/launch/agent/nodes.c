/* An agent's part in a job on several nodes. It joins by an entry in the ledger; then the
 * watcher (watcher.h) follows the ledger in a thread of its own, and the agent's loop asks
 * this object for orders: start workers, stop them, or end. */
#include "launch/agent/nodes.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/agent/follower.h"
#include "launch/agent/watcher.h"
#include "launch/store/store.h"

/* The node whose number a new agent claims may have died just now, which takes so long to
 * notice. */
static const double claim_s = 8;

struct choir__nodes {
    const choir__agent_opts *opts;
    choir__ledger *ledger; /* the agent's; the watcher has another */
    choir__follower follower;
    choir__watcher watcher;
    choir__terms terms;
    choir__agent_node self; /* this node as it joins */
    char where[CHOIR__HOST_TEXT + 64];
    double deadline;
    int generation; /* generation of the workers that run, or ran last */
    bool refused;   /* this node cannot come back, and: */
    choir__verdict verdict;
};

/* --- what this node is --- */

choir_status choir__roster_name(const choir__agent_opts *opts, char run_id[128])
{
    char random[CHOIR__JOB_TEXT];
    choir_status status = choir__job_random(random);
    if (opts->run_id)
        snprintf(run_id, 128, "%s", opts->run_id);
    else
        snprintf(run_id, 128, "%.12s", random);
    return status;
}

/* Writes a text with which nodes compare their keys; no key can be derived from it. */
static choir_status fingerprint(const char *key_file, char text[20])
{
    choir__store_key *key;
    unsigned char hash[crypto_generichash_BYTES_MIN];
    static const char what[] = "choir run: fingerprint";
    *text = '\0';
    if (!key_file)
        return CHOIR_OK;
    choir_status status = choir__store_key_new(&key);
    if (status == CHOIR_OK)
        status = choir__store_key_read_file(key_file, key);
    if (status == CHOIR_OK) {
        crypto_generichash(hash, sizeof hash, (const unsigned char *)what, sizeof what,
            key->bytes, sizeof key->bytes);
        sodium_bin2hex(text, 17, hash, 8);
    }
    choir__store_key_free(key);
    return status;
}

static choir_status find_port(const choir__agent_opts *opts, int *port)
{
    *port = opts->master_port;
    return *port ? CHOIR_OK : choir__job_free_port(port);
}

static choir_status describe(choir__nodes *n)
{
    const choir__agent_opts *o = n->opts;
    char host[CHOIR__HOST_TEXT] = "?";
    choir__agent_node *s = &n->self;
    gethostname(host, sizeof host - 1);
    *s = (choir__agent_node){.workers = o->nproc, .number = o->node, .keeps = n->ledger->keeps};
    snprintf(s->who, sizeof s->who, "%s (pid %d)", host, (int)getpid());
    if (o->node >= 0)
        snprintf(s->name, sizeof s->name, "%s as node %d", host, o->node);
    else
        snprintf(s->name, sizeof s->name, "%s", host);
    snprintf(s->host, sizeof s->host, "%s",
        *o->master         ? o->master
        : n->ledger->keeps ? o->endpoint
                           : n->ledger->self);
    n->terms = (choir__terms){.nodes_min = o->nodes_min,
        .nodes_max = o->nodes_max,
        .max_restarts = o->max_restarts,
        .node_failures = o->node_failures};
    snprintf(n->terms.version, sizeof n->terms.version, "%s", CHOIR_VERSION);
    snprintf(n->terms.work, sizeof n->terms.work, "%s", o->work ? o->work : "");
    choir_status status = fingerprint(o->key_file, n->terms.key);
    if (status == CHOIR_OK)
        status = find_port(o, &s->port);
    if (status == CHOIR_OK)
        status = choir__job_random(s->id);
    if (*n->ledger->id)
        memcpy(s->id, n->ledger->id, sizeof s->id);
    return status;
}

/* --- joining --- */

typedef struct joining {
    choir__nodes *nodes;
    char run_id[128]; /* id of a new job */
    choir_status status;
    char why[700];
    /* The ledger's last job is over, or left behind by agents that died: begin another, unless
     * the first node is no longer this one, because another agent has begun it. */
    bool new_job;
    char first[CHOIR__JOB_TEXT];
} joining;

static void note(joining *j, choir_status status)
{
    j->status = status;
    snprintf(j->why, sizeof j->why, "%s", choir_error_message());
}

static void begin_job(choir__agent_state *m, const joining *j)
{
    const choir__terms *t = &j->nodes->terms;
    choir__agent_state_free(m);
    m->terms = *t;
    m->call = t->nodes_max > t->nodes_min;
    m->round = 1;
    m->named = j->nodes->opts->run_id != NULL;
    snprintf(m->run_id, sizeof m->run_id, "%s", j->run_id);
}

/* An agent of another job leaves, and this job's nodes continue without it. */
static choir_status compare_ids(const choir__nodes *n, const choir__agent_state *m)
{
    const char *mine = n->opts->run_id;
    if (!mine || !m->named || !strcmp(mine, m->run_id))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_MISMATCH,
        "the job at %s is '%s' (node 0: %s), and this one is '%s' (--rdzv-id): choose another "
        "port",
        n->where, m->run_id, m->count ? m->nodes[0].who : "?", mine);
}

static bool join(choir__agent_state *m, void *arg)
{
    joining *j = arg;
    bool ends_all = false;
    j->status = CHOIR_OK;
    if (choir__agent_state_find(m, j->nodes->self.id))
        return false; /* written by a call whose answer was lost */
    if (j->new_job && !strcmp(j->first, m->count ? m->nodes[0].id : ""))
        begin_job(m, j);
    else if (m->phase == CHOIR__OVER) {
        note(j, choir__error(CHOIR_ERR_PEER_LOST, "%s",
                    *m->verdict.report ? choir__without_name(m->verdict.report)
                                       : "the job is over"));
        return false;
    }
    choir_status status = compare_ids(j->nodes, m);
    if (status == CHOIR_OK)
        status = choir__agent_state_join(m, &j->nodes->terms, &j->nodes->self, &ends_all);
    if (status == CHOIR_OK)
        return true;
    note(j, status);
    if (ends_all) {
        char *report = choir__format("choir run: %s", j->why);
        choir__agent_state_end(m, 1, report);
        free(report);
    }
    return ends_all;
}

/* Returns whether no agent of the job in the ledger lives. */
static bool is_left_behind(choir__nodes *n)
{
    const choir__agent_state *m = &n->follower.now;
    choir__ledger *l = n->watcher.ledger;
    for (int i = 0; i < m->count; i++)
        if (l->ops->quiet_s(l, m->nodes[i].id) <= n->opts->timeout_s)
            return false;
    return true;
}

/* Reads the ledger; or, if this agent may, prepares a new job. */
static choir_status look_for_job(choir__nodes *n, joining *j)
{
    bool none = false;
    choir_status status = choir__follower_catch_up(&n->follower, n->ledger, &none);
    if (status == CHOIR_OK && none && !n->ledger->founds)
        status = choir__follower_next(&n->follower, n->ledger, n->deadline - choir__now());
    if (status != CHOIR_OK || !n->ledger->founds)
        return status;
    const choir__agent_state *m = &n->follower.now;
    snprintf(j->first, sizeof j->first, "%s", m->count ? m->nodes[0].id : "");
    j->new_job = none || n->follower.now.phase == CHOIR__OVER || is_left_behind(n);
    return choir__roster_name(n->opts, j->run_id);
}

/* Waits as well for a ledger that does not answer at the moment, such as one whose agents elect
 * a leader. */
static choir_status find_job(choir__nodes *n, joining *j)
{
    const struct timespec moment = {.tv_nsec = 50000000};
    choir_status status = look_for_job(n, j);
    while (status == CHOIR_ERR_TIMEOUT && choir__now() < n->deadline) {
        nanosleep(&moment, NULL);
        status = look_for_job(n, j);
    }
    return status;
}

/* Joins. If no place is free for this node, waits a moment: the node's former agent, which has
 * just died, may still have the place. */
static choir_status claim_place(choir__nodes *n, joining *j)
{
    double half = n->opts->timeout_s / 2,
           until = choir__now() + (half < claim_s ? half : claim_s);
    struct timespec moment = {.tv_nsec = 250000000};
    for (;;) {
        choir_status status = choir__follower_change(&n->follower, n->ledger, join, j);
        if (status != CHOIR_OK)
            return status;
        j->new_job = false;
        bool may_change =
            n->ledger->fence_s > 0 || choir__agent_state_is_elastic(&n->follower.now);
        if (j->status == CHOIR_OK)
            return CHOIR_OK;
        if (j->status != CHOIR_ERR_STATE || !may_change || choir__now() >= until)
            break;
        nanosleep(&moment, NULL);
        status = n->watcher.ledger->ops->beat(n->watcher.ledger);
        if (status == CHOIR_OK)
            status = find_job(n, j);
        if (status != CHOIR_OK)
            return status;
    }
    return choir__error(j->status, "%s", j->why);
}

static choir_status meet(choir__nodes *n)
{
    joining j = {.nodes = n};
    choir__watcher *w = &n->watcher;
    choir_status status = choir__ledger_open(n->opts, NULL, n->deadline, &n->ledger);
    if (status == CHOIR_OK)
        status = choir__ledger_open(n->opts, n->ledger, n->deadline, &w->ledger);
    if (status == CHOIR_OK)
        status = describe(n);
    if (status != CHOIR_OK)
        return status;
    w->id = n->self.id;
    status = w->ledger->ops->live(w->ledger, n->self.id);
    if (status == CHOIR_OK)
        status = w->ledger->ops->beat(w->ledger);
    if (status == CHOIR_OK)
        status = find_job(n, &j);
    if (status == CHOIR_OK)
        status = claim_place(n, &j);
    return status == CHOIR_OK ? choir__watcher_start(w) : status;
}

choir_status choir__nodes_join(const choir__agent_opts *opts, choir__nodes **nodes)
{
    choir__nodes *n = choir__calloc(1, sizeof *n);
    *nodes = n;
    n->opts = opts;
    n->deadline = choir__now() + opts->timeout_s;
    snprintf(n->where, sizeof n->where, "%s%s port %d",
        opts->etcd.is_used ? "etcd at "
        : opts->raft       ? "a majority of the agents that met at "
                           : "",
        opts->endpoint, opts->endpoint_port);
    n->watcher.follower = &n->follower;
    n->watcher.patience = (choir__patience){
        .timeout_s = opts->timeout_s, .last_call_s = opts->last_call_s, .where = n->where};
    srand((unsigned)getpid());
    choir_status status = choir__follower_open(&n->follower);
    return status == CHOIR_OK ? meet(n) : status;
}

/* --- orders --- */

int choir__nodes_fd(const choir__nodes *n)
{
    return n->follower.event;
}

const char *choir__nodes_run_id(const choir__nodes *n)
{
    return n->follower.now.run_id; /* is set once */
}

bool choir__nodes_fenced(const choir__nodes *n)
{
    return atomic_load(&n->watcher.fenced);
}

static void fill(const choir__nodes *n, const choir__agent_node *self, choir__roster *r)
{
    const choir__agent_state *m = &n->follower.now;
    r->most_workers = 0;
    r->place = (choir__job_place){
        .rank = self->rank, .local_world = self->workers, .node = self->index};
    for (int i = 0; i < m->count; i++) {
        const choir__agent_node *k = &m->nodes[i];
        if (k->index < 0)
            continue;
        r->place.nodes++;
        r->place.world += k->workers;
        r->most_workers = choir__max(r->most_workers, k->workers);
        if (k->index == 0) {
            snprintf(r->place.master, sizeof r->place.master, "%s", k->host);
            r->place.master_port = k->port;
        }
    }
    snprintf(r->job, sizeof r->job, "%s", m->secret);
    snprintf(r->run_id, sizeof r->run_id, "%s", m->run_id);
    r->generation = m->generation;
    r->restarts = m->restarts;
}

choir__order choir__nodes_look(choir__nodes *n, choir__roster *r, choir__news *news)
{
    choir__follower *f = &n->follower;
    uint64_t count;
    choir__order order = CHOIR__WAIT;
    if (read(f->event, &count, sizeof count) < 0) {
        /* nothing new */
    }
    pthread_mutex_lock(&f->lock);
    const choir__agent_node *self = choir__agent_state_find(&f->now, n->self.id);
    *news = (choir__news){f->news, f->events};
    f->news = f->events = NULL;
    if (n->refused || atomic_load(&n->watcher.ended) || f->now.phase == CHOIR__OVER) {
        order = CHOIR__LEAVE;
    } else if (self && f->now.phase == CHOIR__RUNNING && self->stage == CHOIR__BUSY &&
               !atomic_load(&n->watcher.fenced)) {
        order = CHOIR__RUN;
        fill(n, self, r);
        if (n->generation != r->generation)
            atomic_store(&n->watcher.waiting, false);
        n->generation = r->generation;
    }
    pthread_mutex_unlock(&f->lock);
    return order;
}

bool choir__nodes_failure(choir__nodes *n)
{
    pthread_mutex_lock(&n->follower.lock);
    bool failure = n->follower.now.cause_costs || n->follower.now.phase == CHOIR__OVER;
    pthread_mutex_unlock(&n->follower.lock);
    return failure;
}

/* --- this node's news --- */

typedef struct told {
    const char *id;
    int generation, port;
    choir__verdict verdict;
    bool everywhere;
    double silent_s;
} told;

static bool tell_done(choir__agent_state *m, void *arg)
{
    const told *t = arg;
    return choir__agent_state_done(m, t->id, t->generation);
}

static bool tell_failed(choir__agent_state *m, void *arg)
{
    const told *t = arg;
    return choir__agent_state_failed(m, t->id, t->generation, &t->verdict);
}

static bool tell_ready(choir__agent_state *m, void *arg)
{
    const told *t = arg;
    return choir__agent_state_ready(m, t->id, t->port);
}

static bool tell_quit(choir__agent_state *m, void *arg)
{
    const told *t = arg;
    return choir__agent_state_leave(m, t->id, &t->verdict, t->everywhere);
}

static bool tell_lost(choir__agent_state *m, void *arg)
{
    const told *t = arg;
    return choir__agent_state_lost(m, t->id, t->silent_s);
}

static choir_status post(choir__nodes *n, choir__change_fn *fn, told *t)
{
    t->id = n->self.id;
    t->generation = n->generation;
    return choir__follower_change(&n->follower, n->ledger, fn, t);
}

static bool tell(choir__nodes *n, choir__change_fn *fn, told *t)
{
    return post(n, fn, t) == CHOIR_OK;
}

bool choir__nodes_done(choir__nodes *n)
{
    told t = {0};
    atomic_store(&n->watcher.waiting, true);
    return tell(n, tell_done, &t);
}

choir_status choir__nodes_failed(choir__nodes *n, const choir__verdict *failure)
{
    told t = {.verdict = *failure};
    atomic_store(&n->watcher.waiting, true);
    return post(n, tell_failed, &t);
}

bool choir__nodes_quit(choir__nodes *n, int status, const char *report, bool everywhere)
{
    told t = {.verdict.status = status, .verdict.worker = -1, .everywhere = everywhere};
    snprintf(t.verdict.report, sizeof t.verdict.report, "%s", report);
    return tell(n, tell_quit, &t);
}

static bool is_member(choir__nodes *n)
{
    pthread_mutex_lock(&n->follower.lock);
    bool is = choir__agent_state_find(&n->follower.now, n->self.id) != NULL;
    pthread_mutex_unlock(&n->follower.lock);
    return is;
}

/* The others have continued without this node. Returns whether it can join again. */
static bool rejoin(choir__nodes *n)
{
    joining j = {.nodes = n};
    if (choir__follower_change(&n->follower, n->ledger, join, &j) != CHOIR_OK)
        return false;
    if (j.status == CHOIR_OK || n->follower.now.phase == CHOIR__OVER)
        return true;
    n->refused = true;
    n->verdict.status = 1;
    snprintf(n->verdict.report, sizeof n->verdict.report, "choir run: %s", j.why);
    choir__follower_wake(&n->follower);
    return true;
}

bool choir__nodes_ready(choir__nodes *n)
{
    told t = {.silent_s = n->watcher.ledger->fence_s};
    atomic_store(&n->watcher.waiting, true);
    if (find_port(n->opts, &t.port) != CHOIR_OK)
        return false;
    n->self.port = t.port;
    if (atomic_load(&n->watcher.fenced)) {
        if (!tell(n, tell_lost, &t))
            return false;
        atomic_store(&n->watcher.fenced, false);
    }
    return is_member(n) ? tell(n, tell_ready, &t) : rejoin(n);
}

/* --- the end --- */

choir__verdict choir__nodes_verdict(choir__nodes *n)
{
    choir__watcher *w = &n->watcher;
    choir__verdict v = {.status = 1};
    const choir__agent_state *m = &n->follower.now;
    const char *keeper = "?";
    choir__watcher_stop(w);
    for (int i = 0; i < m->count; i++)
        if (m->nodes[i].keeps)
            keeper = m->nodes[i].who;
    if (m->phase == CHOIR__OVER)
        return m->verdict;
    if (n->refused)
        return n->verdict;
    if (w->ledger->fence_s > 0)
        snprintf(v.report, sizeof v.report, "choir run: %s", w->why);
    else if (w->status == CHOIR_ERR_TIMEOUT)
        snprintf(v.report, sizeof v.report,
            "choir run: node 0 fell silent: its agent, %s, has not answered for %.0f s: was it "
            "stopped?",
            keeper, w->ledger->silent_s);
    else
        snprintf(v.report, sizeof v.report,
            "choir run: node 0 is gone: its agent, %s, which served the job's store at %s, "
            "answers no more (%s); with --rdzv-backend etcd a job outlives any node",
            keeper, n->where, w->why);
    return v;
}

void choir__nodes_leave(choir__nodes *n)
{
    if (!n)
        return;
    choir__watcher_stop(&n->watcher);
    bool over = n->follower.now.phase == CHOIR__OVER;
    if (n->watcher.ledger)
        n->watcher.ledger->ops->close(n->watcher.ledger, over);
    if (n->ledger)
        n->ledger->ops->close(n->ledger, over);
    choir__follower_close(&n->follower);
    free(n);
}
