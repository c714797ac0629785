/* Unigram: of all ways to cut a word into pieces, chooses the one with the highest sum of
 * scores (log probabilities). node[i] is the best sum up to byte i, computed from left to
 * right.
 *
 * A place that no piece crosses ends a section: all that stands before it is decided, and its
 * ids are written. So the memory follows the longest section, not the text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer/models.h"
#include "data/tokenizer/trie.h"

/* A longer word is summed up section by section: a sum of floats over megabytes decides nothing
 * any more, and blocks of a long text give the ids of the whole. */
enum { SUMMED = 1 << 16 };

typedef struct node {
    double score;
    int32_t id; /* id of the piece that ends here; -1: an unknown character */
    uint32_t from;
} node;

typedef struct unigram {
    choir__model base;
    choir__vocab keys;
    double *score; /* (size) */
    choir__unigram_opts opts;
    choir__trie pieces;
    /* Scratch for the current section of text, owned by the model and not shared between
     * threads. */
    node *node; /* (room); `filled` of them have a value */
    uint32_t *end;
    size_t room, end_room, filled;
    const char *unknown; /* begin of a run of unknown characters; NULL: none */
} unigram;

static void offer(unigram *t, size_t at, double score, int32_t id, size_t from)
{
    if (at >= t->room) {
        t->room = 2 * at + 64;
        t->node = choir__realloc(t->node, t->room * sizeof *t->node);
    }
    score = t->opts.sentencepiece ? (double)(float)score : score;
    for (; t->filled <= at; t->filled++)
        t->node[t->filled] = (node){.score = -INFINITY, .from = UINT32_MAX};
    if (t->node[at].from == UINT32_MAX || score > t->node[at].score)
        t->node[at] = (node){score, id, (uint32_t)from};
}

static size_t character(const char *at, const char *end)
{
    uint32_t code;
    return (size_t)choir__max(choir__utf8_decode(at, end, &code), 1);
}

/* Extends the best cut up to byte i of a section by all pieces that begin there. Returns the
 * length of the longest. */
static size_t extend(unigram *t, const char *section, size_t i, const char *end)
{
    const char *at = section + i;
    size_t one = character(at, end), reach = one;
    double before = t->node[i].score;
    bool single = false;
    uint32_t place = 0;
    for (const char *p = at; p < end;) {
        if (!(place = choir__trie_step(&t->pieces, place, (unsigned char)*p++)))
            break;
        int32_t id = t->pieces.node[place].value;
        size_t length = (size_t)(p - at);
        if (id < 0)
            continue;
        single |= length == one;
        reach = length > reach ? length : reach;
        offer(t, i + length, before + t->score[id], id, i);
    }
    if (!single)
        offer(t, i + one, before + t->opts.unknown_score, -1, i);
    return reach;
}

/* Ends a run of unknown characters. */
static bool end_unknown(unigram *t, const char *end, choir__ids *ids)
{
    const char *from = t->unknown;
    t->unknown = NULL;
    if (!from)
        return true;
    size_t bytes = (size_t)(end - from);
    int64_t id = t->opts.sentencepiece ? -1 : choir__vocab_find(&t->keys, from, bytes);
    if (id < 0)
        return choir__unknown_add(&t->opts.unknown, from, bytes, false, ids);
    choir__ids_add(ids, (int32_t)id);
    return true;
}

/* Writes the ids of a section of n bytes. Returns NULL, or the position of a character without
 * one. */
static const char *decide(unigram *t, const char *section, size_t n, choir__ids *ids)
{
    size_t pieces = 0;
    for (size_t end = n; end; end = t->node[end].from) {
        if (pieces == t->end_room) {
            t->end_room = 2 * pieces + 64;
            t->end = choir__realloc(t->end, t->end_room * sizeof *t->end);
        }
        t->end[pieces++] = (uint32_t)end;
    }
    while (pieces--) {
        const node *p = &t->node[t->end[pieces]];
        const char *from = section + p->from, *unknown = t->unknown;
        if (p->id < 0 || (!t->opts.sentencepiece && p->id == t->opts.unknown.id)) {
            t->unknown = unknown ? unknown : from;
            continue;
        }
        if (!end_unknown(t, from, ids))
            return unknown;
        choir__ids_add(ids, p->id);
    }
    return NULL;
}

static const char *encode(
    choir__model *self, const char *word, const char *end, bool part, choir__ids *ids)
{
    unigram *t = (unigram *)self;
    const char *section = word, *reach = word, *stopped = NULL;
    bool apart = part || end - word > SUMMED;
    t->unknown = NULL;
    t->filled = 0;
    offer(t, 0, 0, -1, 0);
    for (const char *at = word; at < end && !stopped; at += character(at, end)) {
        if (at >= reach && at > section) {
            double sum = apart ? 0 : t->node[at - section].score;
            stopped = decide(t, section, (size_t)(at - section), ids);
            section = at;
            t->filled = 0;
            offer(t, 0, sum, -1, 0);
        }
        size_t n = extend(t, section, (size_t)(at - section), end);
        reach = at + n > reach ? at + n : reach;
    }
    if (!stopped && end > section)
        stopped = decide(t, section, (size_t)(end - section), ids);
    const char *unknown = t->unknown;
    return stopped ? stopped : end_unknown(t, end, ids) ? NULL : unknown;
}

static void free_unigram(choir__model *self)
{
    unigram *t = (unigram *)self;
    choir__vocab_free(&t->keys);
    choir__trie_free(&t->pieces);
    free(t->score);
    free(t->node);
    free(t->end);
    free(t);
}

static const choir__model_ops unigram_ops = {
    .kind = "Unigram", .encode = encode, .free = free_unigram};

choir__model *choir__unigram_new(
    choir__vocab *keys, double *scores, const choir__unigram_opts *opts)
{
    unigram *t = choir__calloc(1, sizeof *t);
    choir__trie_key *pieces = choir__alloc((size_t)(keys->size + 1) * sizeof *pieces);
    size_t count = 0, bytes;
    t->base.ops = &unigram_ops;
    t->keys = *keys;
    *keys = (choir__vocab){0};
    t->score = scores;
    t->opts = *opts;
    for (int64_t id = 0; id < t->keys.size; id++) {
        const char *text = choir__vocab_text(&t->keys, id, &bytes);
        if (text && !isnan(scores[id]))
            pieces[count++] = (choir__trie_key){text, (uint32_t)bytes, (int32_t)id};
    }
    choir__trie_init(&t->pieces, pieces, count);
    free(pieces);
    return &t->base;
}
