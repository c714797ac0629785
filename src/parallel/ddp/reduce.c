/* DDP's reducer: its extension of a book of gradients.
 *
 * The book's levels are memory of the group, shared if possible, so the peers can read a bucket
 * where backward has filled it. Buckets are reduced in the order of their numbers, which is
 * about the order in which they are filled, so that all ranks reduce the same one even if their
 * backwards differ. A reduction is queued after an event of the device; the device waits for
 * the group's event only when the optimizer needs the gradients. All of this is queued and
 * nothing waits on the host, so a recorded step replays it.
 *
 * A step's leaves are planned: M micro-batches, distributed over the ranks. With no_sync there
 * is no plan: the program decides where the run of leaves ends, each rank adds up its own
 * leaves, and the job's tree is a tree over ranks. Hooks get these sums of each rank, too. */
#include <stdlib.h>
#include <string.h>

#include "comm/far/far.h"
#include "parallel/ddp/ddp.h"

/* --- a step --- */

/* Returns the number of leaves of ranks that are active, if the mean is over these; else 0. */
static int64_t active_leaves(const choir__ddp *d)
{
    int64_t sum = 0, lo, hi;
    int world = choir_group_world(d->group);
    for (int r = 0; r < world && d->joins && d->join.divide_by_active; r++) {
        choir__tree_run(d->total, r, world, &lo, &hi);
        sum += d->active[r] ? hi - lo : 0;
    }
    return sum;
}

static void plan_step(choir__ddp_part *part)
{
    const choir__ddp *d = part->ddp;
    choir__book *book = part->book;
    book->first = d->no_sync ? 0 : d->first;
    book->planned = d->no_sync ? 0 : d->planned;
    book->total = d->total;
    book->folds = d->no_sync || d->hook;
    book->folds_tables = d->no_sync;
    book->divisor = active_leaves(d);
    part->next = 0;
    part->asked = false;
    if (part->filled)
        memset(part->filled, 0, (size_t)book->bucket_count * sizeof *part->filled);
}

/* Ends the run of leaves of no_sync with this backward. */
static void end_no_sync(choir__ddp_part *part)
{
    choir__book *book = part->book;
    book->planned = book->leaves + 1;
    book->total = book->planned * choir_group_world(part->ddp->group);
}

static choir_status begin(void *reducer, choir__book *book)
{
    choir__ddp_part *part = reducer;
    choir__ddp *d = part->ddp;
    choir_status status = CHOIR_OK;
    if (book->leaves == 0) {
        plan_step(part);
        status = choir__ddp_rebuild(part);
    } else if (!book->planned && !d->no_sync) {
        end_no_sync(part);
    }
    if (status == CHOIR_OK)
        status = choir__ddp_agree_uses(part);
    if (status == CHOIR_OK)
        status = choir__ddp_note_used(part, book->leaves + 1 == book->planned);
    return status;
}

static choir_status alloc_levels(void *reducer, size_t bytes, int levels, void **at)
{
    choir__ddp_part *part = reducer;
    choir_status status = choir__group_memory_renew(&part->levels, part->ddp->group,
        part->book->device, bytes * (size_t)levels,
        (choir__group_memory_words){
            "gradients", "; fsdp shards them", "(sums over micro-batches)"});
    *at = part->levels.at;
    return status;
}

/* --- buckets --- */

/* Lists the parameters of each bucket, for hooks. */
static choir_status describe(void *reducer, choir__book *book)
{
    choir__ddp_part *part = reducer;
    int slots = 0, at = 0;
    for (int i = 0; i < book->count; i++)
        slots += book->params[i]->slot_count;
    free(part->filled);
    free(part->entries);
    free(part->entry_from);
    part->filled = choir__calloc((size_t)book->bucket_count + 1, sizeof *part->filled);
    part->entries = choir__calloc((size_t)slots + 1, sizeof *part->entries);
    part->entry_from = choir__calloc((size_t)book->bucket_count + 1, sizeof *part->entry_from);
    for (int b = 0; b < book->bucket_count; b++) {
        part->entry_from[b] = at;
        for (int k = 0; k < book->count; k++) {
            const choir__param *p =
                book->params[book->order ? book->order[k] : book->count - 1 - k];
            int64_t n = p->tensor->count,
                    first = p->tensor->shape.ndim ? p->tensor->shape.dim[0] : 1;
            for (int u = 0; u < p->slot_count; u++)
                if (!p->slots[u].by_rows && p->slots[u].bucket == b)
                    part->entries[at++] = (choir_ddp_entry){.name = p->name,
                        .shape = p->tensor->shape,
                        .at = p->slots[u].at,
                        .count = n,
                        .rows = first && (first == 1 || p->tensor->stride[0] * first == n)};
        }
    }
    part->entry_from[book->bucket_count] = at;
    return CHOIR_OK;
}

/* The uses of a shared parameter are added later, and scaled then. */
static double scale_of(const choir__book *book, const choir__bucket *bucket)
{
    int64_t leaves = book->divisor ? book->divisor : book->total;
    return bucket->shared && !book->uses_scaled ? 1 : choir__mean_scale(book->dtype, leaves);
}

static choir_status reduce_exactly(choir__ddp_part *part, int number)
{
    choir__ddp *d = part->ddp;
    const choir__book *book = part->book;
    const choir__bucket *bucket = &book->buckets[number];
    choir__tree_reduce args = {
        .nodes = (char *)book->level[0] + bucket->offset,
        .node_stride = book->level_bytes,
        .count = bucket->count,
        .leaves = choir__book_folds(book, number) ? choir_group_world(d->group) : book->total,
        .scale = scale_of(book, bucket),
        .algorithm = d->algorithm,
        .dtype = book->dtype,
    };
    return choir__group_tree_reduce(d->group, &args);
}

typedef struct mirroring {
    void *to;
    const void *from;
    size_t bytes;
} mirroring;

static choir_status mirror(const void *args)
{
    const mirroring *m = args;
    return choir__far_copy(m->to, m->from, m->bytes);
}

/* Hooks compute in host memory, on the group's queue. A bucket of a device with far memory is
 * copied there; one array serves all buckets, since the queue runs in order. */
static choir_status run_far_hook(choir__ddp_part *part, choir_ddp_bucket shown)
{
    choir__ddp *d = part->ddp;
    choir_work work;
    float *far = shown.data;
    size_t bytes = (size_t)shown.count * sizeof *far, most = 0;
    /* one size for all: a recording keeps the address */
    for (int b = 0; b < part->book->bucket_count; b++)
        most = choir__max(most, (size_t)part->book->buckets[b].count * sizeof *far);
    if (most > part->mirror_bytes) {
        choir__queue_wait(choir__ddp_queue(d));
        free(part->mirror);
        part->mirror = choir__alloc(part->mirror_bytes = most);
    }
    mirroring in = {part->mirror, far, bytes}, out = {far, part->mirror, bytes};
    shown.data = part->mirror;
    choir_status status = choir_group_call(d->group, mirror, &in, sizeof in, &work);
    if (status == CHOIR_OK)
        status = d->hook(&shown, d->hook_arg);
    if (status == CHOIR_OK)
        status = choir_group_call(d->group, mirror, &out, sizeof out, &work);
    return status;
}

static choir_status run_hook(choir__ddp_part *part, int bucket)
{
    choir__ddp *d = part->ddp;
    const choir__book *book = part->book;
    const choir__bucket *b = &book->buckets[bucket];
    if (book->dtype != CHOIR_F32)
        return choir__error(CHOIR_ERR_DTYPE, "ddp: a hook takes f32 gradients, got f64 of %s",
            book->params[0]->name);
    choir_ddp_bucket shown = {
        .group = d->group,
        .index = bucket,
        .buckets = book->tables_from,
        .layout = book->layout,
        .data = (float *)(void *)((char *)book->level[0] + b->offset),
        .count = b->count,
        .scale = (float)scale_of(book, b),
        .entries = part->entries + part->entry_from[bucket],
        .entry_count = part->entry_from[bucket + 1] - part->entry_from[bucket],
    };
    return book->device->far ? run_far_hook(part, shown) : d->hook(&shown, d->hook_arg);
}

static void bucket_ready(void *reducer, choir__book *book, int bucket)
{
    choir__ddp_part *part = reducer;
    choir__ddp *d = part->ddp;
    part->filled[bucket] = true;
    while (part->next < book->bucket_count && part->filled[part->next]) {
        int next = part->next++;
        choir_status status = choir__ddp_ask_used(part);
        choir__group_waits(d->group, book->device);
        if (status == CHOIR_OK)
            status = d->hook && next < book->tables_from ? run_hook(part, next)
                                                         : reduce_exactly(part, next);
        if (status != CHOIR_OK)
            choir__scope_fail(d->base.run, status);
    }
}

/* --- the end --- */

/* If ranks can be lost, buffers are sent before the update instead of in the next step. A rank
 * whose update runs then has the whole state after it, and any other rank may be lost. */
static choir_status settle_buffers(choir__ddp *d)
{
    if (!d->elastic || d->settled == d->synced)
        return CHOIR_OK;
    d->settled = d->synced;
    return choir__ranks_broadcast_buffers(d->group, d->module);
}

static choir_status finish(void *reducer, choir__book *book)
{
    choir__ddp_part *part = reducer;
    choir__ddp *d = part->ddp;
    if (!book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "ddp: the %lld backwards of this step ran with no_sync on: nothing has been reduced; "
            "choir_ddp_no_sync(ddp, false) comes before the last one",
            (long long)book->leaves);
    choir_status status = settle_buffers(d);
    if (status != CHOIR_OK)
        return status;
    choir__device_waits(book->device, d->group);
    part->stepped = true;
    status = choir__ddp_settle_used(part);
    return status == CHOIR_OK ? choir__queue_status(choir__ddp_queue(d)) : status;
}

/* Returns memory that stays: a recorded step gathers the counts again at each replay. */
static int64_t *room_for_counts(choir__ddp_part *part, int64_t count)
{
    if (part->row_room < count) {
        free(part->row_counts);
        part->row_counts = choir__calloc((size_t)count, sizeof *part->row_counts);
        part->row_room = count;
    }
    return part->row_counts;
}

/* Fills in the rows of each leaf of all ranks, (total) counts, since ranks may not use a
 * table. */
static choir_status count_rows(choir__ddp_part *part, const choir__slot *slot, int64_t *counts)
{
    choir_group *group = part->ddp->group;
    int world = choir_group_world(group);
    int64_t total = part->book->total, longest = (total + world - 1) / world, lo, hi;
    int64_t *mine = room_for_counts(part, longest * (world + 1));
    for (int64_t l = 0; l < longest; l++)
        mine[l] = l < slot->row_count ? slot->rows[l].count : 0;
    choir_status status =
        choir_group_all_gather(group, mine, mine + longest, longest, CHOIR_I64, NULL);
    for (int r = 0; r < world; r++) {
        choir__tree_run(total, r, world, &lo, &hi);
        for (int64_t l = lo; l < hi; l++)
            counts[l] = mine[longest * (r + 1) + l - lo];
    }
    return status;
}

static choir_status gather_rows(void *reducer, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all)
{
    choir__ddp_part *part = reducer;
    choir_group *group = part->ddp->group;
    if (!choir__ddp_agrees(part->ddp))
        return choir__ranks_gather_rows(group, book, slot, row_bytes, false, all);
    int64_t *counts = choir__calloc((size_t)book->total, sizeof *counts);
    choir_status status = count_rows(part, slot, counts);
    if (status == CHOIR_OK)
        status = choir__ranks_gather_counted(group, book, slot, row_bytes, counts, false, all);
    free(counts);
    return status;
}

static choir_status unused(void *reducer, choir__book *book)
{
    (void)book;
    return choir__ddp_name_unused(reducer);
}

/* --- the part --- */

/* Frees everything but the part itself, which stays with the module when its book goes. */
static void free_reducer(void *reducer)
{
    choir__ddp_part *part = reducer;
    choir__queue_wait(choir__ddp_queue(part->ddp));
    choir__group_memory_free(&part->levels);
    free(part->mirror);
    free(part->filled);
    free(part->entries);
    free(part->entry_from);
    free(part->row_counts);
    free(part->used);
    choir__ddp *d = part->ddp;
    *part = (choir__ddp_part){.ddp = d};
}

const choir__reducer_ops choir__ddp_reducer = {
    .begin = begin,
    .laid_out = describe,
    .alloc = alloc_levels,
    .bucket_ready = bucket_ready,
    .finish = finish,
    .gather_rows = gather_rows,
    .unused = unused,
    .free = free_reducer,
};
