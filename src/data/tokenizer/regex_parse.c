/* From a regular expression to its program. Code is written as it is read; a choice is put
 * before the part that it may pass over, once that part has been read. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/regex_program.h"
#include "data/tokenizer/unicode.h"

enum { DEEPEST = 64, MOST_REPEATS = 1000, MOST_CODE = 4096 };

typedef struct parser {
    const char *name, *pattern, *at, *end;
    choir__regex *r;
    choir__regex_code spare; /* for code that follows an error */
    bool fold, within;       /* case does not count; what follows is read */
    int depth;
    choir_status status;
} parser;

/* --- errors --- */

static void refuse(parser *p, const char *from, const char *why)
{
    if (p->status != CHOIR_OK)
        return;
    p->status = choir__error(CHOIR_ERR_FORMAT,
        "%s: the regular expression '%.200s' has '%.20s': %s", p->name, p->pattern, from, why);
}

static void unknown(parser *p, const char *from)
{
    refuse(p, from, "not known here");
}

static bool next_is(const parser *p, char c)
{
    return p->at < p->end && *p->at == c;
}

static bool take(parser *p, const char *text)
{
    size_t n = strlen(text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n) != 0)
        return false;
    p->at += n;
    return true;
}

/* --- code --- */

/* Puts an instruction before the one at `place`. */
static choir__regex_code *put(parser *p, int32_t place, choir__regex_op op)
{
    choir__regex *r = p->r;
    bool chooses = op == CHOIR__REGEX_SPLIT || op == CHOIR__REGEX_REPEAT;
    if (r->codes == MOST_CODE || (chooses && r->choices == CHOIR__REGEX_CHOICES)) {
        refuse(p, "...", "expected a shorter one");
        return &p->spare;
    }
    r->choices += chooses;
    CHOIR__GROW(r->code, r->codes);
    memmove(r->code + place + 1, r->code + place, (size_t)(r->codes - place) * sizeof *r->code);
    r->codes++;
    r->code[place] = (choir__regex_code){.op = op};
    return &r->code[place];
}

/* --- sets --- */

static void add_item(parser *p, choir__regex_item item)
{
    choir__regex *r = p->r;
    CHOIR__GROW(r->item, r->items);
    r->item[r->items++] = item;
    r->set[r->sets - 1].count++;
}

static void add_range(parser *p, uint32_t first, uint32_t last, const char *from)
{
    add_item(p, (choir__regex_item){.first = first, .last = last});
    if (!p->fold)
        return;
    if (last >= 128)
        unknown(p, from); /* letters whose other cases are many */
    for (uint32_t c = first; c <= last && c < 128; c++) {
        uint32_t other = c ^ 0x20, far = (c | 0x20) == 's'   ? 0x17F
                                         : (c | 0x20) == 'k' ? 0x212A
                                                             : 0;
        if (choir__unicode_class(c) == CHOIR__LETTER)
            add_item(p, (choir__regex_item){.first = other, .last = other});
        if (far && choir__unicode_class(c) == CHOIR__LETTER)
            add_item(p, (choir__regex_item){.first = far, .last = far});
    }
}

static int32_t new_set(parser *p)
{
    choir__regex *r = p->r;
    CHOIR__GROW(r->set, r->sets);
    r->set[r->sets] = (choir__regex_set){.item = r->items};
    return r->sets++;
}

static void close_set(parser *p, int32_t set, bool without)
{
    choir__regex_set *s = &p->r->set[set];
    s->without = without;
    for (uint32_t c = 0; c < 128; c++)
        if (choir__regex_has(p->r, s, c))
            s->ascii[c / 64] |= UINT64_C(1) << c % 64;
}

/* Reads hexadecimal digits: exactly `count`, or, with 0, those between braces. */
static uint32_t read_hex(parser *p, int count, const char *from)
{
    bool braces = !count && take(p, "{");
    uint32_t code = 0;
    int digits = 0;
    for (; p->at < p->end && digits < (braces ? 6 : count); p->at++, digits++) {
        char c = *p->at;
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            break;
        code = code * 16 + (uint32_t)digit;
    }
    if (!digits || (count && digits < count) || (braces && !take(p, "}")) || code > 0x10FFFF)
        unknown(p, from);
    return code;
}

/* Reads \p{Lu}, \P{L} or \p{^N} behind its first two characters. */
static void add_property(parser *p, bool without, const char *from)
{
    char word[4] = "";
    if (!take(p, "{")) {
        unknown(p, from);
        return;
    }
    without ^= take(p, "^");
    size_t n = 0;
    while (p->at < p->end && *p->at != '}' && n < sizeof word - 1)
        word[n++] = *p->at++;
    uint32_t mask = choir__unicode_categories(word);
    if (!take(p, "}") || !mask)
        unknown(p, from);
    add_item(p, (choir__regex_item){.mask = mask, .without = without});
}

/* Reads what a backslash begins. Returns true for a single character, in *code; else it has
 * been added to the set. */
static bool read_escape(parser *p, uint32_t *code)
{
    static const char named[] = "r\rn\nt\tf\fv\va\ae\033";
    const char *from = p->at++, *name;
    char c = p->at < p->end ? *p->at++ : '\0';
    if (c == 's' || c == 'S')
        add_item(p, (choir__regex_item){.space = true, .without = c == 'S'});
    else if (c == 'd' || c == 'D')
        add_item(p,
            (choir__regex_item){.mask = choir__unicode_categories("Nd"), .without = c == 'D'});
    else if (c == 'p' || c == 'P')
        add_property(p, c == 'P', from);
    else if (c == 'x')
        return *code = read_hex(p, next_is(p, '{') ? 0 : 2, from), true;
    else if (c == 'u')
        return *code = read_hex(p, 4, from), true;
    else if (c && (name = strchr(named, c)) && (name - named) % 2 == 0)
        return *code = (uint32_t)name[1], true;
    else if (c > ' ' && c < 127 && choir__unicode_class((uint32_t)c) == CHOIR__OTHER)
        return *code = (uint32_t)c, true;
    else
        unknown(p, from);
    return false;
}

/* Reads a character of the pattern itself. */
static uint32_t read_char(parser *p)
{
    uint32_t code = 0xFFFD;
    p->at += choir__max(choir__utf8_decode(p->at, p->end, &code), 1);
    return code;
}

/* Reads one end of a range; returns false if it is a class. */
static bool read_end(parser *p, uint32_t *code)
{
    if (next_is(p, '\\'))
        return read_escape(p, code);
    if (next_is(p, '[') || take(p, "&&"))
        unknown(p, p->at);
    *code = read_char(p);
    return true;
}

static int32_t read_class(parser *p)
{
    const char *from = p->at++;
    int32_t set = new_set(p);
    bool without = take(p, "^");
    for (bool first = true; p->status == CHOIR_OK && (first || !next_is(p, ']'));
         first = false) {
        uint32_t low, high;
        if (p->at == p->end || (first && next_is(p, ']'))) {
            refuse(p, from, "expected ']' behind its characters");
            break;
        }
        if (!read_end(p, &low))
            continue;
        high = low;
        if (next_is(p, '-') && p->end - p->at > 1 && p->at[1] != ']') {
            p->at++;
            if (!read_end(p, &high) || high < low)
                unknown(p, from);
        }
        add_range(p, low, high, from);
    }
    take(p, "]");
    close_set(p, set, without);
    return set;
}

/* --- the grammar --- */

/* Reads {2}, {1,}, {,3} or {1,3}. */
static void read_bounds(parser *p, int32_t *least, int32_t *most)
{
    const char *from = p->at++;
    char *end;
    bool open = next_is(p, ',');
    long a = open ? 0 : strtol(p->at, &end, 10), b = a;
    if (!open)
        open = end == p->at;
    if (!next_is(p, ','))
        p->at = open ? p->at : end;
    if (take(p, ","))
        b = next_is(p, '}') ? -1 : strtol(p->at, &end, 10);
    if (b > 0 && p->at[-1] == ',')
        p->at = end;
    if (!take(p, "}") || a < 0 || a > MOST_REPEATS || b > MOST_REPEATS || (b >= 0 && b < a) ||
        !b || next_is(p, '+') || next_is(p, '?'))
        unknown(p, from);
    *least = (int32_t)a;
    *most = (int32_t)b;
}

/* Reads how often a set is repeated, and writes its instruction. Returns the least number. */
static int32_t repeat_set(parser *p, int32_t set)
{
    int32_t least = 1, most = 1;
    choir__regex_mode mode = CHOIR__REGEX_GREEDY;
    bool sign = true;
    if (take(p, "?"))
        least = 0;
    else if (take(p, "*"))
        least = 0, most = -1;
    else if (take(p, "+"))
        most = -1;
    else
        sign = false;
    if (sign)
        mode = take(p, "+")   ? CHOIR__REGEX_KEEPS
               : take(p, "?") ? CHOIR__REGEX_LAZY
                              : CHOIR__REGEX_GREEDY;
    else if (next_is(p, '{'))
        read_bounds(p, &least, &most);
    choir__regex_code *k =
        put(p, p->r->codes, least == 1 && most == 1 ? CHOIR__REGEX_CHAR : CHOIR__REGEX_REPEAT);
    k->mode = mode;
    k->a = set;
    k->b = least;
    k->c = most;
    return least;
}

static int32_t read_alternatives(parser *p);

/* Reads the inside of parentheses, behind the opening one. Returns the least number of
 * characters.
 */
static int32_t read_inside(parser *p, const char *from)
{
    if (p->depth++ == DEEPEST)
        refuse(p, from, "expected fewer parentheses in one another");
    int32_t least = p->status == CHOIR_OK ? read_alternatives(p) : 0;
    p->depth--;
    if (!take(p, ")"))
        refuse(p, from, "expected ')'");
    return least;
}

static void read_ahead(parser *p, bool not, const char *from)
{
    int32_t place = p->r->codes;
    if (p->within)
        unknown(p, from);
    p->within = true;
    read_inside(p, from);
    p->within = false;
    put(p, p->r->codes, CHOIR__REGEX_DONE);
    choir__regex_code *k = put(p, place, CHOIR__REGEX_AHEAD);
    k->a = p->r->codes - place;
    k->b = not ;
}

static int32_t read_group(parser *p)
{
    const char *from = p->at++;
    int32_t place = p->r->codes, least;
    bool fold = p->fold;
    if (take(p, "?!") || take(p, "?=")) {
        read_ahead(p, p->at[-1] == '!', from);
        return 0;
    }
    if (take(p, "?i:"))
        p->fold = true;
    else if (!take(p, "?:") && next_is(p, '?'))
        unknown(p, from);
    least = read_inside(p, from);
    p->fold = fold;
    if (take(p, "?")) {
        choir__regex_code *split = put(p, place, CHOIR__REGEX_SPLIT);
        split->a = p->r->codes - place;
        least = 0;
    }
    if (next_is(p, '*') || next_is(p, '+') || next_is(p, '?') || next_is(p, '{'))
        unknown(p, from);
    return least;
}

/* Reads one part of a sequence. Returns the least number of characters that it matches. */
static int32_t read_part(parser *p)
{
    const char *from = p->at;
    uint32_t code;
    int32_t set;
    if (next_is(p, '('))
        return read_group(p);
    if (take(p, "$")) {
        put(p, p->r->codes, CHOIR__REGEX_LINE);
        return 0;
    }
    if (strchr("?*+{^", *from))
        unknown(p, from);
    if (next_is(p, '['))
        return repeat_set(p, read_class(p));
    set = new_set(p);
    if (take(p, "."))
        add_range(p, '\n', '\n', from);
    else if (next_is(p, '\\') ? read_escape(p, &code) : (code = read_char(p), true))
        add_range(p, code, code, from);
    close_set(p, set, *from == '.');
    return repeat_set(p, set);
}

static int32_t read_alternatives(parser *p)
{
    int32_t place = p->r->codes, least = 0, jump;
    while (p->status == CHOIR_OK && p->at < p->end && *p->at != '|' && *p->at != ')')
        least += (int32_t)choir__min(read_part(p), MOST_REPEATS - least);
    if (p->status != CHOIR_OK || !take(p, "|"))
        return least;
    if (p->depth++ == DEEPEST)
        refuse(p, "|", "expected fewer alternatives");
    choir__regex_code *split = put(p, place, CHOIR__REGEX_SPLIT);
    split->a = p->r->codes + 1 - place;
    jump = p->r->codes;
    put(p, jump, CHOIR__REGEX_JUMP);
    least = (int32_t)choir__min(least, read_alternatives(p));
    if (p->status == CHOIR_OK)
        p->r->code[jump].a = p->r->codes - jump;
    p->depth--;
    return least;
}

choir_status choir__regex_new(const char *name, const char *pattern, choir__regex **regex)
{
    parser p = {.name = name,
        .pattern = pattern,
        .at = pattern,
        .end = pattern + strlen(pattern),
        .r = choir__calloc(1, sizeof *p.r)};
    int32_t least = read_alternatives(&p);
    if (p.at < p.end)
        refuse(&p, p.at, "expected no ')'");
    if (!least)
        refuse(&p, pattern, "expected one that matches no empty text");
    put(&p, p.r->codes, CHOIR__REGEX_DONE);
    if (p.status == CHOIR_OK)
        *regex = p.r;
    else
        choir__regex_free(p.r);
    return p.status;
}
