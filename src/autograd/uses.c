/* The end of a step for a parameter with several uses. They are added in forward order: the sum
 * starts in the first dense use, and the gradients of lookups are added to it, as rows or,
 * where those would be more, as a table (book.h), in the same order. Uses on other stages of a
 * pipeline are in the books of other devices and are copied here first; their sum is the
 * same. */
#include "autograd/layout.h"
#include "tensor/launch.h"

#include <assert.h>
#include <stdlib.h>

/* Copies an array to another device. Returns NULL if memory runs out. */
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

/* Brings a leaf's rows into device's memory; *to holds references. */
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
    to->grads = copy_array(device, from->grads, from->grads_data, p->book->dtype, n * width);
    if (!to->ids || !to->grads)
        return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the gradient of %s",
            choir_device_name(device), p->name);
    to->ids_data = to->ids->data;
    to->grads_data = to->grads->data;
    return CHOIR_OK;
}

static choir_status add_use_rows(choir__book *book, choir__param *p, choir__slot *slot, void *y,
    bool accumulate, double scale)
{
    int64_t total = !book->reducer ? slot->row_count : book->total ? book->total : book->leaves;
    choir__leaf_rows *all = slot->rows;
    choir_status status = CHOIR_OK;
    if (book->reducer) {
        all = choir__calloc((size_t)total, sizeof *all);
        status = book->reducer_ops->gather_rows(book->reducer, book, slot,
            p->local->shape.dim[1] * (int64_t)choir_dtype_size(book->dtype), all);
    }
    bool apart = book->dtype == CHOIR_F64 && scale != 1; /* then rows are not added to others */
    if (status == CHOIR_OK)
        status = choir__launch_rows(book->device, all, total, y, p->local,
            (choir__table_rows){
                .first = p->boxes ? p->boxes->from[0] : 0, .padding = p->padding},
            accumulate, apart ? 1 : (float)scale);
    if (status == CHOIR_OK && apart)
        choir__book_add(book, y, y, NULL, p->local->count, scale);
    if (book->reducer)
        free(all);
    return status;
}

/* Computes y = (a + b) * scale over a parameter; b NULL: y = a * scale. */
static void add_dense(choir__book *book, const choir__param *p, void *y, const void *a,
    const void *b, double scale)
{
    choir__book_add(book, y, a, b, p->local->count, scale);
}

/* Adds a parameter's uses in forward order; the first dense one holds the sum. */
choir_status choir__uses_add(choir__book *book, choir__param *p, double scale)
{
    choir_status status = CHOIR_OK;
    const int first = choir__layout_sum_use(p);
    bool all_rows = first < 0;
    void *y = all_rows ? p->dense->data : choir__slot_sum(book, &p->slots[first]);
    bool mixed = p->slot_count > 1;
    for (int u = 0; u < p->slot_count && status == CHOIR_OK; u++) {
        choir__slot *slot = &p->slots[u];
        if (slot->by_rows)
            status = add_use_rows(
                book, p, slot, y, !all_rows || u > 0, mixed && !book->uses_scaled ? 1 : scale);
        else if (u != first)
            add_dense(book, p, y, y, choir__slot_sum(book, slot), 1);
    }
    if (mixed && scale != 1 && !book->uses_scaled)
        add_dense(book, p, y, y, NULL, scale);
    return status;
}

/* --- uses on several stages of a pipeline --- */

/* Adds the rows of a use of p on another stage to y. */
static choir_status add_far_rows(
    choir__book *book, choir__param *p, choir__slot *slot, void *y, bool accumulate)
{
    choir__leaf_rows *here = choir__calloc((size_t)slot->row_count + 1, sizeof *here);
    choir_status status = CHOIR_OK;
    for (int64_t l = 0; l < slot->row_count && status == CHOIR_OK; l++)
        status = rows_on(book->device, p, &slot->rows[l], &here[l]);
    choir__slot near = {.rows = here, .row_count = slot->row_count};
    if (status == CHOIR_OK)
        status = add_use_rows(book, p, &near, y, accumulate, 1);
    for (int64_t l = 0; l < slot->row_count; l++) {
        choir__storage_unref(here[l].ids);
        choir__storage_unref(here[l].grads);
    }
    free(here);
    return status;
}

/* Returns the entry of p->tensor with which p->local begins. */
static int64_t first_entry(const choir__param *p)
{
    int64_t rows = p->local->shape.ndim ? p->local->shape.dim[0] : 1;
    return rows ? p->first_row * (p->local->count / rows) : 0;
}

/* Adds a dense use of p to y, or writes it there. q: p or the replica, maybe on another stage,
 * that has the use. */
static choir_status add_far_dense(choir__book *book, choir__param *p, choir__param *q,
    choir__slot *slot, void *y, bool accumulate)
{
    const char *data =
        q == p ? choir__slot_sum(book, slot) : choir__slot_data(q->book, slot, 0);
    choir__storage *near = NULL;
    if (q->book->device != book->device) {
        choir__storage *level =
            q->book->level_storage[0] /* otherwise memory of a reducer */
                ? choir__storage_ref(q->book->level_storage[0])
                : choir__storage_wrap(q->book->device, q->book->level[0], q->book->level_bytes);
        near = copy_array(book->device, level, data, book->dtype, q->tensor->count);
        choir__storage_unref(level);
        if (!near)
            return choir__error(CHOIR_ERR_MEMORY, "out of memory on %s for the gradient of %s",
                choir_device_name(book->device), q->name);
        data = near->data;
    }
    data += q == p ? 0
                   : (size_t)first_entry(p) *
                         choir_dtype_size(book->dtype); /* a replica has all of it */
    add_dense(book, p, y, accumulate ? y : data, accumulate ? data : NULL, 1);
    choir__storage_unref(near);
    return CHOIR_OK;
}

/* Returns p or its replica on the first stage after `after`. */
static choir__param *next_stage(choir__param *p, int after)
{
    choir__param *found = p->stage > after ? p : NULL;
    for (choir__param *q = p->replicas; q; q = q->sibling)
        if (q->stage > after && (!found || q->stage < found->stage))
            found = q;
    return found;
}

/* Returns the use in whose memory the sum over all stages begins: the first whose op gives a
 * dense gradient; else p's own first use, with which p is stored; NULL: that stays in rows. */
static const choir__slot *first_dense(choir__param *p)
{
    for (choir__param *q = next_stage(p, -1); q; q = next_stage(p, q->stage))
        for (int u = 0; u < q->slot_count; u++)
            if (!q->slots[u].gives_rows)
                return &q->slots[u];
    const int own = choir__layout_sum_use(p);
    return own < 0 ? NULL : &p->slots[own];
}

/* Adds all uses but `first` to y, in forward order. begun: y has values already. */
static choir_status add_others(
    choir__book *book, choir__param *p, const choir__slot *first, void *y, bool begun)
{
    choir_status status = CHOIR_OK;
    for (choir__param *q = next_stage(p, -1); q; q = next_stage(p, q->stage))
        for (int u = 0; u < q->slot_count && status == CHOIR_OK; u++) {
            choir__slot *slot = &q->slots[u];
            if (slot == first)
                continue;
            status = slot->by_rows ? add_far_rows(book, p, slot, y, begun)
                                   : add_far_dense(book, p, q, slot, y, begun);
            begun = true;
        }
    return status;
}

/* A parameter is stored on the stage of its first dense use (pipeline/param_stage.c), so the
 * sum starts in that use's own memory, like choir__uses_add's on one device. */
choir_status choir__uses_add_stages(choir__book *book, choir__param *p, double scale)
{
    choir_status status = CHOIR_OK;
    for (choir__param *q = p->replicas; q && status == CHOIR_OK; q = q->sibling) {
        status = choir__book_finish(q->book);
        p->has_grad |= q->has_grad;
    }
    if (status != CHOIR_OK || !p->has_grad)
        return status;
    const choir__slot *first = first_dense(p);
    void *y = choir__param_grad_data(p);
    assert(!first || choir__slot_sum(book, first) == y);
    status = add_others(book, p, first, y, first);
    add_dense(book, p, y, y, NULL, scale);
    return status;
}
