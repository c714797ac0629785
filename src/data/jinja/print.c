/* Values as texts: str, repr and json.dumps of Python. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "data/jinja/value.h"
#include "data/tokenizer/unicode.h"

/* --- numbers --- */

/* The shortest digits that read back as the same number: with an exponent below 1e-4, and from
 * 1e16 on. */
void choir__jinja_print_real(choir__jinja_run *r, choir__jinja_out *out, double real)
{
    char text[64], *exponent;
    if (isnan(real) || isinf(real)) {
        choir__jinja_puts(r, out, isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    int digits = 1;
    do
        choir__number_print(text, sizeof text, "%.*e", digits - 1, real);
    while (choir__number_read(text, NULL) != real && ++digits <= 17);
    exponent = strchr(text, 'e');
    int power = exponent ? atoi(exponent + 1) : 0;
    if (power >= -4 && power < 16) {
        int decimals = digits - 1 - power;
        choir__number_print(text, sizeof text, "%.*f", decimals > 0 ? decimals : 1, real);
    }
    choir__jinja_puts(r, out, text);
}

/* --- repr --- */

/* Characters that Python prints as they are: not controls, nor separators but the blank. */
static bool is_printable(uint32_t code)
{
    if (code < 0x7F)
        return code >= 0x20;
    return !choir__unicode_control(code) && choir__unicode_class(code) != CHOIR__SPACE &&
           code >= 0xA1 && code != 0xAD;
}

static void repr_char(choir__jinja_run *r, choir__jinja_out *out, const char *at, int n,
    uint32_t code, char quote)
{
    char escape[16];
    const char *short_form = code == '\n'   ? "\\n"
                             : code == '\r' ? "\\r"
                             : code == '\t' ? "\\t"
                             : code == '\\' ? "\\\\"
                                            : NULL;
    if (short_form)
        choir__jinja_puts(r, out, short_form);
    else if (code == (unsigned char)quote) {
        choir__jinja_puts(r, out, "\\");
        choir__jinja_put(r, out, at, (size_t)n);
    } else if (is_printable(code))
        choir__jinja_put(r, out, at, (size_t)n);
    else {
        snprintf(escape, sizeof escape,
            code < 0x100     ? "\\x%02x"
            : code < 0x10000 ? "\\u%04x"
                             : "\\U%08x",
            code);
        choir__jinja_puts(r, out, escape);
    }
}

static void repr_text(choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_text *t)
{
    bool single = memchr(t->data, '\'', t->bytes) && !memchr(t->data, '"', t->bytes);
    char quote = single ? '"' : '\'';
    const char *at = t->data, *end = at + t->bytes;
    uint32_t code;
    choir__jinja_put(r, out, &quote, 1);
    for (int n; at < end; at += n) {
        n = choir__utf8_decode(at, end, &code);
        if (!n) {
            n = 1;
            code = (unsigned char)*at;
        }
        repr_char(r, out, at, n, code, quote);
    }
    choir__jinja_put(r, out, &quote, 1);
}

static void repr_items(choir__jinja_run *r, choir__jinja_out *out,
    const choir__jinja_list *list, const char *opens, const char *closes)
{
    choir__jinja_puts(r, out, opens);
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            choir__jinja_puts(r, out, ", ");
        choir__jinja_repr(r, out, list->item[i]);
    }
    choir__jinja_puts(r, out, closes);
}

static void repr_dict(choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_dict *dict)
{
    choir__jinja_puts(r, out, "{");
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            choir__jinja_puts(r, out, ", ");
        choir__jinja_repr(r, out, dict->key[i]);
        choir__jinja_puts(r, out, ": ");
        choir__jinja_repr(r, out, dict->value[i]);
    }
    choir__jinja_puts(r, out, "}");
}

static void repr_range(choir__jinja_run *r, choir__jinja_out *out, const choir__jinja_list *l)
{
    char text[96];
    int64_t first = l->count ? l->item[0].as.whole : 0;
    int64_t step = l->count > 1 ? l->item[1].as.whole - first : 1;
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)first,
        (long long)(first + step * (int64_t)l->count));
    snprintf(text + n, sizeof text - (size_t)n, step == 1 ? ")" : ", %lld)", (long long)step);
    choir__jinja_puts(r, out, text);
}

static void repr_other(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v)
{
    if (v.kind == CHOIR__JINJA_STREAM)
        choir__jinja_fail(r, "a generator has no text: put '|list' before it");
    if (v.kind != CHOIR__JINJA_NAMESPACE)
        choir__jinja_fail(r, "a '%s' has no text", choir__jinja_type(v));
    choir__jinja_puts(r, out, "<Namespace ");
    repr_dict(r, out, v.as.dict);
    choir__jinja_puts(r, out, ">");
}

void choir__jinja_repr(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v)
{
    choir__jinja_deeper(r);
    switch (v.kind) {
    case CHOIR__JINJA_UNDEFINED: choir__jinja_puts(r, out, "Undefined"); break;
    case CHOIR__JINJA_TEXT: repr_text(r, out, v.as.text); break;
    case CHOIR__JINJA_LIST: repr_items(r, out, v.as.list, "[", "]"); break;
    case CHOIR__JINJA_TUPLE:
        repr_items(r, out, v.as.list, "(", v.as.list->count == 1 ? ",)" : ")");
        break;
    case CHOIR__JINJA_RANGE: repr_range(r, out, v.as.list); break;
    case CHOIR__JINJA_VIEW:
        choir__jinja_puts(r, out, v.as.list->name);
        repr_items(r, out, v.as.list, "([", "])");
        break;
    case CHOIR__JINJA_DICT: repr_dict(r, out, v.as.dict); break;
    case CHOIR__JINJA_NONE:
    case CHOIR__JINJA_BOOL:
    case CHOIR__JINJA_INT:
    case CHOIR__JINJA_REAL: choir__jinja_print(r, out, v); break;
    default: repr_other(r, out, v);
    }
    r->depth--;
}

void choir__jinja_print(choir__jinja_run *r, choir__jinja_out *out, choir__jinja_value v)
{
    char number[32];
    switch (v.kind) {
    case CHOIR__JINJA_ABSENT:
    case CHOIR__JINJA_UNDEFINED: break;
    case CHOIR__JINJA_NONE: choir__jinja_puts(r, out, "None"); break;
    case CHOIR__JINJA_BOOL: choir__jinja_puts(r, out, v.as.whole ? "True" : "False"); break;
    case CHOIR__JINJA_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.as.whole);
        choir__jinja_puts(r, out, number);
        break;
    case CHOIR__JINJA_REAL: choir__jinja_print_real(r, out, v.as.real); break;
    case CHOIR__JINJA_TEXT: choir__jinja_put(r, out, v.as.text->data, v.as.text->bytes); break;
    default: choir__jinja_repr(r, out, v);
    }
}

choir__jinja_text *choir__jinja_str(choir__jinja_run *r, choir__jinja_value v)
{
    choir__jinja_out out = {0};
    if (v.kind == CHOIR__JINJA_TEXT)
        return v.as.text;
    choir__jinja_print(r, &out, v);
    return choir__jinja_taken(r, &out).as.text;
}

/* --- Markup --- */

choir__jinja_value choir__jinja_safe(choir__jinja_run *r, choir__jinja_value v)
{
    const choir__jinja_text *text = choir__jinja_str(r, v);
    v = choir__jinja_borrow(r, text->data, text->bytes);
    v.as.text->safe = true;
    return v;
}

choir__jinja_value choir__jinja_escape(choir__jinja_run *r, choir__jinja_value v)
{
    static const char signs[] = "&<>'\"";
    static const char *const by[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const choir__jinja_text *text = choir__jinja_str(r, v);
    choir__jinja_out out = {0};
    for (size_t i = 0; i < text->bytes; i++) {
        const char *at = text->data[i] && !text->safe ? strchr(signs, text->data[i]) : NULL;
        if (at)
            choir__jinja_puts(r, &out, by[at - signs]);
        else
            choir__jinja_put(r, &out, text->data + i, 1);
    }
    return choir__jinja_safe(r, choir__jinja_taken(r, &out));
}
