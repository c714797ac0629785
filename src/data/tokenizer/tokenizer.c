/* The tokenizer object of every kind: text to ids and back, and saving. any.c reads tokenizers.
 *
 * Special ("added") tokens are searched for first, anywhere in the text. The kind's own encode
 * converts the text between them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/temp_file.h"
#include "base/floats.h"
#include "data/tokenizer/tokenizer.h"

enum { BLOCK = 1 << 26, LONGEST_BLOCK = 1 << 30 };

/* --- messages --- */

static long long line_of(const char *text, const char *at)
{
    long long line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

choir_status choir__not_utf8(const char *name, const char *text, const char *at)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s%snot UTF-8: byte 0x%02x at offset %lld, line %lld", name ? name : "",
        name ? " is " : "", (unsigned char)*at, (long long)(at - text), line_of(text, at));
}

static choir_status no_token(const choir_tokenizer *t, const char *name, const char *text,
    const char *at, const char *end)
{
    uint32_t code;
    char what[32];
    int n = choir__utf8_decode(at, end, &code);
    if (!n && !t->ops->any_bytes)
        return choir__not_utf8(name, text, at);
    if (!n)
        snprintf(what, sizeof what, "0x%02x", (unsigned char)*at);
    else
        choir__utf8_describe(code, what);
    return choir__error(CHOIR_ERR_RANGE,
        "%s%sline %lld has the %s %s, which is not among the tokenizer's %lld",
        name ? name : "", name ? ": " : "", line_of(text, at), n ? "character" : "byte", what,
        (long long)t->size);
}

/* --- using --- */

int64_t choir_tokenizer_size(const choir_tokenizer *tokenizer)
{
    if (choir__lacks(tokenizer, __func__, "tokenizer"))
        return 0;
    return tokenizer->size;
}

size_t choir__tokenizer_last_cut(const choir_tokenizer *t, const char *text, size_t bytes)
{
    for (size_t i = t->cut_before ? bytes : 1; i-- > 1;)
        if (text[i] == t->cut_before && choir__is_plain(text[i - 1]) &&
            !choir__added_ends(&t->added, text, text + i))
            return i;
    return 0;
}

/* Returns NULL, or the position of a character without a token. */
static const char *encode_block(const choir_tokenizer *t, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    choir__added_walk walk = choir__added_begin(text, end);
    const char *stopped = NULL;
    while (!stopped && choir__added_next(&t->added, &walk)) {
        if (walk.piece < walk.piece_end)
            stopped = t->ops->encode(t, walk.piece, walk.piece_end, place, ids);
        if (!stopped && walk.token)
            choir__ids_add(ids, walk.token->id);
        place = CHOIR__INSIDE;
    }
    return stopped;
}

/* A long text is encoded in blocks, so that the memory between text and ids stays small. */
choir_status choir__tokenizer_encode(const choir_tokenizer *t, const char *name,
    const char *text, size_t bytes, choir__tokenizer_place place, choir__ids *ids)
{
    CHOIR__DEFAULT_FLOATS;
    const char *end = text + bytes, *stopped = NULL;
    ids->status = CHOIR_OK;
    for (const char *at = text, *stop; at < end && !stopped; at = stop) {
        size_t n = (size_t)(end - at), cut = n;
        for (size_t block = BLOCK; block < n && cut == n && !t->ops->single; block *= 2)
            if (!(cut = choir__tokenizer_last_cut(t, at, block)))
                cut = n;
        if (cut > LONGEST_BLOCK && !t->ops->single)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "%s: %zu bytes in which nothing separates tokens: at most %d are possible",
                name ? name : "the text", cut, LONGEST_BLOCK);
        stop = at + cut;
        stopped = encode_block(t, at, stop, place, ids);
        place = CHOIR__CONTINUED;
    }
    return ids->status != CHOIR_OK ? ids->status
           : stopped               ? no_token(t, name, text, stopped, end)
                                   : CHOIR_OK;
}

choir_status choir__tokenizer_encode_whole(
    const choir_tokenizer *t, const char *text, size_t bytes, choir__ids *ids)
{
    const size_t first = ids->count;
    const int32_t begin = (int32_t)(t->begin - 1);
    if (t->begin > 0)
        choir__ids_add(ids, begin);
    choir_status status = choir__tokenizer_encode(t, NULL, text, bytes, CHOIR__BEGINNING, ids);
    if (t->begin > 0 && ids->count > first + 1 && ids->id[first + 1] == begin)
        memmove(ids->id + first, ids->id + first + 1,
            (--ids->count - first) * sizeof *ids->id); /* the text has it itself */
    return status;
}

/* Stores ids that a call has found, if they have room, and frees them. */
static choir_status store(
    choir_status status, choir__ids *found, int64_t *ids, size_t room, int64_t *count)
{
    if (status == CHOIR_OK) {
        *count = (int64_t)found->count;
        for (size_t i = 0; i < found->count && i < room; i++)
            ids[i] = found->id[i];
        if (found->count > room && ids)
            status = choir__error(CHOIR_ERR_RANGE,
                "the text has %zu tokens, and there is room for %zu", found->count, room);
    }
    free(found->id);
    return status;
}

choir_status choir_tokenizer_encode(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, int64_t *ids, size_t room, int64_t *count)
{
    if (!count)
        return choir__missing(__func__, "count");
    choir__ids found = {0};
    choir_status status =
        choir__tokenizer_encode(tokenizer, NULL, text, bytes, CHOIR__BEGINNING, &found);
    return store(status, &found, ids, room, count);
}

choir_status choir_tokenizer_encode_whole(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, int64_t *ids, size_t room, int64_t *count)
{
    if (!tokenizer)
        return choir__missing(__func__, "tokenizer");
    if (!text)
        return choir__missing(__func__, "text");
    if (!count)
        return choir__missing(__func__, "count");
    choir__ids found = {0};
    choir_status status = choir__tokenizer_encode_whole(tokenizer, text, bytes, &found);
    return store(status, &found, ids, room, count);
}

choir_status choir__tokenizer_ids(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, size_t more, int64_t **ids, int64_t *count)
{
    choir__ids found = {0};
    choir_status status =
        choir__tokenizer_encode(tokenizer, NULL, text, bytes, CHOIR__BEGINNING, &found);
    *ids = NULL;
    *count = 0;
    if (status == CHOIR_OK) {
        *count = (int64_t)found.count;
        *ids = choir__alloc((found.count + more + 1) * sizeof **ids);
        for (size_t i = 0; i < found.count; i++)
            (*ids)[i] = found.id[i];
    }
    free(found.id);
    return status;
}

const char *choir_tokenizer_token(const choir_tokenizer *t, int64_t id, size_t *bytes)
{
    if (choir__lacks(t, __func__, "tokenizer"))
        return NULL;
    if (choir__lacks(bytes, __func__, "bytes"))
        return NULL;
    return choir__vocab_text(&t->decoded, id, bytes);
}

const char *choir_tokenizer_decode(const choir_tokenizer *tokenizer, int64_t id)
{
    if (choir__lacks(tokenizer, __func__, "tokenizer"))
        return NULL;
    size_t bytes;
    return choir_tokenizer_token(tokenizer, id, &bytes);
}

void choir_tokenizer_free(choir_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->ops->free)
        tokenizer->ops->free(tokenizer);
    choir__vocab_free(&tokenizer->decoded);
    free(tokenizer->source);
    choir__added_set_free(&tokenizer->added);
    choir_beside_free(tokenizer->beside);
    free(tokenizer);
}

/* --- files --- */

/* Writes the file whole or not at all. */
static choir_status write_file(const char *path, const char *text, size_t bytes)
{
    int why = choir__temp_file_write(path, text, bytes, true);
    return why ? choir__error(CHOIR_ERR_IO, "%s: cannot be written: %s", path, strerror(why))
               : CHOIR_OK;
}

choir_status choir__tokenizer_text(
    const choir_tokenizer *t, const char *name, char **text, size_t *bytes)
{
    bool made = t->ops->to_json;
    *bytes = t->source_bytes;
    *text = made ? t->ops->to_json(t) : malloc(*bytes + 1);
    if (!*text)
        return choir__error(
            CHOIR_ERR_MEMORY, "%s: no host memory for the tokenizer's JSON", name);
    if (made)
        *bytes = strlen(*text);
    else
        memcpy(*text, t->source, *bytes);
    return CHOIR_OK;
}

choir_status choir_tokenizer_save(const choir_tokenizer *t, const char *path)
{
    if (!t)
        return choir__missing(__func__, "tokenizer");
    if (!path)
        return choir__missing(__func__, "path");
    char *text;
    size_t bytes;
    choir_status status = choir__tokenizer_text(t, path, &text, &bytes);
    if (status == CHOIR_OK)
        status = write_file(path, text, bytes);
    free(text);
    return status;
}
