/* The ledger in etcd.
 *
 *   /choir/RUN/entry/000000000017    the entries; all but the last ones are removed
 *   /choir/RUN/live/ID               an agent that lives: the key ends with the agent's lease
 *
 * An agent renews its lease each second. If it dies, or its machine is cut off, etcd removes
 * the key, and all other agents notice, since they watch these keys. An agent that cannot renew
 * its lease stops its workers before the lease ends (fence_s). Each wait is a call of its own,
 * which starts from the revision that the agent has seen, so no event is missed between two
 * calls. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "launch/agent/plugin.h"
#include "launch/etcd/http.h"

enum { LEASE_S = 5, KEPT = 64 };

static const double fence_s = 4; /* the rest of the lease is for stopping */
static const double call_s = 1.5, shortest_call_s = 0.3;
static const double answer_s = 10; /* for a server that should be there already */

typedef struct ledger {
    choir__ledger base;
    choir__etcd_http http;
    char prefix[256];  /* "/choir/RUN/" */
    char id[64];       /* the agent's name, set by `live` */
    char lease[24];    /* "": none */
    int64_t revision;  /* revision of etcd at the last look for an entry */
    double renewed_at; /* the lease, or the last answer */
    json_t *alive;     /* as keys; NULL: never looked */
} ledger;

static const char *key_of(const ledger *l, const char *what, const char *name, char key[400])
{
    snprintf(key, 400, "%s%s/%s", l->prefix, what, name);
    return key;
}

static const char *entry_key(const ledger *l, int64_t n, char key[400])
{
    char name[24];
    snprintf(name, sizeof name, "%012" PRId64, n);
    return key_of(l, "entry", name, key);
}

/* The end of the range of keys that begin with a prefix: its last character's successor. */
static const char *end_of(const char *prefix, char end[400])
{
    snprintf(end, 400, "%s", prefix);
    end[strlen(end) - 1]++;
    return end;
}

/* Calls, and notes for how long etcd has not answered. */
static choir_status call(ledger *l, const char *path, json_t *body, json_t **reply)
{
    double now = choir__now(), left_s = l->renewed_at + fence_s - now;
    double patience_s = left_s > call_s ? call_s : left_s;
    if (patience_s < shortest_call_s) /* out of reach already, or opened long ago */
        patience_s = left_s < 0 ? call_s : shortest_call_s;
    choir_status status = choir__etcd_call(&l->http, path, body, patience_s, reply);
    if (status == CHOIR_ERR_TIMEOUT) {
        l->base.silent_s = choir__now() - l->renewed_at;
        return status;
    }
    if (status == CHOIR_OK && !*l->id)
        l->renewed_at = now;
    if (status == CHOIR_OK)
        l->base.silent_s = 0;
    return status;
}

/* --- entries --- */

static choir_status get(ledger *l, const char *key, char **text)
{
    json_t *reply;
    choir_status status =
        call(l, "kv/range", json_pack("{so}", "key", choir__etcd_bytes(key)), &reply);
    *text = NULL;
    if (status != CHOIR_OK)
        return status;
    l->revision = choir__etcd_number(json_object_get(reply, "header"), "revision");
    *text = choir__etcd_text(json_array_get(json_object_get(reply, "kvs"), 0), "value");
    json_decref(reply);
    return CHOIR_OK;
}

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)(1e9 * (seconds - (double)t.tv_sec));
    if (seconds > 0)
        nanosleep(&t, NULL);
}

static choir_status read_entry(choir__ledger *base, int64_t n, double wait_s, char **text)
{
    ledger *l = (ledger *)base;
    char key[400], end[400];
    choir_status status = get(l, entry_key(l, n, key), text);
    for (double until = choir__now() + wait_s, left; status == CHOIR_OK && !*text;) {
        left = until - choir__now();
        if (left <= 0)
            return choir__error(CHOIR_ERR_TIMEOUT, "there is no entry %" PRId64 " yet", n);
        double part = left < LEASE_S / 4.0 ? left : LEASE_S / 4.0;
        status = choir__etcd_watch(
            &l->http, l->prefix, end_of(l->prefix, end), l->revision + 1, part);
        int64_t seen = l->revision;
        if (status == CHOIR_ERR_TIMEOUT) { /* the next call shows whether etcd answers at all */
            status = CHOIR_OK;
            nap(part < 0.2 ? part : 0.2);
        }
        if (status == CHOIR_OK)
            status = get(l, key, text);
        if (status == CHOIR_OK && !*text && l->revision > seen)
            until = 0; /* something else has changed: the caller looks */
    }
    if (status == CHOIR_ERR_TIMEOUT && wait_s > 0)
        nap(wait_s < 0.2 ? wait_s : 0.2);
    return status;
}

static choir_status newest(choir__ledger *base, int64_t *n)
{
    ledger *l = (ledger *)base;
    char from[400], end[400];
    json_t *reply;
    key_of(l, "entry", "", from);
    json_t *body = json_pack("{so so ss ss ss sb}", "key", choir__etcd_bytes(from), "range_end",
        choir__etcd_bytes(end_of(from, end)), "limit", "1", "sort_order", "DESCEND",
        "sort_target", "KEY", "keys_only", 1);
    choir_status status = call(l, "kv/range", body, &reply);
    *n = 0;
    if (status != CHOIR_OK)
        return status;
    char *key = choir__etcd_text(json_array_get(json_object_get(reply, "kvs"), 0), "key");
    if (key)
        *n = strtoll(strrchr(key, '/') + 1, NULL, 10);
    free(key);
    json_decref(reply);
    return CHOIR_OK;
}

/* A condition of a transaction: the version of a key, or of all keys up to `to`, is EQUAL to 0
 * (no key) or GREATER. */
static json_t *compare_version(const char *key, const char *to, const char *result)
{
    json_t *o = json_pack("{ss so ss ss}", "target", "VERSION", "key", choir__etcd_bytes(key),
        "version", "0", "result", result);
    if (to)
        json_object_set_new(o, "range_end", choir__etcd_bytes(to));
    return o;
}

static choir_status append(choir__ledger *base, int64_t n, const char *text, bool *mine)
{
    ledger *l = (ledger *)base;
    char key[400];
    json_t *reply;
    entry_key(l, n, key);
    json_t *compare = json_pack("[o]", compare_version(key, NULL, "EQUAL"));
    json_t *success = json_pack("[{s{so so}}]", "request_put", "key", choir__etcd_bytes(key),
        "value", choir__etcd_bytes(text));
    /* otherwise an agent that was stopped for long would write a removed entry again */
    if (n > 1)
        json_array_append_new(
            compare, compare_version(entry_key(l, n - 1, key), NULL, "GREATER"));
    if (n > KEPT)
        json_array_append_new(success, json_pack("{s{so}}", "request_delete_range", "key",
                                           choir__etcd_bytes(entry_key(l, n - KEPT, key))));
    choir_status status =
        call(l, "kv/txn", json_pack("{so so}", "compare", compare, "success", success), &reply);
    *mine = status == CHOIR_OK && json_is_true(json_object_get(reply, "succeeded"));
    json_decref(reply);
    return status;
}

/* --- signs of life --- */

static choir_status take_lease(ledger *l)
{
    char key[400];
    json_t *reply;
    double now = choir__now();
    choir_status status = call(l, "lease/grant", json_pack("{si}", "TTL", LEASE_S), &reply);
    if (status != CHOIR_OK)
        return status;
    snprintf(l->lease, sizeof l->lease, "%" PRId64, choir__etcd_number(reply, "ID"));
    json_decref(reply);
    status = call(l, "kv/put",
        json_pack("{so so ss}", "key", choir__etcd_bytes(key_of(l, "live", l->id, key)),
            "value", choir__etcd_bytes("live"), "lease", l->lease),
        &reply);
    json_decref(reply);
    if (status == CHOIR_OK)
        l->renewed_at = now;
    else
        *l->lease = '\0'; /* a lease without its key says nothing of this agent */
    return status;
}

static choir_status live(choir__ledger *base, const char *id)
{
    ledger *l = (ledger *)base;
    snprintf(l->id, sizeof l->id, "%s", id);
    return take_lease(l);
}

static choir_status look(ledger *l)
{
    char from[400], end[400];
    json_t *reply, *item;
    size_t i;
    key_of(l, "live", "", from);
    choir_status status = call(l, "kv/range",
        json_pack("{so so sb}", "key", choir__etcd_bytes(from), "range_end",
            choir__etcd_bytes(end_of(from, end)), "keys_only", 1),
        &reply);
    if (status != CHOIR_OK)
        return status;
    json_decref(l->alive);
    l->alive = json_object();
    json_array_foreach(json_object_get(reply, "kvs"), i, item)
    {
        char *key = choir__etcd_text(item, "key");
        if (key)
            json_object_set_new(l->alive, strrchr(key, '/') + 1, json_true());
        free(key);
    }
    json_decref(reply);
    return CHOIR_OK;
}

static choir_status beat(choir__ledger *base)
{
    ledger *l = (ledger *)base;
    json_t *reply;
    double now = choir__now();
    if (!*l->lease)
        return take_lease(l);
    choir_status status = call(l, "lease/keepalive", json_pack("{ss}", "ID", l->lease), &reply);
    if (status != CHOIR_OK)
        return status;
    bool lives = choir__etcd_number(json_object_get(reply, "result"), "TTL") > 0;
    json_decref(reply);
    if (lives)
        l->renewed_at = now;
    else
        status = take_lease(l);
    return status == CHOIR_OK ? look(l) : status;
}

static double quiet_s(choir__ledger *base, const char *id)
{
    ledger *l = (ledger *)base;
    char key[400], *text;
    if (!strcmp(id, l->id) || json_object_get(l->alive, id))
        return 0;
    /* the agent may have come since the last look */
    if (get(l, key_of(l, "live", id, key), &text) != CHOIR_OK)
        return 0;
    bool there = text != NULL;
    free(text);
    return there ? 0 : INFINITY;
}

/* --- opening and closing --- */

/* Removes the keys of a job that is over, unless another agent lives, which may have begun the
 * next job. */
static void remove_all(ledger *l)
{
    char live[400], live_end[400], end[400];
    json_t *reply;
    key_of(l, "live", "", live);
    json_t *body = json_pack("{s[o] s[{s{so so}}]}", "compare",
        compare_version(live, end_of(live, live_end), "EQUAL"), "success",
        "request_delete_range", "key", choir__etcd_bytes(l->prefix), "range_end",
        choir__etcd_bytes(end_of(l->prefix, end)));
    if (call(l, "kv/txn", body, &reply) == CHOIR_OK)
        json_decref(reply);
}

static void close_ledger(choir__ledger *base, bool over)
{
    ledger *l = (ledger *)base;
    json_t *reply = NULL;
    if (*l->lease && base->silent_s <= 0)
        (void)!call(l, "lease/revoke", json_pack("{ss}", "ID", l->lease), &reply);
    else if (over && !*l->lease)
        remove_all(l);
    json_decref(reply);
    json_decref(l->alive);
    choir__etcd_http_close(&l->http);
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

static choir_status open_ledger(const choir__agent_opts *opts, bool first, choir__ledger **made)
{
    ledger *l = choir__calloc(1, sizeof *l);
    int64_t n;
    char *address = NULL;
    l->base = (choir__ledger){.ops = &ops, .founds = first, .fence_s = fence_s};
    l->renewed_at = choir__now();
    snprintf(l->prefix, sizeof l->prefix, "/choir/%s/", opts->run_id);
    choir_status status = choir__etcd_http_open(opts, &l->http);
    if (status == CHOIR_OK)
        status = newest(&l->base, &n);
    if (status != CHOIR_OK) {
        close_ledger(&l->base, false);
        return status;
    }
    curl_easy_getinfo(l->http.curl, CURLINFO_LOCAL_IP, &address);
    snprintf(l->base.self, sizeof l->base.self, "%s", address ? address : "127.0.0.1");
    *made = &l->base;
    return CHOIR_OK;
}

/* Tries again while etcd does not answer. */
choir_status choir__ledger_plugged(
    const choir__agent_opts *opts, choir__ledger *first, double deadline, choir__ledger **made)
{
    choir_status status;
    struct timespec moment = {.tv_nsec = 200000000};
    if (deadline > choir__now() + answer_s)
        deadline = choir__now() + answer_s;
    while ((status = open_ledger(opts, !first, made)) == CHOIR_ERR_TIMEOUT &&
           choir__now() < deadline)
        nanosleep(&moment, NULL);
    return status;
}
