/* Hugging Face's tokenizer.json: its pipeline, its vocabulary (hf_vocab.c), and its model.
 *
 * Of the "post_processor", the token in front of a text is read; the one behind it is the end
 * of a text (text/end_of_text.c). "decoder", "truncation" and "padding" concern single
 * sentences instead of a text to train on: they stay in the file and have no effect. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/hf.h"

static choir_status find_unknown(choir__hf_reader *r, choir__unknown *u)
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
    const choir__hf_reader *r, const char *key, size_t bytes, choir__text_buffer *buffer)
{
    if (!r->byte_level)
        return choir__vocab_find(&r->keys, key, bytes);
    return choir__hf_bytes(key, bytes, buffer)
               ? choir__vocab_find(&r->keys, buffer->bytes, buffer->used)
               : -1;
}

static choir_status parse_merge(const choir__hf_reader *r, json_t *entry, size_t i,
    choir__merge *m, choir__text_buffer buffer[2])
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
    buffer[1].used = 0;
    choir__text_buffer_add(&buffer[1], left, left_bytes);
    choir__text_buffer_add(&buffer[1], right, right_bytes);
    int64_t both = side(r, buffer[1].bytes, buffer[1].used, &buffer[0]);
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

static choir_status refuse_text(const choir__hf_reader *r, const char *key)
{
    const char *text = choir__json_text(r->model, key);
    return text && *text
               ? choir__error(CHOIR_ERR_FORMAT,
                     "%s: model.%s is \"%.100s\", which is not supported", r->name, key, text)
               : CHOIR_OK;
}

static choir_status make_bpe(choir__hf_reader *r)
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
    choir__text_buffer buffer[2] = {{0}, {0}};
    json_array_foreach(list, i, entry)
    {
        if (status == CHOIR_OK)
            status = parse_merge(r, entry, i, &merges[i], buffer);
    }
    if (status == CHOIR_OK)
        status = choir__bpe_new(r->name, &r->keys, merges, count, &o, &r->pipe.model);
    free(buffer[0].bytes);
    free(buffer[1].bytes);
    free(merges);
    return status;
}

static choir_status make_unigram(choir__hf_reader *r, double **scores)
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

static choir_status make_wordpiece(choir__hf_reader *r)
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

static choir_status set_prefix(choir__hf_reader *r)
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

static choir_status check_kind(const choir__hf_reader *r, const char *type)
{
    bool bert = choir__hf_normalizes(&r->pipe, CHOIR__NORMAL_BERT) ||
                choir__hf_cuts(&r->pipe, CHOIR__WORDS_BERT);
    bool pattern = false; /* patterns are for models of bytes */
    for (int i = 0; i < r->pipe.count; i++)
        pattern |= r->pipe.step[i].kind == CHOIR__WORDS_PATTERN &&
                   r->pipe.step[i].split < CHOIR__SPLIT_DIGIT;
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
static choir_status read_all(choir__hf_reader *r, json_t *root, char *cut)
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
        status = choir__hf_measure(r);
    if (status == CHOIR_OK)
        status = choir__hf_vocabulary(r, unigram ? &scores : NULL);
    if (status == CHOIR_OK)
        status = choir__hf_added(r);
    if (status == CHOIR_OK)
        *cut = choir__hf_pipeline_cut(
            &r->pipe, &r->keys, &r->added, needs_of(r->model, wordpiece));
    if (status == CHOIR_OK)
        status = bpe ? make_bpe(r) : unigram ? make_unigram(r, &scores) : make_wordpiece(r);
    free(scores);
    return status;
}

/* --- the token in front of a text --- */

const char *choir__hf_surrounds(const json_t *post, bool in_front)
{
    size_t i;
    json_t *step;
    const char *found = NULL;
    json_array_foreach(json_object_get(post, "processors"), i, step)
    {
        const char *here = choir__hf_surrounds(step, in_front);
        found = here ? here : found;
    }
    const json_t *single = json_object_get(post, "single"); /* TemplateProcessing */
    const size_t n = json_array_size(single);
    const json_t *at = n ? json_array_get(single, in_front ? 0 : n - 1) : NULL;
    const json_t *token = json_object_get(at, "SpecialToken");
    if (token)
        found = json_string_value(json_object_get(token, "id"));
    const json_t *pair = json_object_get(post, in_front ? "cls" : "sep"); /* BERT, RoBERTa */
    return pair ? json_string_value(json_array_get(pair, 0)) : found;
}

static int64_t begin_of(const choir_tokenizer *t, const json_t *root)
{
    const char *text = choir__hf_surrounds(json_object_get(root, "post_processor"), true);
    const int64_t id = text ? choir_tokenizer_id(t, text) : -1;
    return id < 0 ? -1 : id + 1;
}

choir_status choir__hf_from_json(const char *name, json_t *root, choir_tokenizer **tokenizer)
{
    choir__hf_reader r = {.name = name,
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
        t->begin = begin_of(t, root);
        *tokenizer = t;
    }
    choir__hf_pipeline_free(&r.pipe);
    choir__added_set_free(&r.added);
    choir__vocab_free(&r.keys);
    choir__vocab_free(&r.texts);
    return status;
}
