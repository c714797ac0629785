/* SyncBatchNorm: the sums of batch norms go through a group of their own.
 *
 * Micro-batch m belongs to group m modulo G. A rank with one micro-batch of a group at a time
 * reduces its sums over the ranks with the others; a rank with several runs them together
 * (lockstep.c), and so do all where ranks have unequal numbers of micro-batches. Both add in
 * the fixed tree over the group's micro-batches, so the number of ranks changes no bit.
 *
 * Group and device wait for each other in their queues, never on the host, so recorded steps
 * can replay the reduction. */
#include "parallel/sync_batch_norm/sync_batch_norm.h"

#include <stdlib.h>

#include "base/tree.h"
#include "parallel/ranks.h"

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
    if ((s->together > 1 || s->shares) && !s->wait)
        return choir__error(CHOIR_ERR_STATE,
            "sync_batch_norm: this rank has %d micro-batches of a group: "
            "choir_sync_batch_norm_step runs them together",
            s->together);
    choir_status status =
        s->wait ? s->wait(s, sums, count) : sum_over_ranks(s, device, sums, count);
    /* The sub-group's bytes are not counted elsewhere: sent and received. */
    int world = s->group ? choir_group_world(s->group) : 1;
    size_t share = (size_t)count * sizeof *sums / (size_t)world;
    choir__queue_moved(device->queue, device->queue, (uint64_t)share * (uint64_t)(world - 1));
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

static void free_synced(choir__synced *s)
{
    for (int64_t g = 0; s->shares && g < s->groups; g++)
        choir_group_free(s->shares[g].ranks);
    choir_group_free(s->group);
    free(s->shares);
    free(s);
}

static void close_synced(void *arg)
{
    choir__synced *s = arg;
    (void)!choir_device_sync(s->run->device);
    choir__strategy_leave(&s->listed, s->run);
    free_synced(s);
}

static choir_status check(int64_t total, int64_t groups)
{
    return groups < 1 || total % groups
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "sync_batch_norm: groups = %lld do not divide %lld micro-batches",
                     (long long)groups, (long long)total)
               : CHOIR_OK;
}

/* --- equal shares: a rank has several micro-batches of each of its groups, or one --- */

bool choir__synced_evenly(int64_t total, int64_t groups, int world)
{
    const int64_t each = total / groups;
    return total % world == 0 && (world % each == 0 || each % world == 0);
}

static choir_status split_evenly(choir__synced *s, choir_group *group, int64_t each)
{
    int world = choir_group_world(group);
    int others = each < world ? world / (int)each : 1; /* ranks with other groups, in turn */
    const choir__coordinate same = {others, world / others};
    s->together = each > world ? (int)(each / world) : 1;
    return choir__group_split_by(group, choir__color_without, &same, NULL, &s->group);
}

/* --- others --- */

int64_t choir__synced_count(const choir__synced *s, int64_t group, int rank)
{
    int64_t first, end;
    choir__tree_run(s->total, rank, choir_group_world(s->world), &first, &end);
    return (end - group + s->groups - 1) / s->groups -
           (first - group + s->groups - 1) / s->groups;
}

typedef struct holder {
    const choir__synced *synced;
    int64_t group;
} holder;

/* Ranks that have micro-batches of a group; the others form a group without a use. */
static int color_of_holder(int rank, const void *arg)
{
    const holder *h = arg;
    return choir__synced_count(h->synced, h->group, rank) == 0;
}

/* Finds who has a group, and makes a group of these ranks. Collective. */
static choir_status split_share(choir__synced *s, int64_t group)
{
    choir__synced_share *share = &s->shares[group];
    int world = choir_group_world(s->world), me = choir_group_rank(s->world);
    *share = (choir__synced_share){.each = s->total / s->groups};
    for (int r = 0; r < world; r++)
        share->most = choir__max(share->most, choir__synced_count(s, group, r));
    s->together = choir__max(s->together, (int)choir__synced_count(s, group, me));
    choir_status status = choir__group_split_by(
        s->world, color_of_holder, &(holder){s, group}, NULL, &share->ranks);
    if (status == CHOIR_OK && !choir__synced_count(s, group, me)) {
        choir_group_free(share->ranks);
        share->ranks = NULL;
    }
    return status;
}

static choir_status split_unevenly(choir__synced *s, choir_group *group)
{
    choir_status status = CHOIR_OK;
    s->world = group;
    s->shares = choir__calloc((size_t)s->groups, sizeof *s->shares);
    for (int64_t g = 0; g < s->groups && status == CHOIR_OK; g++)
        status = split_share(s, g);
    return status;
}

/* --- the module --- */

static choir_status join(
    choir_scope *run, choir_module *module, choir_group *group, int64_t total, int64_t groups)
{
    choir__synced *s = choir__calloc(1, sizeof *s);
    *s = (choir__synced){.strategy = {.ops = &synced_ops},
        .listed = {.ops = &listed_ops},
        .run = run,
        .groups = groups,
        .together = 1,
        .total = total};
    choir_status status = choir__synced_evenly(total, groups, choir_group_world(group))
                              ? split_evenly(s, group, total / groups)
                              : split_unevenly(s, group);
    if (status != CHOIR_OK) {
        free_synced(s);
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
    if (!choir__ranks_begin(&run, &module, group, __func__))
        return module;
    int world = choir_group_world(group);
    int64_t total = choir__run_of(run)->micro_total;
    total = total ? total : world;
    if (total % world && !opts.groups) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "sync_batch_norm: %lld micro-batches on %d ranks, which have different numbers of "
            "them: expected a number of groups that divides %lld",
            (long long)total, world, (long long)total);
        return module;
    }
    int64_t groups = opts.groups ? opts.groups : total / world;
    choir_status status = check(total, groups);
    if (status == CHOIR_OK && total > groups)
        status = join(run, module, group, total, groups);
    if (status != CHOIR_OK)
        choir__scope_fail(run, status);
    return module;
}

choir_module *choir_sync_batch_norm(choir_scope *run, choir_module *module, choir_group *group)
{
    return choir_sync_batch_norm_with(run, module, group, choir_sync_batch_norm_defaults());
}
