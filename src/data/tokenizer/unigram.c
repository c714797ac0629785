/* Unigram: of all ways to cut a word into pieces, chooses the one with the highest sum of
 * scores (log probabilities). best[i] is the best sum up to byte i, computed from left to
 * right. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/tokenizer/models.h"

#define UNKNOWN_PENALTY 10.0

typedef struct node {
    double score; /* -INFINITY: not reached */
    int32_t id;   /* of the piece that ends here; -1: an unknown character */
    uint32_t from;
} node;

typedef struct unigram {
    choir_tokenizer base;
    choir__vocab keys;
    float *score; /* (size) */
    choir__unknown unknown;
    choir__prep prep;
    double lowest;  /* of all scores */
    size_t longest; /* length of the longest piece, in bytes */
} unigram;

static void offer(node *to, double score, int32_t id, size_t from)
{
    if (score > to->score)
        *to = (node){score, id, (uint32_t)from};
}

static size_t character(const char *at, const char *end)
{
    uint32_t code;
    return (size_t)choir__max(choir__utf8_decode(at, end, &code), 1);
}

/* Extends the best cut up to i by all pieces that begin there. */
static void extend(const unigram *t, const char *word, size_t n, size_t i, node *best)
{
    size_t one = character(word + i, word + n), most = choir__min(n - i, t->longest);
    uint64_t hash = CHOIR__HASH_SEED;
    bool single = false;
    for (size_t length = 1; length <= most; length++) {
        hash = choir__hash_step(hash, (unsigned char)word[i + length - 1]);
        if (i + length < n && ((unsigned char)word[i + length] & 0xC0) == 0x80)
            continue; /* inside a character */
        int64_t id = choir__vocab_find_hashed(&t->keys, hash, word + i, length);
        if (id < 0 || !isfinite(t->score[id]))
            continue;
        single |= length == one;
        offer(&best[i + length], best[i].score + (double)t->score[id], (int32_t)id, i);
    }
    if (!single)
        offer(&best[i + one], best[i].score + t->lowest - UNKNOWN_PENALTY, -1, i);
}

static bool encode_word(const unigram *t, const char *word, size_t n, choir__ids *ids)
{
    node *best = choir__alloc((n + 1) * sizeof *best);
    uint32_t *ends = choir__alloc((n + 1) * sizeof *ends);
    for (size_t i = 0; i <= n; i++)
        best[i] = (node){i ? -INFINITY : 0, -1, 0};
    for (size_t i = 0; i < n; i++)
        if (best[i].score > -INFINITY)
            extend(t, word, n, i, best);
    size_t pieces = 0;
    for (size_t end = n; end; end = best[end].from)
        ends[pieces++] = (uint32_t)end;
    bool again = false, good = true;
    while (pieces-- && good) {
        const node *p = &best[ends[pieces]];
        if (p->id >= 0)
            choir__ids_add(ids, p->id);
        else
            good = choir__unknown_add(
                &t->unknown, word + p->from, (int)(ends[pieces] - p->from), again, ids);
        again = p->id < 0;
    }
    free(ends);
    free(best);
    return good;
}

static const char *encode(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    const unigram *t = (const unigram *)self;
    choir__tokenizer_buffer prepared = {0};
    bool good = true;
    choir__prep_text(&t->prep, text, end, place, &prepared);
    const char *at = prepared.data, *stop = at + prepared.bytes;
    while (at < stop && good) {
        const char *next = choir__prep_word(&t->prep, at, stop);
        good = encode_word(t, at, (size_t)(next - at), ids);
        at = next;
    }
    free(prepared.data);
    return good ? NULL : text; /* the position in the original text is unknown */
}

static void free_unigram(choir_tokenizer *self)
{
    unigram *t = (unigram *)self;
    choir__vocab_free(&t->keys);
    choir__prep_free(&t->prep);
    free(t->score);
}

static const choir__tokenizer_ops unigram_ops = {
    .kind = "Unigram", .ids_per_byte = 20, .encode = encode, .free = free_unigram};

choir_tokenizer *choir__unigram_new(
    choir__vocab *keys, float *scores, const choir__unknown *unknown, const choir__prep *prep)
{
    unigram *t = choir__calloc(1, sizeof *t);
    t->base.ops = &unigram_ops;
    t->base.size = keys->size;
    t->base.cut_before = ' ';
    t->keys = *keys;
    *keys = (choir__vocab){0};
    t->score = scores;
    t->unknown = *unknown;
    t->prep = *prep;
    t->prep.words = prep->words || choir__vocab_has_words(&t->keys);
    t->longest = 1;
    for (int64_t id = 0; id < t->base.size; id++) {
        t->longest = choir__max(t->longest, (size_t)t->keys.length[id]);
        if (isfinite(scores[id]) && (double)scores[id] < t->lowest)
            t->lowest = (double)scores[id];
    }
    return &t->base;
}
