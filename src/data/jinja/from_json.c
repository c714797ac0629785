/* Values from JSON. Texts stay where the parser has left them. */
#include "data/jinja/value.h"

static choir__jinja_value array_of(choir__jinja_run *r, const choir__json *json)
{
    choir__jinja_value list = choir__jinja_list_of(r, CHOIR__JINJA_LIST);
    const choir__json *entry = choir__json_first(json);
    for (uint32_t i = 0; i < json->count; i++, entry = choir__json_next(entry))
        choir__jinja_append(r, list.as.list, choir__jinja_from_json(r, entry));
    return list;
}

static choir__jinja_value object_of(choir__jinja_run *r, const choir__json *json)
{
    choir__jinja_value dict = choir__jinja_dict_of(r);
    const choir__json *name = choir__json_first(json);
    for (uint32_t i = 0; i < json->count; i++) {
        const choir__json *value = choir__json_next(name);
        choir__jinja_dict_set(r, dict.as.dict, choir__jinja_borrow(r, name->text, name->bytes),
            choir__jinja_from_json(r, value));
        name = choir__json_next(value);
    }
    return dict;
}

/* The parser of JSON bounds the depth, so this recursion ends. */
choir__jinja_value choir__jinja_from_json(choir__jinja_run *r, const choir__json *json)
{
    int64_t whole;
    switch (json->type) {
    case CHOIR__JSON_NULL: return choir__jinja_none();
    case CHOIR__JSON_FALSE: return choir__jinja_bool(false);
    case CHOIR__JSON_TRUE: return choir__jinja_bool(true);
    case CHOIR__JSON_INTEGER:
        if (!choir__json_integer(json, &whole))
            choir__jinja_fail(r, "the conversation has a number of more than 64 bits, %.*s",
                (int)choir__min(json->bytes, 40), json->text);
        return choir__jinja_int(whole);
    case CHOIR__JSON_REAL: return choir__jinja_real(choir__json_real(json));
    case CHOIR__JSON_STRING: return choir__jinja_borrow(r, json->text, json->bytes);
    case CHOIR__JSON_ARRAY: return array_of(r, json);
    case CHOIR__JSON_OBJECT: return object_of(r, json);
    }
    return choir__jinja_none();
}
