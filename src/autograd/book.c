/* The gradient book during a step: leaves, sums, and the end of the step. book.h explains the
 * idea; layout.c has the layout. */
#include "autograd/book.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/layout.h"
#include "base/floats.h"
#include "tensor/strategy.h"

/* Frees all books of the run, which is closing. */
static void close_books(void *arg)
{
    choir_scope *run = arg;
    while (choir__run_of(run)->books)
        choir__book_free(choir__run_of(run)->books);
}

static bool sums_are_left(const choir__run *run)
{
    for (const choir__param *p = run->params; p; p = p->next) {
        if (p->began)
            return true;
        for (const choir__param *q = p->replicas; q; q = q->sibling)
            if (q->began)
                return true;
    }
    return false;
}

/* Drops what a failed step has written, be it a part of its first leaf. Ranks that add up a
 * step's leaves cannot know that one of them has given up, so there the next backward fails. */
static void drop_sums(choir__run *run)
{
    for (choir__book *b = run->books; b; b = b->next)
        if ((b->leaves == 0 && !b->open) || b->consumed)
            continue;
        else if (b->planned && b->planned != b->total)
            b->gave_up = true;
        else
            choir__book_forget(b);
}

static const choir__sums_ops sums = {sums_are_left, drop_sums};

choir__book *choir__book_new(
    choir_scope *run, choir_device *device, choir__param **params, int count)
{
    choir__book *book = choir__calloc(1, sizeof *book);
    book->run = run;
    book->device = device;
    book->dtype = CHOIR_F32;
    book->params = choir__calloc((size_t)count + 1, sizeof *book->params);
    for (int i = 0; i < count; i++)
        if (!params[i]->book) {
            params[i]->book = book;
            if (params[i]->tensor->dtype == CHOIR_F64)
                book->dtype = CHOIR_F64;
            book->params[book->count++] = params[i];
        }
    book->bucket_cap = CHOIR__BUCKET_BYTES;
    book->first_cap = CHOIR__FIRST_BUCKET_BYTES;
    if (!choir__run_of(run)->books)
        choir__on_close(run, close_books, run);
    book->next = choir__run_of(run)->books;
    choir__run_of(run)->books = book;
    choir__run_of(run)->sums = &sums;
    return book;
}

void choir__books_make(choir_scope *run, choir__param **params, int count)
{
    choir__param **same = choir__calloc((size_t)count + 1, sizeof *same);
    for (int i = 0; i < count; i++) {
        if (params[i]->book)
            continue;
        choir_device *device = choir__device_of(params[i]->tensor);
        bool wide = params[i]->tensor->dtype == CHOIR_F64;
        int n = 0;
        for (int j = i; j < count; j++)
            if (!params[j]->book && choir__device_of(params[j]->tensor) == device &&
                wide == (params[j]->tensor->dtype == CHOIR_F64))
                same[n++] = params[j];
        choir__book_new(run, device, same, n);
    }
    free(same);
}

static void drop_rows(choir__book *book)
{
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *slot = &book->params[i]->slots[u];
            for (int64_t l = 0; l < slot->row_count; l++) {
                choir__storage_unref(slot->rows[l].ids);
                choir__storage_unref(slot->rows[l].grads);
            }
            slot->row_count = 0;
        }
}

void choir__book_free(choir__book *book)
{
    drop_rows(book);
    choir__layout_free(book);
    if (book->reducer)
        book->reducer_ops->free(book->reducer);
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        p->book = NULL;
        p->grad = NULL; /* a view of this book's memory */
        p->has_grad = p->mixed = p->taken = false;
        p->began = 0;
    }
    choir__book **link = &choir__run_of(book->run)->books;
    while (*link != book)
        link = &(*link)->next;
    *link = book->next;
    free(book->params);
    free(book->order);
    free(book);
}

/* --- one backward --- */

static void start_step(choir__book *book)
{
    drop_rows(book);
    book->leaves = book->parts = 0;
    book->top = 0;
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        /* gradients in one book with those that another optimizer has used are lost */
        p->mixed = book->consumed && p->began;
        p->began = p->mixed ? p->began : 0;
        p->has_grad = p->taken = false;
    }
    book->finished = book->consumed = book->gave_up = book->open = false;
    for (int b = 0; b < book->bucket_count; b++) {
        book->buckets[b].reduced = false;
        book->buckets[b].held = NULL;
        choir__layout_pass(&book->buckets[b]);
    }
}

static void append_rows(choir__slot *slot, choir__leaf_rows rows)
{
    CHOIR__GROW(slot->rows, slot->row_count);
    slot->rows[slot->row_count++] = rows;
}

/* Returns the parameter whose gradients began first. */
static const choir__param *oldest(const choir__book *book)
{
    const choir__param *first = book->params[0];
    for (int i = 1; i < book->count; i++)
        if (book->params[i]->began - 1 < first->began - 1) /* 0: last */
            first = book->params[i];
    return first;
}

choir_status choir__book_check(choir__book *book)
{
    if (book->finished)
        start_step(book);
    if (book->gave_up) /* before the reducer's calls, which are collective */
        return choir__error(CHOIR_ERR_STATE,
            "backward: a step failed on this rank after %lld of its %lld micro-batches, which "
            "the other ranks wait for: resume the job from a checkpoint",
            (long long)book->leaves, (long long)book->planned);
    if (book->reducer && book->reducer_ops->begin) {
        choir_status status = book->reducer_ops->begin(book->reducer, book);
        if (status != CHOIR_OK)
            return status;
    }
    if (book->planned && book->leaves == book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "backward: this rank runs %lld micro-batches per step, and has; the optimizer steps "
            "next%s",
            (long long)book->planned, choir__layout_mixture(oldest(book)));
    return choir__layout_check(book);
}

choir_status choir__book_begin_leaf(choir__book *book, choir__strategy *shares)
{
    book->shares = shares;
    book->open = true;
    choir_status status =
        choir__layout_passes(book) ? CHOIR_OK : choir__layout_levels(book, book->top + 1);
    if (status != CHOIR_OK)
        return status;
    for (int b = 0; b < book->bucket_count; b++)
        book->buckets[b].pending = 0;
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *slot = &book->params[i]->slots[u];
            slot->done = false;
            slot->parts_done = 0;
            for (int64_t k = 0; k < slot->parts && !slot->by_rows; k++)
                book->buckets[slot->bucket + k].pending++;
        }
    return CHOIR_OK;
}

/* Returns the memory of a bucket at a level. */
static char *bucket_data(const choir__book *book, int bucket, int level)
{
    const choir__bucket *b = &book->buckets[bucket];
    if (b->passing && level == book->top)
        return b->passing->data;
    if (b->held)
        return b->held + (size_t)level * (size_t)b->count * choir_dtype_size(book->dtype);
    return (char *)book->level[level] + b->offset;
}

/* Returns the address of element `at` of a bucket in the level that this backward fills. */
static void *filling(const choir__book *book, int bucket, int64_t at)
{
    return bucket_data(book, bucket, book->top) + (size_t)at * choir_dtype_size(book->dtype);
}

void *choir__slot_data(choir__book *book, const choir__slot *slot, int level)
{
    return bucket_data(book, slot->bucket, level) +
           (size_t)slot->at * choir_dtype_size(book->dtype);
}

void *choir__slot_sum(choir__book *book, const choir__slot *slot)
{
    return book->sums ? book->sums + (size_t)slot->local_at * choir_dtype_size(book->dtype)
                      : choir__slot_data(book, slot, 0);
}

/* Returns memory at `at` of a bucket, for a gradient or a part of it. */
static choir_tensor *dest_in(
    choir__book *book, int bucket, int64_t at, choir_shape shape, choir_scope *scope)
{
    choir_status status = choir__layout_hold(book, bucket);
    if (status != CHOIR_OK) {
        choir__scope_fail(scope, status);
        choir_tensor *none = choir__tensor_bare(scope, book->dtype, shape);
        none->poisoned = true;
        return none;
    }
    return choir__tensor_wrap(
        scope, book->device, book->dtype, shape, filling(book, bucket, at));
}

choir_tensor *choir__book_dest(choir__param *param, int use, choir_scope *scope)
{
    const choir__slot *slot = &param->slots[use];
    choir_tensor *t = dest_in(param->book, slot->bucket, slot->at, param->tensor->shape, scope);
    memcpy(t->stride, param->tensor->stride, sizeof t->stride);
    return t;
}

choir_tensor *choir__book_dest_part(
    choir__param *param, int use, int64_t part, choir_scope *scope)
{
    choir_shape shape = param->tensor->shape;
    int64_t each = choir__part_rows(shape);
    shape.dim[0] = choir__min(each, shape.dim[0] - part * each);
    return dest_in(param->book, param->slots[use].bucket + (int)part, 0, shape, scope);
}

void choir__book_put_rows(choir__param *param, int use, choir_tensor *ids, choir_tensor *rows)
{
    choir__slot *slot = &param->slots[use];
    append_rows(slot, (choir__leaf_rows){
                          .ids = choir__storage_ref(ids->storage),
                          .grads = choir__storage_ref(rows->storage),
                          .ids_data = choir__data(ids),
                          .grads_data = choir__data(rows),
                          .count = ids->count,
                      });
    slot->done = true;
    param->has_grad = true;
}

/* Queues y *= scale in f64, which the kernel of sums does not do: its scale is f32. */
static void scale_wide(choir__book *book, void *y, int64_t n, double scale)
{
    choir__storage *factor = choir__storage_new(book->device, sizeof scale);
    if (!factor) {
        choir__scope_fail(book->run, choir__error(CHOIR_ERR_MEMORY, "out of memory on %s",
                                         choir_device_name(book->device)));
        return;
    }
    choir__k_fill number = {.y = factor->data, .value = scale, .n = 1, .dtype = CHOIR_F64};
    choir__k_binary product = {.y = {.p = y, .stride = {1}},
        .a = {.p = y, .stride = {1}},
        .b = {.p = factor->data},
        .shape = {n},
        .ndim = 1,
        .op = CHOIR__MUL,
        .dtype = CHOIR_F64};
    choir__launch(book->device, CHOIR_F64, fill, &number);
    choir__launch(book->device, CHOIR_F64, binary, &product);
    choir__storage_unref(factor);
}

void choir__book_add(
    choir__book *book, void *y, const void *a, const void *b, int64_t n, double scale)
{
    bool wide = book->dtype == CHOIR_F64;
    choir__k_add_scaled sum = {
        .a = a, .b = b, .y = y, .n = n, .scale = wide ? 1 : (float)scale, .dtype = book->dtype};
    if (n && (b || y != a || !wide))
        choir__launch(book->device, book->dtype, add_scaled, &sum);
    if (n && wide && scale != 1)
        scale_wide(book, y, n, scale);
}

/* Computes y = (a + b) * scale over one bucket; b < 0: y = a * scale. */
static void add_levels(choir__book *book, int bucket, int a, int b, double scale)
{
    void *y = bucket_data(book, bucket, a);
    choir__book_add(book, y, y, b < 0 ? NULL : bucket_data(book, bucket, b),
        book->buckets[bucket].count, scale);
}

/* Completes a bucket's leaf: adds nodes that are siblings now. Returns the height of the
 * stack. */
static int merge(choir__book *book, int bucket, choir__node stack[], int top, bool launch)
{
    stack[top++] = (choir__node){book->first + book->leaves, 1};
    while (top > 1 && choir__tree_siblings(stack[top - 2], stack[top - 1])) {
        if (launch)
            add_levels(book, bucket, top - 2, top - 1, 1);
        stack[top - 2].leaves *= 2;
        top--;
    }
    return top;
}

/* Sums the micro-batch's gradients over the ranks that have parts of it, and shows them to
 * those that listen. */
static void complete_leaf(choir__book *book, int bucket)
{
    choir_status status = CHOIR_OK;
    if (book->shares)
        status = book->shares->ops->chunks->leaf(book->shares, book->device, book->dtype,
            filling(book, bucket, 0), book->buckets[bucket].count);
    if (status != CHOIR_OK)
        choir__scope_fail(book->run, status);
    choir__strategies_leaf_done(book->run, book, bucket);
}

static void bucket_done(choir__book *book, int bucket)
{
    choir__node stack[CHOIR__MAX_LEVELS];
    memcpy(stack, book->stack, sizeof stack);
    complete_leaf(book, bucket);
    int top = merge(book, bucket, stack, book->top, true);
    choir__layout_pass(&book->buckets[bucket]);
    if (book->reducer && book->leaves + 1 == book->planned) {
        for (; choir__book_folds(book, bucket) && top > 1; top--)
            add_levels(book, bucket, top - 2, top - 1, 1);
        book->buckets[bucket].reduced = true;
        book->reducer_ops->bucket_ready(book->reducer, book, bucket);
        book->buckets[bucket].held = NULL;
    }
}

void choir__book_done_part(choir__param *param, int use)
{
    choir__slot *slot = &param->slots[use];
    int bucket = slot->bucket + (int)slot->parts_done++;
    if (slot->parts_done == slot->parts) {
        param->has_grad = slot->done = true;
        slot->turn = ++param->book->turns;
    }
    if (--param->book->buckets[bucket].pending == 0)
        bucket_done(param->book, bucket);
}

void choir__book_done(choir__param *param, int use)
{
    choir__book_done_part(param, use);
}

/* Writes zeros as the gradient of a use. */
static choir_status fill_use(choir__book *book, choir__param *param, int use)
{
    choir__slot *slot = &param->slots[use];
    while (slot->parts_done < slot->parts) {
        int bucket = slot->bucket + (int)slot->parts_done;
        choir_status status = choir__layout_hold(book, bucket);
        if (status != CHOIR_OK)
            return status;
        choir__k_fill args = {.y = filling(book, bucket, slot->at),
            .n = slot->parts > 1 ? book->buckets[bucket].count : param->tensor->count,
            .dtype = book->dtype};
        choir__launch(book->device, book->dtype, fill, &args);
        choir__book_done_part(param, use);
    }
    return CHOIR_OK;
}

/* Appends an empty leaf to each use that gave no rows in this leaf. */
static void pad_rows(choir__book *book)
{
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *slot = &book->params[i]->slots[u];
            if (slot->by_rows && !slot->done)
                append_rows(slot, (choir__leaf_rows){0});
        }
}

/* Notes when the sum of the gradients of a parameter began, and whether another optimizer has
 * stepped since. A step of its own would have begun another sum. */
static void note_sum(choir__book *book, choir__param *p)
{
    uint64_t now = choir__run_of(book->run)->updates + 1;
    bool written = false;
    for (int u = 0; u < p->slot_count; u++)
        written |= p->slots[u].done;
    if (!written)
        return;
    p->began = p->began ? p->began : now;
    p->mixed |= p->began != now && !p->dropped;
}

choir_status choir__book_end_leaf(choir__book *book, int64_t parts)
{
    if (book->reducer && book->reducer_ops->unused) {
        choir_status status = book->reducer_ops->unused(book->reducer, book);
        if (status != CHOIR_OK)
            return status;
    }
    for (int i = 0; i < book->count; i++) {
        choir__param *p = book->params[i];
        note_sum(book, p);
        for (int u = 0; u < p->slot_count; u++) {
            if (p->slots[u].done || p->slots[u].by_rows)
                continue;
            bool had = p->has_grad;
            choir_status status = fill_use(book, p, u); /* sums count a missing one as zero */
            if (status != CHOIR_OK)
                return status;
            p->has_grad = had;
        }
    }
    pad_rows(book);
    book->top = merge(book, 0, book->stack, book->top, false);
    book->leaves++;
    book->open = false;
    book->parts += parts;
    return CHOIR_OK;
}

void choir__book_forget(choir__book *book)
{
    start_step(book);
}

void choir__book_take_rows(choir__book *book, choir__book *other)
{
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *to = &book->params[i]->slots[u], *from = &other->params[i]->slots[u];
            for (int64_t l = 0; l < from->row_count; l++)
                append_rows(to, from->rows[l]);
            from->row_count = 0; /* the rows belong to `book` now */
        }
}

/* --- the end of a step --- */

static void fold(choir__book *book, double scale)
{
    for (int b = 0; b < book->bucket_count; b++) {
        double last = book->buckets[b].shared ? 1 : scale;
        for (int top = book->top; top > 1; top--)
            add_levels(book, b, top - 2, top - 1, top == 2 ? last : 1);
        if (book->top == 1 && last != 1)
            add_levels(book, b, 0, -1, last);
    }
}

choir_status choir__book_finish(choir__book *book)
{
    CHOIR__DEFAULT_FLOATS;
    if (book->finished || book->leaves == 0)
        return CHOIR_OK;
    if (book->planned && book->leaves < book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "the optimizer steps after %lld of this rank's %lld micro-batches",
            (long long)book->leaves, (long long)book->planned);
    int64_t parts = book->divisor ? book->divisor : book->total ? book->total : book->parts;
    double scale = book->of_replicas ? 1 : choir__mean_scale(book->dtype, parts);
    choir_status status = CHOIR_OK;
    if (book->reducer)
        status = book->reducer_ops->finish(book->reducer, book);
    else
        fold(book, scale);
    for (int i = 0; i < book->count && status == CHOIR_OK; i++) {
        choir__param *p = book->params[i];
        if (book->of_replicas)
            break;
        if (p->replicas)
            status = choir__uses_add_stages(book, p, scale);
        else if (p->has_grad && (p->slot_count > 1 || (p->slot_count && p->slots[0].by_rows)))
            status = choir__uses_add(book, p, scale);
    }
    book->finished = status == CHOIR_OK;
    return status;
}

void choir__book_consume(choir__book *book)
{
    book->finished = book->consumed = true;
}

choir_status choir__book_drop(choir__book *book)
{
    if (book->leaves == 0 || book->consumed)
        return CHOIR_OK;
    if (book->planned && book->leaves < book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "choir_optim_zero after %lld of this rank's %lld micro-batches: the ranks add up all "
            "of a step's gradients; drop them after the last one",
            (long long)book->leaves, (long long)book->planned);
    choir_status status = book->reducer && book->planned ? choir__book_finish(book) : CHOIR_OK;
    if (status == CHOIR_OK)
        choir__book_consume(book);
    return status;
}

void *choir__param_grad_data(choir__param *p)
{
    if (!p->has_grad || !p->book)
        return NULL;
    int use = choir__layout_sum_use(p);
    if (use >= 0)
        return choir__slot_sum(p->book, &p->slots[use]);
    return p->dense ? p->dense->data : NULL;
}
