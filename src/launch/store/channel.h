/* A channel is one end of a connection to a store, without the socket: it turns received bytes
 * into messages, and messages into bytes to send. It performs the greeting and, with a key, the
 * encryption (protocol.h), so that server, client and fuzzer share them. */
#ifndef CHOIR_LAUNCH_STORE_CHANNEL_H
#define CHOIR_LAUNCH_STORE_CHANNEL_H

#include <sodium.h>

#include "launch/store/bytes.h"
#include "launch/store/key.h"
#include "launch/store/protocol.h"

enum { CHOIR__HELLO_BYTES = 80 };

/* Why a connection failed or ended. */
typedef enum choir__refusal {
    CHOIR__REFUSAL_NONE,
    CHOIR__REFUSAL_VERSION,    /* the server speaks another version */
    CHOIR__REFUSAL_KEY_NEEDED, /* the server has a key, the client has none */
    CHOIR__REFUSAL_NO_KEY,     /* the client has a key, the server has none */
    CHOIR__REFUSAL_WRONG_KEY,
    CHOIR__REFUSAL_FULL, /* the server's limit of clients is reached */
    CHOIR__REFUSAL_BUSY, /* too many recent failures from this address: retry */
    CHOIR__REFUSAL_USER, /* another user's process, on a server without a key */
    /* detected on this side, never sent */
    CHOIR__REFUSAL_NOT_STORE, /* no valid greeting */
    CHOIR__REFUSAL_IMPOSTOR,  /* the server could not prove the key */
    CHOIR__REFUSAL_GARBLED,   /* a frame that is too long or was tampered with */
} choir__refusal;

typedef enum choir__channel_stage {
    CHOIR__STAGE_HELLO, /* waits for the other side's hello */
    CHOIR__STAGE_PROOF, /* waits for the other side's proof */
    CHOIR__STAGE_OPEN,
    CHOIR__STAGE_OVER, /* see refusal; `out` is still to be sent */
} choir__channel_stage;

typedef struct choir__channel {
    bool server, keyed;
    uint8_t peer_version; /* version in the peer's hello */
    choir__channel_stage stage;
    choir__refusal refusal;
    const choir__store_key *key; /* NULL once the greeting needs it no more */
    choir__bytes in, out;        /* received but not yet parsed; still to be sent */
    uint8_t *message;            /* the last message, decrypted */
    size_t message_room;
    uint8_t secret[32], hellos[2][CHOIR__HELLO_BYTES]; /* X25519; client's, server's */
    /* client's proof, server's proof; client's frames, server's frames */
    uint8_t keys[4][32];
    crypto_secretstream_xchacha20poly1305_state pull, push;
} choir__channel;

/* key NULL: without encryption; otherwise the caller keeps it until the channel is open or
 * over. A client's channel begins with its hello in `out`. */
void choir__channel_init(choir__channel *channel, bool server, const choir__store_key *key);
void choir__channel_free(choir__channel *channel);

/* Parses the bytes in `in`. Returns 1: a message, valid until the next call; 0: more bytes are
 * needed; -1: the channel is over. */
int choir__channel_next(choir__channel *channel, const uint8_t **message, size_t *bytes);

/* Queues a message. The channel must be open. */
void choir__channel_put(choir__channel *channel, const uint8_t *message, size_t bytes);

/* Ends a server's channel, and reports the reason if the client still waits for a hello. */
void choir__channel_refuse(choir__channel *channel, choir__refusal refusal);

#endif
