/* The server's requests: carried out on the table, parked, answered. */
#include "launch/store/session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

/* One day; a client repeats longer waits. */
static const int64_t longest_wait_ms = 24 * 3600 * 1000;

void choir__hub_init(choir__hub *hub, size_t keys_max, size_t bytes_max)
{
    *hub = (choir__hub){0};
    choir__table_init(&hub->table, keys_max, bytes_max);
}

void choir__hub_free(choir__hub *hub)
{
    choir__table_free(&hub->table);
}

/* --- replies --- */

static void reply(choir__session *s, choir__store_reply r)
{
    uint8_t head[CHOIR__STORE_HEAD] = {r.status, r.flag};
    choir__put32(head + 4, r.seq);
    choir__put64(head + 8, (uint64_t)r.number);
    if (!r.bytes) {
        choir__channel_put(&s->channel, head, sizeof head);
        return;
    }
    uint8_t *all = choir__alloc(sizeof head + r.bytes);
    memcpy(all, head, sizeof head);
    memcpy(all + sizeof head, r.value, r.bytes);
    choir__channel_put(&s->channel, all, sizeof head + r.bytes);
    free(all);
}

static void reply_full(choir__session *s, uint32_t seq, int cap)
{
    reply(s, (choir__store_reply){.status = CHOIR__STORE_FULL, .seq = seq, .number = cap});
}

static void reply_entry(choir__session *s, uint32_t seq, bool flag, const choir__store_entry *e)
{
    reply(s,
        (choir__store_reply){.flag = flag, .seq = seq, .value = e->value, .bytes = e->bytes});
}

/* --- waiting --- */

static void unpark(choir__session *s)
{
    if (!s->is_parked)
        return;
    if (s->prev)
        s->prev->next = s->next;
    else
        s->hub->parked = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->next = s->prev = NULL;
    s->is_parked = false;
    choir__table_release(&s->hub->table, s->keys_bytes);
    free(s->keys);
    s->keys = NULL;
}

/* Returns true if all keys exist; otherwise notes the hash of the first missing one. */
static bool all_there(choir__session *s)
{
    for (; s->keys_left; s->keys_left--) {
        const uint8_t *from = s->keys + s->keys_at, *at = from;
        choir__store_field key = choir__store_next_field(&at);
        if (!choir__table_find(&s->hub->table, key)) {
            s->wanted = choir__table_hash(&s->hub->table, key);
            return false;
        }
        if (s->keys_left > 1 || !s->is_get) /* a GET keeps its key for the reply */
            s->keys_at += (size_t)(at - from);
    }
    return true;
}

static void answer_wait(choir__session *s)
{
    if (s->is_get) {
        const uint8_t *at = s->keys + s->keys_at;
        reply_entry(
            s, s->seq, true, choir__table_find(&s->hub->table, choir__store_next_field(&at)));
    } else {
        reply(s, (choir__store_reply){.seq = s->seq});
    }
}

static void time_out(choir__session *s)
{
    reply(s, (choir__store_reply){.status = CHOIR__STORE_TIMEOUT, .seq = s->seq});
    unpark(s);
}

static void wake(choir__session *s)
{
    if (s->is_woken)
        return;
    s->is_woken = true;
    s->next_woken = s->hub->woken;
    s->hub->woken = s;
}

/* Wakes the sessions that wait for a key, which has just been set. */
static void announce(choir__hub *hub, choir__store_field key)
{
    if (!hub->parked)
        return;
    uint64_t hash = choir__table_hash(&hub->table, key);
    for (choir__session *s = hub->parked, *next; s; s = next) {
        next = s->next;
        if (s->wanted != hash || !all_there(s))
            continue;
        answer_wait(s);
        unpark(s);
        wake(s);
    }
}

double choir__hub_expire(choir__hub *hub, double now)
{
    if (!hub->parked)
        return 0;
    if (now < hub->next_deadline)
        return hub->next_deadline;
    double earliest = 0;
    for (choir__session *s = hub->parked, *next; s; s = next) {
        next = s->next;
        if (s->deadline <= now) {
            time_out(s);
            wake(s);
        } else if (!earliest || s->deadline < earliest) {
            earliest = s->deadline;
        }
    }
    return hub->next_deadline = earliest;
}

static void wait_for(choir__session *s, const choir__store_request *r)
{
    size_t bytes = (size_t)(r->end - r->fields);
    if (!choir__table_reserve(&s->hub->table, bytes)) {
        reply_full(s, r->seq, 1);
        return;
    }
    s->keys_bytes = bytes;
    s->keys = choir__alloc(bytes);
    memcpy(s->keys, r->fields, bytes);
    s->keys_at = 0;
    s->keys_left = r->count;
    s->seq = r->seq;
    s->is_get = r->op == CHOIR__STORE_GET;
    s->is_parked = true; /* so that unpark frees the keys */
    s->prev = NULL;
    s->next = s->hub->parked;
    if (s->next)
        s->next->prev = s;
    s->hub->parked = s;
    if (all_there(s)) {
        answer_wait(s);
        unpark(s);
    } else if (r->number <= 0) {
        time_out(s);
    } else {
        s->deadline = choir__now() + 1e-3 * (double)choir__min(r->number, longest_wait_ms);
        if (!s->next || s->deadline < s->hub->next_deadline || !s->hub->next_deadline)
            s->hub->next_deadline = s->deadline;
    }
}

/* --- changing --- */

/* Sets a key and wakes its waiters. Replies only if there is no room. */
static bool set(
    choir__session *s, uint32_t seq, choir__store_field key, choir__store_field value)
{
    choir__room room = choir__table_set(&s->hub->table, key, value);
    if (room) {
        reply_full(s, seq, room == CHOIR__NO_BYTES_LEFT);
        return false;
    }
    announce(s->hub, key);
    return true;
}

static void do_set(choir__session *s, const choir__store_request *r)
{
    const uint8_t *at = r->fields;
    choir__store_field key = choir__store_next_field(&at), value = choir__store_next_field(&at);
    if (set(s, r->seq, key, value))
        reply(s, (choir__store_reply){.seq = r->seq});
}

/* Parses a whole number; the value must contain nothing else. */
static bool number_of(const choir__store_entry *e, int64_t *number)
{
    char text[24], *end;
    if (!e) {
        *number = 0;
        return true;
    }
    if (!e->bytes || e->bytes >= sizeof text)
        return false;
    memcpy(text, e->value, e->bytes);
    text[e->bytes] = '\0';
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return false;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return !errno && end == text + e->bytes;
}

static void do_add(choir__session *s, const choir__store_request *r)
{
    const uint8_t *at = r->fields;
    choir__store_field key = choir__store_next_field(&at);
    choir__store_entry *e = choir__table_find(&s->hub->table, key);
    int64_t sum;
    char text[24];
    if (!number_of(e, &sum)) {
        reply(s, (choir__store_reply){.status = CHOIR__STORE_NOT_NUMBER,
                     .seq = r->seq,
                     .value = e->value,
                     .bytes = e->bytes < 40 ? e->bytes : 40});
    } else if (__builtin_add_overflow(sum, r->number, &sum)) {
        reply(s, (choir__store_reply){.status = CHOIR__STORE_OVERFLOW, .seq = r->seq});
    } else {
        int length = snprintf(text, sizeof text, "%" PRId64, sum);
        choir__store_field value = {(const uint8_t *)text, (uint32_t)length};
        if (set(s, r->seq, key, value))
            reply(s, (choir__store_reply){.seq = r->seq, .number = sum});
    }
}

static void do_compare_set(choir__session *s, const choir__store_request *r)
{
    const uint8_t *at = r->fields;
    choir__store_field key = choir__store_next_field(&at),
                       desired = choir__store_next_field(&at);
    choir__store_entry *e = choir__table_find(&s->hub->table, key);
    bool as_expected = !e;
    if (r->count == 3) {
        choir__store_field expected = choir__store_next_field(&at);
        as_expected =
            e && e->bytes == expected.bytes && memcmp(e->value, expected.data, e->bytes) == 0;
    }
    if (as_expected && !set(s, r->seq, key, desired))
        return;
    e = choir__table_find(&s->hub->table, key);
    if (e)
        reply_entry(s, r->seq, as_expected, e);
    else
        reply(s, (choir__store_reply){.status = CHOIR__STORE_ABSENT, .seq = r->seq});
}

static void do_delete(choir__session *s, const choir__store_request *r)
{
    const uint8_t *at = r->fields;
    bool existed = choir__table_delete(&s->hub->table, choir__store_next_field(&at));
    reply(s, (choir__store_reply){.flag = existed, .seq = r->seq});
}

/* --- wills --- */

static size_t cost_of(const choir__will *w)
{
    return CHOIR__ENTRY_COST + CHOIR__STORE_KEY_MAX + w->bytes;
}

static void drop_wills(choir__session *s)
{
    for (int i = 0; i < s->will_count; i++) {
        choir__table_release(&s->hub->table, cost_of(&s->wills[i]));
        free(s->wills[i].value);
    }
    free(s->wills);
    s->wills = NULL;
    s->will_count = 0;
}

static choir__will *will_for(choir__session *s, choir__store_field key)
{
    for (int i = 0; i < s->will_count; i++)
        if (s->wills[i].key_bytes == key.bytes &&
            memcmp(s->wills[i].key, key.data, key.bytes) == 0)
            return &s->wills[i];
    return NULL;
}

static void do_will(choir__session *s, const choir__store_request *r)
{
    const uint8_t *at = r->fields;
    choir__store_field key = choir__store_next_field(&at), value = choir__store_next_field(&at);
    choir__table *table = &s->hub->table;
    choir__will *w = will_for(s, key);
    if (!w && s->will_count == CHOIR__WILLS_MAX) {
        reply_full(s, r->seq, 2);
        return;
    }
    choir__will new = {.bytes = value.bytes, .key_bytes = (uint8_t)key.bytes};
    if (!choir__table_reserve(table, cost_of(&new))) {
        reply_full(s, r->seq, 1);
        return;
    }
    if (w) {
        choir__table_release(table, cost_of(w));
        free(w->value);
    } else {
        CHOIR__GROW(s->wills, s->will_count);
        w = &s->wills[s->will_count++];
    }
    memcpy(new.key, key.data, key.bytes);
    new.value = choir__alloc(value.bytes + 1);
    memcpy(new.value, value.data, value.bytes);
    *w = new;
    reply(s, (choir__store_reply){.seq = r->seq});
}

/* Sets each will's key. Each will first releases its reservation, so there is room for its
 * bytes, though maybe not for its key. */
static void carry_out_wills(choir__session *s)
{
    for (int i = 0; i < s->will_count; i++) {
        choir__will *w = &s->wills[i];
        choir__store_field key = {w->key, w->key_bytes}, value = {w->value, w->bytes};
        choir__table_release(&s->hub->table, cost_of(w));
        if (choir__table_set(&s->hub->table, key, value) == CHOIR__ROOM)
            announce(s->hub, key);
        free(w->value);
    }
    s->will_count = 0;
}

/* --- the session --- */

void choir__session_init(choir__session *session, choir__hub *hub, const choir__store_key *key)
{
    memset(session, 0, sizeof *session);
    session->hub = hub;
    choir__channel_init(&session->channel, true, key);
}

/* Handles one request; returns false if the server must disconnect. */
static bool obey(choir__session *s, const uint8_t *message, size_t bytes)
{
    choir__store_request r;
    if (s->is_parked)
        time_out(s);
    if (!choir__store_request_read(message, bytes, &r)) {
        reply(s, (choir__store_reply){.status = CHOIR__STORE_BAD,
                     .seq = bytes >= 8 ? choir__get32(message + 4) : 0});
        return false;
    }
    switch ((choir__store_op)r.op) {
    case CHOIR__STORE_SET: do_set(s, &r); break;
    case CHOIR__STORE_GET:
    case CHOIR__STORE_WAIT: wait_for(s, &r); break;
    case CHOIR__STORE_ADD: do_add(s, &r); break;
    case CHOIR__STORE_COMPARE_SET: do_compare_set(s, &r); break;
    case CHOIR__STORE_DELETE: do_delete(s, &r); break;
    case CHOIR__STORE_WILL: do_will(s, &r); break;
    case CHOIR__STORE_BYE:
        s->goodbye = true;
        reply(s, (choir__store_reply){.seq = r.seq});
        return false;
    }
    return true;
}

bool choir__session_go(choir__session *session)
{
    const uint8_t *message;
    size_t bytes;
    if (session->goodbye)
        return false;
    while (!choir__bytes_left(&session->channel.out)) {
        int got = choir__channel_next(&session->channel, &message, &bytes);
        if (got == 0)
            return true;
        if (got < 0 || !obey(session, message, bytes))
            return false;
    }
    return true;
}

void choir__session_end(choir__session *session)
{
    choir__hub *hub = session->hub;
    unpark(session);
    for (choir__session **at = &hub->woken; session->is_woken && *at; at = &(*at)->next_woken)
        if (*at == session) {
            *at = session->next_woken;
            break;
        }
    if (!session->goodbye)
        carry_out_wills(session);
    drop_wills(session);
    choir__channel_free(&session->channel);
}
