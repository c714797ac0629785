/* Ignored parameters: every rank stores them whole, with their gradients and state, and reduces
 * their gradients exactly, as DDP does. They have a book of their own, in plain buckets:
 *
 *     sharded book   | unit 3 -> slot | unit 2 -> slot | ...     rows in `sums`
 *     ignored book   | bucket 0 | bucket 1 |                     whole, in every rank's levels
 *
 * Optimizers update them on each rank alike. In norms over ranks the first rank counts them. */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/fsdp/fsdp.h"

/* --- the choice --- */

/* Notes the parameters that the pattern (`length` characters) matches. */
static choir_status match(choir__fsdp *f, const char *pattern, int length, bool *ignored)
{
    char *text = choir__format("%.*s", length, pattern);
    bool any = false;
    for (int i = 0; i < f->count; i++)
        if (!fnmatch(text, f->params[i]->name, 0))
            ignored[i] = any = true;
    free(text);
    return any ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "fsdp: no parameter's name matches '%.*s'",
                     length, pattern);
}

choir_status choir__fsdp_ignore(choir__fsdp *f)
{
    choir_status status = CHOIR_OK;
    bool *ignored = choir__calloc((size_t)f->count + 1, sizeof *ignored);
    for (const char *at = f->opts.ignored; at && status == CHOIR_OK;) {
        const char *end = strchrnul(at, ',');
        status = match(f, at, (int)(end - at), ignored);
        at = *end ? end + 1 : NULL;
    }
    int kept = 0;
    f->ignored = choir__calloc((size_t)f->count + 1, sizeof(choir__param *));
    for (int i = 0; i < f->count; i++)
        if (ignored[i])
            f->ignored[f->ignored_count++] = f->params[i];
        else
            f->params[kept++] = f->params[i];
    free(ignored);
    f->count = kept;
    if (status == CHOIR_OK && !kept)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: '%s' ignores every parameter: choose ddp", f->opts.ignored);
    return status;
}

/* --- the reducer of their book --- */

typedef struct reducer {
    choir__fsdp *fsdp;
    choir_device *device;
    choir__group_memory levels; /* memory of the book's levels */
} reducer;

static choir_status alloc_levels(void *arg, size_t bytes, int levels, void **at)
{
    reducer *r = arg;
    choir_status status = choir__group_memory_renew(&r->levels, r->fsdp->group, r->device,
        bytes * (size_t)levels, "gradients of ignored parameters", "");
    *at = r->levels.at;
    return status;
}

static void bucket_ready(void *arg, choir__book *book, int bucket)
{
    reducer *r = arg;
    const choir__bucket *b = &book->buckets[bucket];
    choir__tree_reduce args = {.nodes = (char *)r->levels.at + b->offset,
        .node_stride = book->level_bytes,
        .count = b->count,
        .leaves = book->total,
        .scale = b->shared ? 1 : 1.0f / (float)book->total};
    choir__group_waits(r->fsdp->group, book->device);
    choir_status status = choir__group_tree_reduce(r->fsdp->group, &args);
    if (status != CHOIR_OK)
        choir__scope_fail(book->run, status);
}

/* The sharded book first: a rank with one micro-batch less has to gather weights for the
 * others, which the device may not put off until the others have reduced their gradients. */
static choir_status finish(void *arg, choir__book *book)
{
    reducer *r = arg;
    choir_status status = choir__book_finish(r->fsdp->params[0]->book);
    if (status != CHOIR_OK)
        return status;
    choir__device_waits(book->device, r->fsdp->group);
    return choir__queue_status(choir__group_queue(r->fsdp->group));
}

static choir_status gather_rows(
    void *arg, choir__book *book, choir__slot *slot, int64_t row_bytes, choir__leaf_rows *all)
{
    reducer *r = arg;
    return choir__ranks_gather_rows(r->fsdp->group, book, slot, row_bytes, all);
}

static choir_status name_unused(void *arg, choir__book *book)
{
    (void)arg;
    return choir__ranks_name_unused(book, "fsdp");
}

static void free_reducer(void *arg)
{
    reducer *r = arg;
    choir__queue_wait(choir__group_queue(r->fsdp->group));
    choir__group_memory_free(&r->levels);
    free(r);
}

static const choir__reducer_ops ignored_reducer = {
    .alloc = alloc_levels,
    .bucket_ready = bucket_ready,
    .finish = finish,
    .gather_rows = gather_rows,
    .unused = name_unused,
    .free = free_reducer,
};

choir__book *choir__fsdp_ignored_book(choir__fsdp *f)
{
    choir_device *device = f->base.run->device;
    choir__book *book = choir__book_new(f->base.run, device, f->ignored, f->ignored_count);
    reducer *r = choir__calloc(1, sizeof *r);
    *r = (reducer){.fsdp = f, .device = device};
    book->reducer = r;
    book->reducer_ops = &ignored_reducer;
    for (int i = 0; i < f->ignored_count; i++)
        f->ignored[i]->uncounted = choir_group_rank(f->shard) > 0;
    return book;
}
