/* Collectives on host memory between dry ranks: the last one that comes reads and writes the
 * memory of all living ones. A member that does not live has the data of its representative.
 * Representatives are copied, and not the members, who may be a hundred thousand. */
#include "comm/dry/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "comm/reduce.h"

/* Copies of the living members' data, since results may overwrite operands. */
typedef struct table {
    const choir__dry_room *room;
    const choir__call *call; /* one member's; all have equal stamps */
    size_t part, bytes;      /* bytes: `count` elements; all that a member brings */
    char *data;              /* (living members, bytes) */
} table;

static const char *brought(const table *t, int member)
{
    return t->data + (size_t)t->room->speaker[member] * t->bytes;
}

static bool brings_parts(const choir__call *call)
{
    return call->stamp.kind == CHOIR__REDUCE_SCATTER || call->stamp.kind == CHOIR__ALL_TO_ALL ||
           call->stamp.kind == CHOIR__SCATTER;
}

static table collect(const choir__dry_room *room)
{
    const choir__call *one = room->calls[room->members[0]];
    table t = {.room = room, .call = one};
    t.part = (size_t)one->stamp.count * choir_dtype_size((choir_dtype)one->stamp.dtype);
    t.bytes = t.part * (brings_parts(one) ? (size_t)room->count : 1);
    t.data = choir__calloc((size_t)room->living, t.bytes + 1);
    for (int i = 0; i < room->living; i++) {
        const choir__call *c = room->calls[room->members[i]];
        if (c->in && t.bytes)
            memcpy(t.data + (size_t)i * t.bytes, c->in, t.bytes);
    }
    return t;
}

/* Combines part `which` of what all members bring. */
static void reduce(const table *t, size_t which, void *out)
{
    const choir__stamp *s = &t->call->stamp;
    const int n = t->room->count;
    choir__node *nodes = choir__calloc((size_t)n, sizeof *nodes);
    const char **from = choir__calloc((size_t)n, sizeof *from);
    char *to[] = {out};
    for (int i = 0; i < n; i++) {
        nodes[i] = (choir__node){i, 1};
        from[i] = brought(t, i) + which * t->part;
    }
    choir__reduce_task r = {
        .arith = choir__arith_find((choir_dtype)s->dtype, (choir_reduce_op)s->op),
        .nodes = nodes,
        .from = from,
        .to = to,
        .sources = n,
        .outputs = 1,
        .scale = s->op == CHOIR_MEAN ? 1.0 / n : 1,
        .divisor = s->op == CHOIR_MEAN ? n : 1};
    char *scratch = aligned_alloc(64, CHOIR__REDUCE_SCRATCH);
    if (scratch && r.arith)
        choir__reduce(&r, scratch, 0, (int64_t)s->count);
    free(scratch);
    free(from);
    free(nodes);
}

static void copy_part(const table *t, int member, size_t which, char *to)
{
    if (t->part)
        memcpy(to, brought(t, member) + which * t->part, t->part);
}

/* Writes the result of member m, which lives. */
static void give(const table *t, int m, char *out)
{
    const int root = t->call->stamp.root;
    if (!out || !t->part)
        return;
    switch ((choir__kind)t->call->stamp.kind) {
    case CHOIR__BROADCAST: copy_part(t, root, 0, out); break;
    case CHOIR__SCATTER: copy_part(t, root, (size_t)m, out); break;
    case CHOIR__ALL_REDUCE:
        if (m == t->room->members[0])
            reduce(t, 0, out);
        else if (t->room->calls[t->room->members[0]]->out) /* has the result */
            memcpy(out, t->room->calls[t->room->members[0]]->out, t->part);
        break;
    case CHOIR__REDUCE_SCATTER: reduce(t, (size_t)m, out); break;
    case CHOIR__REDUCE:
        if (m == root)
            reduce(t, 0, out);
        break;
    case CHOIR__GATHER:
    case CHOIR__ALL_GATHER:
        for (int i = 0; i < t->room->count; i++)
            if (t->call->stamp.kind == CHOIR__ALL_GATHER || m == root)
                copy_part(t, i, 0, out + (size_t)i * t->part);
        break;
    case CHOIR__ALL_TO_ALL:
        for (int i = 0; i < t->room->count; i++)
            copy_part(t, i, (size_t)m, out + (size_t)i * t->part);
        break;
    default: break;
    }
}

void choir__dry_exchange(const choir__dry_room *room)
{
    table t = collect(room);
    for (int i = 0; i < room->living; i++)
        give(&t, room->members[i], room->calls[room->members[i]]->out);
    free(t.data);
}

void choir__dry_exchange_living(const choir__dry_room *room)
{
    for (int i = 0; i < room->living; i++)
        for (int k = 0; k < room->living; k++) {
            uint64_t *all = room->calls[room->members[i]]->out;
            all[k] = *(const uint64_t *)room->calls[room->members[k]]->in;
        }
}
