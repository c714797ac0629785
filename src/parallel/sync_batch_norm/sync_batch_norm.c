/* SyncBatchNorm: the sums of batch norms go through a group of their own.
 *
 * Micro-batch m belongs to group m modulo G. A rank with one micro-batch of a group at a time
 * reduces its sums over the ranks with the others; a rank with several runs them together
 * (lockstep.c). Both add in the fixed tree over the group's micro-batches, so the number of
 * ranks changes no bit.
 *
 * Group and device wait for each other in their queues, never on the host, so recorded steps
 * can replay the reduction. */
#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <stdlib.h>

#include "tensor/handle.h"

choir_sync_batch_norm_opts choir_sync_batch_norm_defaults(void)
{
    return (choir_sync_batch_norm_opts){.groups = 0};
}

static choir_status sum_over_ranks(
    const choir__synced *s, choir_device *device, double *sums, int64_t count)
{
    choir_work work;
    choir_status status = choir_group_wait_device(s->group, device);
    if (status == CHOIR_OK)
        status = choir_group_all_reduce(s->group, sums, count, CHOIR_F64, CHOIR_SUM, &work);
    if (status == CHOIR_OK)
        status = choir_device_wait_work(device, work);
    return status;
}

static choir_status sum(
    choir__strategy *strategy, choir_device *device, double *sums, int64_t count)
{
    choir__synced *s = CHOIR__STRATEGY_OF(strategy, choir__synced, strategy);
    if (device != s->run->device)
        return choir__error(CHOIR_ERR_DEVICE,
            "sync_batch_norm: x is on %s, the run on %s; ranks share statistics where a rank has "
            "all of the model",
            choir_device_name(device), choir_device_name(s->run->device));
    if (s->together > 1 && !s->wait)
        return choir__error(CHOIR_ERR_STATE,
            "sync_batch_norm: this rank has %d micro-batches of a group: "
            "choir_sync_batch_norm_step runs them together",
            s->together);
    choir_status status =
        s->wait ? s->wait(s, sums, count) : sum_over_ranks(s, device, sums, count);
    /* The sub-group's bytes are not counted elsewhere: sent and received. */
    size_t share = (size_t)count * sizeof *sums / (size_t)choir_group_world(s->group);
    choir__queue_moved(device->queue, device->queue,
        (uint64_t)share * (uint64_t)(choir_group_world(s->group) - 1));
    return status;
}

/* The run asks it about changes of ranks alone: norms have other sums. */
static const choir__strategy_ops listed_ops = {.name = "sync_batch_norm"};
static const choir__strategy_ops synced_ops = {.name = "sync_batch_norm", .sum = sum};

choir__synced *choir__synced_of(const choir_scope *run)
{
    for (choir__strategy *s = choir__run_of(run)->strategies; s; s = s->next)
        if (s->ops == &listed_ops)
            return CHOIR__STRATEGY_OF(s, choir__synced, listed);
    return NULL;
}

static void close_synced(void *arg)
{
    choir__synced *s = arg;
    (void)!choir_device_sync(s->run->device);
    choir__strategy_leave(&s->listed, s->run);
    choir_group_free(s->group);
    free(s);
}

/* A rank has several micro-batches of each group it works on, or one of each. */
static choir_status check(int64_t total, int64_t groups, int world)
{
    if (groups < 1 || total % groups)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "sync_batch_norm: groups = %lld do not divide %lld micro-batches",
            (long long)groups, (long long)total);
    int64_t each = total / groups;
    if (world % each && each % world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "sync_batch_norm: groups of %lld micro-batches on %d ranks; expected a number of ranks "
            "that divides %lld or is a multiple of it",
            (long long)each, world, (long long)each);
    return CHOIR_OK;
}

static choir_status join(
    choir_scope *run, choir_module *module, choir_group *group, int64_t groups, int64_t each)
{
    int world = choir_group_world(group);
    choir__synced *s = choir__calloc(1, sizeof *s);
    *s = (choir__synced){.strategy = {.ops = &synced_ops},
        .listed = {.ops = &listed_ops},
        .run = run,
        .groups = groups,
        .together = each > world ? (int)(each / world) : 1};
    int others = each < world ? world / (int)each : 1; /* ranks with other groups, in turn */
    const choir__coordinate same = {others, world / others};
    choir_status status =
        choir__group_split_by(group, choir__color_without, &same, NULL, &s->group);
    if (status != CHOIR_OK) {
        free(s);
        return status;
    }
    choir__strategy_join(&s->listed, run);
    choir__on_close(run, close_synced, s);
    choir__batch_norms_share(module, &s->strategy);
    return CHOIR_OK;
}

choir_module *choir_sync_batch_norm_with(
    choir_scope *run, choir_module *module, choir_group *group, choir_sync_batch_norm_opts opts)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    if (!group) {
        choir__poison_missing(run, __func__, "group");
        return module;
    }
    int world = choir_group_world(group);
    int64_t total = choir__run_of(run)->micro_total;
    total = total ? total : world;
    if (total % world) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "sync_batch_norm: %lld micro-batches on %d ranks; each rank needs as many as the "
            "others",
            (long long)total, world);
        return module;
    }
    int64_t groups = opts.groups ? opts.groups : total / world;
    choir_status status = check(total, groups, world);
    if (status == CHOIR_OK && total > groups)
        status = join(run, module, group, groups, total / groups);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return module;
}

choir_module *choir_sync_batch_norm(choir_scope *run, choir_module *module, choir_group *group)
{
    return choir_sync_batch_norm_with(run, module, group, choir_sync_batch_norm_defaults());
}
