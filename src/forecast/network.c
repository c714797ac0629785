/* Prices one collective: makes the schedules that the ranks would run, loads every link with
 * the messages of each round, and walks the rounds with each rank's clock. Where there are
 * too many members, only the members of one node are walked. */
#include "forecast/network.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "comm/pattern/schedule.h"

enum {
    LINE = 64,            /* bytes: slices begin at multiples of it */
    MOST_MOVES = 2000000, /* beyond which one node stands for all */
    MOST_WALKED = 4096,   /* members */
};

typedef struct pricing {
    const choir__cluster *cluster;
    const choir__call_shape *call;
    choir__pattern_collective collective;
    int *nodes;                      /* (size) node of each member */
    int64_t groups[CHOIR__LEVELS];   /* groups of the dimension that share a component */
    choir__move_schedule *schedules; /* (walked) */
    int walked, rounds;
    size_t element; /* bytes of an element in a message */
    /* Loads of links, (walked, rounds) for each level, indexed by the first walked member of a
     * component; up: leaving it, down: entering it. */
    double *up[CHOIR__LEVELS], *down[CHOIR__LEVELS];
    int *head[CHOIR__LEVELS]; /* (walked) first walked member of each member's component */
} pricing;

static int64_t rank_of(const choir__call_shape *call, int64_t member)
{
    return call->group.ranks ? call->group.ranks[member]
                             : call->first + member * call->group.stride;
}

/* Returns the first member in member m's component of the level. heads: the heads of the
 * members before m. Members of a component follow each other, except in a listed group. */
static int head_of(const pricing *p, choir__level level, const int *heads, int m)
{
    const int64_t size = choir__cluster_component(p->cluster, level),
                  component = rank_of(p->call, m) / size;
    if (m && rank_of(p->call, m - 1) / size == component)
        return heads[m - 1];
    for (int k = 0; k < m && p->call->group.ranks; k++)
        if (heads[k] == k && rank_of(p->call, k) / size == component)
            return k;
    return m;
}

/* --- schedules --- */

/* Numbers the members' nodes in the order in which members name them, as engines do. */
static void number_nodes(pricing *p)
{
    const size_t bytes = (size_t)p->call->group.size * sizeof *p->nodes;
    int *heads = choir__alloc(bytes), count = 0;
    p->nodes = choir__alloc(bytes);
    for (int m = 0; m < (int)p->call->group.size; m++) {
        heads[m] = head_of(p, CHOIR__LEVEL_NODE, heads, m);
        p->nodes[m] = heads[m] == m ? count++ : p->nodes[heads[m]];
    }
    free(heads);
}

static void plan_of(pricing *p)
{
    const choir__call_shape *call = p->call;
    p->element = choir_dtype_size(call->dtype);
    number_nodes(p);
    p->collective = (choir__pattern_collective){.kind = call->kind,
        .algorithm = call->algorithm,
        .world = (int)call->group.size,
        .root = call->root,
        .count = call->count,
        .leaves = call->leaves,
        .node_stride = call->count,
        .align = (int)choir__max(LINE / (int64_t)p->element, 1),
        .in_place = true,
        .mean = true,
        .nodes = p->nodes};
    p->collective.algorithm = choir__move_schedule_choose(&p->collective, call->dtype);
    /* 16-bit partial sums of all algorithms but the exchange travel as f32. */
    if (p->element == 2 && p->collective.algorithm != CHOIR__EXCHANGE)
        p->element = 4;
}

static choir_status make_schedules(pricing *p, int members)
{
    p->schedules = choir__calloc((size_t)members, sizeof *p->schedules);
    for (int m = 0; m < members; m++) {
        p->collective.rank = m;
        choir_status status = choir__move_schedule_make(&p->collective, &p->schedules[m]);
        if (status)
            return status;
        p->walked = m + 1;
        p->rounds = (int)choir__max(p->rounds, p->schedules[m].rounds);
    }
    return CHOIR_OK;
}

static bool is_message(const choir__move *m)
{
    return m->kind == CHOIR__MOVE_SEND || m->kind == CHOIR__MOVE_RECEIVE;
}

static double bytes_of(const pricing *p, const choir__move *m)
{
    return p->call->kind == CHOIR__BARRIER ? 0 : (double)m->count * (double)p->element;
}

static choir__level level_of(const pricing *p, int a, int b)
{
    return choir__cluster_level(p->cluster, rank_of(p->call, a), rank_of(p->call, b));
}

/* Returns the lowest level whose links a message of the level takes. */
static int lowest_of(choir__level level)
{
    return level > CHOIR__LEVEL_NODE ? CHOIR__LEVEL_NODE : (int)level;
}

/* Returns the seconds of a rank's own work in a round: sums and copies in its memory. */
static double local_seconds(const pricing *p, const choir__move *m)
{
    double passes = 0;
    switch (m->kind) {
    case CHOIR__MOVE_COPY:
    case CHOIR__MOVE_RESCALE: passes = 2; break;
    case CHOIR__MOVE_COMBINE: passes = 3; break;
    case CHOIR__MOVE_REDUCE: passes = m->sources + 1; break;
    default: return 0;
    }
    const choir__device_model *d = &p->cluster->device;
    return passes * bytes_of(p, m) / (d->memory_bytes_s * d->memory_share);
}

/* Returns the seconds that `bytes` take over a component's link of the level. */
static double over_link(const pricing *p, int level, double bytes, double all)
{
    const choir__link *l = &p->cluster->links[level];
    const double rate = l->beta_bytes_s * l->share;
    double shared = all * (double)p->groups[level] / (rate * (double)l->ports);
    double alone = bytes / rate;
    return shared > alone ? shared : alone;
}

/* --- few members: all are walked --- */

/* Finds the first walked member of each component. */
static void find_heads(pricing *p)
{
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        p->head[level] = choir__alloc((size_t)p->walked * sizeof(int));
        for (int m = 0; m < p->walked; m++)
            p->head[level][m] = head_of(p, (choir__level)level, p->head[level], m);
    }
}

static double *load_of(pricing *p, double *const loads[], int level, int member, int round)
{
    return &loads[level][(size_t)p->head[level][member] * (size_t)p->rounds + (size_t)round];
}

static void add_loads(pricing *p, choir__call_cost *cost)
{
    size_t cells = (size_t)p->walked * (size_t)p->rounds;
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        p->up[level] = choir__calloc(cells, sizeof(double));
        p->down[level] = choir__calloc(cells, sizeof(double));
    }
    for (int rank = 0; rank < p->walked; rank++)
        for (int i = 0; i < p->schedules[rank].count; i++) {
            const choir__move *m = &p->schedules[rank].moves[i];
            if (m->kind != CHOIR__MOVE_SEND)
                continue;
            choir__level level = level_of(p, rank, m->peer);
            double bytes = bytes_of(p, m);
            cost->bytes[level] += bytes;
            for (int l = lowest_of(level); l <= (int)level; l++) {
                *load_of(p, p->up, l, rank, m->round) += bytes;
                *load_of(p, p->down, l, m->peer, m->round) += bytes;
            }
        }
}

/* Returns the seconds of a message of member `rank` without waiting. */
static double message_seconds(pricing *p, int rank, const choir__move *m)
{
    const bool sends = m->kind == CHOIR__MOVE_SEND;
    const int from = sends ? rank : m->peer, to = sends ? m->peer : rank;
    choir__level level = level_of(p, rank, m->peer);
    double slowest = 0;
    for (int l = lowest_of(level); l <= (int)level; l++) {
        double up = over_link(p, l, bytes_of(p, m), *load_of(p, p->up, l, from, m->round));
        double down = over_link(p, l, bytes_of(p, m), *load_of(p, p->down, l, to, m->round));
        slowest = up > slowest ? up : slowest;
        slowest = down > slowest ? down : slowest;
    }
    return p->cluster->links[level].alpha_s + slowest;
}

/* Runs one round of a member whose moves begin at *at. before: (walked) the times at which
 * members begin the round. Returns the time at which it is over. */
static double run_round(pricing *p, int rank, int round, int *at, const double *before)
{
    const choir__move_schedule *s = &p->schedules[rank];
    double until = before[rank], local = 0;
    for (; *at < s->count && s->moves[*at].round == round; (*at)++) {
        const choir__move *m = &s->moves[*at];
        if (!is_message(m)) {
            local += local_seconds(p, m);
            continue;
        }
        double begin = before[m->peer] > before[rank] ? before[m->peer] : before[rank];
        double end = begin + message_seconds(p, rank, m);
        until = end > until ? end : until;
    }
    return until + local;
}

static void walk_all(pricing *p, choir__call_cost *cost)
{
    double *now = choir__calloc((size_t)p->walked, sizeof *now),
           *next = choir__calloc((size_t)p->walked, sizeof *next);
    int *at = choir__calloc((size_t)p->walked, sizeof *at);
    find_heads(p);
    add_loads(p, cost);
    for (int round = 0; round < p->rounds; round++) {
        for (int rank = 0; rank < p->walked; rank++)
            next[rank] = run_round(p, rank, round, &at[rank], now);
        memcpy(now, next, (size_t)p->walked * sizeof *now);
    }
    for (int rank = 0; rank < p->walked; rank++)
        cost->seconds = now[rank] > cost->seconds ? now[rank] : cost->seconds;
    free(now);
    free(next);
    free(at);
}

/* --- many members: the first node's stand for all --- */

/* The messages of one node's members in a round. */
typedef struct round_load {
    double node[CHOIR__LEVELS]; /* bytes that all of them send, by level */
    double message;             /* the most bytes of one message that leaves the node */
    double device;              /* the most bytes inside the node that one sends or receives */
    double local_s;             /* the most of one member */
    int highest;                /* level of messages; -1: none */
} round_load;

static void note_member(pricing *p, int rank, round_load *rounds, choir__call_cost *cost)
{
    const choir__move_schedule *s = &p->schedules[rank];
    for (int i = 0; i < s->count;) {
        round_load *r = &rounds[s->moves[i].round];
        double sent = 0, received = 0, local = 0;
        for (const int round = s->moves[i].round; i < s->count && s->moves[i].round == round;
             i++) {
            const choir__move *m = &s->moves[i];
            local += local_seconds(p, m);
            if (!is_message(m))
                continue;
            const choir__level level = level_of(p, rank, m->peer);
            const double bytes = bytes_of(p, m);
            r->highest = (int)choir__max(r->highest, (int)level);
            if (level < CHOIR__LEVEL_NODE)
                *(m->kind == CHOIR__MOVE_SEND ? &sent : &received) += bytes;
            else if (bytes > r->message)
                r->message = bytes;
            if (m->kind == CHOIR__MOVE_SEND) {
                r->node[level] += bytes;
                cost->bytes[level] += bytes;
            }
        }
        r->device = sent > r->device ? sent : r->device;
        r->device = received > r->device ? received : r->device;
        r->local_s = local > r->local_s ? local : r->local_s;
    }
}

static double round_seconds(const pricing *p, const round_load *r)
{
    double slowest = 0, crossing = 0;
    if (r->highest < 0)
        return r->local_s;
    for (int level = CHOIR__LEVEL_SPINE; level >= CHOIR__LEVEL_NODE; level--) {
        crossing += r->node[level]; /* per node; a component of the level has several */
        double nodes = (double)choir__cluster_component(p->cluster, (choir__level)level) /
                       (double)p->cluster->devices_per_node;
        double seconds = crossing > 0 ? over_link(p, level, r->message, crossing * nodes) : 0;
        slowest = seconds > slowest ? seconds : slowest;
    }
    if (r->device > 0) {
        double seconds = over_link(p, CHOIR__LEVEL_CORE, 0, r->device);
        slowest = seconds > slowest ? seconds : slowest;
    }
    return p->cluster->links[r->highest].alpha_s + slowest + r->local_s;
}

static void walk_node(pricing *p, choir__call_cost *cost)
{
    round_load *rounds = choir__calloc((size_t)p->rounds + 1, sizeof *rounds);
    for (int r = 0; r < p->rounds; r++)
        rounds[r].highest = -1;
    for (int rank = 0; rank < p->walked; rank++)
        note_member(p, rank, rounds, cost);
    for (int r = 0; r < p->rounds; r++)
        cost->seconds += round_seconds(p, &rounds[r]);
    for (int level = 0; level < CHOIR__LEVELS; level++)
        cost->bytes[level] *= (double)p->collective.world / p->walked;
    free(rounds);
}

/* --- all together --- */

static void pricing_free(pricing *p)
{
    for (int m = 0; m < p->walked; m++)
        choir__move_schedule_free(&p->schedules[m]);
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        free(p->up[level]);
        free(p->down[level]);
        free(p->head[level]);
    }
    free(p->schedules);
    free(p->nodes);
}

/* Prices a message to a peer. */
static void price_message(
    const choir__cluster *c, const choir__call_shape *call, choir__call_cost *cost)
{
    choir__level level = choir__cluster_level(c, call->first, call->first + call->root);
    double slowest = 0;
    for (int l = lowest_of(level); l <= (int)level; l++) {
        /* All ranks of the component send at the same time, and at its border out of it. */
        const choir__link *link = &c->links[l];
        double senders = (double)choir__min(choir__cluster_component(c, (choir__level)l),
            call->root < 0 ? -call->root : call->root);
        double parts = senders > (double)link->ports ? senders / (double)link->ports : 1;
        double seconds = parts * choir__call_bytes(call) / (link->beta_bytes_s * link->share);
        slowest = seconds > slowest ? seconds : slowest;
    }
    *cost = (choir__call_cost){.seconds = c->links[level].alpha_s + slowest};
    cost->bytes[level] = choir__call_bytes(call);
}

static choir_status check_call(const choir__cluster *c, const choir__call_shape *call)
{
    int64_t last = rank_of(call, call->group.size - 1);
    for (int64_t m = 0; m < call->group.size && call->group.ranks; m++)
        last = choir__max(last, rank_of(call, m));
    if (call->kind == CHOIR__SEND || call->kind == CHOIR__RECEIVE)
        last = choir__max(call->first, call->first + call->root);
    if (call->group.size >= 1 && call->group.stride >= 1 && call->first >= 0 &&
        last < choir__cluster_devices(c))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: expected ranks of the cluster's %lld devices, got %lld ranks up to rank %lld",
        choir__kind_name(call->kind), (long long)choir__cluster_devices(c),
        (long long)call->group.size, (long long)last);
}

choir_status choir__network_price(
    const choir__cluster *cluster, const choir__call_shape *call, choir__call_cost *cost)
{
    pricing p = {.cluster = cluster, .call = call};
    choir_status status = check_call(cluster, call);
    *cost = (choir__call_cost){.algorithm = call->algorithm};
    if (status || call->group.size == 1)
        return status;
    if (call->kind == CHOIR__SEND || call->kind == CHOIR__RECEIVE) {
        price_message(cluster, call, cost);
        return CHOIR_OK;
    }
    if (call->algorithm == CHOIR__NATIVE && call->kind != CHOIR__BARRIER) {
        choir__network_price_native(cluster, call, cost);
        return CHOIR_OK;
    }
    int64_t local = 0;
    for (int level = 0; level < CHOIR__LEVELS; level++) {
        int64_t n =
            choir__group_members_in(cluster, call, (choir__level)level, &p.groups[level]);
        local = level == CHOIR__LEVEL_NODE ? n : local;
    }
    plan_of(&p);
    cost->algorithm = p.collective.algorithm;
    status = make_schedules(&p, 1);
    const double moves = status ? 0 : (double)p.schedules[0].count * (double)p.collective.world;
    const bool all = moves <= MOST_MOVES && p.collective.world <= MOST_WALKED;
    pricing_free(&p);
    plan_of(&p);
    if (!status)
        status = make_schedules(&p, all ? p.collective.world : (int)local);
    if (!status && all)
        walk_all(&p, cost);
    else if (!status)
        walk_node(&p, cost);
    pricing_free(&p);
    return status;
}
