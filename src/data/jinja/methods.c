/* Methods of texts, dicts and lists, as Python has them. */
#include <string.h>

#include "base/utf8.h"
#include "data/jinja/eval.h"
#include "data/tokenizer/unicode.h"

#define METHOD(name)                                                                           \
    static choir__jinja_value method_##name(                                                   \
        choir__jinja_state *s, const choir__jinja_arguments *a)
#define TEXT a->self.as.text

static bool given(choir__jinja_value v)
{
    return v.kind != CHOIR__JINJA_ABSENT && v.kind != CHOIR__JINJA_NONE;
}

static choir__jinja_text *text_or_null(choir__jinja_run *r, choir__jinja_value v)
{
    return given(v) ? choir__jinja_as_text(r, v) : NULL;
}

/* --- stripping and splitting --- */

METHOD(strip)
{
    return choir__jinja_strip(s->r, TEXT, text_or_null(s->r, a->item[0]), CHOIR__JINJA_BOTH);
}

METHOD(lstrip)
{
    return choir__jinja_strip(s->r, TEXT, text_or_null(s->r, a->item[0]), CHOIR__JINJA_LEFT);
}

METHOD(rstrip)
{
    return choir__jinja_strip(s->r, TEXT, text_or_null(s->r, a->item[0]), CHOIR__JINJA_RIGHT);
}

METHOD(split)
{
    return choir__jinja_split(s->r, TEXT, text_or_null(s->r, a->item[0]),
        choir__jinja_as_int(s->r, a->item[1], -1), false);
}

METHOD(rsplit)
{
    return choir__jinja_split(s->r, TEXT, text_or_null(s->r, a->item[0]),
        choir__jinja_as_int(s->r, a->item[1], -1), true);
}

METHOD(splitlines)
{
    return choir__jinja_split_lines(s->r, TEXT, choir__jinja_truth(a->item[0]));
}

static choir__jinja_value parted(
    choir__jinja_state *s, const choir__jinja_arguments *a, bool right)
{
    const choir__jinja_text *by = choir__jinja_as_text(s->r, a->item[0]);
    const char *from = TEXT->data, *to = from + TEXT->bytes;
    const char *at = choir__jinja_find(s->r, by, from, to, right);
    choir__jinja_value v = choir__jinja_list_of(s->r, CHOIR__JINJA_TUPLE);
    const char *cut = at ? at : right ? from : to, *behind = at ? at + by->bytes : cut;
    choir__jinja_append(s->r, v.as.list, choir__jinja_borrow(s->r, from, (size_t)(cut - from)));
    choir__jinja_append(
        s->r, v.as.list, choir__jinja_borrow(s->r, cut, (size_t)(behind - cut)));
    choir__jinja_append(
        s->r, v.as.list, choir__jinja_borrow(s->r, behind, (size_t)(to - behind)));
    return v;
}

METHOD(partition)
{
    return parted(s, a, false);
}

METHOD(rpartition)
{
    return parted(s, a, true);
}

METHOD(replace)
{
    return choir__jinja_replace(s->r, TEXT, choir__jinja_as_text(s->r, a->item[0]),
        choir__jinja_as_text(s->r, a->item[1]), choir__jinja_as_int(s->r, a->item[2], -1));
}

METHOD(join)
{
    const choir__jinja_list *list = choir__jinja_items(s->r, a->item[0]);
    choir__jinja_out out = {0};
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            choir__jinja_print(s->r, &out, a->self);
        choir__jinja_as_text(s->r, list->item[i]);
        choir__jinja_print(s->r, &out, list->item[i]);
    }
    return choir__jinja_taken(s->r, &out);
}

/* --- case --- */

METHOD(upper)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_UPPER);
}

METHOD(lower)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_LOWER);
}

METHOD(title)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_TITLE);
}

METHOD(capitalize)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_CAPITAL);
}

METHOD(swapcase)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_SWAP);
}

METHOD(islower)
{
    (void)s;
    return choir__jinja_bool(choir__jinja_is_lower(TEXT));
}

METHOD(isupper)
{
    (void)s;
    return choir__jinja_bool(choir__jinja_is_upper(TEXT));
}

/* --- classes --- */

static bool all_are(
    const choir__jinja_text *t, bool letters, bool numbers, bool digits_alone, bool space)
{
    const char *at = t->data, *end = at + t->bytes;
    uint32_t code = 0;
    for (int n; at < end; at += n) {
        n = choir__max(choir__utf8_decode(at, end, &code), 1);
        choir__class class = choir__unicode_class(code);
        bool is = (letters && class == CHOIR__LETTER) || (numbers && class == CHOIR__NUMBER) ||
                  (space && choir__jinja_is_space(code));
        if (!is || (digits_alone && code < 0x80 && !choir__jinja_is_digit((char)code)))
            return false;
    }
    return t->bytes != 0;
}

METHOD(isalpha)
{
    (void)s;
    return choir__jinja_bool(all_are(TEXT, true, false, false, false));
}

METHOD(isalnum)
{
    (void)s;
    return choir__jinja_bool(all_are(TEXT, true, true, false, false));
}

METHOD(isdigit)
{
    (void)s;
    return choir__jinja_bool(all_are(TEXT, false, true, true, false));
}

METHOD(isspace)
{
    (void)s;
    return choir__jinja_bool(all_are(TEXT, false, false, false, true));
}

METHOD(isascii)
{
    (void)s;
    return choir__jinja_bool(
        TEXT->chars == TEXT->bytes && choir__is_utf8(TEXT->data, TEXT->bytes));
}

/* --- searching --- */

static bool fits_end(const choir__jinja_text *t, const choir__jinja_text *part, bool at_end)
{
    return part->bytes <= t->bytes &&
           !memcmp(t->data + (at_end ? t->bytes - part->bytes : 0), part->data, part->bytes);
}

/* The part may be a tuple of several. */
static choir__jinja_value has_end(
    choir__jinja_state *s, const choir__jinja_arguments *a, bool at_end)
{
    choir__jinja_text *t = TEXT;
    if (given(a->item[1]) || given(a->item[2]))
        t = choir__jinja_slice(s, a->self, a->item[1], a->item[2], (choir__jinja_value){0})
                .as.text;
    if (a->item[0].kind != CHOIR__JINJA_TUPLE)
        return choir__jinja_bool(fits_end(t, choir__jinja_as_text(s->r, a->item[0]), at_end));
    for (size_t i = 0; i < a->item[0].as.list->count; i++)
        if (fits_end(t, choir__jinja_as_text(s->r, a->item[0].as.list->item[i]), at_end))
            return choir__jinja_bool(true);
    return choir__jinja_bool(false);
}

METHOD(startswith)
{
    return has_end(s, a, false);
}

METHOD(endswith)
{
    return has_end(s, a, true);
}

static int64_t chars_before(choir__jinja_run *r, const choir__jinja_text *t, const char *at)
{
    return (int64_t)choir__jinja_borrow(r, t->data, (size_t)(at - t->data)).as.text->chars;
}

/* Returns the index of a part, or -1. */
static int64_t place_of(choir__jinja_state *s, const choir__jinja_arguments *a, bool last)
{
    const choir__jinja_text *part = choir__jinja_as_text(s->r, a->item[0]);
    int64_t from = choir__jinja_as_int(s->r, a->item[1], 0);
    int64_t to = choir__jinja_as_int(s->r, a->item[2], (int64_t)TEXT->chars);
    int64_t chars = (int64_t)TEXT->chars;
    from = choir__max(from < 0 ? from + chars : from, 0);
    to = choir__min(to < 0 ? to + chars : to, chars);
    if (from > to)
        return -1;
    const choir__jinja_text *window = choir__jinja_part(s->r, TEXT, from, to).as.text;
    const char *at =
        choir__jinja_find(s->r, part, window->data, window->data + window->bytes, last);
    return at ? from + chars_before(s->r, window, at) : -1;
}

METHOD(find)
{
    return choir__jinja_int(place_of(s, a, false));
}

METHOD(rfind)
{
    return choir__jinja_int(place_of(s, a, true));
}

METHOD(index)
{
    int64_t at = place_of(s, a, false);
    if (at < 0)
        choir__jinja_fail(s->r, "index: the text has no such part");
    return choir__jinja_int(at);
}

METHOD(count)
{
    const choir__jinja_text *part = choir__jinja_as_text(s->r, a->item[0]);
    const char *at = TEXT->data, *end = at + TEXT->bytes;
    int64_t n = 0;
    if (!part->bytes)
        return choir__jinja_int((int64_t)TEXT->chars + 1);
    for (; (at = choir__jinja_find(s->r, part, at, end, false)); at += part->bytes)
        n++;
    return choir__jinja_int(n);
}

METHOD(removeprefix)
{
    const choir__jinja_text *part = choir__jinja_as_text(s->r, a->item[0]);
    if (!fits_end(TEXT, part, false))
        return a->self;
    return choir__jinja_borrow(s->r, TEXT->data + part->bytes, TEXT->bytes - part->bytes);
}

METHOD(removesuffix)
{
    const choir__jinja_text *part = choir__jinja_as_text(s->r, a->item[0]);
    if (!fits_end(TEXT, part, true))
        return a->self;
    return choir__jinja_borrow(s->r, TEXT->data, TEXT->bytes - part->bytes);
}

/* --- padding --- */

static choir__jinja_value padded(
    choir__jinja_state *s, const choir__jinja_arguments *a, bool left, char zero)
{
    const choir__jinja_text *by =
        text_or_null(s->r, zero ? (choir__jinja_value){0} : a->item[1]);
    int64_t more = choir__jinja_as_int(s->r, a->item[0], 0) - (int64_t)TEXT->chars;
    choir__jinja_out out = {0};
    bool sign = zero && TEXT->bytes && strchr("+-", TEXT->data[0]);
    if (sign)
        choir__jinja_put(s->r, &out, TEXT->data, 1);
    if (!left)
        choir__jinja_print(s->r, &out, a->self);
    for (; more > 0; more--)
        choir__jinja_put(s->r, &out, by ? by->data : zero ? "0" : " ", by ? by->bytes : 1);
    if (left)
        choir__jinja_put(s->r, &out, TEXT->data + sign, TEXT->bytes - sign);
    return choir__jinja_taken(s->r, &out);
}

METHOD(ljust)
{
    return padded(s, a, false, 0);
}

METHOD(rjust)
{
    return padded(s, a, true, 0);
}

METHOD(zfill)
{
    return padded(s, a, true, '0');
}

METHOD(format)
{
    return choir__jinja_braces(s, TEXT, a);
}

const choir__jinja_builtin choir__jinja_methods_of_texts[] = {{"strip", "chars?", method_strip},
    {"lstrip", "chars?", method_lstrip}, {"rstrip", "chars?", method_rstrip},
    {"split", "sep? maxsplit?", method_split}, {"rsplit", "sep? maxsplit?", method_rsplit},
    {"splitlines", "keepends?", method_splitlines}, {"partition", "sep", method_partition},
    {"rpartition", "sep", method_rpartition}, {"replace", "old new count?", method_replace},
    {"join", "iterable", method_join}, {"upper", "", method_upper}, {"lower", "", method_lower},
    {"casefold", "", method_lower}, {"title", "", method_title},
    {"capitalize", "", method_capitalize}, {"swapcase", "", method_swapcase},
    {"islower", "", method_islower}, {"isupper", "", method_isupper},
    {"isalpha", "", method_isalpha}, {"isalnum", "", method_isalnum},
    {"isdigit", "", method_isdigit}, {"isdecimal", "", method_isdigit},
    {"isnumeric", "", method_isdigit}, {"isspace", "", method_isspace},
    {"isascii", "", method_isascii}, {"startswith", "prefix start? end?", method_startswith},
    {"endswith", "suffix start? end?", method_endswith},
    {"find", "sub start? end?", method_find}, {"rfind", "sub start? end?", method_rfind},
    {"index", "sub start? end?", method_index}, {"count", "sub", method_count},
    {"removeprefix", "prefix", method_removeprefix},
    {"removesuffix", "suffix", method_removesuffix}, {"ljust", "width fillchar?", method_ljust},
    {"rjust", "width fillchar?", method_rjust}, {"zfill", "width", method_zfill},
    {"format", "...", method_format}, {0}};

/* --- dicts --- */

static choir__jinja_value view(choir__jinja_run *r, const char *name)
{
    choir__jinja_value v = choir__jinja_list_of(r, CHOIR__JINJA_VIEW);
    v.as.list->name = name;
    return v;
}

METHOD(keys)
{
    choir__jinja_value v = view(s->r, "dict_keys");
    for (size_t i = 0; i < a->self.as.dict->count; i++)
        choir__jinja_append(s->r, v.as.list, a->self.as.dict->key[i]);
    return v;
}

METHOD(values)
{
    choir__jinja_value v = view(s->r, "dict_values");
    for (size_t i = 0; i < a->self.as.dict->count; i++)
        choir__jinja_append(s->r, v.as.list, a->self.as.dict->value[i]);
    return v;
}

METHOD(items)
{
    choir__jinja_value v = view(s->r, "dict_items");
    const choir__jinja_dict *d = a->self.as.dict;
    for (size_t i = 0; i < d->count; i++)
        choir__jinja_append(s->r, v.as.list, choir__jinja_pair(s->r, d->key[i], d->value[i]));
    return v;
}

METHOD(get)
{
    const choir__jinja_value *found = choir__jinja_dict_get(s->r, a->self.as.dict, a->item[0]);
    return found                                    ? *found
           : a->item[1].kind == CHOIR__JINJA_ABSENT ? choir__jinja_none()
                                                    : a->item[1];
}

METHOD(same)
{
    (void)s;
    return a->self;
}

const choir__jinja_builtin choir__jinja_methods_of_dicts[] = {{"keys", "", method_keys},
    {"values", "", method_values}, {"items", "", method_items},
    {"get", "key default?", method_get}, {"copy", "", method_same}, {0}};

/* --- lists --- */

METHOD(list_count)
{
    int64_t n = 0;
    for (size_t i = 0; i < a->self.as.list->count; i++)
        n += choir__jinja_equal(s->r, a->self.as.list->item[i], a->item[0]);
    return choir__jinja_int(n);
}

METHOD(list_index)
{
    for (size_t i = 0; i < a->self.as.list->count; i++)
        if (choir__jinja_equal(s->r, a->self.as.list->item[i], a->item[0]))
            return choir__jinja_int((int64_t)i);
    choir__jinja_fail(s->r, "index: the list has no such item");
}

const choir__jinja_builtin choir__jinja_methods_of_lists[] = {
    {"count", "value", method_list_count}, {"index", "value", method_list_index},
    {"copy", "", method_same}, {0}};
