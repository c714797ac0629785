/* The public collectives: each checks its arguments and issues a call. */
#include <choir/group.h>

#include <stdlib.h>
#include <string.h>

#include "comm/issue.h"
#include "comm/reduce.h"

/* --- what can be wrong with a call --- */

static choir_status check_count(const char *name, int64_t count, choir_dtype dtype, int parts)
{
    if ((unsigned)dtype >= CHOIR_DTYPE_COUNT)
        return choir__error(CHOIR_ERR_DTYPE, "%s: unknown element type %d", name, (int)dtype);
    int64_t most = INT64_MAX / (int64_t)choir_dtype_size(dtype) / parts;
    if (count < 0 || count > most)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: expected 0 to %lld elements, got %lld",
            name, (long long)most, (long long)count);
    return CHOIR_OK;
}

static choir_status check_data(const char *name, const void *data, int64_t count)
{
    return data || !count ? CHOIR_OK
                          : choir__error(CHOIR_ERR_ARGUMENT, "%s of %lld elements at NULL",
                                name, (long long)count);
}

static choir_status check_op(const char *name, choir_dtype dtype, choir_reduce_op op)
{
    if ((unsigned)op >= CHOIR_REDUCE_OP_COUNT)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: unknown operation %d", name, (int)op);
    if (!choir__arith_find(dtype, op))
        return choir__error(CHOIR_ERR_DTYPE, "%s%s: expected %s, got %s", name,
            choir__reduce_op_text(op),
            op >= CHOIR_BAND && op <= CHOIR_BXOR ? "integers"
                                                 : "a dtype that has the operation",
            choir_dtype_name(dtype));
    return CHOIR_OK;
}

static choir_status check_peer(const choir_group *group, const char *name, int peer)
{
    int world = choir_group_world(group);
    return peer >= 0 && peer < world
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "%s: expected a rank from 0 to %d, got %d",
                     name, world - 1, peer);
}

/* The stamp that all collectives begin with; status reports an invalid or missing argument. */
typedef struct draft {
    choir_group *group;
    choir__call call;
    choir_status status;
} draft;

/* function: the caller, for the message if there is no group. */
static draft begin(const char *function, choir_group *group, choir__kind kind, int64_t count,
    choir_dtype dtype, bool parts)
{
    const char *name = choir__kind_name(kind);
    draft d = {group, {.stamp = {.count = (uint64_t)count, .kind = (uint8_t)kind}}, CHOIR_OK};
    if (!group) {
        d.status = choir__missing(function, "group");
        return d;
    }
    d.status = check_count(name, count, dtype, parts ? choir_group_world(group) : 1);
    d.call.stamp.dtype = (uint8_t)dtype;
    d.call.stamp.layout = group->expected;
    group->expected = 0;
    return d;
}

static void reduces(draft *d, choir_reduce_op op)
{
    const choir__stamp *s = &d->call.stamp;
    if (d->status == CHOIR_OK)
        d->status = check_op(choir__kind_name((choir__kind)s->kind), (choir_dtype)s->dtype, op);
    d->call.stamp.op = (uint8_t)op;
}

static void has_peer(draft *d, int peer)
{
    if (d->status == CHOIR_OK)
        d->status =
            check_peer(d->group, choir__kind_name((choir__kind)d->call.stamp.kind), peer);
    d->call.stamp.peer = peer;
}

static void has_root(draft *d, int root)
{
    has_peer(d, root);
    d->call.stamp.root = root;
}

/* Sets the addresses of the data; in_used and out_used say which of them this rank needs. */
static void lies_at(draft *d, const void *in, bool in_used, void *out, bool out_used)
{
    const char *name = choir__kind_name((choir__kind)d->call.stamp.kind);
    int64_t count = (int64_t)d->call.stamp.count;
    if (d->status == CHOIR_OK && in_used)
        d->status = check_data(name, in, count);
    if (d->status == CHOIR_OK && out_used)
        d->status = check_data(name, out, count);
    d->call.in = in;
    d->call.out = out;
}

static choir_status issue(const draft *d, choir_work *work)
{
    return d->status != CHOIR_OK ? d->status : choir__group_issue(d->group, &d->call, work);
}

static bool is_root(const draft *d, int root)
{
    return d->status == CHOIR_OK && choir_group_rank(d->group) == root;
}

void choir__group_expect(choir_group *group, uint16_t shape, bool gradient)
{
    group->expected = (uint32_t)(CHOIR__TENSOR_MARK + gradient) << 16 | shape;
}

/* --- the calls --- */

choir_status choir_group_barrier(choir_group *group, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__BARRIER, 0, CHOIR_U8, false);
    return issue(&d, work);
}

choir_status choir_group_broadcast(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, int root, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__BROADCAST, count, dtype, false);
    has_root(&d, root);
    lies_at(&d, data, true, data, true);
    return issue(&d, work);
}

choir_status choir_group_reduce(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, choir_reduce_op op, int root, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__REDUCE, count, dtype, false);
    reduces(&d, op);
    has_root(&d, root);
    lies_at(&d, data, true, data, true);
    return issue(&d, work);
}

choir_status choir_group_all_reduce(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, choir_reduce_op op, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__ALL_REDUCE, count, dtype, false);
    reduces(&d, op);
    lies_at(&d, data, true, data, true);
    return issue(&d, work);
}

choir_status choir_group_gather(choir_group *group, const void *mine, void *all, int64_t count,
    choir_dtype dtype, int root, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__GATHER, count, dtype, true);
    has_root(&d, root);
    lies_at(&d, mine, true, all, is_root(&d, root));
    return issue(&d, work);
}

choir_status choir_group_all_gather(choir_group *group, const void *mine, void *all,
    int64_t count, choir_dtype dtype, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__ALL_GATHER, count, dtype, true);
    lies_at(&d, mine, true, all, true);
    return issue(&d, work);
}

choir_status choir_group_scatter(choir_group *group, const void *all, void *mine, int64_t count,
    choir_dtype dtype, int root, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__SCATTER, count, dtype, true);
    has_root(&d, root);
    lies_at(&d, all, is_root(&d, root), mine, true);
    return issue(&d, work);
}

choir_status choir_group_reduce_scatter(choir_group *group, const void *all, void *mine,
    int64_t count, choir_dtype dtype, choir_reduce_op op, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__REDUCE_SCATTER, count, dtype, true);
    reduces(&d, op);
    lies_at(&d, all, true, mine, true);
    return issue(&d, work);
}

choir_status choir_group_all_to_all(choir_group *group, const void *in, void *out,
    int64_t count, choir_dtype dtype, choir_work *work)
{
    draft d = begin(__func__, group, CHOIR__ALL_TO_ALL, count, dtype, true);
    lies_at(&d, in, true, out, true);
    return issue(&d, work);
}

/* Checks each count, and that their sum does not exceed memory. */
static choir_status check_counts(
    const char *what, const int64_t *counts, int world, choir_dtype dtype, int64_t *sum)
{
    *sum = 0;
    for (int r = 0; r < world; r++) {
        int64_t most = INT64_MAX / (int64_t)choir_dtype_size(dtype) - *sum;
        if (counts[r] < 0 || counts[r] > most)
            return choir__error(CHOIR_ERR_ARGUMENT, "all_to_all: %s[%d] is %lld", what, r,
                (long long)counts[r]);
        *sum += counts[r];
    }
    return CHOIR_OK;
}

choir_status choir_group_all_to_all_uneven(choir_group *group, const void *in,
    const int64_t *in_counts, void *out, const int64_t *out_counts, choir_dtype dtype,
    choir_work *work)
{
    if (!group)
        return choir__missing(__func__, "group");
    if (!in_counts)
        return choir__missing(__func__, "in_counts");
    if (!out_counts)
        return choir__missing(__func__, "out_counts");
    int world = choir_group_world(group);
    int64_t sent = 0, received = 0;
    size_t bytes = (size_t)world * sizeof *in_counts;
    draft d = begin(__func__, group, CHOIR__ALL_TO_ALL, 0, dtype, false);
    lies_at(&d, in, true, out, true);
    d.call.stamp.layout = 1;
    if (d.status == CHOIR_OK)
        d.status = check_counts("in_counts", in_counts, world, dtype, &sent);
    if (d.status == CHOIR_OK)
        d.status = check_counts("out_counts", out_counts, world, dtype, &received);
    if (d.status == CHOIR_OK)
        d.status = check_data("all_to_all", in, sent);
    if (d.status == CHOIR_OK)
        d.status = check_data("all_to_all", out, received);
    if (d.status == CHOIR_OK && in == out && sent && received)
        d.status = choir__error(CHOIR_ERR_ARGUMENT,
            "all_to_all: parts of different sizes find no room in place: out must be elsewhere");
    if (d.status != CHOIR_OK)
        return d.status;
    int64_t *both = choir__alloc(2 * bytes);
    memcpy(both, in_counts, bytes);
    memcpy(both + world, out_counts, bytes);
    d.call.in_counts = choir__group_keep(group, both, 2 * bytes);
    d.call.out_counts = d.call.in_counts + world;
    free(both);
    return issue(&d, work);
}

static choir_status point_to_point(const char *function, choir_group *group, choir__kind kind,
    const void *in, void *out, int64_t count, choir_dtype dtype, int peer, choir_work *work)
{
    draft d = begin(function, group, kind, count, dtype, false);
    has_peer(&d, peer);
    lies_at(&d, in, kind == CHOIR__SEND, out, kind == CHOIR__RECEIVE);
    if (d.status == CHOIR_OK && is_root(&d, peer))
        d.status = choir__error(CHOIR_ERR_ARGUMENT, "%s: rank %d is this rank itself",
            choir__kind_name(kind), peer);
    return issue(&d, work);
}

choir_status choir_group_send(choir_group *group, const void *data, int64_t count,
    choir_dtype dtype, int peer, choir_work *work)
{
    return point_to_point(__func__, group, CHOIR__SEND, data, NULL, count, dtype, peer, work);
}

choir_status choir_group_receive(choir_group *group, void *data, int64_t count,
    choir_dtype dtype, int peer, choir_work *work)
{
    return point_to_point(
        __func__, group, CHOIR__RECEIVE, NULL, data, count, dtype, peer, work);
}
