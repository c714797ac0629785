/* Prepares a job from its options: opens data and model, lets --strategy auto choose, and
 * checks that the sizes fit. */
#include "job/job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "data/text/corpus.h"
#include "job/edit.h"
#include "job/model/text.h"
#include "job/trainer/eval_policy.h"

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

/* Takes how images are read from the files beside a published model. */
static choir_status known_images(
    const choir__job *j, const choir_model_info *wanted, choir_image_opts *images)
{
    char *notes = NULL;
    *images = choir_image_defaults();
    if (wanted->task != CHOIR_CLASSIFICATION || wanted->vocab)
        return CHOIR_OK;
    choir_status status = choir_image_published(j->model.beside, images, &notes);
    if (notes && j->ranks.rank == 0)
        choir__job_tell_notes(j, notes);
    free(notes);
    return status;
}

/* Opens the data for the model, and describes the model for the data. */
static choir_status open_data(choir__job *j)
{
    choir_model_info wanted = {.random = is_random(&j->data)};
    choir_data_opts opts = choir_data_defaults();
    choir_image_opts images;
    choir_data data;
    choir_status status = choir_model_describe(j->model.name, &wanted);
    bool tokens =
        wanted.task == CHOIR_LANGUAGE || wanted.task == CHOIR_IMAGE_TO_TEXT || wanted.vocab;
    if (status == CHOIR_OK && tokens && !wanted.random)
        status = choir__text_tokenizer(j, &opts.tokenizer);
    else if (status == CHOIR_OK && !tokens && !choir__job_is_stream(&j->data) &&
             (j->model.tokenizer_file || j->model.bytes))
        status = choir__error(CHOIR_ERR_ARGUMENT, "--%s: %s reads no texts",
            j->model.bytes ? "bytes" : "tokenizer", j->model.name);
    if (status != CHOIR_OK)
        return status;
    if (choir__job_is_stream(&j->data)) {
        j->model.info = wanted;
        return open_stream(j, opts.tokenizer);
    }
    opts.needs_tokenizer = j->model.weights && !choir__text_is_chars(j->model.tokenizer_file);
    opts.seed = j->training.seed;
    opts.random_train = choir__max(opts.random_train, j->training.batch_size);
    opts.random_valid = RANDOM_BATCHES * j->training.batch_size;
    opts.classes = &j->model.classes;
    opts.augment = j->data.augment;
    opts.balance = j->data.balance;
    opts.pack = j->data.pack;
    opts.held_out = j->data.val_split;
    opts.columns = j->data.columns;
    opts.images = &images;
    status = known_classes(j);
    if (status == CHOIR_OK)
        status = known_images(j, &wanted, &images);
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
    if (choir_task_has_classes(j->model.info.task) && !j->model.classes.count)
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

/* --- the job --- */

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
