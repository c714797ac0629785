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
#include "job/model/amp.h"
#include "job/trainer/judge.h"
#include "line/say.h"
#include "job/model/text.h"
#include "data/text/corpus.h"

enum { RANDOM_BATCHES = 4 }; /* of random data, to validate on */

/* --- data --- */

static bool is_random(const choir__job *j)
{
    return j->data && !strcmp(j->data, "random");
}

static bool is_folder(const choir__job *j)
{
    struct stat s;
    return j->data && !is_random(j) && stat(j->data, &s) == 0 && S_ISDIR(s.st_mode);
}

bool choir__job_is_stream(const choir__job *j)
{
    return j->data && !strcmp(j->data, "-");
}

static bool is_tar(const choir__job *j)
{
    size_t length = j->data ? strlen(j->data) : 0;
    return length > 4 && !strcmp(j->data + length - 4, ".tar");
}

/* Returns whether the data are images: a tar, or a folder without documents. */
static bool has_images(const choir__job *j)
{
    return is_tar(j) || (is_folder(j) && !choir_data_has_documents(j->data));
}

/* Takes the names of the classes from the checkpoint that is resumed, or from the published
 * model whose head is trained on. */
static choir_status known_classes(choir__job *j)
{
    if (j->resumed)
        return choir__classes_of_record(j->resumed, &j->classes);
    return j->published && j->head != CHOIR_HEAD_REPLACED
               ? choir_model_class_names(j->published, &j->classes)
               : CHOIR_OK;
}

/* Opens standard input. The first samples are for validation. */
static choir_status open_stream(choir__job *j, choir_tokenizer *tokenizer)
{
    choir_stream_opts opts = choir_stream_defaults();
    j->tokenizer = tokenizer;
    if (j->info.task != CHOIR_LANGUAGE || j->info.masked)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "standard input is for models that predict the next token, got %s", j->info.config);
    if (!tokenizer)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "standard input cannot be searched for its characters: name --tokenizer FILE, or "
            "--bytes");
    opts.context = j->info.input.dim[0];
    opts.batch_size = j->batch_size;
    opts.validation = RANDOM_BATCHES * j->batch_size;
    const bool fixed = j->weights != NULL; /* which belong to the tokens */
    choir_status status = choir__stream_open(
        STDIN_FILENO, "standard input", &j->tokenizer, fixed, &opts, &j->stream);
    if (status != CHOIR_OK)
        return status;
    j->train = choir_stream_data(j->stream);
    j->validation = choir_stream_validation(j->stream);
    j->info = (choir_model_info){.classes = j->train->classes};
    status = choir_model_describe(j->model, &j->info);
    j->info.padded |= choir_dataset_ignores(j->train);
    return status;
}

/* Opens the data for the model, and describes the model for the data. */
static choir_status open_data(choir__job *j)
{
    choir_model_info wanted = {.random = is_random(j)};
    choir_data_opts opts = choir_data_defaults();
    choir_data data;
    choir_status status = choir_model_describe(j->model, &wanted);
    bool tokens = wanted.task == CHOIR_LANGUAGE || wanted.task == CHOIR_IMAGE_TO_TEXT ||
                  (wanted.task == CHOIR_CLASSIFICATION && wanted.vocab);
    if (status == CHOIR_OK && tokens && !wanted.random)
        status = choir__text_tokenizer(j, &opts.tokenizer);
    if (status != CHOIR_OK)
        return status;
    if (choir__job_is_stream(j)) {
        j->info = wanted;
        return open_stream(j, opts.tokenizer);
    }
    opts.needs_tokenizer = j->weights && !choir__text_is_chars(j->tokenizer_file);
    opts.seed = j->seed;
    opts.random_valid = RANDOM_BATCHES * j->batch_size;
    opts.classes = &j->classes;
    opts.augment = j->augment;
    opts.pack = j->pack;
    opts.held_out = j->val_split;
    status = known_classes(j);
    if (status != CHOIR_OK)
        choir_tokenizer_free(opts.tokenizer);
    else
        status = choir_model_data(j->model, j->data, opts, &j->info, &data);
    if (status != CHOIR_OK)
        return status;
    j->train = data.train;
    j->validation = data.validation;
    j->tokenizer = data.tokenizer;
    if (j->val_split > 0 && !j->validation->held_out)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--val-split %g: %s has a validation split of its own", j->val_split, j->data);
    if (j->info.task == CHOIR_CLASSIFICATION && !j->classes.count)
        choir_dataset_class_names(j->train, j->info.classes, &j->classes);
    return CHOIR_OK;
}

/* Weighs the samples for --balance. */
static choir_status balance(choir__job *j)
{
    if (!j->balance)
        return CHOIR_OK;
    if (j->info.task != CHOIR_CLASSIFICATION || j->info.output.ndim)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--balance: expected a model that gives each sample a class, got %s",
            j->info.config);
    int64_t length = choir_dataset_length(j->train);
    j->weights_of_samples = choir__calloc((size_t)length, sizeof *j->weights_of_samples);
    return choir_dataset_class_weights(j->train, j->weights_of_samples);
}

/* --- sizes --- */

static choir_status check_sizes(choir__job *j)
{
    const bool chosen = j->microbatches > 0;
    if (!chosen)
        j->microbatches = choir__cli_strategy_microbatches(j);
    int dealt = choir__cli_strategy_dealt(j);
    if (j->max_restarts && choir__cli_strategy_recovery(j) < CHOIR__REBUILT_AS_MANY && chosen &&
        dealt > j->microbatches)
        dealt = (int)j->microbatches; /* the other ranks are spares */
    const char *to = j->composition.count > 1 ? "replicas" : "ranks";
    if (j->batch_size < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld is smaller than %d %s; each needs a sample",
            (long long)j->batch_size, dealt, to);
    if (j->microbatches < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld micro-batch%s fewer than %d %s; each needs one", (long long)j->microbatches,
            j->microbatches == 1 ? " is" : "es are", dealt, to);
    if (j->batch_size % j->microbatches)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld does not divide into %lld micro-batches; %lld would%s",
            (long long)j->batch_size, (long long)j->microbatches,
            (long long)((j->batch_size / j->microbatches + 1) * j->microbatches),
            chosen ? "" : ", or another --microbatches");
    int64_t samples = choir_dataset_length(j->train);
    if (samples < j->batch_size)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the data has %lld samples to train on, fewer than a batch of %lld",
            (long long)samples, (long long)j->batch_size);
    if (!j->steps && !j->epochs)
        j->steps = 1000;
    if (!j->steps && __builtin_mul_overflow(j->epochs, choir__job_epoch_steps(j), &j->steps))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--epochs %lld: expected fewer, as the number of steps overflows",
            (long long)j->epochs);
    j->epoch_steps = samples / j->batch_size;
    if (j->eval_epochs &&
        __builtin_mul_overflow(j->eval_epochs, j->epoch_steps, &j->eval_every))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--eval-epochs %lld: expected fewer, as the number of steps overflows",
            (long long)j->eval_epochs);
    return CHOIR_OK;
}

int64_t choir__job_epoch_steps(const choir__job *j)
{
    return choir__max(choir_dataset_length(j->train) / j->batch_size, 1);
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
    choir_status status = j->print_job ? CHOIR_OK : choir__job_check_folders(j);
    if (status == CHOIR_OK && !j->print_job)
        status = choir__job_check_logs(j);
    if (status != CHOIR_OK)
        return status;
    if (!j->model)
        j->model = is_random(j)    ? "toy"
                   : has_images(j) ? "cnn"
                                   : "gpt2:layers=4,heads=4,width=128,context=64";
    status = open_data(j);
    if (status == CHOIR_OK)
        status = balance(j);
    if (status == CHOIR_OK)
        status = choir__job_check_optimizer(j);
    if (status == CHOIR_OK)
        status = choir__judge_check_task(j);
    if (status == CHOIR_OK)
        status = choir__job_auto_end(j);
    if (status == CHOIR_OK)
        status = check_sizes(j);
    if (status == CHOIR_OK)
        status = choir__job_note(j);
    if (status == CHOIR_OK)
        choir__job_notes(j);
    if (j->print_job || j->summary)
        return status;
    if (status == CHOIR_OK && j->trace)
        status = check_trace_file(j->trace);
    if (status == CHOIR_OK && j->stream)
        status = choir_stream_start(j->stream, j->nproc);
    return status == CHOIR_OK ? choir__job_take_folders(j) : status;
}

void choir__job_free(choir__job *j)
{
    if (!j->stream) {
        choir_dataset_free(j->train);
        choir_dataset_free(j->validation);
    }
    choir_stream_free(j->stream);
    choir_tokenizer_free(j->tokenizer);
    choir_class_names_free(&j->classes);
    choir_beside_free(j->beside);
    choir__composition_free(&j->composition);
    free(j->weights_of_samples);
    json_decref(j->resumed);
    json_decref(j->file);
    free(j->logs);
    free(j->notes);
    free(j->record);
}
