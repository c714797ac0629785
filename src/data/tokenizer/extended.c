/* A tokenizer with additional special tokens: it contains another tokenizer, whose ids stay,
 * and the new tokens have the ids after them. */
#include <stdlib.h>
#include <string.h>

#include "data/beside.h"
#include "data/tokenizer/tokenizer.h"

typedef struct extended {
    choir_tokenizer base;
    choir__tokenizer_ops ops; /* the inner tokenizer's, except for those defined here */
    choir_tokenizer *inner;
} extended;

int64_t choir_tokenizer_id(const choir_tokenizer *t, const char *text)
{
    if (choir__lacks(t, __func__, "tokenizer") || choir__lacks(text, __func__, "text"))
        return -1;
    size_t length = strlen(text), bytes;
    for (int64_t id = 0; id < t->size; id++) {
        const char *token = choir__vocab_text(&t->decoded, id, &bytes);
        if (token && bytes == length && !memcmp(token, text, bytes))
            return id;
    }
    return -1;
}

static const char *encode(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    const choir_tokenizer *inner = ((const extended *)self)->inner;
    return inner->ops->encode(inner, text, end, place, ids);
}

static char *source_of(const choir_tokenizer *t)
{
    if (t->ops->to_json)
        return t->ops->to_json(t);
    char *text = choir__alloc(t->source_bytes + 1);
    memcpy(text, t->source, t->source_bytes);
    text[t->source_bytes] = '\0';
    return text;
}

static char *to_json(const choir_tokenizer *self)
{
    const choir_tokenizer *inner = ((const extended *)self)->inner;
    char *base = source_of(inner);
    json_t *added = json_array();
    for (int64_t id = inner->size; id < self->size; id++)
        json_array_append_new(added, json_string(choir_tokenizer_decode(self, id)));
    json_t *root =
        base ? json_pack("{s:s, s:s, s:o}", "type", "extended", "base", base, "added", added)
             : NULL;
    char *text = root ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    free(base);
    return text;
}

static void free_extended(choir_tokenizer *self)
{
    choir_tokenizer_free(((extended *)self)->inner);
}

static void copy_texts(choir_tokenizer *t, const choir_tokenizer *inner)
{
    size_t bytes;
    for (int64_t id = 0; id < inner->size; id++) {
        const char *text = choir__vocab_text(&inner->decoded, id, &bytes);
        if (text)
            choir__vocab_set(&t->decoded, id, text, bytes);
    }
}

/* Sets the list of added tokens: the inner tokenizer's, then the new ones. */
static void set_added(choir_tokenizer *t, const choir_tokenizer *inner)
{
    size_t count = inner->added.count + (size_t)(t->size - inner->size), bytes;
    choir__added *added = choir__calloc(count + 1, sizeof *added);
    if (inner->added.count) /* their texts are in the inner tokenizer */
        memcpy(added, inner->added.token, inner->added.count * sizeof *added);
    for (int64_t id = inner->size; id < t->size; id++) {
        choir__added *a = &added[inner->added.count + (size_t)(id - inner->size)];
        a->text = choir__vocab_text(&t->decoded, id, &bytes);
        a->bytes = (uint32_t)bytes;
        a->id = (int32_t)id;
    }
    choir__added_set_init(&t->added, added, count);
}

/* Texts may be cut where the inner tokenizer allows it, unless a new token contains that
 * character. */
static char cut_of(const choir_tokenizer *inner, char *const *tokens, int64_t count)
{
    for (int64_t i = 0; i < count && inner->cut_before; i++)
        if (strchr(tokens[i], inner->cut_before))
            return 0;
    return inner->cut_before;
}

/* Makes the texts of all ids findable, with room for `more` texts behind them. */
static void index_texts(choir__vocab *known, const choir_tokenizer *t, int64_t more)
{
    size_t bytes;
    choir__vocab_init(known, t->size + more);
    for (int64_t id = 0; id < t->size; id++) {
        const char *text = choir__vocab_text(&t->decoded, id, &bytes);
        if (text && choir__vocab_set(known, id, text, bytes))
            choir__vocab_index(known, id);
    }
}

/* Collects the tokens that are not known yet, each once. Error: argument. */
static choir_status find_missing(choir__vocab *known, int64_t size, char *const *tokens,
    int64_t count, char **missing, int64_t *more)
{
    for (int64_t i = 0; i < count; i++) {
        size_t bytes = strlen(tokens[i]);
        if (!bytes || bytes > CHOIR__LONGEST_TOKEN)
            return choir__error(CHOIR_ERR_ARGUMENT,
                "a special token of %zu bytes; 1 to %d are possible", bytes,
                CHOIR__LONGEST_TOKEN);
        if (choir__vocab_find(known, tokens[i], bytes) >= 0)
            continue;
        choir__vocab_set(known, size + *more, tokens[i], bytes);
        choir__vocab_index(known, size + *more);
        missing[(*more)++] = tokens[i];
    }
    return CHOIR_OK;
}

choir_status choir__tokenizer_extend(
    choir_tokenizer *inner, char *const *tokens, int64_t count, choir_tokenizer **tokenizer)
{
    char **missing = choir__alloc((size_t)(count + 1) * sizeof *missing);
    int64_t more = 0;
    choir__vocab known;
    index_texts(&known, inner, count);
    choir_status status = find_missing(&known, inner->size, tokens, count, missing, &more);
    choir__vocab_free(&known);
    if (status == CHOIR_OK && more) {
        extended *e = choir__calloc(1, sizeof *e);
        e->ops = *inner->ops;
        e->ops.kind = "extended";
        e->ops.encode = encode;
        e->ops.to_json = to_json;
        e->ops.free = free_extended;
        e->inner = inner;
        e->base.ops = &e->ops;
        e->base.size = inner->size + more;
        e->base.begin = inner->begin;
        e->base.beside = inner->beside;
        inner->beside = NULL;
        choir__beside_drop(e->base.beside, CHOIR__BESIDE_PIECES); /* new tokens are not there */
        e->base.cut_before = cut_of(inner, missing, more);
        choir__vocab_init(&e->base.decoded, e->base.size);
        copy_texts(&e->base, inner);
        for (int64_t i = 0; i < more; i++)
            choir__vocab_set(&e->base.decoded, inner->size + i, missing[i], strlen(missing[i]));
        set_added(&e->base, inner);
        *tokenizer = &e->base;
    } else if (status == CHOIR_OK) {
        *tokenizer = inner;
    }
    free(missing);
    return status;
}

/* Error: format. */
static choir_status read_added(const char *name, json_t *added, char **tokens)
{
    for (size_t i = 0; i < json_array_size(added); i++)
        if (!(tokens[i] = (char *)json_string_value(json_array_get(added, i))))
            return choir__error(
                CHOIR_ERR_FORMAT, "%s: \"added\" token %zu: expected a text", name, i);
    return CHOIR_OK;
}

choir_status choir__extended_from_json(
    const char *name, json_t *root, choir_tokenizer *inner, choir_tokenizer **tokenizer)
{
    json_t *added = json_object_get(root, "added");
    size_t count = json_array_size(added);
    choir_tokenizer *made = inner;
    char **tokens = choir__alloc((count + 1) * sizeof *tokens);
    choir_status status = CHOIR_OK;
    if (!count || count > CHOIR__MOST_TOKENS)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: an extended tokenizer has a \"base\" and a list of \"added\" tokens", name);
    if (status == CHOIR_OK)
        status = read_added(name, added, tokens);
    if (status == CHOIR_OK)
        status = choir__tokenizer_extend(inner, tokens, (int64_t)count, &made);
    if (status == CHOIR_OK && made->size != inner->size + (int64_t)count)
        status = choir__error(CHOIR_ERR_FORMAT, "%s: an \"added\" token is there twice", name);
    if (status == CHOIR_OK)
        *tokenizer = made;
    else
        choir_tokenizer_free(made);
    free(tokens);
    return status;
}
