/* Prepares a job from its options: opens data and model, and checks that their sizes fit. */
#include "job/job.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/files/file.h"
#include "base/options.h"
#include "job/edit.h"
#include "job/model/amp.h"
#include "job/trainer/eval_policy.h"
#include "line/say.h"
#include "job/model/text.h"
#include "data/text/corpus.h"

enum { RANDOM_BATCHES = 4 }; /* batches of random data for validation */

/* --- data --- */

static bool is_random(const choir__job_data *d)
{
    return d->path && !strcmp(d->path, "random");
}

static bool is_folder(const choir__job_data *d)
{
    struct stat s;
    return d->path && !is_random(d) && stat(d->path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool choir__job_is_stream(const choir__job_data *d)
{
    return d->path && !strcmp(d->path, "-");
}

static bool is_tar(const choir__job_data *d)
{
    size_t length = d->path ? strlen(d->path) : 0;
    return length > 4 && !strcmp(d->path + length - 4, ".tar");
}

/* Returns whether the data are images: a tar, or a folder without documents. */
static bool has_images(const choir__job_data *d)
{
    return is_tar(d) || (is_folder(d) && !choir_data_has_documents(d->path));
}

/* Takes the names of the classes from the checkpoint that is resumed, or from the published
 * model whose head is trained on. */
static choir_status known_classes(choir__job *j)
{
    if (j->saves.resumed)
        return choir__classes_of_record(j->saves.resumed, &j->model.classes);
    return j->model.published && j->model.head != CHOIR_HEAD_REPLACED
               ? choir_model_class_names(j->model.published, &j->model.classes)
               : CHOIR_OK;
}

/* Opens standard input. The first samples are for validation. */
static choir_status open_stream(choir__job *j, choir_tokenizer *tokenizer)
{
    choir_stream_opts opts = choir_stream_defaults();
    j->model.tokenizer = tokenizer;
    if (j->model.info.task != CHOIR_LANGUAGE || j->model.info.masked)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "standard input is for models that predict the next token, got %s",
            j->model.info.config);
    if (!tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "standard input cannot be searched for its characters: name --tokenizer FILE, or "
            "--bytes");
    opts.context = j->model.info.input.dim[0];
    opts.batch_size = j->training.batch_size;
    opts.validation = RANDOM_BATCHES * j->training.batch_size;
    opts.columns = j->data.columns;
    const bool fixed = j->model.weights != NULL; /* which belong to the tokens */
    choir_status status = choir__gpu_stream_open(
        STDIN_FILENO, "standard input", &j->model.tokenizer, fixed, &opts, &j->data.stream);
    if (status != CHOIR_OK)
        return status;
    j->data.train = choir_stream_data(j->data.stream);
    j->data.validation = choir_stream_validation(j->data.stream);
    j->model.info = (choir_model_info){.classes = j->data.train->classes};
    status = choir_model_describe(j->model.name, &j->model.info);
    j->model.info.padded |= choir_dataset_ignores(j->data.train);
    return status;
}

/* Opens the data for the model, and describes the model for the data. */
static choir_status open_data(choir__job *j)
{
    choir_model_info wanted = {.random = is_random(&j->data)};
    choir_data_opts opts = choir_data_defaults();
    choir_data data;
    choir_status status = choir_model_describe(j->model.name, &wanted);
    bool tokens = wanted.task == CHOIR_LANGUAGE || wanted.task == CHOIR_IMAGE_TO_TEXT ||
                  (wanted.task == CHOIR_CLASSIFICATION && wanted.vocab);
    if (status == CHOIR_OK && tokens && !wanted.random)
        status = choir__text_tokenizer(j, &opts.tokenizer);
    if (status != CHOIR_OK)
        return status;
    if (choir__job_is_stream(&j->data)) {
        j->model.info = wanted;
        return open_stream(j, opts.tokenizer);
    }
    opts.needs_tokenizer = j->model.weights && !choir__text_is_chars(j->model.tokenizer_file);
    opts.seed = j->training.seed;
    opts.random_valid = RANDOM_BATCHES * j->training.batch_size;
    opts.classes = &j->model.classes;
    opts.augment = j->data.augment;
    opts.pack = j->data.pack;
    opts.held_out = j->data.val_split;
    opts.columns = j->data.columns;
    status = known_classes(j);
    if (status != CHOIR_OK)
        choir_tokenizer_free(opts.tokenizer);
    else
        status = choir_model_data(j->model.name, j->data.path, opts, &j->model.info, &data);
    if (status != CHOIR_OK)
        return status;
    j->data.train = data.train;
    j->data.validation = data.validation;
    j->model.tokenizer = data.tokenizer;
    if (j->data.val_split > 0 && !j->data.validation->held_out)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--val-split %g: %s has a validation split of its own", j->data.val_split,
            j->data.path);
    if (j->model.info.task == CHOIR_CLASSIFICATION && !j->model.classes.count)
        choir_dataset_class_names(j->data.train, j->model.info.classes, &j->model.classes);
    return CHOIR_OK;
}

/* Weighs the samples for --balance. */
static choir_status balance(choir__job *j)
{
    if (!j->data.balance)
        return CHOIR_OK;
    if (j->model.info.task != CHOIR_CLASSIFICATION || j->model.info.output.ndim)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--balance: expected a model that gives each sample a class, got %s",
            j->model.info.config);
    int64_t length = choir_dataset_length(j->data.train);
    j->data.weights_of_samples =
        choir__calloc((size_t)length, sizeof *j->data.weights_of_samples);
    return choir_dataset_class_weights(j->data.train, j->data.weights_of_samples);
}

/* --- sizes --- */

choir_status choir__job_check_sizes(choir__job *j)
{
    const bool chosen = j->training.microbatches > 0;
    if (!chosen)
        j->training.microbatches = choir__cli_strategy_microbatches(j);
    choir__composition_settle(
        &j->placement.composition, NULL, j->placement.nproc, j->training.microbatches);
    choir_status status = choir__cli_strategy_check_chunks(j);
    if (status == CHOIR_OK)
        status = choir__cli_strategy_settle_slices(j);
    if (status != CHOIR_OK)
        return status;
    int dealt = choir__cli_strategy_dealt(j);
    bool declared = chosen || j->placement.composition.dims[0].declares;
    int64_t units = choir__cli_strategy_units(j);
    if (j->placement.max_restarts && choir__cli_strategy_recovery(j) < CHOIR__REBUILT_AS_MANY &&
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
            chosen ? "" : ", or another --microbatches");
    status = choir__cli_strategy_check_workers(j, dealt);
    if (status != CHOIR_OK)
        return status;
    int64_t samples = choir_dataset_length(j->data.train);
    if (samples < j->training.batch_size)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the data has %lld samples to train on, fewer than a batch of %lld",
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

static choir_status check_trace_file(const char *path)
{
    FILE *f = choir__file_try_output(path);
    if (!f)
        return choir__error(
            CHOIR_ERR_IO, "--trace %s: cannot write there: %s", path, choir__file_why(errno));
    fclose(f);
    return CHOIR_OK;
}

choir_status choir__job_prepare(choir__job *j)
{
    choir_status status = j->records.print_job ? CHOIR_OK : choir__job_check_folders(j);
    if (status == CHOIR_OK && !j->records.print_job)
        status = choir__job_check_logs(j);
    if (status != CHOIR_OK)
        return status;
    if (!j->model.name)
        j->model.name = is_random(&j->data)    ? "toy"
                        : has_images(&j->data) ? "cnn"
                                               : "gpt2:layers=4,heads=4,width=128,context=64";
    status = open_data(j);
    if (status == CHOIR_OK)
        status = balance(j);
    if (status == CHOIR_OK)
        status = choir__job_check_optimizer(j);
    if (status == CHOIR_OK)
        status = choir__eval_policy_check_task(j);
    if (status == CHOIR_OK)
        status = choir__job_auto_end(j);
    if (status == CHOIR_OK)
        status = choir__job_check_sizes(j);
    if (status == CHOIR_OK)
        status = choir__job_check_skips_end(j);
    if (status == CHOIR_OK)
        status = choir__job_note(j);
    if (status == CHOIR_OK)
        choir__job_notes(j);
    if (j->records.print_job || j->training.summary)
        return status;
    if (status == CHOIR_OK && j->records.trace)
        status = check_trace_file(j->records.trace);
    if (status == CHOIR_OK && j->data.stream)
        status = choir_stream_start(j->data.stream, j->placement.nproc);
    return status == CHOIR_OK ? choir__job_take_folders(j) : status;
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
