/* Reading a tokenizer of any kind, from memory, a file or a folder. Bytes and names determine
 * the kind. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

bool choir_tokenizer_exists(const char *folder)
{
    return is_file(folder, "tokenizer.json") || is_file(folder, "choir_tokenizer.json") ||
           is_file(folder, "tokenizer.model") || is_file(folder, "vocab.json");
}

static choir_status load_folder(const char *folder, choir_tokenizer **tokenizer)
{
    const char *name = is_file(folder, "tokenizer.json")         ? "tokenizer.json"
                       : is_file(folder, "choir_tokenizer.json") ? "choir_tokenizer.json"
                       : is_file(folder, "vocab.json")           ? "vocab.json"
                       : is_file(folder, "tokenizer.model")      ? "tokenizer.model"
                                                                 : NULL;
    if (!name)
        return choir__error(CHOIR_ERR_IO,
            "%s: expected a folder with a tokenizer: tokenizer.json, vocab.json with "
            "merges.txt, or tokenizer.model",
            folder);
    char *path = choir__format("%s/%s", folder, name);
    choir_status status = choir_tokenizer_load(path, tokenizer);
    free(path);
    return status;
}

/* Returns the path with its last part, `old`, replaced, or NULL if it ends in another name. */
static char *sibling(const char *path, const char *old, const char *name)
{
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    return strcmp(last, old) ? NULL : choir__format("%.*s%s", (int)(last - path), path, name);
}

choir_status choir_tokenizer_load(const char *path, choir_tokenizer **tokenizer)
{
    if (!path)
        return choir__missing(__func__, "path");
    struct stat s;
    if (stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return load_folder(path, tokenizer);
    char *merges = sibling(path, "vocab.json", "merges.txt");
    char *vocab = sibling(path, "merges.txt", "vocab.json");
    choir_status status = merges  ? load_gpt2(path, merges, tokenizer)
                          : vocab ? load_gpt2(vocab, path, tokenizer)
                                  : load_file(path, tokenizer);
    free(merges);
    free(vocab);
    return status;
}
