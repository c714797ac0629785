/* Out of memory: find the largest micro-batch that fits, by trying. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <choir/autograd.h>

#include "job/trainer/trainer.h"
#include "base/base.h"

typedef struct trial {
    const choir__job *job;
    choir_scope *run;
    choir_module *net;
    choir_optim *optim;
    int64_t micro_count, n;
    int64_t context; /* 0, or another length of a text's samples than the data's */
} trial;

static choir_tensor *zeros(
    const trial *t, choir_scope *s, choir_dtype dtype, choir_shape sample)
{
    choir_shape shape = {.ndim = sample.ndim + 1, .dim = {t->n}};
    memcpy(&shape.dim[1], sample.dim, (size_t)sample.ndim * sizeof sample.dim[0]);
    if (t->context)
        shape.dim[sample.ndim] = t->context;
    return choir_zeros(s, dtype, shape);
}

static choir_batch batch_of(const trial *t, choir_scope *scope)
{
    const choir_dataset *d = t->job->data.train;
    return (choir_batch){.x = zeros(t, scope, d->x_dtype, d->x_shape),
        .y = zeros(t, scope, d->y_dtype, d->y_shape)};
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
static choir_status try_length(
    const choir__job *j, choir_device *device, int64_t micro_count, int64_t n, int64_t context)
{
    choir_scope *run = choir_scope_open(device, j->training.seed);
    trial t = {.job = j, .run = run, .micro_count = micro_count, .n = n, .context = context};
    t.net = choir_model_build(run, &j->model.info);
    choir_status status = choir_scope_status(run);
    if (status == CHOIR_OK)
        status = choir__job_freeze(j, t.net);
    if (status == CHOIR_OK && j->optim.recompute)
        choir_module_recompute_blocks(t.net, true);
    if (status == CHOIR_OK)
        status = choir__job_optimizer(j, run, t.net, &t.optim);
    if (status == CHOIR_OK &&
        choir__job_strategy_dealt(&j->placement) > 1) /* for its buckets */
        choir_zeros(run, CHOIR_F32, choir_dims(choir_module_param_count(t.net)));
    if (status == CHOIR_OK)
        status = choir_scope_status(run);
    if (status == CHOIR_OK)
        status = try_steps(run, &t);
    (void)!choir_scope_close(run);
    choir_error_message(); /* an error is an answer here: it counts as read */
    return status;
}

static choir_status try_size(
    const choir__job *j, choir_device *device, int64_t micro_count, int64_t n)
{
    return try_length(j, device, micro_count, n, 0);
}

static bool fits(const choir__job *j, choir_device *device, int64_t micro_count, int64_t n)
{
    return try_size(j, device, micro_count, n) == CHOIR_OK;
}

/* Stores the job with samples of `context` tokens; false: its model has no such length. */
static bool with_context(const choir__job *j, int64_t context, choir__job *shorter)
{
    choir_model_info info = {.classes = j->model.info.classes, .random = j->model.info.random};
    char *text = choir__format("%s%ccontext=%lld", j->model.info.config,
        strchr(j->model.info.config, ':') ? ',' : ':', (long long)context);
    bool can = choir_model_describe(text, &info) == CHOIR_OK;
    free(text);
    info.padded |= j->model.info.padded;
    *shorter = *j;
    shorter->model.info = info;
    return can;
}

/* Returns the largest context, of the job's halves, with which a step fits; 0: none, or the
 * model reads no texts. */
static int64_t context_for(const choir__job *j, choir_device *device, int64_t micro_count)
{
    enum { LEAST = 16 };
    choir__job *shorter = choir__alloc(sizeof *shorter);
    int64_t n = j->training.batch_size / j->training.microbatches,
            context = j->model.info.task == CHOIR_LANGUAGE ? j->model.info.input.dim[0] / 2 : 0;
    while (context >= LEAST &&
           !(with_context(j, context, shorter) &&
               try_length(shorter, device, micro_count, n, context) == CHOIR_OK))
        context /= 2;
    free(shorter);
    choir_error_message(); /* errors were answers */
    return context >= LEAST ? context : 0;
}

/* Returns the option --model of a job, with a context. */
static char *model_option(const choir__job_model *m, int64_t context)
{
    const char *name = m->given ? m->given : m->name;
    char *path = choir_model_path(name);
    const size_t length = strlen(path); /* options follow the path or the name */
    const char *had = strstr(name + length, "context=");
    const int kept = (int)(had ? (size_t)(had - name) : strlen(name));
    const char *end = had ? had + strcspn(had, ",") : "";
    char *option = choir__format("--model %.*s%scontext=%lld%s", kept, name,
        had            ? ""
        : name[length] ? ","
                       : ":",
        (long long)context, end);
    free(path);
    return option;
}

/* Returns the type in which the frozen weights of a job with adapters fit, or NULL. */
static const char *base_for(const choir__job *j, choir_device *device, int64_t micro_count)
{
    static const char *const types[] = {"q8_0", "q4_0"};
    const char *found = NULL;
    choir__job *held = choir__alloc(sizeof *held);
    *held = *j;
    for (size_t i = 0; j->optim.lora && !j->optim.base && !found && i < CHOIR_COUNT(types);
         i++) {
        held->optim.base = types[i];
        if (fits(held, device, micro_count, j->training.batch_size / j->training.microbatches))
            found = types[i];
    }
    free(held);
    return found;
}

/* Says what would fit where no micro-batch does. first: what did not. */
static choir_status too_large(
    const choir__job *j, choir_device *device, int64_t micro_count, const char *first)
{
    const char *base = base_for(j, device, micro_count);
    int64_t context = base ? 0 : context_for(j, device, micro_count);
    char *option = base      ? choir__format("--base %s", base)
                   : context ? model_option(&j->model, context)
                             : choir__strdup("a smaller model");
    choir__error(CHOIR_ERR_MEMORY,
        "%s; not even a micro-batch of one sample fits: %s or a larger --mem-cap would", first,
        option);
    free(option);
    return CHOIR_ERR_MEMORY;
}

/* Returns the smallest number of micro-batches that divides the batch and with which a whole
 * step fits, or 0. More micro-batches also mean more partial sums of gradients. */
static int64_t cut_for(const choir__job *j, choir_device *device, int64_t most)
{
    for (int64_t m = j->training.microbatches + 1; m <= j->training.batch_size; m++) {
        int64_t n = j->training.batch_size / m,
                dealt = choir__job_strategy_dealt(&j->placement),
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
        return too_large(j, device, micro_count > 0 ? micro_count : 1, first);
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
