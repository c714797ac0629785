/* Checks that a job's sizes fit together (ranks, micro-batches, batch, steps), and frees a
 * job. */
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

bool choir__job_is_stream(const choir__job_data *d)
{
    return d->path && !strcmp(d->path, "-");
}

/* Returns the number of replicas, or ranks, that share a batch; other ranks are spares. */
static int sharers(const choir__job *j, bool chosen)
{
    int dealt = choir__job_strategy_dealt(&j->placement);
    int64_t units = choir__job_strategy_units(j);
    bool declared = chosen || j->placement.composition.dims[0].declares;
    bool spares = j->ranks.max_restarts && declared &&
                  choir__job_strategy_recovery(j) < CHOIR__REBUILT_AS_MANY;
    return spares ? (int)choir__min((int64_t)dealt, units) : dealt;
}

/* Checks that the batch divides into its micro-batches, and has one for each of `dealt`. */
static choir_status check_batch(const choir__job *j, int dealt, bool chosen)
{
    const char *to = j->placement.composition.count > 1 ? "replicas" : "ranks";
    const long long batch = j->training.batch_size, micro = j->training.microbatches;
    if (batch < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld is smaller than %d %s; each needs a sample", batch, dealt, to);
    if (micro < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld micro-batch%s fewer than %d %s; each needs one", micro,
            micro == 1 ? " is" : "es are", dealt, to);
    if (batch % micro)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld does not divide into %lld micro-batches; %lld would%s", batch,
            micro, (batch / micro + 1) * micro,
            chosen ? "" : ", or another --microbatches (by default one per rank)");
    return choir__job_strategy_check_workers(j, dealt);
}

/* Settles the numbers of steps, in all, in an epoch, and from one validation to the next. */
static choir_status settle_steps(const choir__job *j, choir__job_training *t)
{
    int64_t samples = choir_dataset_length(j->data.train);
    if (samples < t->batch_size)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the data has %lld samples to train on, fewer than a batch of %lld: choose a smaller "
            "--batch-size",
            (long long)samples, (long long)t->batch_size);
    if (!t->steps && !t->epochs)
        t->steps = 1000;
    if (!t->steps && __builtin_mul_overflow(t->epochs, choir__job_epoch_steps(j), &t->steps))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--epochs %lld: expected fewer, as the number of steps overflows",
            (long long)t->epochs);
    t->epoch_steps = samples / t->batch_size;
    if (t->eval_epochs &&
        __builtin_mul_overflow(t->eval_epochs, t->epoch_steps, &t->eval_every))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--eval-epochs %lld: expected fewer, as the number of steps overflows",
            (long long)t->eval_epochs);
    return CHOIR_OK;
}

choir_status choir__job_check_sizes(choir__job *j)
{
    const bool chosen = j->training.microbatches > 0;
    if (!chosen)
        j->training.microbatches = choir__job_strategy_microbatches(&j->placement);
    choir__composition_settle(
        &j->placement.composition, NULL, j->placement.nproc, j->training.microbatches);
    choir_status status = choir__job_strategy_check_chunks(j);
    if (status == CHOIR_OK)
        status = choir__job_strategy_settle_slices(j);
    if (status == CHOIR_OK)
        status = check_batch(j, sharers(j, chosen), chosen);
    return status == CHOIR_OK ? settle_steps(j, &j->training) : status;
}

int64_t choir__job_epoch_steps(const choir__job *j)
{
    return choir__max(choir_dataset_length(j->data.train) / j->training.batch_size, 1);
}

void choir__job_free(choir__job *j)
{
    if (!j->data.stream) {
        choir_dataset_free(j->data.train);
        choir_dataset_free(j->data.validation);
    }
    choir_stream_free(j->data.stream);
    choir_tokenizer_free(j->model.tokenizer);
    choir_class_names_free(&j->model.classes);
    choir_beside_free(j->model.beside);
    free(j->model.adapter_lora);
    choir__composition_free(&j->placement.composition);
    free(j->placement.choice);
    free(j->data.weights_of_samples);
    free(j->data.skips);
    json_decref(j->saves.resumed);
    json_decref(j->document.file);
    free(j->records.logs);
    free(j->saves.notes);
    free(j->saves.rewound);
    free(j->saves.record);
}
