/* Out of memory: find the largest micro-batch that fits, by trying. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/autograd.h>

#include "job/trainer/trainer.h"
#include "base/base.h"

static choir_tensor *zeros(choir_scope *s, choir_dtype dtype, choir_shape sample, int64_t n)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {n}};
    memcpy(&shape.dim[1], sample.dim, (size_t)sample.ndim * sizeof sample.dim[0]);
    return choir_zeros(s, dtype, shape);
}

typedef struct trial {
    const choir__job *job;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    int64_t micro_count, n;
} trial;

static choir_batch batch_of(const trial *t, choir_scope *scope)
{
    const choir_dataset *d = t->job->data.train;
    return (choir_batch){.x = zeros(scope, d->x_dtype, d->x_shape, t->n),
        .y = zeros(scope, d->y_dtype, d->y_shape, t->n)};
}

static choir_tensor *trial_loss(const trial *t, choir_scope *scope, choir_tensor **out)
{
    choir_batch b = batch_of(t, scope);
    *out = choir_model_forward(&t->job->model.info, t->net, b.x, b.y);
    return choir_model_loss(&t->job->model.info, *out, b.y);
}

static choir_status trial_step(choir_scope *step, void *arg)
{
    trial *t = arg;
    choir_status status = CHOIR_OK;
    bool ahead = choir_model_ignores(&t->job->model.info); /* all batches are read first */
    for (int64_t m = 1; m < t->micro_count && ahead; m++)
        batch_of(t, step);
    for (int64_t m = 0; m < t->micro_count && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, m);
        choir_tensor *out, *loss = trial_loss(t, micro, &out);
        status = choir_backward(loss);
        choir_keep(t->run, loss);
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    return status == CHOIR_OK ? choir_optim_step(t->optim) : status;
}

/* Runs steps like training until one is recorded, then an evaluation while the recording
 * exists. */
static choir_status try_steps(choir_scope *run, trial *t)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < 3 && status == CHOIR_OK; i++) {
        status = choir_step(run, trial_step, t);
        if (status == CHOIR_OK)
            status = choir_device_sync(choir_scope_device(run));
    }
    if (status != CHOIR_OK)
        return status;
    choir_scope *step = choir_no_grad(run);
    choir_tensor *out;
    trial_loss(t, step, &out);
    if (choir_task_has_ids(t->job->model.info.task))
        choir_argmax(out);
    status = choir_scope_status(step);
    choir_status closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

/* Tries micro-batches of n samples on a separate run. */
static choir_status try_size(
    const choir__job *j, choir_device *device, int64_t micro_count, int64_t n)
{
    choir_scope *run = choir_scope_open(device, j->training.seed);
    trial t = {.job = j, .run = run, .micro_count = micro_count, .n = n};
    t.net = choir_model_build(run, &j->model.info);
    choir_status status = choir_scope_status(run);
    if (status == CHOIR_OK)
        status = choir__job_freeze(j, t.net);
    if (status == CHOIR_OK && j->optim.recompute)
        choir_module_recompute_blocks(t.net, true);
    if (status == CHOIR_OK)
        status = choir__job_optimizer(j, run, t.net, &t.optim);
    if (status == CHOIR_OK && choir__cli_strategy_dealt(j) > 1) /* for its buckets */
        choir_zeros(run, CHOIR_F32, choir_dims(choir_module_param_count(t.net)));
    if (status == CHOIR_OK)
        status = choir_scope_status(run);
    if (status == CHOIR_OK)
        status = try_steps(run, &t);
    (void)!choir_scope_close(run);
    choir_error_message(); /* an error is an answer here: it counts as read */
    return status;
}

static bool fits(const choir__job *j, choir_device *device, int64_t micro_count, int64_t n)
{
    return try_size(j, device, micro_count, n) == CHOIR_OK;
}

/* Returns the smallest number of micro-batches that divides the batch and with which a whole
 * step fits, or 0. More micro-batches also mean more partial sums of gradients. */
static int64_t cut_for(const choir__job *j, choir_device *device, int64_t most)
{
    for (int64_t m = j->training.microbatches + 1; m <= j->training.batch_size; m++) {
        int64_t n = j->training.batch_size / m, dealt = choir__cli_strategy_dealt(j),
                a_rank = (m + dealt - 1) / dealt;
        if (j->training.batch_size % m == 0 && n <= most && fits(j, device, a_rank, n))
            return m;
    }
    return 0;
}

choir_status choir__explain_memory(
    const choir__job *j, choir_device *device, int64_t micro_count)
{
    char first[512];
    int64_t asked = j->training.batch_size / j->training.microbatches, low = 0, high = asked;
    snprintf(first, sizeof first, "%s", choir_error_message());
    /* If a step fits by itself, or fails otherwise, then the device's memory is not what lacks,
     * but descriptors, shared memory, or room on a disk. */
    if (try_size(j, device, micro_count > 0 ? micro_count : 1, asked) != CHOIR_ERR_MEMORY)
        return choir__error(CHOIR_ERR_MEMORY, "%s", first);
    while (high - low > 1) { /* low fits, high does not */
        int64_t middle = low + (high - low) / 2;
        if (fits(j, device, micro_count > 0 ? micro_count : 1, middle))
            low = middle;
        else
            high = middle;
    }
    if (low == 0)
        return choir__error(CHOIR_ERR_MEMORY,
            "%s; not even a micro-batch of one sample fits: a smaller model or a larger --mem-cap "
            "would",
            first);
    int64_t cut = cut_for(j, device, low);
    char *advice =
        cut ? choir__format("--microbatches %lld", (long long)cut)
            : choir__format("--batch-size %lld", (long long)(low * j->training.microbatches));
    choir__error(CHOIR_ERR_MEMORY,
        "%s; the largest micro-batch that fits is %lld sample%s, this one has %lld: %s would do",
        first, (long long)low, low > 1 ? "s" : "", (long long)asked, advice);
    free(advice);
    return CHOIR_ERR_MEMORY;
}
