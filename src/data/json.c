/* The parser of json.h: one pass, eight bytes of a string at a time. */
#include "data/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"
#include "base/utf8.h"

enum { DEEPEST = 512 };

typedef struct parser {
    char *at, *end;
    choir__json_nodes *nodes;
    const char *wrong; /* NULL so far */
} parser;

static bool fail(parser *p, const char *wrong)
{
    p->wrong = wrong;
    return false;
}

static void skip_space(parser *p)
{
    while (
        p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

choir__json *choir__json_add(choir__json_nodes *n, choir__json node)
{
    if (n->count == n->room) {
        n->room = n->room ? 2 * n->room : 64;
        n->node = choir__realloc(n->node, n->room * sizeof *n->node);
    }
    n->node[n->count] = node;
    return &n->node[n->count++];
}

/* --- strings --- */

/* Sets the highest bit of each of eight bytes that is a quote, a backslash, a control character
 * or not ASCII. Bytes above a marked one may be marked as well. */
static uint64_t specials(uint64_t v)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t quote = v ^ 0x22 * ones, slash = v ^ 0x5c * ones;
    return ((quote - ones) | (slash - ones) | (v - 0x20 * ones) | v) & tops;
}

/* Returns the value of a hexadecimal digit; -1: not a digit. */
static int digit_of(char c)
{
    static const int8_t values[256] = {['0'] = 1,
        ['1'] = 2,
        ['2'] = 3,
        ['3'] = 4,
        ['4'] = 5,
        ['5'] = 6,
        ['6'] = 7,
        ['7'] = 8,
        ['8'] = 9,
        ['9'] = 10,
        ['a'] = 11,
        ['b'] = 12,
        ['c'] = 13,
        ['d'] = 14,
        ['e'] = 15,
        ['f'] = 16,
        ['A'] = 11,
        ['B'] = 12,
        ['C'] = 13,
        ['D'] = 14,
        ['E'] = 15,
        ['F'] = 16};
    return values[(unsigned char)c] - 1;
}

/* Reads four hexadecimal digits at text; -1: not digits. */
static int32_t read_code(const char *text, const char *end)
{
    if (end - text < 4)
        return -1;
    int a = digit_of(text[0]), b = digit_of(text[1]), c = digit_of(text[2]),
        d = digit_of(text[3]);
    return (a | b | c | d) < 0 ? -1 : a << 12 | b << 8 | c << 4 | d;
}

/* Reads \uXXXX, or two that form one character, from after the u. */
static bool read_unicode(parser *p, char **to)
{
    int32_t code = read_code(p->at, p->end), low;
    if (code < 0)
        return fail(p, "expected four hexadecimal digits behind \\u");
    if (code == 0)
        return fail(p, "\\u0000 cannot be part of a text");
    bool first = code >= 0xd800 && code < 0xdc00;
    if (first) {
        low = p->end - p->at >= 10 && p->at[4] == '\\' && p->at[5] == 'u'
                  ? read_code(p->at + 6, p->end)
                  : -1;
        if (low >= 0xdc00 && low < 0xe000)
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    if (code >= 0xd800 && code < 0xe000)
        return fail(p, "\\u with half of a character: expected both surrogates");
    p->at += first ? 10 : 4;
    *to += choir__utf8_encode((uint32_t)code, *to); /* shorter than its escape, with the '\0' */
    return true;
}

static bool read_escape(parser *p, char **to)
{
    static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    p->at++;
    if (p->at == p->end)
        return fail(p, "a string has no end");
    if (*p->at == 'u') {
        p->at++;
        return read_unicode(p, to);
    }
    const char *known = *p->at ? strchr(names, *p->at) : NULL;
    if (!known)
        return fail(p, "unknown escape: expected \\\" \\\\ \\/ \\b \\f \\n \\r \\t or \\u");
    *(*to)++ = values[known - names];
    p->at++;
    return true;
}

/* Moves the characters [from, at) to *to, which is at or below them. */
static void move(char **to, const char *from, const char *at)
{
    if (*to != from)
        memmove(*to, from, (size_t)(at - from));
    *to += at - from;
}

/* Moves the characters before the next quote or backslash to *to <= p->at. */
static bool copy_plain(parser *p, char **to)
{
    char *from = p->at, *at = from, *end = p->end;
    for (;;) {
        uint64_t eight, marks = 0;
        while (end - at >= 8 && (memcpy(&eight, at, 8), !(marks = specials(eight))))
            at += 8;
        at += marks ? __builtin_ctzll(marks) / 8 : 0;
        p->at = at;
        if (at == end || *at == '"' || *at == '\\')
            break;
        if ((unsigned char)*at < 0x20)
            return fail(
                p, "a control character within a string: expected an escape such as \\n");
        do { /* characters that are not ASCII come together */
            int length = choir__utf8_length(at, end);
            p->at = at;
            if (!length)
                return fail(p, "expected UTF-8");
            at += length;
        } while (at < end && *at & 0x80);
    }
    move(to, from, at);
    return true;
}

static bool read_string(parser *p, choir__json *node)
{
    char *text = ++p->at, *to = text;
    for (;;) {
        if (!copy_plain(p, &to))
            return false;
        if (p->at == p->end)
            return fail(p, "a string has no end");
        if (*p->at == '"')
            break;
        do {
            if (!read_escape(p, &to))
                return false;
        } while (p->at < p->end && *p->at == '\\');
    }
    p->at++;
    *to = '\0';
    *node = (choir__json){
        CHOIR__JSON_STRING, .nodes = 1, .text = text, .bytes = (size_t)(to - text)};
    return true;
}

/* --- numbers and words --- */

static bool read_digits(parser *p)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > from ? true : fail(p, "expected a digit");
}

static bool is_next(const parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool read_number(parser *p, choir__json *node)
{
    const char *text = p->at;
    bool real = false;
    p->at += *p->at == '-';
    if (is_next(p, '0'))
        p->at++;
    else if (!read_digits(p))
        return false;
    if (is_next(p, '.')) {
        real = true;
        p->at++;
        if (!read_digits(p))
            return false;
    }
    if (is_next(p, 'e') || is_next(p, 'E')) {
        real = true;
        p->at++;
        p->at += is_next(p, '+') || is_next(p, '-');
        if (!read_digits(p))
            return false;
    }
    *node = (choir__json){real ? CHOIR__JSON_REAL : CHOIR__JSON_INTEGER, .nodes = 1,
        .text = text, .bytes = (size_t)(p->at - text)};
    return true;
}

static bool read_word(parser *p, choir__json *node)
{
    static const struct {
        const char *word;
        choir__json_type type;
    } words[] = {
        {"null", CHOIR__JSON_NULL}, {"false", CHOIR__JSON_FALSE}, {"true", CHOIR__JSON_TRUE}};
    for (size_t i = 0; i < CHOIR_COUNT(words); i++) {
        size_t length = strlen(words[i].word);
        if ((size_t)(p->end - p->at) >= length && !memcmp(p->at, words[i].word, length)) {
            p->at += length;
            *node = (choir__json){words[i].type, .nodes = 1};
            return true;
        }
    }
    return fail(p, "expected a value");
}

/* --- values --- */

static bool read_value(parser *p, int depth);

static bool read_name(parser *p)
{
    choir__json name;
    skip_space(p);
    if (!is_next(p, '"'))
        return fail(p, "expected the name of a member, in quotes");
    if (!read_string(p, &name))
        return false;
    choir__json_add(p->nodes, name);
    skip_space(p);
    if (!is_next(p, ':'))
        return fail(p, "expected a colon behind the name");
    p->at++;
    return true;
}

static bool read_members(parser *p, bool object, int depth)
{
    size_t own = p->nodes->count;
    uint32_t count = 0;
    char close = object ? '}' : ']';
    choir__json_add(
        p->nodes, (choir__json){object ? CHOIR__JSON_OBJECT : CHOIR__JSON_ARRAY, .nodes = 1});
    p->at++;
    skip_space(p);
    while (p->at < p->end && *p->at != close) {
        if ((object && !read_name(p)) || !read_value(p, depth + 1))
            return false;
        count++;
        skip_space(p);
        if (!is_next(p, ','))
            break;
        p->at++;
        skip_space(p);
        if (p->at < p->end && *p->at == close)
            return fail(p, "expected another one behind the comma");
    }
    if (p->at == p->end || *p->at != close)
        return fail(p, object ? "expected a comma or the end of an object, '}'"
                              : "expected a comma or the end of an array, ']'");
    p->at++;
    p->nodes->node[own].count = count;
    p->nodes->node[own].nodes = (uint32_t)(p->nodes->count - own);
    return true;
}

static bool read_value(parser *p, int depth)
{
    choir__json node;
    skip_space(p);
    if (depth > DEEPEST)
        return fail(p, "values are nested too deeply");
    char c = p->at < p->end ? *p->at : '\0';
    if (c == '{' || c == '[')
        return read_members(p, c == '{', depth);
    bool good = c == '"'                             ? read_string(p, &node)
                : c == '-' || (c >= '0' && c <= '9') ? read_number(p, &node)
                                                     : read_word(p, &node);
    if (!good)
        return false;
    choir__json_add(p->nodes, node);
    return true;
}

const char *choir__json_parse(choir__json_nodes *nodes, char *text, char *end, const char **at)
{
    parser p = {text, end, nodes, NULL};
    nodes->count = 0;
    if (end - text >= UINT32_MAX)
        fail(&p, "a record of more than 4 GiB");
    else if (read_value(&p, 0)) {
        skip_space(&p);
        if (p.at < p.end)
            fail(&p, "expected the end behind the value");
    }
    *at = p.at;
    return p.wrong;
}

void choir__json_nodes_free(choir__json_nodes *n)
{
    free(n->node);
    *n = (choir__json_nodes){0};
}

/* --- reading values --- */

bool choir__json_is(const choir__json *value, choir__json_type type)
{
    return value && value->type == type;
}

const choir__json *choir__json_first(const choir__json *value)
{
    return value + 1;
}

const choir__json *choir__json_next(const choir__json *value)
{
    return value + value->nodes;
}

const choir__json *choir__json_get(const choir__json *value, const char *name)
{
    const choir__json *found = NULL;
    if (!choir__json_is(value, CHOIR__JSON_OBJECT))
        return NULL;
    const choir__json *member = value + 1;
    for (uint32_t i = 0; i < value->count; i++) {
        const choir__json *inner = member + 1;
        if (!strcmp(member->text, name))
            found = inner;
        member = choir__json_next(inner);
    }
    return found;
}

bool choir__json_integer(const choir__json *value, int64_t *number)
{
    char text[24], *end;
    if (!choir__json_is(value, CHOIR__JSON_INTEGER) || value->bytes >= sizeof text)
        return false;
    memcpy(text, value->text, value->bytes);
    text[value->bytes] = '\0';
    errno = 0;
    *number = strtoll(text, &end, 10);
    return errno == 0;
}

double choir__json_real(const choir__json *value)
{
    char *text = choir__format("%.*s", (int)value->bytes, value->text);
    double number = choir__number_read(text, NULL);
    free(text);
    return number;
}
