/* The keys of a config.json by the rows of a model's table, read and written. The registry's
 * models use this file, which therefore does not know the registry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/models/published.h"

#include "base/number.h"

/* Keys that any published model may have and that do not affect it: book-keeping of the library
 * that wrote them, tokens with a special meaning, generation settings. */
static const char *const inert[] = {"model_type", "architectures", "transformers_version",
    "torch_dtype", "dtype", "use_cache", "_name_or_path", "task_specific_params", "auto_map",
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id",
    "mask_token_id", "unk_token_id", "decoder_start_token_id", "return_dict",
    "output_attentions", "output_hidden_states", "gradient_checkpointing", "finetuning_task",
    "id2label", "label2id", "num_labels", "_num_labels", "problem_type", "torchscript",
    "use_bfloat16", "tokenizer_class", "prefix", "chunk_size_feed_forward", "pruned_heads",
    "attn_implementation", "_attn_implementation", "_attn_implementation_autoset",
    "return_dict_in_generate", "output_scores", "max_length", "min_length", "do_sample",
    "early_stopping", "num_beams", "num_beam_groups", "diversity_penalty", "temperature",
    "top_k", "top_p", "typical_p", "repetition_penalty", "length_penalty",
    "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens",
    "begin_suppress_tokens", "tie_encoder_decoder", "cross_attention_hidden_size",
    "tf_legacy_loss", "quantization_config", NULL};

/* Keys that must have the value which describes the model as built here. */
static const choir__config_key common[] = {
    {"is_decoder", .values = "false|true"},
    {"is_encoder_decoder", .values = "false"},
    {"add_cross_attention", .values = "false"},
    {NULL},
};

/* --- one key --- */

/* Returns whether "a|b|c" contains the word. */
static bool one_of(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && !strncmp(at, word, length))
            return true;
    return false;
}

/* Returns a JSON value as the text writes it: false, 0.1, gelu_new. The caller frees it. */
static char *plain(const json_t *value)
{
    if (json_is_string(value))
        return choir__strdup(json_string_value(value));
    if (json_is_real(value))
        return choir__format("%.15g", json_real_value(value));
    return choir__config_spelled(value);
}

static bool same_value(const char *values, const json_t *value)
{
    char *text = plain(value), *end;
    double number = choir__number_read(values, &end);
    bool same = json_is_number(value) && !*end ? json_number_value(value) == number
                                               : one_of(values, text);
    free(text);
    return same;
}

static choir_status read_option(
    choir__config *c, const choir__config_key *row, const json_t *value)
{
    bool good = false;
    const char *want = "";
    switch (row->type) {
    case CHOIR__INT:
    case CHOIR__BYTES:
        good = json_is_integer(value) && json_integer_value(value) >= 1;
        want = "a whole number of 1 or more";
        break;
    case CHOIR__FLOAT:
    case CHOIR__SINGLE:
        good = json_is_number(value) && json_number_value(value) >= 0;
        want = "a number of 0 or more";
        break;
    case CHOIR__FLAG:
        good = json_is_boolean(value);
        want = "true or false";
        break;
    case CHOIR__WORD:
    case CHOIR__TEXT:
    case CHOIR__STRING: /* provided that the text can contain it */
        good = json_is_string(value) && !strpbrk(json_string_value(value), ",=:");
        want = "a word";
        break;
    }
    if (!good)
        return choir__config_bad(c, row->key, "expected %s", want);
    char *text = plain(value);
    choir__config_set(c, row->option, "%s", text);
    free(text);
    return CHOIR_OK;
}

static choir_status read_row(
    choir__config *c, const choir__config_key *row, const json_t *value)
{
    if (row->option)
        return json_is_null(value) ? CHOIR_OK : read_option(c, row, value);
    if (!row->values || json_is_null(value) || same_value(row->values, value))
        return CHOIR_OK;
    if (!row->note)
        return choir__config_bad(
            c, row->key, "expected %s, as this model is built with nothing else", row->values);
    char *text = choir__config_spelled(value);
    choir__config_note(
        c, "%s: key '%s%s' is %s: %s", c->path, c->part, row->key, text, row->note);
    free(text);
    return CHOIR_OK;
}

static const choir__config_key *find_row(const choir__config_key *keys, const char *key)
{
    for (; keys && keys->key; keys++)
        if (!strcmp(keys->key, key))
            return keys;
    return NULL;
}

/* Handles a row whose key the file lacks. */
static choir_status read_absent(choir__config *c, const choir__config_key *row)
{
    if (row->absent && row->option)
        choir__config_set(c, row->option, "%s", row->absent);
    if (!row->absent || row->option || one_of(row->values, row->absent))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_FORMAT,
        "%s: key '%s%s' is missing, which means %s: expected %s", c->path, c->part, row->key,
        row->absent, row->values);
}

/* --- an object --- */

choir_status choir__config_keys(
    choir__config *c, const choir__config_key *keys, const char *const *also_inert)
{
    const char *key;
    json_t *value;
    char unknown[300] = ""; /* the first ones */
    size_t used = 0;
    choir_status status = CHOIR_OK;
    json_object_foreach(c->root, key, value)
    {
        const choir__config_key *row = find_row(keys, key);
        if (!row)
            row = find_row(common, key);
        if (row)
            status = read_row(c, row, value);
        else if (used < sizeof unknown && !choir__config_among(inert, key) &&
                 !choir__config_among(also_inert, key) && !choir__config_among(c->written, key))
            used += (size_t)snprintf(
                unknown + used, sizeof unknown - used, "%s%s", used ? ", " : "", key);
        if (status != CHOIR_OK)
            break;
    }
    for (const choir__config_key *row = keys; row->key && status == CHOIR_OK; row++)
        if (!json_object_get(c->root, row->key))
            status = read_absent(c, row);
    if (status == CHOIR_OK && *unknown)
        choir__config_note(c, "%s: not known and ignored%s%.*s: %s", c->path,
            *c->part ? " in " : "", *c->part ? (int)strlen(c->part) - 1 : 0, c->part, unknown);
    return status;
}

choir_status choir__config_part(choir__config *c, const char *part,
    const choir__config_key *keys, const char *const *also_inert)
{
    json_t *root = c->root, *object = json_object_get(root, part);
    if (!object)
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: key '%s' is missing: expected an object {...}", c->path, part);
    if (!json_is_object(object))
        return choir__config_bad(c, part, "expected an object {...}");
    char *prefix = choir__format("%s.", part);
    c->root = object;
    c->part = prefix;
    choir_status status = choir__config_keys(c, keys, also_inert);
    c->root = root;
    c->part = "";
    free(prefix);
    return status;
}

/* --- writing --- */

static json_t *value_json(choir__option_type type, const char *text)
{
    switch (type) {
    case CHOIR__INT:
    case CHOIR__BYTES: return json_integer(strtoll(text, NULL, 10));
    case CHOIR__FLOAT:
    case CHOIR__SINGLE: return json_real(choir__number_read(text, NULL));
    case CHOIR__FLAG: return json_boolean(!strcmp(text, "1") || !strcmp(text, "true"));
    case CHOIR__WORD:
    case CHOIR__TEXT:
    case CHOIR__STRING: break;
    }
    return json_string(text);
}

/* Returns the first of "gelu_new|gelu" as JSON; false, 0.1 and null keep their types. */
static json_t *first_value(const char *values)
{
    char *first = choir__format("%.*s", (int)strcspn(values, "|"), values);
    json_t *value = json_loads(first, JSON_DECODE_ANY, NULL);
    if (!value)
        value = json_string(first);
    free(first);
    return value;
}

json_t *choir__config_part_json(const char *text, const choir__config_key *keys)
{
    json_t *object = json_object();
    for (const choir__config_key *row = keys; row->key; row++) {
        char *value = row->option ? choir__config_option(text, row->option) : NULL;
        if (value)
            json_object_set_new(object, row->key, value_json(row->type, value));
        else if (!row->option && row->values)
            json_object_set_new(object, row->key, first_value(row->values));
        free(value);
    }
    return object;
}
