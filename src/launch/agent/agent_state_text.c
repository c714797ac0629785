/* A job's membership as JSON, which other programs may read where the ledger is etcd. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agent/agent_state.h"

static const char *const phases[] = {"gathering", "running", "over"};
static const char *const stages[] = {"ready", "busy", "done"};

static int lookup(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name))
            return i;
    return -1;
}

/* --- writing --- */

/* A text that is not UTF-8, such as a worker's last words, has its strange bytes replaced. */
static json_t *text_of(const char *text)
{
    json_t *made = json_string(text);
    if (made)
        return made;
    char *copy = choir__strdup(text);
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    made = json_string(copy);
    free(copy);
    return made;
}

static json_t *node_of(const choir__agent_node *n)
{
    return json_pack("{so so so so si si si sb ss si si sb}", "id", text_of(n->id), "who",
        text_of(n->who), "name", text_of(n->name), "host", text_of(n->host), "port", n->port,
        "workers", n->workers, "number", n->number, "keeps", n->keeps, "stage",
        stages[n->stage], "index", n->index, "rank", n->rank, "is_new", n->is_new);
}

static json_t *departure_of(const choir__departure *d)
{
    return json_pack("{so si si si so so}", "id", text_of(d->id), "offset", d->offset, "rank",
        d->rank, "workers", d->workers, "host", text_of(d->host), "why", text_of(d->why));
}

static json_t *verdict_of(const choir__verdict *v)
{
    return json_pack(
        "{si si so}", "status", v->status, "worker", v->worker, "report", text_of(v->report));
}

static json_t *terms_of(const choir__terms *t)
{
    return json_pack("{so so so si si si si}", "version", text_of(t->version), "key",
        text_of(t->key), "work", text_of(t->work), "nodes_min", t->nodes_min, "nodes_max",
        t->nodes_max, "max_restarts", t->max_restarts, "node_failures", t->node_failures);
}

char *choir__agent_state_text(const choir__agent_state *m)
{
    json_t *nodes = json_array(), *tallies = json_array(), *departed = json_array();
    for (int i = 0; i < m->count; i++)
        json_array_append_new(nodes, node_of(&m->nodes[i]));
    for (int i = 0; i < m->tally_count; i++)
        json_array_append_new(tallies, json_pack("{so si}", "name", text_of(m->tallies[i].name),
                                           "failures", m->tallies[i].failures));
    for (int i = 0; i < m->departed_count; i++)
        json_array_append_new(departed, departure_of(&m->departed[i]));
    json_t *all = json_pack("{so so sb ss si si si si sb so so so so so sb so so so so}",
        "terms", terms_of(&m->terms), "run_id", text_of(m->run_id), "named", m->named, "phase",
        phases[m->phase], "generation", m->generation, "left_done", m->left_done, "restarts",
        m->restarts, "round", m->round, "call", m->call, "secret", text_of(m->secret), "nodes",
        nodes, "tallies", tallies, "departed", departed, "cause", verdict_of(&m->cause),
        "cause_costs", m->cause_costs, "failing", text_of(m->failing), "first",
        text_of(m->first), "news", text_of(m->news ? m->news : ""), "verdict",
        verdict_of(&m->verdict));
    char *text = json_dumps(all, JSON_COMPACT);
    json_decref(all);
    return text;
}

/* --- reading --- */

static void copy(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from);
    choir__clean(to);
}

static bool read_node(json_t *from, choir__agent_node *n)
{
    const char *id, *who, *name, *host, *stage;
    int keeps, is_new;
    if (json_unpack(from, "{ss ss ss ss si si si sb ss si si sb}", "id", &id, "who", &who,
            "name", &name, "host", &host, "port", &n->port, "workers", &n->workers, "number",
            &n->number, "keeps", &keeps, "stage", &stage, "index", &n->index, "rank", &n->rank,
            "is_new", &is_new))
        return false;
    int which = lookup(stages, CHOIR_COUNT(stages), stage);
    n->stage = (choir__stage)which;
    n->keeps = keeps;
    n->is_new = is_new;
    copy(n->id, sizeof n->id, id);
    copy(n->who, sizeof n->who, who);
    copy(n->name, sizeof n->name, name);
    copy(n->host, sizeof n->host, host);
    return which >= 0 && n->workers > 0 && n->workers <= 1 << 20 && n->index >= -1;
}

static bool read_verdict(json_t *from, choir__verdict *v)
{
    const char *report;
    if (json_unpack(
            from, "{si si ss}", "status", &v->status, "worker", &v->worker, "report", &report))
        return false;
    copy(v->report, sizeof v->report, report);
    return true;
}

static bool read_terms(json_t *from, choir__terms *t)
{
    const char *version, *key, *work;
    if (json_unpack(from, "{ss ss ss si si si si}", "version", &version, "key", &key, "work",
            &work, "nodes_min", &t->nodes_min, "nodes_max", &t->nodes_max, "max_restarts",
            &t->max_restarts, "node_failures", &t->node_failures))
        return false;
    copy(t->version, sizeof t->version, version);
    copy(t->key, sizeof t->key, key);
    copy(t->work, sizeof t->work, work);
    return true;
}

static bool read_departure(json_t *from, choir__departure *d)
{
    const char *id, *host, *why;
    if (json_unpack(from, "{ss si si si ss ss}", "id", &id, "offset", &d->offset, "rank",
            &d->rank, "workers", &d->workers, "host", &host, "why", &why))
        return false;
    copy(d->id, sizeof d->id, id);
    copy(d->host, sizeof d->host, host);
    copy(d->why, sizeof d->why, why);
    return d->workers > 0 && d->workers <= 1 << 20 && d->rank >= 0 && d->rank <= 1 << 24 &&
           d->offset >= 0 && d->offset < 1 << 20;
}

static bool read_departed(json_t *departed, choir__agent_state *m)
{
    size_t i;
    json_t *item;
    m->departed = choir__calloc(json_array_size(departed) + 1, sizeof *m->departed);
    json_array_foreach(departed, i,
        item) if (!read_departure(item, &m->departed[m->departed_count++])) return false;
    return true;
}

static bool read_lists(json_t *nodes, json_t *tallies, choir__agent_state *m)
{
    size_t i;
    json_t *item;
    const char *name;
    m->nodes = choir__calloc(json_array_size(nodes) + 1, sizeof *m->nodes);
    m->tallies = choir__calloc(json_array_size(tallies) + 1, sizeof *m->tallies);
    json_array_foreach(
        nodes, i, item) if (!read_node(item, &m->nodes[m->count++])) return false;
    json_array_foreach(tallies, i, item)
    {
        choir__agent_tally *t = &m->tallies[m->tally_count++];
        if (json_unpack(item, "{ss si}", "name", &name, "failures", &t->failures))
            return false;
        copy(t->name, sizeof t->name, name);
    }
    return true;
}

static bool read_all(json_t *all, choir__agent_state *m)
{
    json_t *terms, *nodes, *tallies, *departed, *cause, *verdict;
    const char *run_id, *phase, *secret, *failing, *first, *news;
    int named, call, costs;
    if (json_unpack(all, "{so ss sb ss si si si si sb ss so so so so sb ss ss ss so}", "terms",
            &terms, "run_id", &run_id, "named", &named, "phase", &phase, "generation",
            &m->generation, "left_done", &m->left_done, "restarts", &m->restarts, "round",
            &m->round, "call", &call, "secret", &secret, "nodes", &nodes, "tallies", &tallies,
            "departed", &departed, "cause", &cause, "cause_costs", &costs, "failing", &failing,
            "first", &first, "news", &news, "verdict", &verdict))
        return false;
    int which = lookup(phases, CHOIR_COUNT(phases), phase);
    m->phase = (choir__phase)which;
    m->named = named;
    m->call = call;
    m->cause_costs = costs;
    copy(m->run_id, sizeof m->run_id, run_id);
    copy(m->secret, sizeof m->secret, secret);
    copy(m->failing, sizeof m->failing, failing);
    copy(m->first, sizeof m->first, first);
    m->news = *news ? choir__clean(choir__strdup(news)) : NULL;
    return which >= 0 && json_is_array(nodes) && json_is_array(tallies) &&
           json_is_array(departed) && read_departed(departed, m) &&
           read_terms(terms, &m->terms) && read_verdict(cause, &m->cause) &&
           read_verdict(verdict, &m->verdict) && read_lists(nodes, tallies, m);
}

choir_status choir__agent_state_read(const char *text, choir__agent_state *m)
{
    json_t *all = json_loads(text, 0, NULL);
    *m = (choir__agent_state){0};
    bool good = all && read_all(all, m);
    json_decref(all);
    if (good)
        return CHOIR_OK;
    choir__agent_state_free(m);
    return choir__error(CHOIR_ERR_FORMAT,
        "expected the membership of a job of choir %s, got '%.60s': is another version there?",
        CHOIR_VERSION, text);
}
