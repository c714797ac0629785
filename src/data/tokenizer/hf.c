/* Hugging Face's tokenizer.json, and GPT-2's vocab.json with merges.txt, which are converted to
 * it.
 *
 * "post_processor", "decoder", "truncation" and "padding" concern single sentences instead of a
 * text to train on: they stay in the file and have no effect. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

typedef struct reader {
    const char *name;
    json_t *model, *added_list;
    choir__hf_pipeline pipe;
    bool byte_level;
    char prefix[16];        /* WordPiece's, of a word's continuation */
    int64_t size;           /* the largest id + 1 */
    choir__vocab keys;      /* as the model looks them up */
    choir__vocab texts;     /* as they are decoded */
    choir__added_set added; /* in the text as it is; the others are in the pipeline */
} reader;

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

/* Converts a key to its bytes. Returns false if a character has no byte. */
static bool to_bytes(const char *key, size_t length, choir__tokenizer_buffer *out)
{
    out->bytes = 0;
    for (const char *at = key, *end = key + length; at < end;) {
        uint32_t code;
        int n = choir__utf8_decode(at, end, &code);
        int byte = n ? byte_of_char(code) : -1;
        if (byte < 0)
            return false;
        choir__tokenizer_buffer_add(out, (char[]){(char)byte}, 1);
        at += n;
    }
    return true;
}

/* --- vocabulary --- */

static choir_status check_id(reader *r, const char *key, json_t *value)
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

static choir_status check_length(const reader *r, const char *key, size_t bytes)
{
    return bytes && bytes <= CHOIR__LONGEST_TOKEN
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_FORMAT,
                     "%s: token '%.100s' has %zu bytes: from 1 to %d are allowed", r->name, key,
                     bytes, CHOIR__LONGEST_TOKEN);
}

/* Finds the number of ids, and checks that each is a number in range. */
static choir_status measure(reader *r)
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
    const reader *r, const char *key, size_t bytes, choir__tokenizer_buffer *out)
{
    const char *prefix = r->prefix;
    out->bytes = 0;
    if (*prefix) {
        size_t n = strlen(prefix);
        bool goes_on = bytes > n && !memcmp(key, prefix, n);
        choir__tokenizer_buffer_add(out, " ", goes_on ? 0 : 1);
        choir__tokenizer_buffer_add(out, goes_on ? key + n : key, goes_on ? bytes - n : bytes);
        return;
    }
    for (const char *at = key, *end = key + bytes; at < end;) {
        bool mark = end - at >= 3 && !memcmp(at, CHOIR__SPACE_MARK, 3);
        choir__tokenizer_buffer_add(out, mark ? " " : at, 1);
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
    reader *r, int64_t id, const char *key, size_t bytes, choir__tokenizer_buffer *buffer)
{
    choir_status status = check_length(r, key, bytes);
    char byte;
    if (status != CHOIR_OK)
        return status;
    bool mapped = r->byte_level && to_bytes(key, bytes, buffer), found = true;
    if (!choir__vocab_set(
            &r->keys, id, mapped ? buffer->data : key, mapped ? buffer->bytes : bytes))
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
        choir__vocab_set(&r->texts, id, buffer->data, buffer->bytes);
    else if (r->byte_level)
        choir__vocab_set(&r->texts, id, key, bytes);
    else if (is_byte(key, bytes, &byte) &&
             json_is_true(json_object_get(r->model, "byte_fallback")))
        choir__vocab_set(&r->texts, id, &byte, 1);
    else {
        decode_key(r, key, bytes, buffer);
        choir__vocab_set(&r->texts, id, buffer->data, buffer->bytes);
    }
    return CHOIR_OK;
}

static choir_status add_vocabulary(reader *r, double **scores)
{
    json_t *vocab = json_object_get(r->model, "vocab"), *value;
    choir__tokenizer_buffer buffer = {0};
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
    free(buffer.data);
    return status;
}

/* Reads one of the added tokens; *normalized: it is searched for in the normalized text. */
static choir_status read_added(reader *r, json_t *value, choir__added *a, bool *normalized)
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
    reader *r, choir__added *a, int64_t place, choir__tokenizer_buffer *buffer)
{
    size_t bytes;
    const char *text = choir__vocab_text(&r->texts, a->id, &bytes);
    choir__normalize(&r->pipe.normalizer, text, text + bytes, false, buffer, NULL);
    a->bytes = (uint32_t)buffer->bytes;
    return buffer->bytes &&
           choir__vocab_set(&r->pipe.added_texts, place, buffer->data, buffer->bytes);
}

/* A later entry with the same id replaces an earlier one. */
static choir_status add_added(reader *r)
{
    size_t count = json_array_size(r->added_list), i, n[2] = {0, 0};
    choir__added *list[2]; /* normalized: 1 */
    choir__tokenizer_buffer buffer = {0};
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
    free(buffer.data);
    return status;
}

/* --- models --- */

static choir_status find_unknown(reader *r, choir__unknown *u)
{
    bool fallback = false;
    const char *token = choir__json_text(r->model, "unk_token");
    json_t *place = json_object_get(r->model, "unk_id");
    *u = (choir__unknown){.id = -1, .fuse = json_is_array(json_object_get(r->model, "vocab"))};
    u->byte[0] = -1;
    choir_status status = choir__json_flag(r->name, "model", r->model, "fuse_unk", &u->fuse);
    if (status == CHOIR_OK)
        status = choir__json_flag(r->name, "model", r->model, "byte_fallback", &fallback);
    if (status != CHOIR_OK)
        return status;
    if (token)
        for (int64_t id = 0; id < r->size && u->id < 0; id++) {
            size_t bytes;
            const char *key = choir__vocab_text(&r->keys, id, &bytes);
            if (!key)
                key = choir__vocab_text(&r->texts, id, &bytes);
            if (key && bytes == strlen(token) && !memcmp(key, token, bytes))
                u->id = (int32_t)id;
        }
    else if (json_is_integer(place) && json_integer_value(place) >= 0 &&
             json_integer_value(place) < r->size)
        u->id = (int32_t)json_integer_value(place);
    if (u->id < 0 && (token || json_is_integer(place)))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: model.%s is %s%s, which is not in the vocabulary", r->name,
            token ? "unk_token" : "unk_id", token ? token : "a number", "");
    if (fallback && !choir__unknown_bytes(u, &r->keys))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: model.byte_fallback is true, but not all of <0x00> ... <0xFF> are tokens",
            r->name);
    return CHOIR_OK;
}

/* Returns the id of one side of a merge, as the file writes it. */
static int64_t side(
    const reader *r, const char *key, size_t bytes, choir__tokenizer_buffer *buffer)
{
    if (!r->byte_level)
        return choir__vocab_find(&r->keys, key, bytes);
    return to_bytes(key, bytes, buffer)
               ? choir__vocab_find(&r->keys, buffer->data, buffer->bytes)
               : -1;
}

static choir_status parse_merge(const reader *r, json_t *entry, size_t i, choir__merge *m,
    choir__tokenizer_buffer buffer[2])
{
    const char *left = json_string_value(entry), *right = NULL, *space;
    size_t left_bytes = 0, right_bytes = 0;
    if (left && (space = strchr(left, ' ')) && !strchr(space + 1, ' ')) {
        left_bytes = (size_t)(space - left);
        right = space + 1;
        right_bytes = strlen(right);
    } else if (json_array_size(entry) == 2) {
        left = json_string_value(json_array_get(entry, 0));
        right = json_string_value(json_array_get(entry, 1));
        left_bytes = left ? strlen(left) : 0;
        right_bytes = right ? strlen(right) : 0;
    }
    if (!left_bytes || !right_bytes)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: merge %zu: expected two tokens with a space between them", r->name, i + 1);
    int64_t a = side(r, left, left_bytes, &buffer[0]);
    int64_t b = side(r, right, right_bytes, &buffer[0]);
    buffer[1].bytes = 0;
    choir__tokenizer_buffer_add(&buffer[1], left, left_bytes);
    choir__tokenizer_buffer_add(&buffer[1], right, right_bytes);
    int64_t both = side(r, buffer[1].data, buffer[1].bytes, &buffer[0]);
    if (a < 0 || b < 0 || both < 0)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: merge %zu, of '%.*s' and '%.*s': %s is not in the vocabulary", r->name, i + 1,
            (int)choir__min((int64_t)left_bytes, 100), left,
            (int)choir__min((int64_t)right_bytes, 100), right,
            a < 0   ? "the first"
            : b < 0 ? "the second"
                    : "what they make");
    *m = (choir__merge){(int32_t)a, (int32_t)b, (int32_t)both, (int32_t)i};
    return CHOIR_OK;
}

static choir_status refuse_text(const reader *r, const char *key)
{
    const char *text = choir__json_text(r->model, key);
    return text && *text
               ? choir__error(CHOIR_ERR_FORMAT,
                     "%s: model.%s is \"%.100s\", which is not supported", r->name, key, text)
               : CHOIR_OK;
}

static choir_status make_bpe(reader *r)
{
    choir__bpe_opts o = {.byte_level = r->byte_level};
    json_t *list = json_object_get(r->model, "merges"), *entry;
    json_t *dropout = json_object_get(r->model, "dropout");
    size_t i, count = json_array_size(list);
    if (!json_is_array(list))
        return choir__error(CHOIR_ERR_FORMAT, "%s: model.merges: expected a list", r->name);
    choir_status status = refuse_text(r, "continuing_subword_prefix");
    if (status == CHOIR_OK)
        status = refuse_text(r, "end_of_word_suffix");
    if (status == CHOIR_OK && json_number_value(dropout) != 0)
        status =
            choir__error(CHOIR_ERR_FORMAT, "%s: model.dropout is %g, which is not supported",
                r->name, json_number_value(dropout));
    if (status == CHOIR_OK)
        status = choir__json_flag(r->name, "model", r->model, "ignore_merges", &o.whole_words);
    if (status == CHOIR_OK)
        status = find_unknown(r, &o.unknown);
    choir__merge *merges = choir__alloc((count + 1) * sizeof *merges);
    choir__tokenizer_buffer buffer[2] = {{0}, {0}};
    json_array_foreach(list, i, entry)
    {
        if (status == CHOIR_OK)
            status = parse_merge(r, entry, i, &merges[i], buffer);
    }
    if (status == CHOIR_OK)
        status = choir__bpe_new(r->name, &r->keys, merges, count, &o, &r->pipe.model);
    free(buffer[0].data);
    free(buffer[1].data);
    free(merges);
    return status;
}

static choir_status make_unigram(reader *r, double **scores)
{
    choir__unigram_opts o = {.unknown_score = INFINITY};
    choir_status status = find_unknown(r, &o.unknown);
    if (status != CHOIR_OK)
        return status;
    o.unknown.fuse = true;
    for (int64_t id = 0; id < r->size; id++)
        o.unknown_score = fmin(o.unknown_score, (*scores)[id]); /* passes over NAN */
    o.unknown_score -= 10;
    r->pipe.model = choir__unigram_new(&r->keys, *scores, &o);
    *scores = NULL;
    return CHOIR_OK;
}

static choir_status make_wordpiece(reader *r)
{
    choir__wordpiece_opts o = {0};
    choir__unknown unknown;
    json_t *most = json_object_get(r->model, "max_input_chars_per_word");
    o.longest = most ? json_integer_value(most) : 100;
    if (o.longest < 1 || o.longest > 10000)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: model.max_input_chars_per_word is %lld: from 1 to 10000 are allowed", r->name,
            (long long)o.longest);
    if (!choir__hf_cuts(&r->pipe, CHOIR__WORDS_BERT))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: pre_tokenizer.type of a WordPiece model: expected \"BertPreTokenizer\"",
            r->name);
    choir_status status = find_unknown(r, &unknown);
    if (status == CHOIR_OK && unknown.id < 0)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: model.unk_token is missing", r->name);
    if (status != CHOIR_OK)
        return status;
    o.unknown = unknown.id;
    strcpy(o.prefix, r->prefix);
    r->pipe.model = choir__wordpiece_new(&r->keys, &o);
    return CHOIR_OK;
}

static choir_status set_prefix(reader *r)
{
    const char *prefix = choir__json_text(r->model, "continuing_subword_prefix");
    prefix = prefix ? prefix : "##";
    if (!*prefix || strlen(prefix) >= sizeof r->prefix)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: model.continuing_subword_prefix is \"%.100s\": from 1 to 15 bytes are allowed",
            r->name, prefix);
    strcpy(r->prefix, prefix);
    return CHOIR_OK;
}

static choir_status check_kind(const reader *r, const char *type)
{
    bool bert = choir__hf_normalizes(&r->pipe, CHOIR__NORMAL_BERT) ||
                choir__hf_cuts(&r->pipe, CHOIR__WORDS_BERT);
    bool pattern = choir__hf_cuts(&r->pipe, CHOIR__WORDS_PATTERN);
    if ((bert && strcmp(type, "WordPiece")) || (r->byte_level && strcmp(type, "BPE")) ||
        (pattern && !r->byte_level))
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: its normalizer and pre_tokenizer do not go with model.type \"%s\"", r->name,
            type);
    return CHOIR_OK;
}

static choir__word_needs needs_of(json_t *model, bool wordpiece)
{
    return wordpiece || json_is_true(json_object_get(model, "ignore_merges"))
               ? CHOIR__NEEDS_WORD
           : json_is_true(json_object_get(model, "byte_fallback")) ? CHOIR__NEEDS_NOTHING
                                                                   : CHOIR__NEEDS_RUN;
}

/* Reads the pipeline, and its model, which is complete then. */
static choir_status read_all(reader *r, json_t *root, char *cut)
{
    const char *type = choir__json_text(r->model, "type");
    double *scores = NULL;
    bool bpe = type && !strcmp(type, "BPE"), unigram = type && !strcmp(type, "Unigram");
    bool wordpiece = type && !strcmp(type, "WordPiece");
    choir_status status = choir__hf_steps_parse(r->name, root, &r->pipe);
    if (status == CHOIR_OK && !bpe && !unigram && !wordpiece)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: model.type is \"%.100s\"; BPE, Unigram and WordPiece are known", r->name,
            type ? type : "(missing)");
    r->byte_level = choir__hf_cuts(&r->pipe, CHOIR__WORDS_BYTES);
    if (status == CHOIR_OK)
        status = check_kind(r, type);
    if (status == CHOIR_OK && wordpiece)
        status = set_prefix(r);
    if (status == CHOIR_OK)
        status = measure(r);
    if (status == CHOIR_OK)
        status = add_vocabulary(r, unigram ? &scores : NULL);
    if (status == CHOIR_OK)
        status = add_added(r);
    if (status == CHOIR_OK)
        *cut = choir__hf_pipeline_cut(
            &r->pipe, &r->keys, &r->added, needs_of(r->model, wordpiece));
    if (status == CHOIR_OK)
        status = bpe ? make_bpe(r) : unigram ? make_unigram(r, &scores) : make_wordpiece(r);
    free(scores);
    return status;
}

choir_status choir__hf_from_json(const char *name, json_t *root, choir_tokenizer **tokenizer)
{
    reader r = {.name = name,
        .model = json_object_get(root, "model"),
        .added_list = json_object_get(root, "added_tokens")};
    char cut = 0;
    choir_status status = read_all(&r, root, &cut);
    if (status == CHOIR_OK) {
        choir_tokenizer *t = choir__hf_pipeline_tokenizer(&r.pipe, r.size, cut);
        t->decoded = r.texts;
        r.texts = (choir__vocab){0};
        t->added = r.added;
        r.added = (choir__added_set){0};
        *tokenizer = t;
    }
    choir__hf_pipeline_free(&r.pipe);
    choir__added_set_free(&r.added);
    choir__vocab_free(&r.keys);
    choir__vocab_free(&r.texts);
    return status;
}
