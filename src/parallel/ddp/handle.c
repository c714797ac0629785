/* Checks of handles for DDP's own calls, and for strategies around it: whether a module is
 * DDP's, whether it is between two steps, and over which ranks it reduces. */
#include "parallel/ddp/ddp.h"
#include "parallel/replication.h"

choir__replication choir__ddp_replication(const choir__ddp *d)
{
    return (choir__replication){
        .group = d->group,
        .microbatches = d->opts.microbatches,
        .first_bucket_mb = d->opts.first_bucket_mb,
        .bucket_cap_mb = d->opts.bucket_cap_mb,
        .algorithm = d->opts.algorithm,
    };
}

/* Gives the group to a pipeline around this module, which then reduces the gradients. */
static void lend(choir__strategy *s, choir__replication *how)
{
    choir__ddp *d = CHOIR__STRATEGY_OF(s, choir__ddp, strategy);
    d->lent = true;
    *how = choir__ddp_replication(d);
}

/* Without books (lent, or after a warm-up) it reduces nothing, and gathers nothing either. */
static choir_tensor *gather(choir__strategy *s, choir_tensor *numbers)
{
    choir__ddp *d = CHOIR__STRATEGY_OF(s, choir__ddp, strategy);
    int64_t each = numbers->count;
    if (!d->part_count || !d->parts[0].book)
        return numbers;
    if (d->joins)
        return choir__poison(numbers->scope, CHOIR_ERR_STATE,
            "loss_divisor in a join: ranks that have ended do not take part in it");
    if (d->no_sync)
        return choir__ranks_gather_numbers(d->group, numbers, each * choir_group_rank(d->group),
            each, each * choir_group_world(d->group));
    return choir__ranks_gather_numbers(d->group, numbers, d->first, d->planned, d->total);
}

const choir__strategy_ops choir__ddp_ops = {.name = "ddp",
    .reducer = &choir__ddp_reducer,
    .gather = gather,
    .lend = lend,
    .ranks_changed = choir__ddp_ranks_changed};

choir_status choir__ddp_of(choir_module *module, const char *who, choir__ddp **ddp)
{
    const choir__strategy *s = module ? module->inside->strategy : NULL;
    if (!s || s->ops != &choir__ddp_ops)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: %s is not what choir_ddp returned", who,
            module ? module->type->name : "NULL");
    *ddp = (choir__ddp *)module;
    if ((*ddp)->lent)
        return choir__error(CHOIR_ERR_STATE,
            "%s: a pipeline reduces this module's gradients, exactly and as planned", who);
    return choir__scope_status(module->run);
}

choir_status choir__ddp_between_steps(const choir__ddp *d, const char *who)
{
    for (int i = 0; i < d->part_count; i++) {
        const choir__book *book = d->parts[i].book;
        if (book && book->leaves && !book->consumed)
            return choir__error(CHOIR_ERR_STATE,
                "%s after %lld backwards of a step: choir_optim_step ends it first", who,
                (long long)book->leaves);
    }
    return choir__recording_active()
               ? choir__error(CHOIR_ERR_STATE,
                     "%s in a step that is being recorded: it belongs between steps", who)
               : CHOIR_OK;
}
