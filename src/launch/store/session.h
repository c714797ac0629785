/* The server's side of one client, without its socket: bytes in, requests on the table, bytes
 * out. The hub is what the sessions of a server share.
 *
 * A GET or WAIT for what is not there parks its session, with a deadline and the hash of the
 * first key that is missing. Whoever sets a key looks through the parked sessions for that
 * hash; those it wakes are on the hub's list `woken`, for the server to send what they have to
 * say. */
#ifndef CHOIR_LAUNCH_STORE_SESSION_H
#define CHOIR_LAUNCH_STORE_SESSION_H

#include "launch/store/channel.h"
#include "launch/store/table.h"

enum { CHOIR__WILLS_MAX = 16 };

typedef struct choir__session choir__session;

typedef struct choir__hub {
    choir__table table;
    choir__session *parked, *woken;
    double next_deadline; /* no parked session's is earlier */
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
    choir__session *next, *prev; /* among the parked */
    choir__session *next_woken;
    uint8_t *keys;     /* (keys_bytes) fields, as they came */
    size_t keys_bytes; /* reserved in the table */
    size_t keys_at;    /* where the first one lies that is missing */
    int keys_left;     /* from there on */
    uint64_t wanted;   /* its hash */
    uint32_t seq;
    bool is_get;
    double deadline;

    void *owner; /* the server's */
};

void choir__hub_init(choir__hub *hub, size_t keys_max, size_t bytes_max);
void choir__hub_free(choir__hub *hub); /* after its sessions */

/* Ends the waits whose time is over; the others' next deadline, or 0. */
double choir__hub_expire(choir__hub *hub, double now);

void choir__session_init(choir__session *session, choir__hub *hub, const choir__store_key *key);

/* Carries out what has come, until something is to be sent; false: nothing more is to come,
 * hang up when `out` is sent. */
bool choir__session_go(choir__session *session);

/* The connection is gone. Carries out the wills if there was no goodbye. */
void choir__session_end(choir__session *session);

#endif
