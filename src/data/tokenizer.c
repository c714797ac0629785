/* Tokenizers: characters or bytes to ids and back.
 *
 * The vocabulary of a character tokenizer is the sorted list of its code points, so an id is a
 * place in that list: a table for ASCII, a binary search for the rest. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/dataset.h"

enum { CODE_POINTS = 0x110000, ASCII = 128, LONGEST = 4, JSON_LIMIT = 64 << 20 };

struct choir_tokenizer {
    bool bytes;
    int64_t size;
    uint32_t *code;            /* (size), ascending; of characters only */
    char (*text)[LONGEST + 1]; /* (size) */
    int32_t ascii[ASCII];      /* id, or -1 */
};

/* --- UTF-8 --- */

/* The length of the character at s and its code point; 0: this is not UTF-8. */
static int decode(const char *text, const char *end, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* else it is overlong */
    const unsigned char *s = (const unsigned char *)text;
    int n = s[0] < 0x80       ? 1
            : s[0] >> 5 == 6  ? 2
            : s[0] >> 4 == 14 ? 3
            : s[0] >> 3 == 30 ? 4
                              : 0;
    if (!n || end - text < n)
        return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    if (c < least[n] || c >= CODE_POINTS || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *code = c;
    return n;
}

static void encode(uint32_t c, char out[LONGEST + 1])
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    out[n] = '\0';
}

bool choir__is_utf8(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    uint32_t code;
    for (int n; text < end; text += n)
        if (!(n = decode(text, end, &code)))
            return false;
    return true;
}

/* "'x' (U+0078)"; control characters by number alone. */
static const char *describe(uint32_t code, char out[32])
{
    char text[LONGEST + 1];
    encode(code, text);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0))
        snprintf(out, 32, "U+%04X", code);
    else
        snprintf(out, 32, "'%s' (U+%04X)", text, code);
    return out;
}

static long long line_of(const char *text, const char *at)
{
    long long line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static choir_status not_utf8(const char *name, const char *text, const char *at)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s%snot UTF-8: byte 0x%02x at offset %lld, line %lld", name ? name : "",
        name ? " is " : "", (unsigned char)*at, (long long)(at - text), line_of(text, at));
}

/* --- making --- */

/* Takes code, ascending. */
static choir_tokenizer *make(uint32_t *code, int64_t size)
{
    choir_tokenizer *t = choir__calloc(1, sizeof *t);
    t->size = size;
    t->code = code;
    t->text = choir__alloc((size_t)size * sizeof *t->text);
    memset(t->ascii, -1, sizeof t->ascii);
    for (int64_t id = 0; id < size; id++) {
        encode(code[id], t->text[id]);
        if (code[id] < ASCII)
            t->ascii[code[id]] = (int32_t)id;
    }
    return t;
}

choir_status choir_tokenizer_chars(const char *text, size_t bytes, choir_tokenizer **tokenizer)
{
    if (!bytes)
        return choir__error(
            CHOIR_ERR_ARGUMENT, "an empty text has no characters to make tokens of");
    const char *end = text + bytes;
    unsigned char *seen = choir__calloc(CODE_POINTS, 1);
    int64_t size = 0;
    uint32_t c;
    for (const char *at = text; at < end;) {
        int n = decode(at, end, &c);
        if (!n) {
            free(seen);
            return not_utf8(NULL, text, at);
        }
        size += !seen[c];
        seen[c] = 1;
        at += n;
    }
    uint32_t *code = choir__alloc((size_t)size * sizeof *code);
    int64_t id = 0;
    for (c = 0; c < CODE_POINTS; c++)
        if (seen[c])
            code[id++] = c;
    free(seen);
    *tokenizer = make(code, size);
    return CHOIR_OK;
}

choir_status choir_tokenizer_bytes(choir_tokenizer **tokenizer)
{
    choir_tokenizer *t = choir__calloc(1, sizeof *t);
    t->bytes = true;
    t->size = 256;
    t->text = choir__calloc(256, sizeof *t->text);
    for (int i = 0; i < 256; i++)
        t->text[i][0] = (char)i;
    *tokenizer = t;
    return CHOIR_OK;
}

void choir_tokenizer_free(choir_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    free(tokenizer->code);
    free(tokenizer->text);
    free(tokenizer);
}

/* --- using --- */

int64_t choir_tokenizer_size(const choir_tokenizer *tokenizer)
{
    return tokenizer->size;
}

static int64_t find(const choir_tokenizer *t, uint32_t code)
{
    if (code < ASCII)
        return t->ascii[code];
    int64_t low = 0, high = t->size;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (t->code[middle] < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->size && t->code[low] == code ? low : -1;
}

int64_t choir__tokenizer_next(const choir_tokenizer *t, const char **at, const char *end)
{
    if (t->bytes)
        return (unsigned char)*(*at)++;
    uint32_t code;
    int n = decode(*at, end, &code);
    int64_t id = n ? find(t, code) : -1;
    if (id >= 0)
        *at += n;
    return id;
}

choir_status choir__tokenizer_stopped(const choir_tokenizer *t, const char *name,
    const char *text, const char *at, const char *end)
{
    uint32_t code;
    char what[32];
    if (!decode(at, end, &code))
        return not_utf8(name, text, at);
    return choir__error(CHOIR_ERR_RANGE,
        "%s%sline %lld has the character %s, which is not among the tokenizer's %lld",
        name ? name : "", name ? ": " : "", line_of(text, at), describe(code, what),
        (long long)t->size);
}

choir_status choir_tokenizer_encode(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, int64_t *ids, int64_t *count)
{
    const char *at = text, *end = text + bytes;
    int64_t n = 0;
    while (at < end) {
        int64_t id = choir__tokenizer_next(tokenizer, &at, end);
        if (id < 0)
            return choir__tokenizer_stopped(tokenizer, NULL, text, at, end);
        ids[n++] = id;
    }
    *count = n;
    return CHOIR_OK;
}

const char *choir_tokenizer_decode(const choir_tokenizer *tokenizer, int64_t id)
{
    return id >= 0 && id < tokenizer->size ? tokenizer->text[id] : NULL;
}

/* --- as JSON --- */

static char *to_json(const choir_tokenizer *t)
{
    json_t *root = json_object();
    json_object_set_new(root, "type", json_string(t->bytes ? "bytes" : "chars"));
    if (!t->bytes) {
        json_t *vocab = json_array();
        for (int64_t id = 0; id < t->size; id++) {
            size_t length =
                t->code[id] ? strlen(t->text[id]) : 1; /* U+0000 is a character too */
            json_array_append_new(vocab, json_stringn(t->text[id], length));
        }
        json_object_set_new(root, "vocab", vocab);
    }
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Written beside and renamed: at every moment the path holds the old file or the new, whole. */
choir_status choir_tokenizer_save(const choir_tokenizer *tokenizer, const char *path)
{
    char *text = to_json(tokenizer);
    if (!text)
        return choir__error(
            CHOIR_ERR_MEMORY, "%s: no host memory for the tokenizer's JSON", path);
    char *temporary = choir__format("%s.%ld.tmp", path, (long)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write_all(fd, text, strlen(text)) && fsync(fd) == 0;
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        why = errno;
    }
    if (!good && fd >= 0)
        unlink(temporary);
    free(temporary);
    free(text);
    return good ? CHOIR_OK
                : choir__error(CHOIR_ERR_IO, "%s: cannot be written: %s", path, strerror(why));
}

static choir_status parse_vocab(const char *path, json_t *vocab, choir_tokenizer **tokenizer)
{
    size_t size = json_array_size(vocab);
    if (!size)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: \"vocab\" must be a list of one character or more", path);
    uint32_t *code = choir__alloc(size * sizeof *code);
    for (size_t id = 0; id < size; id++) {
        json_t *entry = json_array_get(vocab, id);
        const char *text = json_string_value(entry);
        size_t bytes = json_string_length(entry);
        if (!text || !bytes || (size_t)decode(text, text + bytes, &code[id]) != bytes) {
            free(code);
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: entry %zu of \"vocab\" is not a string of one character", path, id);
        }
        if (id && code[id] <= code[id - 1]) {
            char a[32], b[32];
            choir__error(CHOIR_ERR_FORMAT,
                "%s: entry %zu of \"vocab\", %s, follows %s: characters stand in code-point"
                " order, each once",
                path, id, describe(code[id], a), describe(code[id - 1], b));
            free(code);
            return CHOIR_ERR_FORMAT;
        }
    }
    *tokenizer = make(code, (int64_t)size);
    return CHOIR_OK;
}

static choir_status parse(const char *path, json_t *root, choir_tokenizer **tokenizer)
{
    const char *type = json_string_value(json_object_get(root, "type"));
    if (!type)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s is no tokenizer: {\"type\":\"chars\",...} or {\"type\":\"bytes\"} is expected",
            path);
    if (!strcmp(type, "bytes"))
        return choir_tokenizer_bytes(tokenizer);
    if (!strcmp(type, "chars"))
        return parse_vocab(path, json_object_get(root, "vocab"), tokenizer);
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: a tokenizer of type \"%s\"; \"chars\" and \"bytes\" are known", path, type);
}

choir_status choir_tokenizer_load(const char *path, choir_tokenizer **tokenizer)
{
    char *text;
    size_t bytes;
    choir_status status = choir__read_file(path, JSON_LIMIT, &text, &bytes);
    if (status != CHOIR_OK)
        return status;
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    status = root ? parse(path, root, tokenizer)
                  : choir__error(CHOIR_ERR_FORMAT, "%s: line %d is not JSON: %s", path,
                        why.line, why.text);
    json_decref(root);
    free(text);
    return status;
}
