/* The engine of dry ranks (world.h): calls on memory of dry devices are only counted, and calls
 * on host memory are carried out between the ranks that live. */
#include "comm/dry/dry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/dry/exchange.h"
#include "comm/rows.h"
#include "comm/shared.h"
#include "device/dry/dry.h"

typedef struct dry_engine {
    choir__engine base;
    choir__dry_room *room;
    int splits;
} dry_engine;

static choir__dry_room *room_of(const choir__engine *engine)
{
    return ((const dry_engine *)engine)->room;
}

static void close_dry(choir__engine *engine)
{
    choir__dry_leave(room_of(engine));
    choir__engine_free(engine);
}

static choir_status meet(choir__engine *engine, const choir__call *call,
    void (*perform)(const choir__dry_room *room))
{
    char sentence[512];
    choir_status status =
        choir__dry_meet(room_of(engine), engine->rank, call, perform, sentence);
    return status == CHOIR_OK ? status : choir__engine_fail(engine, status, "%s", sentence);
}

/* Returns whether the call's data are on the host. Rows and the tree's nodes never are. */
static bool is_of_host(const choir__call *call)
{
    return !call->rows && (call->in || call->out) && !choir__is_dry(call->in) &&
           !choir__is_dry(call->out) && call->stamp.kind != CHOIR__TREE_REDUCE;
}

static choir_status run(choir__engine *engine, const choir__call *call)
{
    return is_of_host(call) ? meet(engine, call, choir__dry_exchange) : CHOIR_OK;
}

/* Messages of host memory arrive as zeros: no step sends any. */
static choir_status run_batch(choir__engine *engine, const choir__call *calls, int count)
{
    (void)engine;
    for (int i = 0; i < count; i++)
        if (calls[i].stamp.kind == CHOIR__RECEIVE && !choir__is_dry(calls[i].out))
            memset(calls[i].out, 0,
                (size_t)calls[i].stamp.count *
                    choir_dtype_size((choir_dtype)calls[i].stamp.dtype));
    return CHOIR_OK;
}

/* Takes every call, since none needs staging memory. */
static bool takes(const choir__engine *engine, const choir__call *call)
{
    (void)engine, (void)call;
    return true;
}

static void unmap(choir__shared *shared)
{
    (void)shared;
}

/* Makes the regions of the members that live. No task touches another region. */
static choir_status share(choir__engine *engine, size_t bytes, choir__shared **made)
{
    const choir__dry_room *room = room_of(engine);
    uint64_t mine = bytes, *all = choir__calloc((size_t)room->living, sizeof *all);
    const choir__call gather = {
        .stamp = {.count = 1, .kind = CHOIR__ALL_GATHER, .dtype = CHOIR_I64},
        .in = &mine,
        .out = all};
    choir_status status = meet(engine, &gather, choir__dry_exchange_living);
    if (status == CHOIR_OK) {
        choir__shared *s = *made = choir__shared_make(engine, room->members, room->living);
        s->unmap = unmap;
        for (int i = 0; i < room->living; i++)
            s->regions[i] = (struct choir__shared_region){
                all[i] ? choir__dry_addresses(all[i]) : NULL, all[i]};
    }
    free(all);
    return status;
}

static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child);

static const choir__engine_ops dry_ops = {.name = "dry",
    .close = close_dry,
    .run = run,
    .run_batch = run_batch,
    .split = split,
    .takes = takes,
    .share = share};

static choir__engine *new_engine(choir__dry_room *room, int rank, double timeout_s)
{
    dry_engine *e = choir__calloc(1, sizeof *e);
    e->base = (choir__engine){.ops = &dry_ops,
        .rank = rank,
        .world = room->count,
        .timeout_s = timeout_s,
        .nodes = 1};
    e->room = room;
    return &e->base;
}

static choir_status split(choir__engine *engine, const int *ranks, int count, int rank,
    int color, choir__engine **child)
{
    dry_engine *e = (dry_engine *)engine;
    choir__dry_room *room =
        choir__dry_enter(e->room->world, e->room, ranks, count, e->splits++, color);
    *child = new_engine(room, rank, engine->timeout_s);
    return CHOIR_OK;
}

bool choir__is_dry_engine(const choir__engine *engine)
{
    return engine->ops == &dry_ops;
}

const int *choir__dry_members(const choir__engine *engine)
{
    return room_of(engine)->ranks;
}

/* --- opening --- */

bool choir__dry_named(const char *backend)
{
    return backend && !strcmp(backend, dry_ops.name);
}

static int number_in(const char *name, int given, int otherwise)
{
    const char *text = getenv(name);
    return given >= 0 ? given : text ? atoi(text) : otherwise;
}

choir_status choir__dry_open(const choir_group_opts *opts, choir__engine **engine)
{
    int rank, world;
    choir__dry_world *w = choir__dry_here(&rank);
    if (w) {
        world = choir__dry_count(w);
    } else {
        rank = number_in("RANK", opts->rank, 0);
        world = number_in("WORLD_SIZE", opts->world, 1);
        if (world < 1 || rank < 0 || rank >= world)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "dry ranks: expected a rank below the world's size, got rank %d of %d", rank,
                world);
        w = choir__dry_alone(rank, world);
    }
    choir__dry_room *room = choir__dry_enter(w, NULL, NULL, world, 0, 0);
    *engine = new_engine(room, rank, opts->timeout_s);
    return CHOIR_OK;
}
