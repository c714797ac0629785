/* A change of a job's membership as an event, for programs that read the output of choir run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agent/agent_state.h"
#include "record/events.h"

typedef struct change {
    choir__told_leaver *left;
    choir__told_joiner *joined;
    int left_count, joined_count;
} change;

static void add_leaver(change *c, int rank, const choir__departure *d)
{
    CHOIR__GROW(c->left, c->left_count);
    c->left[c->left_count++] =
        (choir__told_leaver){.rank = rank, .host = d->host, .pid = -1, .why = d->why};
}

static void add_joiner(change *c, int rank, const char *host)
{
    CHOIR__GROW(c->joined, c->joined_count);
    c->joined[c->joined_count++] = (choir__told_joiner){.rank = rank, .host = host};
}

/* A rank that failed on a node that stays has left and, under its new number, joined. */
static void add_departed(change *c, const choir__agent_state *m)
{
    for (int i = 0; i < m->departed_count; i++) {
        const choir__departure *d = &m->departed[i];
        const choir__agent_node *n = choir__agent_state_find(m, d->id);
        for (int k = 0; k < d->workers; k++) {
            add_leaver(c, d->rank + k, d);
            if (n && n->index >= 0 && !n->is_new)
                add_joiner(c, n->rank + d->offset + k, d->host);
        }
    }
}

char *choir__agent_state_event(const choir__agent_state *m, double gathered_s, double resumed_s)
{
    change c = {0};
    int world = 0, nodes = 0;
    choir__text_buffer text = {0};
    char(*hosts)[CHOIR__HOST_TEXT] = choir__calloc((size_t)m->count + 1, sizeof *hosts);
    add_departed(&c, m);
    for (int i = 0; i < m->count; i++) {
        const choir__agent_node *n = &m->nodes[i];
        snprintf(hosts[i], sizeof *hosts, "%.*s", (int)strcspn(n->who, " "), n->who);
        nodes += n->index >= 0;
        world += n->index >= 0 ? n->workers : 0;
        for (int k = 0; k < n->workers && n->index >= 0 && n->is_new; k++)
            add_joiner(&c, n->rank + k, hosts[i]);
    }
    choir__event_write(&text, CHOIR__TO_OUT,
        CHOIR__TOLD(membership, .generation = m->generation, .step = -1, .world = world,
            .nodes = nodes, .restarts = m->restarts, .left = c.left, .left_count = c.left_count,
            .joined = c.joined, .joined_count = c.joined_count, .detected_s = gathered_s,
            .resumed_s = resumed_s));
    free(c.left);
    free(c.joined);
    free(hosts);
    return text.bytes;
}
