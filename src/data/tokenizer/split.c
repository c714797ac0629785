/* Cutting a text into words as byte-level models do: their published patterns, matched by hand.
 * Alternatives of a pattern are tried in order, as a regular expression does. A byte that is
 * not UTF-8 counts as a character that is no letter, number or space. */
#include "data/tokenizer/hf_pipeline.h"

#include <string.h>

#include "data/tokenizer/unicode.h"

#define CAPITALS "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define BEFORE   "[^\\r\\n\\p{L}\\p{N}]?"
#define ENDINGS  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINES    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SIGNS    " ?[^\\s\\p{L}\\p{N}]+"

/* Published expressions. A split of -1 is left to the matcher of all expressions. */
static const struct {
    const char *regex;
    int split;
} published[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SIGNS "|\\s+(?!\\S)|\\s+",
        CHOIR__SPLIT_GPT2},
    {ENDINGS "|" BEFORE "\\p{L}+|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|" LINES, CHOIR__SPLIT_LLAMA3},
    {ENDINGS "|" BEFORE "\\p{L}+|\\p{N}|" SIGNS "[\\r\\n]*|" LINES, CHOIR__SPLIT_QWEN2},
    /* tekken: Mistral NeMo and later */
    {BEFORE CAPITALS "*" SMALL "+|" BEFORE CAPITALS "+" SMALL "*|\\p{N}|" SIGNS
                     "[\\r\\n/]*|" LINES,
        -1},
    /* o200k: Phi-4-mini, gpt-oss, Llama 4 */
    {BEFORE CAPITALS "*" SMALL "+" ENDINGS "?|" BEFORE CAPITALS "+" SMALL "*" ENDINGS
                     "?|\\p{N}{1,3}|" SIGNS "[\\r\\n/]*|" LINES,
        -1},
};

int choir__tokenizer_split_of(const char *regex)
{
    for (size_t i = 0; i < CHOIR_COUNT(published); i++)
        if (!strcmp(regex, published[i].regex))
            return published[i].split;
    return -1;
}

bool choir__tokenizer_split_is_known(const char *regex)
{
    for (size_t i = 0; i < CHOIR_COUNT(published); i++)
        if (!strcmp(regex, published[i].regex))
            return true;
    return false;
}

/* Reads the character at `at` and its class; returns the position of the next. */
static const char *look(const char *at, const char *end, uint32_t *code, choir__class *class)
{
    int n = choir__utf8_decode(at, end, code);
    if (!n) {
        *code = 0xFFFD;
        *class = CHOIR__OTHER;
        return at + 1;
    }
    *class = choir__unicode_class(*code);
    return at + n;
}

static choir__class class_at(const char *at, const char *end)
{
    uint32_t code;
    choir__class class;
    look(at, end, &code, &class);
    return class;
}

/* Returns the position after at most `most` characters of the class. */
static const char *run_of(choir__class class, const char *at, const char *end, int most)
{
    while (at < end && most--) {
        uint32_t code;
        choir__class found;
        const char *next = look(at, end, &code, &found);
        if (found != class)
            break;
        at = next;
    }
    return at;
}

static bool is_letter(const char *at, const char *end, char letter, bool fold, int *bytes)
{
    *bytes = 1;
    if (at == end)
        return false;
    if (*at == letter || (fold && (*at | 0x20) == letter && *at >= 'A' && *at <= 'Z'))
        return true;
    *bytes = 2; /* U+017F, the long s, folds to s */
    return fold && letter == 's' && end - at >= 2 && !memcmp(at, "\xc5\xbf", 2);
}

/* Matches 's 't 're 've 'm 'll 'd; NULL: no match. */
static const char *contraction(const char *at, const char *end, bool fold)
{
    static const char endings[][3] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (*at != '\'')
        return NULL;
    for (int i = 0; i < 7; i++) {
        const char *p = at + 1, *letter = endings[i];
        int bytes;
        for (; *letter && is_letter(p, end, *letter, fold, &bytes); letter++)
            p += bytes;
        if (!*letter)
            return p;
    }
    return NULL;
}

/* Matches \s+(?!\S)|\s+: the whole run, except that its last character goes with the next
 * word. */
static const char *space(const char *at, const char *end)
{
    const char *p = at, *last = at;
    uint32_t code;
    choir__class class;
    while (p < end) {
        const char *next = look(p, end, &code, &class);
        if (class != CHOIR__SPACE)
            return last > at ? last : p;
        last = p;
        p = next;
    }
    return p;
}

static const char *next_gpt2(const char *at, const char *end)
{
    const char *word = contraction(at, end, false);
    if (word)
        return word;
    const char *p = *at == ' ' && at + 1 < end ? at + 1 : at;
    choir__class class = class_at(p, end);
    return class == CHOIR__SPACE ? space(at, end) : run_of(class, p, end, -1);
}

/* Matches \s*[\r\n]+ at white space; NULL: the run contains no line's end. */
static const char *lines(const char *at, const char *end)
{
    const char *found = NULL;
    uint32_t code;
    choir__class class;
    while (at < end) {
        const char *next = look(at, end, &code, &class);
        if (class != CHOIR__SPACE)
            break;
        if (code == '\r' || code == '\n')
            found = next;
        at = next;
    }
    return found;
}

static const char *next_llama3(const char *at, const char *end, int digits)
{
    uint32_t code;
    choir__class class;
    const char *word = contraction(at, end, true);
    if (word)
        return word;
    const char *next = look(at, end, &code, &class);
    if (class == CHOIR__LETTER)
        return run_of(CHOIR__LETTER, at, end, -1);
    if (class == CHOIR__NUMBER)
        return run_of(CHOIR__NUMBER, at, end, digits);
    if (code != '\r' && code != '\n' && next < end && class_at(next, end) == CHOIR__LETTER)
        return run_of(CHOIR__LETTER, next, end, -1);
    const char *p = *at == ' ' && next < end ? next : at;
    if (class_at(p, end) == CHOIR__OTHER) {
        p = run_of(CHOIR__OTHER, p, end, -1);
        while (p < end && (*p == '\r' || *p == '\n'))
            p++;
        return p;
    }
    const char *line = lines(at, end);
    return line ? line : space(at, end);
}

/* A number is a character of \p{N}, as in the patterns. */
static const char *next_digits(const char *at, const char *end, int most)
{
    if (class_at(at, end) == CHOIR__NUMBER)
        return run_of(CHOIR__NUMBER, at, end, most);
    while (at < end && class_at(at, end) != CHOIR__NUMBER) {
        uint32_t code;
        choir__class class;
        at = look(at, end, &code, &class);
    }
    return at;
}

static const char *next_space(const char *at, const char *end)
{
    const char *space = memchr(at, ' ', (size_t)(end - at));
    return space ? space + 1 : end;
}

const char *choir__tokenizer_split_next(
    choir__tokenizer_split split, const char *at, const char *end)
{
    switch (split) {
    case CHOIR__SPLIT_GPT2: return next_gpt2(at, end);
    case CHOIR__SPLIT_LLAMA3: return next_llama3(at, end, 3);
    case CHOIR__SPLIT_QWEN2: return next_llama3(at, end, 1);
    case CHOIR__SPLIT_DIGIT: return next_digits(at, end, 1);
    case CHOIR__SPLIT_DIGITS: return next_digits(at, end, -1);
    case CHOIR__SPLIT_SPACES: return next_space(at, end);
    default: return end;
    }
}
