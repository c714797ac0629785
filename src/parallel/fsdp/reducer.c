/* The reducer: a unit's gradients are written to a slot of the group's memory, each rank adds
 * up its own rows of all ranks' slots, and the next unit uses the slot.
 *
 *     backward   | block 3 -> slot A | block 2 -> slot B | block 1 -> slot A | ...
 *     group                          | A: rows of 3      | B: rows of 2      | A: rows of 1
 *     sums       [ this rank's rows of all parameters ]
 *
 * A slot is reused once the peers have read it, so there are two of each size, in every stage:
 * nothing reads whole gradients after that. If a rank adds up several micro-batches first,
 * every bucket keeps its slot. The optimizer reads the results in `sums`.
 *
 * Hybrid: the ranks that share a model run a contiguous part of the job's micro-batches, whose
 * sum is one or more nodes of the job's tree. Ranks with the same rows in other copies then add
 * up these nodes. */
#include <stdlib.h>

#include "parallel/fsdp/fsdp.h"

enum { ALIGN = 16, TURNS = 2 };

static void drain(choir__fsdp *f)
{
    choir__queue_wait(choir__group_queue(choir__fsdp_adders(f)));
    if (f->replicate)
        choir__queue_wait(choir__group_queue(f->replicate));
}

/* --- the layout of sums --- */

static void forget_layout(choir__fsdp *f)
{
    for (int b = 0; b < f->bucket_count; b++)
        free(f->cuts[b]);
    free(f->cuts);
    free(f->cut_count);
    free(f->sums_at);
    free(f->sums_count);
    choir__storage_unref(f->sums);
    choir__group_memory_free(&f->group_sums);
    f->cuts = NULL;
    f->cut_count = NULL;
    f->sums_at = f->sums_count = NULL;
    f->sums = NULL;
    f->bucket_count = 0;
}

static void free_slots(choir__fsdp *f)
{
    while (f->slots) {
        choir__fsdp_slot *next = f->slots->next;
        choir__group_memory_free(&f->slots->memory);
        free(f->slots);
        f->slots = next;
    }
}

static void add_cut(choir__fsdp *f, int bucket, choir__rows_cut cut)
{
    int *n = &f->cut_count[bucket];
    choir__rows_cut **cuts = &f->cuts[bucket];
    CHOIR__GROW(*cuts, *n);
    (*cuts)[(*n)++] = cut;
}

/* Returns the cut of a use's gradient; its parts are blocks of that. */
static choir__rows_cut cut_of(
    const choir__fsdp *f, const choir__param *p, const choir__slot *slot)
{
    int64_t rows = p->tensor->shape.ndim ? p->tensor->shape.dim[0] : 1;
    return (choir__rows_cut){.at = slot->at,
        .rows = rows,
        .row = rows ? p->tensor->count / rows : 0,
        .out = slot->local_at,
        .turn = f->turn};
}

/* The sums of this rank's rows of all parts are one run, as of a gradient without parts. */
static void add_parts(choir__fsdp *f, const choir__param *p, const choir__slot *slot)
{
    choir__rows_cut whole = cut_of(f, p, slot), part = whole;
    int64_t each = choir__part_rows(p->tensor->shape), lo, at = whole.out;
    part.of = whole.rows;
    for (int64_t k = 0; k < slot->parts; k++) {
        int b = slot->bucket + (int)k;
        part.first = k * each;
        part.rows = choir__min(each, whole.rows - part.first);
        part.out = at;
        add_cut(f, b, part);
        f->sums_at[b] = at;
        f->sums_count[b] = choir__cut_part(
            &part, choir_group_rank(choir__fsdp_adders(f)), choir_group_world(f->shard), &lo);
        at += f->sums_count[b];
    }
}

/* Computes this group's run of the job's micro-batches. */
static void run_of(const choir__fsdp *f, const choir__book *book, int64_t *lo, int64_t *hi)
{
    *lo = 0, *hi = book->total;
    if (f->replicate)
        choir__tree_run(book->total, choir_group_rank(f->replicate),
            choir_group_world(f->replicate), lo, hi);
}

static choir_status new_sums(choir__fsdp *f, choir__book *book)
{
    choir__node nodes[CHOIR__MAX_NODES];
    int64_t lo, hi;
    run_of(f, book, &lo, &hi);
    size_t bytes =
        f->sums_stride * (size_t)(f->replicate ? choir__tree_nodes(lo, hi, nodes) : 1);
    if (!f->replicate && !f->outside) {
        f->sums = choir__storage_new(book->device, f->sums_stride);
        choir__storage_holds(f->sums, CHOIR__MEMORY_GRADIENTS);
        choir__storage_tell(f->sums, CHOIR__FOR_WORK, "(this rank's shares)");
        book->sums = f->sums ? f->sums->data : NULL;
        return f->sums ? CHOIR_OK
                       : choir__error(CHOIR_ERR_MEMORY,
                             "out of memory on %s for this rank's share of the gradients",
                             choir_device_name(book->device));
    }
    const char *what = "this rank's share of the gradients";
    choir_group *group = f->replicate ? f->replicate : f->shard;
    choir_status status =
        f->outside ? choir__group_memory_outside(
                         &f->group_sums, group, book->device, f->outside, bytes, what)
                   : choir__group_memory_new(&f->group_sums, group, book->device, bytes,
                         (choir__group_memory_words){what, "", "(this rank's shares)"});
    book->sums = f->group_sums.at;
    return status;
}

/* The peers allocate together with this rank, and do not wait for it. */
static choir_status refused(choir_group *group, choir_status status)
{
    if (status != CHOIR_OK)
        choir__group_abort(group, status, choir__message());
    return status;
}

/* Where there is no room for both, the sums may have the memory of those before. */
static choir_status sums_memory(choir__fsdp *f, choir__book *book)
{
    choir_status status = new_sums(f, book);
    if (choir__fsdp_let_sums_go(f) && status != CHOIR_OK)
        status = new_sums(f, book);
    return f->outside ? refused(f->replicate ? f->replicate : f->shard, status) : status;
}

static int64_t lay_out_bucket(choir__fsdp *f, const choir__book *book, int bucket, int64_t at)
{
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *slot = &book->params[i]->slots[u];
            if (slot->by_rows || slot->bucket != bucket)
                continue;
            slot->local_at = at;
            at += (book->params[i]->local->count + ALIGN - 1) / ALIGN * ALIGN;
            if (slot->parts > 1)
                add_parts(f, book->params[i], slot);
            else
                add_cut(f, bucket, cut_of(f, book->params[i], slot));
        }
    return at;
}

static choir_status lay_out_sums(choir__fsdp *f, choir__book *book)
{
    int64_t at = 0;
    size_t n = (size_t)book->bucket_count + 1;
    f->bucket_count = book->bucket_count;
    f->cuts = choir__calloc(n, sizeof *f->cuts);
    f->cut_count = choir__calloc(n, sizeof *f->cut_count);
    f->sums_at = choir__calloc(n, sizeof *f->sums_at);
    f->sums_count = choir__calloc(n, sizeof *f->sums_count);
    for (int b = 0; b < book->bucket_count; b++) {
        if (f->cut_count[b]) /* a further part of the last bucket's gradient */
            continue;
        int64_t begin = at;
        at = lay_out_bucket(f, book, b, at);
        if (f->cut_count[b] && f->cuts[b]->of)
            continue;
        f->sums_at[b] = begin;
        f->sums_count[b] = at - begin;
    }
    f->sums_stride = (size_t)(at + ALIGN) * choir_dtype_size(book->dtype);
    return sums_memory(f, book);
}

/* --- slots --- */

/* Returns true if each bucket has its own slot. All ranks must decide alike, since they
 * allocate memory together. */
static bool keeps_slots(const choir__fsdp *f, const choir__book *book)
{
    return book->total > choir_group_world(f->group);
}

/* Finds a free slot of fitting size, the one longest out of use. Returns NULL if that is the
 * last one released and another of this size may be made. All ranks decide alike. */
static choir__fsdp_slot *find_slot(choir__fsdp *f, size_t bytes)
{
    choir__fsdp_slot *best = NULL;
    int alike = 0;
    for (choir__fsdp_slot *s = f->slots; s; s = s->next) {
        if (s->bytes < bytes || s->bytes > 2 * bytes)
            continue;
        alike++;
        if (s->bucket < 0 && (!best || s->turn < best->turn))
            best = s;
    }
    return alike >= TURNS || !best || best->turn < f->turns ? best : NULL;
}

/* outside: the slot keeps its sums over several micro-batches, which are off-loaded. */
static choir_status new_slot(choir__fsdp *f, choir_device *device, int bucket, size_t bytes,
    choir__offload_store *outside, choir__fsdp_slot **made)
{
    choir__group_memory memory;
    const char *what = "the gradients of a unit";
    choir_status status =
        outside ? refused(choir__fsdp_adders(f),
                      choir__group_memory_outside(
                          &memory, choir__fsdp_adders(f), device, outside, bytes, what))
                : choir__group_memory_new(&memory, choir__fsdp_adders(f), device, bytes,
                      (choir__group_memory_words){
                          what, "; smaller units need less", "(units' gradients)"});
    if (status != CHOIR_OK)
        return status;
    *made = choir__calloc(1, sizeof **made);
    **made = (choir__fsdp_slot){
        .memory = memory, .bytes = bytes, .bucket = bucket, .next = f->slots};
    f->slots = *made;
    return CHOIR_OK;
}

/* Returns the size of a new slot: the size of the largest bucket with which this one can share
 * it, so that a model's blocks and the parts of its head need two slots, not four. */
static size_t slot_size(const choir__book *book, size_t bytes, size_t levels)
{
    size_t most = bytes;
    for (int b = 0; b < book->bucket_count; b++) {
        size_t other = (size_t)book->buckets[b].count * choir_dtype_size(book->dtype) * levels;
        most = other > most && other <= 2 * bytes ? other : most;
    }
    return most;
}

static choir__fsdp_slot *slot_of(const choir__fsdp *f, int bucket)
{
    choir__fsdp_slot *s = f->slots;
    while (s && s->bucket != bucket)
        s = s->next;
    return s;
}

static choir_status laid_out(void *reducer, choir__book *book)
{
    choir__fsdp *f = reducer;
    size_t levels = (size_t)choir__book_levels(book);
    drain(f); /* a group may still use the old layout */
    forget_layout(f);
    free_slots(f);
    choir_status status = lay_out_sums(f, book);
    for (int b = 0; status == CHOIR_OK && keeps_slots(f, book) && b < book->bucket_count; b++) {
        choir__fsdp_slot *own;
        size_t bytes = (size_t)book->buckets[b].count * choir_dtype_size(book->dtype) * levels;
        status = new_slot(f, book->device, b, bytes, f->outside, &own);
    }
    return status;
}

static choir_status hold(
    void *reducer, choir__book *book, int bucket, int levels, char **memory)
{
    choir__fsdp *f = reducer;
    size_t bytes =
        (size_t)book->buckets[bucket].count * choir_dtype_size(book->dtype) * (size_t)levels;
    /* the bucket's own slot, or one left by an aborted step */
    choir__fsdp_slot *s = slot_of(f, bucket);
    choir_status status = CHOIR_OK;
    if (!s)
        s = find_slot(f, bytes);
    if (!s)
        status =
            new_slot(f, book->device, bucket, slot_size(book, bytes, (size_t)levels), NULL, &s);
    if (status != CHOIR_OK)
        return status;
    s->bucket = bucket;
    if (s->read.queue)
        choir__queue_wait_event(book->device->queue, s->read);
    *memory = s->memory.at;
    return CHOIR_OK;
}

/* Adds up this rank's rows of the bucket, over the ranks that share the model. */
static choir_status scatter(choir__fsdp *f, const choir__book *book, int bucket, double scale)
{
    const choir__bucket *b = &book->buckets[bucket];
    choir__tree_scatter args = {.nodes = b->held,
        .node_stride = (size_t)b->count * choir_dtype_size(book->dtype),
        .cuts = f->cuts[bucket],
        .cut_count = f->cut_count[bucket],
        .count = b->count,
        .total = book->total,
        .out = book->sums,
        .out_stride = f->sums_stride,
        .scale = f->replicate ? 1 : scale,
        .dtype = book->dtype};
    run_of(f, book, &args.first, &args.leaves);
    args.leaves -= args.first;
    choir__group_waits(choir__fsdp_adders(f), book->device);
    return choir__group_tree_scatter(choir__fsdp_adders(f), &args);
}

/* Adds up the rows over the copies of the model. */
static choir_status reduce_copies(
    choir__fsdp *f, const choir__book *book, int bucket, double scale)
{
    choir__tree_reduce args = {
        .nodes = book->sums + (size_t)f->sums_at[bucket] * choir_dtype_size(book->dtype),
        .node_stride = f->sums_stride,
        .count = f->sums_count[bucket],
        .leaves = book->total,
        .scale = scale,
        .dtype = book->dtype};
    choir__queue_wait_event(
        choir__group_queue(f->replicate), choir__queue_record(choir__group_queue(f->shard)));
    return choir__group_tree_reduce(f->replicate, &args);
}

/* Lets the pages of the bucket's slot go, if they are a file's. */
static void let_go(
    const choir__fsdp *f, const choir__book *book, const choir__fsdp_slot *s, int bucket)
{
    const void *at[CHOIR__OUTSIDE_PARTS] = {s->memory.at};
    size_t bytes = (size_t)book->buckets[bucket].count * choir_dtype_size(book->dtype);
    choir__offload_store_let_go(f->outside, choir__group_queue(choir__fsdp_adders(f)), at,
        bytes * (size_t)choir__book_levels(book));
}

static void bucket_ready(void *reducer, choir__book *book, int bucket)
{
    choir__fsdp *f = reducer;
    double scale =
        book->buckets[bucket].shared ? 1 : choir__mean_scale(book->dtype, book->total);
    choir_status status = scatter(f, book, bucket, scale);
    choir__fsdp_slot *s = slot_of(f, bucket);
    s->read = choir__queue_record(choir__group_queue(choir__fsdp_adders(f)));
    s->turn = ++f->turns;
    if (!keeps_slots(f, book))
        s->bucket = -1;
    if (f->outside)
        let_go(f, book, s, bucket);
    if (status == CHOIR_OK && f->replicate)
        status = reduce_copies(f, book, bucket, scale);
    if (status != CHOIR_OK)
        choir__scope_fail(f->base.run, status);
}

static choir_status begin_leaf(void *reducer, choir__book *book)
{
    choir__fsdp *f = reducer;
    (void)book;
    if (f->gather)
        choir__fsdp_gather_backward(f->gather);
    return CHOIR_OK;
}

/* Waits for the peers' backwards, after which the weights they read may change. */
static choir_status finish(void *reducer, choir__book *book)
{
    choir__fsdp *f = reducer;
    int64_t world = choir_group_world(f->group);
    if (f->gather)
        choir__fsdp_gather_finish(f->gather, (book->total + world - 1) / world - book->planned);
    choir_status status = choir__fsdp_fence(f);
    if (status == CHOIR_OK && f->gather)
        status = choir__fsdp_gather_status(f->gather);
    if (f->replicate)
        choir__device_waits(book->device, f->replicate);
    if (status == CHOIR_OK && f->replicate)
        status = choir__queue_status(choir__group_queue(f->replicate));
    if (f->turned)
        choir__device_waits(book->device, f->turned);
    return status == CHOIR_OK ? choir__queue_status(choir__group_queue(choir__fsdp_adders(f)))
                              : status;
}

static choir_status gather_rows(void *reducer, choir__book *book, choir__slot *slot,
    int64_t row_bytes, choir__leaf_rows *all)
{
    const choir__fsdp *f = reducer;
    return choir__ranks_gather_rows(
        f->turned ? f->turned : f->group, book, slot, row_bytes, f->turned, all);
}

static choir_status name_unused(void *reducer, choir__book *book)
{
    (void)reducer;
    return choir__ranks_name_unused(book, "fsdp");
}

static void free_reducer(void *reducer)
{
    choir__fsdp *f = reducer;
    drain(f);
    forget_layout(f);
    (void)choir__fsdp_let_sums_go(f);
    free_slots(f);
}

const choir__reducer_ops choir__fsdp_reducer = {
    .begin = begin_leaf,
    .laid_out = laid_out,
    .hold = hold,
    .bucket_ready = bucket_ready,
    .finish = finish,
    .gather_rows = gather_rows,
    .unused = name_unused,
    .free = free_reducer,
};
