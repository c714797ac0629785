/* WordPiece, as in BERT: a word is matched with the longest piece in the vocabulary, then its
 * rest likewise; pieces of the rest are written with a prefix ("##"). */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/tokenizer/models.h"

typedef struct wordpiece {
    choir__model base;
    choir__vocab keys;
    choir__wordpiece_opts opts;
    size_t longest; /* key, in bytes */
    char *spelled;  /* (longest): the prefix, and the beginning of a word's rest */
} wordpiece;

/* Returns the longest key that `spelled` begins with, or -1. more: the word continues after it,
 * with the byte `next`. */
static int64_t longest_at(
    const wordpiece *t, size_t bytes, bool more, unsigned char next, size_t *used)
{
    uint64_t hash = t->keys.seed;
    int64_t found = -1;
    for (size_t n = 1; n <= bytes; n++) {
        hash = choir__hash_step(hash, (unsigned char)t->spelled[n - 1]);
        unsigned char behind = n < bytes ? (unsigned char)t->spelled[n] : more ? next : 0;
        if ((behind & 0xC0) == 0x80)
            continue; /* inside a character */
        int64_t id = choir__vocab_find_hashed(&t->keys, hash, t->spelled, n);
        if (id >= 0) {
            found = id;
            *used = n;
        }
    }
    return found;
}

static const char *encode(
    choir__model *self, const char *word, const char *end, bool part, choir__ids *ids)
{
    const wordpiece *t = (const wordpiece *)self;
    size_t before = ids->count, prefix = strlen(t->opts.prefix), used = 0;
    int64_t characters = 0;
    (void)part;
    for (const char *at = word; at < end; at++)
        characters += ((unsigned char)*at & 0xC0) != 0x80;
    bool good = characters <= t->opts.longest;
    for (const char *at = word; at < end && good; at += used) {
        size_t lead = at > word ? prefix : 0, rest = (size_t)(end - at);
        size_t room = t->longest > lead ? t->longest - lead : 0;
        size_t n = rest < room ? rest : room;
        memcpy(t->spelled, t->opts.prefix, t->longest > lead ? lead : 0);
        memcpy(t->spelled + lead, at, n);
        int64_t id =
            n ? longest_at(t, lead + n, n < rest, (unsigned char)at[n < rest ? n : 0], &used)
              : -1;
        good = id >= 0 && used > lead;
        used -= good ? lead : 0;
        if (good)
            choir__ids_add(ids, (int32_t)id);
    }
    if (!good) {
        ids->count = before;
        choir__ids_add(ids, t->opts.unknown);
    }
    return NULL;
}

static void free_wordpiece(choir__model *self)
{
    wordpiece *t = (wordpiece *)self;
    choir__vocab_free(&t->keys);
    free(t->spelled);
    free(t);
}

static const choir__model_ops wordpiece_ops = {
    .kind = "WordPiece", .encode = encode, .free = free_wordpiece};

choir__model *choir__wordpiece_new(choir__vocab *keys, const choir__wordpiece_opts *opts)
{
    wordpiece *t = choir__calloc(1, sizeof *t);
    t->base.ops = &wordpiece_ops;
    t->keys = *keys;
    *keys = (choir__vocab){0};
    t->opts = *opts;
    for (int64_t id = 0; id < t->keys.size; id++)
        t->longest = (size_t)choir__max((int64_t)t->longest, t->keys.length[id]);
    t->spelled = choir__alloc(t->longest + sizeof t->opts.prefix);
    return &t->base;
}
