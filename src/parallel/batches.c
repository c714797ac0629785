/* Reads the batches of a dataset in order, a few ahead by prefetching threads, uploads each in
 * a scope without a tape, and calls a function on it. */
#include "parallel/batches.h"

#include "data/dataset.h"
#include "data/loading/prefetch.h"
#include "tensor/launch.h"
#include "tensor/scope.h"

enum { AHEAD = 3 }; /* batches read ahead */

static void list(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count)
{
    const choir__batches *b = arg;
    int64_t from = (b->first + position) % b->count * b->batch;
    *epoch = 0;
    *count = choir__max(0, choir__min(b->batch, b->samples - from));
    for (int64_t j = 0; j < *count; j++)
        index[j] = from + j;
}

static choir_status get(void *arg, int64_t epoch, int64_t index, void *x, void *y)
{
    return choir__dataset_get_named(((const choir__batches *)arg)->data, epoch, index, x, y);
}

static choir_tensor *batch_of(choir_scope *scope, choir_dtype dtype, choir_shape sample,
    int64_t n, const void *data, bool channels_last)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {n}};
    for (int i = 0; i < sample.ndim; i++)
        shape.dim[i + 1] = sample.dim[i];
    choir_tensor *t = choir__tensor_new(scope, scope->device, dtype, shape);
    if (t->poisoned)
        return t;
    if (channels_last)
        choir__set_channels_last(t);
    choir__launch_upload(
        scope->device, choir__data(t), data, (size_t)t->count * choir_dtype_size(dtype));
    return t;
}

static choir_status run_one(choir_scope *run, const choir_dataset *data, int64_t position,
    const choir__prefetch_stage *stage, choir__read_batch_fn *fn, void *arg)
{
    choir_scope *step = choir_no_grad(run);
    choir__read_batch b = {.targets = stage->y, .n = stage->count, .position = position};
    b.x = batch_of(step, data->x_dtype, data->x_shape, b.n, stage->x, data->ops->channels_last);
    b.y = batch_of(step, data->y_dtype, data->y_shape, b.n, stage->y, false);
    choir_status status = fn(arg, step, &b);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

choir_status choir__batches_each(choir_scope *run, choir__batches *b, int64_t count,
    int workers, choir__read_batch_fn *fn, void *arg)
{
    const choir_dataset *data = b->data;
    choir__prefetch *ahead = NULL;
    choir__prefetch_source source = {.list = list,
        .get = get,
        .arg = b,
        .samples = b->batch,
        .workers = workers,
        .depth = AHEAD};
    choir_status status =
        choir__sample_bytes("x", data->x_dtype, data->x_shape, 1, &source.x_bytes);
    if (status == CHOIR_OK)
        status = choir__sample_bytes("y", data->y_dtype, data->y_shape, 1, &source.y_bytes);
    if (status == CHOIR_OK)
        status = choir__prefetch_new(&source, &ahead);
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++) {
        choir__prefetch_stage *stage;
        choir_status taken = status = choir__prefetch_take(ahead, i, &stage);
        if (b->read)
            status = b->read(b->arg, taken);
        if (status == CHOIR_OK)
            status = taken == CHOIR_OK ? run_one(run, data, i, stage, fn, arg) : taken;
        if (taken == CHOIR_OK)
            choir__prefetch_done(ahead, stage);
    }
    choir__prefetch_free(ahead);
    return status;
}
