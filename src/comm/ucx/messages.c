/* Sending and receiving. A message has a number per pair and group, and goes out at once. A
 * receive takes the message of its number if it has come early, else it joins its peer's queue,
 * where match.c finds it. */
#include "comm/ucx/ucx.h"

#include <string.h>

/* --- sending --- */

static ucs_status_ptr_t post(choir__ucx *g, choir__ucx_op *op, const void *data, size_t bytes)
{
    choir__ucx_far *far = &g->net->far[g->peers[op->peer].net_rank];
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        .cb.send = choir__ucx_on_sent,
        .user_data = op,
    };
    if (far->lost != UCS_OK)
        return UCS_STATUS_PTR(far->lost);
    return ucp_am_send_nbx(far->ep, 0, &op->header, sizeof op->header, data, bytes, &param);
}

static void launch(choir__ucx *g, choir__ucx_op *op, const void *data, size_t bytes)
{
    choir__ucx_op_depart(op);
    ucs_status_ptr_t sent = post(g, op, data, bytes);
    if (UCS_PTR_IS_PTR(sent))
        return;
    choir__ucx_op_arrive(op);
    choir__ucx_op_end(op, UCS_PTR_STATUS(sent));
}

choir_status choir__ucx_send(choir__engine *engine, int peer, const void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    choir__ucx *g = (choir__ucx *)engine;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    pthread_mutex_lock(&g->net->lock);
    choir__ucx_op *op = choir__ucx_op_take(g, peer, request);
    op->header = (choir__ucx_header){.group = g->id,
        .stamp = *stamp,
        .number = g->peers[peer].sent++,
        .from = engine->rank,
        .kind = CHOIR__UCX_DATA};
    g->now = *stamp;
    launch(g, op, data, bytes);
    pthread_mutex_unlock(&g->net->lock);
    atomic_fetch_add_explicit(&engine->bytes, bytes, memory_order_relaxed);
    return CHOIR_OK;
}

void choir__ucx_tell(choir__ucx *g, int peer, choir__ucx_kind kind)
{
    choir__request nobody;
    choir__ucx_op *op = choir__ucx_op_take(g, peer, &nobody);
    op->request = NULL;
    op->header = (choir__ucx_header){.group = g->id,
        .stamp = g->now,
        .number = g->peers[peer].sent,
        .from = g->base.rank,
        .kind = kind};
    bool text = kind == CHOIR__UCX_FAILED;
    launch(g, op, text ? g->sentence : NULL, text ? strlen(g->sentence) : 0);
}

/* --- receiving --- */

static void queue_up(choir__ucx_peer *peer, choir__ucx_op *op)
{
    if (peer->receives_first)
        peer->receives_last->next = op;
    else
        peer->receives_first = op;
    peer->receives_last = op;
}

choir_status choir__ucx_receive(choir__engine *engine, int peer, void *data, size_t bytes,
    const choir__stamp *stamp, choir__request *request)
{
    choir__ucx *g = (choir__ucx *)engine;
    choir__ucx_peer *from = &g->peers[peer];
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    pthread_mutex_lock(&g->net->lock);
    choir__ucx_op *op = choir__ucx_op_take(g, peer, request);
    op->data = data;
    op->bytes = bytes;
    op->header.number = from->posted++;
    op->header.stamp = *stamp;
    g->now = *stamp;
    if (!choir__ucx_take_early(g, op))
        queue_up(from, op);
    pthread_mutex_unlock(&g->net->lock);
    return CHOIR_OK;
}
