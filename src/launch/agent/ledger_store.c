/* The ledger in Choir's own store, which node 0's agent serves at the endpoint.
 *
 *   entry/N    the entries; of all but the last ones the text is removed, but not the key, or
 * an agent that has been stopped for long could write such an entry once more head       the
 * number of the last one, or of one shortly before; it never falls gone/ID    an agent's last
 * will beat/ID    a sign of life of an agent that is not stopped (SIGSTOP)
 *
 * Node 0's agent looks for the agents that are gone, since it hears of them first. If node 0 is
 * gone itself, so is the store, and the job ends. */
#include "launch/agent/ledger.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "launch/store/client.h"
#include "launch/store/net.h"

enum { KEPT = 64, KEYS_MAX = 1 << 22 }; /* texts of entries; keys */

static const double call_s = 10; /* limit of connecting */
/* limit of the wait for the others to read the last entry */
static const double farewell_s = 2;

/* The beats of one agent, as node 0 hears them. */
typedef struct ear {
    char id[CHOIR__JOB_TEXT], last[24];
    double heard_at;
} ear;

typedef struct ledger {
    choir__ledger base;
    choir_store_server *server; /* NULL except in node 0's first object */
    choir_store *store;
    char id[CHOIR__JOB_TEXT]; /* the agent's name, set by `live` */
    int64_t beats;
    int count;
    ear *ears;          /* (count) */
    char unserved[300]; /* why this agent does not serve the store; "": node 0 does */
} ledger;

static const char *key_of(const char *what, const char *name, char key[64])
{
    snprintf(key, 64, "%s/%s", what, name);
    return key;
}

static const char *entry_key(int64_t n, char key[64])
{
    snprintf(key, 64, "entry/%" PRId64, n);
    return key;
}

/* --- entries --- */

static choir_status read_entry(choir__ledger *base, int64_t n, double wait_s, char **text)
{
    ledger *l = (ledger *)base;
    char key[64];
    double since = choir__now();
    choir_status status = choir_store_get(l->store, entry_key(n, key), wait_s, text, NULL);
    if (status == CHOIR_OK && !**text) { /* removed: the caller goes to the newest one */
        free(*text);
        *text = NULL;
        status = choir__error(CHOIR_ERR_TIMEOUT, "entry %" PRId64 " is there no more", n);
    }
    double passed = choir__now() - since, late_s = wait_s + CHOIR__STORE_SLACK_S;
    if (status != CHOIR_ERR_TIMEOUT || passed < late_s)
        base->silent_s = 0;
    else /* a longer pause was this agent's own: it was stopped, too */
        base->silent_s += passed < 2 * late_s ? passed : late_s;
    return status;
}

static choir_status newest(choir__ledger *base, int64_t *n)
{
    ledger *l = (ledger *)base;
    char *text = NULL;
    choir_status status = choir_store_get(l->store, "head", 0, &text, NULL);
    *n = status == CHOIR_OK ? strtoll(text, NULL, 10) : 0;
    free(text);
    return status == CHOIR_ERR_TIMEOUT ? CHOIR_OK : status;
}

/* Another agent may have written the next entry, and its head, before this call. */
static choir_status raise_head(ledger *l, int64_t n)
{
    char head[24], *was = NULL, *now = NULL;
    snprintf(head, sizeof head, "%" PRId64, n);
    choir_status status = choir_store_get(l->store, "head", 0, &was, NULL);
    if (status == CHOIR_ERR_TIMEOUT) /* no entry */
        status = CHOIR_OK;
    while (status == CHOIR_OK && (was ? strtoll(was, NULL, 10) : 0) < n) {
        status = choir_store_compare_set(l->store, "head", was, head, &now);
        free(was);
        was = now;
        now = NULL;
    }
    free(was);
    return status;
}

static choir_status append(choir__ledger *base, int64_t n, const char *text, bool *mine)
{
    ledger *l = (ledger *)base;
    char key[64], *now = NULL;
    choir_status status =
        choir_store_compare_set(l->store, entry_key(n, key), NULL, text, &now);
    *mine = status == CHOIR_OK && !strcmp(now, text);
    free(now);
    if (!*mine)
        return status;
    status = raise_head(l, n);
    if (status == CHOIR_OK && n > KEPT)
        status = choir_store_set(l->store, entry_key(n - KEPT, key), "", 0);
    return status;
}

/* --- signs of life --- */

static choir_status live(choir__ledger *base, const char *id)
{
    ledger *l = (ledger *)base;
    char key[64];
    snprintf(l->id, sizeof l->id, "%s", id);
    return choir_store_will(l->store, key_of("gone", id, key), "gone", 4);
}

static choir_status beat(choir__ledger *base)
{
    ledger *l = (ledger *)base;
    char key[64], text[24];
    snprintf(text, sizeof text, "%" PRId64, ++l->beats);
    return choir_store_set(l->store, key_of("beat", l->id, key), text, strlen(text));
}

static ear *ear_for(ledger *l, const char *id)
{
    for (int i = 0; i < l->count; i++)
        if (!strcmp(l->ears[i].id, id))
            return &l->ears[i];
    CHOIR__GROW(l->ears, l->count);
    ear *e = &l->ears[l->count++];
    *e = (ear){.heard_at = choir__now()};
    snprintf(e->id, sizeof e->id, "%s", id);
    return e;
}

/* Returns whether the key exists; its value goes to text. */
static bool look(ledger *l, const char *what, const char *id, char text[24])
{
    char key[64], *value = NULL;
    bool there = choir_store_get(l->store, key_of(what, id, key), 0, &value, NULL) == CHOIR_OK;
    snprintf(text, 24, "%s", there ? value : "");
    free(value);
    return there;
}

static double quiet_s(choir__ledger *base, const char *id)
{
    ledger *l = (ledger *)base;
    char text[24];
    if (!base->keeps || !strcmp(id, l->id))
        return 0;
    if (look(l, "gone", id, text))
        return INFINITY;
    ear *e = ear_for(l, id);
    look(l, "beat", id, text);
    if (strcmp(text, e->last) != 0)
        e->heard_at = choir__now();
    snprintf(e->last, sizeof e->last, "%s", text);
    return choir__now() - e->heard_at;
}

/* --- opening and closing --- */

/* Serves the store if this is node 0: by option, or as the first at an endpoint of this
 * machine. */
static choir_status serve(ledger *l, const choir__agent_opts *opts, choir_store_opts o)
{
    struct in6_addr address;
    bool number = inet_pton(AF_INET, opts->endpoint, &address) == 1 ||
                  inet_pton(AF_INET6, opts->endpoint, &address) == 1 ||
                  !strcmp(opts->endpoint, "localhost");
    if (opts->node > 0)
        return CHOIR_OK;
    o.port = opts->endpoint_port;
    /* A machine's own name often resolves to its loopback, which other machines cannot
     * reach. */
    o.bind = opts->node == 0 && !number && opts->key_file ? "0.0.0.0" : opts->endpoint;
    choir_status status = choir_store_serve(o, &l->server);
    l->base.founds = l->base.keeps = status == CHOIR_OK;
    if (status != CHOIR_ERR_IO || opts->node >= 0)
        return status;
    snprintf(l->unserved, sizeof l->unserved, "%s", choir_error_message());
    return CHOIR_OK;
}

static choir_status reach(
    ledger *l, const choir__agent_opts *opts, choir_store_opts o, double deadline)
{
    choir_status status;
    do {
        double left = deadline - choir__now();
        o.timeout_s = left < call_s ? left > 0 ? left : 0 : call_s;
        status = choir_store_connect(opts->endpoint, opts->endpoint_port, o, &l->store);
    } while (status == CHOIR_ERR_TIMEOUT && choir__now() < deadline);
    if (status != CHOIR_ERR_TIMEOUT)
        return status;
    char why[400];
    snprintf(why, sizeof why, "%s", choir_error_message());
    return choir__error(status,
        "node 0 never came within %g s: was 'choir run' started there? (%s%s%s)",
        opts->timeout_s, why, *l->unserved ? "; " : "", l->unserved);
}

/* Node 0 waits until the others have left, or take too long. */
static void see_off(ledger *l)
{
    struct timespec moment = {0, 10000000};
    for (double end = choir__now() + farewell_s; choir__now() < end;) {
        if (choir__store_clients(l->server) <= 1)
            return;
        nanosleep(&moment, NULL);
    }
}

static void close_ledger(choir__ledger *base, bool over)
{
    ledger *l = (ledger *)base;
    if (l->server && over)
        see_off(l);
    choir_store_free(l->store);
    choir_store_server_free(l->server);
    free(l->ears);
    free(l);
}

static const choir__ledger_ops ops = {
    .read = read_entry,
    .newest = newest,
    .append = append,
    .live = live,
    .beat = beat,
    .quiet_s = quiet_s,
    .close = close_ledger,
};

/* Notes the address of this end of the connection. */
static void find_self(ledger *l)
{
    choir__address self;
    char host[160];
    if (choir__net_self(l->store->fd, &self))
        snprintf(l->base.self, sizeof l->base.self, "%s", choir__net_host(&self, host));
}

choir_status choir__ledger_store(
    const choir__agent_opts *opts, choir__ledger *first, double deadline, choir__ledger **made)
{
    ledger *l = choir__calloc(1, sizeof *l);
    choir_store_opts o = choir_store_defaults();
    l->base.ops = &ops;
    o.key_file = opts->key_file;
    o.lost_after_s = choir__net_cut_off_s;
    o.keys_max = KEYS_MAX;
    choir_status status = first ? CHOIR_OK : serve(l, opts, o);
    if (first) {
        l->base.keeps = l->base.looks = first->keeps;
        l->base.founds = first->founds;
    }
    if (status == CHOIR_OK)
        status = reach(l, opts, o, deadline);
    if (status == CHOIR_OK) {
        l->store->timeout_s = 0; /* an answer has the time that every answer gets */
        find_self(l);
        *made = &l->base;
        return CHOIR_OK;
    }
    choir_store_server_free(l->server);
    free(l);
    return status;
}
