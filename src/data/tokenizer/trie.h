/* Texts as a tree of their bytes: finds the texts that a position begins with in one walk,
 * which ends where no text continues. */
#ifndef CHOIR_DATA_TRIE_H
#define CHOIR_DATA_TRIE_H

#include <stddef.h>
#include <stdint.h>

typedef struct choir__trie_key {
    const char *text;
    uint32_t bytes; /* 1 or more */
    int32_t value;  /* 0 or more */
} choir__trie_key;

typedef struct choir__trie_node {
    uint32_t child; /* the first of `count` children, which ascend by their bytes */
    int32_t value;  /* value of the text that ends here; -1: no text ends here */
    uint16_t count;
    unsigned char byte; /* leads here from the parent */
} choir__trie_node;

typedef struct choir__trie {
    choir__trie_node *node; /* NULL: no texts */
    uint32_t first[256];    /* the root's child for each byte; 0: none */
} choir__trie;

/* Builds the tree and sorts `keys`, which are needed no longer. Of equal texts the first
 * counts. */
void choir__trie_init(choir__trie *t, choir__trie_key *keys, size_t count);
void choir__trie_free(choir__trie *t);

/* Returns the child of a node (0: the root) for a byte; 0: no child. */
static inline uint32_t choir__trie_step(const choir__trie *t, uint32_t from, unsigned char byte)
{
    if (!from)
        return t->first[byte];
    uint32_t low = t->node[from].child, high = low + t->node[from].count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (t->node[middle].byte == byte)
            return middle;
        if (t->node[middle].byte < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Returns the value of the longest text that [at, end) begins with, and its length; -1: none.
 */
static inline int32_t choir__trie_longest(
    const choir__trie *t, const char *at, const char *end, size_t *bytes)
{
    int32_t found = -1;
    uint32_t place = 0;
    for (const char *p = at; p < end && t->node;) {
        if (!(place = choir__trie_step(t, place, (unsigned char)*p++)))
            break;
        if (t->node[place].value >= 0) {
            found = t->node[place].value;
            *bytes = (size_t)(p - at);
        }
    }
    return found;
}

#endif
