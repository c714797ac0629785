/* UTF-8, and lookups in Unicode tables: binary search in ranges, with a separate path for
 * ASCII, which most text consists of. */
#include "data/tokenizer/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct choir__code_range {
    uint32_t first, last;
} choir__code_range;

typedef struct choir__code_map {
    uint32_t code;
    int count;
    uint32_t to[4];
} choir__code_map;

#include "data/tokenizer/unicode_table.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

int choir__utf8_decode(const char *text, const char *end, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* smaller: overlong */
    const unsigned char *s = (const unsigned char *)text;
    int n = s[0] < 0x80       ? 1
            : s[0] >> 5 == 6  ? 2
            : s[0] >> 4 == 14 ? 3
            : s[0] >> 3 == 30 ? 4
                              : 0;
    if (!n || end - text < n)
        return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
        c = c << 6 | (s[i] & 0x3F);
    }
    if (c < least[n] || c >= CHOIR__CODE_POINTS || (c >= 0xD800 && c <= 0xDFFF))
        return 0;
    *code = c;
    return n;
}

int choir__utf8_encode(uint32_t c, char out[CHOIR__LONGEST_UTF8 + 1])
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    out[n] = '\0';
    return n;
}

bool choir__is_utf8(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    uint32_t code;
    for (int n; text < end; text += n)
        if (!(n = choir__utf8_decode(text, end, &code)))
            return false;
    return true;
}

const char *choir__utf8_describe(uint32_t code, char out[32])
{
    char text[CHOIR__LONGEST_UTF8 + 1];
    choir__utf8_encode(code, text);
    if (code < 0x20 || (code >= 0x7F && code < 0xA0))
        snprintf(out, 32, "U+%04X", code);
    else
        snprintf(out, 32, "'%s' (U+%04X)", text, code);
    return out;
}

/* --- Unicode --- */

static bool within(const choir__code_range *table, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].last < code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && table[low].first <= code;
}

choir__class choir__unicode_class(uint32_t code)
{
    if (code < 128) {
        uint32_t folded = code | 0x20;
        return folded >= 'a' && folded <= 'z'                  ? CHOIR__LETTER
               : code >= '0' && code <= '9'                    ? CHOIR__NUMBER
               : code == ' ' || (code >= '\t' && code <= '\r') ? CHOIR__SPACE
                                                               : CHOIR__OTHER;
    }
    return within(letters, COUNT(letters), code)   ? CHOIR__LETTER
           : within(numbers, COUNT(numbers), code) ? CHOIR__NUMBER
           : within(spaces, COUNT(spaces), code)   ? CHOIR__SPACE
                                                   : CHOIR__OTHER;
}

bool choir__unicode_punctuation(uint32_t code)
{
    return within(punctuation, COUNT(punctuation), code);
}

bool choir__unicode_control(uint32_t code)
{
    return within(controls, COUNT(controls), code);
}

bool choir__unicode_chinese(uint32_t code)
{
    static const choir__code_range ideographs[] = {{0x3400, 0x4DBF}, {0x4E00, 0x9FFF},
        {0xF900, 0xFAFF}, {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F},
        {0x2B820, 0x2CEAF}, {0x2F800, 0x2FA1F}};
    return within(ideographs, COUNT(ideographs), code);
}

static int map(const choir__code_map *table, size_t count, uint32_t code, uint32_t out[4])
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].code < code)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == count || table[low].code != code) {
        out[0] = code;
        return 1;
    }
    memcpy(out, table[low].to, sizeof table[low].to);
    return table[low].count;
}

int choir__unicode_lower(uint32_t code, uint32_t out[4])
{
    if (code < 128) {
        out[0] = code >= 'A' && code <= 'Z' ? code + 32 : code;
        return 1;
    }
    return map(lower, COUNT(lower), code, out);
}

int choir__unicode_bare(uint32_t code, uint32_t out[4])
{
    enum { HANGUL = 0xAC00, LAST = 0xD7A3, L = 0x1100, V = 0x1161, T = 0x11A7 };
    if (code >= HANGUL && code <= LAST) { /* syllables are computed: L, V, optionally T */
        uint32_t s = code - HANGUL;
        out[0] = L + s / (21 * 28);
        out[1] = V + s % (21 * 28) / 28;
        out[2] = T + s % 28;
        return s % 28 ? 3 : 2;
    }
    if (code < 128) {
        out[0] = code;
        return 1;
    }
    return map(bare, COUNT(bare), code, out);
}
