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
    if (status != CHOIR_OK)
        return status;
    int dealt = choir__job_strategy_dealt(&j->placement);
    bool declared = chosen || j->placement.composition.dims[0].declares;
    int64_t units = choir__job_strategy_units(j);
    if (j->ranks.max_restarts && choir__job_strategy_recovery(j) < CHOIR__REBUILT_AS_MANY &&
        declared && dealt > units)
        dealt = (int)units; /* the other ranks are spares */
    const char *to = j->placement.composition.count > 1 ? "replicas" : "ranks";
    if (j->training.batch_size < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld is smaller than %d %s; each needs a sample",
            (long long)j->training.batch_size, dealt, to);
    if (j->training.microbatches < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld micro-batch%s fewer than %d %s; each needs one",
            (long long)j->training.microbatches,
            j->training.microbatches == 1 ? " is" : "es are", dealt, to);
    if (j->training.batch_size % j->training.microbatches)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld does not divide into %lld micro-batches; %lld would%s",
            (long long)j->training.batch_size, (long long)j->training.microbatches,
            (long long)((j->training.batch_size / j->training.microbatches + 1) *
                        j->training.microbatches),
            chosen ? "" : ", or another --microbatches (by default one per rank)");
    status = choir__job_strategy_check_workers(j, dealt);
    if (status != CHOIR_OK)
        return status;
    int64_t samples = choir_dataset_length(j->data.train);
    if (samples < j->training.batch_size)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the data has %lld samples to train on, fewer than a batch of %lld: choose a smaller "
            "--batch-size",
            (long long)samples, (long long)j->training.batch_size);
    if (!j->training.steps && !j->training.epochs)
        j->training.steps = 1000;
    if (!j->training.steps && __builtin_mul_overflow(j->training.epochs,
                                  choir__job_epoch_steps(j), &j->training.steps))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--epochs %lld: expected fewer, as the number of steps overflows",
            (long long)j->training.epochs);
    j->training.epoch_steps = samples / j->training.batch_size;
    if (j->training.eval_epochs && __builtin_mul_overflow(j->training.eval_epochs,
                                       j->training.epoch_steps, &j->training.eval_every))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--eval-epochs %lld: expected fewer, as the number of steps overflows",
            (long long)j->training.eval_epochs);
    return CHOIR_OK;
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
