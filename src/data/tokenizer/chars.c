/* Characters or bytes as tokens.
 *
 * The vocabulary of a character tokenizer is the sorted list of its code points, and an id is
 * an index in that list. A table maps ASCII to ids, a binary search the rest. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/tokenizer.h"

enum { ASCII = 128 };

typedef struct chars {
    choir_tokenizer base;
    uint32_t *code;       /* (size), ascending */
    int32_t ascii[ASCII]; /* id, or -1: none */
} chars;

static int64_t find(const chars *t, uint32_t code)
{
    if (code < ASCII)
        return t->ascii[code];
    int64_t low = 0, high = t->base.size;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->code[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->base.size && t->code[low] == code ? low : -1;
}

static const char *encode_chars(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    (void)place;
    while (text < end) {
        uint32_t code;
        int n = choir__utf8_decode(text, end, &code);
        int64_t id = n ? find((const chars *)self, code) : -1;
        if (id < 0)
            return text;
        choir__ids_add(ids, (int32_t)id);
        text += n;
    }
    return NULL;
}

static char *chars_to_json(const choir_tokenizer *self)
{
    json_t *root = json_object(), *vocab = json_array();
    json_object_set_new(root, "type", json_string("chars"));
    for (int64_t id = 0; id < self->size; id++) {
        size_t bytes;
        const char *text = choir__vocab_text(&self->decoded, id, &bytes);
        json_array_append_new(vocab, json_stringn(text, bytes));
    }
    json_object_set_new(root, "vocab", vocab);
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static void free_chars(choir_tokenizer *self)
{
    free(((chars *)self)->code);
}

static const choir__tokenizer_ops chars_ops = {.kind = "chars",
    .single = true,
    .encode = encode_chars,
    .to_json = chars_to_json,
    .free = free_chars};

/* Creates the tokenizer and takes ownership of code, which is ascending. */
static choir_tokenizer *make(uint32_t *code, int64_t size)
{
    chars *t = choir__calloc(1, sizeof *t);
    t->base.ops = &chars_ops;
    t->base.size = size;
    t->base.cut_before = '\n';
    t->code = code;
    choir__vocab_init(&t->base.decoded, size);
    memset(t->ascii, -1, sizeof t->ascii);
    for (int64_t id = 0; id < size; id++) {
        char text[CHOIR__LONGEST_UTF8 + 1];
        int bytes = choir__utf8_encode(code[id], text);
        choir__vocab_set(&t->base.decoded, id, text, (size_t)bytes);
        if (code[id] < ASCII)
            t->ascii[code[id]] = (int32_t)id;
    }
    return &t->base;
}

choir_status choir_tokenizer_chars(const char *text, size_t bytes, choir_tokenizer **tokenizer)
{
    if (!bytes)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "an empty text has no characters to make tokens of");
    const char *end = text + bytes;
    unsigned char *seen = choir__calloc(CHOIR__CODE_POINTS, 1);
    int64_t size = 0;
    uint32_t c;
    for (const char *at = text; at < end;) {
        int n = choir__utf8_decode(at, end, &c);
        if (!n) {
            free(seen);
            return choir__not_utf8(NULL, text, at);
        }
        size += !seen[c];
        seen[c] = 1;
        at += n;
    }
    uint32_t *code = choir__alloc((size_t)size * sizeof *code);
    int64_t id = 0;
    for (c = 0; c < CHOIR__CODE_POINTS; c++)
        if (seen[c])
            code[id++] = c;
    free(seen);
    *tokenizer = make(code, size);
    return CHOIR_OK;
}

/* --- bytes --- */

static const char *encode_bytes(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    (void)self;
    (void)place;
    for (; text < end; text++)
        choir__ids_add(ids, (unsigned char)*text);
    return NULL;
}

static char *bytes_to_json(const choir_tokenizer *self)
{
    (void)self;
    return choir__strdup("{\"type\":\"bytes\"}");
}

static const choir__tokenizer_ops bytes_ops = {.kind = "bytes",
    .single = true,
    .any_bytes = true,
    .encode = encode_bytes,
    .to_json = bytes_to_json};

choir_status choir_tokenizer_bytes(choir_tokenizer **tokenizer)
{
    if (!tokenizer)
        return choir__missing(__func__, "tokenizer");
    choir_tokenizer *t = choir__calloc(1, sizeof *t);
    t->ops = &bytes_ops;
    t->size = 256;
    t->cut_before = '\n';
    choir__vocab_init(&t->decoded, 256);
    for (int i = 0; i < 256; i++)
        choir__vocab_set(&t->decoded, i, (char[]){(char)i}, 1);
    *tokenizer = t;
    return CHOIR_OK;
}

/* --- from JSON --- */

static choir_status parse_vocab(const char *path, json_t *vocab, choir_tokenizer **tokenizer)
{
    size_t size = json_array_size(vocab);
    if (!size)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: \"vocab\": expected a list of one character or more", path);
    uint32_t *code = choir__alloc(size * sizeof *code);
    for (size_t id = 0; id < size; id++) {
        json_t *entry = json_array_get(vocab, id);
        const char *text = json_string_value(entry);
        size_t bytes = json_string_length(entry);
        if (!text || !bytes ||
            (size_t)choir__utf8_decode(text, text + bytes, &code[id]) != bytes) {
            free(code);
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: entry %zu of \"vocab\" is not a string of one character", path, id);
        }
        if (id && code[id] <= code[id - 1]) {
            char a[32], b[32];
            choir__error(CHOIR_ERR_FORMAT,
                "%s: entry %zu of \"vocab\", %s, follows %s: characters stand in code-point"
                " order, each once",
                path, id, choir__utf8_describe(code[id], a),
                choir__utf8_describe(code[id - 1], b));
            free(code);
            return CHOIR_ERR_FORMAT;
        }
    }
    *tokenizer = make(code, (int64_t)size);
    return CHOIR_OK;
}

choir_status choir__chars_from_json(const char *path, json_t *root, choir_tokenizer **tokenizer)
{
    return parse_vocab(path, json_object_get(root, "vocab"), tokenizer);
}

choir_status choir__bytes_from_json(const char *path, json_t *root, choir_tokenizer **tokenizer)
{
    (void)path, (void)root; /* the type is sufficient */
    return choir_tokenizer_bytes(tokenizer);
}
