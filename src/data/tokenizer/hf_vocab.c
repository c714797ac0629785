/* The vocabulary of a tokenizer.json: keys and ids, their texts as they are decoded, and added
 * tokens. A key's form depends on the model: GPT-2's printable characters stand for bytes,
 * U+2581 for a space, <0x0A> for a byte, "##" for a word that continues. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

/* --- GPT-2's printable characters for bytes --- */

static uint32_t char_of_byte(int byte)
{
    static const struct {
        int first, last, before; /* before: number of unprintable bytes under `first` */
    } printable[] = {{33, 126, 33}, {161, 172, 67}, {174, 255, 68}};
    for (int i = 0; i < 3; i++) {
        if (byte < printable[i].first)
            return (uint32_t)(256 + printable[i].before - (printable[i].first - byte));
        if (byte <= printable[i].last)
            return (uint32_t)byte;
    }
    return 0;
}

/* Returns the byte of a character, or -1. */
static int byte_of_char(uint32_t code)
{
    if (code < 256 && char_of_byte((int)code) == code)
        return (int)code;
    for (int b = 0; b < 256; b++)
        if (char_of_byte(b) == code)
            return b;
    return -1;
}

bool choir__hf_bytes(const char *key, size_t length, choir__text_buffer *out)
{
    out->used = 0;
    for (const char *at = key, *end = key + length; at < end;) {
        uint32_t code;
        int n = choir__utf8_decode(at, end, &code);
        int byte = n ? byte_of_char(code) : -1;
        if (byte < 0)
            return false;
        choir__text_buffer_add(out, (char[]){(char)byte}, 1);
        at += n;
    }
    return true;
}

/* --- vocabulary --- */

static choir_status check_id(choir__hf_reader *r, const char *key, json_t *value)
{
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: token '%.100s': expected an id from 0 to %d, got something that is no whole "
            "number",
            r->name, key, CHOIR__MOST_TOKENS - 1);
    if (id < 0 || id >= CHOIR__MOST_TOKENS)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: token '%.100s': expected an id from 0 to %d, got %lld", r->name, key,
            CHOIR__MOST_TOKENS - 1, (long long)id);
    r->size = choir__max(r->size, id + 1);
    return CHOIR_OK;
}

static choir_status check_length(const choir__hf_reader *r, const char *key, size_t bytes)
{
    return bytes && bytes <= CHOIR__LONGEST_TOKEN
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: token '%.100s' has %zu bytes: from 1 to %d are allowed", r->name, key,
                     bytes, CHOIR__LONGEST_TOKEN);
}

choir_status choir__hf_measure(choir__hf_reader *r)
{
    json_t *vocab = json_object_get(r->model, "vocab"), *value;
    const char *key;
    size_t i, count = json_is_array(vocab) ? json_array_size(vocab) : json_object_size(vocab);
    choir_status status = CHOIR_OK;
    if (!count || count >= CHOIR__MOST_TOKENS)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: model.vocab is missing, empty or too large", r->name);
    if (json_is_array(vocab))
        r->size = (int64_t)count;
    else
        json_object_foreach(vocab, key, value)
        {
            if (status == CHOIR_OK)
                status = check_id(r, key, value);
        }
    json_array_foreach(r->added_list, i, value)
    {
        const char *text = choir__json_text(value, "content");
        if (status == CHOIR_OK && !text)
            status = choir__error(
                CHOIR_ERR_FORMAT, "%s: added_tokens[%zu].content: expected a text", r->name, i);
        if (status == CHOIR_OK)
            status = check_id(r, text, json_object_get(value, "id"));
    }
    if (status == CHOIR_OK && r->size > 4 * ((int64_t)count + (int64_t)i) + 65536)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: ids up to %lld for %zu tokens: most of them are missing", r->name,
            (long long)(r->size - 1), count + i);
    return status;
}

/* Appends the text of a key: U+2581 is a space, <0x0A> a byte, "##" nothing. */
static void decode_key(
    const choir__hf_reader *r, const char *key, size_t bytes, choir__text_buffer *out)
{
    const char *prefix = r->prefix;
    out->used = 0;
    if (*prefix) {
        size_t n = strlen(prefix);
        bool goes_on = bytes > n && !memcmp(key, prefix, n);
        choir__text_buffer_add(out, " ", goes_on ? 0 : 1);
        choir__text_buffer_add(out, goes_on ? key + n : key, goes_on ? bytes - n : bytes);
        return;
    }
    for (const char *at = key, *end = key + bytes; at < end;) {
        bool mark = end - at >= 3 && !memcmp(at, CHOIR__SPACE_MARK, 3);
        choir__text_buffer_add(out, mark ? " " : at, 1);
        at += mark ? 3 : 1;
    }
}

static bool is_byte(const char *key, size_t bytes, char *byte)
{
    if (bytes != 6 || memcmp(key, "<0x", 3) || key[5] != '>')
        return false;
    char hex[3] = {key[3], key[4]}, *end;
    *byte = (char)strtol(hex, &end, 16);
    return end == hex + 2;
}

static choir_status add_token(
    choir__hf_reader *r, int64_t id, const char *key, size_t bytes, choir__text_buffer *buffer)
{
    choir_status status = check_length(r, key, bytes);
    char byte;
    if (status != CHOIR_OK)
        return status;
    bool mapped = r->byte_level && choir__hf_bytes(key, bytes, buffer), found = true;
    if (!choir__vocab_set(
            &r->keys, id, mapped ? buffer->bytes : key, mapped ? buffer->used : bytes))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: token '%.100s' has the id %lld, which another token has", r->name, key,
            (long long)id);
    /* No merge gives a key of a byte-level model that corresponds to no bytes. */
    if (mapped || !r->byte_level)
        found = choir__vocab_index(&r->keys, id) < 0;
    if (!found)
        return choir__error(
            CHOIR_ERR_FORMAT, "%s: token '%.100s' is there twice", r->name, key);
    if (mapped)
        choir__vocab_set(&r->texts, id, buffer->bytes, buffer->used);
    else if (r->byte_level)
        choir__vocab_set(&r->texts, id, key, bytes);
    else if (is_byte(key, bytes, &byte) &&
             json_is_true(json_object_get(r->model, "byte_fallback")))
        choir__vocab_set(&r->texts, id, &byte, 1);
    else {
        decode_key(r, key, bytes, buffer);
        choir__vocab_set(&r->texts, id, buffer->bytes, buffer->used);
    }
    return CHOIR_OK;
}

choir_status choir__hf_vocabulary(choir__hf_reader *r, double **scores)
{
    json_t *vocab = json_object_get(r->model, "vocab"), *value;
    choir__text_buffer buffer = {0};
    choir_status status = CHOIR_OK;
    const char *key;
    size_t i;
    choir__vocab_init(&r->keys, r->size);
    choir__vocab_init(&r->texts, r->size);
    if (json_is_object(vocab))
        json_object_foreach(vocab, key, value)
        {
            if (status == CHOIR_OK)
                status = add_token(r, json_integer_value(value), key, strlen(key), &buffer);
        }
    else if (scores) {
        *scores = choir__alloc((size_t)r->size * sizeof **scores);
        for (int64_t id = 0; id < r->size; id++)
            (*scores)[id] = (double)NAN;
        json_array_foreach(vocab, i, value)
        {
            json_t *piece = json_array_get(value, 0), *score = json_array_get(value, 1);
            if (status == CHOIR_OK && (!json_is_string(piece) || !json_is_number(score)))
                status = choir__error(CHOIR_ERR_FORMAT,
                    "%s: model.vocab[%zu]: expected a text and its score", r->name, i);
            if (status != CHOIR_OK)
                break;
            (*scores)[i] = json_number_value(score);
            status = add_token(
                r, (int64_t)i, json_string_value(piece), json_string_length(piece), &buffer);
        }
    } else
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: model.vocab: expected an object of tokens and ids, got a list", r->name);
    free(buffer.bytes);
    return status;
}

/* Reads one of the added tokens; *normalized: it is searched for in the normalized text. */
static choir_status read_added(
    choir__hf_reader *r, json_t *value, choir__added *a, bool *normalized)
{
    json_t *content = json_object_get(value, "content");
    const char *text = json_string_value(content), *where = "added_tokens";
    size_t bytes = json_string_length(content);
    int64_t id = json_integer_value(json_object_get(value, "id"));
    bool alone = false;
    *a = (choir__added){.id = (int32_t)id, .bytes = (uint32_t)bytes};
    *normalized = false;
    choir_status status = check_length(r, text, bytes);
    if (status == CHOIR_OK)
        status = choir__json_flag(r->name, where, value, "single_word", &alone);
    if (status == CHOIR_OK)
        status = choir__json_flag(r->name, where, value, "lstrip", &a->strip_left);
    if (status == CHOIR_OK)
        status = choir__json_flag(r->name, where, value, "rstrip", &a->strip_right);
    if (status == CHOIR_OK)
        status = choir__json_flag(r->name, where, value, "normalized", normalized);
    if (status == CHOIR_OK && alone)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: added_tokens: single_word of '%.100s' is true, which is not supported",
            r->name, text);
    if (status != CHOIR_OK)
        return status;
    /* The file determines its text, not the model. */
    r->texts.at[id] = 0;
    choir__vocab_set(&r->texts, id, text, bytes);
    return CHOIR_OK;
}

/* Stores the normal form of an added token as text number `place`. Returns false if it is
 * empty: the token is never found then. */
static bool normalize_added(
    choir__hf_reader *r, choir__added *a, int64_t place, choir__text_buffer *buffer)
{
    size_t bytes;
    const char *text = choir__vocab_text(&r->texts, a->id, &bytes);
    choir__normalize(&r->pipe.normalizer, text, text + bytes, false, buffer, NULL);
    a->bytes = (uint32_t)buffer->used;
    return buffer->used &&
           choir__vocab_set(&r->pipe.added_texts, place, buffer->bytes, buffer->used);
}

choir_status choir__hf_added(choir__hf_reader *r)
{
    size_t count = json_array_size(r->added_list), i, n[2] = {0, 0};
    choir__added *list[2]; /* normalized: 1 */
    choir__text_buffer buffer = {0};
    choir_status status = CHOIR_OK;
    json_t *value;
    list[0] = choir__calloc(count + 1, sizeof **list);
    list[1] = choir__calloc(count + 1, sizeof **list);
    choir__vocab_init(&r->pipe.added_texts, (int64_t)count);
    json_array_foreach(r->added_list, i, value)
    {
        choir__added a;
        bool normalized;
        if (status == CHOIR_OK)
            status = read_added(r, value, &a, &normalized);
        if (status == CHOIR_OK &&
            (!normalized || normalize_added(r, &a, (int64_t)n[1], &buffer)))
            list[normalized][n[normalized]++] = a;
    }
    for (i = 0; i < n[0]; i++) {
        size_t bytes;
        list[0][i].text = choir__vocab_text(&r->texts, list[0][i].id, &bytes);
        list[0][i].bytes = (uint32_t)bytes;
    }
    for (i = 0; i < n[1]; i++) {
        size_t bytes;
        list[1][i].text = choir__vocab_text(&r->pipe.added_texts, (int64_t)i, &bytes);
    }
    choir__added_set_init(&r->added, list[0], status == CHOIR_OK ? n[0] : 0);
    choir__added_set_init(&r->pipe.added, list[1], status == CHOIR_OK ? n[1] : 0);
    free(buffer.bytes);
    return status;
}
