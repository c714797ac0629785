/* The files beside a model's weights, in memory: see choir/beside.h. Their contents are kept as
 * they are, so a folder that passes through a training has the same bytes afterwards. */
#include "data/beside.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/floats.h"
#include "data/dataset.h"

enum { FILE_LIMIT = 64 << 20 };

const char *const choir__beside_names[] = {CHOIR__BESIDE_MODEL, CHOIR__BESIDE_WRITE,
    CHOIR__BESIDE_WORDS, CHOIR__BESIDE_NAMES, "added_tokens.json", CHOIR__BESIDE_CHAT,
    "chat_template.json", CHOIR__BESIDE_IMAGES, "processor_config.json", CHOIR__BESIDE_PIECES,
    NULL};

enum { COUNT = CHOIR_COUNT(choir__beside_names) - 1 };

typedef struct beside_file {
    char *name; /* a chat template's, if it has one */
    char *text; /* NULL: the folder has no such file */
    size_t bytes;
    char *wrong; /* why a file that Choir reads cannot be read; NULL: it can */
} beside_file;

struct choir_beside {
    beside_file file[COUNT];
    beside_file *others; /* (other_count) in order of names */
    int other_count;
};

/* transformers writes 10^30 for a tokenizer without a longest text: such whole numbers are
 * reals here. */
static json_t *parse(const char *text, size_t bytes, json_error_t *why)
{
    json_t *root = json_loadb(text, bytes, JSON_ALLOW_NUL, why);
    if (!root)
        root = json_loadb(text, bytes, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, why);
    if (json_is_object(root))
        return root;
    json_decref(root);
    return NULL;
}

static bool is_read(const char *name)
{
    return !strcmp(name, CHOIR__BESIDE_MODEL) || !strcmp(name, CHOIR__BESIDE_WRITE) ||
           !strcmp(name, CHOIR__BESIDE_WORDS) || !strcmp(name, CHOIR__BESIDE_NAMES);
}

/* Returns why a file is no JSON object, or NULL. Other programs write forms of their own, as
 * Python's NaN, and read them again: what Choir does not know is no error. */
static char *why_wrong(const char *path, const char *text, size_t bytes)
{
    json_error_t why = {.line = -1};
    json_t *root = parse(text, bytes, &why);
    json_decref(root);
    return root          ? NULL
           : why.text[0] ? choir__format("%s is not valid JSON: line %d, column %d: %s", path,
                               why.line, why.column, why.text)
                         : choir__format("%s is not a JSON object {...}", path);
}

static choir_status read_one(const char *folder, const char *name, beside_file *file)
{
    struct stat info;
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = CHOIR_OK;
    if (stat(path, &info) == 0) {
        status = choir__read_file(path, FILE_LIMIT, &file->text, &file->bytes);
        if (status == CHOIR_OK && is_read(name))
            file->wrong = why_wrong(path, file->text, file->bytes);
    }
    free(path);
    return status;
}

static choir_status read_others(const char *folder, choir_beside *b)
{
    choir_status status = CHOIR_OK;
    char **names = choir__beside_list_others(folder);
    for (int i = 0; names && names[i]; i++) {
        CHOIR__GROW(b->others, b->other_count);
        beside_file *other = &b->others[b->other_count++];
        *other = (beside_file){.name = names[i]};
        if (status == CHOIR_OK)
            status = read_one(folder, other->name, other);
    }
    free(names);
    return status;
}

choir_status choir_beside_read(const char *folder, choir_beside **beside)
{
    CHOIR__DEFAULT_FLOATS;
    if (!folder || !beside)
        return choir__missing(__func__, folder ? "beside" : "folder");
    choir_beside *b = choir__calloc(1, sizeof *b);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < COUNT && status == CHOIR_OK; i++)
        status = read_one(folder, choir__beside_names[i], &b->file[i]);
    if (status == CHOIR_OK)
        status = read_others(folder, b);
    if (status == CHOIR_OK)
        *beside = b;
    else
        choir_beside_free(b);
    return status;
}

void choir_beside_free(choir_beside *beside)
{
    for (int i = 0; beside && i < COUNT; i++) {
        free(beside->file[i].text);
        free(beside->file[i].wrong);
    }
    for (int i = 0; beside && i < beside->other_count; i++) {
        free(beside->others[i].name);
        free(beside->others[i].text);
    }
    if (beside)
        free(beside->others);
    free(beside);
}

static int index_of(const char *name)
{
    int i = 0;
    while (strcmp(choir__beside_names[i], name) != 0)
        i++;
    return i;
}

const char *choir__beside_text(const choir_beside *beside, const char *name, size_t *bytes)
{
    int i = index_of(name);
    *bytes = beside ? beside->file[i].bytes : 0;
    return beside ? beside->file[i].text : NULL;
}

void choir__beside_drop(choir_beside *beside, const char *name)
{
    int i = index_of(name);
    if (beside) {
        free(beside->file[i].text);
        free(beside->file[i].wrong);
        beside->file[i].text = beside->file[i].wrong = NULL;
    }
}

json_t *choir__beside_json(const choir_beside *beside, const char *name)
{
    json_error_t why;
    size_t bytes;
    const char *text = choir__beside_text(beside, name, &bytes);
    return text ? parse(text, bytes, &why) : NULL;
}

const char *choir__beside_wrong(const choir_beside *beside, const char *name)
{
    return beside ? beside->file[index_of(name)].wrong : NULL;
}

/* --- other chat templates --- */

bool choir__beside_is_other(const char *name)
{
    const size_t n = strlen(name), before = strlen(CHOIR__BESIDE_OTHERS "/"),
                 end = strlen(CHOIR__BESIDE_END);
    return n > before + end && !strncmp(name, CHOIR__BESIDE_OTHERS "/", before) &&
           !strchr(name + before, '/') && name[before] != '.' &&
           !strcmp(name + n - end, CHOIR__BESIDE_END);
}

char **choir__beside_list_others(const char *folder)
{
    struct dirent **entry = NULL;
    struct stat info;
    char *path = choir__format("%s/" CHOIR__BESIDE_OTHERS, folder);
    const int all = scandir(path, &entry, NULL, alphasort);
    char **names = all > 0 ? choir__calloc((size_t)all + 1, sizeof *names) : NULL;
    int count = 0;
    for (int i = 0; i < all; i++) {
        char *name = choir__format(CHOIR__BESIDE_OTHERS "/%s", entry[i]->d_name);
        char *file = choir__format("%s/%s", folder, name);
        if (choir__beside_is_other(name) && stat(file, &info) == 0 && S_ISREG(info.st_mode))
            names[count++] = name;
        else
            free(name);
        free(file);
        free(entry[i]);
    }
    free(entry);
    free(path);
    return names;
}

const char *choir__beside_other(
    const choir_beside *beside, int i, const char **name, size_t *bytes)
{
    if (!beside || i >= beside->other_count)
        return NULL;
    *name = beside->others[i].name;
    *bytes = beside->others[i].bytes;
    return beside->others[i].text;
}

/* --- the files of two folders --- */

/* Returns the folder, of two, whose file is copied. The pieces are a tokenizer themselves, and
 * a processor's settings have no tokens. */
static const choir_beside *owner(
    const choir_beside *tokens, const choir_beside *model, int i, bool fits)
{
    const char *name = choir__beside_names[i];
    if (strstr(name, "processor_config"))
        return model && model->file[i].text ? model : tokens;
    bool own = tokens && tokens->file[i].text;
    return own || !fits || !strcmp(name, CHOIR__BESIDE_PIECES) ? tokens : model;
}

static beside_file copy_of(const beside_file *from)
{
    beside_file to = {.bytes = from->bytes, .text = choir__alloc(from->bytes + 1)};
    memcpy(to.text, from->text, from->bytes);
    to.text[from->bytes] = '\0';
    to.name = from->name ? choir__strdup(from->name) : NULL;
    to.wrong = from->wrong ? choir__strdup(from->wrong) : NULL;
    return to;
}

/* Templates of one folder belong together: the others come from where the first one does. */
static void join_others(choir_beside *b, const choir_beside *tokens, const choir_beside *model)
{
    const int chat = index_of(CHOIR__BESIDE_CHAT);
    const bool own = tokens && (tokens->other_count || tokens->file[chat].text);
    const choir_beside *from = own ? tokens : model;
    for (int i = 0; from && i < from->other_count; i++) {
        CHOIR__GROW(b->others, b->other_count);
        b->others[b->other_count++] = copy_of(&from->others[i]);
    }
}

choir_beside *choir__beside_join(
    const choir_beside *tokens, const choir_beside *model, bool fits)
{
    choir_beside *b = choir__calloc(1, sizeof *b);
    json_t *words = choir__beside_json(tokens, CHOIR__BESIDE_WORDS);
    bool chats = json_object_get(words, "chat_template"); /* a file of its own would win */
    json_decref(words);
    for (int i = 0; i < COUNT; i++) {
        bool template = strstr(choir__beside_names[i], "chat_template");
        const choir_beside *from = owner(tokens, model, i, fits && !(chats && template));
        if (from && from->file[i].text)
            b->file[i] = copy_of(&from->file[i]);
    }
    join_others(b, tokens, fits && !chats ? model : NULL);
    return b;
}
