/* UTF-8, and lookups in Unicode tables: binary search in ranges, with a separate path for
 * ASCII, which most text consists of. */
#include "data/tokenizer/utf8.h"

#include <stdio.h>
#include <string.h>

typedef struct choir__code_range {
    uint32_t first, last;
} choir__code_range;

typedef struct code_map {
    uint32_t code;
    int count;
    uint32_t to[4];
} code_map;

#include "data/tokenizer/unicode_table.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

int choir__utf8_decode(const char *text, const char *end, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = choir__utf8_length(text, end);
    if (!n)
        return 0;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++)
        c = c << 6 | (s[i] & 0x3F);
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

static const uint64_t TOPS = 0x8080808080808080u;

bool choir__is_utf8(const char *text, size_t bytes)
{
    const char *end = text + bytes;
    while (text < end) {
        uint64_t eight, others = 0; /* characters of ASCII, mostly */
        while (end - text >= 8 && (memcpy(&eight, text, 8), !(others = eight & TOPS)))
            text += 8;
        text += others ? __builtin_ctzll(others) / 8 : 0;
        int n = 1;
        for (bool ascii = false; text < end && !ascii && n; text += n) {
            ascii = !(*text & 0x80);
            n = choir__utf8_length(text, end);
        }
        if (!n)
            return false;
    }
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
    return within(ideographs, COUNT(ideographs), code);
}

static int map(const code_map *table, size_t count, uint32_t code, uint32_t out[4])
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

int choir__unicode_combining(uint32_t code)
{
    uint32_t level[4] = {0};
    if (code >= 128 && map(combining, COUNT(combining), code, level) == 1 && level[0] != code)
        return (int)level[0];
    return 0;
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

/* --- grapheme clusters --- */

typedef enum joining {
    PLAIN,
    CR,
    LF,
    CONTROL,
    ATTACHED, /* marks and joiners: part of what stands before */
    LINKER,   /* attached; joins two consonants */
    PREPENDED,
    CONSONANT,
    PICTOGRAPH,
    REGIONAL, /* half a flag */
    HANGUL_L,
    HANGUL_V,
    HANGUL_T,
    HANGUL_LV,
    HANGUL_LVT
} joining;

static joining joining_of(uint32_t c)
{
    if (c < 0x300 && c != 0xA9 && c != 0xAE)
        return c == '\r'                                  ? CR
               : c == '\n'                                ? LF
               : within(uncombined, COUNT(uncombined), c) ? CONTROL
                                                          : PLAIN;
    if ((c >= 0x1100 && c <= 0x115F) || (c >= 0xA960 && c <= 0xA97C))
        return HANGUL_L;
    if ((c >= 0x1160 && c <= 0x11A7) || (c >= 0xD7B0 && c <= 0xD7C6))
        return HANGUL_V;
    if ((c >= 0x11A8 && c <= 0x11FF) || (c >= 0xD7CB && c <= 0xD7FB))
        return HANGUL_T;
    if (c >= 0xAC00 && c <= 0xD7A3)
        return (c - 0xAC00) % 28 ? HANGUL_LVT : HANGUL_LV;
    return c >= 0x1F1E6 && c <= 0x1F1FF                 ? REGIONAL
           : within(linkers, COUNT(linkers), c)         ? LINKER
           : within(attached, COUNT(attached), c)       ? ATTACHED
           : within(prepended, COUNT(prepended), c)     ? PREPENDED
           : within(consonants, COUNT(consonants), c)   ? CONSONANT
           : within(pictographs, COUNT(pictographs), c) ? PICTOGRAPH
           : within(uncombined, COUNT(uncombined), c)   ? CONTROL
                                                        : PLAIN;
}

/* The end of a cluster, as far as it decides whether the next character belongs to it. */
typedef struct cluster {
    joining last;
    joining base; /* CONSONANT or PICTOGRAPH, if only attached characters follow it */
    bool linked;  /* a linker is among them */
    bool joined;  /* the last is U+200D */
    int regional; /* number of half flags at the end */
} cluster;

/* The numbers are the rules of UAX #29. */
static bool goes_on(const cluster *k, joining next)
{
    joining last = k->last;
    if (last == CR && next == LF) /* GB3 */
        return true;
    if (last == CR || last == LF || last == CONTROL || next == CR || next == LF ||
        next == CONTROL) /* GB4, GB5 */
        return false;
    if (next == ATTACHED || next == LINKER || last == PREPENDED) /* GB9, GB9a, GB9b */
        return true;
    switch (next) {
    case HANGUL_L:
    case HANGUL_LV:
    case HANGUL_LVT: return last == HANGUL_L; /* GB6 to GB8 */
    case HANGUL_V: return last == HANGUL_L || last == HANGUL_LV || last == HANGUL_V;
    case HANGUL_T: return last >= HANGUL_V;
    case CONSONANT: return k->base == CONSONANT && k->linked;   /* GB9c */
    case PICTOGRAPH: return k->base == PICTOGRAPH && k->joined; /* GB11 */
    case REGIONAL: return k->regional % 2 == 1;                 /* GB12, GB13 */
    default: return false;
    }
}

static void append(cluster *k, joining next, uint32_t code)
{
    bool attached_one = next == ATTACHED || next == LINKER;
    if (!attached_one) {
        k->base = next;
        k->linked = false;
    }
    k->linked |= next == LINKER;
    k->joined = code == 0x200D;
    k->regional = next == REGIONAL ? k->regional + 1 : 0;
    k->last = next;
}

size_t choir__unicode_cluster(const char *text, const char *end)
{
    cluster k = {0};
    const char *at = text;
    while (at < end) {
        uint32_t code;
        int n = choir__utf8_decode(at, end, &code);
        joining next = n ? joining_of(code) : PLAIN;
        if (at > text && !goes_on(&k, next))
            break;
        append(&k, next, n ? code : 0xFFFD);
        at += n ? n : 1;
    }
    return (size_t)(at - text);
}
