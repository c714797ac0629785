/* The book's bookkeeping of one step: leaves, sums, the end. See book.h; the layout is
 * layout.c's. */
#include "autograd/book.h"

#include <stdlib.h>
#include <string.h>

#include "autograd/layout.h"

choir__book *choir__book_new(
    choir_scope *run, choir_device *device, choir__param **params, int count)
{
    choir__book *book = choir__calloc(1, sizeof *book);
    book->run = run;
    book->device = device;
    book->params = choir__calloc((size_t)count + 1, sizeof *book->params);
    for (int i = 0; i < count; i++)
        if (!params[i]->book) {
            params[i]->book = book;
            book->params[book->count++] = params[i];
        }
    book->bucket_cap = (size_t)25 << 20;
    book->first_cap = (size_t)1 << 20;
    if (!run->books)
        choir__on_close(run, choir__books_close, run);
    book->next = run->books;
    run->books = book;
    return book;
}

void choir__books_make(choir_scope *run, choir__param **params, int count)
{
    choir__param **same = choir__calloc((size_t)count + 1, sizeof *same);
    for (int i = 0; i < count; i++) {
        if (params[i]->book)
            continue;
        choir_device *device = choir__device_of(params[i]->tensor);
        int n = 0;
        for (int j = i; j < count; j++)
            if (!params[j]->book && choir__device_of(params[j]->tensor) == device)
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
        p->grad = NULL; /* a view of what was here */
        p->has_grad = false;
    }
    choir__book **link = &book->run->books;
    while (*link != book)
        link = &(*link)->next;
    *link = book->next;
    free(book->params);
    free(book);
}

void choir__books_close(void *arg)
{
    choir_scope *run = arg;
    while (run->books)
        choir__book_free(run->books);
}

/* --- one backward --- */

static void start_step(choir__book *book)
{
    drop_rows(book);
    book->finished = book->consumed = false;
    book->leaves = book->parts = 0;
    book->top = 0;
    for (int i = 0; i < book->count; i++)
        book->params[i]->has_grad = false;
    for (int b = 0; b < book->bucket_count; b++)
        book->buckets[b].reduced = false;
}

/* Capacity grows to the next power of two. */
static void append_rows(choir__slot *slot, choir__leaf_rows rows)
{
    int64_t n = slot->row_count;
    if ((n & (n - 1)) == 0)
        slot->rows = choir__realloc(slot->rows, (size_t)(n ? 2 * n : 1) * sizeof *slot->rows);
    slot->rows[slot->row_count++] = rows;
}

choir_status choir__book_check(choir__book *book)
{
    if (book->finished)
        start_step(book);
    if (book->reducer && book->reducer_ops->begin) {
        choir_status status = book->reducer_ops->begin(book->reducer, book);
        if (status != CHOIR_OK)
            return status;
    }
    if (book->planned && book->leaves == book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "backward: this rank runs %lld micro-batches a step, and has; the optimizer steps next",
            (long long)book->planned);
    return choir__layout_check(book);
}

choir_status choir__book_begin_leaf(choir__book *book)
{
    choir_status status = choir__layout_levels(book, book->top + 1);
    if (status != CHOIR_OK)
        return status;
    for (int b = 0; b < book->bucket_count; b++)
        book->buckets[b].pending = 0;
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *slot = &book->params[i]->slots[u];
            slot->done = false;
            if (!slot->by_rows)
                book->buckets[slot->bucket].pending++;
        }
    return CHOIR_OK;
}

static float *slot_data(choir__book *book, const choir__slot *slot, int level)
{
    char *base = (char *)book->level[level] + book->buckets[slot->bucket].offset;
    return (float *)base + slot->at;
}

choir_tensor *choir__book_dest(choir__param *param, int use, choir_scope *scope)
{
    choir__book *book = param->book;
    choir_tensor *t = choir__tensor_wrap(scope, book->device, CHOIR_F32, param->tensor->shape,
        slot_data(book, &param->slots[use], book->top));
    memcpy(t->stride, param->tensor->stride, sizeof t->stride);
    return t;
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

/* y = (a + b) * scale over one bucket; b < 0: y = a * scale. */
static void add_levels(choir__book *book, int bucket, int a, int b, float scale)
{
    size_t at = book->buckets[bucket].offset;
    choir__k_add_scaled args = {.a = (char *)book->level[a] + at,
        .b = b < 0 ? NULL : (char *)book->level[b] + at,
        .y = (char *)book->level[a] + at,
        .n = book->buckets[bucket].count,
        .scale = scale,
        .dtype = CHOIR_F32};
    choir__launch(book->device, CHOIR_F32, add_scaled, &args);
}

/* A bucket's leaf is complete: add what are now siblings. Returns the height of the stack. */
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

static void bucket_done(choir__book *book, int bucket)
{
    choir__node stack[CHOIR__MAX_LEVELS];
    memcpy(stack, book->stack, sizeof stack);
    merge(book, bucket, stack, book->top, true);
    if (book->reducer && book->leaves + 1 == book->planned) {
        book->buckets[bucket].reduced = true;
        book->reducer_ops->bucket_ready(book->reducer, book, bucket);
    }
}

void choir__book_done(choir__param *param, int use)
{
    choir__slot *slot = &param->slots[use];
    param->has_grad = slot->done = true;
    if (--param->book->buckets[slot->bucket].pending == 0)
        bucket_done(param->book, slot->bucket);
}

static void fill_slot(choir__book *book, choir__param *param, choir__slot *slot)
{
    choir__k_fill args = {
        .y = slot_data(book, slot, book->top), .n = param->tensor->count, .dtype = CHOIR_F32};
    choir__launch(book->device, CHOIR_F32, fill, &args);
}

/* A use that gave no rows in this leaf: its leaf is empty. */
static void pad_rows(choir__book *book)
{
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *slot = &book->params[i]->slots[u];
            if (slot->by_rows && !slot->done)
                append_rows(slot, (choir__leaf_rows){0});
        }
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
        for (int u = 0; u < p->slot_count; u++) {
            if (p->slots[u].done || p->slots[u].by_rows)
                continue;
            bool had = p->has_grad;
            fill_slot(
                book, p, &p->slots[u]); /* no gradient is a gradient of zero to the sums */
            choir__book_done(p, u);
            p->has_grad = had;
        }
    }
    pad_rows(book);
    book->top = merge(book, 0, book->stack, book->top, false);
    book->leaves++;
    book->parts += parts;
    return CHOIR_OK;
}

void choir__book_forget(choir__book *book)
{
    start_step(book);
}

/* --- rows and sums of other devices --- */

/* A copy of an array on another device; NULL: out of memory. */
static choir__storage *copy_array(
    choir_device *device, choir__storage *from, const void *data, choir_dtype dtype, int64_t n)
{
    choir__storage *to = choir__storage_new(device, (size_t)n * choir_dtype_size(dtype));
    if (!to)
        return NULL;
    choir_tensor x = {.storage = from, .dtype = dtype, .shape = {1, {n}}, .count = n}, y = x;
    x.stride[0] = y.stride[0] = 1;
    x.offset =
        ((const char *)data - (const char *)from->data) / (ptrdiff_t)choir_dtype_size(dtype);
    y.storage = to;
    choir__copy_across(&y, &x);
    return to;
}

/* A leaf's rows in memory of a device; what it returns holds references. */
static choir_status rows_on(choir_device *device, const choir__param *p,
    const choir__leaf_rows *from, choir__leaf_rows *to)
{
    *to = *from;
    if (!from->ids)
        return CHOIR_OK;
    if (from->ids->device == device) {
        choir__storage_ref(to->ids);
        choir__storage_ref(to->grads);
        return CHOIR_OK;
    }
    int64_t n = from->count, width = p->tensor->shape.dim[1];
    to->ids = copy_array(device, from->ids, from->ids_data, CHOIR_I64, n);
    to->grads = copy_array(device, from->grads, from->grads_data, CHOIR_F32, n * width);
    if (!to->ids || !to->grads)
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the gradient of %s",
            choir_device_name(device), p->name);
    to->ids_data = to->ids->data;
    to->grads_data = to->grads->data;
    return CHOIR_OK;
}

void choir__book_take_rows(choir__book *book, choir__book *other)
{
    for (int i = 0; i < book->count; i++)
        for (int u = 0; u < book->params[i]->slot_count; u++) {
            choir__slot *to = &book->params[i]->slots[u], *from = &other->params[i]->slots[u];
            for (int64_t l = 0; l < from->row_count; l++)
                append_rows(to, from->rows[l]);
            from->row_count = 0; /* theirs no more */
        }
}

/* --- the end of a step --- */

static choir_status add_use_rows(choir__book *book, choir__param *p, choir__slot *slot,
    float *y, bool accumulate, float scale)
{
    int64_t total = !book->reducer ? slot->row_count : book->total ? book->total : book->leaves;
    choir__leaf_rows *all = slot->rows;
    choir_status status = CHOIR_OK;
    if (book->reducer) {
        all = choir__calloc((size_t)total, sizeof *all);
        status = book->reducer_ops->gather_rows(
            book->reducer, book, slot, p->tensor->shape.dim[1] * (int64_t)sizeof(float), all);
    }
    if (status == CHOIR_OK)
        status = choir__launch_rows(book->device, all, total, y, p->tensor, accumulate, scale);
    if (book->reducer)
        free(all);
    return status;
}

/* y = (a + b) * scale over a parameter; b NULL: y = a * scale. */
static void add_dense(choir__book *book, const choir__param *p, float *y, const float *a,
    const float *b, float scale)
{
    choir__k_add_scaled args = {
        .a = a, .b = b, .y = y, .n = p->tensor->count, .scale = scale, .dtype = CHOIR_F32};
    choir__launch(book->device, CHOIR_F32, add_scaled, &args);
}

/* Adds a parameter's uses in forward order: dense ones first found hold the sum. */
static choir_status add_uses(choir__book *book, choir__param *p, float scale)
{
    choir_status status = CHOIR_OK;
    int first = 0;
    while (first < p->slot_count && p->slots[first].by_rows)
        first++;
    bool all_rows = first == p->slot_count;
    float *y = all_rows ? p->dense->data : slot_data(book, &p->slots[first], 0);
    bool mixed = p->slot_count > 1;
    for (int u = 0; u < p->slot_count && status == CHOIR_OK; u++) {
        choir__slot *slot = &p->slots[u];
        if (slot->by_rows)
            status = add_use_rows(book, p, slot, y, !all_rows || u > 0, mixed ? 1 : scale);
        else if (u != first)
            add_dense(book, p, y, y, slot_data(book, slot, 0), 1);
    }
    if (mixed && scale != 1)
        add_dense(book, p, y, y, NULL, scale);
    return status;
}

/* --- uses on several stages of a pipeline --- */

/* Rows of a use on another stage, added to y. */
static choir_status add_far_rows(
    choir__book *book, choir__param *q, choir__slot *slot, float *y, bool accumulate)
{
    choir__leaf_rows *here = choir__calloc((size_t)slot->row_count + 1, sizeof *here);
    choir_status status = CHOIR_OK;
    for (int64_t l = 0; l < slot->row_count && status == CHOIR_OK; l++)
        status = rows_on(book->device, q, &slot->rows[l], &here[l]);
    if (status == CHOIR_OK)
        status = choir__launch_rows(
            book->device, here, slot->row_count, y, q->tensor, accumulate, 1);
    for (int64_t l = 0; l < slot->row_count; l++) {
        choir__storage_unref(here[l].ids);
        choir__storage_unref(here[l].grads);
    }
    free(here);
    return status;
}

/* A dense use on another stage, added to y, or written there. */
static choir_status add_far_dense(
    choir__book *book, choir__param *q, choir__slot *slot, float *y, bool accumulate)
{
    const float *data = slot_data(q->book, slot, 0);
    choir__storage *near = NULL;
    if (q->book->device != book->device) {
        near = copy_array(
            book->device, q->book->level_storage[0], data, CHOIR_F32, q->tensor->count);
        if (!near)
            return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the gradient of %s",
                choir_device_name(book->device), q->name);
        data = near->data;
    }
    add_dense(book, q, y, accumulate ? y : data, accumulate ? data : NULL, 1);
    choir__storage_unref(near);
    return CHOIR_OK;
}

/* p or the replica of it that is on the next stage after `after`. */
static choir__param *next_stage(choir__param *p, int after)
{
    choir__param *found = p->stage > after ? p : NULL;
    for (choir__param *q = p->replicas; q; q = q->sibling)
        if (q->stage > after && (!found || q->stage < found->stage))
            found = q;
    return found;
}

/* The same sum as add_uses makes of the same uses on one device: the first dense one, then all
 * others in forward order. */
static choir_status add_far_uses(choir__book *book, choir__param *p, float *y)
{
    choir_status status = CHOIR_OK;
    const choir__slot *first = NULL;
    bool begun = false;
    for (int pass = 0; pass < 2; pass++)
        for (choir__param *q = next_stage(p, -1); q; q = next_stage(p, q->stage))
            for (int u = 0; u < q->slot_count && status == CHOIR_OK; u++) {
                choir__slot *slot = &q->slots[u];
                if (pass == 0 ? slot->by_rows || first : slot == first)
                    continue;
                if (pass == 0)
                    first = slot;
                status = slot->by_rows ? add_far_rows(book, q, slot, y, begun)
                                       : add_far_dense(book, q, slot, y, begun);
                begun = true;
            }
    return status;
}

static choir_status add_stages(choir__book *book, choir__param *p, float scale)
{
    choir_status status = CHOIR_OK;
    for (choir__param *q = p->replicas; q && status == CHOIR_OK; q = q->sibling) {
        status = choir__book_finish(q->book);
        p->has_grad |= q->has_grad;
    }
    if (status != CHOIR_OK || !p->has_grad)
        return status;
    choir__storage *sum =
        choir__storage_new(book->device, (size_t)p->tensor->count * sizeof(float));
    if (!sum)
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the gradient of %s",
            choir_device_name(book->device), p->name);
    status = add_far_uses(book, p, sum->data);
    add_dense(book, p, choir__param_grad_data(p), sum->data, NULL, scale);
    choir__storage_unref(sum);
    return status;
}

static void fold(choir__book *book, float scale)
{
    for (int b = 0; b < book->bucket_count; b++) {
        float last = book->buckets[b].shared ? 1 : scale;
        for (int top = book->top; top > 1; top--)
            add_levels(book, b, top - 2, top - 1, top == 2 ? last : 1);
        if (book->top == 1 && last != 1)
            add_levels(book, b, 0, -1, last);
    }
}

choir_status choir__book_finish(choir__book *book)
{
    if (book->finished || book->leaves == 0)
        return CHOIR_OK;
    if (book->planned && book->leaves < book->planned)
        return choir__error(CHOIR_ERR_STATE,
            "the optimizer steps after %lld of this rank's %lld micro-batches",
            (long long)book->leaves, (long long)book->planned);
    int64_t parts = book->total ? book->total : book->parts;
    float scale = book->of_replicas ? 1 : 1.0f / (float)parts;
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
            status = add_stages(book, p, scale);
        else if (p->has_grad && (p->slot_count > 1 || (p->slot_count && p->slots[0].by_rows)))
            status = add_uses(book, p, scale);
    }
    book->finished = status == CHOIR_OK;
    return status;
}

void choir__book_consume(choir__book *book)
{
    book->finished = book->consumed = true;
}

float *choir__param_grad_data(choir__param *p)
{
    if (!p->has_grad || !p->book)
        return NULL;
    for (int u = 0; u < p->slot_count; u++)
        if (!p->slots[u].by_rows)
            return slot_data(p->book, &p->slots[u], 0);
    return p->dense ? p->dense->data : NULL;
}
