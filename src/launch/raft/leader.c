/* The leader's duties: it answers requests, and keeps the configuration as voters.h says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "launch/raft/server_inside.h"
#include "launch/raft/voters.h"

static const double fresh_s = 1.5; /* an agent that asked so lately lives */

/* --- who lives --- */

choir__peer_sign *choir__raft_sign(choir__raft_server *s, uint64_t id)
{
    for (int i = 0; i < s->sign_count; i++)
        if (s->signs[i].id == id)
            return &s->signs[i];
    return NULL;
}

static choir__peer_sign *sign_for(choir__raft_server *s, uint64_t id)
{
    choir__peer_sign *e = choir__raft_sign(s, id);
    if (e)
        return e;
    s->signs = choir__realloc(s->signs, (size_t)(s->sign_count + 1) * sizeof *s->signs);
    e = &s->signs[s->sign_count++];
    *e = (choir__peer_sign){.id = id};
    return e;
}

/* Notes the death of an agent, also for the time when this server leads. */
void choir__raft_gone(choir__raft_server *s, uint64_t id)
{
    sign_for(s, id)->gone = true;
}

static void note_sign(choir__raft_server *s, const choir__received *q)
{
    choir__peer_sign *e = sign_for(s, q->from);
    e->heard_at = choir__now();
    e->gone = false;
    snprintf(e->address, sizeof e->address, "%s", q->address);
}

double choir__raft_silent_s(const choir__raft_server *s, const choir__peer_sign *e)
{
    double since = e && e->heard_at > s->led_since ? e->heard_at : s->led_since;
    double quiet_s = choir__now() - since;
    return (e && e->gone) || quiet_s > choir__raft_lost_s ? INFINITY : quiet_s;
}

/* --- answers --- */

static void answer(choir__raft_server *s, uint64_t to, uint64_t seq, bool leads, bool mine)
{
    choir__answer a = {.seq = seq, .leads = leads, .mine = mine, .number = s->entries.head};
    raft_id leader = 0;
    const char *address = NULL;
    if (!leads)
        raft_leader(&s->raft, &leader, &address);
    a.leader = leader == s->id && !leads ? 0 : leader;
    snprintf(a.address, sizeof a.address, "%s", address && leader ? address : "");
    choir__raft_tell(s, to, &a);
}

/* Questions that one barrier answers: it is committed by a server that led after they came. */
typedef struct choir__proving {
    struct choir__proving *next;
    uint64_t from, seq;
} question;

typedef struct turn {
    struct raft_barrier barrier;
    choir__raft_server *server;
    question *questions;
} turn;

static void answer_all(choir__raft_server *s, question *q, bool leads)
{
    for (question *next; q; q = next) {
        next = q->next;
        answer(s, q->from, q->seq, leads, false);
        free(q);
    }
}

static void proven(struct raft_barrier *barrier, int error)
{
    turn *r = barrier->data;
    r->server->proving = false;
    answer_all(r->server, r->questions, !error);
    free(r);
}

static void raise_barrier(choir__raft_server *s)
{
    turn *r = choir__calloc(1, sizeof *r);
    *r = (turn){.barrier.data = r, .server = s, .questions = s->waiting};
    s->waiting = NULL;
    s->proving = true;
    if (raft_barrier(&s->raft, &r->barrier, proven))
        proven(&r->barrier, RAFT_NOTLEADER);
}

static void prove(choir__raft_server *s)
{
    if (s->waiting && !s->proving)
        raise_barrier(s);
}

typedef struct proposal {
    struct raft_apply apply;
    choir__raft_server *server;
    uint64_t from, seq;
} proposal;

static void applied(struct raft_apply *apply, int error, void *result)
{
    proposal *p = apply->data;
    answer(p->server, p->from, p->seq, !error, result == CHOIR__ENTRY_MINE);
    free(p);
}

static void propose(choir__raft_server *s, const choir__received *q)
{
    proposal *p = choir__calloc(1, sizeof *p);
    struct raft_buffer command = choir__entries_command(q->n, q->text, q->bytes);
    *p = (proposal){.apply.data = p, .server = s, .from = q->from, .seq = q->seq};
    if (raft_apply(&s->raft, &p->apply, &command, 1, applied)) {
        raft_free(command.base);
        applied(&p->apply, RAFT_NOTLEADER, NULL);
    }
}

void choir__raft_serve(choir__raft_server *s, const choir__received *q)
{
    if (raft_state(&s->raft) != RAFT_LEADER) {
        answer(s, q->from, q->seq, false, false);
        return;
    }
    note_sign(s, q);
    if (q->asked == CHOIR__APPEND) {
        propose(s, q);
        return;
    }
    question *w = choir__calloc(1, sizeof *w);
    *w = (question){s->waiting, q->from, q->seq};
    s->waiting = w;
}

void choir__raft_refuse_all(choir__raft_server *s)
{
    question *all = s->waiting;
    s->waiting = NULL;
    answer_all(s, all, false);
}

/* --- the configuration --- */

static void changed(struct raft_change *change, int error)
{
    choir__raft_server *s = change->data;
    (void)error; /* the configuration shows the rest */
    s->changing = false;
}

static bool is_seated(const choir__raft_server *s, uint64_t id)
{
    for (unsigned i = 0; i < s->raft.configuration.n; i++)
        if (s->raft.configuration.servers[i].id == id)
            return true;
    return false;
}

/* Adds an agent that has asked, and is in no configuration yet. */
static bool seat_one(choir__raft_server *s)
{
    for (int i = 0; i < s->sign_count; i++) {
        choir__peer_sign *e = &s->signs[i];
        bool lives = !e->gone && choir__now() - e->heard_at < fresh_s;
        if (lives && *e->address && !is_seated(s, e->id))
            return !raft_add(&s->raft, &s->change, e->id, e->address, changed);
    }
    return false;
}

static void arrange(choir__raft_server *s)
{
    const struct raft_configuration *c = &s->raft.configuration;
    if (s->changing)
        return;
    s->change = (struct raft_change){.data = s};
    s->changing = seat_one(s);
    if (s->changing)
        return;
    choir__voters_seat *seats = choir__calloc(c->n + 1, sizeof *seats);
    for (unsigned i = 0; i < c->n; i++) {
        bool self = c->servers[i].id == s->id;
        const choir__peer_sign *e = choir__raft_sign(s, c->servers[i].id);
        seats[i] = (choir__voters_seat){.id = c->servers[i].id,
            .role = c->servers[i].role,
            .alive = self || !isinf(choir__raft_silent_s(s, e)),
            .leads = self};
    }
    choir__voters_move m = choir__voters_next(seats, (int)c->n, s->retires);
    free(seats);
    s->changing = true;
    int error = m.kind == CHOIR__STAY ? RAFT_INVALID
                : m.kind == CHOIR__ASSIGN
                    ? raft_assign(&s->raft, &s->change, m.id, m.role, changed)
                    : raft_remove(&s->raft, &s->change, m.id, changed);
    if (error)
        s->changing = false;
}

/* A leader begins with an entry of its own term, before it hears of any other: libraft 0.15
 * counts the servers that hold its last entry, whatever its term, and only an entry of its own
 * term is safe by being counted (Raft, section 5.4.2). */
void choir__raft_notice(choir__raft_server *s)
{
    bool leads = raft_state(&s->raft) == RAFT_LEADER;
    if (leads && !(s->led_since > 0)) {
        s->led_since = choir__now();
        s->changing = false;
        raise_barrier(s);
    } else if (!leads && s->led_since > 0) {
        s->led_since = 0;
    }
    choir__raft_memory_answer(&s->memory);
}

void choir__raft_lead(choir__raft_server *s)
{
    if (!(s->led_since > 0)) {
        choir__raft_refuse_all(s);
        return;
    }
    prove(s);
    arrange(s);
}
