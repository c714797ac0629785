/* Numbers under texts, for readers of files: a crit-bit tree (D. J. Bernstein, 2004).
 *
 * A search looks at one bit per inner node, and bits along a path lie further and further
 * back in the texts. So its cost is bounded by the bits of the text that is looked for,
 * whatever texts a stranger chose; a hash table's is not. */
#ifndef CHOIR_MAP_H
#define CHOIR_MAP_H

#include <stddef.h>
#include <stdint.h>

/* All zeros: an empty map. */
typedef struct choir__map {
    struct choir__map_leaf *leaf;   /* (count) in the order in which they were added */
    struct choir__map_inner *inner; /* (count - 1) */
    int32_t count, root;
} choir__map;

/* Returns the number stored for the text, or -1. */
int64_t choir__map_find(const choir__map *map, const char *key);

/* Stores a number (not negative) for the text. The caller keeps the text, which must not
 * change. Returns the number that was replaced, or -1. */
int64_t choir__map_put(choir__map *map, const char *key, int64_t number);

void choir__map_free(choir__map *map);

#endif
