/* A collective over messages: its data are cut into segments, and each segment's schedule runs
 * in one of a few lanes, a round at a time. Segments begin one after another, so that one lane
 * sends while another adds. A round's receives are posted before its sends, so that arriving
 * data find their place. */
#include "comm/message/message.h"

#include <string.h>

#include "comm/rows.h"

/* --- one lane --- */

static bool is_message(const choir__move *m)
{
    return m->kind == CHOIR__MOVE_SEND || m->kind == CHOIR__MOVE_RECEIVE;
}

static choir_status post_message(const choir__move_schedule_run *run, choir__lane *lane,
    const choir__move *m, const choir__stamp *stamp)
{
    choir__engine *engine = run->engine;
    choir__request *request = &lane->requests[lane->pending++];
    size_t bytes = (size_t)m->count * run->size;
    memset(request, 0, sizeof *request);
    if (m->kind == CHOIR__MOVE_RECEIVE)
        return engine->ops->receive(
            engine, m->peer, choir__lane_at(run, lane, m->to), bytes, stamp, request);
    return engine->ops->send(
        engine, m->peer, choir__lane_at(run, lane, m->from), bytes, stamp, request);
}

/* Posts the messages of the lane's next round; receives come first, so that arriving data find
 * their place. */
static choir_status post(const choir__move_schedule_run *run, choir__lane *lane)
{
    const choir__move_schedule *s = &lane->kept->schedule;
    int end = lane->next;
    while (end < s->count && s->moves[end].round == lane->round)
        end++;
    for (int sends = 0; sends < 2; sends++)
        for (int i = lane->next; i < end; i++) {
            const choir__move *m = &s->moves[i];
            if (!is_message(m) || (m->kind == CHOIR__MOVE_SEND) != sends)
                continue;
            choir_status status = post_message(run, lane, m, &run->call->stamp);
            if (status != CHOIR_OK)
                return status;
        }
    lane->local = lane->next;
    lane->local_end = lane->next = end;
    lane->round++;
    return CHOIR_OK;
}

/* Ends the lane's round and begins the next one. */
static choir_status step(const choir__move_schedule_run *run, choir__lane *lane)
{
    choir__engine *engine = run->engine;
    if (lane->pending) {
        choir_status status = engine->ops->wait(engine, lane->requests, lane->pending);
        if (status != CHOIR_OK)
            return status;
        lane->pending = 0;
    }
    choir__lane_local(run, lane);
    if (lane->next < lane->kept->schedule.count)
        return post(run, lane);
    if (run->wide)
        choir__lane_narrow(run, lane);
    lane->busy = false;
    return CHOIR_OK;
}

/* --- all lanes --- */

/* The segments of a call: `segments` of `each` elements, the last one of `rest`. */
typedef struct cut {
    int64_t segments, each, rest;
    const choir__message_kept *kept, *kept_rest;
    int64_t block; /* see choir__lane */
} cut;

static void begin(
    const choir__move_schedule_run *run, const cut *c, choir__lane *lane, int64_t segment)
{
    const choir__call *call = run->call;
    bool last = segment == c->segments - 1;
    lane->segment = segment;
    lane->busy = true;
    lane->round = lane->next = lane->local = lane->local_end = lane->pending = 0;
    lane->kept = last ? c->kept_rest : c->kept;
    lane->first = segment * c->each;
    lane->count = last ? c->rest : c->each;
    lane->block = c->block;
    if (run->wide) {
        choir__lane_widen(run, lane);
        return;
    }
    size_t at = (size_t)lane->first * run->size; /* avoids NULL + at */
    lane->in = call->in ? (const char *)call->in + at : NULL;
    lane->out = call->out ? (char *)call->out + at : NULL;
}

static choir_status run_lanes(
    const choir__move_schedule_run *run, const cut *c, choir__lane *lanes)
{
    int rounds =
        c->kept->rounds > c->kept_rest->rounds ? c->kept->rounds : c->kept_rest->rounds;
    int64_t stride = (rounds + CHOIR__LANES - 1) / CHOIR__LANES, first = 0;
    for (int64_t t = 0; first < c->segments; t++) {
        for (int64_t s = first; s < c->segments && s * stride <= t; s++) {
            choir__lane *lane = &lanes[s % CHOIR__LANES];
            if (s * stride == t)
                begin(run, c, lane, s);
            if (lane->segment != s || !lane->busy)
                continue; /* this rank finished it early */
            choir_status status = step(run, lane);
            if (status != CHOIR_OK)
                return status;
        }
        while (
            first < c->segments && first * stride <= t &&
            (lanes[first % CHOIR__LANES].segment != first || !lanes[first % CHOIR__LANES].busy))
            first++;
    }
    return CHOIR_OK;
}

static choir_status run_one(
    const choir__move_schedule_run *run, const cut *c, choir__lane *lane)
{
    begin(run, c, lane, 0);
    while (lane->busy) {
        choir_status status = step(run, lane);
        if (status != CHOIR_OK)
            return status;
    }
    return CHOIR_OK;
}

/* --- from a call to a run --- */

static bool adds(choir__kind kind)
{
    return kind == CHOIR__REDUCE || kind == CHOIR__ALL_REDUCE ||
           kind == CHOIR__REDUCE_SCATTER || kind == CHOIR__TREE_REDUCE;
}

/* Returns true if this rank's data and its result share memory. */
static bool in_place(const choir__engine *engine, const choir__call *call, size_t size)
{
    const char *in = call->in, *out = call->out;
    size_t mine = (size_t)engine->rank * (size_t)call->stamp.count * size;
    switch (choir__carried_as((choir__kind)call->stamp.kind)) {
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER: return out && in == out + mine;
    case CHOIR__SCATTER:
    case CHOIR__REDUCE_SCATTER: return in && out == in + mine;
    default: return in == out;
    }
}

/* Returns the number of elements per segment, so that its messages have CHOIR__SEGMENT_MESSAGE
 * bytes. It depends only on facts that all ranks share, because all must cut alike. */
static int64_t segment_count(
    const choir__move_schedule_run *run, const choir__pattern_collective *collective)
{
    if (collective->algorithm == CHOIR__DOUBLE_TREE)
        return collective->count; /* a double tree sends pieces already */
    bool sliced =
        collective->algorithm == CHOIR__EXCHANGE || collective->algorithm == CHOIR__RING;
    int64_t parts = 1, bytes = collective->count * (int64_t)run->size;
    switch (collective->kind) {
    case CHOIR__ALL_REDUCE:
    case CHOIR__REDUCE:
    case CHOIR__TREE_REDUCE:
    case CHOIR__BROADCAST: parts = sliced ? collective->world : 1; break;
    case CHOIR__REDUCE_SCATTER:
        if (sliced)
            break;
        return collective->count;
    default: return collective->count;
    }
    int64_t segment = CHOIR__SEGMENT_MESSAGE * parts;
    int64_t segments = (bytes + segment - 1) / segment;
    if (segments < 2 || collective->world < 2)
        return collective->count;
    int64_t each = (collective->count + segments - 1) / segments;
    return (each + collective->align - 1) / collective->align * collective->align;
}

static choir_status cut_up(
    const choir__move_schedule_run *run, choir__pattern_collective *collective, cut *c)
{
    const int64_t count = collective->count;
    c->each = segment_count(run, collective);
    c->segments = c->each ? (count + c->each - 1) / c->each : 1;
    c->rest = count - (c->segments - 1) * c->each;
    bool several = c->segments > 1;
    c->block = collective->kind == CHOIR__REDUCE_SCATTER && several && !run->wide ? count : 0;
    collective->count =
        c->rest; /* first, so that the main schedule is the more recently used one */
    choir_status status =
        choir__message_schedule(run->engine, collective, several, &c->kept_rest);
    collective->count = c->each;
    if (status == CHOIR_OK)
        status = choir__message_schedule(run->engine, collective, several, &c->kept);
    collective->count = count;
    return status;
}

static choir__pattern_collective collective_of(const choir__move_schedule_run *run)
{
    const choir__engine *engine = run->engine;
    const choir__call *call = run->call;
    const choir__stamp *stamp = &call->stamp;
    const choir__kind kind = (choir__kind)stamp->kind;
    bool tree = kind == CHOIR__TREE_REDUCE;
    bool rooted = kind == CHOIR__BROADCAST || kind == CHOIR__REDUCE || kind == CHOIR__GATHER ||
                  kind == CHOIR__SCATTER;
    choir__pattern_collective collective = {.kind = choir__carried_as(kind),
        .algorithm = (choir__algorithm)stamp->algorithm,
        .rank = engine->rank,
        .world = engine->world,
        .root = rooted ? choir__engine_rank(engine, stamp->root) : 0,
        .count = (int64_t)stamp->count,
        .leaves = tree ? stamp->leaves : 0,
        .node_stride = (int64_t)(call->node_stride / run->size),
        .align = (int)(64 / run->size),
        .in_place = run->in_place,
        .mean = tree ? call->scale != 1 : run->scale != 1,
        .in_counts = call->in_counts,
        .out_counts = call->out_counts,
        .nodes = run->executor->nodes};
    collective.algorithm = choir__move_schedule_choose(&collective, (choir_dtype)stamp->dtype);
    return collective;
}

/* Sets the arithmetic of the additions, and the factor of a complete sum. */
static choir_status arithmetic(choir__move_schedule_run *run)
{
    const choir__stamp *stamp = &run->call->stamp;
    run->size = choir_dtype_size((choir_dtype)stamp->dtype);
    run->scale = 1;
    run->divisor = 1;
    if (!adds((choir__kind)stamp->kind))
        return CHOIR_OK;
    run->arith = choir__arith_find((choir_dtype)stamp->dtype, (choir_reduce_op)stamp->op);
    if (!run->arith)
        return choir__engine_fail(run->engine, CHOIR_ERR_DTYPE, "%s: %s have no operation %d",
            choir__kind_name((choir__kind)stamp->kind),
            choir_dtype_name((choir_dtype)stamp->dtype), stamp->op);
    if (stamp->op == CHOIR_MEAN) {
        run->scale = 1.0 / run->engine->world;
        run->divisor = run->engine->world;
    }
    if (stamp->kind == CHOIR__TREE_REDUCE)
        run->scale = run->call->scale;
    return CHOIR_OK;
}

/* Chooses the type in which partial sums travel. The exchange adds everything at once; with
 * other algorithms partial sums travel in the type in which they are added. */
static void widen(choir__move_schedule_run *run, choir__pattern_collective *collective)
{
    if (!run->arith || !run->arith->wide || collective->algorithm == CHOIR__EXCHANGE ||
        collective->world == 1)
        return;
    run->wide = run->arith;
    run->arith = run->wide->wide;
    run->size = run->arith->size;
    collective->align = (int)(64 / run->size);
    if (collective->kind == CHOIR__REDUCE_SCATTER)
        collective->in_place = run->in_place = false;
}

/* Returns the bytes of times * elements elements in whole cache lines; SIZE_MAX / 64 if that is
 * more than can exist. */
static size_t room_for(int64_t elements, int64_t times, size_t size)
{
    const size_t most = SIZE_MAX / 64;
    size_t n = (size_t)elements, k = (size_t)times;
    if (n && k && n > most / size / k)
        return most;
    return (n * k * size + 63) / 64 * 64;
}

/* Distributes memory to as many lanes as have work.
 *
 *   | partial sums of one block | scratch of lane 0 | widened in | widened out | lane 1 ... */
static choir_status settle(choir__move_schedule_run *run, const cut *c, choir__lane *lanes)
{
    int count = (int)choir__min(CHOIR__LANES, c->segments);
    const choir__message_kept *k = c->kept, *rest = c->kept_rest;
    int most = k->most > rest->most ? k->most : rest->most;
    int64_t elements = choir__max(k->schedule.scratch, rest->schedule.scratch);
    size_t scratch = room_for(elements, 1, run->size), wide_in = 0, wide_out = 0;
    if (run->wide) {
        bool blocks = run->call->stamp.kind == CHOIR__REDUCE_SCATTER;
        wide_out = room_for(c->each, 1, run->size);
        if (!run->in_place)
            wide_in = room_for(c->each, blocks ? run->engine->world : 1, run->size);
    }
    size_t partial = run->arith ? CHOIR__REDUCE_SCRATCH : 0;
    size_t lane = scratch + wide_in + wide_out;
    char *memory = choir__executor_memory(run->engine, partial + (size_t)count * lane);
    if (!memory && partial + (size_t)count * lane)
        return run->engine->failed;
    choir__request *requests = choir__executor_requests(run->executor, count * most);
    run->partial = memory;
    for (int i = 0; i < count; i++) {
        char *own = memory + partial + (size_t)i * lane;
        lanes[i] = (choir__lane){.segment = -1,
            .scratch = own,
            .wide_out = own + scratch,
            .wide_in = own + scratch + (wide_in ? wide_out : 0),
            .requests = requests + (ptrdiff_t)i * most};
    }
    return CHOIR_OK;
}

/* Runs a call by its schedule over the engine's messages. */
static choir_status carry(choir__engine *engine, const choir__call *call)
{
    choir__lane lanes[CHOIR__LANES];
    choir__move_schedule_run run = {.engine = engine, .call = call};
    cut c;
    run.executor = choir__executor_of(engine);
    if (arithmetic(&run) != CHOIR_OK)
        return engine->failed;
    run.in_place = in_place(engine, call, run.size);
    choir__pattern_collective collective = collective_of(&run);
    widen(&run, &collective);
    choir_status status = cut_up(&run, &collective, &c);
    if (status != CHOIR_OK)
        return choir__engine_fail(engine, status, "%s", choir__message());
    if (settle(&run, &c, lanes) != CHOIR_OK)
        return engine->failed;
    return c.segments > 1 ? run_lanes(&run, &c, lanes) : run_one(&run, &c, lanes);
}

choir_status choir__message_run(choir__engine *engine, const choir__call *call)
{
    if (engine->failed != CHOIR_OK)
        return engine->failed;
    switch ((choir__kind)call->stamp.kind) {
    case CHOIR__SEND:
    case CHOIR__RECEIVE: return choir__message_batch(engine, call, 1);
    case CHOIR__TREE_SCATTER:
    case CHOIR__GATHER_ROWS: return choir__rows_run(engine, call, carry);
    default: return carry(engine, call);
    }
}
