/* dp and dp-balanced: one process, the model on each device, the batch distributed over them.
 *
 * dp gathers the outputs on one device and computes the criterion there, on each micro-batch's
 * slice, so that this device holds the scores of the whole vocabulary. dp-balanced computes the
 * criterion on the devices that have the outputs. A piece of the batch is a micro-batch, so
 * both give the bits of one device. */
#include "job/strategy/strategy.h"

#include <stdio.h>
#include <stdlib.h>

#include <choir/autograd.h>
#include <choir/data_parallel.h>

#include "job/job.h"

typedef struct dp_keys {
    char output_device[64]; /* "": the first */
    int64_t dim;
} dp_keys;

#define AT(member) CHOIR__LINE_AT(dp_keys, member)

static const choir__line_option keys[] = {
    {"output_device", CHOIR__WORD, AT(output_device), .argument = "cpu:0",
        .recorded = CHOIR__RECORDED_FREE},
    {"dim", CHOIR__INT, AT(dim), 0, CHOIR_MAX_DIMS - 1, .preset = "0",
        .recorded = CHOIR__RECORDED_FREE},
    {NULL},
};

static choir_status check(void *own)
{
    const dp_keys *k = own;
    if (k->dim)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "dim=%lld: expected 0, as every model here has its batch in dimension 0",
            (long long)k->dim);
    return *k->output_device && !choir_device_find(k->output_device) ? CHOIR_ERR_DEVICE
                                                                     : CHOIR_OK;
}

static choir_data_parallel_opts options_of(choir__job_rank *p)
{
    const dp_keys *k = p->at->keys;
    choir_data_parallel_opts opts = choir_data_parallel_defaults();
    opts.devices = p->devices;
    opts.device_count = p->device_count;
    opts.pieces = p->job->training.microbatches;
    if (*k->output_device)
        opts.output_device = choir_device_find(k->output_device);
    return opts;
}

static choir_status build(choir__job_rank *p)
{
    choir_data_parallel_opts opts = options_of(p);
    p->model = choir_data_parallel(p->run, p->model, opts);
    choir__job_rank_add_device(p, opts.output_device);
    return CHOIR_OK; /* errors stick to the run */
}

static choir_status build_balanced(choir__job_rank *p)
{
    choir_data_parallel_opts opts = options_of(p);
    p->model = choir_data_parallel_balanced(p->run, p->model, opts);
    choir__job_rank_add_device(p, opts.output_device);
    return CHOIR_OK;
}

/* Concatenates the micro-batches to the global batch. */
static choir_status whole_batch(choir_scope *step, choir__job_rank *p, choir_batch *whole)
{
    choir_status status = choir__job_rank_begin(p, step);
    size_t n = (size_t)p->micro_count;
    choir_tensor **x = choir__alloc(2 * n * sizeof(choir_tensor *)), **y = x + n;
    for (size_t m = 0; m < n && status == CHOIR_OK; m++) {
        choir_batch b;
        status = choir__job_rank_next(p, step, &b);
        x[m] = b.x;
        y[m] = b.y;
    }
    if (status == CHOIR_OK)
        *whole = (choir_batch){
            .x = n > 1 ? choir_cat(x, (int)n, 0) : x[0],
            .y = n > 1 ? choir_cat(y, (int)n, 0) : y[0],
        };
    free(x);
    return status;
}

/* Computes a micro-batch's loss on the device of its output. */
static choir_tensor *criterion(choir_tensor *out, choir_tensor *y, void *part)
{
    const choir__job_rank *p = part;
    choir_tensor *divisor = p->divisor ? choir_to(p->divisor, choir_tensor_device(out)) : NULL;
    return choir_model_loss_over(&p->job->model.info, out, y, divisor);
}

/* Computes the criterion on each micro-batch's slice of the gathered output: (M) losses. */
static choir_tensor *losses_of(choir__job_rank *p, choir_tensor *out, choir_tensor *y)
{
    int64_t count = p->micro_count, rows = choir_tensor_size(out, 0) / count;
    choir_tensor **losses = choir__alloc((size_t)count * sizeof(choir_tensor *));
    for (int64_t m = 0; m < count; m++) {
        choir_tensor *loss = criterion(
            choir_narrow(out, 0, m * rows, rows), choir_narrow(y, 0, m * rows, rows), p);
        losses[m] = choir_reshape(loss, choir_dims(1));
    }
    choir_tensor *all = choir_cat(losses, (int)count, 0);
    free(losses);
    return all;
}

static choir_status finish(choir__job_rank *p, choir_tensor *losses)
{
    losses = choir__job_rank_scaled(p, losses);
    choir_status status = choir_backward(losses);
    p->losses[0] = choir_keep(p->run, losses);
    p->loss_count = 1;
    return status;
}

static choir_status step_gathered(choir_scope *step, choir__job_rank *p)
{
    choir_batch b;
    choir_status status = whole_batch(step, p, &b);
    if (status != CHOIR_OK)
        return status;
    choir_tensor *out = choir_model_forward(&p->job->model.info, p->model, b.x, b.y);
    return finish(p, losses_of(p, out, choir_to(b.y, choir_tensor_device(out))));
}

static choir_status step_balanced(choir_scope *step, choir__job_rank *p)
{
    choir_tensor *in[CHOIR_MODEL_INPUTS];
    choir_batch b;
    choir_status status = whole_batch(step, p, &b);
    if (status != CHOIR_OK)
        return status;
    int count = choir_model_inputs(&p->job->model.info, b.x, b.y, in);
    choir_shards *out = choir_forward_shards(p->model, in, count);
    return finish(p, choir_criterion_parallel(out, b.y, criterion, p));
}

const choir__job_strategy choir__job_strategy_dp = {
    .name = "dp",
    .help = "the batch distributed to all devices, outputs gathered on one",
    .family = CHOIR__DATA_PARALLEL,
    .spread = CHOIR__ALL_DEVICES,
    .keys = keys,
    .keys_bytes = sizeof(dp_keys),
    .check = check,
    .micro_each = 1,
    .build = build,
    .step = step_gathered,
};

const choir__job_strategy choir__job_strategy_dp_balanced = {
    .name = "dp-balanced",
    .help = "as dp, but the loss is computed where the outputs are",
    .family = CHOIR__DATA_PARALLEL,
    .spread = CHOIR__ALL_DEVICES,
    .keys = keys,
    .keys_bytes = sizeof(dp_keys),
    .check = check,
    .micro_each = 1,
    .build = build_balanced,
    .step = step_balanced,
};
