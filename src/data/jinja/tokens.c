/* A template as tokens, with the control of white space that transformers uses.
 *
 *     text  {%- tag -%}  text  {{ print }}  text  {# comment #}
 *
 * A `-` beside a brace strips all white space on that side. Else white space between the line's
 * beginning and a tag or comment is dropped (lstrip_blocks), and one line end behind it
 * (trim_blocks); a `+` keeps them. One line end at the template's end is dropped. */
#include <string.h>

#include "base/number.h"
#include "base/utf8.h"
#include "data/jinja/text.h"
#include "data/jinja/tree.h"

typedef struct cutter {
    choir__jinja_run *r;
    const char *at, *end;
    choir__jinja_token *token; /* (count) */
    size_t count, room;
    bool line_begins; /* no text of this line was before `at` */
    int line;
} cutter;

static choir__jinja_token *add(cutter *c, choir__jinja_token_kind kind)
{
    CHOIR__JINJA_GROW(c->r, c->token, c->count, c->room);
    choir__jinja_token *token = &c->token[c->count++];
    *token = (choir__jinja_token){.kind = kind, .line = c->line};
    return token;
}

/* Moves on to `to`, and counts lines. */
static void go(cutter *c, const char *to)
{
    for (; c->at < to; c->at++)
        c->line += *c->at == '\n';
    c->r->line = c->line;
}

static void fail_at(cutter *c, const char *why)
{
    c->r->line = c->line;
    choir__jinja_fail(c->r, "%s", why);
}

/* --- text between tags --- */

static void strip_line(cutter *c, const char *from, const char **to)
{
    const char *line = *to;
    while (line > from && line[-1] != '\n')
        line--;
    if ((line > from || c->line_begins) && choir__jinja_skip_space(line, *to) == *to)
        *to = line;
}

static void add_data(cutter *c, const char *to, bool strips_line, char sign)
{
    const char *from = c->at, *stop = to;
    if (sign == '-')
        stop = choir__jinja_back_space(from, to);
    else if (sign != '+' && strips_line)
        strip_line(c, from, &stop);
    if (stop > from)
        add(c, CHOIR__JINJA_DATA)->value =
            choir__jinja_text_of(c->r, from, (size_t)(stop - from));
    go(c, to);
}

static char sign_at(const cutter *c, const char *at)
{
    return at < c->end && (*at == '-' || *at == '+') ? *at : 0;
}

/* Steps over what closes a tag or comment, such as -%}, from its sign on, and the white space
 * that it takes with it. */
static void close_tag(cutter *c, bool takes_line)
{
    char sign = sign_at(c, c->at);
    const char *to = c->at + (sign != 0) + 2;
    if (sign == '-')
        to = choir__jinja_skip_space(to, c->end);
    else if (!sign && takes_line && to < c->end && *to == '\n')
        to++;
    c->line_begins = to[-1] == '\n';
    go(c, to);
}

/* Returns whether `%}` or alike, maybe with a sign before it, is at this place. */
static bool closes(const cutter *c, const char *at, const char *brace, bool plus)
{
    char sign = sign_at(c, at);
    if (sign == '+' && !plus)
        return false;
    at += sign != 0;
    return c->end - at >= 2 && at[0] == brace[0] && at[1] == brace[1];
}

static void skip_comment(cutter *c)
{
    const char *at = c->at + 2;
    while (at < c->end && !closes(c, at, "#}", true))
        at++;
    if (at >= c->end)
        fail_at(c, "the comment {# has no end #}");
    go(c, at);
    close_tag(c, true);
}

/* --- raw --- */

/* Returns the place behind `{% NAME`, or NULL. */
static const char *opens_named(const cutter *c, const char *at, const char *name)
{
    if (c->end - at < 2 || at[0] != '{' || at[1] != '%')
        return NULL;
    at += 2;
    at += sign_at(c, at) != 0;
    at = choir__jinja_skip_space(at, c->end);
    size_t n = strlen(name);
    if ((size_t)(c->end - at) < n || memcmp(at, name, n) != 0)
        return NULL;
    return choir__jinja_skip_space(at + n, c->end);
}

static bool take_raw(cutter *c)
{
    const char *inner = opens_named(c, c->at, "raw"), *at, *behind = NULL;
    if (!inner || !closes(c, inner, "%}", false))
        return false;
    go(c, inner);
    close_tag(c, false);
    for (at = c->at; at < c->end; at++) {
        behind = opens_named(c, at, "endraw");
        if (behind && closes(c, behind, "%}", true))
            break;
    }
    if (at >= c->end)
        fail_at(c, "the tag {% raw %} has no end {% endraw %}");
    c->line_begins = false;
    add_data(c, at, true, sign_at(c, at + 2));
    go(c, behind);
    close_tag(c, true);
    return true;
}

/* --- within a tag --- */

static const char *digits(const char *at, const char *end)
{
    while (at < end && (choir__jinja_is_digit(*at) ||
                           (*at == '_' && at + 1 < end && choir__jinja_is_digit(at[1]))))
        at++;
    return at;
}

/* Copies a number without its underscores. */
static void copy_number(char out[64], const char *from, const char *to)
{
    size_t n = 0;
    for (; from < to && n < 63; from++)
        if (*from != '_')
            out[n++] = *from;
    out[n] = '\0';
}

static void take_number(cutter *c)
{
    const char *to = digits(c->at, c->end), *more;
    char text[64];
    bool real = false;
    bool index = c->at[-1] == '.'; /* as in messages.0.role */
    if (!index && c->end - to > 1 && *to == '.' && choir__jinja_is_digit(to[1])) {
        to = digits(to + 1, c->end);
        real = true;
    }
    if (!index && c->end - to > 1 && (*to == 'e' || *to == 'E')) {
        more = to + 1 + (to[1] == '-' || to[1] == '+');
        if (more < c->end && choir__jinja_is_digit(*more)) {
            to = digits(more, c->end);
            real = true;
        }
    }
    copy_number(text, c->at, to);
    int64_t whole = 0;
    if (!real && (strlen(text) > 18 || to - c->at > 60))
        fail_at(c, "a number of more than 18 digits");
    for (const char *d = text; *d && !real; d++)
        whole = 10 * whole + (*d - '0');
    add(c, CHOIR__JINJA_CONST)->value =
        real ? choir__jinja_real(choir__number_read(text, NULL)) : choir__jinja_int(whole);
    go(c, to);
}

static void take_text(cutter *c)
{
    const char *to = c->at + 1;
    while (to < c->end && *to != *c->at)
        to += 1 + (*to == '\\' && to + 1 < c->end);
    if (to >= c->end)
        fail_at(c, "a text has no closing quote");
    add(c, CHOIR__JINJA_CONST)->value =
        choir__jinja_unescape(c->r, c->at + 1, (size_t)(to - c->at - 1));
    go(c, to + 1);
}

static void take_name(cutter *c)
{
    const char *to = c->at;
    while (to < c->end && choir__jinja_is_word(*to))
        to++;
    add(c, CHOIR__JINJA_NAME)->value = choir__jinja_text_of(c->r, c->at, (size_t)(to - c->at));
    go(c, to);
}

static void take_sign(cutter *c, char *brackets, size_t *open)
{
    static const char two[][3] = {"**", "//", "==", "!=", ">=", "<="};
    char sign[3] = {*c->at, 0, 0};
    for (size_t i = 0; i < CHOIR_COUNT(two); i++)
        if (c->end - c->at > 1 && !memcmp(c->at, two[i], 2))
            sign[1] = two[i][1];
    if (!strchr("+-*/%~[](){}=<>.:|,;", sign[0]) && !sign[1])
        choir__jinja_fail(c->r, "unknown character '%.1s' in a tag",
            (unsigned char)sign[0] < 0x80 ? sign : "?");
    const char *opens = strchr("([{", sign[0]), *closing = strchr(")]}", sign[0]);
    if (opens && *open == 1024)
        fail_at(c, "brackets are nested too deeply");
    if (opens)
        brackets[(*open)++] = ")]}"[opens - strchr("([{", '(')];
    if (closing && (!*open || brackets[--*open] != sign[0]))
        choir__jinja_fail(c->r, "unexpected '%s'", sign);
    strcpy(add(c, CHOIR__JINJA_SIGN)->sign, sign);
    go(c, c->at + strlen(sign));
}

static void take_tag(cutter *c, bool prints)
{
    const char *brace = prints ? "}}" : "%}";
    char brackets[1024];
    size_t open = 0;
    add(c, prints ? CHOIR__JINJA_OPENS_PRINT : CHOIR__JINJA_OPENS_TAG);
    go(c, c->at + 2 + (sign_at(c, c->at + 2) != 0));
    for (;;) {
        go(c, choir__jinja_skip_space(c->at, c->end));
        if (c->at >= c->end)
            fail_at(c, prints ? "{{ has no end }}" : "{% has no end %}");
        if (!open && closes(c, c->at, brace, !prints))
            break;
        if (choir__jinja_is_digit(*c->at))
            take_number(c);
        else if (choir__jinja_is_word(*c->at))
            take_name(c);
        else if (*c->at == '\'' || *c->at == '"')
            take_text(c);
        else
            take_sign(c, brackets, &open);
    }
    add(c, prints ? CHOIR__JINJA_CLOSES_PRINT : CHOIR__JINJA_CLOSES_TAG);
    close_tag(c, !prints);
}

/* --- the template --- */

static const char *next_brace(const cutter *c)
{
    const char *at = c->at;
    while ((at = memchr(at, '{', (size_t)(c->end - at))) && c->end - at > 1 &&
           !strchr("{%#", at[1]))
        at++;
    return at && c->end - at > 1 ? at : NULL;
}

static void cut(cutter *c)
{
    const char *brace;
    while (c->at < c->end && (brace = next_brace(c))) {
        char sign = sign_at(c, brace + 2);
        add_data(c, brace, brace[1] != '{', sign);
        if (brace[1] == '#')
            skip_comment(c);
        else if (brace[1] == '{' || !take_raw(c))
            take_tag(c, brace[1] == '{');
    }
    if (c->at < c->end)
        add_data(c, c->end, false, '+');
    add(c, CHOIR__JINJA_END);
}

choir__jinja_token *choir__jinja_tokens(choir__jinja_run *r, const char *text, size_t bytes)
{
    char *copy = choir__jinja_get(r, bytes + 1);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) {
        bool pair = text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n';
        if (!pair)
            copy[n++] = text[i] == '\r' ? '\n' : text[i];
    }
    n -= n && copy[n - 1] == '\n';
    cutter c = {.r = r, .at = copy, .end = copy + n, .line_begins = true, .line = 1};
    cut(&c);
    for (size_t i = 0; i < c.count; i++) /* now, since renders share the texts */
        if (c.token[i].kind == CHOIR__JINJA_NAME || c.token[i].kind == CHOIR__JINJA_CONST)
            choir__jinja_hash(r, c.token[i].value);
    return c.token;
}
