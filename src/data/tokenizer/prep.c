/* Preparation of a text for a model of characters: replacements (SentencePiece's table,
 * compiled from nmt_nfkc and similar rules), spaces, and marks for spaces. */
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/models.h"

enum { MARK = sizeof CHOIR__SPACE_MARK - 1 };

/* --- the table of replacements: u32 size of a double-array trie in bytes, the trie (u32
 * units), then the replacements, each followed by '\0' --- */

static uint32_t unit_at(const choir__prep *p, size_t i)
{
    uint32_t u;
    memcpy(&u, p->charsmap + 4 + 4 * i, 4);
    return u;
}

choir_status choir__prep_set_charsmap(
    choir__prep *p, const char *name, const char *blob, size_t bytes)
{
    uint32_t trie = 0;
    if (bytes >= 4)
        memcpy(&trie, blob, 4);
    if (bytes < 8 || trie % 4 || trie < 4 || trie > bytes - 5 || blob[bytes - 1])
        return choir__error(CHOIR_ERR_FORMAT,
            "%s: the normalizer's precompiled_charsmap of %zu bytes is damaged", name, bytes);
    p->charsmap = memcpy(choir__alloc(bytes), blob, bytes);
    p->charsmap_bytes = bytes;
    return CHOIR_OK;
}

void choir__prep_free(choir__prep *p)
{
    free(p->charsmap);
}

static size_t offset_of(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & 1u << 9) >> 6);
}

/* Returns the replacement of the longest prefix of the text that has one, or NULL. *used:
 * length of the prefix. */
static const char *replaced(
    const choir__prep *p, const char *text, const char *end, size_t *used)
{
    const char *found = NULL;
    uint32_t trie;
    if (!p->charsmap)
        return NULL;
    memcpy(&trie, p->charsmap, 4);
    size_t units = trie / 4, place = 0;
    uint32_t unit = unit_at(p, 0);
    place ^= offset_of(unit);
    for (const char *at = text; at < end;) {
        unsigned char label = (unsigned char)*at++;
        place ^= label;
        if (place >= units)
            break;
        unit = unit_at(p, place);
        if ((unit & (1u << 31 | 0xFF)) != label)
            break;
        place ^= offset_of(unit);
        if (!(unit >> 8 & 1))
            continue;
        if (place >= units)
            break;
        size_t value = unit_at(p, place) & 0x7FFFFFFF;
        if (value >= p->charsmap_bytes - 4 - trie)
            break;
        found = p->charsmap + 4 + trie + value;
        *used = (size_t)(at - text);
    }
    return found;
}

/* --- spaces --- */

static bool is_mark(const char *at, const char *end)
{
    return end - at >= MARK && !memcmp(at, CHOIR__SPACE_MARK, MARK);
}

static size_t space_at(const choir__prep *p, const char *at, const char *end)
{
    uint32_t code;
    if (*at == ' ')
        return 1;
    if (!p->any_space)
        return 0;
    int n = choir__utf8_decode(at, end, &code);
    return n && choir__unicode_class(code) == CHOIR__SPACE ? (size_t)n : 0;
}

static void replace_characters(
    const choir__prep *p, const char *text, const char *end, choir__tokenizer_buffer *out)
{
    while (text < end) {
        size_t used = 0;
        uint32_t code;
        const char *to = replaced(p, text, end, &used);
        if (to) {
            choir__tokenizer_buffer_add(out, to, strlen(to));
            text += used;
            continue;
        }
        int n = choir__utf8_decode(text, end, &code);
        choir__tokenizer_buffer_add(
            out, n ? text : "\xef\xbf\xbd", n ? (size_t)n : 3); /* U+FFFD */
        text += n ? n : 1;
    }
}

static bool wants_prefix(const choir__prep *p, choir__tokenizer_place place, bool has_one)
{
    switch (p->prefix) {
    case CHOIR__PREFIX_FIRST: return place == CHOIR__BEGINNING && !has_one;
    case CHOIR__PREFIX_ALWAYS: return place != CHOIR__CONTINUED && !has_one;
    case CHOIR__PREFIX_TWICE: return place != CHOIR__CONTINUED;
    case CHOIR__PREFIX_DUMMY: return place == CHOIR__BEGINNING;
    default: return false;
    }
}

void choir__prep_text(const choir__prep *p, const char *text, const char *end,
    choir__tokenizer_place place, choir__tokenizer_buffer *out)
{
    choir__tokenizer_buffer plain = {0};
    replace_characters(p, text, end, &plain);
    const char *at = plain.data, *stop = at + plain.bytes;
    const char *mark = p->mark ? CHOIR__SPACE_MARK : " ";
    size_t mark_bytes = strlen(mark), n, begins = out->bytes;
    if (p->strip_left && place != CHOIR__CONTINUED)
        while (at < stop && (n = space_at(p, at, stop)))
            at += n;
    bool has_one = at < stop && (space_at(p, at, stop) || is_mark(at, stop));
    if (at < stop && wants_prefix(p, place, has_one))
        choir__tokenizer_buffer_add(out, mark, mark_bytes);
    bool spaces = false;
    size_t last = out->bytes; /* end of the text without trailing spaces */
    while (at < stop) {
        if ((n = space_at(p, at, stop))) {
            bool marked = p->any_space && is_mark(at + n, stop); /* by the text itself */
            if ((!spaces || !p->collapse) && !marked)
                choir__tokenizer_buffer_add(out, mark, mark_bytes);
            spaces = true;
            at += n;
            continue;
        }
        uint32_t code;
        n = (size_t)choir__max(choir__utf8_decode(at, stop, &code), 1);
        choir__tokenizer_buffer_add(out, at, n);
        spaces = false;
        last = out->bytes;
        at += n;
    }
    if (p->strip_right)
        out->bytes = last > begins + mark_bytes || !spaces ? last : begins;
    free(plain.data);
}

/* --- words --- */

const char *choir__prep_word(const choir__prep *p, const char *at, const char *end)
{
    if (!p->words)
        return end;
    for (bool more = true; more && is_mark(at, end); more = !p->single_mark)
        at += MARK;
    while (at < end && !is_mark(at, end))
        at++;
    return at;
}

bool choir__vocab_has_words(const choir__vocab *v)
{
    for (int64_t id = 0; id < v->size; id++) {
        size_t bytes;
        const char *text = choir__vocab_text(v, id, &bytes);
        const char *at = text, *end = text ? text + bytes : NULL;
        while (at < end && is_mark(at, end))
            at += MARK;
        for (; at < end; at++)
            if (is_mark(at, end))
                return false;
    }
    return true;
}

/* --- unknown characters --- */

bool choir__unknown_bytes(choir__unknown *u, const choir__vocab *keys)
{
    static const char digit[] = "0123456789ABCDEF";
    for (int i = 0; i < 256; i++) {
        char key[] = {'<', '0', 'x', digit[i >> 4], digit[i & 15], '>'};
        u->byte[i] = (int32_t)choir__vocab_find(keys, key, sizeof key);
        if (u->byte[i] < 0) {
            u->byte[0] = -1;
            return false;
        }
    }
    return true;
}

bool choir__unknown_add(
    const choir__unknown *u, const char *at, int bytes, bool again, choir__ids *ids)
{
    if (u->byte[0] >= 0) {
        for (int i = 0; i < bytes; i++)
            choir__ids_add(ids, u->byte[(unsigned char)at[i]]);
        return true;
    }
    if (u->id < 0)
        return false;
    if (!again || !u->fuse)
        choir__ids_add(ids, u->id);
    return true;
}
