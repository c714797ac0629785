/* The engine "ucx": groups between machines, and their sub-groups.
 *
 * It moves messages; comm/message runs the collectives' schedules over them. */
#include "comm/ucx/ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/plugin.h"

static void close_engine(choir__engine *engine)
{
    choir__ucx *g = (choir__ucx *)engine, **at;
    choir__ucx_net *net = g->net;
    pthread_mutex_lock(&net->lock);
    if (engine->failed != CHOIR_OK)
        choir__ucx_abandon(g);
    for (int r = 0; r < engine->world; r++)
        if (r != engine->rank && !g->peers[r].left)
            choir__ucx_tell(g, r, CHOIR__UCX_BYE);
    choir__ucx_forget(g);
    for (at = &net->groups; *at != g; at = &(*at)->next)
        ;
    *at = g->next;
    bool last = !net->groups;
    /* Goodbyes in progress refer to the group, so it waits until they have been sent. */
    double until = choir__now() + 1;
    while (g->under_way && choir__now() < until)
        ucp_worker_progress(net->worker);
    bool stuck = g->under_way != NULL;
    if (stuck)
        choir__ucx_abandon(g);
    pthread_mutex_unlock(&net->lock);
    if (last)
        choir__ucx_net_close(net, engine->failed == CHOIR_OK && !stuck);
    close(g->wake_fd);
    free(g->peers);
    choir__engine_free(engine);
}

static const choir__engine_ops ops;

/* Makes the group of ranks (of net), whose id is equal on all of them. */
static choir__engine *make(choir__ucx_net *net, uint64_t id, int rank, int world,
    double timeout_s, const int *net_ranks)
{
    choir__ucx *g = choir__calloc(1, sizeof *g);
    g->base = (choir__engine){
        .ops = &ops, .rank = rank, .world = world, .timeout_s = timeout_s, .nodes = 1};
    g->net = net;
    g->id = id;
    g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    snprintf(g->prefix, sizeof g->prefix, "%s/%016llx", net->prefix, (unsigned long long)id);
    g->peers = choir__calloc((size_t)world, sizeof *g->peers);
    for (int r = 0; r < world; r++)
        g->peers[r].net_rank = net_ranks ? net_ranks[r] : r;
    pthread_mutex_lock(&net->lock);
    g->next = net->groups;
    net->groups = g;
    choir__ucx_adopt_strangers(g);
    pthread_mutex_unlock(&net->lock);
    return &g->base;
}

/* The finalizer of splitmix64: every bit of the result depends on every bit of x. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Sends nothing: the id follows from the parent's id, the split's number and the color. */
static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    choir__ucx *g = (choir__ucx *)engine;
    uint64_t id = mix(g->id + mix((uint64_t)engine->seq << 32 | (uint32_t)color));
    int *net_ranks = choir__calloc((size_t)count, sizeof *net_ranks);
    for (int i = 0; i < count; i++)
        net_ranks[i] = g->peers[ranks[i]].net_rank;
    *child = make(g->net, id, rank, count, engine->timeout_s, net_ranks);
    (*child)->members = choir__members_of(engine->members, ranks, count, &(*child)->nodes);
    free(net_ranks);
    return CHOIR_OK;
}

static choir_status fail(choir__engine *engine, choir_status status, const char *sentence)
{
    choir__ucx *g = (choir__ucx *)engine;
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    choir__ucx_fail(g, status, "%s", sentence);
    pthread_mutex_lock(&g->net->lock);
    choir__ucx_spread(g);
    choir__ucx_abandon(g);
    pthread_mutex_unlock(&g->net->lock);
    return engine->failed;
}

/* Acts as if a peer had sent its failure: this rank's waiters adopt it as the verdict, and the
 * peers are notified. */
static void abort_calls(choir__engine *engine, choir_status status, const char *sentence)
{
    choir__ucx *g = (choir__ucx *)engine;
    pthread_mutex_lock(&g->net->lock);
    if (engine->failed == CHOIR_OK && !*g->told) {
        snprintf(g->told, sizeof g->told, "%d %.500s", (int)status, sentence);
        g->told_by = engine->rank;
        if (!*g->sentence)
            memcpy(g->sentence, g->told, sizeof g->sentence);
        choir__ucx_spread(g);
        choir__ucx_wake(g);
    }
    pthread_mutex_unlock(&g->net->lock);
}

static const choir__engine_ops ops = {
    .name = "ucx",
    .close = close_engine,
    .run = choir__message_run,
    .run_batch = choir__message_batch,
    .split = split,
    .send = choir__ucx_send,
    .receive = choir__ucx_receive,
    .wait = choir__ucx_wait,
    .fail = fail,
    .abort = abort_calls,
    .look = choir__ucx_look,
};

choir_status choir__plugin_open(choir__meeting *meeting, choir__engine **engine)
{
    choir__ucx_net *net;
    meeting->consulted = true;
    choir_status status = choir__ucx_net_open(meeting, &net);
    if (status != CHOIR_OK)
        return status;
    *engine = make(net, 1, meeting->rank, meeting->world, meeting->timeout_s, NULL);
    (*engine)->nodes = meeting->nodes;
    if (meeting->members) {
        size_t bytes = (size_t)meeting->world * sizeof *meeting->members;
        (*engine)->members = memcpy(choir__alloc(bytes), meeting->members, bytes);
    }
    return CHOIR_OK;
}
