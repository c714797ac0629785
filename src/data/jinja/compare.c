/* Order, members, items and lengths of values, as Python has them. Sorting is a merge sort,
 * which is stable like Python's and stops at the first pair that cannot be compared. */
#include <string.h>

#include "base/utf8.h"
#include "data/jinja/value.h"

/* --- order --- */

/* The bytes of UTF-8 have the order of the code points. */
static int compare_texts(const choir__jinja_text *a, const choir__jinja_text *b)
{
    int order = memcmp(a->data, b->data, choir__min(a->bytes, b->bytes));
    return order ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static int compare_lists(choir__jinja_run *r, const choir__jinja_list *a,
    const choir__jinja_list *b, const char *sign)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        if (!choir__jinja_equal(r, a->item[i], b->item[i]))
            return choir__jinja_compare(r, a->item[i], b->item[i], sign);
    return (a->count > b->count) - (a->count < b->count);
}

int choir__jinja_compare(
    choir__jinja_run *r, choir__jinja_value a, choir__jinja_value b, const char *sign)
{
    choir__jinja_step(r, 1);
    if (choir__jinja_is_number(a) && choir__jinja_is_number(b)) {
        if (a.kind != CHOIR__JINJA_REAL && b.kind != CHOIR__JINJA_REAL)
            return (a.as.whole > b.as.whole) - (a.as.whole < b.as.whole);
        double x = choir__jinja_number(a), y = choir__jinja_number(b);
        return (x > y) - (x < y);
    }
    if (a.kind == CHOIR__JINJA_TEXT && b.kind == CHOIR__JINJA_TEXT) {
        choir__jinja_step(r, choir__min(a.as.text->bytes, b.as.text->bytes) / 16);
        return compare_texts(a.as.text, b.as.text);
    }
    if (a.kind == b.kind && (a.kind == CHOIR__JINJA_LIST || a.kind == CHOIR__JINJA_TUPLE)) {
        choir__jinja_deeper(r);
        int order = compare_lists(r, a.as.list, b.as.list, sign);
        r->depth--;
        return order;
    }
    for (int i = 0; i < 2; i++)
        if ((i ? b : a).kind == CHOIR__JINJA_UNDEFINED)
            choir__jinja_fail(r, "%s", (i ? b : a).as.why);
    choir__jinja_fail(r, "'%s' has no order for '%s' and '%s'", sign, choir__jinja_type(a),
        choir__jinja_type(b));
}

/* Merges the runs [from, middle) and [middle, to). */
static void merge(choir__jinja_run *r, const choir__jinja_value *key, const size_t *in,
    size_t *out, const size_t at[3], bool falls)
{
    size_t i = at[0], k = at[1];
    for (size_t n = at[0]; n < at[2]; n++) {
        bool first = k >= at[2];
        if (!first && i < at[1]) {
            int order = choir__jinja_compare(r, key[in[k]], key[in[i]], "<");
            first = falls ? order <= 0 : order >= 0;
        }
        out[n] = in[first ? i++ : k++];
    }
}

size_t *choir__jinja_order(
    choir__jinja_run *r, const choir__jinja_value *key, size_t count, bool falls)
{
    size_t *in = choir__jinja_get(r, (count + 1) * sizeof *in);
    size_t *out = choir__jinja_get(r, (count + 1) * sizeof *out);
    for (size_t i = 0; i < count; i++)
        in[i] = i;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width)
            merge(r, key, in, out,
                (size_t[]){
                    from, choir__min(from + width, count), choir__min(from + 2 * width, count)},
                falls);
        size_t *other = in;
        in = out;
        out = other;
    }
    return in;
}

/* --- members --- */

bool choir__jinja_contains(choir__jinja_run *r, choir__jinja_value in, choir__jinja_value v)
{
    if (in.kind == CHOIR__JINJA_TEXT) {
        if (v.kind != CHOIR__JINJA_TEXT)
            choir__jinja_fail(
                r, "'in' a text: expected a text before it, got '%s'", choir__jinja_type(v));
        choir__jinja_step(r, in.as.text->bytes / 16);
        return !v.as.text->bytes ||
               memmem(in.as.text->data, in.as.text->bytes, v.as.text->data, v.as.text->bytes);
    }
    if (in.kind == CHOIR__JINJA_DICT)
        return choir__jinja_dict_get(r, in.as.dict, v);
    if (in.kind == CHOIR__JINJA_UNDEFINED)
        return false;
    if (!choir__jinja_is_sequence(in))
        choir__jinja_fail(r, "'in': a '%s' has no members", choir__jinja_type(in));
    const choir__jinja_list *list = choir__jinja_items(r, in);
    for (size_t i = 0; i < list->count; i++)
        if (choir__jinja_equal(r, list->item[i], v))
            return true;
    return false;
}

static choir__jinja_list *characters(choir__jinja_run *r, const choir__jinja_text *text)
{
    choir__jinja_list *list = choir__jinja_list_of(r, CHOIR__JINJA_LIST).as.list;
    const char *at = text->data, *end = at + text->bytes;
    for (int n; at < end; at += n) {
        n = choir__max(choir__utf8_length(at, end), 1);
        choir__jinja_append(r, list, choir__jinja_borrow(r, at, (size_t)n));
    }
    return list;
}

/* A generator gives its items once. */
static choir__jinja_list *take(choir__jinja_run *r, choir__jinja_list *stream)
{
    choir__jinja_list *taken = choir__jinja_list_of(r, CHOIR__JINJA_LIST).as.list;
    *taken = *stream;
    stream->count = 0;
    return taken;
}

choir__jinja_list *choir__jinja_items(choir__jinja_run *r, choir__jinja_value v)
{
    if (v.kind == CHOIR__JINJA_STREAM)
        return take(r, v.as.list);
    if (choir__jinja_is_sequence(v))
        return v.as.list;
    choir__jinja_list *list = choir__jinja_list_of(r, CHOIR__JINJA_LIST).as.list;
    if (v.kind == CHOIR__JINJA_TEXT)
        return characters(r, v.as.text);
    if (v.kind == CHOIR__JINJA_DICT) {
        list->item = v.as.dict->key;
        list->count = list->room = v.as.dict->count;
        return list;
    }
    if (v.kind != CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(r, "'%s' object is not iterable", choir__jinja_type(v));
    return list;
}

int64_t choir__jinja_length(choir__jinja_run *r, choir__jinja_value v)
{
    if (v.kind == CHOIR__JINJA_TEXT)
        return (int64_t)v.as.text->chars;
    if (v.kind == CHOIR__JINJA_DICT)
        return (int64_t)v.as.dict->count;
    if (choir__jinja_is_sequence(v) && v.kind != CHOIR__JINJA_STREAM)
        return (int64_t)v.as.list->count;
    if (v.kind != CHOIR__JINJA_UNDEFINED)
        choir__jinja_fail(r, "a '%s' has no length%s", choir__jinja_type(v),
            v.kind == CHOIR__JINJA_STREAM ? ": put '|list' before it" : "");
    return 0;
}
