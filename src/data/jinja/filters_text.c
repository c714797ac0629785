/* Jinja's filters of texts. Values of other kinds become texts first. */
#include <stdio.h>
#include <string.h>

#include "data/jinja/eval.h"

#define TEXT choir__jinja_str(s->r, a->self)
#define FILTER(name)                                                                           \
    static choir__jinja_value name(choir__jinja_state *s, const choir__jinja_arguments *a)

static bool given(choir__jinja_value v)
{
    return v.kind != CHOIR__JINJA_ABSENT && v.kind != CHOIR__JINJA_NONE;
}

FILTER(trim)
{
    return choir__jinja_strip(s->r, TEXT,
        given(a->item[0]) ? choir__jinja_as_text(s->r, a->item[0]) : NULL, CHOIR__JINJA_BOTH);
}

FILTER(upper)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_UPPER);
}

FILTER(lower)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_LOWER);
}

FILTER(title)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_WORDS);
}

FILTER(capitalize)
{
    return choir__jinja_cased(s->r, TEXT, CHOIR__JINJA_CAPITAL);
}

FILTER(string)
{
    choir__jinja_text *text = TEXT;
    return (choir__jinja_value){CHOIR__JINJA_TEXT, {.text = text}};
}

FILTER(replace)
{
    return choir__jinja_replace(s->r, TEXT, choir__jinja_str(s->r, a->item[0]),
        choir__jinja_str(s->r, a->item[1]), choir__jinja_as_int(s->r, a->item[2], -1));
}

FILTER(format)
{
    if (!a->count && a->named.count)
        return choir__jinja_percent(s->r, TEXT,
            (choir__jinja_value){CHOIR__JINJA_DICT, {.dict = (choir__jinja_dict *)&a->named}});
    choir__jinja_value all = choir__jinja_list_of(s->r, CHOIR__JINJA_TUPLE);
    for (size_t i = 0; i < a->count; i++)
        choir__jinja_append(s->r, all.as.list, a->item[i]);
    return choir__jinja_percent(s->r, TEXT, all);
}

FILTER(wordcount)
{
    choir__jinja_value words = choir__jinja_split(s->r, TEXT, NULL, -1, false);
    return choir__jinja_int((int64_t)words.as.list->count);
}

/* Returns the margin of a line: a number of blanks, or a text. */
static const choir__jinja_text *margin(choir__jinja_state *s, choir__jinja_value width)
{
    if (width.kind == CHOIR__JINJA_TEXT)
        return width.as.text;
    int64_t blanks = choir__jinja_as_int(s->r, width, 4);
    choir__jinja_value blank = choir__jinja_borrow(s->r, " ", 1);
    return choir__jinja_binary(s->r, "*", blank, choir__jinja_int(blanks)).as.text;
}

FILTER(indent)
{
    const choir__jinja_text *by = margin(s, a->item[0]);
    bool first = choir__jinja_truth(a->item[1]), blank = choir__jinja_truth(a->item[2]);
    choir__jinja_out whole = {0}, out = {0};
    choir__jinja_print(s->r, &whole, a->self);
    choir__jinja_puts(s->r, &whole, "\n"); /* as Jinja adds it, so a last line is one */
    choir__jinja_list *lines =
        choir__jinja_split_lines(s->r, choir__jinja_taken(s->r, &whole).as.text, false).as.list;
    for (size_t i = 0; i < lines->count; i++) {
        const choir__jinja_text *line = lines->item[i].as.text;
        if (i)
            choir__jinja_puts(s->r, &out, "\n");
        if (i ? blank || line->bytes : first)
            choir__jinja_put(s->r, &out, by->data, by->bytes);
        choir__jinja_put(s->r, &out, line->data, line->bytes);
    }
    return choir__jinja_taken(s->r, &out);
}

FILTER(center)
{
    choir__jinja_text *text = TEXT;
    int64_t width = choir__jinja_as_int(s->r, a->item[0], 80) - (int64_t)text->chars;
    choir__jinja_out out = {0};
    int64_t total = (int64_t)text->chars + (width > 0 ? width : 0);
    int64_t left = width > 0 ? width / 2 + (width & total & 1) : 0;
    for (int64_t i = 0; i < left; i++)
        choir__jinja_puts(s->r, &out, " ");
    choir__jinja_put(s->r, &out, text->data, text->bytes);
    for (int64_t i = left; i < width; i++)
        choir__jinja_puts(s->r, &out, " ");
    return choir__jinja_taken(s->r, &out);
}

FILTER(truncate)
{
    choir__jinja_text *text = TEXT;
    int64_t most = choir__jinja_as_int(s->r, a->item[0], 255);
    choir__jinja_value end =
        given(a->item[2]) ? a->item[2] : choir__jinja_borrow(s->r, "...", 3);
    choir__jinja_text *dots = choir__jinja_as_text(s->r, end);
    if ((int64_t)text->chars <= most + choir__jinja_as_int(s->r, a->item[3], 5))
        return (choir__jinja_value){CHOIR__JINJA_TEXT, {.text = text}};
    if (most < (int64_t)dots->chars)
        choir__jinja_fail(s->r, "truncate: expected a length of %zu or more, got %lld",
            dots->chars, (long long)most);
    choir__jinja_value cut = choir__jinja_part(s->r, text, 0, most - (int64_t)dots->chars);
    if (!choir__jinja_truth(a->item[1])) {
        choir__jinja_text blank = {" ", 1, 1, 0, false};
        const char *from = cut.as.text->data, *to = from + cut.as.text->bytes;
        const char *word = choir__jinja_find(s->r, &blank, from, to, true);
        if (word)
            cut = choir__jinja_borrow(s->r, from, (size_t)(word - from));
    }
    return choir__jinja_binary(s->r, "+", cut, end);
}

FILTER(escape)
{
    return choir__jinja_escape(s->r, a->self);
}

FILTER(safe)
{
    return choir__jinja_safe(s->r, a->self);
}

FILTER(urlencode)
{
    const choir__jinja_text *text = TEXT;
    choir__jinja_out out = {0};
    for (size_t i = 0; i < text->bytes; i++) {
        char c = text->data[i], code[4];
        bool plain = (choir__jinja_is_word(c) && !(c & 0x80)) || (c && strchr("-.~/", c));
        snprintf(code, sizeof code, "%%%02X", (unsigned char)c);
        choir__jinja_put(s->r, &out, plain ? &c : code, plain ? 1 : 3);
    }
    return choir__jinja_taken(s->r, &out);
}

const choir__jinja_builtin choir__jinja_filters_of_texts[] = {{"trim", "chars?", trim},
    {"upper", "", upper}, {"lower", "", lower}, {"title", "", title},
    {"capitalize", "", capitalize}, {"string", "", string}, {"safe", "", safe},
    {"replace", "old new count?", replace}, {"format", "...", format},
    {"wordcount", "", wordcount}, {"indent", "width? first? blank?", indent},
    {"center", "width?", center}, {"truncate", "length? killwords? end? leeway?", truncate},
    {"escape", "", escape}, {"e", "", escape}, {"urlencode", "", urlencode}, {0}};
