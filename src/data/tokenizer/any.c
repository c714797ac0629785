/* Reading a tokenizer of any kind, from memory, a file or a folder. Bytes and names determine
 * the kind. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/file.h"
#include "base/files/run_files.h"
#include "base/floats.h"
#include "data/beside.h"
#include "data/tokenizer/tokenizer.h"

enum { FILE_LIMIT = 64 << 20 };

/* An extended tokenizer contains another one, of any kind, as a text. */
static choir_status read_around(const choir__tokenizer_kind *kind, const char *name,
    json_t *root, choir_tokenizer **tokenizer)
{
    const char *base = json_string_value(json_object_get(root, "base"));
    choir_tokenizer *inner;
    if (!base)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: an extended tokenizer has a \"base\" and a list of \"added\" tokens", name);
    choir_status status = choir__tokenizer_parse(name, base, strlen(base), &inner);
    if (status != CHOIR_OK)
        return status;
    return kind->read_around(name, root, inner, tokenizer);
}

/* A tokenizer.json written by Hugging Face's tokenizers has a "model"; Choir's own forms have a
 * "type". */
static choir_status from_json(const char *name, json_t *root, choir_tokenizer **tokenizer)
{
    const choir__tokenizer_kind *kind;
    const char *type = json_string_value(json_object_get(root, "type"));
    if (json_is_object(json_object_get(root, "model")))
        return choir__hf_from_json(name, root, tokenizer);
    if (!type)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a tokenizer: {\"type\":\"chars\",...}, {\"type\":\"bytes\"} or a "
            "tokenizer.json with a \"model\"",
            name);
    choir_status status = choir__tokenizer_kind_find(name, type, &kind);
    if (status != CHOIR_OK)
        return status;
    return kind->read ? kind->read(name, root, tokenizer)
                      : read_around(kind, name, root, tokenizer);
}

choir_status choir__tokenizer_parse(
    const char *name, const char *data, size_t bytes, choir_tokenizer **tokenizer)
{
    CHOIR__DEFAULT_FLOATS;
    /* Field 1 of a protobuf is SentencePiece's list of pieces; scores contain zero bytes. */
    if (bytes && data[0] == '\n' && memchr(data, 0, bytes))
        return choir__sentencepiece_parse(name, data, bytes, tokenizer);
    json_error_t why;
    json_t *root = json_loadb(data, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!root && json_error_code(&why) == json_error_null_byte_in_key)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: line %d has a key with the character U+0000, which is not supported", name,
            why.line);
    if (!root)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: line %d is not JSON: %s", name, why.line, why.text);
    choir_status status = from_json(name, root, tokenizer);
    if (json_is_object(json_object_get(root, "model")) && status == CHOIR_OK) {
        (*tokenizer)->published = true;
        (*tokenizer)->source = memcpy(choir__alloc(bytes + 1), data, bytes);
        (*tokenizer)->source_bytes = bytes;
    }
    json_decref(root);
    return status;
}

static choir_status load_file(const char *path, choir_tokenizer **tokenizer)
{
    char *text;
    size_t bytes;
    choir_status status = choir__read_file(path, FILE_LIMIT, &text, &bytes);
    if (status != CHOIR_OK)
        return status;
    status = choir__tokenizer_parse(path, text, bytes, tokenizer);
    free(text);
    return status;
}

static choir_status load_gpt2(const char *vocab, const char *merges, choir_tokenizer **out)
{
    char *v = NULL, *m = NULL;
    size_t v_bytes, m_bytes;
    choir_status status = choir__read_file(vocab, FILE_LIMIT, &v, &v_bytes);
    if (status == CHOIR_OK)
        status = choir__read_file(merges, FILE_LIMIT, &m, &m_bytes);
    if (status == CHOIR_OK)
        status = choir__gpt2_parse(vocab, v, v_bytes, merges, m, m_bytes, out);
    free(v);
    free(m);
    return status;
}

static bool is_file(const char *folder, const char *name)
{
    struct stat s;
    char *path = choir__format("%s/%s", folder, name);
    bool there = stat(path, &s) == 0 && !S_ISDIR(s.st_mode);
    free(path);
    return there;
}

/* The files from which a folder's tokenizer is read; the first that exists is used. */
static const char *const names[] = {
    CHOIR__TOKENIZER_FILE, CHOIR__OWN_TOKENIZER_FILE, "vocab.json", "tokenizer.model"};

static const char *name_in(const char *folder)
{
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        if (is_file(folder, names[i]))
            return names[i];
    return NULL;
}

bool choir_tokenizer_exists(const char *folder)
{
    return name_in(folder) != NULL;
}

/* Reads the file of a folder by its name; vocab.json and merges.txt belong together. */
static choir_status load_named(const char *folder, const char *name, choir_tokenizer **out)
{
    bool pair = !strcmp(name, "vocab.json") || !strcmp(name, "merges.txt");
    char *path = choir__format("%s/%s", folder, pair ? "vocab.json" : name);
    char *merges = choir__format("%s/merges.txt", folder);
    choir_status status = pair ? load_gpt2(path, merges, out) : load_file(path, out);
    free(merges);
    free(path);
    return status;
}

/* Only a tokenizer.json names the token in front of a text; beside others, the folder may. */
static void settle_begin(choir_tokenizer *t)
{
    json_t *words = choir__beside_json(t->beside, CHOIR__BESIDE_WORDS);
    const char *text = choir__beside_token(json_object_get(words, "bos_token"));
    if (!t->begin && text && json_is_true(json_object_get(words, "add_bos_token")))
        t->begin = choir_tokenizer_id(t, text) + 1;
    json_decref(words);
}

/* Like load_named, with the files beside it. */
static choir_status load_all(const char *folder, const char *name, choir_tokenizer **out)
{
    choir_tokenizer *t;
    choir_status status = load_named(folder, name, &t);
    if (status != CHOIR_OK)
        return status;
    status = choir__beside_read(folder, false, &t->beside);
    if (status == CHOIR_OK) {
        settle_begin(t);
        *out = t;
    } else
        choir_tokenizer_free(t);
    return status;
}

/* Returns whether a file has a name that tokenizers have in folders. */
static bool is_name(const char *name)
{
    bool is = !strcmp(name, "merges.txt");
    for (size_t i = 0; i < CHOIR_COUNT(names) && !is; i++)
        is = !strcmp(name, names[i]);
    return is;
}

choir_status choir_tokenizer_load(const char *path, choir_tokenizer **tokenizer)
{
    if (!path)
        return choir__missing(__func__, "path");
    if (choir__is_hub_name(path))
        return choir__file_absent(path, CHOIR__HUB_TOKENIZER);
    struct stat s;
    bool is_folder = stat(path, &s) == 0 && S_ISDIR(s.st_mode);
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    if (!is_folder && !is_name(last))
        return load_file(path, tokenizer);
    const char *name = is_folder ? name_in(path) : last;
    if (!name)
        return choir__error(CHOIR_ERR_IO,
            "%s: expected a folder with a tokenizer: tokenizer.json, vocab.json with "
            "merges.txt, or tokenizer.model",
            path);
    char *folder =
        is_folder ? choir__strdup(path)
                  : choir__format("%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    choir_status status = load_all(folder, name, tokenizer);
    free(folder);
    return status;
}
