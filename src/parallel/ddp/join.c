/* Ranks that run out of data. At the first forward of each step, each rank reports whether it
 * has one (an all-gather of a flag). Ranks that have ended take the step as well, as *shadows*:
 * they make the same calls on the book, with leaves that are all zero. So they send exactly the
 * messages that the other ranks expect, in the same order (see ddp.h).
 *
 *     rank 0   step 1    step 2    join_end: [0]
 *     rank 1   step 1    join_end: [0] shadow of step 2   [0] no rank is active: done */
#include <stdlib.h>
#include <string.h>

#include "parallel/ddp/ddp.h"

choir_ddp_join_opts choir_ddp_join_defaults(void)
{
    return (choir_ddp_join_opts){0};
}

static int count_active(const choir__ddp *d)
{
    int count = 0;
    for (int r = 0; r < choir_group_world(d->group); r++)
        count += d->active[r] != 0;
    return count;
}

/* Sends this rank's flag. work NULL: waits for the flags of the others. */
static choir_status say(choir__ddp *d, bool active, int32_t *all, choir_work *work)
{
    return choir_group_all_gather(d->group, &d->flags[active], all, 1, CHOIR_I32, work);
}

static choir_status ended_early(const choir__ddp *d)
{
    int world = choir_group_world(d->group), r = 0;
    while (r < world && d->active[r])
        r++;
    return r == world
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_STATE,
                     "ddp: rank %d has run out of data, and the join is to fail early", r);
}

choir_status choir__ddp_notice(choir__ddp *d)
{
    choir_work work;
    bool waits = d->join.fail_early || d->join.divide_by_active;
    if (d->join.divide_by_active && choir__recording_active())
        return choir__error(CHOIR_ERR_STATE,
            "ddp: divide_by_active decides in each step and cannot be recorded: take steps "
            "without choir_step");
    d->stepped = true;
    choir_status status = say(d, true, d->active, waits ? NULL : &work);
    return status == CHOIR_OK && d->join.fail_early ? ended_early(d) : status;
}

choir_status choir_ddp_join_begin(choir_module *ddp, choir_ddp_join_opts opts)
{
    choir__ddp *d;
    choir_status status = choir__ddp_of(ddp, "choir_ddp_join_begin", &d);
    if (status == CHOIR_OK)
        status = choir__ddp_between_steps(d, "choir_ddp_join_begin");
    if (status != CHOIR_OK)
        return status;
    if (d->joins)
        return choir__error(
            CHOIR_ERR_STATE, "choir_ddp_join_begin: a join is under way; end it first");
    if (d->no_sync)
        return choir__error(CHOIR_ERR_STATE,
            "choir_ddp_join_begin with no_sync on: ranks that ended could not tell how many "
            "backwards a step of the others has; plan them by micro-batches");
    if (d->part_count > 1)
        return choir__error(CHOIR_ERR_STATE,
            "choir_ddp_join_begin: expected parameters on one device, got %d devices",
            d->part_count);
    choir__step_forget(d->base.run); /* a recorded step does not exchange flags */
    d->joins = true;
    d->stepped = false;
    d->join = opts;
    return CHOIR_OK;
}

/* --- a step of the other ranks --- */

static choir_status shadow_leaves(choir__book *book)
{
    choir_status status = CHOIR_OK;
    do {
        for (int i = 0; i < book->count; i++)
            book->params[i]->uses = 0, book->params[i]->rows_uses = 0,
            book->params[i]->rows_given = 0;
        status = choir__book_check(book);
        if (status == CHOIR_OK)
            status = choir__book_begin_leaf(book, NULL);
        if (status == CHOIR_OK)
            status = choir__book_end_leaf(book, 1);
    } while (status == CHOIR_OK && book->leaves < book->planned);
    return status;
}

static choir_status shadow_step(choir__ddp *d)
{
    choir__book *book = d->parts[0].book;
    choir_status status =
        d->opts.no_buffers ? CHOIR_OK : choir__ranks_broadcast_buffers(d->group, d->module);
    if (status == CHOIR_OK)
        status = shadow_leaves(book);
    if (status != CHOIR_OK)
        return status;
    return d->join.optim ? choir_optim_step(d->join.optim) : choir__book_drop(book);
}

/* Takes part in steps until no rank has one left. d->active then has the flags of the last
 * step. */
static choir_status shadow(choir__ddp *d)
{
    int world = choir_group_world(d->group);
    int32_t *said = choir__calloc((size_t)world, sizeof *said);
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK) {
        bool any = false;
        status = say(d, false, said, NULL);
        for (int r = 0; r < world; r++)
            any |= said[r] != 0;
        if (status != CHOIR_OK || !any)
            break;
        memcpy(d->active, said, (size_t)world * sizeof *said);
        d->stepped = true;
        if (d->join.fail_early)
            status = ended_early(d);
        if (status == CHOIR_OK)
            status = shadow_step(d);
    }
    free(said);
    return status;
}

/* Takes the model of the ranks that took the last step; it is equal on all of them. */
static choir_status take_last_model(choir__ddp *d)
{
    int root = 0;
    if (!d->stepped || count_active(d) == choir_group_world(d->group) || d->join.optim)
        return CHOIR_OK;
    while (!d->active[root])
        root++;
    choir_status status = choir__ranks_broadcast_model(d->group, d->module, root);
    for (int i = 0; i < d->parts[0].book->count; i++)
        d->parts[0].book->params[i]->tensor->storage->version++;
    return status;
}

choir_status choir_ddp_join_end(choir_module *ddp)
{
    choir__ddp *d;
    choir_status status = choir__ddp_of(ddp, "choir_ddp_join_end", &d);
    if (status == CHOIR_OK)
        status = choir__ddp_between_steps(d, "choir_ddp_join_end");
    if (status != CHOIR_OK)
        return status;
    if (!d->joins)
        return choir__error(
            CHOIR_ERR_STATE, "choir_ddp_join_end: no join is under way: begin one first");
    if (choir_group_world(d->group) > 1) {
        d->shadows = true;
        status = shadow(d);
        d->shadows = false;
        if (status == CHOIR_OK)
            status = take_last_model(d);
    }
    choir__step_forget(d->base.run);
    d->joins = false;
    return status == CHOIR_OK ? CHOIR_OK : choir__scope_fail(d->base.run, status);
}
