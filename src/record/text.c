/* Growing texts, and JSON: strings of any bytes, in which broken UTF-8 becomes U+FFFD, and
 * numbers with as many digits as read back exactly. */
#include "record/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void choir__text_clear(choir__text *t)
{
    t->used = 0;
    if (t->bytes)
        t->bytes[0] = '\0';
}

void choir__text_add(choir__text *t, const char *bytes, size_t count)
{
    if (t->used + count + 1 > t->room) {
        t->room = 2 * (t->used + count + 1);
        t->bytes = choir__realloc(t->bytes, t->room);
    }
    memcpy(t->bytes + t->used, bytes, count);
    t->used += count;
    t->bytes[t->used] = '\0';
}

void choir__text_put(choir__text *t, const char *text)
{
    choir__text_add(t, text, strlen(text));
}

void choir__text_drop(choir__text *t, size_t count)
{
    if (!count)
        return;
    t->used -= count;
    memmove(t->bytes, t->bytes + count, t->used + 1);
}

json_t *choir__json_string(const char *text)
{
    json_t *whole = json_string(text);
    if (whole)
        return whole;
    choir__text clean = {0};
    for (const char *at = text; *at;) {
        size_t bytes = 1;
        json_t *piece = NULL;
        for (; bytes <= 4 && !piece && strnlen(at, bytes) == bytes; bytes++)
            piece = json_stringn(at, bytes);
        if (piece)
            choir__text_add(&clean, at, --bytes);
        else
            choir__text_put(&clean, "\xef\xbf\xbd");
        at += piece ? bytes : 1;
        json_decref(piece);
    }
    json_t *made = json_string(clean.bytes ? clean.bytes : "");
    choir__text_free(&clean);
    return made;
}

void choir__text_json(choir__text *t, const char *text)
{
    json_t *value = choir__json_string(text);
    char *dumped = json_dumps(value, JSON_ENCODE_ANY);
    choir__text_put(t, dumped);
    free(dumped);
    json_decref(value);
}

char *choir__json_plain(const json_t *value)
{
    char number[CHOIR__NUMBER_TEXT];
    if (json_is_string(value))
        return choir__strdup(json_string_value(value));
    if (!json_is_real(value))
        return json_dumps(value, JSON_ENCODE_ANY);
    choir__number_text(json_real_value(value), number);
    return choir__strdup(number);
}

void choir__text_free(choir__text *t)
{
    free(t->bytes);
    *t = (choir__text){0};
}

void choir__text_number(choir__text *t, double x)
{
    char text[CHOIR__NUMBER_TEXT];
    int length = choir__number_text(x, text);
    if (isfinite(x))
        choir__text_add(t, text, (size_t)length);
    else
        choir__text_put(t, "null");
}
