/* JSON as Python writes it: see python_json.h.
 *
 * Python's numbers have no limits, and some are words: {"seed": 18446744073709551615, "loss":
 * NaN}. A text that JSON's reader refuses is read once more, with such numbers rewritten and
 * all else as it is, so that 7 stays a whole number beside them. */
#include "tune/python_json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"

/* Returns the length of a word that is a number, or 0. */
static size_t word_at(const char *text)
{
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < CHOIR_COUNT(words); i++)
        if (!strncmp(text, words[i], strlen(words[i])))
            return strlen(words[i]);
    return 0;
}

/* Writes the token at `text` outside of quotes, and returns its length. */
static size_t write_token(FILE *out, const char *text, bool as_null)
{
    bool number = *text == '-' || (*text >= '0' && *text <= '9');
    size_t word = word_at(text), length = number ? strspn(text, "+-.0123456789eE") : 1;
    if (!word && number && isinf(choir__number_read(text, NULL)))
        word = length;
    if (word) {
        fprintf(out, as_null ? "null" : "\"%.*s\"", (int)word, text);
        return word;
    }
    if (!number) {
        fputc(*text, out);
        return 1;
    }
    errno = 0;
    (void)strtoll(text, NULL, 10);
    bool whole =
        !memchr(text, '.', length) && !memchr(text, 'e', length) && !memchr(text, 'E', length);
    fprintf(out, "%.*s%s", (int)length, text, whole && errno == ERANGE ? ".0" : "");
    return length;
}

static char *rewritten(const char *text, bool as_null)
{
    char *copy = NULL;
    size_t bytes, length;
    FILE *out = open_memstream(&copy, &bytes);
    for (bool quoted = false; *text; text += length) {
        length = 1;
        if (!quoted && *text != '"') {
            length = write_token(out, text, as_null);
            continue;
        }
        if (*text == '\\' && text[1])
            length = 2;
        quoted ^= *text == '"';
        fprintf(out, "%.*s", (int)length, text);
    }
    fclose(out);
    return copy;
}

json_t *choir__python_json(const char *text, bool as_null)
{
    json_t *value = json_loads(text, JSON_ALLOW_NUL, NULL);
    if (value)
        return value;
    char *copy = rewritten(text, as_null);
    value = json_loads(copy, JSON_ALLOW_NUL, NULL);
    free(copy);
    return value;
}
