/* Converts values of options between texts and JSON, by the types in the table of options,
 * and reports wrong ones by the place in the document. JSON values become texts before they
 * are set, so that ranges are checked in one function for the command line and for
 * documents. */
#include "line/values.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"

static bool is_whole(const choir__line_option *o)
{
    return o->type == CHOIR__INT || o->type == CHOIR__BYTES;
}

const choir__line_option *choir__line_named(const choir__line_option *rows, const char *name)
{
    for (const choir__line_option *o = rows; o->name; o++)
        if (!strcmp(o->name, name))
            return o;
    return NULL;
}

json_t *choir__line_json(const choir__line_option *o, const char *text)
{
    return o->type == CHOIR__FLAG    ? json_boolean(text != NULL)
           : !text                   ? NULL
           : is_whole(o)             ? json_integer(strtoll(text, NULL, 10))
           : o->type == CHOIR__FLOAT ? json_real(choir__number_read(text, NULL))
                                     : json_string(text);
}

char *choir__line_scalar_text(const json_t *value)
{
    return json_is_string(value) ? choir__strdup(json_string_value(value))
           : json_is_integer(value)
               ? choir__format("%lld", (long long)json_integer_value(value))
           : json_is_real(value)  ? choir__line_number_text(json_real_value(value))
           : json_is_true(value)  ? choir__strdup("true")
           : json_is_false(value) ? choir__strdup("false")
                                  : NULL;
}

const char *choir__line_json_text(json_t *object, const char *key)
{
    char *text = choir__line_scalar_text(json_object_get(object, key));
    if (!text)
        return NULL;
    /* the key is there, so this may be done while visiting all of them */
    json_object_set_new(object, key, json_string(text));
    free(text);
    return json_string_value(json_object_get(object, key));
}

/* Returns the value as one line of JSON, on the heap. */
static char *shown(const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    return text ? text : choir__strdup("?");
}

choir_status choir__line_json_expected(const char *where, const char *what, const json_t *got)
{
    char *text = shown(got);
    choir_status status =
        choir__error(CHOIR_ERR_ARGUMENT, "%s: expected %s, got %.80s", where, what, text);
    free(text);
    return status;
}

choir_status choir__line_json_located(const char *where, choir_status status)
{
    char *why = choir__strdup(choir_error_message());
    choir__error(status, "%s: %s", where, why);
    free(why);
    return status;
}

choir_status choir__line_json_check(
    json_t *options, const choir__line_option *o, bool texts, const char *where)
{
    char expected[CHOIR__EXPECTED_TEXT];
    const json_t *value = json_object_get(options, o->name);
    choir__option option = {o->name, o->type, NULL, o->low, o->high};
    const bool number = is_whole(o) || o->type == CHOIR__FLOAT, flag = o->type == CHOIR__FLAG;
    const bool good = flag     ? json_is_boolean(value)
                      : number ? json_is_number(value)
                               : json_is_string(value);
    const bool amount = o->type == CHOIR__BYTES && json_is_string(value);
    if (good || amount || (texts && json_is_string(value))) {
        choir__line_json_text(options, o->name);
        return CHOIR_OK;
    }
    return choir__line_json_expected(where,
        flag      ? "true or false"
        : !number ? "a text"
                  : choir__option_expected(&option, expected),
        value);
}

choir_status choir__line_json_take(
    const json_t *options, const choir__line_option *o, void *values, const char *where)
{
    const char *text = json_string_value(json_object_get(options, o->name));
    choir_status status = choir__line_set(o, (char *)values + o->at, text);
    return status == CHOIR_OK ? CHOIR_OK : choir__line_json_located(where, status);
}
