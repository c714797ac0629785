/* FSDP when ranks compute micro-batches for each other, so that their results can be compared.
 *
 *     rank             0      1      2            turned by 1:   0      1      2
 *     weights, state   w0     w1     w2                          w0     w1     w2
 *     micro-batches    0      1      2                           1      2      0
 *     sums of rows     w0     w1     w2                          w0     w1     w2
 *
 * Every rank gathers all weights, so only the order changes in which ranks' gradients are
 * added: the reducer's group is one of the same ranks, turned, and its cuts say who has which
 * rows.
 *
 * A rank adds its own rows each time, and no other rank has these sums. So each computation has
 * other memory for them: a bit that is stuck would be in both sums of one memory. */
#include "autograd/layout.h"
#include "parallel/fsdp/fsdp.h"

void choir__fsdp_plan(const choir__fsdp *f, choir__book *book, int64_t total)
{
    int64_t lo, hi;
    const choir_group *group = f->turned ? f->turned : f->group;
    choir__tree_run(total, choir_group_rank(group), choir_group_world(group), &lo, &hi);
    book->first = choir__run_of(f->base.run)->micro_first = lo;
    book->planned = hi - lo;
    book->total = book->gathered = total;
}

static choir_status refuse(const char *why)
{
    return choir__error(CHOIR_ERR_UNSUPPORTED,
        "fsdp: %s, so its ranks cannot compute micro-batches for each other", why);
}

static void hold(choir__fsdp *f, choir__storage *sums)
{
    if (!sums)
        return;
    CHOIR__GROW(f->before, f->before_count);
    f->before[f->before_count++] = choir__storage_ref(sums);
}

/* Forgets the sums and the order of leaves. The sums, of tables also those in their own memory,
 * keep it until the new ones have theirs. */
static void forget(choir__fsdp *f, choir__book *book)
{
    choir__storage *sums = f->sums ? choir__storage_ref(f->sums) : NULL;
    const choir__group_memory outside = f->group_sums;
    f->group_sums = (choir__group_memory){0};
    choir__fsdp_reducer.free(f);
    f->group_before = outside;
    hold(f, sums);
    choir__storage_unref(sums);
    for (int i = 0; i < book->count; i++)
        hold(f, book->params[i]->dense);
    choir__book_forget(book);
    choir__layout_free(book);
    for (int i = 0; i < book->count; i++)
        book->params[i]->grad = NULL; /* a view of memory that is gone */
}

choir_status choir__fsdp_turned(choir__strategy *s, choir_group *group, int by, uint64_t undone)
{
    choir__fsdp *f = CHOIR__STRATEGY_OF(s, choir__fsdp, strategy);
    choir_status status = CHOIR_OK;
    if (f->lent)
        return refuse("it shards a pipeline's stages");
    if (f->replicate || f->ignored_count)
        return refuse(f->replicate ? "its ranks have copies of the model in groups"
                                   : "some parameters are whole on every rank");
    if (!f->kept)
        status = choir__ranks_make_kept(f->module, &f->kept);
    if (status != CHOIR_OK)
        return status;
    if (undone != CHOIR__NO_STEP)
        choir__ranks_undo_buffers(f->kept, undone);
    if (f->gather)
        choir__fsdp_gather_reset(f->gather);
    choir__book *book = f->count ? f->params[0]->book : NULL;
    if (book)
        forget(f, book); /* in the group that it was laid out for */
    f->turned = by ? group : NULL;
    f->turn = by;
    f->synced = 0;
    if (book)
        choir__fsdp_plan(f, book, book->total);
    return CHOIR_OK;
}
