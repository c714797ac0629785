/* Texts as a tree of their bytes. The sorted texts below a node are a range of the list, so the
 * tree grows level by level: each range is cut where the next byte changes. */
#include "data/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct span {
    uint32_t low, high; /* range of the sorted texts */
} span;

typedef struct builder {
    choir__trie_node *node;
    span *span; /* span of each node */
    size_t count;
} builder;

static int by_text(const void *a, const void *b)
{
    const choir__trie_key *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->bytes < y->bytes ? x->bytes : y->bytes);
    return order                  ? order
           : x->bytes != y->bytes ? (x->bytes > y->bytes) - (x->bytes < y->bytes)
                                  : (x->value > y->value) - (x->value < y->value);
}

static void add(builder *b, unsigned char byte, uint32_t low, uint32_t high)
{
    CHOIR__GROW(b->node, b->count);
    CHOIR__GROW(b->span, b->count);
    b->node[b->count] = (choir__trie_node){.value = -1, .byte = byte};
    b->span[b->count++] = (span){low, high};
}

/* Adds the children of a node whose texts agree in `depth` bytes. */
static void grow(builder *b, const choir__trie_key *keys, size_t parent, uint32_t depth)
{
    uint32_t at = b->span[parent].low, high = b->span[parent].high;
    b->node[parent].child = (uint32_t)b->count;
    if (at < high && keys[at].bytes == depth)
        b->node[parent].value = keys[at].value;
    while (at < high && keys[at].bytes == depth)
        at++;
    while (at < high) {
        unsigned char byte = (unsigned char)keys[at].text[depth];
        uint32_t low = at;
        while (at < high && (unsigned char)keys[at].text[depth] == byte)
            at++;
        add(b, byte, low, at);
        b->node[parent].count++;
    }
}

void choir__trie_init(choir__trie *t, choir__trie_key *keys, size_t count)
{
    builder b = {0};
    *t = (choir__trie){0};
    if (!count)
        return;
    qsort(keys, count, sizeof *keys, by_text);
    add(&b, 0, 0, (uint32_t)count);
    uint32_t depth = 0;
    for (size_t i = 0, level = 1; i < b.count; depth++, level = b.count)
        for (; i < level; i++)
            grow(&b, keys, i, depth);
    for (uint32_t i = 0; i < b.node[0].count; i++)
        t->first[b.node[b.node[0].child + i].byte] = b.node[0].child + i;
    t->node = b.node;
    free(b.span);
}

void choir__trie_free(choir__trie *t)
{
    free(t->node);
    *t = (choir__trie){0};
}
