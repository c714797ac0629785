/* Chooses the tokenizer of a language model's data. A resumed job has its checkpoint's, since
 * the weights belong to its ids; else the options decide, and then the published model or the
 * weights' folder, if it has one. */
#include "job/model/text.h"

#include <choir/training.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "checkpoint/gguf/import.h"
#include "checkpoint/weights/beside_files.h"
#include "job/model/unpacked.h"

/* Reads the tokenizer in a folder of weights, in their file or next to it, if any. */
static choir_status load_beside(const char *weights, choir_tokenizer **tokenizer)
{
    struct stat s;
    const char *slash = strrchr(weights, '/');
    if (choir__is_gguf_file(weights))
        return choir__unpack_tokenizer(weights, tokenizer);
    bool is_folder = stat(weights, &s) == 0 && S_ISDIR(s.st_mode);
    char *folder = is_folder ? choir__strdup(weights)
                             : choir__format("%.*s", slash ? (int)(slash - weights) : 1,
                                   slash ? weights : ".");
    char latest[PATH_MAX]; /* latest of a training's checkpoints */
    const char *found =
        choir_tokenizer_exists(folder) ? folder
        : choir_training_find(folder, latest) == CHOIR_OK && choir_tokenizer_exists(latest)
            ? latest
            : NULL;
    choir_status status = found ? choir_tokenizer_load(found, tokenizer) : CHOIR_OK;
    free(folder);
    return status;
}

bool choir__text_is_chars(const char *name)
{
    return name && !strcmp(name, "chars");
}

/* Reads the tokenizer that the options name. */
static choir_status load(const choir__job *j, choir_tokenizer **tokenizer)
{
    if (j->saves.resumed) { /* the weights belong to the ids of the checkpoint's tokenizer */
        choir_status status = choir_training_tokenizer(j->saves.resume, tokenizer);
        if (status != CHOIR_OK || *tokenizer)
            return status;
    }
    if (choir__text_is_chars(j->model.tokenizer_file))
        return CHOIR_OK;
    if (j->model.tokenizer_file)
        return choir_tokenizer_load(j->model.tokenizer_file, tokenizer);
    if (j->model.bytes)
        return choir_tokenizer_bytes(tokenizer);
    if (j->saves.resume)
        return choir_training_tokenizer(j->saves.resume, tokenizer);
    if (j->model.published && choir_tokenizer_exists(j->model.published))
        return choir_tokenizer_load(j->model.published, tokenizer);
    return j->model.weights ? load_beside(j->model.weights, tokenizer) : CHOIR_OK;
}

choir_status choir__text_tokenizer(const choir__job *j, choir_tokenizer **tokenizer)
{
    *tokenizer = NULL;
    choir_status status = load(j, tokenizer);
    if (status == CHOIR_OK)
        choir__beside_lend(*tokenizer, j->model.beside);
    return status;
}
