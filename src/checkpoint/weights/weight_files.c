/* Finds the files of a folder that hold its weights, by a list of name patterns in the order of
 * preference. A folder without them gets a sentence about the files it has: pickled programs,
 * other formats, and names that do not say that they are the model. */
#include "checkpoint/weights/weight_files.h"

#include <dirent.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/folder.h"
#include "checkpoint/state.h"

#define INDEX_FILE CHOIR__MODEL_FILE ".index.json"
#define PARTS      "shard-*-model-*.safetensors"

/* The names of weights that are read, in the order of preference. Several files may match only
 * the parts. */
static const char *const readable[] = {CHOIR__MODEL_FILE, INDEX_FILE,
    CHOIR__MODEL_FILE ".index.*.json", "model.*.safetensors", PARTS};

/* The names of weights of any kind, in either case. */
static const struct {
    const char *pattern, *why;
} weights[] = {
    {"*.safetensors", "has a name that does not say that it is the model"},
    {"*.safetensors.index*.json", "has a name that does not say that it is the model"},
    {"*.safetensor", "has a name that does not say that it is the model"},
    {"pytorch_model*.bin", "is a pickled program and not read: save it as safetensors"},
    {"adapter_model.bin", "is a pickled program and not read: save it as safetensors"},
    {"model*.bin", "is not read: save it as safetensors"},
    {"*weights*.bin", "is not read: save it as safetensors"},
    {"pytorch_model*.bin.index*.json", "lists pickled programs, which are not read: save them "
                                       "as safetensors"},
    {"*.pt", "is a pickled program and not read: save it as safetensors"},
    {"*.pth", "is a pickled program and not read: save it as safetensors"},
    {"*.ckpt*", "is not read: save it as safetensors"},
    {"*.distcp", "is a part of a pickled checkpoint and not read: save it as safetensors"},
    {"*.gguf", "is not read: save it as safetensors"},
    {"*model*.h5", "is TensorFlow's and not read: save it as safetensors"},
    {"*weights*.h5", "is TensorFlow's and not read: save it as safetensors"},
    {"flax_model*.msgpack", "is Flax's and not read: save it as safetensors"},
    {"*model*.npz", "is NumPy's and not read: save it as safetensors"},
    {"*weights*.npz", "is NumPy's and not read: save it as safetensors"},
    {"*.onnx", "is not read: save it as safetensors"},
};

/* --- lists of files --- */

void choir__weight_files_add(choir__weight_files *found, char *path)
{
    CHOIR__GROW(found->files, found->count);
    found->files[found->count++] = path;
}

void choir__weight_files_free(choir__weight_files *found)
{
    for (int i = 0; i < found->count; i++)
        free(found->files[i]);
    free(found->files);
    free(found->path);
    *found = (choir__weight_files){0};
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name); /* as bytes, in every locale */
}

/* Calls each for the names in a folder that match the pattern (fnmatch with the flags), in
 * order, and returns their number. */
static int match(const char *folder, const char *pattern, int flags,
    void (*each)(const char *folder, const char *name, void *arg), void *arg)
{
    struct dirent **entry = NULL;
    int matching = 0, count = scandir(folder, &entry, NULL, by_name);
    for (int i = 0; i < count; i++) {
        if (fnmatch(pattern, entry[i]->d_name, FNM_PERIOD | flags) == 0) {
            matching++;
            if (each)
                each(folder, entry[i]->d_name, arg);
        }
        free(entry[i]);
    }
    free(entry);
    return matching;
}

static void add(const char *folder, const char *name, void *found)
{
    choir__weight_files_add(found, choir__format("%s/%s", folder, name));
}

void choir__weight_files_match(
    choir__weight_files *found, const char *beside, const char *pattern)
{
    const char *slash = strrchr(beside, '/');
    char *folder =
        slash ? choir__format("%.*s", (int)(slash - beside), beside) : choir__strdup(".");
    match(folder, pattern, 0, add, found);
    free(folder);
}

/* --- folders --- */

bool choir__weights_present(const char *folder)
{
    for (size_t i = 0; i < CHOIR_COUNT(weights); i++)
        if (match(folder, weights[i].pattern, FNM_CASEFOLD, NULL, NULL))
            return true;
    return false;
}

static void keep_first(const char *folder, const char *name, void *kept)
{
    (void)folder;
    if (!*(char **)kept)
        *(char **)kept = choir__strdup(name);
}

/* Reports that a folder has no weights that are read, and why not those that it has. */
static choir_status none(const char *folder)
{
    char *name = NULL;
    const char *why = "";
    for (size_t i = 0; i < CHOIR_COUNT(weights) && !name; i++) {
        match(folder, weights[i].pattern, FNM_CASEFOLD, keep_first, &name);
        why = weights[i].why;
    }
    choir_status status = choir__error(CHOIR_ERR_IO,
        "%s: the folder has neither " CHOIR__MODEL_FILE " nor " INDEX_FILE "%s%s%s%s", folder,
        name ? "; " : "", name ? name : "", name ? " " : "", name ? why : "");
    free(name);
    return status;
}

static choir_status find_in(const char *folder, choir__weight_files *found)
{
    for (size_t i = 0; i < CHOIR_COUNT(readable); i++) {
        const char *pattern = readable[i];
        int count = match(folder, pattern, 0, add, found);
        if (!count)
            continue;
        if (count > 1 && strcmp(pattern, PARTS) != 0)
            return choir__error(CHOIR_ERR_IO,
                "%s: the folder has weights in several variants, among them %s and %s: name one "
                "of these files",
                folder, found->files[0], found->files[1]);
        found->path = choir__strdup(count == 1 ? found->files[0] : folder);
        return CHOIR_OK;
    }
    return none(folder);
}

static bool is_index(const char *path)
{
    size_t length = strlen(path), end = strlen(".json");
    return length > end && !strcmp(path + length - end, ".json");
}

choir_status choir__weight_files_find(const char *path, choir__weight_files *found)
{
    choir_status status = CHOIR_OK;
    *found = (choir__weight_files){0};
    char *latest = choir__format("%s/latest", path); /* latest of a training's checkpoints */
    char unnamed[PATH_MAX];
    if (choir__is_folder(path)) {
        const char *in = choir__weights_present(path)           ? path
                         : choir__is_folder(latest)             ? latest
                         : choir__folder_unnamed(path, unnamed) ? unnamed
                                                                : path;
        status = find_in(in, found);
    } else {
        found->path = choir__strdup(path);
        choir__weight_files_add(found, choir__strdup(path));
    }
    free(latest);
    if (status == CHOIR_OK && found->count == 1 && is_index(found->path))
        free(found->files[--found->count]);
    if (status != CHOIR_OK)
        choir__weight_files_free(found);
    return status;
}
