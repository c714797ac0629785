/* Donut's json2token: keys in reverse order of their names, <s_key> and </s_key> around the
 * value of a key, <sep/> between the entries of a list, and everything else as Python's str()
 * writes it. An object whose only key is text_sequence becomes that text. */
#include "data/text/document_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

void choir__names_add(choir__names *n, const char *format, const char *part)
{
    size_t bytes = strlen(format) + strlen(part) + 1;
    char *name = choir__alloc(bytes);
    const char *at = strchr(format, '*');
    snprintf(name, bytes, "%.*s%s%s", (int)(at - format), format, part, at + 1);
    if (choir__map_find(&n->places, name) >= 0) {
        free(name);
        return;
    }
    CHOIR__GROW(n->name, n->count);
    choir__map_put(&n->places, name, n->count);
    n->name[n->count++] = name;
}

void choir__names_free(choir__names *n)
{
    for (int64_t i = 0; i < n->count; i++)
        free(n->name[i]);
    free(n->name);
    choir__map_free(&n->places);
    *n = (choir__names){0};
}

typedef const choir__json *member; /* the node of its name; its value follows */

/* Members of one name: the last one is first. */
static int downwards(const void *a, const void *b)
{
    member x = *(const member *)a, y = *(const member *)b;
    int order = -strcmp(x->text, y->text);
    return order ? order : (x < y) - (x > y);
}

static void add_value(choir__text_buffer *t, const choir__json *value, choir__names *fields);

static void add_object(choir__text_buffer *t, const choir__json *object, choir__names *fields)
{
    size_t count = object->count;
    const choir__json *inner = choir__json_get(object, "text_sequence");
    member next = choir__json_first(object);
    if (count == 1 && inner) {
        add_value(t, inner, fields);
        return;
    }
    member *members = choir__alloc((count + 1) * sizeof(member));
    for (size_t i = 0; i < count; i++, next = choir__json_next(next + 1))
        members[i] = next;
    qsort(members, count, sizeof(member), downwards);
    for (size_t i = 0; i < count; i++) {
        const char *key = members[i]->text;
        if (i && !strcmp(key, members[i - 1]->text))
            continue; /* among members of one name the last counts */
        choir__names_add(fields, "<s_*>", key);
        choir__names_add(fields, "</s_*>", key);
        choir__text_buffer_put(t, "<s_");
        choir__text_buffer_put(t, key);
        choir__text_buffer_put(t, ">");
        add_value(t, members[i] + 1, fields);
        choir__text_buffer_put(t, "</s_");
        choir__text_buffer_put(t, key);
        choir__text_buffer_put(t, ">");
    }
    free(members);
}

/* Writes a number as Python does: the fewest digits that read back as the same number, with an
 * exponent below 1e-4 and from 1e16 on. */
static void write_real(char *out, size_t room, double value)
{
    bool exponent = fabs(value) >= 1e16 || (value != 0 && fabs(value) < 1e-4);
    if (!exponent && value == floor(value)) {
        choir__number_print(out, room, "%.1f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        choir__number_print(out, room, "%.*g", digits, value);
        if (choir__number_read(out, NULL) == value)
            break;
    }
}

static void add_array(choir__text_buffer *t, const choir__json *array, choir__names *fields)
{
    const choir__json *entry = choir__json_first(array);
    for (uint32_t i = 0; i < array->count; i++, entry = choir__json_next(entry)) {
        if (i) {
            choir__names_add(fields, "*", "<sep/>");
            choir__text_buffer_put(t, "<sep/>");
        }
        add_value(t, entry, fields);
    }
}

/* The parser refuses values that are nested too deeply, so this recursion ends. */
static void add_value(choir__text_buffer *t, const choir__json *value, choir__names *fields)
{
    char number[64] = "";
    int64_t whole;
    switch (value->type) {
    case CHOIR__JSON_OBJECT: add_object(t, value, fields); return;
    case CHOIR__JSON_ARRAY: add_array(t, value, fields); return;
    case CHOIR__JSON_STRING: choir__text_buffer_put(t, value->text); return;
    case CHOIR__JSON_INTEGER:
        if (choir__json_integer(value, &whole))
            snprintf(number, sizeof number, "%lld", (long long)whole);
        else
            write_real(number, sizeof number, choir__json_real(value));
        break;
    case CHOIR__JSON_REAL: write_real(number, sizeof number, choir__json_real(value)); break;
    case CHOIR__JSON_TRUE: strcpy(number, "True"); break;
    case CHOIR__JSON_FALSE: strcpy(number, "False"); break;
    case CHOIR__JSON_NULL: strcpy(number, "None"); break;
    }
    choir__text_buffer_put(t, number);
}

char *choir__document_text(const choir__json *value, choir__names *fields)
{
    choir__text_buffer t = {0};
    choir__text_buffer_put(&t, "");
    add_value(&t, value, fields);
    return t.bytes;
}
