/* A chained hash table of keys and values, which doubles when it has an entry per chain. The
 * bytes of keys and values are reserved before they are copied, so a limit is met before memory
 * is taken. */
#include "launch/store/session.h"

#include <stdlib.h>
#include <string.h>

void choir__table_init(choir__table *table, size_t keys_max, size_t bytes_max)
{
    *table = (choir__table){.heads_count = 64, .keys_max = keys_max, .bytes_max = bytes_max};
    table->heads = choir__calloc(table->heads_count, sizeof *table->heads);
    crypto_shorthash_keygen(table->seed);
}

void choir__table_free(choir__table *table)
{
    for (size_t i = 0; i < table->heads_count; i++)
        for (choir__store_entry *e = table->heads[i], *next; e; e = next) {
            next = e->next;
            free(e->value);
            free(e);
        }
    free(table->heads);
    *table = (choir__table){0};
}

uint64_t choir__table_hash(const choir__table *table, choir__store_field key)
{
    uint8_t hash[crypto_shorthash_BYTES];
    crypto_shorthash(hash, key.data, key.bytes, table->seed);
    return choir__get64(hash);
}

/* Returns the link that points to the entry, or where it would be linked. */
static choir__store_entry **seek(
    const choir__table *table, choir__store_field key, uint64_t hash)
{
    choir__store_entry **at = &table->heads[hash & (table->heads_count - 1)];
    while (*at && ((*at)->hash != hash || (*at)->key_bytes != key.bytes ||
                      memcmp((*at)->key, key.data, key.bytes) != 0))
        at = &(*at)->next;
    return at;
}

choir__store_entry *choir__table_find(const choir__table *table, choir__store_field key)
{
    return *seek(table, key, choir__table_hash(table, key));
}

static void widen(choir__table *table)
{
    size_t count = 2 * table->heads_count;
    choir__store_entry **heads = choir__calloc(count, sizeof *heads);
    for (size_t i = 0; i < table->heads_count; i++)
        for (choir__store_entry *e = table->heads[i], *next; e; e = next) {
            next = e->next;
            e->next = heads[e->hash & (count - 1)];
            heads[e->hash & (count - 1)] = e;
        }
    free(table->heads);
    table->heads = heads;
    table->heads_count = count;
}

bool choir__table_reserve(choir__table *table, size_t bytes)
{
    if (bytes > table->bytes_max - table->bytes)
        return false;
    table->bytes += bytes;
    return true;
}

void choir__table_release(choir__table *table, size_t bytes)
{
    table->bytes -= bytes;
}

static choir__store_entry *add(choir__table *table, choir__store_field key, uint64_t hash)
{
    if (table->keys >= table->heads_count)
        widen(table);
    choir__store_entry *e = choir__calloc(1, sizeof *e + key.bytes);
    *e = (choir__store_entry){.hash = hash, .key_bytes = (uint8_t)key.bytes};
    memcpy(e->key, key.data, key.bytes);
    choir__store_entry **head = &table->heads[hash & (table->heads_count - 1)];
    e->next = *head;
    *head = e;
    table->keys++;
    return e;
}

choir__room choir__table_set(
    choir__table *table, choir__store_field key, choir__store_field value)
{
    uint64_t hash = choir__table_hash(table, key);
    choir__store_entry *e = *seek(table, key, hash);
    size_t held = e ? e->bytes : 0, cost = e ? 0 : CHOIR__ENTRY_COST + key.bytes;
    if (!e && table->keys >= table->keys_max)
        return CHOIR__NO_KEYS_LEFT;
    choir__table_release(table, held);
    uint8_t *copy = NULL;
    if (choir__table_reserve(table, cost + value.bytes)) {
        copy = malloc(value.bytes + 1);
        if (!copy)
            choir__table_release(table, cost + value.bytes);
    }
    if (!copy) {
        table->bytes += held;
        return CHOIR__NO_BYTES_LEFT;
    }
    memcpy(copy, value.data, value.bytes);
    if (!e)
        e = add(table, key, hash);
    free(e->value);
    e->value = copy;
    e->bytes = value.bytes;
    return CHOIR__ROOM;
}

bool choir__table_delete(choir__table *table, choir__store_field key)
{
    choir__store_entry **at = seek(table, key, choir__table_hash(table, key));
    choir__store_entry *e = *at;
    if (!e)
        return false;
    *at = e->next;
    table->keys--;
    choir__table_release(table, CHOIR__ENTRY_COST + e->key_bytes + e->bytes);
    free(e->value);
    free(e);
    return true;
}
