/* Parts of the tests that train a small model: random data, steps that are recorded or not, the
 * micro-batches of a step, and bits and hashes by which two runs are compared. Each test has a
 * struct of its own for the options that it varies. */
#ifndef CHOIR_TESTS_JOB_FIXTURE_H
#define CHOIR_TESTS_JOB_FIXTURE_H

#include <choir/choir.h>

#include "base/hash.h"
#include "helpers.h"
#include "over_ucx.h"

/* --- what a job is made of --- */

static inline choir_device *cpu_device(int number)
{
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", number);
    return choir_device_find(name);
}

/* Builds the model that the text describes, and stores its description. */
static inline choir_module *build_model(
    choir_scope *run, const char *model, choir_model_info *info)
{
    choir_check(choir_model_describe(model, info));
    return choir_model_build(run, info);
}

/* Returns random samples of the shapes and classes that the model takes. */
static inline choir_dataset *random_data(
    const choir_model_info *info, int64_t samples, uint64_t seed)
{
    choir_dataset *data;
    bool regression = info->task == CHOIR_REGRESSION;
    if (info->task == CHOIR_LANGUAGE)
        choir_check(choir_dataset_random_tokens(
            samples, info->input.dim[0], info->classes, seed, &data));
    else
        choir_check(
            choir_dataset_random(samples, info->input, regression ? info->output : CHOIR_SCALAR,
                regression ? 0 : info->classes, seed, &data));
    return data;
}

/* Makes the loader of a rank's micro-batches [first, first + count). */
static inline choir_loader *rank_loader(choir_scope *run, choir_dataset *data, int64_t batch,
    int64_t microbatches, int64_t first, int64_t count)
{
    choir_loader_opts opts = choir_loader_defaults();
    opts.batch_size = batch;
    opts.microbatches = microbatches;
    opts.micro_first = first;
    opts.micro_count = count;
    opts.seed = 11;
    return choir_loader_new(run, data, opts);
}

/* Returns the loss of the loader's next batch, or NULL after an error. */
static inline choir_tensor *loss_of_next(
    choir_loader *loader, choir_scope *micro, choir_module *net, const choir_model_info *info)
{
    choir_batch b;
    if (choir_loader_next(loader, micro, &b) != CHOIR_OK)
        return NULL;
    return choir_model_loss(info, choir_forward(net, b.x), b.y);
}

/* AdamW whose steps are large enough that a few of them change every bit, with clipping. */
static inline choir_optim *clipped_adamw(choir_scope *run, choir_module *net)
{
    choir_adamw_opts hp = choir_adamw_defaults();
    hp.lr = 1e-2f;
    choir_optim *optim = choir_adamw(run, net, hp);
    choir_optim_clip(optim, 0.5f);
    return optim;
}

/* --- steps --- */

/* Runs a step, by choir_step or op by op, with the number that it then has. */
static inline choir_status run_step(
    choir_scope *run, bool recorded, int number, choir_step_fn *body, void *job)
{
    if (recorded)
        return choir_step(run, body, job);
    choir_scope *step = choir_step_open(run, (uint64_t)number);
    choir_status status = body(step, job), closed = choir_scope_close(step);
    return status == CHOIR_OK ? closed : status;
}

/* Micro-batches [first, first + count) of a step, on one device. */
typedef struct micro_batches {
    int64_t first, count;
    choir_micro_fn *loss; /* makes one micro-batch's loss */
    choir_module *net;
    void *job;             /* the last argument of `loss` */
    choir_tensor **losses; /* (count) output, in the run's memory */
    choir_module *pipe;    /* a pipeline that runs them; NULL: one after another */
} micro_batches;

/* Runs forward and backward of each micro-batch, until one fails. */
static inline choir_status run_micro_batches(choir_scope *step, micro_batches all)
{
    choir_status status = CHOIR_OK;
    if (all.pipe)
        return choir_pipeline_step(all.pipe, step, all.count, all.loss, all.job, all.losses);
    for (int64_t m = 0; m < all.count && status == CHOIR_OK; m++) {
        choir_scope *micro = choir_micro_open(step, all.first + m);
        choir_tensor *loss = all.loss(micro, all.net, all.job);
        status = choir_backward(loss);
        if (status == CHOIR_OK)
            all.losses[m] = choir_keep(all.net->run, loss);
        choir_status closed = choir_scope_close(micro);
        status = status == CHOIR_OK ? closed : status;
    }
    return status;
}

/* Runs the micro-batches and the update. */
static inline choir_status train_micro_batches(
    choir_scope *step, micro_batches all, choir_optim *optim)
{
    choir_status status = run_micro_batches(step, all);
    return status == CHOIR_OK ? choir_optim_step(optim) : status;
}

/* Returns the mean over all ranks' micro-batches, of which this one has `count`. Collective. */
static inline float mean_loss(choir_env *env, choir_tensor *const *losses, int64_t count)
{
    float mine[32] = {0}, mean;
    for (int64_t m = 0; m < count; m++)
        mine[m] = (float)choir_item(losses[m]);
    choir_check(choir_env_mean(env, mine, &mean));
    return mean;
}

/* --- results --- */

static inline uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint32_t item_bits(choir_tensor *t)
{
    return bits_of((float)choir_item(t));
}

/* A visitor: extends the hash by the tensor's values. */
static inline void hash_values(const char *name, choir_tensor *t, void *hash)
{
    size_t bytes = (size_t)choir_tensor_count(t) * choir_dtype_size(choir_tensor_dtype(t));
    unsigned char *data = malloc(bytes + 1);
    choir_check(choir_read(t, data, bytes));
    *(uint64_t *)hash = choir__hash_bytes(*(uint64_t *)hash, data, bytes);
    free(data);
}

/* A visitor: extends the hash by the tensor's name and values. */
static inline void hash_tensor(const char *name, choir_tensor *t, void *hash)
{
    *(uint64_t *)hash = choir__hash_text(*(uint64_t *)hash, name);
    hash_values(name, t, hash);
}

/* Returns a hash of the module's parameters and buffers, with their names. */
static inline uint64_t hash_of_module(choir_module *net)
{
    uint64_t hash = CHOIR__HASH_SEED;
    choir_module_visit(net, true, hash_tensor, &hash);
    return hash;
}

/* Returns a hash of the optimizer's state, with the names. */
static inline uint64_t hash_of_state(choir_optim *optim)
{
    uint64_t hash = CHOIR__HASH_SEED;
    choir_optim_visit(optim, hash_tensor, &hash);
    return hash;
}

/* --- ranks --- */

/* A rank of a data-parallel job, with its micro-batches and their losses. */
typedef struct rank_job {
    choir_env env;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    int64_t first, count;
    choir_tensor *losses[32];
} rank_job;

/* Joins the other ranks, and opens the run of a job that cuts its batch so often. */
static inline rank_job open_rank_job(int64_t microbatches, uint64_t seed)
{
    rank_job r = {0};
    choir_check(choir_env_init(&r.env));
    r.env.microbatches = microbatches;
    r.run = choir_run_open(&r.env, seed);
    choir_env_micro(&r.env, &r.first, &r.count);
    return r;
}

static inline int close_rank_job(rank_job *r)
{
    choir_check(choir_scope_close(r->run));
    choir_env_free(&r->env);
    return 0;
}

/* Runs the rank's micro-batches and the update; `job` is the last argument of `loss`. */
static inline choir_status train_rank(
    rank_job *r, choir_scope *step, choir_micro_fn *loss, void *job)
{
    return train_micro_batches(step,
        (micro_batches){r->first, r->count, loss, r->net, job, r->losses, NULL}, r->optim);
}

/* Runs a step, and returns the bits of its loss. Collective. */
static inline uint32_t step_of_rank(
    rank_job *r, bool recorded, int number, choir_step_fn *body, void *job)
{
    choir_check(run_step(r->run, recorded, number, body, job));
    return bits_of(mean_loss(&r->env, r->losses, r->count));
}

/* Trains on ranks that share *plan, whose results it has afterwards. */
static inline void train_on_ranks(int ranks, choir_spawn_fn *train, void *plan, size_t bytes)
{
    void *shared = shared_memory(bytes);
    memcpy(shared, plan, bytes);
    if (choir_spawn(ranks, train, shared) != CHOIR_OK)
        fail_msg("%d ranks: %s", ranks, choir_error_message());
    memcpy(plan, shared, bytes);
    munmap(shared, bytes);
}

/* Returns the FLOPs of all kernels in a trace. */
static inline double traced_flops(choir_trace *trace)
{
    int count;
    double sum = 0;
    const choir_trace_line *lines = choir_trace_profile(trace, &count);
    for (int i = 0; i < count; i++)
        sum += lines[i].flops;
    return sum;
}

#endif
