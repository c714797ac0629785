/* The memory, work and failures of a run, and values made from parts.
 *
 * Each byte that is asked for and each step is counted before it is given. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "data/jinja/value.h"

enum { MOST_DEPTH = 400, BYTES_A_STEP = 16 };

void choir__jinja_fail(choir__jinja_run *r, const char *format, ...)
{
    char why[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    (void)!choir__error(CHOIR_ERR_FORMAT, "%s, line %d: %s", r->name, r->line, why);
    longjmp(r->leave, 1);
}

void choir__jinja_step(choir__jinja_run *r, size_t steps)
{
    r->steps += steps;
    if (r->steps > r->most_steps)
        choir__jinja_fail(r, "the template takes more than %llu steps: a loop without end?",
            (unsigned long long)r->most_steps);
}

void *choir__jinja_get(choir__jinja_run *r, size_t bytes)
{
    if (bytes > r->most_memory - r->memory)
        choir__jinja_fail(
            r, "the template takes more than %zu MiB of memory", r->most_memory >> 20);
    r->memory += bytes;
    choir__jinja_step(r, 1 + bytes / BYTES_A_STEP);
    return choir__arena_get(&r->arena, bytes);
}

void choir__jinja_deeper(choir__jinja_run *r)
{
    if (++r->depth > MOST_DEPTH)
        choir__jinja_fail(r, "constructs or calls are nested more than %d deep", MOST_DEPTH);
}

void *choir__jinja_grow(
    choir__jinja_run *r, void *items, size_t count, size_t *room, size_t bytes)
{
    if (count < *room)
        return items;
    *room = 2 * count + 4;
    void *larger = choir__jinja_get(r, *room * bytes);
    if (count)
        memcpy(larger, items, count * bytes);
    return larger;
}

void choir__jinja_put(
    choir__jinja_run *r, choir__jinja_out *out, const char *text, size_t bytes)
{
    if (bytes > out->room - out->bytes) {
        size_t room = 2 * (out->bytes + bytes) + 32;
        char *data = choir__jinja_get(r, room);
        if (out->bytes)
            memcpy(data, out->data, out->bytes);
        out->data = data;
        out->room = room;
    }
    choir__jinja_step(r, bytes / BYTES_A_STEP);
    if (bytes)
        memcpy(out->data + out->bytes, text, bytes);
    out->bytes += bytes;
}

void choir__jinja_puts(choir__jinja_run *r, choir__jinja_out *out, const char *text)
{
    choir__jinja_put(r, out, text, strlen(text));
}

void choir__jinja_put_code(choir__jinja_run *r, choir__jinja_out *out, uint32_t code)
{
    char utf8[CHOIR__LONGEST_UTF8 + 1];
    int bytes = choir__utf8_encode(code, utf8);
    choir__jinja_put(r, out, utf8, (size_t)bytes);
}

/* --- values --- */

choir__jinja_value choir__jinja_undefined(choir__jinja_run *r, const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    char *kept = choir__jinja_get(r, strlen(why) + 1);
    strcpy(kept, why);
    return (choir__jinja_value){CHOIR__JINJA_UNDEFINED, {.why = kept}};
}

static size_t count_chars(const char *data, size_t bytes)
{
    size_t chars = 0;
    for (size_t i = 0; i < bytes; i++)
        chars += ((unsigned char)data[i] & 0xC0) != 0x80;
    return chars;
}

choir__jinja_value choir__jinja_borrow(choir__jinja_run *r, const char *data, size_t bytes)
{
    choir__jinja_text *text = choir__jinja_get(r, sizeof *text);
    choir__jinja_step(r, bytes / BYTES_A_STEP);
    *text = (choir__jinja_text){data, bytes, count_chars(data, bytes), 0, false};
    return (choir__jinja_value){CHOIR__JINJA_TEXT, {.text = text}};
}

choir__jinja_value choir__jinja_text_of(choir__jinja_run *r, const char *data, size_t bytes)
{
    char *copy = choir__jinja_get(r, bytes + 1);
    if (bytes)
        memcpy(copy, data, bytes);
    return choir__jinja_borrow(r, copy, bytes);
}

choir__jinja_value choir__jinja_taken(choir__jinja_run *r, const choir__jinja_out *out)
{
    return choir__jinja_borrow(r, out->data ? out->data : "", out->bytes);
}

choir__jinja_value choir__jinja_list_of(choir__jinja_run *r, choir__jinja_kind kind)
{
    choir__jinja_list *list = choir__jinja_get(r, sizeof *list);
    return (choir__jinja_value){kind, {.list = list}};
}

void choir__jinja_append(choir__jinja_run *r, choir__jinja_list *list, choir__jinja_value value)
{
    CHOIR__JINJA_GROW(r, list->item, list->count, list->room);
    list->item[list->count++] = value;
}

choir__jinja_value choir__jinja_pair(
    choir__jinja_run *r, choir__jinja_value first, choir__jinja_value second)
{
    choir__jinja_value pair = choir__jinja_list_of(r, CHOIR__JINJA_TUPLE);
    choir__jinja_append(r, pair.as.list, first);
    choir__jinja_append(r, pair.as.list, second);
    return pair;
}

choir__jinja_value choir__jinja_dict_of(choir__jinja_run *r)
{
    choir__jinja_dict *dict = choir__jinja_get(r, sizeof *dict);
    return (choir__jinja_value){CHOIR__JINJA_DICT, {.dict = dict}};
}
