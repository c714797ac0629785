/* Growing texts, and JSON in them. Whether a comma is needed is seen in the text: none comes at
 * its beginning, behind an open bracket, or behind a key. */
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

void choir__text_buffer_clear(choir__text_buffer *t)
{
    t->used = 0;
    if (t->bytes)
        t->bytes[0] = '\0';
}

/* Makes room for `count` more bytes and a '\0'. */
static void reserve(choir__text_buffer *t, size_t count)
{
    if (t->used + count + 1 <= t->room)
        return;
    t->room = 2 * (t->used + count + 1);
    t->bytes = choir__realloc(t->bytes, t->room);
}

void choir__text_buffer_add(choir__text_buffer *t, const char *bytes, size_t count)
{
    reserve(t, count);
    if (count)
        memcpy(t->bytes + t->used, bytes, count);
    t->used += count;
    t->bytes[t->used] = '\0';
}

void choir__text_buffer_add_code(choir__text_buffer *t, uint32_t code)
{
    char text[CHOIR__LONGEST_UTF8 + 1];
    choir__text_buffer_add(t, text, (size_t)choir__utf8_encode(code, text));
}

void choir__text_buffer_put(choir__text_buffer *t, const char *text)
{
    choir__text_buffer_add(t, text, strlen(text));
}

static void add_formatted(choir__text_buffer *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int length = choir__number_vprint(NULL, 0, format, again);
    va_end(again);
    reserve(t, (size_t)length);
    choir__number_vprint(t->bytes + t->used, (size_t)length + 1, format, args);
    t->used += (size_t)length;
}

void choir__text_format(choir__text_buffer *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    add_formatted(t, format, args);
    va_end(args);
}

void choir__text_buffer_drop(choir__text_buffer *t, size_t count)
{
    if (!count)
        return;
    t->used -= count;
    memmove(t->bytes, t->bytes + count, t->used + 1);
}

void choir__text_buffer_free(choir__text_buffer *t)
{
    free(t->bytes);
    *t = (choir__text_buffer){0};
}

/* --- JSON --- */

/* Returns how many of the next bytes are written as they are. */
static size_t plain_bytes(const char *text)
{
    size_t n = 0;
    while (text[n] >= ' ' && text[n] <= '~' && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

static void add_quoted(choir__text_buffer *t, const char *text)
{
    const char *end = text + strlen(text);
    choir__text_buffer_put(t, "\"");
    while (text < end) {
        uint32_t code;
        size_t plain = plain_bytes(text);
        choir__text_buffer_add(t, text, plain);
        text += plain;
        if (text == end)
            break;
        int n = choir__utf8_decode(text, end, &code);
        if (n == 0) /* JSON is UTF-8, and texts out of files or of other programs may not be */
            choir__text_buffer_put(t, "\\ufffd");
        else if (code < 0x20 || !choir__utf8_is_clean(text, n)) /* below U+10000 */
            choir__text_format(t, "\\u%04x", (unsigned)code);
        else
            choir__text_format(t, "%s%.*s", code == '"' || code == '\\' ? "\\" : "", n, text);
        text += n ? n : 1;
    }
    choir__text_buffer_put(t, "\"");
}

/* Adds what comes before a value: a comma if there is a value already, and the key. */
static void add_key(choir__text_buffer *t, const char *key)
{
    if (t->used && !strchr("{[:\n", t->bytes[t->used - 1]))
        choir__text_buffer_put(t, ",");
    if (!key)
        return;
    add_quoted(t, key);
    choir__text_buffer_put(t, ":");
}

void choir__text_open(choir__text_buffer *t, const char *key, char bracket)
{
    add_key(t, key);
    choir__text_buffer_add(t, &bracket, 1);
}

void choir__text_close(choir__text_buffer *t, char bracket)
{
    choir__text_buffer_add(t, &bracket, 1);
}

void choir__text_string(choir__text_buffer *t, const char *key, const char *text)
{
    add_key(t, key);
    if (text)
        add_quoted(t, text);
    else
        choir__text_buffer_put(t, "null");
}

void choir__text_buffer_number(choir__text_buffer *t, const char *key, double x)
{
    char text[CHOIR__NUMBER_TEXT];
    choir__number_text(x, text);
    choir__text_value(t, key, "%s", isfinite(x) ? text : "null");
}

void choir__text_value(choir__text_buffer *t, const char *key, const char *format, ...)
{
    va_list args;
    add_key(t, key);
    va_start(args, format);
    add_formatted(t, format, args);
    va_end(args);
}

void choir__text_print(choir__text_buffer *t, FILE *out)
{
    choir__text_buffer_put(t, "\n");
    fwrite(t->bytes, 1, t->used, out);
    choir__text_buffer_clear(t);
}

void choir__text_finish(choir__text_buffer *t, FILE *out)
{
    choir__text_close(t, '}');
    choir__text_print(t, out);
    choir__text_buffer_free(t);
}

int choir__by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

char *choir__text_mended(const char *text)
{
    choir__text_buffer clean = {0};
    const char *end = text + strlen(text);
    choir__text_buffer_put(&clean, "");
    while (text < end) {
        int n = choir__utf8_length(text, end);
        choir__text_buffer_add(&clean, n ? text : "\xef\xbf\xbd", n ? (size_t)n : 3);
        text += n ? n : 1;
    }
    return clean.bytes;
}

char *choir__divisors(int64_t n, int64_t of)
{
    enum { MOST = 16 };
    char *text = choir__strdup("");
    for (int64_t d = of, listed = 0; d <= n; d += of) {
        if (n % d)
            continue;
        bool ends = d == n || ++listed > MOST;
        const char *before = !*text ? "" : ends && d == n ? " or " : ", ";
        char *more = ends && d < n ? choir__format("%s, ...", text)
                                   : choir__format("%s%s%lld", text, before, (long long)d);
        free(text);
        text = more;
        if (ends)
            break;
    }
    return text;
}
