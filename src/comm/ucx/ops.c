/* Operations: the sends and receives of a group, in progress or still waiting for UCX. */
#include "comm/ucx/ucx.h"

#include <unistd.h>

choir__ucx_op *choir__ucx_op_take(choir__ucx *g, int peer, choir__request *request)
{
    choir__ucx_op *op = g->net->free_ops;
    if (op)
        g->net->free_ops = op->next;
    else
        op = choir__alloc(sizeof *op);
    *op = (choir__ucx_op){.group = g, .peer = peer, .request = request};
    *request = (choir__request){.handle = op, .peer = peer};
    return op;
}

void choir__ucx_op_free(choir__ucx_net *net, choir__ucx_op *op)
{
    op->next = net->free_ops;
    net->free_ops = op;
}

void choir__ucx_op_depart(choir__ucx_op *op)
{
    choir__ucx *g = op->group;
    op->matched = true;
    op->before = NULL;
    op->next = g->under_way;
    if (op->next)
        op->next->before = op;
    g->under_way = op;
}

void choir__ucx_op_arrive(choir__ucx_op *op)
{
    if (op->before)
        op->before->next = op->next;
    else
        op->group->under_way = op->next;
    if (op->next)
        op->next->before = op->before;
}

void choir__ucx_wake(choir__ucx *g)
{
    static const uint64_t one = 1;
    if (g->sleeping && write(g->wake_fd, &one, sizeof one) < 0)
        return; /* the counter is full, so the waiter wakes up anyway */
}

/* A lost peer's requests stay open: their waiters find out the reason. */
void choir__ucx_op_end(choir__ucx_op *op, ucs_status_t status)
{
    choir__ucx *g = op->group;
    choir__ucx_net *net = g->net;
    if (status != UCS_OK && op->request) {
        choir__ucx_far *far = &net->far[g->peers[op->peer].net_rank];
        if (far->lost == UCS_OK) {
            far->lost = status;
            net->losses++;
        }
    } else if (op->request) {
        op->request->done = true;
    }
    choir__ucx_wake(g);
    choir__ucx_op_free(net, op);
}

void choir__ucx_on_sent(void *ucx_request, ucs_status_t status, void *arg)
{
    choir__ucx_op *op = arg;
    ucp_request_free(ucx_request);
    choir__ucx_op_arrive(op);
    choir__ucx_op_end(op, status);
}

void choir__ucx_on_received(void *ucx_request, ucs_status_t status, size_t bytes, void *arg)
{
    (void)bytes;
    choir__ucx_on_sent(ucx_request, status, arg);
}

void choir__ucx_abandon(choir__ucx *g)
{
    choir__ucx_net *net = g->net;
    for (int r = 0; r < g->base.world; r++) {
        choir__ucx_peer *peer = &g->peers[r];
        for (choir__ucx_op *op; (op = peer->receives_first);) {
            peer->receives_first = op->next;
            choir__ucx_op_free(net, op);
        }
    }
    /* UCX accesses the memory of these operations until their endpoint is closed. */
    for (choir__ucx_op *op = g->under_way; op; op = op->next)
        op->request = NULL;
    double until = choir__now() + 2;
    while (g->under_way && choir__now() < until) {
        choir__ucx_drop(net, g->peers[g->under_way->peer].net_rank);
        for (int i = 0; i < 100 && g->under_way; i++)
            ucp_worker_progress(net->worker);
    }
}
