/* Lookups in the tables of Unicode: binary search in rows, with a separate path for ASCII,
 * which most text consists of. */
#include "data/tokenizer/unicode.h"

#include <string.h>

typedef struct choir__code_range {
    uint32_t first, last;
} choir__code_range;

/* Characters that move by one number: every step-th one of [first, last] becomes code + shift.
 */
typedef struct code_shift {
    uint32_t first, last;
    uint32_t step;
    int32_t shift;
} code_shift;

/* A character and the one that it becomes, or its combining class. */
typedef struct code_pair {
    uint32_t code, to;
} code_pair;

/* A character that becomes several. */
typedef struct code_parts {
    uint32_t code;
    int count;
    uint32_t to[4];
} code_parts;

/* Two characters that are one together. */
typedef struct code_join {
    uint32_t first, second, to;
} code_join;

/* Characters whose categories take turns, those at an even distance from the first and those at
 * an odd one. */
typedef struct code_categories {
    uint32_t first, last;
    unsigned char even, odd;
} code_categories;

#include "data/tokenizer/unicode_table.h"

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* Returns the last row whose first number is at most `code`, or NULL. Each row of a table
 * begins with a code point, and rows are sorted by it. */
static const void *row_of(const void *table, size_t count, size_t size, uint32_t code)
{
    const char *rows = table;
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (*(const uint32_t *)(const void *)(rows + middle * size) <= code)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? rows + (low - 1) * size : NULL;
}

#define ROW_OF(table, code) row_of(table, COUNT(table), sizeof *(table), code)

static bool within(const choir__code_range *table, size_t count, uint32_t code)
{
    const choir__code_range *range = row_of(table, count, sizeof *table, code);
    return range && code <= range->last;
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

static const char names[] =
    "LuLlLtLmLoMnMcMeNdNlNoPcPdPsPePiPfPoSmScSkSoZsZlZpCcCfCsCoCn"; /* in the order of their
                                                                       bits */

int choir__unicode_category(uint32_t code)
{
    enum { UNASSIGNED = (sizeof names - 1) / 2 - 1 };
    const code_categories *row = ROW_OF(categories, code);
    return !row || code > row->last       ? UNASSIGNED
           : (code - row->first) % 2 == 0 ? row->even
                                          : row->odd;
}

uint32_t choir__unicode_categories(const char *name)
{
    uint32_t mask = 0;
    size_t n = strlen(name);
    for (size_t i = 0; (n == 1 || n == 2) && names[2 * i]; i++)
        if (!strncmp(&names[2 * i], name, n))
            mask |= 1u << i;
    return mask;
}

/* Adds the characters [first, last] to `count` ranges, and returns the new number of ranges.
 * *end is the last character so far. With NULL, ranges are counted alone. */
static size_t add_range(
    uint32_t *ranges, size_t count, uint32_t *end, uint32_t first, uint32_t last)
{
    bool longer = count && *end + 1 == first;
    *end = last;
    if (ranges && !longer)
        ranges[2 * count] = first;
    count += !longer;
    if (ranges)
        ranges[2 * count - 1] = last;
    return count;
}

size_t choir__unicode_ranges(uint32_t mask, uint32_t *ranges)
{
    size_t count = 0;
    uint32_t end = 0, next = 0; /* next: the first character that no row has had */
    bool unassigned = mask & choir__unicode_categories("Cn");
    for (size_t i = 0; i < COUNT(categories); i++) {
        const code_categories *row = &categories[i];
        bool even = mask >> row->even & 1, odd = mask >> row->odd & 1;
        if (unassigned && row->first > next)
            count = add_range(ranges, count, &end, next, row->first - 1);
        if (even && odd)
            count = add_range(ranges, count, &end, row->first, row->last);
        else
            for (uint32_t c = row->first; c <= row->last && (even || odd); c++)
                if ((c - row->first) % 2 == 0 ? even : odd)
                    count = add_range(ranges, count, &end, c, c);
        next = row->last + 1;
    }
    if (unassigned && next < CHOIR__CODE_POINTS)
        count = add_range(ranges, count, &end, next, CHOIR__CODE_POINTS - 1);
    return count;
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

/* Writes the parts of a character, which is itself if it has none. */
static int write_parts(const code_parts *row, uint32_t code, uint32_t out[4])
{
    if (!row || row->code != code) {
        out[0] = code;
        return 1;
    }
    memcpy(out, row->to, sizeof row->to);
    return row->count;
}

int choir__unicode_lower(uint32_t code, uint32_t out[4])
{
    const code_shift *run = ROW_OF(lower, code);
    if (!run || code > run->last || (code - run->first) % run->step)
        return write_parts(ROW_OF(lower_parts, code), code, out);
    out[0] = code + (uint32_t)run->shift;
    return 1;
}

int choir__unicode_combining(uint32_t code)
{
    const code_pair *pair = ROW_OF(combining, code);
    return pair && pair->code == code ? (int)pair->to : 0;
}

enum {
    HANGUL = 0xAC00,
    LAST = 0xD7A3,
    L = 0x1100,
    V = 0x1161,
    T = 0x11A7,
    LS = 19,
    VS = 21,
    TS = 28
};

/* Writes the parts of a Korean syllable, which are computed: L, V, optionally T. Returns their
 * number, or 0 for another character. */
static int syllable_parts(uint32_t code, uint32_t out[4])
{
    if (code < HANGUL || code > LAST)
        return 0;
    uint32_t s = code - HANGUL;
    out[0] = L + s / (VS * TS);
    out[1] = V + s % (VS * TS) / TS;
    out[2] = T + s % TS;
    return s % TS ? 3 : 2;
}

int choir__unicode_decomposed(uint32_t code, uint32_t out[4])
{
    int n = code < 0xC0 ? 0 : syllable_parts(code, out);
    const code_pair *pair = code < 0xC0 || n ? NULL : ROW_OF(canonical, code);
    if (n)
        return n;
    out[0] = code;
    if (code < 0xC0)
        return 1;
    if (!pair || pair->code != code)
        return write_parts(ROW_OF(canonical_parts, code), code, out);
    out[0] = pair->to;
    return 1;
}

int choir__unicode_mark_class(uint32_t code)
{
    const code_pair *pair = code < 0x300 ? NULL : ROW_OF(classes, code);
    return pair && pair->code == code ? (int)pair->to : 0;
}

uint32_t choir__unicode_joined(uint32_t first, uint32_t second)
{
    size_t low = 0, high = COUNT(joined);
    if (second < 0x300)
        return 0;
    if (first - L < LS && second - V < VS)
        return HANGUL + ((first - L) * VS + second - V) * TS;
    if (first - HANGUL <= LAST - HANGUL && (first - HANGUL) % TS == 0 &&
        second - T - 1 < TS - 1)
        return first + second - T;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const code_join *row = &joined[middle];
        if (row->first == first && row->second == second)
            return row->to;
        if (row->first < first || (row->first == first && row->second < second))
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

int choir__unicode_bare(uint32_t code, uint32_t out[4])
{
    int n = syllable_parts(code, out);
    if (n)
        return n;
    if (code >= 128 && within(removed, COUNT(removed), code))
        return 0;
    const code_pair *pair = ROW_OF(bare, code);
    if (code - 0xF900 < COUNT(compatible_f900))
        out[0] = compatible_f900[code - 0xF900];
    else if (code - 0x2F800 < COUNT(compatible_2f800))
        out[0] = compatible_2f800[code - 0x2F800];
    else if (pair && pair->code == code)
        out[0] = pair->to;
    else
        return write_parts(ROW_OF(bare_parts, code), code, out);
    return 1;
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
