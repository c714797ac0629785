/* Evaluation: runs the dataset in order, in batches, which are distributed over the ranks in
 * contiguous runs. Each batch's sums are gathered and added in order in f64, so the result does
 * not depend on the number of ranks. */
#include <choir/evaluate.h>

#include <math.h>
#include <stdlib.h>

#include "base/base.h"
#include "checkpoint/agree.h"
#include "comm/pattern/tree.h"
#include "nn/module.h"
#include "parallel/batches.h"
#include "parallel/tally.h"
#include "tensor/handle.h"
#include "tensor/launch.h"
#include "tensor/scope.h"

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

/* The sums of a rank's batches, and the model that runs them. */
typedef struct evaluation {
    choir_module *net;
    const choir_model_info *info;
    choir__batches batches;
    int64_t mine; /* batches that this rank counts; others it runs for other ranks' sake */
    choir__tally tally;
    choir__batch_sums *sums; /* (batches.count) */
    const choir_eval_opts *opts;
    int64_t asked;       /* calls of opts->between */
    choir_status agreed; /* an error that all ranks have, or know of */
} evaluation;

/* Asks whether the evaluation continues. */
static choir_status ask(void *arg, choir_status mine)
{
    evaluation *e = arg;
    e->asked++;
    return e->agreed = e->opts->between(e->opts->arg, mine);
}

/* Ends the ranks' batches together. With a question each rank asks it `rounds` times, whatever
 * the number of its batches, unless an answer has ended them. A failed forward is known to its
 * rank alone: where forwards are collective, the others wait in one. */
static choir_status end_batches(
    evaluation *e, choir_group *group, int64_t rounds, choir_status status)
{
    if (e->agreed != CHOIR_OK || (status != CHOIR_OK && choir_module_collective(e->net)))
        return status;
    if (!e->opts->between)
        return choir__agree(group, status);
    while (e->agreed == CHOIR_OK && e->asked < rounds)
        ask(e, status);
    return status == CHOIR_OK ? e->agreed : status;
}

static choir_status run_batch(void *arg, choir_scope *step, const choir__batch *b)
{
    evaluation *e = arg;
    choir__batch_sums *s = &e->sums[(e->batches.first + b->position) % e->batches.count];
    choir_tensor *out = choir_model_forward(e->info, e->net, b->x, b->y);
    choir_tensor *loss = choir_model_loss(e->info, out, b->y);
    s->rows = rows_of(e->info, b->n, b->y, b->targets);
    s->loss = s->rows ? choir_item(loss) * (double)s->rows : 0;
    choir_status status = choir__scope_status(step);
    if (status == CHOIR_OK && e->info->task != CHOIR_REGRESSION)
        status = choir__tally_add(
            &e->tally, out, b->y, ignored_by(e->info), b->position >= e->mine, s);
    return status;
}

static void sync_buffer(const char *name, choir_tensor *t, void *arg)
{
    choir_device *device = t->storage ? choir__device_of(t) : NULL;
    (void)name;
    /* parameters are equal already; running statistics are taken from rank 0 */
    if (t->param || !device || device->away)
        return;
    (void)!choir_device_sync(device);
    (void)!choir_group_broadcast(
        arg, choir__data(t), (int64_t)t->storage->bytes, CHOIR_U8, 0, NULL);
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
static int64_t take_share(evaluation *e, choir_group *group, int64_t max_batches)
{
    choir__batches *b = &e->batches;
    b->count = (b->samples + b->batch - 1) / b->batch;
    if (max_batches && max_batches < b->count)
        b->count = max_batches;
    int64_t lo = 0, hi = b->count;
    if (group)
        choir__tree_run(b->count, choir_group_rank(group), choir_group_world(group), &lo, &hi);
    b->first = lo;
    e->mine = hi - lo;
    if (!group || !choir_module_collective(e->net))
        return e->mine;
    /* All ranks run equally many collective forwards, so some run a batch once more. */
    return (b->count + choir_group_world(group) - 1) / choir_group_world(group);
}

/* Returns how often a rank asks: before each of the batches of the one that has most, and once
 * behind them. */
static int64_t rounds_of(int64_t count, choir_group *group)
{
    int world = group ? choir_group_world(group) : 1;
    return (count + world - 1) / world + 1;
}

choir_status choir_evaluate(choir_scope *run, choir_module *net, const choir_model_info *info,
    choir_dataset *data, choir_eval_opts opts, choir_score *score)
{
    choir_status use_run = choir__use_scope(run, __func__);
    if (use_run != CHOIR_OK)
        return use_run;
    choir_status use_net = choir__use_module(net, __func__);
    if (use_net != CHOIR_OK)
        return use_net;
    if (!info)
        return choir__missing(__func__, "model info");
    if (!data)
        return choir__missing(__func__, "dataset");
    if (!score)
        return choir__missing(__func__, "score");
    *score = (choir_score){NAN, NAN, NAN, NAN, NAN, 0, 0};
    choir_status status = check(info, data, &opts);
    if (status != CHOIR_OK)
        return status;
    choir_group *group = opts.group && choir_group_world(opts.group) > 1 ? opts.group : NULL;
    int64_t samples = choir_dataset_length(data);
    evaluation e = {.net = net,
        .info = info,
        .opts = &opts,
        .batches = {
            .data = data, .batch = choir__min(opts.batch_size, samples), .samples = samples}};
    if (opts.between) {
        e.batches.read = ask;
        e.batches.arg = &e;
    }
    int64_t forwards = take_share(&e, group, opts.max_batches), count = e.batches.count;
    e.sums = choir__calloc((size_t)count + 1, sizeof *e.sums);
    choir__tally_init(&e.tally, info);
    status = choir_device_sync(run->device);
    if (group && status == CHOIR_OK)
        choir_module_visit(net, true, sync_buffer, group);
    choir_module_train(net, false);
    if (status == CHOIR_OK)
        status = choir__batches_each(run, &e.batches, forwards, opts.workers, run_batch, &e);
    choir_module_train(net, true);
    status = end_batches(&e, group, rounds_of(count, group), status);
    if (group && status == CHOIR_OK)
        status = gather(group, e.sums, e.sums, count);
    if (group && status == CHOIR_OK)
        status = choir__tally_gather(&e.tally, group);
    score->samples = choir__min(samples, count * e.batches.batch);
    if (status == CHOIR_OK)
        choir__tally_score(&e.tally, info, e.sums, count, score, opts.per_class);
    choir__tally_free(&e.tally);
    free(e.sums);
    return status;
}
