/* A session is the server's side of one client, without its socket: it reads bytes, carries out
 * requests on the table, and writes bytes. The hub holds what the sessions of a server share.
 *
 * A GET or WAIT for a missing key parks its session, with a deadline and the hash of the first
 * missing key. Setting a key searches the parked sessions for that hash. The sessions that it
 * wakes are put on the hub's list `woken`, so that the server sends their replies. */
#ifndef CHOIR_LAUNCH_STORE_SESSION_H
#define CHOIR_LAUNCH_STORE_SESSION_H

#include <sodium.h>
#include "launch/store/channel.h"
#include "launch/store/protocol.h"

/* Keys and values with a limit on both, in a chained hash table. The hash is keyed with a
 * random number, so that no client can choose keys that all collide. */

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

enum { CHOIR__WILLS_MAX = 16 };

typedef struct choir__session choir__session;

typedef struct choir__hub {
    choir__table table;
    choir__session *parked, *woken;
    double next_deadline; /* earliest deadline of the parked sessions, or earlier */
} choir__hub;

typedef struct choir__will {
    uint8_t *value;
    uint32_t bytes;
    uint8_t key_bytes;
    uint8_t key[CHOIR__STORE_KEY_MAX];
} choir__will;

struct choir__session {
    choir__channel channel;
    choir__hub *hub;
    choir__will *wills; /* (will_count) */
    int will_count;
    bool goodbye, is_woken;

    bool is_parked;
    choir__session *next, *prev; /* in the list of parked sessions */
    choir__session *next_woken;
    uint8_t *keys;     /* (keys_bytes) fields, as received */
    size_t keys_bytes; /* reserved in the table */
    size_t keys_at;    /* offset of the first missing key */
    int keys_left;     /* number of keys from keys_at on */
    uint64_t wanted;   /* hash of the first missing key */
    uint32_t seq;
    bool is_get;
    double deadline;

    void *owner; /* the server's */
};

void choir__hub_init(choir__hub *hub, size_t keys_max, size_t bytes_max);
void choir__hub_free(choir__hub *hub); /* its sessions are freed before it */

/* Ends the waits whose time is over. Returns the next deadline of the others, or 0. */
double choir__hub_expire(choir__hub *hub, double now);

void choir__session_init(choir__session *session, choir__hub *hub, const choir__store_key *key);

/* Carries out received requests until there is something to send. Returns false if nothing more
 * will come: disconnect once `out` is sent. */
bool choir__session_go(choir__session *session);

/* Ends a session whose connection is gone, and carries out the wills unless the client said
 * goodbye. */
void choir__session_end(choir__session *session);

#endif
