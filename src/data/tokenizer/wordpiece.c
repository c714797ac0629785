/* WordPiece, as in BERT: the text is cleaned, lower-cased, stripped of accents, and cut at
 * white space and around punctuation. Each word is matched with the longest piece in the
 * vocabulary, then its rest likewise; pieces of the rest are written with a prefix ("##"). */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/tokenizer/models.h"

typedef struct wordpiece {
    choir_tokenizer base;
    choir__vocab keys;
    choir__wordpiece_opts opts;
    size_t longest; /* key, in bytes */
} wordpiece;

/* Appends one character of the text as the model sees it; '\n' separates words. */
static void add_normal(const wordpiece *t, uint32_t code, choir__tokenizer_buffer *out)
{
    uint32_t bare[4] = {code}, lower[4];
    choir__class class = choir__unicode_class(code);
    if (class == CHOIR__SPACE) {
        choir__tokenizer_buffer_add(out, "\n", 1);
        return;
    }
    if (t->opts.clean && (!code || code == 0xFFFD || choir__unicode_control(code)))
        return;
    bool apart = t->opts.chinese && choir__unicode_chinese(code);
    int n = t->opts.strip_accents ? choir__unicode_bare(code, bare) : 1;
    for (int i = 0; i < n; i++) {
        int m = 1;
        lower[0] = bare[i];
        if (t->opts.lower)
            m = choir__unicode_lower(bare[i], lower);
        for (int k = 0; k < m; k++) {
            bool alone = apart || choir__unicode_punctuation(lower[k]);
            if (alone)
                choir__tokenizer_buffer_add(out, "\n", 1);
            choir__tokenizer_buffer_add_code(out, lower[k]);
            if (alone)
                choir__tokenizer_buffer_add(out, "\n", 1);
        }
    }
}

/* Returns the longest key that `spelled` (the prefix and the rest of the word) begins with, or
 * -1. */
static int64_t longest_at(const wordpiece *t, const char *spelled, size_t bytes, size_t *used)
{
    uint64_t hash = CHOIR__HASH_SEED;
    int64_t found = -1;
    for (size_t n = 1; n <= bytes && n <= t->longest; n++) {
        hash = choir__hash_step(hash, (unsigned char)spelled[n - 1]);
        if (n < bytes && ((unsigned char)spelled[n] & 0xC0) == 0x80)
            continue;
        int64_t id = choir__vocab_find_hashed(&t->keys, hash, spelled, n);
        if (id >= 0) {
            found = id;
            *used = n;
        }
    }
    return found;
}

static void encode_word(const wordpiece *t, const char *word, size_t bytes, choir__ids *ids)
{
    size_t before = ids->count, prefix = strlen(t->opts.prefix), used = 0;
    int64_t characters = 0;
    for (size_t i = 0; i < bytes; i++)
        characters += ((unsigned char)word[i] & 0xC0) != 0x80;
    bool good = characters <= t->opts.longest;
    char *spelled = choir__alloc(bytes + prefix + 1);
    for (size_t at = 0; at < bytes && good;) {
        size_t lead = at ? prefix : 0;
        memcpy(spelled, t->opts.prefix, lead);
        memcpy(spelled + lead, word + at, bytes - at);
        int64_t id = longest_at(t, spelled, lead + bytes - at, &used);
        good = id >= 0 && used > lead;
        if (good)
            choir__ids_add(ids, (int32_t)id);
        at += used - lead;
    }
    free(spelled);
    if (!good) {
        ids->count = before;
        choir__ids_add(ids, t->opts.unknown);
    }
}

static const char *encode(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    const wordpiece *t = (const wordpiece *)self;
    choir__tokenizer_buffer normal = {0};
    (void)place;
    for (int n; text < end; text += n) {
        uint32_t code = 0xFFFD;
        n = choir__max(choir__utf8_decode(text, end, &code), 1);
        add_normal(t, code, &normal);
    }
    for (size_t at = 0, stop; at < normal.bytes; at = stop + 1) {
        const char *found = memchr(normal.data + at, '\n', normal.bytes - at);
        stop = found ? (size_t)(found - normal.data) : normal.bytes;
        if (stop > at)
            encode_word(t, normal.data + at, stop - at, ids);
    }
    free(normal.data);
    return NULL;
}

static void free_wordpiece(choir_tokenizer *self)
{
    choir__vocab_free(&((wordpiece *)self)->keys);
}

static const choir__tokenizer_ops wordpiece_ops = {
    .kind = "WordPiece", .ids_per_byte = 4, .encode = encode, .free = free_wordpiece};

choir_tokenizer *choir__wordpiece_new(choir__vocab *keys, const choir__wordpiece_opts *opts)
{
    wordpiece *t = choir__calloc(1, sizeof *t);
    t->base.ops = &wordpiece_ops;
    t->base.size = keys->size;
    t->base.cut_before = '\n';
    t->keys = *keys;
    *keys = (choir__vocab){0};
    t->opts = *opts;
    for (int64_t id = 0; id < t->base.size; id++)
        t->longest = choir__max(t->longest, (size_t)t->keys.length[id]);
    return &t->base;
}
