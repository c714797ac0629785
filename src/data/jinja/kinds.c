/* Kinds of values: their names in Python, their truth, and values as numbers and texts. */
#include <string.h>

#include "data/jinja/eval.h"

bool choir__jinja_is_text(choir__jinja_value v, const char *text)
{
    return v.kind == CHOIR__JINJA_TEXT && v.as.text->bytes == strlen(text) &&
           !memcmp(v.as.text->data, text, v.as.text->bytes);
}

bool choir__jinja_is_sequence(choir__jinja_value v)
{
    return v.kind >= CHOIR__JINJA_LIST && v.kind <= CHOIR__JINJA_STREAM;
}

bool choir__jinja_is_number(choir__jinja_value v)
{
    return v.kind >= CHOIR__JINJA_BOOL && v.kind <= CHOIR__JINJA_REAL;
}

double choir__jinja_number(choir__jinja_value v)
{
    return v.kind == CHOIR__JINJA_REAL ? v.as.real : (double)v.as.whole;
}

bool choir__jinja_truth(choir__jinja_value v)
{
    switch (v.kind) {
    case CHOIR__JINJA_ABSENT:
    case CHOIR__JINJA_UNDEFINED:
    case CHOIR__JINJA_NONE: return false;
    case CHOIR__JINJA_BOOL:
    case CHOIR__JINJA_INT: return v.as.whole != 0;
    case CHOIR__JINJA_REAL: return v.as.real != 0;
    case CHOIR__JINJA_TEXT: return v.as.text->bytes != 0;
    case CHOIR__JINJA_LIST:
    case CHOIR__JINJA_TUPLE:
    case CHOIR__JINJA_RANGE:
    case CHOIR__JINJA_VIEW: return v.as.list->count != 0;
    case CHOIR__JINJA_DICT: return v.as.dict->count != 0;
    default: return true;
    }
}

const char *choir__jinja_type(choir__jinja_value v)
{
    switch (v.kind) {
    case CHOIR__JINJA_ABSENT:
    case CHOIR__JINJA_UNDEFINED: return "Undefined";
    case CHOIR__JINJA_NONE: return "NoneType";
    case CHOIR__JINJA_BOOL: return "bool";
    case CHOIR__JINJA_INT: return "int";
    case CHOIR__JINJA_REAL: return "float";
    case CHOIR__JINJA_TEXT: return "str";
    case CHOIR__JINJA_LIST: return "list";
    case CHOIR__JINJA_TUPLE: return "tuple";
    case CHOIR__JINJA_RANGE: return "range";
    case CHOIR__JINJA_VIEW: return v.as.list->name;
    case CHOIR__JINJA_STREAM: return "generator";
    case CHOIR__JINJA_DICT: return "dict";
    case CHOIR__JINJA_NAMESPACE: return "Namespace";
    case CHOIR__JINJA_LOOP: return "LoopContext";
    case CHOIR__JINJA_MACRO: return "Macro";
    case CHOIR__JINJA_CYCLER: return "Cycler";
    case CHOIR__JINJA_JOINER: return "Joiner";
    case CHOIR__JINJA_FUNCTION: return "function";
    }
    return "";
}

choir__jinja_text *choir__jinja_as_text(choir__jinja_run *r, choir__jinja_value v)
{
    if (v.kind == CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(r, "expected a text: %s", v.as.why);
    if (v.kind != CHOIR__JINJA_TEXT)
        choir__jinja_fail(r, "expected a text, got '%s'", choir__jinja_type(v));
    return v.as.text;
}

int64_t choir__jinja_as_int(choir__jinja_run *r, choir__jinja_value v, int64_t otherwise)
{
    if (v.kind == CHOIR__JINJA_ABSENT || v.kind == CHOIR__JINJA_NONE)
        return otherwise;
    if (v.kind != CHOIR__JINJA_INT && v.kind != CHOIR__JINJA_BOOL)
        choir__jinja_fail(r, "expected a whole number, got '%s'", choir__jinja_type(v));
    return v.as.whole;
}
