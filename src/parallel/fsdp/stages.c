/* FSDP around a pipeline: the replicas of each stage share its parameters by rows.
 *
 * Each stage has a choir__fsdp of its own: its parameters, its group (the ranks that have this
 * stage), its rows, and a gather if ranks share no memory or shards are off-loaded. The one
 * that the caller made, `whole`, holds their list and is the strategy of the run. */
#include <stddef.h>
#include <string.h>

#include <choir/ddp.h>

#include "parallel/fsdp/fsdp.h"

/* Returns an FSDP of one stage's parameters. If another rank runs the stage, its parameters are
 * laid out as on that rank, which belongs to this replica and has the same rows. */
static choir__fsdp *stage_of(choir__fsdp *whole, choir__book *book, choir_group *group)
{
    choir_scope *run = whole->base.run;
    choir__fsdp *f = choir__arena_get(&run->arena, sizeof *f);
    size_t bytes = (size_t)book->count * sizeof *f->params;
    f->base.run = run;
    f->strategy.ops =
        whole->strategy.ops; /* the whole module's strategy brings gathered weights */
    f->device = book->device;
    f->group = f->shard = group;
    f->opts = whole->opts;
    f->outside = whole->outside ? choir__offload_store_ref(whole->outside) : NULL;
    f->staged = true;
    f->params = choir__arena_get(&run->arena, bytes);
    memcpy(f->params, book->params, bytes);
    f->count = book->count;
    return f;
}

static choir_status adopt(choir__sharder *s, choir__book *book, choir_group *group)
{
    choir__fsdp *whole = CHOIR__STRATEGY_OF(s, choir__fsdp, sharder);
    choir__fsdp *f = stage_of(whole, book, group), **link = &whole->stages;
    if (!whole->joined) /* norms now need the rows of several ranks */
        choir__strategy_join(&whole->strategy, whole->base.run);
    whole->joined = true;
    while (*link)
        link = &(*link)->next;
    *link = f;
    if (book->device->away)
        return choir__fsdp_shard_away(f);
    choir_status status = choir__fsdp_shard(f);
    if (status != CHOIR_OK)
        return status;
    book->reducer = f;
    book->reducer_ops = &choir__fsdp_reducer;
    return CHOIR_OK;
}

/* Between the measured steps and the first planned one, parameters move to other stages. */
static choir_status release(choir__sharder *s)
{
    choir__fsdp *whole = CHOIR__STRATEGY_OF(s, choir__fsdp, sharder);
    choir_status status = CHOIR_OK;
    for (; whole->stages && status == CHOIR_OK; whole->stages = whole->stages->next)
        status = choir__fsdp_release(whole->stages);
    return status;
}

static size_t gathered(const choir__sharder *s, const choir_device *device)
{
    const choir__fsdp *whole =
        (const choir__fsdp *)(const void *)((const char *)s - offsetof(choir__fsdp, sharder));
    size_t bytes = 0;
    for (const choir__fsdp *f = whole->stages; f; f = f->next)
        if (f->gather && f->device == device)
            bytes += choir__fsdp_gather_bytes(f->gather);
    return bytes;
}

static choir_status check_options(const choir__fsdp *f)
{
    int64_t total = choir__fsdp_micros(f);
    if (f->opts.ignored)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: ignored parameters of a pipeline: its stages shard all of theirs");
    if (f->opts.shard_ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: shard_ranks of a pipeline: its replicas share every stage");
    if (choir__fsdp_gathers(f) && total % choir_group_world(f->group))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "fsdp: %lld micro-batches for %d replicas of a pipeline, which gather their weights "
            "together: expected as many for each",
            (long long)total, choir_group_world(f->group));
    return CHOIR_OK;
}

static choir__sharder sharder_of(const choir__fsdp *f)
{
    double rows = 1.0 / choir_group_world(f->group);
    bool outside = choir__fsdp_offloads(f);
    return (choir__sharder){.adopt = adopt,
        .release = release,
        .gathered = gathered,
        .reducer = &choir__fsdp_reducer,
        .shares = {.values = outside              ? 0
                             : f->opts.stage == 3 ? rows
                                                  : 1,
            .sums = outside ? 0 : rows,
            .by_unit = choir__fsdp_gathers(f),
            .outside = outside}};
}

choir_status choir__fsdp_shard_stages(choir__fsdp *f, choir__strategy *pipeline)
{
    choir_ddp_opts ddp = choir_ddp_defaults();
    choir_status status = check_options(f);
    if (status == CHOIR_OK)
        status = choir__fsdp_units(f);
    if (status != CHOIR_OK)
        return status;
    f->sharder = sharder_of(f);
    f->strategy.collective = choir__fsdp_gathers(f);
    choir__replication how = {
        .group = f->group,
        .microbatches = f->opts.microbatches,
        .first_bucket_mb = ddp.first_bucket_mb,
        .bucket_cap_mb = ddp.bucket_cap_mb,
        .sharder = &f->sharder,
    };
    return pipeline->ops->replicate(pipeline, &how);
}

void choir__fsdp_stages_evaluate(const choir__fsdp *f)
{
    for (const choir__fsdp *stage = f->stages; stage; stage = stage->next)
        if (stage->gather)
            choir__fsdp_gather_forward(stage->gather, false);
}
