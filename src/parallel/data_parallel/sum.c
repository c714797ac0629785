/* The gradients of a batch's pieces: leaves of the fixed tree, distributed over the devices'
 * books.
 *
 * A *wave* is the backward of one batch. Piece i is leaf base + i of the step's tree, on any
 * device, so each book adds up the complete nodes in its own run of pieces:
 *
 *     four pieces on three devices      book 0: (0 + 1)     book 1: 2     book 2: 3
 *
 * The rest is added when the step ends, or before another wave: the nodes of all books, in
 * order, form one stack, which is folded as in any book. As in DDP, each device adds a slice of
 * the buckets from all books' memory and writes the sum to the first device's. Nothing is
 * copied, and devices other than the first need one level of gradients.
 *
 * Rows of lookup tables stay in place; the first device's kernel reads them there. */
#include <stdlib.h>
#include <string.h>

#include "autograd/layout.h"
#include "comm/reduce.h"
#include "parallel/shards.h"

enum {
    MAX_STACK = 1024,
    BLOCK = 1 << 15,        /* elements: a block's partial sums fit in a core's cache */
    WORTH_SLICING = 1 << 16 /* elements: the first device adds smaller sums alone */
};

typedef struct addend {
    choir__node node;
    char *data; /* memory of bucket 0 */
} addend;

typedef struct addition { /* y = (a + b) * scale; b NULL: y = a * scale */
    char *y;
    const char *a, *b;
    bool last; /* the last addition of a sum, which scales it */
} addition;

typedef struct plan {
    addend stack[MAX_STACK];
    int top;
    addition *adds;
    int count;
} plan;

/* --- between queues --- */

static void wait_for_home(choir__data_parallel *dp)
{
    choir__event here = choir__queue_record(dp->book->device->queue);
    for (int d = 1; d < dp->replicas.devices; d++)
        if (dp->replicas.replica[d].book)
            choir__queue_wait_event(dp->replicas.replica[d].device->queue, here);
}

static void home_waits(choir__data_parallel *dp)
{
    for (int d = 1; d < dp->replicas.devices; d++)
        if (dp->replicas.replica[d].book)
            choir__queue_wait_event(dp->book->device->queue,
                choir__queue_record(dp->replicas.replica[d].device->queue));
}

/* --- which sums --- */

static void add(plan *p, char *y, const char *a, const char *b, bool last)
{
    CHOIR__GROW(p->adds, p->count);
    p->adds[p->count++] = (addition){y, a, b, last};
}

/* Adds the top two nodes into the lower one's memory. */
static void fold_top(plan *p)
{
    addend *left = &p->stack[p->top - 2], *right = &p->stack[p->top - 1];
    add(p, left->data, left->data, right->data, false);
    left->node.leaves += right->node.leaves;
    p->top--;
}

static choir_status push_nodes(plan *p, const choir__book *book)
{
    for (int l = 0; l < book->top; l++) {
        if (p->top == MAX_STACK)
            return choir__error(CHOIR_ERR_UNSUPPORTED,
                "data_parallel: more than %d sums of gradients to be added", MAX_STACK);
        p->stack[p->top++] = (addend){book->stack[l], book->level[l]};
        while (p->top > 1 &&
               choir__tree_siblings(p->stack[p->top - 2].node, p->stack[p->top - 1].node))
            fold_top(p);
    }
    return CHOIR_OK;
}

/* Moves a sum to the place where the book's stack expects it. */
static void leave_at(plan *p, int index, char *to)
{
    addend *s = &p->stack[index];
    if (s->data == to)
        return;
    add(p, to, s->data, NULL, false);
    s->data = to;
}

static choir_status make_plan(choir__data_parallel *dp, plan *p, bool final)
{
    choir__book *home = dp->book;
    choir_status status = push_nodes(p, home);
    for (int d = 1; d < dp->replicas.devices && status == CHOIR_OK; d++)
        if (dp->replicas.replica[d].book)
            status = push_nodes(p, dp->replicas.replica[d].book);
    while (final && p->top > 1)
        fold_top(p);
    if (status == CHOIR_OK)
        status = choir__layout_levels(home, 1);
    for (int i = 0; i < p->top && status == CHOIR_OK; i++) {
        if (home->level_bytes && !home->level[i])
            status = choir__layout_levels(home, i + 1);
        if (status == CHOIR_OK)
            leave_at(p, i, home->level[i]);
    }
    if (!final || status != CHOIR_OK)
        return status;
    /* The final addition also scales, so there must be one that writes to level 0. */
    if (p->count == 0 || p->adds[p->count - 1].y != (char *)home->level[0])
        add(p, home->level[0], home->level[0], NULL, false);
    p->adds[p->count - 1].last = true;
    return CHOIR_OK;
}

/* --- running the additions --- */

static void add_block(choir_device *device, const plan *p, const choir__bucket *b, int64_t at,
    int64_t n, float scale)
{
    size_t bytes = b->offset + (size_t)at * sizeof(float);
    for (int i = 0; i < p->count; i++) {
        const addition *s = &p->adds[i];
        float by = s->last ? scale : 1;
        if (!s->b && s->y == s->a && by == 1)
            continue;
        choir__k_add_scaled args = {.a = s->a + bytes,
            .b = s->b ? s->b + bytes : NULL,
            .y = s->y + bytes,
            .n = n,
            .scale = by,
            .dtype = CHOIR_F32};
        choir__launch(device, CHOIR_F32, add_scaled, &args);
    }
}

/* Returns the device whose gradient book contains data. */
static const choir_device *owner_of(const choir__data_parallel *dp, const char *data)
{
    for (int d = 0; d < dp->replicas.devices; d++) {
        const choir__book *book = d ? dp->replicas.replica[d].book : dp->book;
        for (int l = 0; book && l < CHOIR__MAX_LEVELS; l++)
            if (book->level[l] == data)
                return book->device;
    }
    return NULL;
}

/* Counts the bytes that device reads and writes in other devices' books, `elements` per
 * operand. */
static void note_moved(
    const choir__data_parallel *dp, const plan *p, const choir_device *device, int64_t elements)
{
    for (int i = 0; i < p->count; i++) {
        const char *operands[3] = {p->adds[i].a, p->adds[i].b, p->adds[i].y};
        for (int k = 0; k < 3; k++) {
            const choir_device *owner = operands[k] ? owner_of(dp, operands[k]) : NULL;
            if (owner && owner != device)
                choir__queue_moved(
                    device->queue, owner->queue, (uint64_t)elements * sizeof(float));
        }
    }
}

/* Adds a device's share of all buckets. */
static void add_share(choir__data_parallel *dp, const plan *p, choir_device *device, int rank,
    int world, float scale)
{
    int64_t elements = 0;
    for (int b = 0; b < dp->book->bucket_count; b++) {
        const choir__bucket *bucket = &dp->book->buckets[b];
        int64_t lo, hi, block = p->count > 1 ? BLOCK : bucket->count;
        choir__reduce_slice(bucket->count, sizeof(float), rank, world, &lo, &hi);
        for (int64_t at = lo; at < hi; at += block)
            add_block(
                device, p, bucket, at, choir__min(block, hi - at), bucket->shared ? 1 : scale);
        elements += hi - lo;
    }
    note_moved(dp, p, device, elements);
}

static void run_plan(choir__data_parallel *dp, const plan *p, float scale)
{
    choir__replicas *r = &dp->replicas;
    bool slices = dp->book->level_bytes / sizeof(float) >= WORTH_SLICING && dp->pending;
    int world = 1, rank = 1;
    for (int d = 1; d < r->devices && slices; d++)
        world += r->replica[d].book != NULL;
    home_waits(dp);
    if (world > 1)
        wait_for_home(dp);
    add_share(dp, p, dp->book->device, 0, world, scale);
    for (int d = 1; d < r->devices && world > 1; d++)
        if (r->replica[d].book)
            add_share(dp, p, r->replica[d].device, rank++, world, scale);
    if (world > 1)
        home_waits(dp);
}

static choir_status add_nodes(choir__data_parallel *dp, bool final, float scale)
{
    plan *p = choir__calloc(1, sizeof *p);
    choir_status status = make_plan(dp, p, final);
    if (status == CHOIR_OK) {
        run_plan(dp, p, scale);
        dp->book->top = p->top;
        for (int i = 0; i < p->top && i < CHOIR__MAX_LEVELS; i++)
            dp->book->stack[i] = p->stack[i].node;
    }
    free(p->adds);
    free(p);
    return status;
}

/* Moves the replicas' sums to the book, so that another leaf may follow. */
static choir_status flush(choir__data_parallel *dp)
{
    if (!dp->pending)
        return CHOIR_OK;
    choir_status status = add_nodes(dp, false, 1);
    for (int d = 1; d < dp->replicas.devices && status == CHOIR_OK; d++) {
        choir__book *other = dp->replicas.replica[d].book;
        if (!other)
            continue;
        choir__book_take_rows(dp->book, other);
        other->top = 0;
    }
    dp->pending = false;
    return status;
}

/* --- a wave --- */

static choir_status begin_leaf(void *reducer, choir__book *book)
{
    choir__data_parallel *dp = reducer;
    if (!dp->in_wave && book->leaves == 0)
        dp->pending = false; /* sums of the previous step are dropped */
    return dp->in_wave ? CHOIR_OK : flush(dp);
}

/* True if a parameter wants a gradient. The backward of a frozen module leaves its books, and
 * the gradients in them, as they are. */
static bool trains(const choir__book *book)
{
    for (int i = 0; i < book->count; i++)
        if (book->params[i]->tensor->requires_grad)
            return true;
    return false;
}

choir_status choir__wave_open(const choir_shards *s)
{
    choir__data_parallel *dp = s->dp;
    if (!dp->book)
        return choir__error(CHOIR_ERR_STATE,
            "data_parallel: another strategy has taken over the gradients of module '%s'",
            *dp->module->path ? dp->module->path : dp->module->type->name);
    if (!trains(dp->book))
        return CHOIR_OK;
    bool starts = dp->book->finished;
    choir_status status = starts ? CHOIR_OK : flush(dp);
    /* the first device may still read memory that is about to be overwritten */
    wait_for_home(dp);
    if (starts) {
        choir__book_forget(dp->book);
        dp->pending = false;
    }
    for (int d = 1; d < dp->replicas.devices; d++)
        if (dp->replicas.replica[d].book)
            choir__book_forget(dp->replicas.replica[d].book);
    /* the first piece of each device is assigned last */
    for (int i = s->count - 1; i >= 0; i--) {
        choir__book *book = dp->replicas.replica[s->piece[i].part.device].book;
        if (book != dp->book)
            book->first = dp->book->leaves + i;
    }
    dp->in_wave = true;
    return status;
}

static choir_status other_use(const choir__book *home, const choir__book *other)
{
    for (int i = 0; i < home->count; i++)
        if (home->params[i]->slot_count != other->params[i]->slot_count)
            return choir__error(CHOIR_ERR_STATE,
                "data_parallel: parameter %s is used %d times on %s and %d times on %s",
                home->params[i]->name, home->params[i]->slot_count,
                choir_device_name(home->device), other->params[i]->slot_count,
                choir_device_name(other->device));
    return choir__error(CHOIR_ERR_STATE,
        "data_parallel: the parameters on %s are used otherwise than those on %s",
        choir_device_name(other->device), choir_device_name(home->device));
}

/* Checks that the books have the same layout, and lays out the first device's book if it had no
 * piece. */
static choir_status match(choir__book *home, const choir__book *other)
{
    if (!home->laid_out) {
        for (int i = 0; i < home->count; i++) {
            home->params[i]->uses = other->params[i]->uses;
            home->params[i]->rows_uses = other->params[i]->rows_uses;
        }
        choir_status status = choir__layout_check(home);
        if (status != CHOIR_OK)
            return status;
    }
    bool same =
        home->bucket_count == other->bucket_count && home->level_bytes == other->level_bytes;
    for (int b = 0; b < home->bucket_count && same; b++)
        same = home->buckets[b].offset == other->buckets[b].offset;
    for (int i = 0; i < home->count && same; i++) {
        const choir__param *p = home->params[i], *q = other->params[i];
        same = p->slot_count == q->slot_count;
        for (int u = 0; u < p->slot_count && same; u++)
            same = p->slots[u].by_rows == q->slots[u].by_rows &&
                   p->slots[u].bucket == q->slots[u].bucket && p->slots[u].at == q->slots[u].at;
    }
    return same ? CHOIR_OK : other_use(home, other);
}

choir_status choir__wave_close(const choir_shards *s, int64_t parts)
{
    choir__data_parallel *dp = s->dp;
    choir__book *home = dp->book;
    choir_status status = CHOIR_OK;
    if (!dp->in_wave)
        return CHOIR_OK;
    int64_t base = home->leaves;
    for (int i = 0; i < s->count; i++)
        base -= s->piece[i].part.device == 0;
    for (int d = 1; d < dp->replicas.devices && status == CHOIR_OK; d++) {
        choir__book *other = dp->replicas.replica[d].book;
        if (!other || !other->leaves)
            continue;
        status = match(home, other);
        for (int i = 0; i < home->count; i++)
            home->params[i]->has_grad |= other->params[i]->has_grad;
        dp->pending = true;
    }
    home->leaves = base + s->count;
    home->parts += parts;
    dp->in_wave = false;
    return status;
}

void choir__wave_fail(choir__data_parallel *dp)
{
    dp->in_wave = dp->pending = false;
    for (int d = 0; d < dp->replicas.devices; d++)
        if (dp->replicas.replica[d].book)
            choir__book_forget(dp->replicas.replica[d].book);
}

/* --- the end of a step --- */

static choir_status finish(void *reducer, choir__book *book)
{
    return add_nodes(reducer, true, 1.0f / (float)book->parts);
}

/* Returns the slot of the same use of the same parameter in a replica's book. */
static const choir__slot *same_slot(
    const choir__book *home, const choir__slot *slot, const choir__book *other)
{
    for (int i = 0; i < home->count; i++) {
        const choir__param *p = home->params[i];
        if (slot >= p->slots && slot < p->slots + p->slot_count)
            return &other->params[i]->slots[slot - p->slots];
    }
    return NULL;
}

/* Takes no references: a replica's device waits for the first device before its next
 * backward. */
static choir_status gather_rows(void *reducer, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all)
{
    choir__data_parallel *dp = reducer;
    int64_t count = slot->row_count;
    (void)row_bytes;
    if (count)
        memcpy(all, slot->rows, (size_t)count * sizeof *all);
    for (int d = 1; d < dp->replicas.devices && dp->pending; d++) {
        const choir__book *other = dp->replicas.replica[d].book;
        if (!other || !other->leaves)
            continue;
        const choir__slot *s = same_slot(book, slot, other);
        memcpy(all + count, s->rows, (size_t)s->row_count * sizeof *all);
        count += s->row_count;
    }
    return CHOIR_OK;
}

static void let_go(void *reducer)
{
    choir__data_parallel *dp = reducer;
    if (dp->replicas.replica)
        dp->replicas.replica[0].book = NULL;
    dp->book = NULL;
}

static const choir__reducer_ops reducer = {
    .begin = begin_leaf,
    .finish = finish,
    .gather_rows = gather_rows,
    .free = let_go,
};

/* Processors share their memory. A GPU would reach the first one's state over a link. */
static choir_device *helper(const choir__strategy *s, const choir_device *home, int index)
{
    const choir__data_parallel *dp =
        CHOIR__STRATEGY_OF(s, const choir__data_parallel, strategy);
    const choir__replicas *r = &dp->replicas;
    bool can = r->replica && r->replica[0].device == home && !home->far;
    return can && index + 1 < r->devices ? r->replica[index + 1].device : NULL;
}

const choir__strategy_ops choir__data_parallel_ops = {
    .name = "data_parallel", .reducer = &reducer, .helper = helper};
