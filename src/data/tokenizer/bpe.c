/* Byte-pair encoding: a word starts as its bytes (or characters). Of all neighbours that have a
 * merge, the pair of least rank is joined, the leftmost first, until none is left.
 *
 * Short words scan for the least rank; long ones keep a heap. Words repeat often, so their ids
 * are cached in a table by hash, in which the newest word replaces an older one. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/tokenizer/models.h"

enum { SCANNED = 32, CACHE_SLOTS = 1 << 14, CACHED_BYTES = 23, CACHED_IDS = 10 };

typedef struct pair_slot {
    uint64_t key; /* left << 32 | right; NO_PAIR: empty */
    int32_t rank, result;
} pair_slot;

typedef struct cache_slot {
    unsigned char bytes, count; /* count 0: empty */
    char word[CACHED_BYTES - 1];
    int32_t id[CACHED_IDS];
} cache_slot;

typedef struct symbol {
    int32_t id, rank; /* rank: of the merge with the next symbol; or NONE */
    int32_t result;   /* of that merge */
    int32_t prev, next;
} symbol;

typedef struct entry {
    int32_t rank, at, left, right; /* the ids show whether the entry is still valid */
} entry;

/* Buffers for the current word. They belong to the tokenizer and are not shared. */
typedef struct scratch {
    symbol *symbol;
    entry *heap;
    size_t room, heap_room, heap_count;
    cache_slot *cache; /* (CACHE_SLOTS), allocated on first use */
    choir__tokenizer_buffer text;
    choir__ids word;
} scratch;

typedef struct bpe {
    choir_tokenizer base;
    choir__vocab keys;
    choir__bpe_opts opts;
    int32_t byte_id[256]; /* of single bytes, byte_level only; -1: none */
    pair_slot *pair;
    size_t slots;
    scratch *scratch;
} bpe;

#define NO_PAIR UINT64_MAX
enum { NONE = INT32_MAX };

static size_t pair_place(const bpe *t, uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h ^ h >> 32) & (t->slots - 1);
    while (t->pair[i].key != key && t->pair[i].key != NO_PAIR)
        i = (i + 1) & (t->slots - 1);
    return i;
}

static inline uint64_t pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

/* Fills in the merge of symbol i with its next. */
static void rate(const bpe *t, symbol *s, int32_t i)
{
    s[i].rank = NONE;
    if (s[i].next < 0)
        return;
    const pair_slot *p = &t->pair[pair_place(t, pair_key(s[i].id, s[s[i].next].id))];
    if (p->key != NO_PAIR) {
        s[i].rank = p->rank;
        s[i].result = p->result;
    }
}

static void join(const bpe *t, symbol *s, int32_t i)
{
    int32_t gone = s[i].next;
    s[i].id = s[i].result;
    s[i].next = s[gone].next;
    s[gone].id = -1;
    s[gone].rank = NONE;
    if (s[i].next >= 0)
        s[s[i].next].prev = i;
    rate(t, s, i);
    if (s[i].prev >= 0)
        rate(t, s, s[i].prev);
}

static void merge_short(const bpe *t, symbol *s, int32_t n)
{
    (void)n;
    for (;;) {
        int32_t best = -1, rank = NONE;
        for (int32_t i = 0; i >= 0; i = s[i].next)
            if (s[i].rank < rank) {
                rank = s[i].rank;
                best = i;
            }
        if (best < 0)
            return;
        join(t, s, best);
    }
}

/* --- long words --- */

static bool before(entry a, entry b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void push(scratch *w, const symbol *s, int32_t i)
{
    if (i < 0 || s[i].rank == NONE)
        return;
    if (w->heap_count == w->heap_room) {
        w->heap_room = 2 * w->heap_room + 64;
        w->heap = choir__realloc(w->heap, w->heap_room * sizeof *w->heap);
    }
    entry e = {s[i].rank, i, s[i].id, s[s[i].next].id};
    size_t at = w->heap_count++;
    for (; at && before(e, w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = e;
}

static entry pop(scratch *w)
{
    entry top = w->heap[0], last = w->heap[--w->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= w->heap_count)
            break;
        if (child + 1 < w->heap_count && before(w->heap[child + 1], w->heap[child]))
            child++;
        if (!before(w->heap[child], last))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    if (w->heap_count)
        w->heap[at] = last;
    return top;
}

static void merge_long(const bpe *t, scratch *w, int32_t n)
{
    symbol *s = w->symbol;
    w->heap_count = 0;
    for (int32_t i = 0; i < n; i++)
        push(w, s, i);
    while (w->heap_count) {
        entry e = pop(w);
        int32_t i = e.at;
        if (s[i].id != e.left || s[i].next < 0 || s[s[i].next].id != e.right)
            continue; /* one of them has been joined with another symbol since */
        join(t, s, i);
        push(w, s, i);
        push(w, s, s[i].prev);
    }
}

/* --- a word --- */

/* Appends the ids of single bytes or characters to w->word. Returns NULL, or the position
 * without a token. */
static const char *start(const bpe *t, const char *at, const char *end, choir__ids *out)
{
    bool again = false;
    while (at < end) {
        uint32_t code;
        int n = t->opts.byte_level ? 1 : choir__max(choir__utf8_decode(at, end, &code), 1);
        int64_t id = t->opts.byte_level ? t->byte_id[(unsigned char)*at]
                                        : choir__vocab_find(&t->keys, at, (size_t)n);
        if (id >= 0)
            choir__ids_add(out, (int32_t)id);
        else if (!choir__unknown_add(&t->opts.unknown, at, n, again, out))
            return at;
        again = id < 0;
        at += n;
    }
    return NULL;
}

static void merge(const bpe *t, scratch *w, choir__ids *ids)
{
    size_t n = w->word.count;
    if (n > w->room) {
        w->room = 2 * n;
        w->symbol = choir__realloc(w->symbol, w->room * sizeof *w->symbol);
    }
    symbol *s = w->symbol;
    for (size_t i = 0; i < n; i++)
        s[i] = (symbol){.id = w->word.id[i],
            .prev = (int32_t)i - 1,
            .next = i + 1 < n ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i < n; i++)
        rate(t, s, (int32_t)i);
    if (n <= SCANNED)
        merge_short(t, s, (int32_t)n);
    else
        merge_long(t, w, (int32_t)n);
    for (int32_t i = n ? 0 : -1; i >= 0; i = s[i].next)
        choir__ids_add(ids, s[i].id);
}

static const char *encode_word(
    const bpe *t, scratch *w, const char *at, const char *end, choir__ids *ids)
{
    size_t bytes = (size_t)(end - at), before_word = ids->count;
    cache_slot *slot = NULL;
    if (bytes < CACHED_BYTES) {
        uint64_t hash = choir__hash_bytes(CHOIR__HASH_SEED, at, bytes);
        slot = &w->cache[choir__hash_slot(hash, CACHE_SLOTS)];
        if (slot->count && slot->bytes == bytes && !memcmp(slot->word, at, bytes)) {
            choir__ids_add_all(ids, slot->id, slot->count);
            return NULL;
        }
    }
    int64_t whole = t->opts.whole_words ? choir__vocab_find(&t->keys, at, bytes) : -1;
    if (whole >= 0)
        choir__ids_add(ids, (int32_t)whole);
    else {
        w->word.count = 0;
        const char *stopped = start(t, at, end, &w->word);
        if (stopped)
            return stopped;
        merge(t, w, ids);
    }
    size_t count = ids->count - before_word;
    if (slot && count && count <= CACHED_IDS) {
        slot->bytes = (unsigned char)bytes;
        slot->count = (unsigned char)count;
        memcpy(slot->word, at, bytes);
        memcpy(slot->id, ids->id + before_word, count * sizeof *slot->id);
    }
    return NULL;
}

static const char *encode_bytes(const bpe *t, scratch *w, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    const char *stopped = NULL, *at = text;
    if (t->opts.prefix_space && place != CHOIR__CONTINUED && *text != ' ') {
        w->text.bytes = 0; /* the first word, and the text before it */
        choir__tokenizer_buffer_add(&w->text, " ", 1);
        choir__tokenizer_buffer_add(&w->text, text, (size_t)(end - text));
        const char *p = w->text.data, *stop = p + w->text.bytes;
        for (; p < stop;) {
            const char *next = choir__tokenizer_split_next(t->opts.split, p, stop);
            if ((stopped = encode_word(t, w, p, next, ids)))
                return stopped == w->text.data ? text : text + (stopped - w->text.data) - 1;
            p = next;
        }
        return NULL;
    }
    while (at < end) {
        const char *next = choir__tokenizer_split_next(t->opts.split, at, end);
        if ((stopped = encode_word(t, w, at, next, ids)))
            return stopped;
        at = next;
    }
    return NULL;
}

static const char *encode(const choir_tokenizer *self, const char *text, const char *end,
    choir__tokenizer_place place, choir__ids *ids)
{
    const bpe *t = (const bpe *)self;
    scratch *w = t->scratch;
    if (!w->cache)
        w->cache = choir__calloc(CACHE_SLOTS, sizeof *w->cache);
    if (t->opts.byte_level)
        return encode_bytes(t, w, text, end, place, ids);
    w->text.bytes = 0;
    choir__prep_text(&t->opts.prep, text, end, place, &w->text);
    const char *at = w->text.data, *stop = at + w->text.bytes;
    while (at < stop) {
        const char *next = choir__prep_word(&t->opts.prep, at, stop);
        if (encode_word(t, w, at, next, ids))
            return text; /* the position in the original text is unknown */
        at = next;
    }
    return NULL;
}

static void free_bpe(choir_tokenizer *self)
{
    bpe *t = (bpe *)self;
    scratch *w = t->scratch;
    choir__vocab_free(&t->keys);
    choir__prep_free(&t->opts.prep);
    free(t->pair);
    free(w->symbol);
    free(w->heap);
    free(w->cache);
    free(w->text.data);
    free(w->word.id);
    free(w);
}

static const choir__tokenizer_ops byte_level_ops = {.kind = "byte-level BPE",
    .ids_per_byte = 1,
    .any_bytes = true,
    .encode = encode,
    .free = free_bpe};
static const choir__tokenizer_ops prefixed_ops = {.kind = "byte-level BPE",
    .ids_per_byte = 2,
    .any_bytes = true,
    .encode = encode,
    .free = free_bpe};
static const choir__tokenizer_ops character_ops = {
    .kind = "BPE", .ids_per_byte = 20, .encode = encode, .free = free_bpe};

choir_status choir__bpe_new(const char *name, choir__vocab *keys, const choir__merge *merges,
    size_t count, const choir__bpe_opts *opts, choir_tokenizer **tokenizer)
{
    bpe *t = choir__calloc(1, sizeof *t);
    choir_status status = CHOIR_OK;
    t->base.ops = !opts->byte_level    ? &character_ops
                  : opts->prefix_space ? &prefixed_ops
                                       : &byte_level_ops;
    t->base.size = keys->size;
    t->base.cut_before = opts->byte_level ? '\n' : ' ';
    t->keys = *keys;
    *keys = (choir__vocab){0};
    t->opts = *opts; /* takes prep's table too, because all is valid */
    t->scratch = choir__calloc(1, sizeof *t->scratch);
    for (int i = 0; i < 256; i++)
        t->byte_id[i] = (int32_t)choir__vocab_find(&t->keys, (char[]){(char)i}, 1);
    if (!opts->byte_level)
        t->opts.prep.words = opts->prep.words || choir__vocab_has_words(&t->keys);
    for (t->slots = 16; t->slots < 2 * count;)
        t->slots *= 2;
    t->pair = choir__alloc(t->slots * sizeof *t->pair);
    for (size_t i = 0; i < t->slots; i++)
        t->pair[i].key = NO_PAIR;
    for (size_t i = 0; i < count && status == CHOIR_OK; i++) {
        uint64_t key = pair_key(merges[i].left, merges[i].right);
        pair_slot *p = &t->pair[pair_place(t, key)];
        size_t bytes;
        if (p->key != NO_PAIR)
            status = choir__error(CHOIR_ERR_FORMAT,
                "%s: merge %zu, of '%s' and '%s', is there before", name, i + 1,
                choir__vocab_text(&t->keys, merges[i].left, &bytes),
                choir__vocab_text(&t->keys, merges[i].right, &bytes));
        *p = (pair_slot){key, merges[i].rank, merges[i].result};
    }
    if (status == CHOIR_OK)
        *tokenizer = &t->base;
    else {
        t->opts.prep.charsmap = NULL;
        choir_tokenizer_free(&t->base);
    }
    return status;
}
