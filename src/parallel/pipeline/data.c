/* Replicas of a pipeline: DDP along one dimension of a mesh, stages along another.
 *
 *     replica 0   stage 0 -> stage 1 -> stage 2      micro-batches 0 1 2
 *                    |          |          |         gradients, in the fixed tree
 *     replica 1   stage 0 -> stage 1 -> stage 2      micro-batches 3 4
 *
 * A replica runs a contiguous part of the step's micro-batches, which are leaves of its books'
 * trees. The book of a stage on this rank reduces its buckets over the ranks that have the same
 * stage, as DDP does; books of stages elsewhere have nothing to reduce. Replicas may have
 * different numbers of micro-batches, and so different plans. Each stage of a rank therefore
 * has its own group, so that the order of two stages does not matter. All replicas use the same
 * cuts, found from replica 0's costs. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "autograd/layout.h"
#include "comm/group.h"
#include "parallel/ranks.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/whole_book.h"

struct choir__pipeline_data {
    choir__pipeline *pipeline;
    choir_group **groups; /* (group_count) one per stage on this rank */
    int group_count, rank, world;
    choir__algorithm algorithm;
    /* micro-batches: this replica's first, its count, the job's */
    int64_t first, planned, total;
    size_t first_cap, bucket_cap;
    /* distributes the stages' parameters; NULL: replicas hold them whole */
    choir__sharder *sharder;
    bool sharded; /* the sharder has adopted a book */
    /* one more than the step whose buffers have been broadcast from replica 0 */
    uint64_t synced;
    _Atomic int aborted; /* as in remote.c */
    choir_status status;
    char sentence[600];
};

/* --- reducing a book --- */

static void count_leaves(const choir__pipeline_data *d, choir__book *book)
{
    book->first = d->first;
    book->planned = d->planned;
    book->total = d->total;
}

int64_t choir__data_total(const choir__pipeline_data *d)
{
    return d ? d->total : 0;
}

static choir_group *group_of(const choir__pipeline_data *d, int stage)
{
    const choir__pipeline *p = d->pipeline;
    return d->groups[p->remote ? stage / p->device_count : stage];
}

static choir_status shard(choir__pipeline_data *d, choir__book *book, int stage)
{
    bool away = book->device->away;
    d->sharded = true;
    choir_status status =
        d->sharder->adopt(d->sharder, book, away ? d->groups[0] : group_of(d, stage));
    if (status == CHOIR_OK && !away)
        count_leaves(d, book);
    return status;
}

choir_status choir__data_adopt(choir__pipeline_data *d, choir__book *book, int stage)
{
    book->gathered = d->total; /* also here for a stage of other ranks: all lay it out alike */
    if (d->sharder && stage >= 0 && !book->of_replicas)
        return shard(d, book, stage);
    if (book->device->away)
        return CHOIR_OK;
    count_leaves(d, book);
    book->bucket_cap = d->bucket_cap;
    book->first_cap = d->first_cap;
    choir__reduce_whole(book, (choir__whole_book){.group = group_of(d, stage < 0 ? 0 : stage),
                                  .what = "gradients",
                                  .algorithm = d->algorithm,
                                  .owner = d});
    return CHOIR_OK;
}

/* --- buffers --- */

static void sync_buffer(const char *name, choir_tensor *t, void *arg)
{
    choir__pipeline_data *d = arg;
    choir_device *device = t->storage ? choir__device_of(t) : NULL;
    choir_work work;
    (void)name;
    if (t->param || !device || device->away)
        return;
    choir__storage_claim(t->storage);
    choir__group_waits(d->groups[0], device);
    choir_status status = choir_group_broadcast(
        d->groups[0], choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, &work);
    if (status != CHOIR_OK)
        choir__scope_fail(d->pipeline->base.run, status);
    choir__device_waits(device, d->groups[0]);
}

/* Running statistics are updated by micro-batch 0, which replica 0 runs. The other replicas
 * receive them at the beginning of the next step. */
void choir__data_sync_buffers(choir__pipeline_data *d, const choir_scope *step)
{
    if (d->world == 1 || d->synced == step->step + 1)
        return;
    d->synced = step->step + 1;
    choir_module_visit(d->pipeline->module, true, sync_buffer, d);
}

/* --- counts --- */

int64_t choir__data_longest(const choir__pipeline_data *d)
{
    return (d->total + d->world - 1) / d->world;
}

int choir__data_levels(const choir__pipeline_data *d, int64_t micros)
{
    int most = d ? 0 : choir__layout_height(0, micros);
    for (int r = 0; d && r < d->world; r++) {
        int64_t first, end;
        choir__tree_run(d->total, r, d->world, &first, &end);
        most = choir__max(most, choir__layout_height(first, end - first));
    }
    return most;
}

choir__shares choir__data_shares(const choir__pipeline_data *d)
{
    return d && d->sharder ? d->sharder->shares : (choir__shares){.values = 1};
}

choir__bucket_caps choir__data_bucket_caps(const choir__pipeline_data *d)
{
    return d ? (choir__bucket_caps){(double)d->first_cap, (double)d->bucket_cap,
                   d->sharder != NULL}
             : (choir__bucket_caps){CHOIR__FIRST_BUCKET_BYTES, CHOIR__BUCKET_BYTES, false};
}

size_t choir__data_gathered(const choir__pipeline_data *d, const choir_device *device)
{
    return d && d->sharder ? d->sharder->gathered(d->sharder, device) : 0;
}

choir_status choir__data_check_count(const choir__pipeline_data *d, int64_t count)
{
    return count == d->planned
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "pipeline: a step of %lld micro-batches; of the %lld of %d replicas, "
                     "this one has %lld",
                     (long long)count, (long long)d->total, d->world, (long long)d->planned);
}

choir_tensor *choir__data_gather(const choir__pipeline_data *d, choir_tensor *numbers)
{
    return choir__ranks_gather_numbers(d->groups[0], numbers, d->first, d->planned, d->total);
}

choir_status choir__data_share(choir__pipeline_data *d, void *bytes, size_t count)
{
    if (d->world == 1)
        return CHOIR_OK;
    return choir_group_broadcast(d->groups[0], bytes, (int64_t)count, CHOIR_U8, 0, NULL);
}

/* --- failures --- */

void choir__data_abort(choir__pipeline_data *d, choir_status status, const char *sentence)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&d->aborted, &none, 1))
        return;
    d->status = status;
    snprintf(d->sentence, sizeof d->sentence, "%s", sentence);
    atomic_store(&d->aborted, 2);
    for (int i = 0; i < d->group_count; i++)
        if (d->groups[i])
            choir__group_abort(d->groups[i], status, d->sentence);
    if (d->pipeline->remote)
        choir__remote_abort(d->pipeline->remote, status, d->sentence);
}

static void abort_with(void *arg, choir_status status, const char *sentence)
{
    choir__data_abort(arg, status, sentence);
}

/* The role of a rank in the group of all replicas of a stage. */
static void write_role(void *arg, int rank, char *text, size_t room)
{
    const choir__pipeline *p = ((choir__pipeline_data *)arg)->pipeline;
    if (p->remote)
        choir__remote_name(p->remote, choir__remote_rank(p->remote), rank, text, room);
    else
        snprintf(text, room, "replica %d of the pipeline", rank);
}

static const char *on_failure(void *arg, choir_status status, const char *sentence)
{
    choir__pipeline_data *d = arg;
    choir__data_abort(d, status, sentence);
    return atomic_load(&d->aborted) == 2 ? d->sentence : sentence;
}

/* --- open and close --- */

static choir_status agree_on_all(choir__pipeline_data *d)
{
    const choir__pipeline *p = d->pipeline;
    choir__pipeline_digest digests[CHOIR__DIGESTS];
    uint64_t place = (uint64_t)p->stages << 16;
    place += p->remote ? (uint64_t)choir__remote_rank(p->remote) : 0;
    choir_group *group = d->groups[0];
    choir_status status = choir__ranks_have_same(group, place, "replicas",
        "stages on their ranks: those that have the same stages are a group");
    choir__pipeline_digests(p, digests);
    for (int i = 0; i < CHOIR__DIGESTS && status == CHOIR_OK; i++)
        status = choir__ranks_have_same(group, digests[i].value, "replicas", digests[i].what);
    return status == CHOIR_OK ? choir__ranks_have_same(group, (uint64_t)d->total, "replicas",
                                    "numbers of micro-batches")
                              : status;
}

static choir_status open_groups(choir__pipeline_data *d, choir_group *group)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < d->group_count && status == CHOIR_OK; i++) {
        status = choir_group_split(group, 0, d->rank, &d->groups[i]);
        if (status == CHOIR_OK)
            choir__group_watch(d->groups[i], on_failure, d, (choir__role){write_role, d});
    }
    return status;
}

static choir_status count_micros(choir__pipeline_data *d, int64_t asked)
{
    int64_t end;
    d->total = asked ? asked : d->world;
    if (d->total < d->world)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "pipeline: %lld micro-batches for %d replicas; each needs one", (long long)d->total,
            d->world);
    choir__tree_run(d->total, d->rank, d->world, &d->first, &end);
    d->planned = end - d->first;
    return CHOIR_OK;
}

static choir_status open_data(choir__pipeline_data *d, const choir__replication *how)
{
    choir_scope *run = d->pipeline->base.run;
    choir_status status = count_micros(
        d, how->microbatches ? how->microbatches : choir__run_of(run)->micro_total);
    if (status == CHOIR_OK && how->algorithm)
        status = choir__algorithm_parse(how->algorithm, &d->algorithm);
    if (status == CHOIR_OK)
        status = open_groups(d, how->group);
    if (status == CHOIR_OK)
        status = agree_on_all(d);
    choir__run_of(run)->micro_first = d->first;
    return status;
}

choir_status choir__data_open(choir__pipeline *p, const choir__replication *how)
{
    choir__arena *arena = &p->base.run->arena;
    if (p->data)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "ddp: the pipeline has replicas already; wrap it, or what it wraps, once");
    choir__pipeline_data *d = choir__arena_get(arena, sizeof *d);
    d->pipeline = p;
    d->rank = choir_group_rank(how->group);
    d->world = choir_group_world(how->group);
    d->group_count = p->remote ? p->chunks : p->stages;
    d->groups = choir__arena_get(arena, (size_t)d->group_count * sizeof(choir_group *));
    d->bucket_cap = (size_t)(how->bucket_cap_mb * 1048576);
    d->first_cap = (size_t)(how->first_bucket_mb * 1048576);
    d->sharder = p->stages > 1 ? how->sharder : NULL;
    p->data = d;
    if (p->remote)
        choir__remote_of_replica(p->remote, d->rank, abort_with, d);
    return open_data(d, how);
}

/* Frees the reducers and the gradients' memory; the caller then frees or replaces the books. */
static void drop_reducers(choir__pipeline_data *d)
{
    for (choir__book *b = choir__run_of(d->pipeline->base.run)->books; b; b = b->next)
        if (choir__whole_book_owner(b) == d ||
            (d->sharder && b->reducer_ops == d->sharder->reducer)) {
            (void)!choir_device_sync(b->device); /* the optimizer may still use the gradients */
            b->reducer_ops->free(b->reducer);
            b->reducer = NULL;
            b->reducer_ops = NULL;
        }
}

bool choir__data_sharded(const choir__pipeline_data *d)
{
    return d->sharded;
}

choir_status choir__data_leave_books(choir__pipeline_data *d)
{
    bool busy = false;
    for (choir__book *b = choir__run_of(d->pipeline->base.run)->books; b; b = b->next)
        busy |= b->reducer_ops && b->leaves > 0 && !b->finished;
    if (busy) /* no parameter can move */
        return CHOIR_OK;
    drop_reducers(d);
    return d->sharded ? d->sharder->release(d->sharder) : CHOIR_OK;
}

void choir__data_close(choir__pipeline_data *d)
{
    if (!d)
        return;
    drop_reducers(d);
    for (int i = 0; i < d->group_count; i++) {
        choir_group_free(d->groups[i]);
        d->groups[i] = NULL;
    }
}
