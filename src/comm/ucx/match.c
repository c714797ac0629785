/* Matching: messages meet the receives of their number, early messages wait for them, and
 * differing stamps are a mismatch. All under the lock. */
#include "comm/ucx/ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/flight/flight.h"

/* --- stamps --- */

static bool fits(const choir__stamp *mine, const choir__stamp *theirs)
{
    return memcmp(mine, theirs, sizeof *mine) == 0;
}

/* The lower rank's call comes second, so that the sentence is the same on all ranks. */
static void disagree(
    choir__ucx *g, int peer, const choir__stamp *mine, const choir__stamp *theirs)
{
    char here[CHOIR__STAMP_TEXT], there[CHOIR__STAMP_TEXT], numbers[64] = "";
    bool first = peer > g->base.rank;
    if (g->found != CHOIR_OK)
        return;
    if (mine->seq != theirs->seq)
        snprintf(numbers, sizeof numbers, " (calls number %u and %u)",
            first ? theirs->seq : mine->seq, first ? mine->seq : theirs->seq);
    choir__stamp called = choir__stamp_of(*mine, g->base.rank, peer);
    choir__stamp_text(&called, here);
    choir__stamp_text(theirs, there);
    snprintf(g->found_text, sizeof g->found_text, "rank %d called %s while rank %d called %s%s",
        choir__engine_number(&g->base, first ? peer : g->base.rank), first ? there : here,
        choir__engine_number(&g->base, first ? g->base.rank : peer), first ? here : there,
        numbers);
    g->found = CHOIR_ERR_MISMATCH;
    choir__ucx_wake(g);
}

/* Returns true if the message may go into op's memory. */
static bool check(choir__ucx_op *op, const choir__ucx_header *header, size_t bytes)
{
    choir__ucx *g = op->group;
    if (!fits(&op->header.stamp, &header->stamp)) {
        disagree(g, op->peer, &op->header.stamp, &header->stamp);
        return false;
    }
    if (bytes != op->bytes && g->found == CHOIR_OK) {
        char call[CHOIR__CALL_TEXT];
        snprintf(g->found_text, sizeof g->found_text,
            "rank %d sent %zu bytes to rank %d, which expected %zu, in %s: do they run the "
            "same program?",
            choir__engine_number(&g->base, op->peer), bytes,
            choir__engine_number(&g->base, g->base.rank), op->bytes,
            choir__call_text(&op->header.stamp, call));
        g->found = CHOIR_ERR_MISMATCH;
        choir__ucx_wake(g);
    }
    return bytes == op->bytes;
}

/* Fetches the data of a matched message from the sender. */
static void fetch(choir__ucx_op *op, void *data)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.recv_am = choir__ucx_on_received,
        .user_data = op,
    };
    choir__ucx_op_depart(op);
    ucs_status_ptr_t got =
        ucp_am_recv_data_nbx(op->group->net->worker, data, op->data, op->bytes, &param);
    if (UCS_PTR_IS_PTR(got))
        return;
    choir__ucx_op_arrive(op);
    choir__ucx_op_end(op, UCS_PTR_STATUS(got));
}

static void heard(choir__ucx *g, const choir__ucx_header *header)
{
    choir__ucx_peer *peer = &g->peers[header->from];
    peer->last = header->stamp;
    peer->heard_at = choir__now();
    peer->heard = true;
}

/* Removes the receive of that number from the peer's queue; NULL if it is not posted. */
static choir__ucx_op *posted(choir__ucx_peer *peer, uint32_t number)
{
    choir__ucx_op **at = &peer->receives_first, *before = NULL, *op;
    while (*at && (*at)->header.number != number) {
        before = *at;
        at = &before->next;
    }
    op = *at;
    if (op) {
        *at = op->next;
        if (peer->receives_last == op)
            peer->receives_last = before;
    }
    return op;
}

/* --- early messages --- */

static choir__ucx *find_group(choir__ucx_net *net, uint64_t id)
{
    choir__ucx *g = net->groups;
    while (g && g->id != id)
        g = g->next;
    return g;
}

static ucs_status_t keep(choir__ucx_early **list, const choir__ucx_header *header, void *data,
    size_t bytes, uint64_t flags)
{
    bool rendezvous = flags & UCP_AM_RECV_ATTR_FLAG_RNDV;
    bool stays = rendezvous || (flags & UCP_AM_RECV_ATTR_FLAG_DATA);
    choir__ucx_early *early = choir__alloc(sizeof *early);
    *early = (choir__ucx_early){.next = *list,
        .header = *header,
        .data = data,
        .bytes = bytes,
        .rendezvous = rendezvous,
        .ours = !stays};
    if (!stays) {
        early->data = choir__alloc(bytes ? bytes : 1);
        memcpy(early->data, data, bytes);
    }
    *list = early;
    return stays ? UCS_INPROGRESS : UCS_OK;
}

void choir__ucx_let_go(choir__ucx_net *net, choir__ucx_early *early)
{
    if (early->ours)
        free(early->data);
    else
        ucp_am_data_release(net->worker, early->data);
    free(early);
}

static choir__ucx_early *came(choir__ucx_peer *peer, uint32_t number)
{
    choir__ucx_early **at = &peer->early, *early;
    while (*at && (*at)->header.number != number)
        at = &(*at)->next;
    early = *at;
    if (early)
        *at = early->next;
    return early;
}

bool choir__ucx_take_early(choir__ucx *g, choir__ucx_op *op)
{
    choir__ucx_early *early = came(&g->peers[op->peer], op->header.number);
    if (!early)
        return false;
    bool fit = check(op, &early->header, early->bytes);
    if (fit && early->rendezvous) {
        fetch(op, early->data);
        free(early);
        return true;
    }
    if (fit) {
        memcpy(op->data, early->data, early->bytes);
        choir__ucx_op_end(op, UCS_OK);
    } else {
        choir__ucx_op_free(g->net, op);
    }
    choir__ucx_let_go(g->net, early);
    return true;
}

/* --- incoming messages --- */

/* Handles messages without data. A rank that waits in this very call, but with another stamp,
 * is a mismatch. */
static void take_note(choir__ucx *g, const choir__ucx_header *header)
{
    choir__ucx_peer *peer = &g->peers[header->from];
    if (header->kind == CHOIR__UCX_BYE) {
        peer->left = true;
        peer->left_after = header->number;
        choir__ucx_wake(g);
    } else if (header->kind == CHOIR__UCX_WAITING && g->waiting && g->now.seq &&
               header->stamp.seq == g->now.seq && !fits(&g->now, &header->stamp)) {
        disagree(g, header->from, &g->now, &header->stamp);
    }
}

static void take_verdict(
    choir__ucx *g, const choir__ucx_header *header, const void *data, size_t bytes)
{
    if (bytes >= sizeof g->told || (*g->told && g->told_by <= header->from))
        return;
    memcpy(g->told, data, bytes);
    g->told[bytes] = '\0';
    g->told_by = header->from;
    choir__ucx_wake(g);
}

ucs_status_t choir__ucx_on_message(void *arg, const void *header, size_t header_bytes,
    void *data, size_t bytes, const ucp_am_recv_param_t *param)
{
    choir__ucx_net *net = arg;
    choir__ucx_header h;
    if (header_bytes != sizeof h)
        return UCS_OK; /* not a message of Choir */
    memcpy(&h, header, sizeof h);
    if (h.kind >= CHOIR__UCX_KINDS || h.from < 0 || h.from >= net->world)
        return UCS_OK;
    choir__ucx *g = find_group(net, h.group);
    if (!g)
        return h.kind == CHOIR__UCX_WAITING
                   ? UCS_OK
                   : keep(&net->strangers, &h, data, bytes, param->recv_attr);
    if (h.from >= g->base.world)
        return UCS_OK;
    heard(g, &h);
    if (h.kind != CHOIR__UCX_DATA) {
        if (h.kind == CHOIR__UCX_FAILED && !(param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
            take_verdict(g, &h, data, bytes);
        else
            take_note(g, &h);
        return UCS_OK;
    }
    choir__ucx_op *op = posted(&g->peers[h.from], h.number);
    if (!op)
        return keep(&g->peers[h.from].early, &h, data, bytes, param->recv_attr);
    if (!check(op, &h, bytes)) {
        choir__ucx_op_free(net, op); /* the request stays open: the group has failed */
        return UCS_OK;
    }
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) {
        fetch(op, data);
        return UCS_INPROGRESS;
    }
    memcpy(op->data, data, bytes);
    choir__ucx_op_end(op, UCS_OK);
    return UCS_OK;
}

/* --- a group's beginning and end --- */

/* Adopts messages for this group that came before this rank had made it. */
void choir__ucx_adopt_strangers(choir__ucx *g)
{
    choir__ucx_early **at = &g->net->strangers, *early;
    while ((early = *at)) {
        if (early->header.group != g->id) {
            at = &early->next;
            continue;
        }
        *at = early->next;
        choir__ucx_peer *peer = &g->peers[early->header.from % g->base.world];
        heard(g, &early->header);
        if (early->header.kind == CHOIR__UCX_DATA) {
            early->next = peer->early;
            peer->early = early;
        } else {
            take_note(g, &early->header);
            choir__ucx_let_go(g->net, early);
        }
    }
}

void choir__ucx_forget(choir__ucx *g)
{
    for (int r = 0; r < g->base.world; r++)
        for (choir__ucx_early *early; (early = g->peers[r].early);) {
            g->peers[r].early = early->next;
            choir__ucx_let_go(g->net, early);
        }
}
