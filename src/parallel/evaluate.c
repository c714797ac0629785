/* Evaluation: runs the dataset in order, in batches, which are distributed over the ranks in
 * contiguous runs. Each batch's sums are gathered and added in order in f64, so the result does
 * not depend on the number of ranks. */
#include <choir/evaluate.h>

#include <math.h>
#include <stdlib.h>

#include "comm/pattern/tree.h"
#include "data/dataset.h"
#include "data/prefetch.h"
#include "parallel/tally.h"
#include "tensor/launch.h"
#include "tensor/scope.h"

enum { AHEAD = 3 }; /* batches read ahead */

/* A reader of the batches from `first` on, ahead of their use. */
typedef struct reading {
    choir_dataset *data;
    int64_t first, batch, samples, count; /* count: number of all batches */
    int64_t mine;                         /* batches that this rank counts */
} reading;

static void list(void *arg, int64_t position, int64_t *epoch, int64_t *index, int64_t *count)
{
    const reading *r = arg;
    int64_t from = (r->first + position) % r->count * r->batch;
    *epoch = 0;
    *count = choir__max(0, choir__min(r->batch, r->samples - from));
    for (int64_t j = 0; j < *count; j++)
        index[j] = from + j;
}

static choir_status get(void *arg, int64_t epoch, int64_t index, void *x, void *y)
{
    return choir__dataset_get_named(((const reading *)arg)->data, epoch, index, x, y);
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

/* Returns the target value that is ignored. */
static int64_t ignored_by(const choir_model_info *info)
{
    return info->task == CHOIR_IMAGE_TO_TEXT ? info->pad : CHOIR_IGNORED;
}

/* Returns the number of rows whose targets are not ignored. */
static int64_t rows_of(
    const choir_model_info *info, int64_t n, const choir_tensor *y, const int64_t *targets)
{
    int64_t rows = 0;
    if (info->task == CHOIR_REGRESSION)
        return n;
    for (int64_t i = 0; i < choir_tensor_count(y); i++)
        rows += targets[i] != ignored_by(info);
    return rows;
}

/* again: another rank counts this batch. */
static choir_status run_batch(choir_scope *step, choir_module *net,
    const choir_model_info *info, choir_dataset *data, const choir__prefetch_stage *stage,
    choir__tally *tally, bool again, choir__batch_sums *s)
{
    int64_t n = stage->count;
    choir_tensor *x =
        batch_of(step, data->x_dtype, data->x_shape, n, stage->x, data->ops->channels_last);
    choir_tensor *y = batch_of(step, data->y_dtype, data->y_shape, n, stage->y, false);
    choir_tensor *out = choir_model_forward(info, net, x, y);
    choir_tensor *loss = choir_model_loss(info, out, y);
    s->rows = rows_of(info, n, y, stage->y);
    s->loss = s->rows ? choir_item(loss) * (double)s->rows : 0;
    choir_status status = choir_scope_status(step);
    if (status == CHOIR_OK && info->task != CHOIR_REGRESSION)
        status = choir__tally_add(tally, out, y, ignored_by(info), again, s);
    return status;
}

static void sync_buffer(const char *name, choir_tensor *t, void *arg)
{
    choir_device *device = t->storage ? choir__device_of(t) : NULL;
    (void)name;
    /* parameters are equal already; running statistics are taken from rank 0 */
    if (t->param || !device || device->away)
        return;
    choir_device_sync(device);
    choir_group_broadcast(arg, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, NULL);
}

/* Gathers the sums of all batches, in order. mine: this rank's batches [lo, hi) of `count`. */
static choir_status gather(
    choir_group *group, const choir__batch_sums *mine, choir__batch_sums *all, int64_t count)
{
    int world = choir_group_world(group);
    int64_t each = (count + world - 1) / world;
    choir__batch_sums *padded = choir__calloc((size_t)(each * (world + 1)), sizeof *padded);
    int64_t lo, hi;
    choir__tree_run(count, choir_group_rank(group), world, &lo, &hi);
    for (int64_t i = lo; i < hi; i++)
        padded[i - lo] = mine[i];
    choir_status status = choir_group_all_gather(
        group, padded, padded + each, each * (int64_t)sizeof *padded, CHOIR_U8, NULL);
    for (int r = 0; r < world; r++) {
        choir__tree_run(count, r, world, &lo, &hi);
        for (int64_t i = lo; i < hi; i++)
            all[i] = padded[each * (r + 1) + i - lo];
    }
    free(padded);
    return status;
}

static choir_status run_batches(choir_scope *run, choir_module *net,
    const choir_model_info *info, choir__prefetch *ahead, reading *r, int64_t count,
    choir__tally *tally, choir__batch_sums *s)
{
    choir_status status = CHOIR_OK;
    for (int64_t i = 0; i < count && status == CHOIR_OK; i++) {
        choir__prefetch_stage *stage;
        status = choir__prefetch_take(ahead, i, &stage);
        if (status != CHOIR_OK)
            break;
        choir_scope *step = choir_no_grad(run);
        status = run_batch(step, net, info, r->data, stage, tally, i >= r->mine,
            &s[(r->first + i) % r->count]);
        choir__prefetch_done(ahead, stage);
        choir_status closed = choir_scope_close(step);
        status = status == CHOIR_OK ? closed : status;
    }
    return status;
}

static choir_status read_batches(choir_scope *run, choir_module *net,
    const choir_model_info *info, reading *r, int64_t count, int workers, choir__tally *tally,
    choir__batch_sums *s)
{
    const choir_dataset *data = r->data;
    choir__prefetch *ahead = NULL;
    choir__prefetch_source source = {.list = list,
        .get = get,
        .arg = r,
        .samples = r->batch,
        .workers = workers,
        .depth = AHEAD};
    choir_status status =
        choir__sample_bytes("x", data->x_dtype, data->x_shape, 1, &source.x_bytes);
    if (status == CHOIR_OK)
        status = choir__sample_bytes("y", data->y_dtype, data->y_shape, 1, &source.y_bytes);
    if (status == CHOIR_OK)
        status = choir__prefetch_new(&source, &ahead);
    if (status == CHOIR_OK)
        status = run_batches(run, net, info, ahead, r, count, tally, s);
    choir__prefetch_free(ahead);
    return status;
}

choir_eval_opts choir_eval_defaults(void)
{
    return (choir_eval_opts){.batch_size = 32, .workers = 1};
}

static choir_status check(
    const choir_model_info *info, const choir_dataset *data, const choir_eval_opts *opts)
{
    if (!data || opts->batch_size < 1 || opts->max_batches < 0 || opts->workers < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "evaluate: expected a dataset, batches of 1 or more and 1 worker or more, got "
            "%lld and %d; begin with choir_eval_defaults()",
            (long long)opts->batch_size, opts->workers);
    if (choir_dataset_length(data) < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "evaluate: the dataset has no samples");
    if (opts->per_class && info->task != CHOIR_CLASSIFICATION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "evaluate: %s has no classes: per_class is for classifiers", info->config);
    return CHOIR_OK;
}

/* Chooses the batches of this rank; returns the number of forwards that it makes. */
static int64_t take_share(
    reading *r, const choir_module *net, choir_group *group, int64_t max_batches)
{
    r->count = (r->samples + r->batch - 1) / r->batch;
    if (max_batches && max_batches < r->count)
        r->count = max_batches;
    int64_t lo = 0, hi = r->count;
    if (group)
        choir__tree_run(r->count, choir_group_rank(group), choir_group_world(group), &lo, &hi);
    r->first = lo;
    r->mine = hi - lo;
    if (!group || !choir_module_collective(net))
        return r->mine;
    /* All ranks run equally many collective forwards, so some run a batch once more. */
    return (r->count + choir_group_world(group) - 1) / choir_group_world(group);
}

choir_status choir_evaluate(choir_scope *run, choir_module *net, const choir_model_info *info,
    choir_dataset *data, choir_eval_opts opts, choir_score *score)
{
    *score = (choir_score){NAN, NAN, NAN, NAN, NAN, 0};
    choir_status status = check(info, data, &opts);
    if (status != CHOIR_OK)
        return status;
    choir_group *group = opts.group && choir_group_world(opts.group) > 1 ? opts.group : NULL;
    int64_t samples = choir_dataset_length(data);
    reading r = {
        .data = data, .batch = choir__min(opts.batch_size, samples), .samples = samples};
    int64_t forwards = take_share(&r, net, group, opts.max_batches);
    choir__batch_sums *s = choir__calloc((size_t)r.count + 1, sizeof *s);
    choir__tally tally;
    choir__tally_init(&tally, info);
    status = choir_device_sync(run->device);
    if (group && status == CHOIR_OK)
        choir_module_visit(net, true, sync_buffer, group);
    choir_module_train(net, false);
    if (status == CHOIR_OK)
        status = read_batches(run, net, info, &r, forwards, opts.workers, &tally, s);
    choir_module_train(net, true);
    if (group && status == CHOIR_OK)
        status = gather(group, s, s, r.count);
    if (group && status == CHOIR_OK)
        status = choir__tally_gather(&tally, group);
    score->samples = choir__min(samples, r.count * r.batch);
    if (status == CHOIR_OK)
        choir__tally_score(&tally, info, s, r.count, score, opts.per_class);
    choir__tally_free(&tally);
    free(s);
    return status;
}
