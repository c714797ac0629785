/* A vocabulary: all texts one after another, and a table of ids by the text's hash (open
 * addressing, at most half full). Also the lists that encoding fills. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/tokenizer/models.h"
#include "data/tokenizer/tokenizer.h"

void choir__ids_add(choir__ids *ids, int32_t id)
{
    if (ids->count == ids->room) {
        ids->room = ids->room ? 2 * ids->room : 64;
        ids->id = choir__realloc(ids->id, ids->room * sizeof *ids->id);
    }
    ids->id[ids->count++] = id;
}

void choir__ids_add_all(choir__ids *ids, const int32_t *id, size_t count)
{
    if (ids->count + count > ids->room) {
        ids->room = 2 * ids->room + count;
        ids->id = choir__realloc(ids->id, ids->room * sizeof *ids->id);
    }
    memcpy(ids->id + ids->count, id, count * sizeof *id);
    ids->count += count;
}

void choir__vocab_init(choir__vocab *v, int64_t size)
{
    *v = (choir__vocab){.size = size, .slots = 16, .seed = choir__hash_secret()};
    while (v->slots < 2 * (size_t)size)
        v->slots *= 2;
    v->at = choir__calloc((size_t)size + 1, sizeof *v->at);
    v->length = choir__calloc((size_t)size + 1, sizeof *v->length);
    v->slot = choir__calloc(v->slots, sizeof *v->slot);
}

void choir__vocab_free(choir__vocab *v)
{
    free(v->texts.bytes);
    free(v->at);
    free(v->length);
    free(v->slot);
    *v = (choir__vocab){0};
}

bool choir__vocab_set(choir__vocab *v, int64_t id, const char *text, size_t bytes)
{
    if (v->at[id])
        return false;
    v->at[id] = v->texts.used + 1;
    v->length[id] = (uint32_t)bytes;
    choir__text_buffer_add(&v->texts, text, bytes);
    choir__text_buffer_add(&v->texts, "", 1);
    return true;
}

const char *choir__vocab_text(const choir__vocab *v, int64_t id, size_t *bytes)
{
    if (id < 0 || id >= v->size || !v->at[id])
        return NULL;
    *bytes = v->length[id];
    return v->texts.bytes + v->at[id] - 1;
}

int64_t choir__vocab_find_hashed(
    const choir__vocab *v, uint64_t hash, const char *text, size_t bytes)
{
    size_t i = choir__hash_slot(hash, v->slots);
    for (; v->slot[i]; i = (i + 1) & (v->slots - 1)) {
        int64_t id = (int64_t)v->slot[i] - 1;
        if (v->length[id] == bytes && !memcmp(v->texts.bytes + v->at[id] - 1, text, bytes))
            return id;
    }
    return -1;
}

int64_t choir__vocab_find(const choir__vocab *v, const char *text, size_t bytes)
{
    uint64_t hash = choir__hash_bytes(v->seed, text, bytes);
    return choir__vocab_find_hashed(v, hash, text, bytes);
}

int64_t choir__vocab_index(choir__vocab *v, int64_t id)
{
    size_t bytes;
    const char *text = choir__vocab_text(v, id, &bytes);
    uint64_t hash = choir__hash_bytes(v->seed, text, bytes);
    int64_t old = choir__vocab_find_hashed(v, hash, text, bytes);
    if (old >= 0)
        return old;
    size_t i = choir__hash_slot(hash, v->slots);
    while (v->slot[i])
        i = (i + 1) & (v->slots - 1);
    v->slot[i] = (uint32_t)id + 1;
    return -1;
}

bool choir__vocab_crosses(const choir__vocab *v, const char *space)
{
    for (int64_t id = 0; id < v->size; id++) {
        size_t bytes;
        const char *text = choir__vocab_text(v, id, &bytes);
        if (text && choir__text_crosses(text, bytes, space))
            return true;
    }
    return false;
}

/* --- unknown characters ---
 *
 * Characters without a token: tokens of their bytes, one token for all of them, or an error. */

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
    const choir__unknown *u, const char *at, size_t bytes, bool again, choir__ids *ids)
{
    if (u->byte[0] >= 0) {
        for (size_t i = 0; i < bytes; i++)
            choir__ids_add(ids, u->byte[(unsigned char)at[i]]);
        return true;
    }
    if (u->id < 0)
        return false;
    if (!again || !u->fuse)
        choir__ids_add(ids, u->id);
    return true;
}
