/* Values as JSON: json.dumps of Python, as transformers' tojson calls it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "data/jinja/value.h"

static void put_escape(choir__jinja_run *r, choir__jinja_out *out, uint32_t code)
{
    char text[16];
    if (code >= 0x10000) {
        code -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + (code >> 10),
            0xDC00 + (code & 0x3FF));
    } else
        snprintf(text, sizeof text, "\\u%04x", code);
    choir__jinja_puts(r, out, text);
}

static const char *short_escape(uint32_t code)
{
    switch (code) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default: return NULL;
    }
}

static void put_text(
    choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_text *t, bool ascii)
{
    const char *at = t->data, *end = at + t->bytes;
    uint32_t code = 0;
    choir__jinja_puts(r, out, "\"");
    for (int n; at < end; at += n) {
        n = choir__max(choir__utf8_decode(at, end, &code), 1);
        const char *known = short_escape(code);
        if (known)
            choir__jinja_puts(r, out, known);
        else if (code < 0x20 || (ascii && code >= 0x7F))
            put_escape(r, out, code);
        else
            choir__jinja_put(r, out, at, (size_t)n);
    }
    choir__jinja_puts(r, out, "\"");
}

static void put_real(choir__jinja_run *r, choir__jinja_out *out, double real)
{
    if (isnan(real))
        choir__jinja_puts(r, out, "NaN");
    else if (isinf(real))
        choir__jinja_puts(r, out, real < 0 ? "-Infinity" : "Infinity");
    else
        choir__jinja_print_real(r, out, real);
}

static void new_line(
    choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_json_form *form, int level)
{
    if (!form->indent)
        return;
    choir__jinja_puts(r, out, "\n");
    for (int i = 0; i < level; i++)
        choir__jinja_puts(r, out, form->indent);
}

static void put_value(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v,
    const choir__jinja_json_form *form, int level);

static void put_list(choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_list *list,
    const choir__jinja_json_form *form, int level)
{
    choir__jinja_puts(r, out, "[");
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            choir__jinja_put(r, out, form->between->data, form->between->bytes);
        new_line(r, out, form, level + 1);
        put_value(r, out, list->item[i], form, level + 1);
    }
    if (list->count)
        new_line(r, out, form, level);
    choir__jinja_puts(r, out, "]");
}

static void put_key(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value key,
    const choir__jinja_json_form *form)
{
    if (key.kind == CHOIR__JINJA_TEXT) {
        put_text(r, out, key.as.text, form->ascii);
        return;
    }
    if (key.kind == CHOIR__JINJA_TUPLE)
        choir__jinja_fail(r, "tojson: a 'tuple' is no name of a member");
    choir__jinja_puts(r, out, "\"");
    put_value(r, out, key, form, 0);
    choir__jinja_puts(r, out, "\"");
}

static void put_dict(choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_dict *dict,
    const choir__jinja_json_form *form, int level)
{
    const size_t *order =
        form->sorted ? choir__jinja_order(r, dict->key, dict->count, false) : NULL;
    choir__jinja_puts(r, out, "{");
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            choir__jinja_put(r, out, form->between->data, form->between->bytes);
        new_line(r, out, form, level + 1);
        const size_t at = order ? order[i] : i;
        put_key(r, out, dict->key[at], form);
        choir__jinja_put(r, out, form->colon->data, form->colon->bytes);
        put_value(r, out, dict->value[at], form, level + 1);
    }
    if (dict->count)
        new_line(r, out, form, level);
    choir__jinja_puts(r, out, "}");
}

static void put_value(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v,
    const choir__jinja_json_form *form, int level)
{
    choir__jinja_deeper(r);
    switch (v.kind) {
    case CHOIR__JINJA_NONE: choir__jinja_puts(r, out, "null"); break;
    case CHOIR__JINJA_BOOL: choir__jinja_puts(r, out, v.as.whole ? "true" : "false"); break;
    case CHOIR__JINJA_INT: choir__jinja_print(r, out, v); break;
    case CHOIR__JINJA_REAL: put_real(r, out, v.as.real); break;
    case CHOIR__JINJA_TEXT: put_text(r, out, v.as.text, form->ascii); break;
    case CHOIR__JINJA_LIST:
    case CHOIR__JINJA_TUPLE: put_list(r, out, v.as.list, form, level); break;
    case CHOIR__JINJA_DICT: put_dict(r, out, v.as.dict, form, level); break;
    default:
        choir__jinja_fail(r, "tojson: a '%s' has no form in JSON%s%s", choir__jinja_type(v),
            v.kind == CHOIR__JINJA_UNDEFINED ? ": " : "",
            v.kind == CHOIR__JINJA_UNDEFINED ? v.as.why : "");
    }
    r->depth--;
}

void choir__jinja_json(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v,
    const choir__jinja_json_form *form)
{
    put_value(r, out, v, form, 0);
}
