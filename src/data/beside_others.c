/* Names of files beside a model's weights that have no fixed names: chat templates, and files
 * that Choir does not know.
 *
 *     published folder                          checkpoint
 *     additional_chat_templates/NAME.jinja      additional_chat_templates/NAME.jinja
 *     LICENSE, merges.txt, ...                  beside/LICENSE, beside/merges.txt, ...
 */
#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "data/beside.h"

/* Files that are weights, or about the folder as it was. */
static const char *const left_out[] = {"*.safetensors", "*.index.json", "*.index.*.json",
    "*.safetensor", "*.bin", "*.pt", "*.pth", "*.ckpt*", "*.distcp", "*.h5", "*.msgpack",
    "*.ot", "*.tflite", "*.npz", "*.pkl", "*.onnx", "*.gguf", "README.md",
    "adapter_config.json", ".*"};

/* Files that checkpoints have under these names: a tokenizer in two forms, state and job. */
static const char *const own[] = {
    CHOIR__TOKENIZER_FILE, CHOIR__OWN_TOKENIZER_FILE, CHOIR__STATE_FILE, CHOIR__JOB_FILE};

static const char *const of_tokens[] = {
    "*token*", "*vocab*", "*merges*", "*bpe*", "*spiece*", "*tekken*", "*.model"};

static bool matches(const char *name, const char *const *patterns, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return true;
    return false;
}

bool choir__beside_goes_through(const char *name)
{
    return !matches(name, left_out, CHOIR_COUNT(left_out));
}

bool choir__beside_is_of_tokens(const char *name)
{
    return matches(name, of_tokens, CHOIR_COUNT(of_tokens));
}

/* Returns the name in a folder of others, or NULL: the file is not in it. */
static const char *name_in(const char *folder, const char *name)
{
    const size_t n = strlen(folder);
    const char *rest = !strncmp(name, folder, n) && name[n] == '/' ? name + n + 1 : NULL;
    return rest && *rest && *rest != '.' && !strchr(rest, '/') ? rest : NULL;
}

bool choir__beside_is_other(const char *name)
{
    const char *template = name_in(CHOIR__BESIDE_OTHERS, name);
    const size_t n = strlen(name), end = strlen(CHOIR__BESIDE_END);
    return name_in(CHOIR__BESIDE_UNKNOWN, name) ||
           (template && strlen(template) > end && !strcmp(name + n - end, CHOIR__BESIDE_END));
}

const char *choir__beside_published_name(const char *name)
{
    const char *unknown = name_in(CHOIR__BESIDE_UNKNOWN, name);
    return unknown ? unknown : name;
}

/* --- lists --- */

typedef struct list {
    char **names;
    int count;
} list;

/* Adds a regular file's name, which it takes over. `wanted` false: it is freed. */
static void add(list *l, const char *folder, char *name, bool wanted)
{
    struct stat info;
    char *path = choir__format("%s/%s", folder, name);
    if (wanted && stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
        CHOIR__GROW(l->names, l->count);
        l->names[l->count++] = name;
    } else {
        free(name);
    }
    free(path);
}

static char **end_of(list *l)
{
    if (!l->count)
        return NULL;
    CHOIR__GROW(l->names, l->count);
    l->names[l->count] = NULL;
    return l->names;
}

/* Adds the other files in one of the two folders. */
static void add_folder(list *l, const char *folder, const char *inner)
{
    struct dirent **entry = NULL;
    char *path = choir__format("%s/%s", folder, inner);
    const int all = scandir(path, &entry, NULL, alphasort);
    for (int i = 0; i < all; i++) {
        char *name = choir__format("%s/%s", inner, entry[i]->d_name);
        add(l, folder, name, choir__beside_is_other(name));
        free(entry[i]);
    }
    free(entry);
    free(path);
}

char **choir__beside_list_others(const char *folder)
{
    list l = {0};
    add_folder(&l, folder, CHOIR__BESIDE_OTHERS);
    add_folder(&l, folder, CHOIR__BESIDE_UNKNOWN);
    return end_of(&l);
}

static bool is_unknown(const char *name, const char *const *known_names)
{
    bool known = matches(name, own, CHOIR_COUNT(own)) || !choir__beside_goes_through(name);
    for (int i = 0; known_names[i]; i++)
        known |= !strcmp(name, known_names[i]);
    return !known;
}

char **choir__beside_list_unknown(const char *folder, const char *const *known)
{
    struct dirent **entry = NULL;
    list l = {0};
    const int all = choir__folder_has(folder, CHOIR__STATE_FILE) /* a checkpoint has none */
                        ? 0
                        : scandir(folder, &entry, NULL, alphasort);
    for (int i = 0; i < all; i++) {
        add(&l, folder, choir__strdup(entry[i]->d_name), is_unknown(entry[i]->d_name, known));
        free(entry[i]);
    }
    free(entry);
    return end_of(&l);
}
