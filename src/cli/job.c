/* From options to parts: data, model, optimizer, and whether their sizes fit. */
#include "cli/job.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/options.h"
#include "checkpoint/checkpoint.h"
#include "cli/amp.h"
#include "cli/say.h"
#include "cli/self.h"
#include "cli/documents.h"
#include "cli/images.h"
#include "cli/text.h"
#include "tensor/tensor.h"

enum { RANDOM_SAMPLES = 1 << 16, RANDOM_BATCHES = 4 }; /* to train on; batches to validate on */

/* --- data --- */

static choir_status open_random(choir__job *j)
{
    choir__model_info *i = &j->info;
    choir_dataset **sets[2] = {&j->train, &j->validation};
    choir_status status = CHOIR_OK;
    for (int s = 0; s < 2 && status == CHOIR_OK; s++) {
        int64_t count = s ? RANDOM_BATCHES * j->batch_size : RANDOM_SAMPLES;
        if (i->task == CHOIR__LANGUAGE)
            status = choir_dataset_random_tokens(
                count, i->input.dim[0], i->classes, j->seed + (uint64_t)s, sets[s]);
        else if (i->vocab)
            status = choir_dataset_random_labelled(
                count, i->input.dim[0], i->vocab, i->classes, j->seed + (uint64_t)s, sets[s]);
        else
            status = choir_dataset_random(count, i->input,
                i->task == CHOIR__CLASSIFICATION ? CHOIR_SCALAR : i->output,
                i->task == CHOIR__REGRESSION ? 0 : i->classes, j->seed + (uint64_t)s, sets[s]);
    }
    return status;
}

static choir_status mask_data(choir__job *j)
{
    choir_status status = choir__text_mask(j->tokenizer, j->seed, &j->train);
    if (status == CHOIR_OK)
        status = choir__text_mask(j->tokenizer, j->seed, &j->validation);
    return status;
}

static choir_status open_text(choir__job *j, const char *path)
{
    choir_dataset **sets[2] = {&j->train, &j->validation};
    choir_status status = choir__text_tokenizer(j);
    for (int s = 0; s < 2 && status == CHOIR_OK; s++)
        status = choir__text_open(path, j->info.input.dim[0],
            s ? CHOIR_VALIDATION : CHOIR_TRAIN, &j->tokenizer, sets[s]);
    if (status == CHOIR_OK && j->info.masked)
        status = mask_data(j);
    if (status == CHOIR_OK)
        j->info.classes = choir__max(j->train->classes, j->validation->classes);
    return status;
}

static bool is_random(const choir__job *j)
{
    return j->data && !strcmp(j->data, "random");
}

static bool is_folder(const choir__job *j)
{
    struct stat s;
    return j->data && !is_random(j) && stat(j->data, &s) == 0 && S_ISDIR(s.st_mode);
}

choir_status choir__job_open_data(choir__job *j)
{
    bool language = j->info.task == CHOIR__LANGUAGE;
    if (is_random(j))
        return open_random(j);
    if (j->info.task == CHOIR__REGRESSION)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s trains on random data alone: choir train --model %s random",
            j->spec->name, j->model);
    if (language && is_folder(j))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s wants a text file, and %s is a folder", j->spec->name, j->data);
    if (!language && j->info.vocab)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s with classes wants tokens with a class each: there are 'random' ones alone",
            j->spec->name);
    if (j->info.task == CHOIR__IMAGE_TO_TEXT && is_folder(j))
        return choir__documents_open(j);
    if (!language && !is_folder(j))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "model %s wants a folder of %s or 'random', not %s", j->spec->name,
            j->info.task == CHOIR__IMAGE_TO_TEXT ? "images with a metadata.jsonl"
                                                 : "images (class folders or IDX files)",
            j->data ? j->data : "a text");
    if (!language)
        return choir__cli_open_pictures(j);
    const char *path = j->data ? j->data : choir__cli_own_text();
    return path ? open_text(j, path) : CHOIR_ERR_IO;
}

/* --- sizes --- */

static choir_status check_sizes(choir__job *j)
{
    const bool chosen = j->microbatches > 0;
    if (!chosen)
        j->microbatches = choir__cli_strategy_microbatches(j);
    int dealt = choir__cli_strategy_dealt(j);
    const char *to = j->composition.count > 1 ? "replicas" : "ranks";
    if (j->batch_size < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "a batch of %lld is smaller than %d %s; each needs a sample",
            (long long)j->batch_size, dealt, to);
    if (j->microbatches < dealt)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%lld micro-batches are fewer than %d %s; each needs one",
            (long long)j->microbatches, dealt, to);
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
    if (!j->steps && __builtin_mul_overflow(j->epochs, samples / j->batch_size, &j->steps))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--epochs %lld: expected fewer, as the number of steps overflows",
            (long long)j->epochs);
    return CHOIR_OK;
}

/* Makes the folder of --save before the first step, so that a folder that cannot be written is
 * not found out after the last one. */
static choir_status make_save_folder(const char *path)
{
    struct stat s;
    int why = ENOENT;
    char *part = choir__strdup(path);
    for (char *slash = part; *part && slash;) {
        if ((slash = strchr(slash + 1, '/')))
            *slash = '\0';
        why = mkdir(part, 0777) == 0 ? 0 : errno;
        if (slash)
            *slash = '/';
    }
    free(part);
    if (stat(path, &s) == 0)
        why = !S_ISDIR(s.st_mode) ? ENOTDIR : access(path, W_OK | X_OK) ? errno : 0;
    return why ? choir__error(
                     CHOIR_ERR_IO, "--save %s: cannot write there: %s", path, strerror(why))
               : CHOIR_OK;
}

static choir_status check_trace_file(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return choir__error(
            CHOIR_ERR_IO, "--trace %s: cannot write there: %s", path, strerror(errno));
    fclose(f);
    return CHOIR_OK;
}

/* Refuses a folder of --save that holds another run: a run is resumed, never overwritten. */
static choir_status check_save_folder(const choir__job *j)
{
    char old[PATH_MAX], resumed[PATH_MAX], folder[PATH_MAX];
    if (j->rank > 0 || choir__checkpoint_find(j->save, old) != CHOIR_OK)
        return CHOIR_OK;
    if (j->resume && choir__checkpoint_find(j->resume, resumed) == CHOIR_OK &&
        realpath(j->save, folder) && !strncmp(resumed, folder, strlen(folder)))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--save %s holds a run already: continue it by --resume %s, or choose another folder",
        j->save, j->save);
}

/* Takes from the checkpoint of --resume what the options leave open. */
static choir_status take_from_resumed(choir__job *j)
{
    char found[PATH_MAX];
    choir__train_state s;
    if (!j->resume || (j->model && j->microbatches && j->amp))
        return CHOIR_OK;
    choir_status status = choir__checkpoint_find(j->resume, found);
    if (status == CHOIR_OK)
        status = choir__checkpoint_state(found, &s);
    if (status != CHOIR_OK)
        return status;
    if (!j->model)
        j->model = strcpy(j->resumed_model, s.model);
    if (!j->microbatches)
        j->microbatches = s.microbatches;
    if (!j->amp && choir__amp_find(s.amp)) /* a name that stays */
        j->amp = choir__amp_find(s.amp)->name;
    return CHOIR_OK;
}

choir_status choir__job_prepare(choir__job *j)
{
    char text[512];
    choir_status status = take_from_resumed(j);
    if (status == CHOIR_OK && j->save)
        status = check_save_folder(j);
    if (status != CHOIR_OK)
        return status;
    if (!j->model)
        j->model = is_random(j)   ? "toy"
                   : is_folder(j) ? "cnn"
                                  : "gpt2:layers=4,heads=4,width=128,context=64";
    status = choir__model_find(j->model, &j->spec);
    j->info.random = is_random(j);
    /* Images say what a sample is before a classifier is described; a text needs the context
     * first. */
    choir__model_info own = {0};
    if (status == CHOIR_OK && is_folder(j))
        status = j->spec->describe(j->model, &own);
    if (status == CHOIR_OK && is_folder(j) && own.task == CHOIR__CLASSIFICATION && !own.vocab)
        status = choir__cli_open_pictures(j);
    if (status == CHOIR_OK)
        status = j->spec->describe(j->model, &j->info);
    if (status == CHOIR_OK && !j->train) {
        if (!is_random(j))
            j->info.classes = 0;
        status = choir__job_open_data(j);
        snprintf(text, sizeof text, "%s", j->model);
        if (status == CHOIR_OK)
            status = j->spec->describe(text, &j->info);
    }
    if (status == CHOIR_OK)
        status = choir__job_check_optimizer(j);
    if (status == CHOIR_OK)
        status = check_sizes(j);
    if (status == CHOIR_OK && j->trace)
        status = check_trace_file(j->trace);
    return status == CHOIR_OK && j->save ? make_save_folder(j->save) : status;
}

void choir__job_free(choir__job *j)
{
    choir_dataset_free(j->train);
    choir_dataset_free(j->validation);
    choir_tokenizer_free(j->tokenizer);
    choir__composition_free(&j->composition);
}
