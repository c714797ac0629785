/* Published files on the command line: --model FOLDER or config.json, --weights FILE.
 *
 *     --model FOLDER/config.json   the model, with new weights
 *     --model FOLDER:key=value     the same, with other options: classes=3 replaces the head
 *     --model FOLDER               the model, and its weights if the folder has them, under any
 * name
 *     --model FILE.gguf            the model, its weights and its tokenizer
 *     --weights FOLDER or FILE     those weights; the model is the one of the config.json
 * beside them, if none is named */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/files/file.h"
#include "job/job.h"
#include "checkpoint/gguf/import.h"
#include "data/beside.h"
#include "job/model/lora.h"
#include "job/model/unpacked.h"

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

/* Returns the path of the config.json in a folder or next to a file, or of a GGUF file, or
 * NULL. The caller frees it. */
static char *config_beside(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (choir__is_gguf_file(path))
        return choir__strdup(path);
    char *config = is_folder(path) ? choir__format("%s/config.json", path)
                                   : choir__format("%.*sconfig.json",
                                         slash ? (int)(slash + 1 - path) : 0, path);
    if (access(config, F_OK) == 0)
        return config;
    free(config);
    return NULL;
}

static choir_status take_config(choir__job *j, const char *path)
{
    char *text = NULL, *notes = NULL;
    choir_status status = choir_model_read_config(path, &text, &notes);
    if (status != CHOIR_OK)
        return status;
    if (j->ranks.rank == 0)
        choir__job_tell_read(j, notes);
    snprintf(j->model.published_model, sizeof j->model.published_model, "%s", text);
    j->model.name = j->model.published_model;
    free(notes);
    free(text);
    return CHOIR_OK;
}

/* Reads the files that are copied into the job's checkpoints: next to the checkpoint that it
 * resumes (others report a missing one), or in a folder or next to a file; NULL: none. */
static choir_status read_beside(choir__job *j, const char *path)
{
    char found[PATH_MAX];
    if (j->saves.resume)
        path = choir_training_find(j->saves.resume, found) == CHOIR_OK ? found : NULL;
    if (!path)
        return CHOIR_OK;
    if (choir__is_gguf_file(path))
        return choir__unpack_beside(path, &j->model.beside);
    const char *slash = strrchr(path, '/');
    char *folder = is_folder(path) ? choir__strdup(path)
                   : slash         ? choir__format("%.*s", (int)(slash - path), path)
                                   : choir__strdup(".");
    choir_status status = choir__beside_read(folder, is_folder(path), &j->model.beside);
    const char *name = slash ? slash + 1 : path;
    if (status == CHOIR_OK && !is_folder(path) && strcmp(name, CHOIR__BESIDE_MODEL) != 0)
        choir__beside_drop(j->model.beside, CHOIR__BESIDE_MODEL); /* another model's */
    free(folder);
    return status;
}

/* Chooses the weights of the folder to start from, or prints the note that it has none. */
static void take_weights(choir__job *j, const char *folder)
{
    char *note = choir_model_weights_note(folder);
    if (!note)
        j->model.weights = folder;
    else if (j->ranks.rank == 0)
        choir__job_tell_notes(j, note);
    free(note);
}

/* The folder says which layers have adapters; --lora may say the same. */
static choir_status read_adapter(choir__job *j)
{
    choir__adapter_file file;
    choir__lora_words words;
    char *given = NULL;
    choir_status status = choir__adapter_read(j->model.adapter, &file);
    if (status == CHOIR_OK && j->optim.lora)
        status = choir__lora_read(j->optim.lora, &words);
    if (status == CHOIR_OK && j->optim.lora)
        given = choir__lora_text(&words);
    free(j->model.adapter_lora);
    j->model.adapter_lora = NULL;
    if (status == CHOIR_OK)
        status = choir__lora_of_adapter(j->model.adapter, &file, &j->model.adapter_lora);
    if (status == CHOIR_OK && given && strcmp(given, j->model.adapter_lora) != 0)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "--adapter %s has %s, where --lora says %s: leave out --lora", j->model.adapter,
            j->model.adapter_lora, given);
    if (status == CHOIR_OK && !j->model.name && !j->model.weights)
        status = choir__error(CHOIR_ERR_ARGUMENT, "--adapter %s: missing --model, its base%s%s",
            j->model.adapter, file.base ? ", which it calls " : "", file.base ? file.base : "");
    j->optim.lora = j->model.adapter_lora;
    free(given);
    choir__adapter_free(&file);
    return status;
}

choir_status choir__job_published(choir__job *j)
{
    choir_status status = j->model.adapter && !j->saves.resume ? read_adapter(j) : CHOIR_OK;
    if (status != CHOIR_OK)
        return status;
    if (j->model.name)
        j->model.head = choir_model_head(j->model.name);
    if (j->model.name && choir_model_is_path(j->model.name)) {
        j->model.given = j->model.name;
        char *path = choir_model_path(j->model.name);
        snprintf(j->model.published_path, sizeof j->model.published_path, "%s", path);
        free(path);
        status = take_config(j, j->model.name);
        if (status == CHOIR_OK)
            status = read_beside(j, j->model.published_path);
        if (status == CHOIR_OK && is_folder(j->model.published_path)) {
            j->model.published = j->model.published_path;
            if (!j->model.weights && !j->saves.resume)
                take_weights(j, j->model.published);
        } else if (choir__is_gguf_file(j->model.published_path) && !j->model.weights &&
                   !j->saves.resume) {
            j->model.weights = j->model.published_path;
        }
    } else if (!j->model.name && j->model.weights) {
        if (choir__is_hub_name(j->model.weights))
            return choir__file_absent(j->model.weights, CHOIR__HUB_MODEL);
        char *config = config_beside(j->model.weights);
        if (!config)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "--weights %s: missing config.json beside it; give --model, the model that "
                "they are of",
                j->model.weights);
        status = take_config(j, config);
        if (status == CHOIR_OK)
            status = read_beside(j, is_folder(j->model.weights) ? j->model.weights : config);
        if (is_folder(j->model.weights))
            j->model.published = j->model.weights;
        free(config);
    } else {
        status = read_beside(j, NULL);
    }
    return status == CHOIR_OK && j->model.weights && !j->saves.resume
               ? choir_model_check_weights(j->model.weights)
               : status;
}

choir_status choir__job_load_weights(const choir__job *j, choir_module *net, int rank)
{
    const choir__job_model *m = &j->model;
    char *notes = NULL;
    choir_status status = choir_model_load_weights(net, &m->info, m->weights, m->head, &notes);
    if (status == CHOIR_OK && rank == 0)
        choir__job_tell_read(j, notes);
    free(notes);
    return status;
}
