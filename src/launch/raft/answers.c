/* Messages that a server sends, and answers to this agent's own requests. server.c and leader.c
 * both use them, so this file calls neither. */
#include <stdio.h>

#include "launch/raft/server_inside.h"

bool choir__raft_post(choir__raft_server *s, uint64_t to, const char *address, choir__bytes *b)
{
    bool sent = choir__connections_send(s->connections, to, address, b->data, b->to);
    choir__bytes_free(b);
    return sent;
}

void choir__raft_settle(choir__raft_server *s, uint64_t from, const choir__answer *a)
{
    if (!a->leads) {
        s->hint = a->leader;
        snprintf(s->hint_address, sizeof s->hint_address, "%s", a->address);
    }
    if (s->proof.seq == a->seq && a->leads)
        s->proof.done = true;
    for (choir__raft_request *r = s->requests; r; r = r->next) {
        if (r->seq != a->seq || r->done)
            continue;
        r->done = a->leads;
        r->mine = a->mine;
        r->number = a->number;
        if (!a->leads && a->leader)
            r->sent_at = 0; /* ask the leader at once */
    }
    if (a->leads) {
        const char *address = choir__connections_address(s->connections, from);
        s->hint = from;
        snprintf(s->hint_address, sizeof s->hint_address, "%s", address ? address : "");
    }
    pthread_cond_broadcast(&s->news);
}

void choir__raft_tell(choir__raft_server *s, uint64_t to, const choir__answer *a)
{
    choir__bytes b = {0};
    if (to == s->id) {
        choir__raft_settle(s, to, a);
        return;
    }
    choir__write_number(&b, ANSWER);
    choir__answer_write(&b, a);
    choir__raft_post(s, to, NULL, &b);
}
