/* An agent's server; see server.h. The thread polls the connections, ticks libraft ten times a
 * second, and sends the requests of this agent to the leader again until they are answered. A
 * request that is carried out twice does no harm (entries.h). */
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/hold_signals.h"
#include "launch/raft/server_inside.h"

enum { HEARTBEAT_MS = 100, ELECTION_MS = 700 };
/* Entries of libraft's log: many, since a leader that is deposed while it changes the
 * configuration goes back to the last one, and libraft 0.15 ends the process where that is no
 * longer in the log. */
enum { LOG_KEPT = 1 << 16 };

static const double again_s = 0.4; /* until a request without an answer is sent again */
static const double prove_s = 0.5; /* between proofs */
/* limit of the wait for the others to read the last entry */
static const double farewell_s = 2;
static const double handing_over_s = 3; /* to the next leader */

/* --- messages --- */

static bool send_raft(void *arg, const struct raft_message *m)
{
    choir__raft_server *s = arg;
    choir__bytes b = {0};
    choir__write_number(&b, RAFT_MESSAGE);
    choir__raft_write(&b, m);
    return choir__raft_post(s, m->server_id, m->server_address, &b);
}

static void take_raft(choir__raft_server *s, uint64_t from, choir__reader *r)
{
    struct raft_message m = {.server_id = from};
    const char *known = choir__connections_address(s->connections, from);
    char address[CHOIR__CONNECTION_ADDRESS];
    snprintf(address, sizeof address, "%s", known ? known : "");
    m.server_address = address;
    if (!choir__raft_read(r, &m))
        return;
    s->memory.receive(&s->memory.io, &m);
    choir__raft_notice(s);
}

static void came(void *arg, uint64_t from, const uint8_t *message, size_t bytes)
{
    choir__raft_server *s = arg;
    choir__reader r = {message, message + bytes, false};
    choir__received q = {.from = from};
    choir__answer a;
    if (!s->started) /* before the thread's beginning */
        return;
    pthread_mutex_lock(&s->lock);
    switch (choir__read_number(&r)) {
    case RAFT_MESSAGE: take_raft(s, from, &r); break;
    case REQUEST:
        if (choir__request_read(&r, &q))
            choir__raft_serve(s, &q);
        break;
    case ANSWER:
        if (choir__answer_read(&r, &a))
            choir__raft_settle(s, from, &a);
        break;
    default: break; /* a request of a later version */
    }
    pthread_mutex_unlock(&s->lock);
}

static void gone(void *arg, uint64_t id)
{
    choir__raft_server *s = arg;
    pthread_mutex_lock(&s->lock);
    choir__raft_gone(s, id);
    if (s->hint == id)
        s->hint = 0;
    pthread_mutex_unlock(&s->lock);
}

static void entry_came(void *arg)
{
    choir__raft_server *s = arg;
    pthread_cond_broadcast(&s->news);
}

/* --- requests of this agent --- */

/* Chooses whom to ask: who leads, as far as this server knows, and then one after another, for
 * each knows more than none. */
static uint64_t whom(choir__raft_server *s, int try, char address[CHOIR__CONNECTION_ADDRESS])
{
    raft_id leader = 0;
    const char *at = NULL;
    const struct raft_configuration *c = &s->raft.configuration;
    raft_leader(&s->raft, &leader, &at);
    *address = '\0';
    if (try % 2 == 0 && leader) {
        snprintf(address, CHOIR__CONNECTION_ADDRESS, "%s", at ? at : "");
        return leader;
    }
    if (try % 4 != 3 && s->hint) {
        snprintf(address, CHOIR__CONNECTION_ADDRESS, "%s", s->hint_address);
        return s->hint;
    }
    if (!c->n)
        return s->first_id;
    const struct raft_server *other = &c->servers[(unsigned)try / 2 % c->n];
    snprintf(address, CHOIR__CONNECTION_ADDRESS, "%s", other->address);
    return other->id;
}

static void ask(choir__raft_server *s, choir__raft_request *r)
{
    char address[CHOIR__CONNECTION_ADDRESS];
    uint64_t to = whom(s, r->tries++, address);
    r->sent_at = choir__now();
    if (to == s->id) {
        const char *text = r->text ? r->text : "";
        choir__received q = {.from = s->id,
            .seq = r->seq,
            .asked = r->asked,
            .n = r->n,
            .text = text,
            .bytes = strlen(text)};
        memcpy(q.address, s->address, sizeof q.address);
        choir__raft_serve(s, &q);
        return;
    }
    choir__bytes b = {0};
    choir__write_number(&b, REQUEST);
    choir__request_write(&b, r, s->address);
    if (!choir__raft_post(s, to, address, &b))
        r->sent_at -= again_s / 2; /* the connection begins: soon again */
}

/* A proof holds for the moment at which its question left first. */
static void prove_again(choir__raft_server *s)
{
    double now = choir__now();
    if (s->proof.done) {
        s->proven_at = s->proof.made_at;
        s->proof.done = false;
        s->proof.seq = 0;
    }
    if (!s->proof.seq && now - s->proof.made_at < prove_s)
        return;
    if (!s->proof.seq)
        s->proof =
            (choir__raft_request){.seq = ++s->seq, .asked = CHOIR__PROVE, .made_at = now};
    if (now - s->proof.sent_at > again_s)
        ask(s, &s->proof);
}

static void push_requests(choir__raft_server *s)
{
    double now = choir__now();
    for (choir__raft_request *r = s->requests; r; r = r->next)
        if (!r->done && now - r->sent_at > again_s)
            ask(s, r);
}

/* Keeps a connection with every voter, so that an election does not wait for one. */
static void keep_voters(choir__raft_server *s)
{
    const struct raft_configuration *c = &s->raft.configuration;
    for (unsigned i = 0; i < c->n; i++)
        if (c->servers[i].role == RAFT_VOTER && c->servers[i].id != s->id)
            choir__connections_keep(s->connections, c->servers[i].id, c->servers[i].address);
}

static void deadline_in(double seconds, struct timespec *t)
{
    clock_gettime(CLOCK_MONOTONIC, t);
    double whole = floor(seconds);
    t->tv_sec += (time_t)whole;
    t->tv_nsec += (long)(1e9 * (seconds - whole));
    if (t->tv_nsec >= 1000000000) {
        t->tv_sec++;
        t->tv_nsec -= 1000000000;
    }
}

static void wake(choir__raft_server *s)
{
    uint64_t one = 1;
    if (write(s->wake, &one, sizeof one) < 0) {
        /* the counter is full, so the thread wakes anyway */
    }
}

/* Passes a request to the thread, and waits for its answer. Under the lock. */
static choir_status request(choir__raft_server *s, choir__raft_request *r, double patience_s)
{
    struct timespec until;
    int late = 0;
    deadline_in(patience_s, &until);
    r->seq = ++s->seq;
    r->made_at = choir__now();
    r->next = s->requests;
    s->requests = r;
    wake(s);
    while (!r->done && !late)
        late = pthread_cond_timedwait(&s->news, &s->lock, &until);
    choir__raft_request **at = &s->requests;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    return r->done ? CHOIR_OK
                   : choir__error(CHOIR_ERR_TIMEOUT,
                         "no majority of the agents has answered for %.1f s", patience_s);
}

/* Waits until entry n is here. Under the lock. */
static bool await_entry(choir__raft_server *s, int64_t n, double wait_s)
{
    struct timespec until;
    int late = 0;
    deadline_in(wait_s, &until);
    while (s->entries.head < n && !late)
        late = pthread_cond_timedwait(&s->news, &s->lock, &until);
    return s->entries.head >= n;
}

choir_status choir__raft_server_read(
    choir__raft_server *s, int64_t n, double wait_s, char **text)
{
    pthread_mutex_lock(&s->lock);
    await_entry(s, n, wait_s);
    const char *there = choir__entries_at(&s->entries, n);
    *text = there ? choir__strdup(there) : NULL;
    pthread_mutex_unlock(&s->lock);
    return *text ? CHOIR_OK
                 : choir__error(CHOIR_ERR_TIMEOUT, "there is no entry %lld yet", (long long)n);
}

choir_status choir__raft_server_newest(choir__raft_server *s, double patience_s, int64_t *n)
{
    choir__raft_request r = {.asked = CHOIR__PROVE};
    double until = choir__now() + patience_s;
    pthread_mutex_lock(&s->lock);
    choir_status status = request(s, &r, patience_s);
    if (status == CHOIR_OK && !await_entry(s, r.number, fmax(until - choir__now(), 0)))
        status = choir__error(CHOIR_ERR_TIMEOUT, "entry %lld has not come here for %.1f s",
            (long long)r.number, patience_s);
    *n = r.number;
    pthread_mutex_unlock(&s->lock);
    return status;
}

choir_status choir__raft_server_append(
    choir__raft_server *s, int64_t n, const char *text, double patience_s, bool *mine)
{
    choir__raft_request r = {.asked = CHOIR__APPEND, .n = n, .text = text};
    pthread_mutex_lock(&s->lock);
    choir_status status = request(s, &r, patience_s);
    pthread_mutex_unlock(&s->lock);
    *mine = status == CHOIR_OK && r.mine;
    return status;
}

/* --- what the ledger asks --- */

const char *choir__raft_server_self(const choir__raft_server *s)
{
    return s->host;
}

uint64_t choir__raft_server_id(const choir__raft_server *s)
{
    return s->id;
}

int choir__raft_server_voters(choir__raft_server *s)
{
    pthread_mutex_lock(&s->lock);
    const struct raft_configuration *c = &s->raft.configuration;
    if (!s->raft.configuration_uncommitted_index)
        s->voters = 0;
    for (unsigned i = 0; i < c->n && !s->raft.configuration_uncommitted_index; i++)
        s->voters += c->servers[i].role == RAFT_VOTER;
    int voters = s->voters;
    pthread_mutex_unlock(&s->lock);
    return voters;
}

double choir__raft_server_silent_s(choir__raft_server *s)
{
    pthread_mutex_lock(&s->lock);
    double silent_s = choir__now() - s->proven_at;
    pthread_mutex_unlock(&s->lock);
    return silent_s;
}

double choir__raft_server_quiet_s(choir__raft_server *s, uint64_t id)
{
    double quiet_s = 0;
    pthread_mutex_lock(&s->lock);
    if (s->led_since > 0 && id != s->id)
        quiet_s = choir__raft_silent_s(s, choir__raft_sign(s, id));
    pthread_mutex_unlock(&s->lock);
    return quiet_s;
}

/* --- the thread --- */

static void closed(struct raft *raft)
{
    choir__raft_server *s = raft->data;
    s->closed = true;
}

static void *run(void *arg)
{
    choir__raft_server *s = arg;
    uint64_t count;
    bool closing = false;
    pthread_mutex_lock(&s->lock);
    while (!s->closed) {
        double now = choir__now();
        if (now >= s->next_tick) {
            s->next_tick = now + HEARTBEAT_MS * 1e-3;
            s->memory.tick(&s->memory.io);
            choir__raft_notice(s);
            keep_voters(s);
        }
        if (!closing) {
            prove_again(s);
            push_requests(s);
            choir__raft_lead(s);
        }
        if (s->closing && !closing) {
            closing = true;
            raft_close(&s->raft, closed);
        }
        bool more = choir__raft_memory_answer(&s->memory);
        double wait_s = more || closing ? 0 : s->next_tick - choir__now();
        pthread_mutex_unlock(&s->lock);
        choir__connections_poll(s->connections, wait_s > 0 ? wait_s : 0, s->wake);
        pthread_mutex_lock(&s->lock);
        if (read(s->wake, &count, sizeof count) < 0) {
            /* nothing */
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static choir_status start_thread(choir__raft_server *s)
{
    s->started = true;
    int why = choir__thread_start(&s->thread, run, s);
    s->started = why == 0;
    return why ? choir__error(
                     CHOIR_ERR_IO, "cannot start the ledger's thread: %s", choir__why(why))
               : CHOIR_OK;
}

/* --- opening --- */

static choir_status open_connections(choir__raft_server *s, const choir__agent_opts *o,
    const choir__store_key *key, bool *founds)
{
    choir__connections_user user = {came, gone, s};
    const char *anywhere = strchr(o->endpoint, ':') ? "::" : "0.0.0.0";
    choir_status status = CHOIR_ERR_IO;
    bool number = strspn(o->endpoint, "0123456789.") == strlen(o->endpoint) ||
                  strchr(o->endpoint, ':') || !strcmp(o->endpoint, "localhost");
    /* A machine's own name often resolves to its loopback, which others cannot reach. */
    const char *at = o->node == 0 && !number && key ? anywhere : o->endpoint;
    if (o->node <= 0 && !o->witness)
        status =
            choir__connections_open(at, o->endpoint_port, key, s->id, user, &s->connections);
    *founds = status == CHOIR_OK;
    if (*founds || status != CHOIR_ERR_IO || (o->node == 0 && !o->witness))
        return status;
    /* At the same port where it is free, so that this agent can be named as the endpoint. */
    status = key ? choir__connections_open(
                       anywhere, o->endpoint_port, key, s->id, user, &s->connections)
                 : CHOIR_ERR_IO;
    if (status == CHOIR_ERR_IO)
        status = choir__connections_open(
            key ? anywhere : "127.0.0.1", 0, key, s->id, user, &s->connections);
    return status;
}

static choir_status find_others(
    choir__raft_server *s, const choir__agent_opts *o, bool founds, double deadline)
{
    choir_status status = CHOIR_OK;
    if (founds)
        snprintf(s->host, sizeof s->host, "%s", o->endpoint);
    else
        status = choir__connections_find(
            s->connections, o->endpoint, o->endpoint_port, deadline, &s->first_id, s->host);
    snprintf(s->address, sizeof s->address, strchr(s->host, ':') ? "[%s]:%d" : "%s:%d", s->host,
        choir__connections_port(s->connections));
    choir__connections_name(s->connections, s->address);
    return status;
}

static choir_status start_raft(choir__raft_server *s, bool founds)
{
    struct raft_configuration c;
    choir__entries_init(&s->entries);
    s->entries.changed = entry_came;
    s->entries.arg = s;
    choir__raft_memory_init(&s->memory);
    s->memory.send = send_raft;
    s->memory.arg = s;
    int error = raft_init(&s->raft, &s->memory.io, &s->entries.fsm, s->id, s->address);
    s->raft.data = s;
    raft_set_election_timeout(&s->raft, ELECTION_MS);
    raft_set_heartbeat_timeout(&s->raft, HEARTBEAT_MS);
    raft_set_pre_vote(&s->raft, true);
    raft_set_snapshot_threshold(&s->raft, LOG_KEPT / 4);
    raft_set_snapshot_trailing(&s->raft, LOG_KEPT);
    raft_configuration_init(&c);
    if (!error && founds)
        error = raft_configuration_add(&c, s->id, s->address, RAFT_VOTER);
    if (!error && founds)
        error = raft_bootstrap(&s->raft, &c);
    raft_configuration_close(&c);
    if (!error)
        error = raft_start(&s->raft);
    return error ? choir__error(
                       CHOIR_ERR_INTERNAL, "libraft does not start: %s", raft_strerror(error))
                 : CHOIR_OK;
}

static void free_server(choir__raft_server *s)
{
    choir__connections_close(s->connections);
    choir__raft_memory_free(&s->memory);
    choir__entries_free(&s->entries);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    free(s->signs);
    if (s->wake >= 0)
        close(s->wake);
    free(s);
}

choir_status choir__raft_server_open(
    const choir__agent_opts *opts, double deadline, choir__raft_server **made)
{
    choir__store_key key;
    bool founds = false, keyed = opts->key_file;
    if (sodium_init() < 0)
        return choir__error(CHOIR_ERR_INTERNAL, "libsodium does not start");
    choir_status status = keyed ? choir__store_key_read_file(opts->key_file, &key) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    choir__raft_server *s = choir__calloc(1, sizeof *s);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->news, &monotonic);
    pthread_mutex_init(&s->lock, NULL);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    randombytes_buf(&s->id, sizeof s->id);
    s->id = s->id >> 1 | 1;
    s->proven_at = choir__now();
    status = open_connections(s, opts, keyed ? &key : NULL, &founds);
    sodium_memzero(&key, sizeof key);
    if (status == CHOIR_OK)
        status = find_others(s, opts, founds, deadline);
    bool started = status == CHOIR_OK;
    if (started)
        status = start_raft(s, founds);
    if (status == CHOIR_OK)
        status = start_thread(s);
    if (status != CHOIR_OK) {
        free_server(s);
        return status;
    }
    *made = s;
    return CHOIR_OK;
}

/* --- closing --- */

static bool others_are_there(const choir__raft_server *s)
{
    const struct raft_configuration *c = &s->raft.configuration;
    for (unsigned i = 0; i < c->n; i++)
        if (c->servers[i].id != s->id &&
            !isinf(choir__raft_silent_s(
                s, choir__raft_sign((choir__raft_server *)s, c->servers[i].id))))
            return true;
    return false;
}

/* A leader stays until the others have read the last entry and left; or, if they continue,
 * until another agent leads. */
static void see_off(choir__raft_server *s, bool over)
{
    struct timespec moment = {.tv_nsec = 10000000};
    double until = choir__now() + (over ? farewell_s : handing_over_s);
    s->retires = !over;
    while (choir__now() < until && raft_state(&s->raft) == RAFT_LEADER && others_are_there(s)) {
        pthread_mutex_unlock(&s->lock);
        nanosleep(&moment, NULL);
        pthread_mutex_lock(&s->lock);
    }
}

void choir__raft_server_close(choir__raft_server *s, bool over)
{
    pthread_mutex_lock(&s->lock);
    see_off(s, over);
    s->closing = true;
    pthread_mutex_unlock(&s->lock);
    wake(s);
    pthread_join(s->thread, NULL);
    choir__raft_refuse_all(s);
    free_server(s);
}
