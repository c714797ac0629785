/* Opening and closing a net. A net is crowded if this machine has more ranks than cores:
 * waiters then give their core away. Closing flushes sent messages for a few seconds, if no
 * peer was lost, and closes endpoints by force otherwise. */
#include "comm/ucx/ucx.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { CLOSE_S = 5 }; /* how long sent messages may take to leave */

static bool is_crowded(const choir__meeting *meeting)
{
    cpu_set_t cores;
    int here = 0;
    for (int r = 0; r < meeting->world; r++)
        here += meeting->members[r].node == meeting->members[meeting->rank].node;
    return sched_getaffinity(0, sizeof cores, &cores) == 0 && here > CPU_COUNT(&cores);
}

choir_status choir__ucx_net_open(const choir__meeting *meeting, choir__ucx_net **made)
{
    choir_status status;
    choir__ucx_net *net;
    if (meeting->world > 1 && (!meeting->store || !meeting->members))
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "backend 'ucx' meets by tcp://host:port, file://path or env:// with MASTER_ADDR: "
            "the name of a job alone is for 'shm'");
    net = choir__calloc(1, sizeof *net);
    pthread_mutex_init(&net->lock, NULL);
    net->rank = meeting->rank;
    net->world = meeting->world;
    net->store = meeting->store;
    net->dead_rank = -1;
    net->far = choir__calloc((size_t)net->world, sizeof *net->far);
    for (int r = 0; r < net->world; r++)
        net->far[r].pid_fd = -1;
    status = choir__ucx_make_worker(net, meeting->nodes);
    if (status == CHOIR_OK && net->world > 1) {
        net->crowded = is_crowded(meeting);
        status = choir__ucx_join(net, meeting);
    }
    if (status != CHOIR_OK)
        choir__ucx_net_close(net, false);
    else
        *made = net;
    return status;
}

/* --- closing --- */

static void close_endpoints(choir__ucx_net *net, bool in_order)
{
    const ucp_request_param_t none = {0};
    double until = choir__now() + CLOSE_S;
    if (in_order && !net->losses)
        choir__ucx_progress_until(net, ucp_worker_flush_nbx(net->worker, &none), until);
    for (int r = 0; r < net->world; r++) {
        bool by_force = !in_order || net->far[r].lost != UCS_OK;
        choir__ucx_progress_until(
            net, choir__ucx_close_endpoint(&net->far[r], by_force), until);
    }
}

void choir__ucx_net_close(choir__ucx_net *net, bool in_order)
{
    if (net->worker) {
        close_endpoints(net, in_order);
        for (choir__ucx_early *early; (early = net->strangers);) {
            net->strangers = early->next;
            choir__ucx_let_go(net, early);
        }
        ucp_worker_destroy(net->worker);
    }
    if (net->context)
        ucp_cleanup(net->context);
    for (int r = 0; r < net->world; r++)
        if (net->far[r].pid_fd >= 0)
            close(net->far[r].pid_fd);
    for (choir__ucx_op *op; (op = net->free_ops);) {
        net->free_ops = op->next;
        free(op);
    }
    pthread_mutex_destroy(&net->lock);
    free(net->far);
    free(net);
}
