/* DDP when ranks leave and join.
 *
 * Parameters and the optimizer's state are equal on all ranks after a step, so any rank can
 * replace a lost one. The group carries these things, which are made again: the distribution of
 * the micro-batches, which stay as many as they were, the memory of gradients, and the order of
 * buckets, on which the ranks agree again.
 *
 * A step's update runs after all of its collectives. So a rank has either finished the step, or
 * its parameters are those before it. Only buffers change earlier, in the forward of
 * micro-batch 0: they are copied first, and copied back if the step is given up. */
#include <stdlib.h>

#include "autograd/layout.h"
#include "parallel/ddp/ddp.h"

void choir__ddp_plan(choir__ddp *d, int64_t total)
{
    int world = choir_group_world(d->group), rank = choir_group_rank(d->group);
    int64_t end;
    d->total = total;
    choir__tree_run(d->total, rank, world, &d->first, &end);
    d->planned = end - d->first;
    d->flags[1] = 1;
    d->active = choir__arena_get(&d->base.run->arena, (size_t)world * sizeof *d->active);
    choir__run_of(d->base.run)->micro_first = d->first;
}

static choir_status refuse(const char *what, const char *why)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "ddp: %s, so it cannot continue when ranks leave or join; leave %s out, or resume from a "
        "checkpoint",
        why, what);
}

static choir_status check(const choir__ddp *d, const choir_group *group)
{
    if (d->lent)
        return choir__error(CHOIR_ERR_UNSUPPORTED,
            "ddp around a pipeline: it cannot continue when ranks leave or join; resume from a "
            "checkpoint");
    if (d->hook)
        return refuse("the hook", "a hook's sums depend on the number of ranks");
    if (choir__ddp_sums(d) != CHOIR__SUMS_OF_TREE)
        return refuse("algorithm", "this algorithm's sums depend on the number of ranks");
    if (d->opts.no_buffers)
        return refuse("no_buffers", "each rank has its own buffers");
    if (d->joins || d->no_sync)
        return refuse(d->joins ? "join" : "no_sync", "ranks have their own plans of a step");
    if (d->total < choir_group_world(group))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: %lld micro-batches for %d ranks; each rank needs one", (long long)d->total,
            choir_group_world(group));
    return CHOIR_OK;
}

/* Forgets everything that is laid out for the ranks of the group before. */
static void forget(choir__ddp_part *part)
{
    choir__book *book = part->book;
    choir__book_forget(book);
    choir__layout_free(book);
    for (int i = 0; i < book->count; i++)
        book->params[i]->grad = NULL; /* a view of memory that is gone */
    free(book->order);
    book->order = NULL;
    book->shared_levels = choir__layout_height(part->ddp->first, part->ddp->planned);
    choir__group_memory_free(&part->levels);
    part->stepped = part->rebuilt = part->asked = part->known = false;
}

static void free_kept(void *arg)
{
    choir__ddp *d = arg;
    choir__ranks_free_kept(d->kept);
}

choir_status choir__ddp_ranks_changed(choir__strategy *s, choir_group *group, uint64_t undone)
{
    choir__ddp *d = CHOIR__STRATEGY_OF(s, choir__ddp, strategy);
    choir_status status = check(d, group);
    if (status == CHOIR_OK && !d->kept)
        status = choir__ranks_make_kept(d->module, &d->kept);
    if (status != CHOIR_OK)
        return status;
    if (!d->elastic)
        choir__on_close(d->base.run, free_kept, d);
    d->elastic = true;
    if (undone != CHOIR__NO_STEP)
        choir__ranks_undo_buffers(d->kept, undone);
    d->group = group;
    choir__ddp_plan(d, d->total);
    for (int i = 0; i < d->part_count; i++)
        forget(&d->parts[i]);
    d->synced = d->settled = 0;
    return CHOIR_OK;
}
