/* From config.json to a model's text, key by key: an option of the text, a value that must
 * hold, or a key that changes nothing here. Each other key is an error or a note that names it.
 * config_write.c goes back. */
#include "nn/models/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/file.h"
#include "nn/models/models.h"

enum { JSON_LIMIT = 16 << 20 };

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

static bool among(const char *const *list, const char *word)
{
    for (; list && *list; list++)
        if (!strcmp(*list, word))
            return true;
    return false;
}

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
    double number = strtod(values, &end);
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

/* --- the whole file --- */

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
        else if (used < sizeof unknown && !among(inert, key) && !among(also_inert, key) &&
                 !among(c->written, key))
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

static choir_status check_architecture(const choir__config *c, const choir__published *p)
{
    const json_t *list = json_object_get(c->root, "architectures");
    if (!list || json_is_null(list))
        return CHOIR_OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name || json_array_size(list) != 1)
        return choir__config_bad(c, "architectures", "expected a list of one name");
    if (among(p->architectures, name))
        return CHOIR_OK;
    char *names = choir__strdup("");
    for (int i = 0; p->architectures[i]; i++)
        choir__config_append(&names, ", ", p->architectures[i]);
    choir_status status = choir__config_bad(c, "architectures", "choose one of %s", names);
    free(names);
    return status;
}

static choir_status find_model(const choir__config *c, const choir__model_spec **spec)
{
    const json_t *type = json_object_get(c->root, "model_type");
    char *types = choir__strdup("");
    choir_status status = CHOIR_OK;
    *spec = NULL;
    const choir__model_spec *model;
    for (size_t i = 0; (model = choir__model_at(i)); i++) {
        const choir__published *p = model->published;
        if (p && p->type)
            choir__config_append(&types, ", ", p->type);
        if (p && p->type && json_is_string(type) && !strcmp(p->type, json_string_value(type)))
            *spec = model;
    }
    if (!type)
        status = choir__error(
            CHOIR_ERR_FORMAT, "%s: missing key 'model_type': choose one of %s", c->path, types);
    else if (!*spec)
        status = choir__config_bad(c, "model_type", "choose one of %s", types);
    free(types);
    return status;
}

static choir_status check_quantized(const choir__config *c)
{
    const json_t *value = json_object_get(c->root, "quantization_config");
    return !value || json_is_null(value)
               ? CHOIR_OK
               : choir__config_bad(c, "quantization_config",
                     "quantized weights are not supported: expected a model in f32, f16 or bf16");
}

static choir_status translate(choir__config *c)
{
    const choir__model_spec *spec;
    choir_model_info info = {0};
    choir_status status = find_model(c, &spec);
    if (status == CHOIR_OK)
        status = check_architecture(c, spec->published);
    if (status == CHOIR_OK)
        status = check_quantized(c);
    c->written = spec ? spec->published->written : NULL;
    if (status == CHOIR_OK)
        status = choir__config_keys(c, spec->published->keys, spec->published->inert);
    if (status == CHOIR_OK && spec->published->read)
        status = spec->published->read(c);
    if (status != CHOIR_OK)
        return status;
    char *text = choir__format("%s:%s", spec->name, c->text);
    free(c->text);
    c->text = text;
    if (strlen(text) >= sizeof info.config)
        return choir__error(CHOIR_ERR_FORMAT, "%s: its values are too long", c->path);
    status = spec->describe(text, &info);
    if (status != CHOIR_OK) {
        char *message = choir__format("%s: %s", c->path, choir__message());
        choir__set_message(message);
        free(message);
    }
    return status;
}

choir_status choir__config_parse(
    const char *path, const char *json, size_t bytes, char **text, char **notes)
{
    json_error_t why;
    choir__config c = {
        .path = path, .part = "", .text = choir__strdup(""), .notes = choir__strdup("")};
    choir_status status;
    c.root = json_loadb(json, bytes, JSON_REJECT_DUPLICATES, &why);
    if (!c.root)
        status = choir__error(CHOIR_ERR_FORMAT, "%s is not valid JSON: line %d, column %d: %s",
            path, why.line, why.column, why.text);
    else if (!json_is_object(c.root))
        status = choir__error(CHOIR_ERR_FORMAT, "%s: expected a JSON object {...}", path);
    else
        status = translate(&c);
    json_decref(c.root);
    if (status == CHOIR_OK) {
        *text = c.text;
        *notes = c.notes;
    } else {
        free(c.text);
        free(c.notes);
    }
    return status;
}

/* --- files --- */

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static choir_status read_file(const char *path, char **text, char **notes)
{
    char *file = choir__format("%s%s", path, is_folder(path) ? "/config.json" : "");
    char *json = choir__alloc(JSON_LIMIT + 1);
    FILE *in;
    choir_status status = choir__file_stream(file, CHOIR__FILE_REGULAR, &in);
    size_t bytes = in ? fread(json, 1, JSON_LIMIT + 1, in) : 0;
    if (in && ferror(in))
        status = choir__error(CHOIR_ERR_IO, "%s: cannot be read: %s", file, strerror(errno));
    else if (bytes > JSON_LIMIT)
        status = choir__error(CHOIR_ERR_FORMAT,
            "%s: expected a config.json of at most %d bytes", file, JSON_LIMIT);
    else if (in)
        status = choir__config_parse(file, json, bytes, text, notes);
    if (in)
        fclose(in);
    free(json);
    free(file);
    return status;
}

static bool looks_like_path(const char *path)
{
    size_t length = strlen(path);
    return strchr(path, '/') || (length > 5 && !strcmp(path + length - 5, ".json")) ||
           is_folder(path);
}

/* Returns the colon before the options, or NULL: a path may contain colons itself. */
static const char *colon_of(const char *model)
{
    struct stat s;
    const char *colon = stat(model, &s) == 0 ? NULL : strrchr(model, ':');
    return colon && strchr(colon, '=') && !strchr(colon, '/') ? colon : NULL;
}

char *choir__config_path(const char *model)
{
    const char *colon = colon_of(model);
    return choir__format("%.*s", (int)(colon ? (size_t)(colon - model) : strlen(model)), model);
}

bool choir__config_is_path(const char *model)
{
    const choir__model_spec *spec;
    if (choir__model_find(model, &spec) == CHOIR_OK) /* a folder of that name is ./NAME */
        return false;
    char *path = choir__config_path(model);
    bool is = looks_like_path(path);
    free(path);
    return is;
}

/* Adds the options behind the colon, which override those before them. */
static choir_status override(const char *model, char **text)
{
    const char *colon = colon_of(model);
    const choir__model_spec *spec;
    choir_model_info info = {0};
    if (!colon)
        return CHOIR_OK;
    choir__config_append(text, ",", colon + 1);
    if (strlen(*text) >= sizeof info.config)
        return choir__error(CHOIR_ERR_ARGUMENT, "%s: the options are too long", model);
    choir_status status = choir__model_find(*text, &spec);
    return status == CHOIR_OK ? spec->describe(*text, &info) : status;
}

choir_status choir__config_read(const char *model, char **text, char **notes)
{
    char *path = choir__config_path(model);
    choir_status status = read_file(path, text, notes);
    free(path);
    if (status == CHOIR_OK && (status = override(model, text)) != CHOIR_OK) {
        free(*text);
        free(*notes);
        *text = *notes = NULL;
    }
    return status;
}
