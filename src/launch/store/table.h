/* Keys and values with a limit on both, in a chained hash table. The hash is keyed with a
 * random number, so that no client can choose keys that all collide. */
#ifndef CHOIR_LAUNCH_STORE_TABLE_H
#define CHOIR_LAUNCH_STORE_TABLE_H

#include <sodium.h>

#include "launch/store/protocol.h"

typedef struct choir__store_entry {
    struct choir__store_entry *next;
    uint64_t hash;
    uint8_t *value;
    uint32_t bytes;
    uint8_t key_bytes;
    uint8_t key[]; /* (key_bytes) */
} choir__store_entry;

typedef struct choir__table {
    choir__store_entry **heads; /* (heads_count), a power of two */
    size_t heads_count, keys, keys_max;
    size_t bytes, bytes_max; /* keys, values, and CHOIR__ENTRY_COST for each; reservations */
    uint8_t seed[crypto_shorthash_KEYBYTES];
} choir__table;

enum { CHOIR__ENTRY_COST = sizeof(choir__store_entry) + 32 };

void choir__table_init(choir__table *table, size_t keys_max, size_t bytes_max);
void choir__table_free(choir__table *table);

uint64_t choir__table_hash(const choir__table *table, choir__store_field key);
choir__store_entry *choir__table_find(const choir__table *table, choir__store_field key);

typedef enum choir__room { CHOIR__ROOM, CHOIR__NO_KEYS_LEFT, CHOIR__NO_BYTES_LEFT } choir__room;

/* Sets a key. If a limit is reached, changes nothing and returns which. */
choir__room choir__table_set(
    choir__table *table, choir__store_field key, choir__store_field value);
bool choir__table_delete(choir__table *table, choir__store_field key);

/* Account for bytes kept outside the table. choir__table_reserve returns false if there is no
 * room. */
bool choir__table_reserve(choir__table *table, size_t bytes);
void choir__table_release(choir__table *table, size_t bytes);

#endif
