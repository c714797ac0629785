/* Buckets, as in DDP: parameters are assigned in reverse order of registration, which is
 * roughly the order in which backward finishes them. A bucket closes once its size reaches the
 * cap (it may exceed it); the first one has a smaller cap, so that its reduction starts early.
 * Parameters with several uses get buckets of their own, because they are scaled only after
 * their uses have been added. If a reducer holds one bucket after the other, each part of a
 * large gradient is a bucket, too; else the gradient of lookups that is given as a table is a
 * bucket of its own, behind all others, since hooks see none of those. */
#include "autograd/layout.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/run.h"

enum { ALIGN = 16 }; /* elements: 64 bytes */

static int64_t aligned(int64_t count)
{
    return (count + ALIGN - 1) / ALIGN * ALIGN;
}

void choir__layout_free(choir__book *book)
{
    (void)!choir_device_sync(book->device);
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        for (int u = 0; u < p->slot_count; u++)
            free(p->slots[u].rows);
        free(p->slots);
        p->slots = NULL;
        p->slot_count = 0;
        choir__storage_unref(p->dense);
        p->dense = NULL;
    }
    for (int l = 0; l < CHOIR__MAX_LEVELS; l++) {
        choir__storage_unref(book->level_storage[l]);
        book->level_storage[l] = NULL;
        book->level[l] = NULL;
    }
    for (int b = 0; b < book->bucket_count; b++)
        choir__layout_pass(&book->buckets[b]);
    free(book->buckets);
    book->buckets = NULL;
    book->bucket_count = 0;
    book->sums = NULL;
    book->laid_out = false;
}

static bool fits(const choir__book *book, const choir__param **odd)
{
    if (!book->laid_out)
        return false;
    for (int i = 0; i < book->count; i++) {
        const choir__param *p = book->params[i];
        if (p->tensor->requires_grad ? p->uses > 0 && p->uses != p->slot_count
                                     : p->slot_count > 0) {
            *odd = p;
            return false;
        }
        uint32_t rows = 0;
        for (int u = 0; u < p->slot_count; u++)
            rows |= (uint32_t)p->slots[u].by_rows << (u < 32 ? u : 31);
        if ((p->tensor->requires_grad && p->slot_count == 0) ||
            (p->uses > 0 && rows & ~p->rows_uses)) {
            *odd = p;
            return false;
        }
    }
    return true;
}

bool choir__rows_stay(
    const choir__param *table, int64_t gathered, int64_t rows, choir_dtype dtype)
{
    choir_shape shape = table->tensor->shape;
    int64_t row = shape.dim[1] * (int64_t)choir_dtype_size(dtype), leaves = gathered;
    if (!gathered && table->rows_of_ranks)
        leaves = choir__max(choir__run_of(table->tensor->scope)->micro_total, INT64_C(1));
    return leaves * rows * (row + (int64_t)sizeof(int64_t)) <= shape.dim[0] * row;
}

int choir__layout_sum_use(const choir__param *p)
{
    for (int u = 0; u < p->slot_count; u++)
        if (!p->slots[u].gives_rows)
            return u;
    return p->slot_count && !p->slots[0].by_rows ? 0 : -1;
}

static void make_slots(const choir__book *book, choir__param *p)
{
    int uses = p->uses ? p->uses : p->uses_elsewhere;
    uint32_t rows = p->uses ? p->rows_uses : p->rows_elsewhere;
    bool stay = rows && choir__rows_stay(p, book->gathered,
                            choir__max(p->rows_given, p->rows_given_elsewhere), book->dtype);
    p->slot_count = p->tensor->requires_grad ? (uses ? uses : 1) : 0;
    p->slots = choir__calloc((size_t)p->slot_count + 1, sizeof *p->slots);
    for (int u = 0; u < p->slot_count;
         u++) { /* uses that the tape marked as rows, see scan.c */
        p->slots[u].gives_rows = u < 32 && (rows >> u & 1);
        p->slots[u].by_rows = p->slots[u].gives_rows && stay;
        p->slots[u].parts = 1;
    }
}

static choir__bucket *add_bucket(choir__book *book, const choir__param *p, bool shared)
{
    CHOIR__GROW(book->buckets, book->bucket_count);
    choir__bucket *b = &book->buckets[book->bucket_count++];
    *b = (choir__bucket){.shared = shared, .unit = p->unit};
    return b;
}

/* Returns the number of parts in which the use's gradient is stored. A pipeline's replicas hold
 * theirs whole, since the uses of several stages are added. */
static int64_t parts_of(const choir__book *book, const choir__param *p, int use)
{
    bool sharded = book->reducer && book->reducer_ops->hold && !book->of_replicas;
    choir_shape shape = p->tensor->shape;
    if (!sharded || p->replicas || use >= 32 || !(p->part_uses >> use & 1))
        return 1;
    int64_t each = choir__part_rows(shape);
    return each ? (shape.dim[0] + each - 1) / each : 1;
}

static void add_parts(choir__book *book, const choir__param *p, choir__slot *slot, bool shared)
{
    choir_shape shape = p->tensor->shape;
    int64_t each = choir__part_rows(shape);
    slot->bucket = book->bucket_count;
    slot->at = 0;
    for (int64_t from = 0; from < shape.dim[0]; from += each)
        add_bucket(book, p, shared)->count =
            aligned(choir__min(each, shape.dim[0] - from) * shape.dim[1]);
}

static bool is_sharded(const choir__book *book)
{
    return book->reducer && book->reducer_ops->hold;
}

static choir__param *in_order(const choir__book *book, int k)
{
    return book->params[book->order ? book->order[k] : book->count - 1 - k];
}

/* Returns whether a use has a table's bucket. */
static bool is_table(const choir__book *book, const choir__slot *slot)
{
    return slot->gives_rows && !slot->by_rows && !is_sharded(book);
}

static void add_tables(choir__book *book)
{
    book->tables_from = book->bucket_count;
    for (int k = 0; k < book->count; k++) {
        choir__param *p = in_order(book, k);
        for (int u = 0; u < p->slot_count; u++) {
            if (!is_table(book, &p->slots[u]))
                continue;
            p->slots[u].bucket = book->bucket_count;
            p->slots[u].at = 0;
            add_bucket(book, p, p->slot_count > 1 || p->replicas)->count =
                aligned(p->tensor->count);
        }
    }
}

/* Assigns the parameters that are `shared` (have several uses), or the others, to buckets. */
static void fill_buckets(choir__book *book, bool shared)
{
    choir__bucket *open = NULL;
    bool sharded = is_sharded(book); /* then only units end a bucket */
    for (int k = 0; k < book->count; k++) {
        choir__param *p = in_order(book, k);
        if ((p->slot_count > 1 || p->replicas) != shared)
            continue;
        for (int u = 0; u < p->slot_count; u++) {
            if (p->slots[u].by_rows || is_table(book, &p->slots[u]))
                continue;
            p->slots[u].parts = parts_of(book, p, u);
            if (p->slots[u].parts > 1) {
                add_parts(book, p, &p->slots[u], shared);
                open = NULL;
                continue;
            }
            size_t cap = book->bucket_count <= 1 ? book->first_cap : book->bucket_cap;
            if (!open || open->unit != p->unit ||
                (!sharded && (size_t)open->count * choir_dtype_size(book->dtype) >= cap))
                open = add_bucket(book, p, shared);
            p->slots[u].bucket = book->bucket_count - 1;
            p->slots[u].at = open->count;
            open->count += aligned(p->tensor->count);
        }
    }
}

static choir_status lay_out(choir__book *book)
{
    choir__layout_free(book);
    for (int i = 0; i < book->count; i++)
        make_slots(book, book->params[i]);
    fill_buckets(book, false);
    fill_buckets(book, true);
    add_tables(book);
    book->level_bytes = 0;
    for (int b = 0; b < book->bucket_count; b++) {
        book->buckets[b].offset = book->level_bytes;
        book->level_bytes += (size_t)book->buckets[b].count * choir_dtype_size(book->dtype);
    }
    book->layout = ++choir__run_of(book->run)->layouts; /* unique among the run's books */
    book->laid_out = true;
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        bool all_rows = p->slot_count > 0 && !book->of_replicas; /* further uses by rows */
        for (int u = 0; u < p->slot_count; u++)
            all_rows &= p->slots[u].by_rows;
        if (!all_rows)
            continue;
        p->dense = choir__storage_new(
            book->device, (size_t)p->local->count * choir_dtype_size(book->dtype));
        choir__storage_holds(p->dense, CHOIR__MEMORY_GRADIENTS);
        choir__storage_tell(p->dense, CHOIR__FOR_WORK, p->name);
        if (!p->dense)
            return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the gradient of %s",
                choir_device_name(book->device), p->name);
    }
    if (book->reducer && book->reducer_ops->laid_out)
        return book->reducer_ops->laid_out(book->reducer, book);
    return CHOIR_OK;
}

const char *choir__layout_mixture(const choir__param *p)
{
    const choir_scope *run = p->tensor->scope;
    bool since = p->began && p->began <= choir__run_of(run)->updates;
    return since
               ? "; another optimizer has stepped since: if its loss was computed through this "
                 "module, choir_optim_zero drops the gradient that it left here, and "
                 "choir_module_freeze keeps it out"
               : "";
}

choir_status choir__layout_check(choir__book *book)
{
    const choir__param *odd = NULL;
    if (fits(book, &odd))
        return CHOIR_OK;
    if (odd && book->leaves > 0)
        return choir__error(CHOIR_ERR_STATE,
            "backward: parameter %s of module '%s' is used %d times in this micro-batch, %d in the "
            "one before%s",
            odd->name, odd->of, odd->uses, odd->slot_count, choir__layout_mixture(odd));
    if (odd && book->planned && odd->tensor->requires_grad != (odd->slot_count > 0))
        return choir__error(CHOIR_ERR_STATE,
            "backward: parameter %s of module '%s' is %s since the step before: under a group the "
            "trained parameters may not change: freeze and thaw before a strategy wraps the module",
            odd->name, odd->of, odd->slot_count ? "frozen" : "trained");
    if (odd && book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "backward: parameter %s of module '%s' is used %d times in this step, %d in the one "
            "before; under a group the use of parameters may not change: if another network's loss "
            "is computed through this module, choir_module_freeze it there",
            odd->name, odd->of, odd->uses, odd->slot_count);
    return lay_out(book);
}

/* Returns NULL, with a message, if the device has no such memory. */
static choir__storage *new_gradients(choir__book *book, size_t bytes, const char *name)
{
    choir__storage *s = choir__storage_new(book->device, bytes);
    if (!s)
        choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for gradients, %zu bytes",
            choir_device_name(book->device), bytes);
    choir__storage_holds(s, CHOIR__MEMORY_GRADIENTS);
    choir__storage_tell(s, CHOIR__FOR_WORK, name);
    return s;
}

static choir_status one_level(choir__book *book, int level)
{
    choir__storage *s = new_gradients(book, book->level_bytes, "(sums over micro-batches)");
    if (!s)
        return CHOIR_ERR_MEMORY;
    book->level_storage[level] = s;
    book->level[level] = s->data;
    return CHOIR_OK;
}

int choir__layout_height(int64_t first, int64_t count)
{
    choir__node stack[CHOIR__MAX_LEVELS];
    int top = 0, highest = 0;
    for (int64_t i = 0; i < count; i++) {
        stack[top++] = (choir__node){first + i, 1};
        while (top > 1 && choir__tree_siblings(stack[top - 2], stack[top - 1])) {
            stack[top - 2].leaves *= 2;
            top--;
        }
        highest = top > highest ? top : highest;
    }
    return highest;
}

int choir__book_levels(const choir__book *book)
{
    return choir__layout_height(book->first, book->planned);
}

bool choir__layout_passes(const choir__book *book)
{
    const choir__node leaf = {book->first + book->leaves, 1};
    return book->top && choir__tree_siblings(book->stack[book->top - 1], leaf);
}

void choir__layout_pass(choir__bucket *bucket)
{
    choir__storage_unref(bucket->passing);
    bucket->passing = NULL;
}

choir_status choir__layout_hold(choir__book *book, int bucket)
{
    choir__bucket *b = &book->buckets[bucket];
    choir_status status = CHOIR_OK;
    if (book->reducer && book->reducer_ops->hold && !b->held)
        status = book->reducer_ops->hold(
            book->reducer, book, bucket, choir__book_levels(book), &b->held);
    if (status != CHOIR_OK || b->passing || !choir__layout_passes(book))
        return status;
    b->passing = new_gradients(
        book, (size_t)b->count * choir_dtype_size(book->dtype), "(gradients to be added)");
    return b->passing ? CHOIR_OK : CHOIR_ERR_MEMORY;
}

choir_status choir__layout_levels(choir__book *book, int levels)
{
    if (book->level[levels - 1] || !book->level_bytes)
        return CHOIR_OK;
    bool longer = book->level[0]; /* more leaves than planned */
    if (book->reducer && book->reducer_ops->hold)
        return CHOIR_OK; /* memory comes bucket by bucket */
    if (!book->reducer || !book->reducer_ops->alloc || longer)
        return one_level(book, levels - 1);
    int needed = book->shared_levels ? book->shared_levels : choir__book_levels(book);
    void *base;
    choir_status status =
        book->reducer_ops->alloc(book->reducer, book->level_bytes, needed, &base);
    if (status != CHOIR_OK)
        return status;
    for (int l = 0; l < needed; l++)
        book->level[l] = (char *)base + (size_t)l * book->level_bytes;
    return CHOIR_OK;
}
