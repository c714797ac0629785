/* The loader of samples of named parts: the next micro-batch, prefetched and copied to tensors.
 *
 *     position    p is micro-batch first + p % count of global batch p / count
 *     buckets     say which samples that batch has, and its bucket            (buckets.c)
 *     prefetch    reads them into slots of its stages                         (layout.c)
 *     deliver     copies each part out of the slots
 *
 * A sample's number in a stage also has its bucket: sample + N * bucket, since its slot's
 * layout is the bucket's. */
#include <choir/parts.h>
#include <stdlib.h>
#include <string.h>

#include <choir/select.h>

#include "data/loading/prefetch.h"
#include "data/parts/buckets.h"
#include "data/parts/layout.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/run.h"

struct choir_parts_loader {
    choir_scope *run;
    choir_parts_dataset *dataset;
    choir_loader_opts opts;
    choir_status status; /* status of its creation: a failed loader only reports this */
    char *message;
    choir__buckets buckets;
    choir__parts_layout *layout; /* per bucket */
    size_t slot;                 /* bytes between slots: the largest layout */
    int64_t micro;               /* samples of a micro-batch */
    choir__prefetch *prefetch;
    int64_t position;
};

choir_parts_opts choir_parts_defaults(void)
{
    return (choir_parts_opts){.loader = choir_loader_defaults()};
}

/* --- on the workers --- */

static int64_t batch_of(const choir_parts_loader *l, int64_t position)
{
    return position / l->opts.micro_count;
}

static void list(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count)
{
    choir_parts_loader *l = arg;
    int64_t k = batch_of(l, position);
    int64_t m = l->opts.micro_first + position % l->opts.micro_count;
    int bucket = choir__buckets_at(&l->buckets, k, m * l->micro, *count, index);
    for (int64_t j = 0; j < *count; j++)
        index[j] += bucket * l->buckets.length;
    *epoch = k / l->buckets.batches;
}

static choir_status get(void *arg, int64_t epoch, int64_t index, void *x, void *y)
{
    const choir_parts_loader *l = arg;
    int64_t n = l->buckets.length;
    (void)y;
    return choir__parts_read(l->dataset, &l->layout[index / n], epoch, index % n, x);
}

/* --- life --- */

static void free_loader(void *arg)
{
    choir_parts_loader *l = arg;
    choir__buckets_free(&l->buckets);
    free(l->layout);
    free(l->message);
}

static void close_loader(void *arg)
{
    choir_parts_loader *l = arg;
    if (l->prefetch)
        choir__prefetch_free(l->prefetch);
    else
        free_loader(l);
}

static choir_status check_opts(choir_parts_opts *o)
{
    choir_loader_opts *l = &o->loader;
    if (l->microbatches < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parts: expected 1 micro-batch or more, got %lld; begin with choir_parts_defaults()",
            (long long)l->microbatches);
    if (l->batch_size < 1 || l->batch_size % l->microbatches)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parts: expected a batch that divides into its micro-batches, got %lld samples and "
            "%lld",
            (long long)l->batch_size, (long long)l->microbatches);
    l->micro_count = l->micro_count ? l->micro_count : l->microbatches;
    if (l->micro_first < 0 || l->micro_count < 1 || l->micro_first > l->microbatches ||
        l->micro_count > l->microbatches - l->micro_first)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parts: %lld micro-batches from number %lld on: the batch has %lld",
            (long long)l->micro_count, (long long)l->micro_first, (long long)l->microbatches);
    if (l->weights || l->skip_batches)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "parts: expected no weights and no skip_batches");
    if (l->workers < 0 || l->workers > CHOIR_MAX_WORKERS)
        return choir__error(CHOIR_ERR_ARGUMENT, "parts: expected 0 to %d workers, got %d",
            CHOIR_MAX_WORKERS, l->workers);
    for (int b = 0; b < o->bucket_count; b++)
        if (!o->buckets || o->buckets[b] < (b ? o->buckets[b - 1] + 1 : 0))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "parts: expected lengths of buckets that rise from 0 or more");
    if (o->bucket_step < 0 || (o->bucket_step && o->bucket_count))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "parts: expected either buckets or a step of 0 or more between them, got %lld",
            (long long)o->bucket_step);
    return CHOIR_OK;
}

/* Stores in *bucket where a length belongs. Error: range. */
static choir_status bucket_of(const choir_parts_opts *o, const choir_parts_dataset *d,
    int64_t index, const choir_shape *shape, int64_t *bucket)
{
    int part;
    int64_t length = choir__parts_length(d, shape, &part);
    *bucket = 0;
    if (o->bucket_step)
        *bucket = length ? (length - 1) / o->bucket_step : 0;
    while (*bucket < o->bucket_count && length > o->buckets[*bucket])
        ++*bucket;
    if (o->bucket_count && *bucket == o->bucket_count)
        return choir__error(CHOIR_ERR_RANGE,
            "sample %lld: part '%s' has length %lld, beyond the last bucket of %lld",
            (long long)index, d->part[part].name, (long long)length,
            (long long)o->buckets[o->bucket_count - 1]);
    return CHOIR_OK;
}

/* Looks at all samples: their buckets, and the sizes of each bucket. `place` (N) receives the
 * buckets. */
static choir_status look(
    choir_parts_loader *l, const choir_parts_opts *o, int64_t *place, int64_t n)
{
    choir_shape shape[CHOIR_MAX_PARTS];
    int64_t most = 0;
    choir_status status = CHOIR_OK;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < n && status == CHOIR_OK; i++) {
            status = choir__parts_sizes(l->dataset, i, shape);
            if (status == CHOIR_OK && !pass)
                status = bucket_of(o, l->dataset, i, shape, &place[i]);
            most = choir__max(most, place[i]);
            if (status == CHOIR_OK && pass)
                choir__parts_widen(l->dataset, &l->layout[place[i]], shape);
        }
        if (!pass && status == CHOIR_OK)
            l->layout = choir__calloc((size_t)most + 1, sizeof *l->layout);
    }
    l->buckets.count = (int)most + 1;
    return status;
}

/* A bucket's batches also hold the rest of smaller buckets. */
static choir_status place_all(choir_parts_loader *l)
{
    choir_status status = CHOIR_OK;
    for (int b = 0; b < l->buckets.count && status == CHOIR_OK; b++) {
        if (b)
            choir__parts_widen(l->dataset, &l->layout[b], l->layout[b - 1].shape);
        status = choir__parts_place(l->dataset, &l->layout[b]);
        l->slot = choir__max(l->slot, l->layout[b].bytes);
    }
    return status;
}

static choir_status make(choir_parts_loader *l, choir_parts_opts *o)
{
    choir_status status = choir__parts_check(l->dataset);
    if (status == CHOIR_OK)
        status = check_opts(o);
    if (status != CHOIR_OK)
        return status;
    l->opts = o->loader;
    l->micro = o->loader.batch_size / o->loader.microbatches;
    int64_t n = l->dataset->ops->length(l->dataset);
    int64_t *place = choir__calloc((size_t)choir__max(n, 0) + 1, sizeof *place);
    status = look(l, o, place, n);
    int buckets = l->buckets.count;
    if (status == CHOIR_OK)
        status = choir__buckets_init(&l->buckets, n, o->loader.batch_size, buckets,
            o->loader.seed, o->loader.shuffle, o->loader.drop_last);
    for (int64_t i = 0; i < n && status == CHOIR_OK; i++)
        l->buckets.bucket[i] = (int)place[i];
    free(place);
    if (status == CHOIR_OK)
        status = place_all(l);
    return status == CHOIR_OK
               ? choir__prefetch_new(&(choir__prefetch_source){.list = list,
                                         .far = l->run->device->far,
                                         .get = get,
                                         .release = free_loader,
                                         .arg = l,
                                         .samples = l->micro,
                                         .length = n,
                                         .x_bytes = l->slot,
                                         .y_bytes = 1,
                                         .workers = l->opts.workers ? l->opts.workers : 1,
                                         .depth = l->opts.prefetch,
                                         .timeout_s = l->opts.timeout_s},
                     &l->prefetch)
               : status;
}

choir_parts_loader *choir_parts_loader_new(
    choir_scope *run, choir_parts_dataset *dataset, choir_parts_opts opts)
{
    run = choir__open_scope(run, __func__);
    choir_parts_loader *l = choir__arena_get(&run->arena, sizeof *l);
    l->run = &run->run->base;
    l->dataset = dataset;
    choir__on_close(l->run, close_loader, l);
    l->status = make(l, &opts);
    if (l->status != CHOIR_OK) {
        l->message = choir__strdup(choir__message());
        choir__scope_fail(l->run, l->status);
    }
    return l;
}

static choir_status use_loader(const choir_parts_loader *l, const char *function)
{
    return choir__use_part(l ? l->run : NULL, function, "loader");
}

/* --- delivering --- */

/* A micro-batch's targets, in the scope's arena, because a recorded step delivers at each
 * replay.
 */
typedef struct delivery {
    choir_parts_loader *loader;
    choir_device *device;
    const choir__parts_layout *layout;
    choir_tensor part[CHOIR_MAX_PARTS], sizes[CHOIR_MAX_PARTS];
} delivery;

/* Copies a part, row-major, out of the slots; each sample's begins `slot` bytes after the one
 * before. */
static void copy_out(const delivery *to, const choir_tensor *y, char *from)
{
    size_t each = choir_dtype_size(y->dtype);
    choir__k_copy args = {.ndim = y->shape.ndim, .y_dtype = y->dtype, .x_dtype = y->dtype};
    args.y.p = choir__data(y);
    args.x.p = from;
    for (int d = 0; d < y->shape.ndim; d++) {
        args.shape[d] = y->shape.dim[d];
        args.y.stride[d] = y->stride[d];
        args.x.stride[d] = d ? y->stride[d] : (int64_t)(to->loader->slot / each);
    }
    if (y->count)
        choir__launch(to->device, CHOIR_F32, copy, &args);
}

static choir_status deliver(void *arg)
{
    delivery *to = arg;
    choir_parts_loader *l = to->loader;
    choir__prefetch_stage *s;
    choir_status status = choir__prefetch_take(l->prefetch, l->position, &s);
    if (status != CHOIR_OK)
        return status;
    for (int i = 0; i < l->dataset->count; i++) {
        copy_out(to, &to->part[i], (char *)s->x + to->layout->offset[i]);
        copy_out(to, &to->sizes[i], (char *)s->x + choir__parts_sizes_at(i));
    }
    choir__prefetch_copied(l->prefetch, s, choir__queue_record(to->device->queue));
    l->position++;
    return CHOIR_OK;
}

/* Returns a tensor (B, shape...). */
static choir_tensor *batched(
    choir_scope *scope, choir_dtype dtype, int64_t count, choir_shape sample)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {count}};
    memcpy(shape.dim + 1, sample.dim, (size_t)sample.ndim * sizeof sample.dim[0]);
    return choir__tensor_new(scope, scope->device, dtype, shape);
}

static choir_status failed(choir_scope *scope, choir_status status, choir_parts *batch)
{
    if (scope->status == CHOIR_OK)
        choir__scope_fail(scope, status);
    for (int i = 0; i < CHOIR_MAX_PARTS; i++) {
        batch->part[i] = batch->sizes[i] = choir__tensor_bare(scope, CHOIR_F32, CHOIR_SCALAR);
        batch->part[i]->poisoned = true;
    }
    return status;
}

static choir_status ready(choir_parts_loader *l, choir_scope *scope)
{
    choir_status status = choir__scope_status(scope);
    if (status == CHOIR_OK && l->status != CHOIR_OK) {
        choir__set_message(l->message);
        return l->status;
    }
    if (status == CHOIR_OK && l->buckets.count > 1 && choir__recording_active())
        return choir__error(CHOIR_ERR_STATE,
            "choir_parts_next: a recorded step has one shape, but there are %d buckets",
            l->buckets.count);
    return status;
}

choir_status choir_parts_next(choir_parts_loader *l, choir_scope *scope, choir_parts *batch)
{
    choir_status status = use_loader(l, __func__);
    if (status == CHOIR_OK)
        status = choir__use_scope(scope, __func__);
    if (status != CHOIR_OK)
        return status;
    if (!batch)
        return choir__missing(__func__, "batch");
    *batch = (choir_parts){.of = l->dataset};
    if ((status = ready(l, scope)) != CHOIR_OK)
        return failed(scope, status, batch);
    delivery *to = choir__arena_get(&scope->arena, sizeof *to);
    int bucket = choir__buckets_at(&l->buckets, batch_of(l, l->position), 0, 0, NULL);
    *to = (delivery){.loader = l, .device = scope->device, .layout = &l->layout[bucket]};
    for (int i = 0; i < l->dataset->count; i++) {
        const choir_part *p = &l->dataset->part[i];
        batch->part[i] = batched(scope, p->dtype, l->micro, to->layout->shape[i]);
        batch->sizes[i] = batched(scope, CHOIR_I64, l->micro, choir_dims(p->shape.ndim));
        if (batch->part[i]->poisoned || batch->sizes[i]->poisoned)
            return failed(scope, choir__scope_status(scope), batch);
        to->part[i] = *batch->part[i];
        to->sizes[i] = *batch->sizes[i];
    }
    status = choir__host_call(deliver, to);
    return status == CHOIR_OK ? CHOIR_OK : failed(scope, status, batch);
}

/* --- parts by name --- */

/* Returns the number of a part, or -1 with a poisoned tensor. */
static int number_of(
    const choir_parts *batch, const char *name, const char *function, choir_tensor **poisoned)
{
    const choir_parts_dataset *d = batch ? batch->of : NULL;
    if (!d) {
        *poisoned = choir__poison_missing(NULL, function, "batch");
        return -1;
    }
    for (int i = 0; i < d->count && name; i++)
        if (!strcmp(d->part[i].name, name))
            return i;
    char *names = choir__strdup("");
    for (int i = 0; i < d->count; i++) {
        char *more = choir__format("%s%s%s", names, i ? ", " : "", d->part[i].name);
        free(names);
        names = more;
    }
    *poisoned = choir__poison(batch->part[0]->scope, CHOIR_ERR_ARGUMENT,
        "parts: unknown part '%s': choose one of %s", name ? name : "", names);
    free(names);
    return -1;
}

choir_tensor *choir_parts_get(const choir_parts *batch, const char *name)
{
    choir_tensor *poisoned;
    int i = number_of(batch, name, __func__, &poisoned);
    return i < 0 ? poisoned : batch->part[i];
}

choir_tensor *choir_parts_mask(const choir_parts *batch, const char *name)
{
    choir_tensor *poisoned;
    int i = number_of(batch, name, __func__, &poisoned);
    if (i < 0 || batch->part[i]->poisoned)
        return i < 0 ? poisoned : batch->part[i];
    const choir_tensor *x = batch->part[i];
    if (x->shape.ndim < 2)
        return choir__poison(x->scope, CHOIR_ERR_SHAPE,
            "parts: expected a part with a dimension for a mask, got '%s'", name);
    choir_tensor *has = choir_cast(choir_narrow(batch->sizes[i], 1, 0, 1), CHOIR_F64);
    choir_shape one = choir_dims(x->shape.dim[1]);
    choir_tensor *ones = choir_full(x->scope, CHOIR_F64, one, 1);
    return choir_le(choir_cumsum(ones, 0), has);
}

/* --- position --- */

int64_t choir_parts_position(const choir_parts_loader *l)
{
    return use_loader(l, __func__) == CHOIR_OK ? l->position : 0;
}

void choir_parts_seek(choir_parts_loader *l, int64_t position)
{
    if (use_loader(l, __func__) != CHOIR_OK)
        return;
    if (position < 0) {
        choir__error(
            CHOIR_ERR_ARGUMENT, "a loader cannot go to micro-batch %lld", (long long)position);
        choir__scope_fail(l->run, CHOIR_ERR_ARGUMENT);
        return;
    }
    l->position = position;
    if (l->prefetch)
        choir__prefetch_restart(l->prefetch, position);
}

void choir_parts_seek_step(choir_parts_loader *l, int64_t step)
{
    if (use_loader(l, __func__) == CHOIR_OK)
        choir_parts_seek(l, step * l->opts.micro_count);
}

int64_t choir_parts_batches(const choir_parts_loader *l)
{
    return use_loader(l, __func__) == CHOIR_OK && l->status == CHOIR_OK ? l->buckets.batches
                                                                        : 0;
}
