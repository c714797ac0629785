/* Upper and lower case.
 *
 * The tokenizers' table has lower case alone. A character's upper case is the one whose lower
 * case it is; the first one of several. The few that have none so, or that become several
 * characters, are listed here. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/jinja/text.h"
#include "data/tokenizer/unicode.h"

enum { LAST_CASED = 0x1E944, MOST_UPPER = 2048 };

static struct upper {
    uint32_t low, up;
} uppers[MOST_UPPER];
static size_t upper_count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int by_low(const void *a, const void *b)
{
    const struct upper *x = a, *y = b;
    return x->low != y->low ? (x->low > y->low) - (x->low < y->low)
                            : (x->up > y->up) - (x->up < y->up);
}

static void find_uppers(void)
{
    uint32_t low[4];
    for (uint32_t code = 'A'; code < LAST_CASED && upper_count < MOST_UPPER; code++)
        if (choir__unicode_lower(code, low) == 1 && low[0] != code)
            uppers[upper_count++] = (struct upper){low[0], code};
    qsort(uppers, upper_count, sizeof *uppers, by_low);
}

static uint32_t upper_of(uint32_t code)
{
    if (code < 0x80)
        return code >= 'a' && code <= 'z' ? code - 32 : code;
    switch (code) {
    case 0xB5: return 0x39C;  /* micro */
    case 0x131: return 'I';   /* dotless i */
    case 0x17F: return 'S';   /* long s */
    case 0x3C2: return 0x3A3; /* final sigma */
    default: break;
    }
    pthread_once(&once, find_uppers);
    struct upper key = {code, 0};
    size_t low = 0, high = upper_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (by_low(&uppers[middle], &key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < upper_count && uppers[low].low == code ? uppers[low].up : code;
}

static bool is_cased(uint32_t code)
{
    uint32_t low[4];
    return upper_of(code) != code || code == 0xDF || choir__unicode_lower(code, low) != 1 ||
           low[0] != code;
}

static void put_upper(choir__jinja_run *r, choir__jinja_out *out, uint32_t code, bool title)
{
    if (code == 0xDF) /* sharp s */
        choir__jinja_puts(r, out, title ? "Ss" : "SS");
    else
        choir__jinja_put_code(r, out, upper_of(code));
}

/* A sigma that ends a word has a form of its own. */
static bool is_final(const char *from, const char *at, const char *end)
{
    uint32_t before = 0, behind = 0;
    const char *b = at;
    while (b > from && ((unsigned char)*--b & 0xC0) == 0x80)
        ;
    if (b < at)
        choir__utf8_decode(b, at, &before);
    int n = choir__utf8_length(at, end);
    if (at + n < end)
        choir__utf8_decode(at + n, end, &behind);
    return before && is_cased(before) && !(behind && is_cased(behind));
}

static void put_lower(choir__jinja_run *r, choir__jinja_out *out, uint32_t code, bool final)
{
    uint32_t low[4];
    if (code == 0x3A3) {
        choir__jinja_put_code(r, out, final ? 0x3C2 : 0x3C3);
        return;
    }
    int n = choir__unicode_lower(code, low);
    for (int i = 0; i < n; i++)
        choir__jinja_put_code(r, out, low[i]);
}

choir__jinja_value choir__jinja_cased(
    choir__jinja_run *r, const choir__jinja_text *t, choir__jinja_case how)
{
    choir__jinja_out out = {0};
    const char *at = t->data, *end = at + t->bytes;
    uint32_t code = 0, low[4];
    bool begins = true; /* a word, or the text */
    for (int n; at < end; at += n) {
        n = choir__max(choir__utf8_decode(at, end, &code), 1);
        bool up = how == CHOIR__JINJA_UPPER ||
                  (how == CHOIR__JINJA_SWAP && choir__unicode_lower(code, low) == 1 &&
                      low[0] == code) ||
                  (how >= CHOIR__JINJA_CAPITAL && begins);
        if (up)
            put_upper(r, &out, code, how >= CHOIR__JINJA_CAPITAL && how != CHOIR__JINJA_WORDS);
        else
            put_lower(r, &out, code, is_final(t->data, at, end));
        begins = how == CHOIR__JINJA_TITLE   ? !is_cased(code)
                 : how == CHOIR__JINJA_WORDS ? choir__jinja_is_space(code) ||
                                                   (code < 0x80 && strchr("-({[<", (int)code))
                                             : false;
    }
    return choir__jinja_taken(r, &out);
}

/* Returns whether there are cased characters, and all of them are so. */
static bool all_cased(const choir__jinja_text *t, bool upper)
{
    const char *at = t->data, *end = at + t->bytes;
    uint32_t code = 0, low[4];
    bool some = false;
    for (int n; at < end; at += n) {
        n = choir__max(choir__utf8_decode(at, end, &code), 1);
        if (!is_cased(code))
            continue;
        if ((choir__unicode_lower(code, low) != 1 || low[0] != code) != upper)
            return false;
        some = true;
    }
    return some;
}

bool choir__jinja_is_lower(const choir__jinja_text *t)
{
    return all_cased(t, false);
}

bool choir__jinja_is_upper(const choir__jinja_text *t)
{
    return all_cased(t, true);
}
