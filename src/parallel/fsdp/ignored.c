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
#include "parallel/whole_book.h"

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

/* --- their book --- */

/* The sharded book is finished first: a rank with one micro-batch less has to gather weights
 * for the others, which the device may not put off until the others have reduced their
 * gradients. */
choir__book *choir__fsdp_ignored_book(choir__fsdp *f)
{
    choir__book *book =
        choir__book_new(f->base.run, f->base.run->device, f->ignored, f->ignored_count);
    choir__reduce_whole(book, (choir__whole_book){.group = f->group,
                                  .what = "gradients of ignored parameters",
                                  .names_unused = "fsdp",
                                  .earlier = f->params[0],
                                  .owner = f});
    for (int i = 0; i < f->ignored_count; i++)
        f->ignored[i]->uncounted |= choir_group_rank(f->shard) > 0; /* tp may have set it */
    return book;
}
