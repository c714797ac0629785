/* From config.json to a model's text, key by key: an option of the text, a value that must
 * hold, or a key that changes nothing here. Each other key is an error or a note that names it.
 * config_keys.c reads the keys by their rows, and
 * config_write.c goes back. */
#include "nn/models/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/file.h"
#include "base/floats.h"
#include "nn/models/models.h"

enum { JSON_LIMIT = 16 << 20 };

static choir_status check_architecture(const choir__config *c, const choir__published *p)
{
    const json_t *list = json_object_get(c->root, "architectures");
    if (!list || json_is_null(list))
        return CHOIR_OK;
    const char *name = json_string_value(json_array_get(list, 0));
    if (!name || json_array_size(list) != 1)
        return choir__config_bad(c, "architectures", "expected a list of one name");
    if (choir__config_among(p->architectures, name))
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
    CHOIR__DEFAULT_FLOATS;
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
    if (choir__is_hub_name(path))
        return choir__file_absent(path, CHOIR__HUB_MODEL);
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
           (length > 5 && !strcmp(path + length - 5, ".gguf")) || is_folder(path);
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

/* Adds the options to a text that was read. Frees text and notes on failure. */
static choir_status overridden(
    const char *model, choir_status status, char **text, char **notes)
{
    if (status == CHOIR_OK && (status = override(model, text)) != CHOIR_OK) {
        free(*text);
        free(*notes);
        *text = *notes = NULL;
    }
    return status;
}

choir_status choir__config_read(const char *model, char **text, char **notes)
{
    char *path = choir__config_path(model);
    choir_status status = read_file(path, text, notes);
    free(path);
    return overridden(model, status, text, notes);
}

choir_status choir__config_read_text(
    const char *model, const char *json, char **text, char **notes)
{
    char *path = choir__config_path(model);
    choir_status status = choir__config_parse(path, json, strlen(json), text, notes);
    free(path);
    return overridden(model, status, text, notes);
}
