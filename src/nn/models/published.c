/* Shared by the models' tables of published keys: pairs of the text are appended, values of the
 * JSON are read with a default, and an error names the key and the value that was found. */
#include "nn/models/published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

void choir__config_append(char **text, const char *separator, const char *more)
{
    char *longer = choir__format("%s%s%s", *text, **text ? separator : "", more);
    free(*text);
    *text = longer;
}

void choir__config_set(choir__config *c, const char *option, const char *format, ...)
{
    char value[128];
    va_list args;
    va_start(args, format);
    choir__number_vprint(value, sizeof value, format, args);
    va_end(args);
    char *pair = choir__format("%s=%s", option, value);
    choir__config_append(&c->text, ",", pair);
    free(pair);
}

void choir__config_note(choir__config *c, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    choir__config_append(&c->notes, "\n", line);
}

int64_t choir__config_int(const choir__config *c, const char *key, int64_t other)
{
    const json_t *value = json_object_get(c->root, key);
    return json_is_integer(value) ? json_integer_value(value) : other;
}

char *choir__config_spelled(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (text && strlen(text) > 60)
        memcpy(text + 56, "...", 4);
    return text ? text : choir__strdup("?");
}

choir_status choir__config_bad(const choir__config *c, const char *key, const char *format, ...)
{
    char why[512];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    char *value = choir__config_spelled(json_object_get(c->root, key));
    choir_status status = choir__error(
        CHOIR_ERR_FORMAT, "%s: key '%s%.60s' is %s: %s", c->path, c->part, key, value, why);
    free(value);
    return status;
}

char *choir__config_option(const char *text, const char *option)
{
    size_t length = strlen(option);
    const char *at = strchr(text, ':');
    while (at && *at) {
        at++;
        size_t pair = strcspn(at, ",");
        if (pair > length && !strncmp(at, option, length) && at[length] == '=')
            return choir__format("%.*s", (int)(pair - length - 1), at + length + 1);
        at += pair;
    }
    return NULL;
}

choir_status choir__config_read_pad(
    choir__config *c, const char *vocab_key, int64_t vocab_absent, int64_t absent)
{
    const json_t *given = json_object_get(c->root, "pad_token_id");
    int64_t vocab = choir__config_int(c, vocab_key, vocab_absent);
    int64_t pad = given ? json_integer_value(given) : absent;
    if (given && !json_is_null(given) &&
        (!json_is_integer(given) || pad >= vocab || pad < -vocab))
        return choir__config_bad(
            c, "pad_token_id", "expected an id of the vocabulary of %lld", (long long)vocab);
    if (json_is_null(given) || (!given && absent < 0))
        return CHOIR_OK;
    choir__config_set(c, "pad", "%lld", (long long)(pad < 0 ? vocab + pad : pad));
    return CHOIR_OK;
}

void choir__config_write_pad(const char *text, json_t *root)
{
    char *pad = choir__config_option(text, "pad");
    json_object_set_new(
        root, "pad_token_id", pad ? json_integer(strtoll(pad, NULL, 10)) : json_null());
    free(pad);
}

const char *choir__config_architecture(const choir__config *c)
{
    const char *name =
        json_string_value(json_array_get(json_object_get(c->root, "architectures"), 0));
    return name ? name : "";
}

choir_status choir__config_read_classes(choir__config *c, int64_t least, int64_t *classes)
{
    const json_t *labels = json_object_get(c->root, "id2label");
    bool have = json_is_object(labels);
    int64_t named = have ? (int64_t)json_object_size(labels) : 2;
    *classes = choir__config_int(c, "num_labels", named);
    if (*classes < least || (have && *classes != named))
        return choir__config_bad(c, have ? "id2label" : "num_labels",
            "a classifier has %s or more, as many as num_labels if that is there",
            least > 1 ? "two classes" : "one class");
    choir__config_set(c, "classes", "%lld", (long long)*classes);
    return CHOIR_OK;
}
