/* Reducing a book that all ranks of a group hold whole: its levels are memory of the group, and
 * each bucket is one tree reduction on the group's queue. */
#include "parallel/whole_book.h"

#include <stdlib.h>

#include "parallel/group_memory.h"
#include "parallel/ranks.h"
#include "tensor/scope.h"

typedef struct reducer {
    choir__whole_book is;
    choir_device *device;
    choir__group_memory levels; /* memory of the book's levels */
} reducer;

static choir_status alloc_levels(void *arg, size_t bytes, int levels, void **at)
{
    reducer *r = arg;
    choir_status status =
        choir__group_memory_renew(&r->levels, r->is.group, r->device, bytes * (size_t)levels,
            (choir__group_memory_words){r->is.what, "", "(sums over micro-batches)"});
    *at = r->levels.at;
    return status;
}

static void bucket_ready(void *arg, choir__book *book, int bucket)
{
    reducer *r = arg;
    const choir__bucket *b = &book->buckets[bucket];
    /* uses of a shared parameter are added first, and scaled then */
    bool whole = !b->shared && !book->of_replicas;
    choir__tree_reduce args = {
        .nodes = (char *)r->levels.at + b->offset,
        .node_stride = book->level_bytes,
        .count = b->count,
        .leaves = book->total,
        .scale = whole ? choir__mean_scale(book->dtype, book->total) : 1,
        .algorithm = r->is.algorithm,
        .dtype = book->dtype,
    };
    choir__group_waits(r->is.group, book->device);
    choir_status status = choir__group_tree_reduce(r->is.group, &args);
    if (status != CHOIR_OK)
        choir__scope_fail(book->run, status);
}

static choir_status finish(void *arg, choir__book *book)
{
    reducer *r = arg;
    choir_status status = r->is.earlier ? choir__book_finish(r->is.earlier->book) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    choir__device_waits(book->device, r->is.group);
    return choir__queue_status(choir__group_queue(r->is.group));
}

static choir_status gather_rows(
    void *arg, choir__book *book, choir__slot *slot, int64_t row_bytes, choir__leaf_rows *all)
{
    reducer *r = arg;
    return choir__ranks_gather_rows(r->is.group, book, slot, row_bytes, false, all);
}

static choir_status unused(void *arg, choir__book *book)
{
    reducer *r = arg;
    return r->is.names_unused ? choir__ranks_name_unused(book, r->is.names_unused) : CHOIR_OK;
}

static void free_reducer(void *arg)
{
    reducer *r = arg;
    choir__queue_wait(choir__group_queue(r->is.group));
    choir__group_memory_free(&r->levels);
    free(r);
}

static const choir__reducer_ops ops = {
    .alloc = alloc_levels,
    .bucket_ready = bucket_ready,
    .finish = finish,
    .gather_rows = gather_rows,
    .unused = unused,
    .free = free_reducer,
};

void choir__reduce_whole(choir__book *book, choir__whole_book whole)
{
    reducer *r = choir__calloc(1, sizeof *r);
    *r = (reducer){.is = whole, .device = book->device};
    book->reducer = r;
    book->reducer_ops = &ops;
}

const void *choir__whole_book_owner(const choir__book *book)
{
    const reducer *r = book->reducer;
    return r && book->reducer_ops == &ops ? r->is.owner : NULL;
}
