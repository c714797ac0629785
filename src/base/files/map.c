/* The crit-bit tree of a map: inner nodes name the first bit in which the texts below them
 * differ, so a search follows one bit per node and compares a single whole text at the end.
 * Nodes are in two arrays, which grow twofold, and name each other by index: inner node p by
 * p, leaf p by ~p. */
#include "base/files/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"

typedef struct choir__map_leaf {
    const char *key;
    int64_t number;
} leaf;

/* The texts below child[0] and child[1] are equal up to one bit, in which they differ. */
typedef struct choir__map_inner {
    int32_t child[2];
    uint32_t byte; /* with the bit */
    unsigned char bit;
} inner;

/* Returns the side of the node on which the text belongs. Bytes beyond a text's end count as 0.
 */
static int side_of(const inner *node, const char *key, size_t bytes)
{
    return node->byte < bytes && ((unsigned char)key[node->byte] & node->bit);
}

/* Returns the leaf that the text leads to, which alone can have this text. */
static leaf *nearest(const choir__map *m, const char *key, size_t bytes)
{
    int32_t at = m->root;
    while (at >= 0)
        at = m->inner[at].child[side_of(&m->inner[at], key, bytes)];
    return &m->leaf[~at];
}

int64_t choir__map_find(const choir__map *m, const char *key)
{
    const leaf *found = m->count ? nearest(m, key, strlen(key)) : NULL;
    return found && !strcmp(found->key, key) ? found->number : -1;
}

/* Returns a node for the first bit in which two texts differ. */
static inner difference(const char *a, const char *b)
{
    inner node = {.bit = 0x80};
    while (a[node.byte] == b[node.byte])
        node.byte++;
    while (!((a[node.byte] ^ b[node.byte]) & node.bit))
        node.bit >>= 1;
    return node;
}

/* Puts the node, with the new leaf, above the first one that looks further back. */
static void link_up(choir__map *m, inner node, const char *key, size_t bytes)
{
    int32_t *link = &m->root, place = m->count - 1;
    int side = side_of(&node, key, bytes);
    while (*link >= 0) {
        inner *at = &m->inner[*link];
        if (at->byte > node.byte || (at->byte == node.byte && at->bit < node.bit))
            break;
        link = &at->child[side_of(at, key, bytes)];
    }
    node.child[side] = ~m->count;
    node.child[!side] = *link;
    m->inner[place] = node;
    *link = place;
}

int64_t choir__map_put(choir__map *m, const char *key, int64_t number)
{
    size_t bytes = strlen(key);
    leaf *old = m->count ? nearest(m, key, bytes) : NULL;
    if (old && !strcmp(old->key, key)) {
        int64_t former = old->number;
        old->number = number;
        return former;
    }
    inner node = old ? difference(old->key, key) : (inner){0};
    CHOIR__GROW(m->leaf, m->count);
    CHOIR__GROW(m->inner, m->count);
    if (old)
        link_up(m, node, key, bytes);
    else
        m->root = ~0;
    m->leaf[m->count++] = (leaf){key, number};
    return -1;
}

void choir__map_free(choir__map *m)
{
    free(m->leaf);
    free(m->inner);
    *m = (choir__map){0};
}
