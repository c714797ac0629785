/* Texts as Python cuts, strips, searches and replaces them, by characters. */
#include "data/jinja/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

bool choir__jinja_is_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= '\t' && code <= '\r') || (code >= 0x1C && code <= 0x1F);
    return choir__unicode_class(code) == CHOIR__SPACE;
}

const char *choir__jinja_skip_space(const char *at, const char *end)
{
    uint32_t code;
    int n;
    while (at < end && (n = choir__utf8_decode(at, end, &code)) && choir__jinja_is_space(code))
        at += n;
    return at;
}

/* Returns the beginning of the character before `at`. */
static const char *back(const char *from, const char *at)
{
    do
        at--;
    while (at > from && ((unsigned char)*at & 0xC0) == 0x80);
    return at;
}

const char *choir__jinja_back_space(const char *from, const char *at)
{
    uint32_t code;
    while (at > from) {
        const char *before = back(from, at);
        if (!choir__utf8_decode(before, at, &code) || !choir__jinja_is_space(code))
            break;
        at = before;
    }
    return at;
}

/* --- escapes --- */

static const char *number_escape(choir__jinja_run *r, choir__jinja_out *out, const char *at,
    const char *end, int base, int most)
{
    char digits[12] = "", *stop;
    int n = 0;
    for (; n < most && at + n < end; n++)
        digits[n] = at[n];
    unsigned long code = strtoul(digits, &stop, base);
    if (stop == digits || (base == 16 && stop - digits != most) || code >= CHOIR__CODE_POINTS ||
        (code >= 0xD800 && code < 0xE000))
        choir__jinja_fail(r, "an escape in a text: expected the number of a character");
    choir__jinja_put_code(r, out, (uint32_t)code);
    return at + (stop - digits);
}

/* Writes what the escape \at stands for; returns the place behind it. */
static const char *escape(
    choir__jinja_run *r, choir__jinja_out *out, const char *at, const char *end)
{
    static const char names[] = "nrt\\'\"abfv", stand_for[] = "\n\r\t\\'\"\a\b\f\v";
    const char *known = *at ? strchr(names, *at) : NULL;
    if (known)
        choir__jinja_put(r, out, &stand_for[known - names], 1);
    else if (*at == 'x' || *at == 'u' || *at == 'U')
        return number_escape(r, out, at + 1, end, 16, *at == 'x' ? 2 : *at == 'u' ? 4 : 8);
    else if (*at >= '0' && *at <= '7')
        return number_escape(r, out, at, end, 8, 3);
    else if (*at == 'N')
        choir__jinja_fail(r, "an escape in a text: \\N is outside of what templates use");
    else if (*at != '\n') {
        choir__jinja_puts(r, out, "\\");
        return at; /* stays as it is */
    }
    return at + 1;
}

choir__jinja_value choir__jinja_unescape(choir__jinja_run *r, const char *text, size_t bytes)
{
    choir__jinja_out out = {0};
    const char *at = text, *end = text + bytes, *next;
    if (!memchr(text, '\\', bytes))
        return choir__jinja_text_of(r, text, bytes);
    while (at < end && (next = memchr(at, '\\', (size_t)(end - at)))) {
        choir__jinja_put(r, &out, at, (size_t)(next - at));
        at = escape(r, &out, next + 1, end);
    }
    choir__jinja_put(r, &out, at, (size_t)(end - at));
    return choir__jinja_taken(r, &out);
}

/* --- parts --- */

static const char *char_at(const choir__jinja_text *t, int64_t index)
{
    if (t->chars == t->bytes)
        return t->data + index;
    const char *at = t->data, *end = at + t->bytes;
    for (; index > 0 && at < end; index--)
        at += choir__max(choir__utf8_length(at, end), 1);
    return at;
}

choir__jinja_value choir__jinja_part(
    choir__jinja_run *r, choir__jinja_text *t, int64_t from, int64_t to)
{
    if (from >= to)
        return choir__jinja_borrow(r, "", 0);
    choir__jinja_step(r, t->chars == t->bytes ? 0 : t->bytes / 8);
    const char *first = char_at(t, from);
    return choir__jinja_borrow(r, first, (size_t)(char_at(t, to) - first));
}

/* Returns whether the character is one of the set, or white space without a set. */
static bool is_of(const char *at, int n, uint32_t code, const choir__jinja_text *set)
{
    return set ? memmem(set->data, set->bytes, at, (size_t)n) != NULL
               : choir__jinja_is_space(code);
}

choir__jinja_value choir__jinja_strip(choir__jinja_run *r, choir__jinja_text *t,
    const choir__jinja_text *set, choir__jinja_side side)
{
    const char *from = t->data, *to = from + t->bytes, *before;
    uint32_t code;
    int n;
    while (side & CHOIR__JINJA_LEFT && from < to && (n = choir__utf8_decode(from, to, &code)) &&
           is_of(from, n, code, set))
        from += n;
    while (side & CHOIR__JINJA_RIGHT && from < to && (before = back(from, to)) &&
           (n = choir__utf8_decode(before, to, &code)) && is_of(before, n, code, set))
        to = before;
    choir__jinja_step(r, set ? set->bytes / 16 * (t->bytes - (size_t)(to - from)) : 0);
    return choir__jinja_borrow(r, from, (size_t)(to - from));
}

const char *choir__jinja_find(choir__jinja_run *r, const choir__jinja_text *part,
    const char *from, const char *to, bool last)
{
    choir__jinja_step(r, (size_t)(to - from) / 16 + 1);
    if (!last || !part->bytes)
        return part->bytes ? memmem(from, (size_t)(to - from), part->data, part->bytes)
                           : (last ? to : from);
    if ((size_t)(to - from) < part->bytes)
        return NULL;
    for (size_t at = (size_t)(to - from) + 1 - part->bytes; at-- > 0;) {
        choir__jinja_step(r, part->bytes / 64);
        if (!memcmp(from + at, part->data, part->bytes))
            return from + at;
    }
    return NULL;
}

static void add_part(
    choir__jinja_run *r, choir__jinja_list *list, const char *from, const char *to)
{
    choir__jinja_append(r, list, choir__jinja_borrow(r, from, (size_t)(to - from)));
}

static void turn_round(choir__jinja_list *list)
{
    for (size_t i = 0, k = list->count; i + 1 < k; i++) {
        choir__jinja_value first = list->item[i];
        list->item[i] = list->item[--k];
        list->item[k] = first;
    }
}

static const char *word_end(const char *at, const char *end)
{
    uint32_t code;
    int n;
    while (
        at < end && !((n = choir__utf8_decode(at, end, &code)) && choir__jinja_is_space(code)))
        at += choir__max(n, 1);
    return at;
}

static const char *word_begin(const char *from, const char *at)
{
    while (at > from && choir__jinja_back_space(from, at) == at)
        at = back(from, at);
    return at;
}

static void split_words(choir__jinja_run *r, choir__jinja_list *list,
    const choir__jinja_text *t, int64_t most, bool right)
{
    const char *from = t->data,
               *to = from + t->bytes; /* the last part keeps its outer blanks */
    const char *at = choir__jinja_skip_space(from, to);
    const char *end = choir__jinja_back_space(at, to), *cut;
    while (at < end) {
        if (most >= 0 && !most--) {
            add_part(r, list, right ? from : at, right ? end : to);
            return;
        }
        cut = right ? word_begin(at, end) : word_end(at, end);
        add_part(r, list, right ? cut : at, right ? end : cut);
        if (right)
            end = choir__jinja_back_space(at, cut);
        else
            at = choir__jinja_skip_space(cut, end);
    }
}

static void split_at(choir__jinja_run *r, choir__jinja_list *list, const choir__jinja_text *t,
    const choir__jinja_text *by, int64_t most, bool right)
{
    const char *at = t->data, *end = at + t->bytes, *cut;
    while ((most < 0 || most--) && (cut = choir__jinja_find(r, by, at, end, right))) {
        add_part(r, list, right ? cut + by->bytes : at, right ? end : cut);
        if (right)
            end = cut;
        else
            at = cut + by->bytes;
    }
    add_part(r, list, at, end);
}

choir__jinja_value choir__jinja_split(choir__jinja_run *r, choir__jinja_text *t,
    const choir__jinja_text *by, int64_t most, bool right)
{
    choir__jinja_value list = choir__jinja_list_of(r, CHOIR__JINJA_LIST);
    if (by && !by->bytes)
        choir__jinja_fail(r, "split: the separator is empty");
    if (by)
        split_at(r, list.as.list, t, by, most, right);
    else
        split_words(r, list.as.list, t, most, right);
    if (right)
        turn_round(list.as.list);
    return list;
}

static bool ends_line(uint32_t code)
{
    return (code >= '\n' && code <= '\r') || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

choir__jinja_value choir__jinja_split_lines(
    choir__jinja_run *r, choir__jinja_text *t, bool keep)
{
    choir__jinja_value list = choir__jinja_list_of(r, CHOIR__JINJA_LIST);
    const char *at = t->data, *end = at + t->bytes, *from = at;
    uint32_t code = 0;
    for (int n; at < end; at += n) {
        n = choir__max(choir__utf8_decode(at, end, &code), 1);
        if (!ends_line(code))
            continue;
        if (code == '\r' && at + 1 < end && at[1] == '\n')
            n = 2;
        add_part(r, list.as.list, from, keep ? at + n : at);
        from = at + n;
    }
    if (from < end)
        add_part(r, list.as.list, from, end);
    return list;
}

/* An empty `old` stands between all characters. */
static choir__jinja_value put_between(
    choir__jinja_run *r, const choir__jinja_text *t, const choir__jinja_text *by, int64_t most)
{
    choir__jinja_out out = {0};
    const char *at = t->data, *end = at + t->bytes;
    while (most < 0 || most--) {
        choir__jinja_put(r, &out, by->data, by->bytes);
        if (at >= end)
            break;
        int n = choir__max(choir__utf8_length(at, end), 1);
        choir__jinja_put(r, &out, at, (size_t)n);
        at += n;
    }
    choir__jinja_put(r, &out, at, (size_t)(end - at));
    return choir__jinja_taken(r, &out);
}

choir__jinja_value choir__jinja_replace(choir__jinja_run *r, choir__jinja_text *t,
    const choir__jinja_text *old, const choir__jinja_text *by, int64_t most)
{
    choir__jinja_out out = {0};
    const char *at = t->data, *end = at + t->bytes, *found;
    if (!old->bytes)
        return put_between(r, t, by, most);
    choir__jinja_step(r, t->bytes / 16);
    while ((most < 0 || most--) &&
           (found = memmem(at, (size_t)(end - at), old->data, old->bytes))) {
        choir__jinja_put(r, &out, at, (size_t)(found - at));
        choir__jinja_put(r, &out, by->data, by->bytes);
        at = found + old->bytes;
    }
    choir__jinja_put(r, &out, at, (size_t)(end - at));
    return choir__jinja_taken(r, &out);
}
