/* Tokens spell bytes: a character may be several tokens, and a stop string may begin inside
 * one. So bytes become text when they are whole characters, and not yet if they may begin a
 * stop string. */
#include "generate/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/utf8.h"

/* Returns whether [at, end) may be the beginning of a character: the range of its second byte
 * depends on the first. */
static bool is_begun(const char *at, const char *end)
{
    static const char seconds[] = {'\x80', '\x90', '\xa0'};
    const size_t have = (size_t)(end - at);
    char whole[CHOIR__LONGEST_UTF8];
    for (size_t i = 0; i < sizeof seconds && have < sizeof whole; i++) {
        memset(whole, '\x80', sizeof whole);
        whole[1] = seconds[i];
        memcpy(whole, at, have);
        if ((size_t)choir__utf8_length(whole, whole + sizeof whole) > have)
            return true;
    }
    return false;
}

static void give(choir__words *w, const char *text, size_t bytes)
{
    w->text = choir__realloc(w->text, w->text_bytes + bytes + 1);
    memcpy(w->text + w->text_bytes, text, bytes);
    w->text_bytes += bytes;
    w->text[w->text_bytes] = '\0';
}

/* Turns raw bytes up to `until` into text; `last`: a character that is not whole then never
 * will be. */
static void give_until(choir__words *w, size_t until, bool last)
{
    const char *end = w->raw + until;
    while (w->given < until) {
        const char *at = w->raw + w->given;
        const int n = choir__utf8_length(at, end);
        if (!n && !last && is_begun(at, end))
            return;
        give(w, n ? at : "\xef\xbf\xbd", n ? (size_t)n : 3);
        w->given += n ? (size_t)n : 1;
    }
}

/* Returns the number of bytes at the end of raw that a stop string may begin with. */
static size_t held_back(const choir__words *w)
{
    size_t most = 0;
    for (int64_t s = 0; s < w->stops; s++)
        for (size_t n = choir__min(strlen(w->stop[s]) - 1, w->bytes - w->given); n > most; n--)
            if (!memcmp(w->raw + w->bytes - n, w->stop[s], n)) {
                most = n;
                break;
            }
    return most;
}

bool choir__words_add(choir__words *w, const char *spelled, size_t bytes)
{
    w->raw = choir__realloc(w->raw, w->bytes + bytes + 1);
    memcpy(w->raw + w->bytes, spelled, bytes);
    w->bytes += bytes;
    w->raw[w->bytes] = '\0';
    size_t first = w->bytes;
    for (int64_t s = 0; s < w->stops; s++) {
        const char *at =
            memmem(w->raw + w->given, w->bytes - w->given, w->stop[s], strlen(w->stop[s]));
        if (at)
            first = choir__min(first, (size_t)(at - w->raw));
    }
    const bool stopped = first < w->bytes;
    if (stopped)
        w->bytes = first;
    give_until(w, stopped ? first : w->bytes - held_back(w), false);
    return stopped;
}

void choir__words_end(choir__words *w)
{
    give_until(w, w->bytes, true);
    give(w, "", 0);
}

size_t choir__words_next(choir__words *w, const char **text)
{
    const size_t bytes = w->text_bytes - w->shown;
    *text = bytes ? w->text + w->shown : "";
    w->shown = w->text_bytes;
    return bytes;
}
