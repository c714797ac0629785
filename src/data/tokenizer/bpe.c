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
    int32_t id, rank; /* rank of the merge with the next symbol, or NONE */
    int32_t result;   /* result of that merge */
    int32_t prev, next;
} symbol;

typedef struct entry {
    int32_t rank, at, left, right; /* the ids show whether the entry is still valid */
} entry;

/* Buffers for the current word. They belong to the model and are not shared. */
typedef struct scratch {
    symbol *symbol;
    entry *heap;
    size_t room, heap_room, heap_count;
    cache_slot *cache; /* (CACHE_SLOTS), allocated on first use */
    choir__ids word;
    bool unknown_before, unknown_any; /* the last character; any of the section */
} scratch;

typedef struct bpe {
    choir__model base;
    choir__vocab keys;
    choir__bpe_opts opts;
    bool sections;        /* a word is cut before U+2581, which no merge crosses */
    int32_t byte_id[256]; /* ids of single bytes, byte_level only; -1: none */
    pair_slot *pair;
    size_t slots;
    scratch *scratch;
} bpe;

#define NO_PAIR UINT64_MAX
enum { NONE = INT32_MAX };

static size_t pair_place(const bpe *t, uint64_t key)
{
    uint64_t h = (key ^ t->keys.seed) * 0x9E3779B97F4A7C15u;
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
static const char *start(const bpe *t, scratch *w, const char *at, const char *end)
{
    while (at < end) {
        uint32_t code;
        int n = t->opts.byte_level ? 1 : choir__max(choir__utf8_decode(at, end, &code), 1);
        int64_t id = t->opts.byte_level ? t->byte_id[(unsigned char)*at]
                                        : choir__vocab_find(&t->keys, at, (size_t)n);
        if (id >= 0)
            choir__ids_add(&w->word, (int32_t)id);
        else if (!choir__unknown_add(
                     &t->opts.unknown, at, (size_t)n, w->unknown_before, &w->word))
            return at;
        w->unknown_before = id < 0;
        w->unknown_any |= id < 0;
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

/* A section is a word, or a part of one that no merge crosses the ends of. */
static const char *encode_section(
    const bpe *t, scratch *w, const char *at, const char *end, choir__ids *ids)
{
    size_t bytes = (size_t)(end - at), before = ids->count;
    cache_slot *slot = NULL;
    if (bytes < CACHED_BYTES) {
        uint64_t hash = choir__hash_bytes(CHOIR__HASH_SEED, at, bytes);
        slot = &w->cache[choir__hash_slot(hash, CACHE_SLOTS)];
        if (slot->count && slot->bytes == bytes && !memcmp(slot->word, at, bytes)) {
            choir__ids_add_all(ids, slot->id, slot->count);
            w->unknown_before = false;
            return NULL;
        }
    }
    w->word.count = 0;
    w->unknown_any = false;
    const char *stopped = start(t, w, at, end);
    if (stopped)
        return stopped;
    merge(t, w, ids);
    size_t count = ids->count - before;
    /* The ids of unknown characters depend on the section before. */
    if (slot && count && count <= CACHED_IDS && !w->unknown_any) {
        slot->bytes = (unsigned char)bytes;
        slot->count = (unsigned char)count;
        memcpy(slot->word, at, bytes);
        memcpy(slot->id, ids->id + before, count * sizeof *slot->id);
    }
    return NULL;
}

/* Returns the end of the section at `at` < end: it ends before the first U+2581 that follows
 * another character. */
static const char *section_end(const char *at, const char *end)
{
    enum { MARK = sizeof CHOIR__SPACE_MARK - 1 };
    while (end - at >= MARK && !memcmp(at, CHOIR__SPACE_MARK, MARK))
        at += MARK;
    while (at < end && (end - at < MARK || memcmp(at, CHOIR__SPACE_MARK, MARK)))
        at++;
    return at;
}

static const char *encode(
    choir__model *self, const char *word, const char *end, bool part, choir__ids *ids)
{
    const bpe *t = (const bpe *)self;
    scratch *w = t->scratch;
    (void)part;
    if (!w->cache)
        w->cache = choir__calloc(CACHE_SLOTS, sizeof *w->cache);
    w->unknown_before = false;
    if (t->opts.whole_words) {
        int64_t id = choir__vocab_find(&t->keys, word, (size_t)(end - word));
        if (id >= 0) {
            choir__ids_add(ids, (int32_t)id);
            return NULL;
        }
    }
    for (const char *at = word; at < end;) {
        const char *next = t->sections ? section_end(at, end) : end;
        const char *stopped = encode_section(t, w, at, next, ids);
        if (stopped)
            return stopped;
        at = next;
    }
    return NULL;
}

static void free_bpe(choir__model *self)
{
    bpe *t = (bpe *)self;
    scratch *w = t->scratch;
    choir__vocab_free(&t->keys);
    free(t->pair);
    free(w->symbol);
    free(w->heap);
    free(w->cache);
    free(w->word.id);
    free(w);
    free(t);
}

static const choir__model_ops bpe_ops = {.kind = "BPE", .encode = encode, .free = free_bpe};

/* Returns whether no key has U+2581 after another character. */
static bool has_sections(const choir__vocab *v)
{
    for (int64_t id = 0; id < v->size; id++) {
        size_t bytes;
        const char *text = choir__vocab_text(v, id, &bytes);
        if (text && section_end(text, text + bytes) < text + bytes)
            return false;
    }
    return true;
}

choir_status choir__bpe_new(const char *name, choir__vocab *keys, const choir__merge *merges,
    size_t count, const choir__bpe_opts *opts, choir__model **model)
{
    bpe *t = choir__calloc(1, sizeof *t);
    choir_status status = CHOIR_OK;
    t->base.ops = &bpe_ops;
    t->keys = *keys;
    *keys = (choir__vocab){0};
    t->opts = *opts;
    t->scratch = choir__calloc(1, sizeof *t->scratch);
    for (int i = 0; i < 256; i++)
        t->byte_id[i] = (int32_t)choir__vocab_find(&t->keys, (char[]){(char)i}, 1);
    t->sections = !opts->byte_level && has_sections(&t->keys);
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
        *model = &t->base;
    else
        free_bpe(&t->base);
    return status;
}
