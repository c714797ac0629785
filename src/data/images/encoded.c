/* Samples of encoded texts: [CLS], the tokens, [SEP], and a second text with its own [SEP]; or
 * RoBERTa's tokens in their place. All tokens are in one array, and a sample is a range of it;
 * the longer of two texts is shortened until both fit, as the library tokenizers does. */
#include "data/images/encoded.h"

#include <stdio.h>
#include <stdlib.h>

#include "data/tokenizer/tokenizer.h"

/* A special token may be a word of the vocabulary alone, which is decoded with a blank. */
static int64_t find_special(const choir_tokenizer *tokenizer, const char *text)
{
    char word[16];
    int64_t id = choir_tokenizer_id(tokenizer, text);
    snprintf(word, sizeof word, " %s", text);
    return id >= 0 ? id : choir_tokenizer_id(tokenizer, word);
}

/* BERT's tokens are looked for first: other tokenizers have its [PAD], too. */
static choir_status find_specials(choir__encoded *e)
{
    static const char *const names[2][3] = {
        {"[CLS]", "[SEP]", "[PAD]"}, {"<s>", "</s>", "<pad>"}};
    e->roberta = find_special(e->tokenizer, names[0][0]) < 0 &&
                 find_special(e->tokenizer, names[1][0]) >= 0;
    int64_t *const ids[] = {&e->cls, &e->sep, &e->pad};
    for (int i = 0; i < 3; i++) {
        *ids[i] = find_special(e->tokenizer, names[e->roberta][i]);
        if (*ids[i] < 0)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "expected a tokenizer with the tokens [CLS], [SEP] and [PAD], as BERT's, or <s>, "
                "</s> and <pad>, as RoBERTa's; this one has no %s",
                names[e->roberta][i]);
    }
    return CHOIR_OK;
}

choir_status choir__encoded_init(choir__encoded *e, const choir_tokenizer *tokenizer,
    int64_t context, bool words, const char *of)
{
    *e = (choir__encoded){.tokenizer = tokenizer, .context = context};
    if (words)
        e->labels = choir__calloc(1, sizeof *e->labels);
    choir_status status = find_specials(e);
    if (status == CHOIR_OK && context < 4 + e->roberta)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected a context of %d tokens or more, got %lld; begin with "
            "choir_labelled_defaults()",
            of, 4 + e->roberta, (long long)context);
    return status;
}

void choir__encoded_free(choir__encoded *e)
{
    free(e->samples);
    free(e->labels);
    free(e->ids);
}

/* Adds tokens to the sample that is being made. */
static void add_tokens(choir__encoded *e, const int64_t *ids, int64_t count, int64_t label)
{
    if (e->used + count > e->token_room) {
        e->token_room = 2 * (e->used + count) + 256;
        e->ids = choir__realloc(e->ids, (size_t)e->token_room * sizeof *e->ids);
        if (e->labels)
            e->labels = choir__realloc(e->labels, (size_t)e->token_room * sizeof *e->labels);
    }
    for (int64_t i = 0; i < count; i++, e->used++) {
        e->ids[e->used] = ids[i];
        if (e->labels)
            e->labels[e->used] = i == 0 ? label : CHOIR_IGNORED;
    }
}

/* Ends the sample whose tokens begin at `at`. */
static void add_sample(choir__encoded *e, int64_t at, int32_t first, int64_t label)
{
    CHOIR__GROW(e->samples, e->count);
    e->samples[e->count++] = (choir__encoded_sample){
        .at = at, .length = (int32_t)(e->used - at), .first = first, .label = label};
}

/* Shortens the longer of two texts until both fit, as the library `tokenizers` does
 * (TruncationStrategy::LongestFirst). */
static void fit(int64_t room, int64_t *a, int64_t *b)
{
    int64_t *shorter = *a > *b ? b : a, *longer = *a > *b ? a : b;
    if (*a + *b <= room)
        return;
    *longer = choir__max(*shorter, room - *shorter);
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = *shorter + room % 2;
    }
}

static choir_status encode(
    const choir__encoded *e, choir__piece piece, int64_t **ids, int64_t *count)
{
    return choir__tokenizer_ids(e->tokenizer, piece.text, piece.bytes, 0, ids, count);
}

choir_status choir__encoded_text(
    choir__encoded *e, choir__piece text, choir__piece pair, int64_t label)
{
    int64_t *a = NULL, *b = NULL, a_count = 0, b_count = 0, at = e->used;
    choir_status status = encode(e, text, &a, &a_count);
    if (status == CHOIR_OK && pair.text)
        status = encode(e, pair, &b, &b_count);
    if (status == CHOIR_OK) {
        fit(e->context - (pair.text ? 3 + e->roberta : 2), &a_count, &b_count);
        add_tokens(e, &e->cls, 1, CHOIR_IGNORED);
        add_tokens(e, a, a_count, CHOIR_IGNORED);
        add_tokens(e, &e->sep, 1, CHOIR_IGNORED);
        if (pair.text && e->roberta)
            add_tokens(e, &e->sep, 1, CHOIR_IGNORED);
        add_tokens(e, b, b_count, CHOIR_IGNORED);
        if (pair.text)
            add_tokens(e, &e->sep, 1, CHOIR_IGNORED);
        add_sample(e, at, e->roberta ? INT32_MAX : (int32_t)a_count + 2, label);
    }
    free(a);
    free(b);
    return status;
}

/* Encodes a word of a text. To a tokenizer of bytes a word has the space before it, as in a
 * text. */
static choir_status encode_word(
    const choir__encoded *e, choir__piece word, int64_t **ids, int64_t *count)
{
    if (!e->roberta || !e->tokenizer->ops->any_bytes || (word.bytes && *word.text == ' '))
        return encode(e, word, ids, count);
    char *text = choir__format(" %.*s", (int)word.bytes, word.text);
    choir_status status = encode(e, (choir__piece){text, word.bytes + 1}, ids, count);
    free(text);
    return status;
}

choir_status choir__encoded_words(
    choir__encoded *e, const choir__piece *words, size_t count, const int64_t *labels)
{
    choir_status status = CHOIR_OK;
    int64_t left = e->context - 2, at = e->used;
    add_tokens(e, &e->cls, 1, CHOIR_IGNORED);
    for (size_t i = 0; i < count && left > 0 && status == CHOIR_OK; i++) {
        int64_t *ids = NULL, tokens = 0;
        status = encode_word(e, words[i], &ids, &tokens);
        tokens = choir__min(tokens, left);
        if (status == CHOIR_OK)
            add_tokens(e, ids, tokens, labels[i]);
        left -= tokens;
        free(ids);
    }
    add_tokens(e, &e->sep, 1, CHOIR_IGNORED);
    if (status == CHOIR_OK)
        add_sample(e, at, INT32_MAX, 0);
    return status;
}

void choir__encoded_drop(choir__encoded *e, const bool *dropped)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < e->count; i++)
        if (!dropped[i])
            e->samples[kept++] = e->samples[i];
    e->count = kept;
}

void choir__encoded_get(const choir__encoded *e, int64_t index, int64_t *ids)
{
    const choir__encoded_sample *s = &e->samples[index];
    int64_t *types = ids + e->context, *mask = types + e->context;
    for (int64_t i = 0; i < e->context; i++) {
        bool in = i < s->length;
        ids[i] = in ? e->ids[s->at + i] : e->pad;
        types[i] = in && i >= s->first;
        mask[i] = in;
    }
}

int64_t choir__encoded_label(const choir__encoded *e, int64_t index, int64_t i)
{
    const choir__encoded_sample *s = &e->samples[index];
    return i < s->length ? e->labels[s->at + i] : CHOIR_IGNORED;
}
