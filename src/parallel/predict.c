/* Prediction: the probabilities of a classifier's classes, or the numbers of a regression, for
 * each sample of a dataset, whose targets say which of a sample's rows are asked for. */
#include <choir/evaluate.h>

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/floats.h"
#include "nn/module.h"
#include "parallel/batches.h"
#include "tensor/handle.h"
#include "tensor/scope.h"

typedef struct prediction {
    choir_module *net;
    const choir_model_info *info;
    choir__batches batches;
    choir_predict_fn *fn;
    void *arg;
} prediction;

/* Moves the rows that are asked for to the front: probabilities (rows, classes) and targets
 * (rows). Returns how many there are. */
static int64_t select_rows(
    float *probabilities, int64_t *targets, int64_t rows, int64_t classes)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (targets[i] == CHOIR_IGNORED)
            continue;
        targets[kept] = targets[i];
        memmove(probabilities + kept * classes, probabilities + i * classes,
            (size_t)classes * sizeof *probabilities);
        kept++;
    }
    return kept;
}

/* Returns the probabilities of a model's scores, or a regression's numbers, f32. */
static choir_tensor *answers(const choir_model_info *info, choir_tensor *scores)
{
    choir_tensor *x = choir_cast(scores, CHOIR_F32);
    return info->task == CHOIR_CLASSIFICATION ? choir_softmax(x)
           : info->task == CHOIR_MULTI_LABEL  ? choir_sigmoid(x)
                                              : x;
}

static choir_status run_batch(void *arg, choir_scope *step, const choir__read_batch *b)
{
    const prediction *p = arg;
    int64_t classes = p->info->classes, rows = choir_tensor_count(b->y) / b->n;
    int64_t first = b->position * p->batches.batch;
    choir_tensor *out = choir_model_forward(p->info, p->net, b->x, b->y);
    choir_tensor *shares = answers(p->info, out); /* (n, rows.., classes) */
    if (choir_scope_status(step) == CHOIR_OK &&
        choir_tensor_count(shares) != b->n * rows * classes)
        return choir__error(CHOIR_ERR_SHAPE,
            "predict: expected scores of %lld classes for each of %lld targets, got %s",
            (long long)classes, (long long)(b->n * rows),
            choir__shape_text(choir_tensor_shape(shares)));
    size_t bytes = (size_t)(b->n * rows * classes) * sizeof(float);
    float *all = choir__alloc(bytes + 1);
    int64_t *targets = choir__alloc((size_t)(b->n * rows + 1) * sizeof *targets);
    memcpy(targets, b->targets, (size_t)(b->n * rows) * sizeof *targets);
    choir_status status = choir_read(shares, all, bytes);
    for (int64_t i = 0; i < b->n && status == CHOIR_OK; i++) {
        float *mine = all + i * rows * classes;
        int64_t kept = select_rows(mine, targets + i * rows, rows, classes);
        status = p->fn(p->arg, first + i, kept, targets + i * rows, mine);
    }
    free(targets);
    free(all);
    return status;
}

choir_status choir_predict(choir_scope *run, choir_module *net, const choir_model_info *info,
    choir_dataset *data, choir_eval_opts opts, choir_predict_fn *fn, void *arg)
{
    CHOIR__DEFAULT_FLOATS;
    choir_status use = choir__use_scope(run, __func__);
    if (use == CHOIR_OK)
        use = choir__use_module(net, __func__);
    if (use != CHOIR_OK)
        return use;
    if (!info || !data || !fn)
        return choir__missing(__func__, !info ? "model info" : data ? "function" : "dataset");
    if (!choir_task_has_classes(info->task) && !(info->task == CHOIR_REGRESSION && info->vocab))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "predict: expected a classifier, got %s, which has no classes", info->config);
    if (opts.batch_size < 1 || opts.workers < 1 || data->y_dtype != CHOIR_I64)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "predict: expected a dataset with class ids, batches of 1 or more and 1 worker or "
            "more; begin with choir_eval_defaults()");
    int64_t samples = choir_dataset_length(data);
    if (samples < 1)
        return choir__error(CHOIR_ERR_ARGUMENT, "predict: the dataset has no samples");
    int64_t batch = choir__min(opts.batch_size, samples);
    int64_t count = (samples + batch - 1) / batch;
    if (opts.max_batches && opts.max_batches < count)
        count = opts.max_batches;
    prediction p = {.net = net,
        .info = info,
        .batches = {.data = data, .batch = batch, .samples = samples, .count = count},
        .fn = fn,
        .arg = arg};
    choir_module_train(net, false);
    choir_status status =
        choir__batches_each(run, &p.batches, count, opts.workers, run_batch, &p);
    choir_module_train(net, true);
    return status;
}
