/* SentencePiece's table of replacements: a u32 with the size in bytes of a trie, the trie as a
 * double array of u32 units, then the replacements, each followed by '\0'.
 *
 * A unit has the offset to its children, the byte that leads to it, and whether a text ends
 * there; the replacement's place is then in the child of byte 0. */
#include "data/tokenizer/charsmap.h"

#include <stdlib.h>
#include <string.h>

static uint32_t u32_at(const choir__charsmap *m, size_t offset)
{
    uint32_t u;
    memcpy(&u, m->data + offset, 4);
    return u;
}

/* Stores the length of the longest replacement. */
static choir_status check_replacements(
    const char *name, const char *text, const char *end, size_t *longest)
{
    *longest = 0;
    while (text < end) {
        size_t bytes = strlen(text); /* a '\0' ends the file */
        if (bytes > CHOIR__LONGEST_REPLACEMENT)
            return choir__error(CHOIR_ERR_FORMAT,
                "%s: the normalizer's precompiled_charsmap has a replacement of %zu bytes: at"
                " most %d are allowed",
                name, bytes, CHOIR__LONGEST_REPLACEMENT);
        *longest = choir__max(*longest, bytes);
        text += bytes + 1;
    }
    return CHOIR_OK;
}

choir_status choir__charsmap_init(
    choir__charsmap *m, const char *name, const char *blob, size_t bytes)
{
    uint32_t trie = 0;
    size_t longest;
    if (bytes >= 4)
        memcpy(&trie, blob, 4);
    if (bytes < 8 || trie % 4 || trie < 4 || trie > bytes - 5 || blob[bytes - 1])
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the normalizer's precompiled_charsmap of %zu bytes is damaged", name, bytes);
    choir_status status = check_replacements(name, blob + 4 + trie, blob + bytes, &longest);
    if (status != CHOIR_OK)
        return status;
    m->data = memcpy(choir__alloc(bytes), blob, bytes);
    m->bytes = bytes;
    m->longest = longest;
    return CHOIR_OK;
}

void choir__charsmap_free(choir__charsmap *m)
{
    free(m->data);
    *m = (choir__charsmap){0};
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

static const char *find(
    const choir__charsmap *m, const char *text, const char *end, bool longest, size_t *used)
{
    const char *found = NULL;
    if (!m->data)
        return NULL;
    uint32_t trie = u32_at(m, 0);
    size_t units = trie / 4, place = offset_of(u32_at(m, 4));
    if (end - text > CHOIR__LONGEST_TOKEN) /* units of a damaged table may form a circle */
        end = text + CHOIR__LONGEST_TOKEN;
    for (const char *at = text; at < end;) {
        unsigned char label = (unsigned char)*at++;
        place ^= label;
        if (place >= units)
            break;
        uint32_t unit = u32_at(m, 4 + 4 * place);
        if ((unit & (1u << 31 | 0xFF)) != label)
            break;
        place ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        if (place >= units)
            break;
        size_t value = u32_at(m, 4 + 4 * place) & 0x7FFFFFFF;
        if (value >= m->bytes - 4 - trie)
            break;
        found = m->data + 4 + trie + value;
        *used = (size_t)(at - text);
        if (!longest)
            break;
    }
    return found;
}

const char *choir__charsmap_longest(
    const choir__charsmap *m, const char *text, const char *end, size_t *used)
{
    return find(m, text, end, true, used);
}

const char *choir__charsmap_shortest(
    const choir__charsmap *m, const char *text, const char *end, size_t *used)
{
    return find(m, text, end, false, used);
}

static bool ends_plain(const choir__charsmap *m, char letter)
{
    char text[] = {letter, ' '};
    size_t used = 1, bytes;
    const char *to = choir__charsmap_longest(m, text, text + 2, &used);
    bytes = to ? strlen(to) : 0;
    return used == 1 && (!to || (bytes && choir__is_plain(to[bytes - 1])));
}

/* Returns whether a key continues with this byte after the text that leads to unit i. */
static bool goes_on(const choir__charsmap *m, size_t i, unsigned char byte)
{
    size_t child = i ^ offset_of(u32_at(m, 4 + 4 * i)) ^ byte;
    return child < u32_at(m, 0) / 4 && (u32_at(m, 4 + 4 * child) & (1u << 31 | 0xFF)) == byte;
}

/* The space stays, or becomes a plain one, whatever follows it. */
static bool keeps_space(const choir__charsmap *m, char space)
{
    size_t used = 0, place = offset_of(u32_at(m, 4)) ^ (unsigned char)space;
    const char *to = choir__charsmap_longest(m, &space, &space + 1, &used);
    if (to && strcmp(to, " ") && strcmp(to, (char[]){space, 0}))
        return false;
    if (place >= u32_at(m, 0) / 4 ||
        (u32_at(m, 4 + 4 * place) & (1u << 31 | 0xFF)) != (unsigned char)space)
        return true; /* no key begins with it */
    for (int byte = 1; byte < 256; byte++)
        if (goes_on(m, place, (unsigned char)byte))
            return false;
    return true;
}

bool choir__charsmap_keeps_cuts(const choir__charsmap *m, char space)
{
    if (!m->data)
        return true;
    if (!keeps_space(m, ' ') || !keeps_space(m, space))
        return false;
    size_t units = u32_at(m, 0) / 4, root = offset_of(u32_at(m, 4));
    for (size_t i = 1; i < units; i++) {
        uint32_t unit = u32_at(m, 4 + 4 * i), byte = unit & (1u << 31 | 0xFF);
        if (byte >= 128 || !choir__is_plain((char)byte))
            continue;
        /* the end of a longer prefix, or the last but one before a space */
        if (((root ^ byte) != i && (unit >> 8 & 1)) || goes_on(m, i, ' ') ||
            goes_on(m, i, (unsigned char)space))
            return false;
    }
    for (int c = '0'; c <= 'z'; c++)
        if (choir__is_plain((char)c) && !ends_plain(m, (char)c))
            return false;
    return true;
}
