/* The loader: chooses the next micro-batch and copies it to tensors.
 *
 *     position    p is this rank's micro-batch first + p % count of step p / count
 *     skips       leave out batches: a step's number becomes a batch's            (skips.c)
 *     sampler     maps it to samples                                            (sampler.c)
 *     prefetch    threads that read them from the dataset, some ahead           (prefetch.c)
 *     deliver     a copy, in queue order, from the prefetched stage to the batch's tensors
 *
 * A batch's contents depend only on its position, never on timing. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "data/dataset.h"
#include "data/loading/prefetch.h"
#include "data/loading/sampler.h"
#include "data/loading/skips.h"
#include "tensor/handle.h"
#include "tensor/run.h"

struct choir_loader {
    choir_scope *run;
    choir_dataset *dataset;
    choir_loader_opts opts;
    choir_status status; /* status of its creation: a failed loader only reports this */
    char *message;
    choir__sample_order sampler; /* used while listing batches: by one worker at a time */
    choir__skips skips;
    choir__prefetch *prefetch;
    choir_shape x_shape, y_shape; /* shapes of a micro-batch */
    size_t x_bytes, y_bytes;      /* bytes of a sample */
    int64_t position;             /* number of the next micro-batch */
    choir__seen_step seen;        /* list NULL: it was never watched */
    bool watched;
};

/* --- filling: runs on the workers --- */

static void list(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count)
{
    choir_loader *l = arg;
    int64_t k = choir__skips_batch(&l->skips, position / l->opts.micro_count + 1) - 1;
    int64_t m = l->opts.micro_first + position % l->opts.micro_count;
    for (int64_t j = 0; j < *count; j++)
        index[j] = choir__sample_order_at(&l->sampler, k, m, j);
    *epoch = k / l->sampler.batches;
}

static choir_status get(void *arg, int64_t epoch, int64_t index, void *x, void *y)
{
    const choir_loader *l = arg;
    return choir__dataset_get_named(l->dataset, epoch, index, x, y);
}

/* --- life --- */

choir_loader_opts choir_loader_defaults(void)
{
    return (choir_loader_opts){.microbatches = 1, .shuffle = true, .drop_last = true};
}

static void forget_seen(choir_loader *l)
{
    for (int64_t m = 0; m < l->seen.count; m++) {
        free(l->seen.list[m].data[0]);
        free(l->seen.list[m].data[1]);
        l->seen.list[m] = (choir__seen_batch){0};
    }
}

static void free_loader(void *arg)
{
    choir_loader *l = arg;
    choir__sample_order_free(&l->sampler);
    forget_seen(l);
    choir__skips_free(&l->skips);
    free(l->message);
    free(l->seen.list);
}

static choir_status use_loader(const choir_loader *l, const char *function)
{
    return choir__use_part(l ? l->run : NULL, function, "loader");
}

/* Called when the workers have ended, because they use the loader until then. */
static void close_loader(void *arg)
{
    choir_loader *l = arg;
    if (l->prefetch)
        choir__prefetch_free(l->prefetch);
    else
        free_loader(l);
}

static choir_status check_micros(choir_loader_opts *opts)
{
    int64_t m = opts->microbatches;
    if (!opts->micro_count)
        opts->micro_count = m;
    if (opts->micro_first < 0 || opts->micro_count < 1 || opts->micro_first > m ||
        opts->micro_count > m - opts->micro_first)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld micro-batches from number %lld on: the batch has %lld",
            (long long)opts->micro_count, (long long)opts->micro_first, (long long)m);
    return CHOIR_OK;
}

static choir_status check_workers(const choir_loader_opts *opts)
{
    if (opts->workers < 0 || opts->workers > CHOIR_MAX_WORKERS)
        return choir__error(CHOIR_ERR_ARGUMENT, "%d loader workers: from 0 to %d make sense",
            opts->workers, CHOIR_MAX_WORKERS);
    if (opts->prefetch < 0 || !(opts->timeout_s >= 0))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a loader cannot prefetch %d micro-batches, or wait %g s", opts->prefetch,
            opts->timeout_s);
    return CHOIR_OK;
}

static choir_shape batched(int64_t count, choir_shape sample)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {count}};
    memcpy(shape.dim + 1, sample.dim, (size_t)sample.ndim * sizeof sample.dim[0]);
    return shape;
}

static choir_status start_prefetch(choir_loader *l)
{
    const choir_dataset *d = l->dataset;
    size_t x, y;
    choir_status status =
        choir__sample_bytes("x", d->x_dtype, d->x_shape, l->sampler.micro, &x);
    if (status == CHOIR_OK)
        status = choir__sample_bytes("y", d->y_dtype, d->y_shape, l->sampler.micro, &y);
    if (status != CHOIR_OK)
        return status;
    l->x_bytes = x / (size_t)l->sampler.micro;
    l->y_bytes = y / (size_t)l->sampler.micro;
    l->x_shape = batched(l->sampler.micro, d->x_shape);
    l->y_shape = batched(l->sampler.micro, d->y_shape);
    return choir__prefetch_new(&(choir__prefetch_source){.list = list,
                                   .far = l->run->device->far,
                                   .get = get,
                                   .release = free_loader,
                                   .arg = l,
                                   .samples = l->sampler.micro,
                                   .x_bytes = l->x_bytes,
                                   .y_bytes = l->y_bytes,
                                   .workers = l->opts.workers ? l->opts.workers : 1,
                                   .depth = l->opts.prefetch,
                                   .timeout_s = l->opts.timeout_s},
        &l->prefetch);
}

static choir_status make(choir_loader *l)
{
    if (!l->dataset)
        return choir__error(CHOIR_ERR_ARGUMENT, "a loader needs a dataset, not NULL");
    choir_loader_opts *o = &l->opts;
    if (o->microbatches < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a global batch: expected 1 micro-batch or more, got %lld; begin with "
            "choir_loader_defaults()",
            (long long)o->microbatches);
    choir_status status =
        choir__sample_order_init(&l->sampler, choir_dataset_length(l->dataset), o->microbatches,
            o->batch_size, o->seed, o->shuffle, o->drop_last);
    if (status == CHOIR_OK && o->weights)
        status = choir__sample_order_weigh(&l->sampler, o->weights);
    if (status == CHOIR_OK)
        status = choir__skips_add(&l->skips, o->skip_batches);
    o->weights = NULL; /* the caller's */
    o->skip_batches = NULL;
    if (status == CHOIR_OK)
        status = check_micros(o);
    if (status == CHOIR_OK)
        status = check_workers(o);
    return status == CHOIR_OK ? start_prefetch(l) : status;
}

choir_loader *choir_loader_new(choir_scope *run, choir_dataset *dataset, choir_loader_opts opts)
{
    run = choir__open_scope(run, __func__);
    choir_loader *l = choir__arena_get(&run->arena, sizeof *l); /* see tensor/handle.h */
    l->run = &run->run->base;
    l->dataset = dataset;
    l->opts = opts;
    choir__on_close(l->run, close_loader, l);
    l->status = make(l);
    if (l->status != CHOIR_OK) {
        l->message = choir__strdup(choir__message());
        choir__scope_fail(l->run, l->status);
    }
    return l;
}

choir_loader *choir_loader_shuffled(
    choir_scope *run, choir_dataset *dataset, int64_t batch_size)
{
    run = choir__open_scope(run, __func__);
    choir_loader_opts opts = choir_loader_defaults();
    opts.batch_size = batch_size;
    opts.seed = run->run->base.seed;
    return choir_loader_new(run, dataset, opts);
}

/* --- delivering --- */

/* The target of a micro-batch. It is in the scope's arena, because a recorded step delivers at
 * each replay. */
typedef struct delivery {
    choir_loader *loader;
    choir_device *device;
    void *x, *y;
    int64_t x_count, y_count;
} delivery;

static void launch_copy(
    choir_device *device, choir_dtype dtype, void *y, void *x, int64_t count)
{
    choir__k_copy args = {.y = {.p = y, .stride = {1}},
        .x = {.p = x, .stride = {1}},
        .shape = {count},
        .ndim = 1,
        .y_dtype = dtype,
        .x_dtype = dtype};
    if (count)
        choir__launch(device, CHOIR_F32, copy, &args);
}

/* Returns the hash of `count` elements. */
static uint64_t hash_of(const void *x, choir_dtype dtype, int64_t count)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += choir__hash_element(
            (const char *)x + (size_t)i * choir_dtype_size(dtype), dtype, (uint64_t)i);
    return sum;
}

static void *copy_of(const void *x, choir_dtype dtype, int64_t count)
{
    size_t bytes = (size_t)count * choir_dtype_size(dtype);
    void *copy = choir__calloc(bytes + 1, 1);
    memcpy(copy, x, bytes);
    return copy;
}

/* Notes what a stage has. Its list of samples stays until it is filled again. */
static void watch(choir_loader *l, const delivery *to, const choir__prefetch_stage *s)
{
    int64_t micro = l->opts.micro_first + l->position % l->opts.micro_count;
    choir__seen_batch *seen = &l->seen.list[micro];
    const choir_dataset *d = l->dataset;
    seen->count = l->sampler.micro;
    seen->samples = choir__mix((uint64_t)s->epoch, hash_of(s->index, CHOIR_I64, s->count));
    seen->bytes = choir__mix(
        hash_of(s->x, d->x_dtype, to->x_count), hash_of(s->y, d->y_dtype, to->y_count));
    if (!l->seen.keeps)
        return;
    free(seen->data[0]);
    free(seen->data[1]);
    seen->data[0] = copy_of(s->x, d->x_dtype, to->x_count);
    seen->data[1] = copy_of(s->y, d->y_dtype, to->y_count);
}

static choir_status deliver(void *arg)
{
    delivery *to = arg;
    choir_loader *l = to->loader;
    choir__prefetch_stage *s;
    choir_status status = choir__prefetch_take(l->prefetch, l->position, &s);
    if (status != CHOIR_OK)
        return status;
    if (l->watched)
        watch(l, to, s);
    launch_copy(to->device, l->dataset->x_dtype, to->x, s->x, to->x_count);
    launch_copy(to->device, l->dataset->y_dtype, to->y, s->y, to->y_count);
    choir__prefetch_copied(l->prefetch, s, choir__queue_record(to->device->queue));
    l->position++;
    return CHOIR_OK;
}

/* Fails the scope: ops on the failed batch do nothing. */
static choir_status failed(choir_scope *scope, choir_status status, choir_batch *batch)
{
    if (scope->status == CHOIR_OK)
        choir__scope_fail(scope, status);
    batch->x = choir__tensor_bare(scope, CHOIR_F32, CHOIR_SCALAR);
    batch->y = choir__tensor_bare(scope, CHOIR_F32, CHOIR_SCALAR);
    batch->x->poisoned = batch->y->poisoned = true;
    return status;
}

choir_status choir_loader_next(choir_loader *l, choir_scope *scope, choir_batch *batch)
{
    choir_status use = use_loader(l, __func__);
    if (use == CHOIR_OK)
        use = choir__use_scope(scope, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!batch)
        return choir__missing(__func__, "batch");
    choir_status status = choir__scope_status(scope);
    if (status == CHOIR_OK && l->status != CHOIR_OK) {
        choir__set_message(l->message);
        status = l->status;
    }
    if (status != CHOIR_OK)
        return failed(scope, status, batch);
    const choir_dataset *d = l->dataset;
    choir_tensor *x = choir__tensor_new(scope, scope->device, d->x_dtype, l->x_shape);
    choir_tensor *y = choir__tensor_new(scope, scope->device, d->y_dtype, l->y_shape);
    if (x->poisoned || y->poisoned)
        return failed(scope, choir__scope_status(scope), batch);
    if (d->ops->channels_last)
        choir__set_channels_last(x);
    delivery *to = choir__arena_get(&scope->arena, sizeof *to);
    *to = (delivery){l, scope->device, choir__data(x), choir__data(y), x->count, y->count};
    status = choir__host_call(deliver, to);
    if (status != CHOIR_OK)
        return failed(scope, status, batch);
    *batch = (choir_batch){x, y};
    return CHOIR_OK;
}

/* --- position --- */

int64_t choir_loader_position(const choir_loader *loader)
{
    if (use_loader(loader, __func__) != CHOIR_OK)
        return 0;
    return loader->position;
}

void choir_loader_seek(choir_loader *loader, int64_t position)
{
    if (use_loader(loader, __func__) != CHOIR_OK)
        return;
    if (position < 0) {
        choir__error(
            CHOIR_ERR_ARGUMENT, "a loader cannot go to micro-batch %lld", (long long)position);
        choir__scope_fail(loader->run, CHOIR_ERR_ARGUMENT);
        return;
    }
    loader->position = position;
    if (loader->prefetch)
        choir__prefetch_restart(loader->prefetch, position);
}

void choir_loader_seek_step(choir_loader *loader, int64_t step)
{
    if (use_loader(loader, __func__) != CHOIR_OK)
        return;
    choir_loader_seek(loader, step * loader->opts.micro_count);
}

choir_status choir__loader_deal(choir_loader *l, int64_t first, int64_t count, int64_t step)
{
    choir_loader_opts dealt = l->opts;
    dealt.micro_first = first;
    dealt.micro_count = count;
    choir_status status = l->status == CHOIR_OK ? check_micros(&dealt) : l->status;
    if (status != CHOIR_OK)
        return status;
    choir__prefetch_rest(l->prefetch, step * count);
    l->opts = dealt;
    l->position = step * count;
    return CHOIR_OK;
}

choir_status choir__loader_skip(choir_loader *l, const char *batches)
{
    choir__skips skips = {0};
    choir_status status = l->status == CHOIR_OK ? choir__skips_add(&skips, batches) : l->status;
    if (status != CHOIR_OK) {
        choir__skips_free(&skips);
        return status;
    }
    choir__prefetch_rest(l->prefetch, l->position); /* no worker lists batches meanwhile */
    choir__skips_free(&l->skips);
    l->skips = skips;
    return CHOIR_OK;
}

const choir_loader_opts *choir__loader_opts(const choir_loader *loader)
{
    return &loader->opts;
}

void choir__loader_watch(choir_loader *l, bool on, bool keeps)
{
    if (!l || l->status != CHOIR_OK)
        return;
    if (on && !l->seen.list)
        l->seen = (choir__seen_step){
            .list = choir__calloc((size_t)l->opts.microbatches, sizeof *l->seen.list),
            .count = l->opts.microbatches,
            .dtype = {l->dataset->x_dtype, l->dataset->y_dtype},
            .shape = {l->x_shape, l->y_shape},
            .images = l->dataset->ops->channels_last};
    forget_seen(l);
    l->watched = on;
    l->seen.keeps = keeps;
}

const choir__seen_step *choir__loader_seen(const choir_loader *l)
{
    return l && l->seen.list ? &l->seen : NULL;
}

size_t choir__loader_staged(const choir_loader *loader)
{
    return loader && loader->prefetch ? choir__prefetch_bytes(loader->prefetch) : 0;
}

double choir_loader_waited(const choir_loader *loader)
{
    if (use_loader(loader, __func__) != CHOIR_OK || !loader->prefetch)
        return 0;
    return choir__prefetch_waited(loader->prefetch);
}

int64_t choir_loader_batches(const choir_loader *loader)
{
    if (use_loader(loader, __func__) != CHOIR_OK)
        return 0;
    return loader->status == CHOIR_OK ? loader->sampler.batches : 0;
}
