/* The changes of a job's membership, as pure functions: an agent joins, is ready, is done,
 * fails, is lost; a generation begins when all are ready and there are enough; the job ends.
 * Each change notes its news as lines for people, which all agents print alike. */
#include "launch/agent/agent_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *choir__without_name(const char *report)
{
    const char *name = "choir run: ";
    return strncmp(report, name, strlen(name)) ? report : report + strlen(name);
}

choir__agent_node *choir__agent_state_find(const choir__agent_state *m, const char *id)
{
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->nodes[i].id, id))
            return &m->nodes[i];
    return NULL;
}

bool choir__agent_state_is_elastic(const choir__agent_state *m)
{
    return m->terms.max_restarts > 0 || m->terms.nodes_min < m->terms.nodes_max;
}

void choir__agent_state_free(choir__agent_state *m)
{
    free(m->nodes);
    free(m->tallies);
    free(m->departed);
    free(m->news);
    *m = (choir__agent_state){0};
}

choir__agent_state choir__agent_state_copy(const choir__agent_state *m)
{
    choir__agent_state copy = *m;
    copy.nodes = choir__calloc((size_t)m->count + 1, sizeof *copy.nodes);
    copy.tallies = choir__calloc((size_t)m->tally_count + 1, sizeof *copy.tallies);
    if (m->count)
        memcpy(copy.nodes, m->nodes, (size_t)m->count * sizeof *copy.nodes);
    copy.departed = choir__calloc((size_t)m->departed_count + 1, sizeof *copy.departed);
    if (m->departed_count)
        memcpy(copy.departed, m->departed, (size_t)m->departed_count * sizeof *copy.departed);
    if (m->tally_count)
        memcpy(copy.tallies, m->tallies, (size_t)m->tally_count * sizeof *copy.tallies);
    copy.news = m->news ? choir__strdup(m->news) : NULL;
    return copy;
}

/* --- small parts --- */

static void announce(choir__agent_state *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a line to the news of this change. */
static void announce(choir__agent_state *m, const char *format, ...)
{
    char line[CHOIR__REPORT_TEXT + 512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char *all = m->news ? choir__format("%s\nchoir run: %s", m->news, line)
                        : choir__format("choir run: %s", line);
    free(m->news);
    m->news = all;
}

/* Returns a node's number for people. */
static int known_as(const choir__agent_node *n)
{
    return n->index >= 0 ? n->index : n->number;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

static int busy(const choir__agent_state *m)
{
    int count = 0;
    for (int i = 0; i < m->count; i++)
        count += m->nodes[i].stage == CHOIR__BUSY;
    return count;
}

/* Returns how many nodes are in this generation; *done: those that are done. */
static int taking_part(const choir__agent_state *m, int *done)
{
    int count = 0;
    *done = 0;
    for (int i = 0; i < m->count; i++) {
        count += m->nodes[i].index >= 0;
        *done += m->nodes[i].index >= 0 && m->nodes[i].stage == CHOIR__DONE;
    }
    return count;
}

/* Restarts the time of waiting if the members were `before`, and enough or too few came of it.
 */
static void recount(choir__agent_state *m, int before)
{
    bool enough = m->count >= m->terms.nodes_min, had = before >= m->terms.nodes_min;
    if (!enough)
        m->call = true;
    if (enough != had)
        m->round++;
}

static void drop(choir__agent_state *m, choir__agent_node *n)
{
    size_t at = (size_t)(n - m->nodes);
    memmove(n, n + 1, ((size_t)m->count - at - 1) * sizeof *n);
    m->count--;
    recount(m, m->count + 1);
}

/* Notes that ranks of the running generation, or of the last one, are gone: one, or (worker -1)
 * all of a node. */
static void note_departure(
    choir__agent_state *m, const choir__agent_node *n, int worker, const char *why)
{
    if (n->index < 0)
        return;
    why = choir__without_name(why);
    m->departed =
        choir__realloc(m->departed, (size_t)(m->departed_count + 1) * sizeof *m->departed);
    choir__departure *d = &m->departed[m->departed_count++];
    *d = (choir__departure){.offset = worker < 0 ? 0 : worker,
        .rank = n->rank + (worker < 0 ? 0 : worker),
        .workers = worker < 0 ? n->workers : 1};
    snprintf(d->id, sizeof d->id, "%s", n->id);
    snprintf(d->host, sizeof d->host, "%.*s", (int)strcspn(n->who, " "), n->who);
    snprintf(d->why, sizeof d->why, "%.*s", (int)strcspn(why, "\n"), why);
}

static void gather(choir__agent_state *m)
{
    m->departed_count = 0;
    m->phase = CHOIR__GATHERING;
    m->round++;
    m->call = m->count < m->terms.nodes_min;
    m->cause = (choir__verdict){0};
    m->cause_costs = false;
    *m->failing = '\0';
}

void choir__agent_state_end(choir__agent_state *m, int status, const char *report)
{
    m->phase = CHOIR__OVER;
    m->verdict.status = status;
    snprintf(m->verdict.report, sizeof m->verdict.report, "%s", report);
}

/* Returns the failures of a node so far, plus `more`, which are noted. */
static int count_failures(choir__agent_state *m, const char *name, int more)
{
    for (int i = 0; i < m->tally_count; i++)
        if (!strcmp(m->tallies[i].name, name))
            return m->tallies[i].failures += more;
    if (!more)
        return 0;
    m->tallies = choir__realloc(m->tallies, (size_t)(m->tally_count + 1) * sizeof *m->tallies);
    choir__agent_tally *t = &m->tallies[m->tally_count++];
    t->failures = more;
    snprintf(t->name, sizeof t->name, "%s", name);
    return more;
}

/* --- joining --- */

static const char *terms_text(const choir__terms *t, char text[160])
{
    int used = snprintf(
        text, 160, "version %s, --nnodes %d:%d", t->version, t->nodes_min, t->nodes_max);
    if (t->max_restarts)
        used +=
            snprintf(text + used, 160 - (size_t)used, ", --max-restarts %d", t->max_restarts);
    if (t->node_failures)
        snprintf(text + used, 160 - (size_t)used, ", --node-failures %d", t->node_failures);
    return text;
}

static choir_status compare(const choir__agent_state *m, const choir__terms *t, const char *who)
{
    char mine[160], theirs[160];
    const char *first = m->count ? m->nodes[0].who : "the job";
    terms_text(t, mine);
    terms_text(&m->terms, theirs);
    if (strcmp(mine, theirs) != 0)
        return choir__error(
            CHOIR_ERR_MISMATCH, "nodes disagree: %s has %s, node 0 has %s", who, mine, theirs);
    if (strcmp(t->key, m->terms.key) != 0)
        return choir__error(CHOIR_ERR_MISMATCH,
            "nodes disagree: the key file (--key-file) of %s is not that of node 0, %s", who,
            first);
    if (strcmp(t->work, m->terms.work) != 0)
        return choir__error(CHOIR_ERR_MISMATCH,
            "nodes disagree: %s runs '%s', node 0 runs '%s'; is that another job at this endpoint?",
            who, *t->work ? t->work : "another program",
            *m->terms.work ? m->terms.work : "another program");
    return CHOIR_OK;
}

/* Finds the number of a new node. */
static choir_status number_it(const choir__agent_state *m, choir__agent_node *new)
{
    int number = new->number < 0 ? 0 : new->number;
    for (int i = 0; i < m->count; i++) {
        if (m->nodes[i].number != number)
            continue;
        if (new->number >= 0)
            return choir__error(CHOIR_ERR_STATE,
                "node %d is there already: %s; give each node a --node-rank of its own", number,
                m->nodes[i].who);
        number++;
        i = -1;
    }
    new->number = number;
    return CHOIR_OK;
}

choir_status choir__agent_state_join(choir__agent_state *m, const choir__terms *terms,
    const choir__agent_node *node, bool *ends_all)
{
    int done, used = taking_part(m, &done), before = m->count;
    choir__agent_node new = *node;
    *ends_all = false;
    choir_status status = compare(m, terms, new.who);
    if (status != CHOIR_OK) {
        *ends_all = !m->generation; /* all were started just now, and not alike */
        return status;
    }
    int failures = count_failures(m, new.name, 0);
    if (m->terms.node_failures && failures >= m->terms.node_failures)
        return choir__error(CHOIR_ERR_STATE,
            "this node, %s, is left out: it has failed %d time%s (--node-failures %d)", new.who,
            failures, plural(failures), m->terms.node_failures);
    if (m->count >= m->terms.nodes_max && !choir__agent_state_is_elastic(m) && new.number < 0)
        return choir__error(CHOIR_ERR_STATE,
            "all %d nodes are there already; this one, %s, is one too many", m->terms.nodes_max,
            new.who);
    status = number_it(m, &new);
    if (status != CHOIR_OK)
        return status;
    new.index = new.rank = -1;
    new.stage = CHOIR__READY;
    m->nodes = choir__realloc(m->nodes, (size_t)(m->count + 1) * sizeof *m->nodes);
    m->nodes[m->count++] = new;
    recount(m, before);
    done += m->left_done;
    if (m->phase == CHOIR__RUNNING && used < m->terms.nodes_max && !done) {
        gather(m);
        announce(m, "node %d (%s) joins; all ranks start again on %d nodes", new.number,
            new.who, used + 1);
    } else if (m->generation && m->phase == CHOIR__RUNNING) {
        announce(m, "%s is a spare: %s", new.who,
            done ? "some nodes are done already" : "all nodes are there");
    } else if (m->generation) {
        announce(m, "node %d (%s) joins", new.number, new.who);
    }
    return CHOIR_OK;
}

/* --- a node's own news --- */

bool choir__agent_state_ready(choir__agent_state *m, const char *id, int port)
{
    choir__agent_node *n = choir__agent_state_find(m, id);
    if (!n || m->phase != CHOIR__GATHERING || n->stage == CHOIR__READY)
        return false;
    n->stage = CHOIR__READY;
    n->port = port;
    return true;
}

/* Finds a node that runs workers of this generation. */
static choir__agent_node *worker_of(const choir__agent_state *m, const char *id, int generation)
{
    choir__agent_node *n = choir__agent_state_find(m, id);
    bool runs = n && m->phase == CHOIR__RUNNING && m->generation == generation;
    return runs && n->stage == CHOIR__BUSY ? n : NULL;
}

/* Ends the job with success if all nodes that take part are done. Returns whether it did. */
static bool complete(choir__agent_state *m)
{
    int done, all = taking_part(m, &done);
    if (m->phase != CHOIR__RUNNING || done < all)
        return false;
    choir__agent_state_end(m, 0, "");
    return true;
}

bool choir__agent_state_done(choir__agent_state *m, const char *id, int generation)
{
    choir__agent_node *n = worker_of(m, id, generation);
    if (!n)
        return false;
    n->stage = CHOIR__DONE;
    complete(m);
    return true;
}

bool choir__agent_state_failed(
    choir__agent_state *m, const char *id, int generation, const choir__verdict *failure)
{
    if (!worker_of(m, id, generation))
        return false;
    if (!choir__agent_state_is_elastic(m) || failure->final) {
        choir__agent_state_end(m, failure->status, failure->report);
        return true;
    }
    gather(m);
    m->cause = *failure;
    m->cause_costs = true;
    snprintf(m->failing, sizeof m->failing, "%s", id);
    note_departure(m, choir__agent_state_find(m, id), failure->worker, failure->report);
    return true;
}

/* --- nodes that go --- */

/* Says how many are left, and what follows. */
static void announce_rest(choir__agent_state *m, const char *what)
{
    int missing = m->terms.nodes_min - m->count;
    if (missing > 0)
        announce(m, "%s; %d node%s left, waiting for %d more", what, m->count,
            m->count == 1 ? " is" : "s are", missing);
    else
        announce(m, "%s; %d node%s left; all ranks start again", what, m->count,
            m->count == 1 ? " is" : "s are");
}

static void remove_running(
    choir__agent_state *m, choir__agent_node *n, const choir__verdict *why)
{
    const char *what = choir__without_name(why->report);
    choir__agent_node gone = *n;
    drop(m, n);
    if (m->phase == CHOIR__RUNNING)
        gather(m);
    if (m->cause_costs) /* a rank that failed because this node is gone */
        m->departed_count = 0;
    note_departure(m, &gone, -1, what);
    m->cause = *why;
    m->cause_costs = false;
    announce_rest(m, what);
}

bool choir__agent_state_lost(choir__agent_state *m, const char *id, double quiet_s)
{
    choir__agent_node *n = choir__agent_state_find(m, id);
    choir__verdict why = {.status = 1, .worker = -1};
    if (!n || m->phase == CHOIR__OVER)
        return false;
    bool idle = n->index < 0 || (m->phase == CHOIR__RUNNING && n->stage == CHOIR__DONE);
    if (isinf(quiet_s))
        snprintf(why.report, sizeof why.report,
            "choir run: node %d is gone: its agent, %s, died or was cut off", known_as(n),
            n->who);
    else
        snprintf(why.report, sizeof why.report,
            "choir run: node %d fell silent: its agent, %s, has given no sign for %.0f s: was it "
            "stopped?",
            known_as(n), n->who, quiet_s);
    if (n->keeps || (!choir__agent_state_is_elastic(m) && n->stage != CHOIR__DONE)) {
        choir__agent_state_end(m, 1, why.report);
        return true;
    }
    if (idle && m->phase == CHOIR__RUNNING) {
        announce(m, "node %d (%s) is gone, which changes nothing: it was %s", known_as(n),
            n->who, n->stage == CHOIR__DONE ? "done" : "a spare");
        m->left_done += n->stage == CHOIR__DONE;
        drop(m, n);
        complete(m);
        return true;
    }
    if (idle) {
        announce(m, "node %d (%s) is gone", n->number, n->who);
        drop(m, n);
        return true;
    }
    count_failures(m, n->name, 1);
    remove_running(m, n, &why);
    return true;
}

bool choir__agent_state_leave(
    choir__agent_state *m, const char *id, const choir__verdict *reason, bool everywhere)
{
    choir__agent_node *n = choir__agent_state_find(m, id);
    if (!n || m->phase == CHOIR__OVER)
        return false;
    bool needed = n->index >= 0 || !m->generation;
    if (everywhere || n->keeps || !choir__agent_state_is_elastic(m) ||
        (needed && m->count - 1 < m->terms.nodes_min)) {
        choir__agent_state_end(m, reason->status, reason->report);
        return true;
    }
    if (n->index >= 0 && !(m->phase == CHOIR__RUNNING && n->stage == CHOIR__DONE)) {
        remove_running(m, n, reason);
        return true;
    }
    announce(m, "node %d (%s) leaves", known_as(n), n->who);
    m->left_done += m->phase == CHOIR__RUNNING && n->stage == CHOIR__DONE;
    drop(m, n);
    complete(m);
    return true;
}

/* --- the end of a gathering --- */

/* Settles a failure, which costs a restart. Returns false if no restart is left. */
static bool charge(choir__agent_state *m)
{
    char report[CHOIR__REPORT_TEXT];
    choir__agent_node *n = choir__agent_state_find(m, m->failing);
    if (m->restarts >= m->terms.max_restarts) {
        int used = snprintf(report, sizeof report, "%s", m->cause.report);
        if (m->restarts && used < (int)sizeof report)
            snprintf(report + used, sizeof report - (size_t)used,
                "\n  before %d restart%s; first: %s", m->restarts, plural(m->restarts),
                m->first);
        choir__agent_state_end(m, m->cause.status, report);
        return false;
    }
    if (!m->restarts++)
        snprintf(m->first, sizeof m->first, "%.*s", (int)strcspn(m->cause.report, "\n"),
            m->cause.report);
    m->cause_costs = false;
    char *head = choir__format("%s\nchoir run: starting all again: restart %d of %d",
        m->cause.report, m->restarts, m->terms.max_restarts);
    free(m->news);
    m->news = head;
    int failures = n ? count_failures(m, n->name, 1) : 0;
    if (!m->terms.node_failures || failures < m->terms.node_failures)
        return true;
    if (n->keeps) {
        choir__agent_state_end(m, m->cause.status, m->cause.report);
        return false;
    }
    announce(m, "node %d (%s) is left out: it has failed %d time%s (--node-failures %d)",
        known_as(n), n->who, failures, plural(failures), m->terms.node_failures);
    m->departed_count = 0;
    note_departure(m, n, -1, m->cause.report);
    drop(m, n);
    return true;
}

static void give_up(choir__agent_state *m, const choir__patience *p)
{
    char text[CHOIR__REPORT_TEXT], names[256] = "";
    int missing = 0;
    if (m->generation) {
        snprintf(text, sizeof text,
            "%.8000s\nchoir run: %d node%s left, of at least %d, and no other came within %g s",
            *m->cause.report ? m->cause.report : "choir run: nodes have left", m->count,
            m->count == 1 ? " was" : "s were", m->terms.nodes_min, p->timeout_s);
        choir__agent_state_end(m, m->cause.status ? m->cause.status : 1, text);
        return;
    }
    for (int k = 0; k < m->terms.nodes_min; k++) {
        bool there = false;
        for (int i = 0; i < m->count; i++)
            there |= m->nodes[i].number == k;
        size_t used = strlen(names);
        if (!there)
            snprintf(names + used, sizeof names - used, "%s%d", missing++ ? ", " : "", k);
    }
    snprintf(text, sizeof text,
        "choir run: node%s %s of %d never came to %s within %g s: was 'choir run' started there, "
        "with the same --nnodes, --rdzv-endpoint and --key-file?",
        plural(missing), names, m->terms.nodes_min, p->where, p->timeout_s);
    choir__agent_state_end(m, 1, text);
}

/* Numbers nodes and ranks: the first that came, in the order of their numbers. */
static void start(choir__agent_state *m, const char *secret)
{
    int chosen = m->count < m->terms.nodes_max ? m->count : m->terms.nodes_max, rank = 0;
    for (int i = 0; i < m->count; i++) {
        m->nodes[i].is_new = m->nodes[i].index < 0;
        m->nodes[i].index = m->nodes[i].rank = -1;
        m->nodes[i].stage = i < chosen ? CHOIR__BUSY : CHOIR__READY;
    }
    for (int index = 0; index < chosen; index++) {
        choir__agent_node *next = NULL;
        for (int i = 0; i < chosen; i++)
            if (m->nodes[i].index < 0 && (!next || m->nodes[i].number < next->number))
                next = &m->nodes[i];
        next->index = index;
        next->rank = rank;
        rank += next->workers;
    }
    m->phase = CHOIR__RUNNING;
    m->left_done = 0;
    m->generation++;
    m->call = false;
    snprintf(m->secret, sizeof m->secret, "%s", secret);
}

bool choir__agent_state_advance(
    choir__agent_state *m, const choir__patience *p, const char *secret)
{
    bool changed = false;
    int round = m->round;
    if (m->phase != CHOIR__GATHERING || busy(m))
        return false;
    if (m->cause_costs) {
        changed = true;
        if (!charge(m))
            return true;
    }
    double waited_s = m->round == round ? p->waited_s : 0;
    if (m->count < m->terms.nodes_min) {
        if (waited_s < p->timeout_s)
            return changed;
        give_up(m, p);
        return true;
    }
    if (m->count < m->terms.nodes_max && m->call && waited_s < p->last_call_s)
        return changed;
    start(m, secret);
    return true;
}
