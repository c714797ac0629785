/* The tokens that a language model's documents need: one that ends a text, and the markers of a
 * chat.
 *
 * The token that ends a text is the one at which the users of a published folder stop. As
 * transformers' own training does, it is the tokenizer's: the "eos_token" of
 * tokenizer_config.json, in place of which old folders (those whose file has no
 * "added_tokens_decoder") take special_tokens_map.json's. A folder that names none there has an
 * "eos_token_id" in config.json or generation_config.json, of which several may end a text: the
 * first counts, since the others end a turn or a tool's call. A name that is no token, and an
 * id beyond the tokenizer's, as small models keep of the configuration that they were made of,
 * say nothing; nor does a file that cannot be parsed. */
#include <string.h>

#include "data/beside.h"
#include "data/text/corpus.h"

/* --- the folder's own --- */

/* Returns the id of a token that a file names by its text or as an object; -1: none. */
static int64_t id_of_name(const choir_tokenizer *t, const json_t *name)
{
    const char *text = choir__beside_token(name);
    return text ? choir_tokenizer_id(t, text) : -1;
}

static int64_t by_name(const choir_tokenizer *t, const choir_beside *beside)
{
    json_t *words = choir__beside_json(beside, CHOIR__BESIDE_WORDS);
    json_t *names = json_object_get(words, "added_tokens_decoder")
                        ? NULL
                        : choir__beside_json(beside, CHOIR__BESIDE_NAMES);
    int64_t id = id_of_name(t, json_object_get(names, "eos_token"));
    if (id < 0)
        id = id_of_name(t, json_object_get(words, "eos_token"));
    json_decref(names);
    json_decref(words);
    return id;
}

/* Returns a whole number that is the id of a token, or -1. */
static int64_t id_of_number(const choir_tokenizer *t, const json_t *number)
{
    int64_t id = json_is_integer(number) ? json_integer_value(number) : -1;
    return id < t->size ? choir__max(id, -1) : -1;
}

static int64_t by_id(const choir_tokenizer *t, const choir_beside *beside, const char *file)
{
    json_t *root = choir__beside_json(beside, file);
    const json_t *ids = json_object_get(root, "eos_token_id");
    int64_t id = id_of_number(t, ids);
    for (size_t i = 0; i < json_array_size(ids) && id < 0; i++)
        id = id_of_number(t, json_array_get(ids, i));
    json_decref(root);
    return id;
}

int64_t choir__end_named(const choir_tokenizer *t, const choir_beside *beside)
{
    int64_t id = by_name(t, beside);
    if (id < 0)
        id = by_id(t, beside, CHOIR__BESIDE_MODEL);
    if (id < 0)
        id = by_id(t, beside, CHOIR__BESIDE_WRITE);
    return id;
}

int64_t choir__end_of_text(const choir_tokenizer *t)
{
    static const char *const names[] = {
        "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]"};
    int64_t id = choir__end_named(t, t->beside);
    for (size_t i = 0; i < CHOIR_COUNT(names) && id < 0; i++)
        id = choir_tokenizer_id(t, names[i]);
    return id;
}

/* --- tokens that are not there yet --- */

choir_status choir__settle_end_of_text(
    const char *path, bool fixed, choir_tokenizer **tokenizer)
{
    char end[] = "<|endoftext|>";
    char *const added[] = {end};
    if (choir__end_of_text(*tokenizer) >= 0)
        return CHOIR_OK;
    if (fixed)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: the tokenizer has no token that ends a text, and the model's weights allow no "
            "other tokens: name the one that does as \"eos_token\" in a tokenizer_config.json "
            "beside the tokenizer",
            path);
    return choir__tokenizer_extend(*tokenizer, added, 1, tokenizer);
}

/* Reads the template of the tokenizer's folder, if it has one. */
static choir_status find_template(const choir__data_record_at *at,
    const choir_tokenizer *tokenizer, choir__document_parts *parts)
{
    if (parts->asked || !choir__chat_exists(tokenizer))
        return CHOIR_OK;
    if (choir_chat_of(tokenizer, &parts->chat) != CHOIR_OK)
        return choir__data_record_wrong(at, "a chat: %s", choir__message());
    parts->turn_end = choir_chat_end(parts->chat, tokenizer);
    return CHOIR_OK;
}

choir_status choir__settle_chat(const choir__data_record_at *at, const choir__json *record,
    bool fixed, choir_tokenizer **tokenizer, bool *settled, choir__document_parts *parts)
{
    char opens[] = CHOIR__CHAT_OPENS, closes[] = CHOIR__CHAT_CLOSES;
    char *const markers[] = {opens, closes};
    if (!choir__is_conversation(record, &parts->columns))
        return CHOIR_OK;
    choir_status status = find_template(at, *tokenizer, parts);
    parts->asked = true;
    if (status != CHOIR_OK || parts->chat || *settled)
        return status;
    for (size_t i = 0; i < CHOIR_COUNT(markers) && fixed; i++)
        if (choir_tokenizer_id(*tokenizer, markers[i]) < 0)
            return choir__data_record_wrong(at,
                "column 'messages': the tokenizer's folder has no chat template, so chats are "
                "written in ChatML, and %s is no token: put the model's chat_template.jinja beside "
                "the tokenizer, or give 'prompt' and 'completion' with its own markers",
                markers[i]);
    *settled = true;
    return fixed ? CHOIR_OK : choir__tokenizer_extend(*tokenizer, markers, 2, tokenizer);
}
