/* A change of a job's membership as an event, for programs that read the output of choir run.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/agent/agent_state.h"
#include "record/events.h"

/* A rank that failed on a node that stays has left and, under its new number, joined. */
char *choir__agent_state_event(const choir__agent_state *m, double gathered_s, double resumed_s)
{
    choir__told_leaver *left = NULL;
    choir__told_joiner *joined = NULL;
    int left_count = 0, joined_count = 0, world = 0, nodes = 0;
    choir__text_buffer text = {0};
    char(*hosts)[CHOIR__HOST_TEXT] = choir__calloc((size_t)m->count + 1, sizeof *hosts);
    for (int i = 0; i < m->departed_count; i++) {
        const choir__departure *d = &m->departed[i];
        const choir__agent_node *n = choir__agent_state_find(m, d->id);
        bool again = n && n->index >= 0 && !n->is_new;
        for (int k = 0; k < d->workers; k++) {
            CHOIR__GROW(left, left_count);
            left[left_count++] = (choir__told_leaver){
                .rank = d->rank + k, .host = d->host, .pid = -1, .why = d->why};
            if (!again)
                continue;
            CHOIR__GROW(joined, joined_count);
            joined[joined_count++] =
                (choir__told_joiner){.rank = n->rank + d->offset + k, .host = d->host};
        }
    }
    for (int i = 0; i < m->count; i++) {
        const choir__agent_node *n = &m->nodes[i];
        snprintf(hosts[i], sizeof *hosts, "%.*s", (int)strcspn(n->who, " "), n->who);
        nodes += n->index >= 0;
        world += n->index >= 0 ? n->workers : 0;
        for (int k = 0; k < n->workers && n->index >= 0 && n->is_new; k++) {
            CHOIR__GROW(joined, joined_count);
            joined[joined_count++] =
                (choir__told_joiner){.rank = n->rank + k, .host = hosts[i]};
        }
    }
    choir__event_write(&text, CHOIR__TO_OUT,
        CHOIR__TOLD(membership, .generation = m->generation, .step = -1, .world = world,
            .nodes = nodes, .restarts = m->restarts, .left = left, .left_count = left_count,
            .joined = joined, .joined_count = joined_count, .detected_s = gathered_s,
            .resumed_s = resumed_s));
    free(left);
    free(joined);
    free(hosts);
    return text.bytes;
}
