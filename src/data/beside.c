/* The files beside a model's weights, read into memory. Contents are kept as they are, so a
 * folder that passes through a training has the same bytes afterwards; only the few files
 * that Choir reads are parsed. Two folders, a tokenizer's and a model's, are joined file by
 * file. */
#include "data/beside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "base/floats.h"
#include "data/dataset.h"

/* Files that Choir does not know have at most MOST_UNKNOWN bytes, MOST_TOGETHER in all. */
enum { FILE_LIMIT = 64 << 20, MOST_UNKNOWN = 16 << 20, MOST_TOGETHER = 64 << 20 };

const char *const choir__beside_names[] = {CHOIR__BESIDE_MODEL, CHOIR__BESIDE_WRITE,
    CHOIR__BESIDE_WORDS, CHOIR__BESIDE_NAMES, "added_tokens.json", CHOIR__BESIDE_CHAT,
    "chat_template.json", CHOIR__BESIDE_IMAGES, "processor_config.json", CHOIR__BESIDE_PIECES,
    NULL};

enum { COUNT = CHOIR_COUNT(choir__beside_names) - 1 };

typedef struct beside_file {
    char *name; /* another file's, as a checkpoint has it */
    char *text; /* NULL: the folder has no such file */
    size_t bytes;
    char *wrong; /* why a file that Choir reads cannot be read; NULL: it can */
} beside_file;

struct choir_beside {
    beside_file file[COUNT];
    beside_file *others; /* (other_count) */
    int other_count;
    int64_t unknown; /* bytes of files that Choir does not know */
    char *left_out;  /* names of such files that are not kept, or NULL */
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

/* Adds a file of this name, which it takes over. */
static beside_file *add_other(choir_beside *b, char *name)
{
    CHOIR__GROW(b->others, b->other_count);
    beside_file *other = &b->others[b->other_count++];
    *other = (beside_file){.name = name};
    return other;
}

/* Only a checkpoint's folder of unknown files is Choir's. */
static choir_status read_others(const char *folder, choir_beside *b)
{
    choir_status status = CHOIR_OK;
    const bool saved = choir__folder_has(folder, CHOIR__STATE_FILE);
    char **names = choir__beside_list_others(folder);
    for (int i = 0; names && names[i]; i++) {
        const bool unknown = choir__beside_published_name(names[i]) != names[i];
        if (status == CHOIR_OK && (saved || !unknown))
            status = read_one(folder, names[i], add_other(b, choir__strdup(names[i])));
        free(names[i]);
    }
    free(names);
    return status;
}

static void leave_out(choir_beside *b, const char *name)
{
    char *names =
        b->left_out ? choir__format("%s, %s", b->left_out, name) : choir__strdup(name);
    free(b->left_out);
    b->left_out = names;
}

/* Keeps a file of a published folder that Choir does not know, if it can be read and is small.
 */
static choir_status read_unknown(const char *folder, const char *name, choir_beside *b)
{
    struct stat info;
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = CHOIR_OK;
    const bool is_there = stat(path, &info) == 0, readable = access(path, R_OK) == 0;
    free(path);
    if (is_there && (!readable || info.st_size > MOST_UNKNOWN ||
                        b->unknown + info.st_size > MOST_TOGETHER)) {
        leave_out(b, name);
    } else if (is_there) {
        b->unknown += info.st_size;
        char *kept = choir__format(CHOIR__BESIDE_UNKNOWN "/%s", name);
        status = read_one(folder, name, add_other(b, kept));
    }
    return status;
}

static choir_status read_all_unknown(const char *folder, choir_beside *b)
{
    choir_status status = CHOIR_OK;
    char **names = choir__beside_list_unknown(folder, choir__beside_names);
    for (int i = 0; names && names[i]; i++) {
        if (status == CHOIR_OK)
            status = read_unknown(folder, names[i], b);
        free(names[i]);
    }
    free(names);
    return status;
}

choir_status choir_beside_read(const char *folder, choir_beside **beside)
{
    CHOIR__DEFAULT_FLOATS;
    if (!folder || !beside)
        return choir__missing(__func__, folder ? "beside" : "folder");
    return choir__beside_read(folder, true, beside);
}

choir_status choir__beside_read(const char *folder, bool all, choir_beside **beside)
{
    choir_beside *b = choir__calloc(1, sizeof *b);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < COUNT && status == CHOIR_OK; i++)
        status = read_one(folder, choir__beside_names[i], &b->file[i]);
    if (status == CHOIR_OK)
        status = read_others(folder, b);
    if (status == CHOIR_OK && all)
        status = read_all_unknown(folder, b);
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
    if (beside) {
        free(beside->others);
        free(beside->left_out);
    }
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

const char *choir__beside_token(const json_t *token)
{
    return json_string_value(json_is_object(token) ? json_object_get(token, "content") : token);
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

/* --- other files --- */

const char *choir__beside_other(
    const choir_beside *beside, int i, const char **name, size_t *bytes)
{
    if (!beside || i >= beside->other_count)
        return NULL;
    *name = beside->others[i].name;
    *bytes = beside->others[i].bytes;
    return beside->others[i].text;
}

const char *choir__beside_left_out(const choir_beside *beside)
{
    return beside ? beside->left_out : NULL;
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

/* Returns whether another file is a chat template. */
static bool is_template(const beside_file *other)
{
    return choir__beside_published_name(other->name) == other->name;
}

static bool has_templates(const choir_beside *b)
{
    bool has = b && b->file[index_of(CHOIR__BESIDE_CHAT)].text;
    for (int i = 0; b && i < b->other_count; i++)
        has |= is_template(&b->others[i]);
    return has;
}

/* Templates of one folder belong together: the others come from where the first one does. */
static void join_templates(
    choir_beside *b, const choir_beside *tokens, const choir_beside *model)
{
    const choir_beside *from = has_templates(tokens) ? tokens : model;
    for (int i = 0; from && i < from->other_count; i++)
        if (is_template(&from->others[i]))
            *add_other(b, NULL) = copy_of(&from->others[i]);
}

/* Copies the unknown files of a folder; `tokens`, `rest`: those about tokens, and the others.
 */
static void join_unknown_of(choir_beside *b, const choir_beside *from, bool tokens, bool rest)
{
    char *names = choir__strdup(from->left_out ? from->left_out : ""), *next = names, *name;
    for (int i = 0; i < from->other_count; i++) {
        name = (char *)choir__beside_published_name(from->others[i].name);
        if (!is_template(&from->others[i]) &&
            (choir__beside_is_of_tokens(name) ? tokens : rest))
            *add_other(b, NULL) = copy_of(&from->others[i]);
    }
    while ((name = strsep(&next, ","))) {
        name += *name == ' ';
        if (*name && (choir__beside_is_of_tokens(name) ? tokens : rest))
            leave_out(b, name);
    }
    free(names);
}

/* Unknown files are the model's, except those about tokens that do not fit. A tokenizer of
 * another model, whose licence is not this one's, brings those about tokens alone. */
static void join_unknown(
    choir_beside *b, const choir_beside *tokens, const choir_beside *model, bool fits)
{
    if (model)
        join_unknown_of(b, model, fits, true);
    else if (tokens)
        join_unknown_of(b, tokens, true, false);
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
    join_templates(b, tokens, fits && !chats ? model : NULL);
    join_unknown(b, tokens, model, fits);
    return b;
}
