/* Discrete events: the entries that are ready wait in a heap by the time at which they may
 * begin, and the earliest runs. What it makes ready begins no earlier, so no entry is run too
 * late. Ties go to the lower program, then the lower queue. */
#include "forecast/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

/* A queue's place: its next entry, and when the entries before it had ended. */
typedef struct line {
    int64_t next;
    double now;
    bool waiting; /* the next entry is in the heap, at a meeting, or waits for a message */
} line;

/* One class of ranks. */
typedef struct actor {
    const choir__priced *priced;
    line *lines;
    double *events;  /* (events) -1: not recorded yet */
    double *hosts;   /* times at which waits of the host ended */
    double *runners; /* (queues) by runner: free from then on */
    int hosts_done;
    int *calls;                /* (groups) collectives so far */
    double variance, slowness; /* since the last meeting */
} actor;

typedef struct candidate {
    double at;
    int program, queue;
} candidate;

/* A collective that some of its members have reached. */
typedef struct meeting {
    int group, leader, call; /* leader: the lowest program */
    int arrived;
    double begin;
    candidate *who; /* (arrived) */
} meeting;

/* Messages from one program to another. */
typedef struct channel {
    int from, to, group;
    double *sent; /* (sent_count) when each had arrived */
    int sent_count, received;
    int waiter; /* queue of `to` that waits; -1: none */
    double since;
} channel;

typedef struct clock_state {
    const choir__clock_setup *setup;
    actor *actors;
    candidate *heap;
    size_t heap_count;
    meeting *meetings;
    int meeting_count;
    channel *channels;
    int channel_count;
    uint64_t drawn; /* numbers so far */
} clock_state;

/* --- the heap --- */

static bool before(const candidate *a, const candidate *b)
{
    if (a->at != b->at)
        return a->at < b->at;
    return a->program != b->program ? a->program < b->program : a->queue < b->queue;
}

static void push(clock_state *c, candidate x)
{
    CHOIR__GROW(c->heap, c->heap_count);
    size_t i = c->heap_count++;
    for (; i && before(&x, &c->heap[(i - 1) / 2]); i = (i - 1) / 2)
        c->heap[i] = c->heap[(i - 1) / 2];
    c->heap[i] = x;
}

static candidate pop(clock_state *c)
{
    candidate top = c->heap[0], last = c->heap[--c->heap_count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < c->heap_count) {
        if (child + 1 < c->heap_count && before(&c->heap[child + 1], &c->heap[child]))
            child++;
        if (!before(&c->heap[child], &last))
            break;
        c->heap[i] = c->heap[child];
        i = child;
    }
    c->heap[i] = last;
    return top;
}

/* --- queues --- */

static double later(double a, double b)
{
    return a > b ? a : b;
}

static const choir__step_entry *entry_at(const actor *a, int queue, int64_t *index)
{
    if (a->lines[queue].next == a->priced->line_counts[queue])
        return NULL;
    *index = a->priced->lines[queue][a->lines[queue].next];
    return &a->priced->program->entries[*index];
}

/* Passes entries that take no time. Returns true if an event was recorded or a wait of the host
 * has ended, for which other queues may have waited. */
static bool pass(clock_state *c, int program, int queue)
{
    actor *a = &c->actors[program];
    line *l = &a->lines[queue];
    const choir__step_entry *e;
    bool news = false;
    int64_t i;
    while (!l->waiting && (e = entry_at(a, queue, &i)) != NULL) {
        const int after = a->priced->after[i];
        if (after > a->hosts_done)
            return news;
        if (after)
            l->now = later(l->now, a->hosts[after - 1]);
        if (e->kind == CHOIR__ENTRY_WAIT && a->events[e->as.event] < 0)
            return news;
        if (e->kind == CHOIR__ENTRY_WAIT) {
            l->now = later(l->now, a->events[e->as.event]);
        } else if (e->kind == CHOIR__ENTRY_EVENT) {
            a->events[e->as.event] = l->now;
            news = true;
        } else if (e->kind == CHOIR__ENTRY_HOST) {
            a->hosts[a->hosts_done] =
                later(l->now, a->hosts_done ? a->hosts[a->hosts_done - 1] : 0);
            a->hosts_done++;
            news = true;
        } else {
            l->waiting = true;
            push(c, (candidate){l->now, program, queue});
            return news;
        }
        l->next++;
    }
    return news;
}

/* Passes the entries that have become ready since an entry of the queue ended; -1: all begin.
 */
static void advance(clock_state *c, int program, int queue)
{
    bool again = queue < 0 || pass(c, program, queue);
    while (again) {
        again = false;
        for (int q = 0; q < c->actors[program].priced->program->queue_count; q++)
            again |= pass(c, program, q);
    }
}

/* Ends the entry that a queue waits for. */
static void finish(clock_state *c, candidate who, double begin, double end)
{
    actor *a = &c->actors[who.program];
    line *l = &a->lines[who.queue];
    int64_t i = a->priced->lines[who.queue][l->next++];
    a->runners[a->priced->program->queues[who.queue].runner] = end;
    l->now = end;
    l->waiting = false;
    if (c->setup->times)
        c->setup->times[who.program][i] = (choir__entry_time){begin, end};
    advance(c, who.program, who.queue);
}

/* --- work --- */

static void run_work(clock_state *c, candidate who, int64_t i)
{
    actor *a = &c->actors[who.program];
    const double seconds = a->priced->seconds[i], part = a->priced->spread[i] * seconds;
    a->variance += part * part;
    a->slowness += c->setup->device_spread * seconds;
    if (c->setup->busy)
        c->setup->busy[who.program] += seconds;
    finish(c, who, who.at, who.at + seconds);
}

/* Returns by how much the slowest of n equal ranks is behind their mean. */
static double behind(clock_state *c, actor *a, double n)
{
    double deviation = sqrt(a->variance), persistent = a->slowness;
    a->variance = a->slowness = 0;
    if (!c->setup->draw || !(deviation > 0 || persistent > 0))
        return 0;
    /* A device's speed is one number per draw; kernels have new ones. */
    double z = choir__largest_of(c->setup->seed, c->setup->draw, ++c->drawn, n),
           slow = choir__largest_of(c->setup->seed, c->setup->draw, 0, n);
    return deviation * z + later(persistent * slow, 0);
}

static meeting *meeting_of(clock_state *c, int group, int leader, int call)
{
    for (int i = 0; i < c->meeting_count; i++) {
        meeting *m = &c->meetings[i];
        if (m->group == group && m->leader == leader && m->call == call)
            return m;
    }
    CHOIR__GROW(c->meetings, c->meeting_count);
    c->meetings[c->meeting_count] = (meeting){group, leader, call, 0, 0, NULL};
    return &c->meetings[c->meeting_count++];
}

static int members_of(const int *programs)
{
    int n = 0;
    while (programs[n] >= 0)
        n++;
    return n;
}

static void meet(clock_state *c, candidate who, int64_t i)
{
    actor *a = &c->actors[who.program];
    const int group = a->priced->program->entries[i].as.collective.group;
    const int *members = a->priced->members[group];
    const int wanted = members_of(members);
    meeting *m = meeting_of(c, group, members[0], a->calls[group]++);
    double ranks = (double)c->setup->step->groups[group].size / wanted;
    CHOIR__GROW(m->who, m->arrived);
    m->who[m->arrived++] = who;
    m->begin = later(m->begin, who.at + behind(c, a, ranks > 1 ? ranks : 1));
    if (m->arrived < wanted)
        return;
    /* All are there. The meeting leaves the list first, since queues that continue may open
     * others. */
    meeting all = *m;
    *m = c->meetings[--c->meeting_count];
    for (int k = 0; k < all.arrived; k++) {
        const actor *b = &c->actors[all.who[k].program];
        all.begin =
            later(all.begin, b->runners[b->priced->program->queues[all.who[k].queue].runner]);
    }
    for (int k = 0; k < all.arrived; k++)
        finish(c, all.who[k], all.begin, all.begin + a->priced->seconds[i]);
    free(all.who);
}

static channel *channel_of(clock_state *c, int from, int to, int group)
{
    for (int i = 0; i < c->channel_count; i++) {
        channel *m = &c->channels[i];
        if (m->from == from && m->to == to && m->group == group)
            return m;
    }
    CHOIR__GROW(c->channels, c->channel_count);
    c->channels[c->channel_count] = (channel){from, to, group, NULL, 0, 0, -1, 0};
    return &c->channels[c->channel_count++];
}

static int peer_of(const clock_state *c, int program, const choir__step_entry *e)
{
    return choir__step_program_of(
        c->setup->step, c->actors[program].priced->program->first + e->as.collective.root);
}

static void send(clock_state *c, candidate who, int64_t i)
{
    const actor *a = &c->actors[who.program];
    const choir__step_entry *e = &a->priced->program->entries[i];
    const int to = peer_of(c, who.program, e);
    channel *m = channel_of(c, who.program, to, e->as.collective.group);
    const double arrives = who.at + a->priced->seconds[i];
    CHOIR__GROW(m->sent, m->sent_count);
    m->sent[m->sent_count++] = arrives;
    if (m->waiter >= 0) {
        candidate waiter = {m->since, to, m->waiter};
        m->waiter = -1;
        m->received++;
        finish(c, waiter, waiter.at, later(waiter.at, arrives));
    }
    finish(c, who, who.at, arrives);
}

static void receive(clock_state *c, candidate who, int64_t i)
{
    const choir__step_entry *e = &c->actors[who.program].priced->program->entries[i];
    channel *m = channel_of(c, peer_of(c, who.program, e), who.program, e->as.collective.group);
    if (m->received < m->sent_count) {
        const double arrived = m->sent[m->received++];
        finish(c, who, who.at, later(who.at, arrived));
    } else {
        m->waiter = who.queue;
        m->since = who.at;
    }
}

/* Runs the earliest entry, unless its core is busy longer. */
static void run_next(clock_state *c)
{
    candidate who = pop(c);
    actor *a = &c->actors[who.program];
    const double core = a->runners[a->priced->program->queues[who.queue].runner];
    int64_t i = 0;
    const choir__step_entry *e = entry_at(a, who.queue, &i);
    if (core > who.at) {
        who.at = core;
        push(c, who);
    } else if (e->kind != CHOIR__ENTRY_COLLECTIVE) {
        run_work(c, who, i);
    } else if (e->as.collective.kind == CHOIR__SEND) {
        send(c, who, i);
    } else if (e->as.collective.kind == CHOIR__RECEIVE) {
        receive(c, who, i);
    } else {
        meet(c, who, i);
    }
}

/* --- all together --- */

static void actor_open(actor *a, const choir__priced *priced, int groups)
{
    const choir__step_program *p = priced->program;
    int hosts = 0;
    for (int64_t e = 0; e < p->entry_count; e++)
        hosts += p->entries[e].kind == CHOIR__ENTRY_HOST;
    *a = (actor){.priced = priced};
    a->lines = choir__calloc((size_t)p->queue_count + 1, sizeof *a->lines);
    a->runners = choir__calloc((size_t)p->queue_count + 1, sizeof *a->runners);
    a->events = choir__alloc(((size_t)p->event_count + 1) * sizeof *a->events);
    a->hosts = choir__calloc((size_t)hosts + 1, sizeof *a->hosts);
    a->calls = choir__calloc((size_t)groups + 1, sizeof *a->calls);
    for (int e = 0; e < p->event_count; e++)
        a->events[e] = -1;
}

static void clock_free(clock_state *c)
{
    for (int p = 0; p < c->setup->step->program_count; p++) {
        free(c->actors[p].lines);
        free(c->actors[p].runners);
        free(c->actors[p].events);
        free(c->actors[p].hosts);
        free(c->actors[p].calls);
    }
    for (int i = 0; i < c->meeting_count; i++)
        free(c->meetings[i].who);
    for (int i = 0; i < c->channel_count; i++)
        free(c->channels[i].sent);
    free(c->actors);
    free(c->heap);
    free(c->meetings);
    free(c->channels);
}

/* Returns an error for the first entry that never ran. */
static choir_status check_ended(const clock_state *c)
{
    for (int p = 0; p < c->setup->step->program_count; p++)
        for (int q = 0; q < c->actors[p].priced->program->queue_count; q++) {
            int64_t i;
            const choir__step_entry *e = entry_at(&c->actors[p], q, &i);
            if (e)
                return choir__error(CHOIR_ERR_ARGUMENT,
                    "step: entry %lld of program %d (queue %d) waits forever: %s", (long long)i,
                    p, q,
                    e->kind == CHOIR__ENTRY_COLLECTIVE ? "its peers have no such call"
                                                       : "the other side never ends");
        }
    return CHOIR_OK;
}

choir_status choir__clock_run(const choir__clock_setup *setup, double *seconds)
{
    const int programs = setup->step->program_count;
    clock_state c = {.setup = setup};
    c.actors = choir__alloc((size_t)programs * sizeof *c.actors);
    for (int p = 0; p < programs; p++)
        actor_open(&c.actors[p], &setup->programs[p], setup->step->group_count);
    for (int p = 0; p < programs; p++)
        advance(&c, p, -1);
    while (c.heap_count)
        run_next(&c);
    choir_status status = check_ended(&c);
    *seconds = 0;
    for (int p = 0; p < programs && !status; p++) {
        actor *a = &c.actors[p];
        double end = 0;
        for (int q = 0; q < a->priced->program->queue_count; q++)
            end = later(end, a->lines[q].now);
        *seconds = later(*seconds, end + behind(&c, a, (double)a->priced->program->ranks));
    }
    clock_free(&c);
    return status;
}
