/* SyncBatchNorm: the sums of batch norms go through an all-reduce of their own group.
 *
 * Group and device wait for each other in their queues, never on the host, so recorded steps
 * can replay the all-reduce. */
#include <choir/sync_batch_norm.h>

#include <stdlib.h>

#include "comm/group.h"
#include "nn/module.h"
#include "tensor/handle.h"

typedef struct synced {
    choir__strategy strategy; /* only for batch norms: not in the run's list */
    choir__strategy listed;   /* in that list */
    choir_scope *run;
    choir_group *group; /* only for these sums */
} synced;

static choir_status sum(
    choir__strategy *strategy, choir_device *device, double *sums, int64_t count)
{
    const synced *s = CHOIR__STRATEGY_OF(strategy, synced, strategy);
    choir_work work;
    if (device != s->run->device)
        return choir__error(CHOIR_ERR_DEVICE,
            "sync_batch_norm: x is on %s, the run on %s; ranks share statistics where a rank has "
            "all of the model",
            choir_device_name(device), choir_device_name(s->run->device));
    choir_status status = choir_group_wait_device(s->group, device);
    if (status == CHOIR_OK)
        status = choir_group_all_reduce(s->group, sums, count, CHOIR_F64, CHOIR_SUM, &work);
    if (status == CHOIR_OK)
        status = choir_device_wait_work(device, work);
    /* The sub-group's bytes are not counted elsewhere: sent and received. */
    size_t share = (size_t)count * sizeof *sums / (size_t)choir_group_world(s->group);
    choir__queue_moved(device->queue, device->queue,
        (uint64_t)share * (uint64_t)(choir_group_world(s->group) - 1));
    return status;
}

/* The run asks it about changes of ranks alone: norms have other sums. */
static const choir__strategy_ops listed_ops = {.name = "sync_batch_norm"};
static const choir__strategy_ops synced_ops = {.name = "sync_batch_norm", .sum = sum};

static void close_synced(void *arg)
{
    synced *s = arg;
    (void)!choir_device_sync(s->run->device);
    choir__strategy_leave(&s->listed, s->run);
    choir_group_free(s->group);
    free(s);
}

choir_module *choir_sync_batch_norm(choir_scope *run, choir_module *module, choir_group *group)
{
    run = choir__open_scope(run, __func__);
    module = choir__module_for(run, module, __func__);
    if (!group) {
        choir__poison_missing(run, __func__, "group");
        return module;
    }
    int world = choir_group_world(group);
    if (choir__run_of(run)->micro_total % world) {
        choir__poison(run, CHOIR_ERR_ARGUMENT,
            "sync_batch_norm: %lld micro-batches on %d ranks; each rank needs as many as the "
            "others",
            (long long)choir__run_of(run)->micro_total, world);
        return module;
    }
    if (world == 1)
        return module;
    synced *s = choir__calloc(1, sizeof *s);
    *s = (synced){.strategy = {.ops = &synced_ops}, .listed = {.ops = &listed_ops}, .run = run};
    choir_status status = choir_group_split(group, 0, choir_group_rank(group), &s->group);
    if (status != CHOIR_OK) {
        free(s);
        choir__scope_fail(run, status);
        return module;
    }
    choir__strategy_join(&s->listed, run);
    choir__on_close(run, close_synced, s);
    choir__batch_norms_share(module, &s->strategy);
    return module;
}
