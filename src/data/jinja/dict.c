/* Equality, and dicts: keys in the order in which they were added, found by hash once there are
 * several.
 *
 * Numbers that are equal are one key, as in Python: 1, 1.0 and true. The seed of hashes is
 * secret, so no file can choose keys that share a slot. */
#include <string.h>

#include "base/hash.h"
#include "data/jinja/value.h"

enum { FEW = 8 };

/* --- equality --- */

static bool equal_lists(
    choir__jinja_run *r, const choir__jinja_list *a, const choir__jinja_list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!choir__jinja_equal(r, a->item[i], b->item[i]))
            return false;
    return true;
}

static bool equal_dicts(
    choir__jinja_run *r, const choir__jinja_dict *a, const choir__jinja_dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const choir__jinja_value *other = choir__jinja_dict_get(r, b, a->key[i]);
        if (!other || !choir__jinja_equal(r, a->value[i], *other))
            return false;
    }
    return true;
}

static bool equal_numbers(choir__jinja_value a, choir__jinja_value b)
{
    if (a.kind != CHOIR__JINJA_REAL && b.kind != CHOIR__JINJA_REAL)
        return a.as.whole == b.as.whole;
    return choir__jinja_number(a) == choir__jinja_number(b);
}

bool choir__jinja_equal(choir__jinja_run *r, choir__jinja_value a, choir__jinja_value b)
{
    choir__jinja_step(r, 1);
    if (choir__jinja_is_number(a) && choir__jinja_is_number(b))
        return equal_numbers(a, b);
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case CHOIR__JINJA_UNDEFINED:
    case CHOIR__JINJA_NONE: return true;
    case CHOIR__JINJA_TEXT:
        choir__jinja_step(r, choir__min(a.as.text->bytes, b.as.text->bytes) / 16);
        return a.as.text->bytes == b.as.text->bytes &&
               !memcmp(a.as.text->data, b.as.text->data, a.as.text->bytes);
    case CHOIR__JINJA_LIST:
    case CHOIR__JINJA_TUPLE:
    case CHOIR__JINJA_RANGE: {
        choir__jinja_deeper(r);
        bool equal = equal_lists(r, a.as.list, b.as.list);
        r->depth--;
        return equal;
    }
    case CHOIR__JINJA_DICT: {
        choir__jinja_deeper(r);
        bool equal = equal_dicts(r, a.as.dict, b.as.dict);
        r->depth--;
        return equal;
    }
    default: return a.as.list == b.as.list; /* one object */
    }
}

/* --- dicts --- */

uint64_t choir__jinja_hash(choir__jinja_run *r, choir__jinja_value key)
{
    uint64_t hash = r->secret;
    switch (key.kind) {
    case CHOIR__JINJA_TEXT:
        if (!key.as.text->hash)
            key.as.text->hash =
                choir__hash_bytes(hash, key.as.text->data, key.as.text->bytes) | 1;
        return key.as.text->hash;
    case CHOIR__JINJA_NONE: return choir__hash_step(hash, 1);
    case CHOIR__JINJA_BOOL:
    case CHOIR__JINJA_INT:
    case CHOIR__JINJA_REAL: {
        double real = choir__jinja_number(key) + 0.0; /* -0.0 is 0 */
        uint64_t bits;
        memcpy(&bits, &real, sizeof bits);
        return choir__hash_step(hash, bits);
    }
    case CHOIR__JINJA_TUPLE:
        for (size_t i = 0; i < key.as.list->count; i++)
            hash = choir__hash_step(hash, choir__jinja_hash(r, key.as.list->item[i]));
        return hash;
    default: choir__jinja_fail(r, "a '%s' cannot be the key of a dict", choir__jinja_type(key));
    }
}

static void fill_slots(choir__jinja_run *r, choir__jinja_dict *d)
{
    d->slots = 4 * FEW;
    while (d->slots < 4 * d->count)
        d->slots *= 2;
    d->slot = choir__jinja_get(r, d->slots * sizeof *d->slot);
    for (size_t i = 0; i < d->count; i++) {
        size_t at = choir__hash_slot(choir__jinja_hash(r, d->key[i]), d->slots);
        while (d->slot[at])
            at = (at + 1) & (d->slots - 1);
        d->slot[at] = (uint32_t)i + 1;
    }
}

static bool same(choir__jinja_run *r, choir__jinja_value a, choir__jinja_value b)
{
    if (a.kind == CHOIR__JINJA_TEXT && b.kind == CHOIR__JINJA_TEXT)
        return a.as.text == b.as.text ||
               (a.as.text->bytes == b.as.text->bytes &&
                   !memcmp(a.as.text->data, b.as.text->data, a.as.text->bytes));
    return choir__jinja_equal(r, a, b);
}

static int64_t find(choir__jinja_run *r, const choir__jinja_dict *d, choir__jinja_value key)
{
    uint64_t hash = d->slot || key.kind != CHOIR__JINJA_TEXT ? choir__jinja_hash(r, key) : 0;
    choir__jinja_step(r, 1);
    for (size_t i = 0; i < d->count && !d->slot; i++)
        if (same(r, d->key[i], key))
            return (int64_t)i;
    if (!d->slot)
        return -1;
    for (size_t at = choir__hash_slot(hash, d->slots); d->slot[at];
         at = (at + 1) & (d->slots - 1))
        if (same(r, d->key[d->slot[at] - 1], key))
            return d->slot[at] - 1;
    return -1;
}

void choir__jinja_dict_set(
    choir__jinja_run *r, choir__jinja_dict *d, choir__jinja_value key, choir__jinja_value value)
{
    int64_t at = find(r, d, key);
    if (at >= 0) {
        d->value[at] = value;
        return;
    }
    size_t room = d->room;
    CHOIR__JINJA_GROW(r, d->key, d->count, room);
    CHOIR__JINJA_GROW(r, d->value, d->count, d->room);
    d->key[d->count] = key;
    d->value[d->count++] = value;
    if (d->count > FEW && 2 * d->count > d->slots)
        fill_slots(r, d);
    else if (d->slot) {
        size_t free_one = choir__hash_slot(choir__jinja_hash(r, key), d->slots);
        while (d->slot[free_one])
            free_one = (free_one + 1) & (d->slots - 1);
        d->slot[free_one] = (uint32_t)d->count;
    }
}

choir__jinja_value *choir__jinja_dict_get(
    choir__jinja_run *r, const choir__jinja_dict *d, choir__jinja_value key)
{
    int64_t at = find(r, d, key);
    return at < 0 ? NULL : &d->value[at];
}

choir__jinja_value *choir__jinja_dict_named(
    choir__jinja_run *r, const choir__jinja_dict *d, const char *name)
{
    choir__jinja_text text = {name, strlen(name), strlen(name), 0, false};
    return choir__jinja_dict_get(
        r, d, (choir__jinja_value){CHOIR__JINJA_TEXT, {.text = &text}});
}
