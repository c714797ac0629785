/* Printing text that is not ours: control characters and broken UTF-8 become question marks, a
 * cell of a table that a spreadsheet would take for a formula gets an apostrophe, and a stream
 * keeps the beginning of a character until the rest of it has come. */
#include "line/printed.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/number.h"
#include "base/utf8.h"

char *choir__printed(const char *text)
{
    char *clean = choir__clean(choir__strdup(text));
    for (char *at = clean; (at = strpbrk(at, "\n\t"));)
        *at = '?';
    return clean;
}

void choir__print_word(FILE *out, const char *text, int width)
{
    char *word = choir__printed(text);
    fprintf(out, "%*s", width, word);
    free(word);
}

/* --- cells --- */

static bool is_number(const char *text)
{
    char *end;
    choir__number_read(text, &end);
    return end != text && !*end && !strchr(text, '('); /* nan(...) may hold words */
}

void choir__print_cell(FILE *out, const char *text)
{
    char *clean = choir__clean(choir__strdup(text));
    bool formula = *clean && strchr("=+-@\t\n", *clean) && !is_number(text);
    bool quoted = clean[strcspn(clean, ",\"\n")];
    fprintf(out, "%s%s", quoted ? "\"" : "", formula ? "'" : "");
    for (const char *at = clean; *at; at++)
        fprintf(out, *at == '"' ? "\"\"" : "%c", *at);
    fputs(quoted ? "\"" : "", out);
    free(clean);
}

/* --- streams --- */

typedef struct cleaner {
    FILE *to;
    char begun[CHOIR__LONGEST_UTF8]; /* bytes of a character whose end has not come yet */
    size_t count;
} cleaner;

/* Returns the number of bytes at the end of text that begin a character and do not end it. */
static size_t unfinished(const char *text, size_t bytes)
{
    for (size_t n = 1; n < CHOIR__LONGEST_UTF8 && n <= bytes; n++) {
        unsigned char first = (unsigned char)text[bytes - n];
        if ((first & 0xc0) == 0x80)
            continue;
        size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
        return length > n ? n : 0;
    }
    return 0;
}

static ssize_t pass_on(void *cookie, const char *bytes, size_t count)
{
    cleaner *c = cookie;
    size_t all = c->count + count, zero;
    char *text = choir__alloc(all + 1);
    memcpy(text, c->begun, c->count);
    memcpy(text + c->count, bytes, count);
    text[all] = '\0';
    c->count = unfinished(text, all);
    memcpy(c->begun, text + all - c->count, c->count);
    all -= c->count;
    text[all] = '\0';
    while ((zero = strlen(text)) < all)
        text[zero] = '?';
    bool good = fwrite(choir__clean(text), 1, all, c->to) == all && fflush(c->to) == 0;
    free(text);
    return good ? (ssize_t)count : 0;
}

static int end_cleaner(void *cookie)
{
    cleaner *c = cookie;
    for (; c->count > 0; c->count--)
        fputc('?', c->to);
    free(c);
    return 0;
}

FILE *choir__printed_stream(FILE *to)
{
    cleaner *c = choir__calloc(1, sizeof *c);
    c->to = to;
    FILE *stream =
        fopencookie(c, "w", (cookie_io_functions_t){.write = pass_on, .close = end_cleaner});
    if (!stream)
        free(c);
    return stream;
}
