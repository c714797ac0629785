/* The tokenizer object of every kind: text to ids and back, and saving. any.c reads tokenizers.
 *
 * Special ("added") tokens are searched for first, anywhere in the text. The kind's own encode
 * converts the text between them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/tokenizer/tokenizer.h"

/* --- messages --- */

static long long line_of(const char *text, const char *at)
{
    long long line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

choir_status choir__not_utf8(const char *name, const char *text, const char *at)
{
    return choir__error(CHOIR_ERR_FORMAT,
        "%s%snot UTF-8: byte 0x%02x at offset %lld, line %lld", name ? name : "",
        name ? " is " : "", (unsigned char)*at, (long long)(at - text), line_of(text, at));
}

static choir_status no_token(const choir_tokenizer *t, const char *name, const char *text,
    const char *at, const char *end)
{
    uint32_t code;
    char what[32];
    int n = choir__utf8_decode(at, end, &code);
    if (!n && !t->ops->any_bytes)
        return choir__not_utf8(name, text, at);
    if (!n)
        snprintf(what, sizeof what, "0x%02x", (unsigned char)*at);
    else
        choir__utf8_describe(code, what);
    return choir__error(CHOIR_ERR_RANGE,
        "%s%sline %lld has the %s %s, which is not among the tokenizer's %lld",
        name ? name : "", name ? ": " : "", line_of(text, at), n ? "character" : "byte", what,
        (long long)t->size);
}

/* --- using --- */

int64_t choir_tokenizer_size(const choir_tokenizer *tokenizer)
{
    return tokenizer->size;
}

size_t choir_tokenizer_room(const choir_tokenizer *tokenizer, size_t bytes)
{
    size_t each = (size_t)tokenizer->ops->ids_per_byte;
    return each > 1 ? each * (bytes + 1) : bytes;
}

static const choir__added *added_at(const choir_tokenizer *t, const char *at, const char *end)
{
    if (!t->added_start[(unsigned char)*at])
        return NULL;
    for (size_t i = 0; i < t->added_count; i++) {
        const choir__added *a = &t->added[i];
        if ((size_t)(end - at) >= a->bytes && !memcmp(at, a->text, a->bytes))
            return a;
    }
    return NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

choir_status choir__tokenizer_encode(const choir_tokenizer *t, const char *name,
    const char *text, size_t bytes, choir__tokenizer_place place, choir__ids *ids)
{
    const char *end = text + bytes, *from = text, *stopped = NULL;
    for (const char *at = text; at < end && t->added_count;) {
        const choir__added *a = added_at(t, at, end);
        if (!a) {
            at++;
            continue;
        }
        const char *stop = at;
        while (a->strip_left && stop > from && is_blank(stop[-1]))
            stop--;
        if (stop > from)
            stopped = t->ops->encode(t, from, stop, place, ids);
        if (stopped)
            return no_token(t, name, text, stopped, end);
        choir__ids_add(ids, a->id);
        at += a->bytes;
        while (a->strip_right && at < end && is_blank(*at))
            at++;
        from = at;
        place = CHOIR__BEHIND_ADDED;
    }
    if (from < end)
        stopped = t->ops->encode(t, from, end, place, ids);
    return stopped ? no_token(t, name, text, stopped, end) : CHOIR_OK;
}

choir_status choir_tokenizer_encode(const choir_tokenizer *tokenizer, const char *text,
    size_t bytes, int64_t *ids, int64_t *count)
{
    choir__ids found = {0};
    choir_status status =
        choir__tokenizer_encode(tokenizer, NULL, text, bytes, CHOIR__BEGINNING, &found);
    if (status == CHOIR_OK) {
        for (size_t i = 0; i < found.count; i++)
            ids[i] = found.id[i];
        *count = (int64_t)found.count;
    }
    free(found.id);
    return status;
}

const char *choir_tokenizer_token(const choir_tokenizer *t, int64_t id, size_t *bytes)
{
    return choir__vocab_text(&t->decoded, id, bytes);
}

const char *choir_tokenizer_decode(const choir_tokenizer *tokenizer, int64_t id)
{
    size_t bytes;
    return choir_tokenizer_token(tokenizer, id, &bytes);
}

void choir_tokenizer_free(choir_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->ops->free)
        tokenizer->ops->free(tokenizer);
    choir__vocab_free(&tokenizer->decoded);
    free(tokenizer->source);
    free(tokenizer->added);
    free(tokenizer);
}

static int longer_first(const void *a, const void *b)
{
    const choir__added *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

void choir__tokenizer_set_added(choir_tokenizer *t, choir__added *added, size_t count)
{
    t->added = added;
    t->added_count = count;
    if (count)
        qsort(added, count, sizeof *added, longer_first);
    for (size_t i = 0; i < count; i++)
        t->added_start[(unsigned char)added[i].text[0]] = true;
}

/* --- files --- */

static bool write_all(int fd, const char *text, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(fd, text, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        text += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Writes a temporary file and renames it: at every moment the path holds the complete old or
 * new file. */
static choir_status write_file(const char *path, const char *text, size_t bytes)
{
    char *temporary = choir__format("%s.%ld.tmp", path, (long)getpid());
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = fd >= 0 && write_all(fd, text, bytes) && fsync(fd) == 0;
    int why = errno;
    if (fd >= 0 && close(fd) != 0 && good) {
        good = false;
        why = errno;
    }
    if (good && rename(temporary, path) != 0) {
        good = false;
        why = errno;
    }
    if (!good && fd >= 0)
        unlink(temporary);
    free(temporary);
    return good ? CHOIR_OK
                : choir__error(CHOIR_ERR_IO, "%s: cannot be written: %s", path, strerror(why));
}

choir_status choir_tokenizer_save(const choir_tokenizer *t, const char *path)
{
    if (!t->ops->to_json)
        return write_file(path, t->source, t->source_bytes);
    char *text = t->ops->to_json(t);
    if (!text)
        return choir__error(
            CHOIR_ERR_MEMORY, "%s: no host memory for the tokenizer's JSON", path);
    choir_status status = write_file(path, text, strlen(text));
    free(text);
    return status;
}
