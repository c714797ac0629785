/* One end of a connection to a store, without the connection: bytes go in, messages come out,
 * and the other way round. It carries out the greeting and, with a key, the encryption
 * (protocol.h), so that server, client and fuzzer share them. */
#ifndef CHOIR_LAUNCH_STORE_CHANNEL_H
#define CHOIR_LAUNCH_STORE_CHANNEL_H

#include <sodium.h>

#include "launch/store/bytes.h"
#include "launch/store/key.h"
#include "launch/store/protocol.h"

enum { CHOIR__HELLO_BYTES = 80 };

/* Why a connection did not come about, or ended. */
typedef enum choir__refusal {
    CHOIR__REFUSAL_NONE,
    CHOIR__REFUSAL_VERSION,    /* the server speaks another one */
    CHOIR__REFUSAL_KEY_NEEDED, /* the server has a key, the client none */
    CHOIR__REFUSAL_NO_KEY,     /* the other way round */
    CHOIR__REFUSAL_WRONG_KEY,
    CHOIR__REFUSAL_FULL, /* as many clients as the server takes */
    CHOIR__REFUSAL_BUSY, /* too many failures from there lately: try again */
    CHOIR__REFUSAL_USER, /* without a key, another user's process */
    /* found on this side, never sent */
    CHOIR__REFUSAL_NOT_STORE, /* no greeting of ours */
    CHOIR__REFUSAL_IMPOSTOR,  /* the server could not prove the key */
    CHOIR__REFUSAL_GARBLED,   /* a frame that is too long, or was tampered with */
} choir__refusal;

typedef enum choir__channel_stage {
    CHOIR__STAGE_HELLO, /* waits for the other side's hello */
    CHOIR__STAGE_PROOF, /* and its proof */
    CHOIR__STAGE_OPEN,
    CHOIR__STAGE_OVER, /* see refusal; what is in `out` is still to be sent */
} choir__channel_stage;

typedef struct choir__channel {
    bool server, keyed;
    uint8_t peer_version; /* as its hello says */
    choir__channel_stage stage;
    choir__refusal refusal;
    choir__store_key key;
    choir__bytes in, out; /* received and not understood yet; to be sent */
    uint8_t *message;     /* the last one, decrypted */
    size_t message_room;
    uint8_t secret[32], hellos[2][CHOIR__HELLO_BYTES]; /* X25519; client's, server's */
    uint8_t keys[4][32];                               /* client's, server's proof; from each */
    crypto_secretstream_xchacha20poly1305_state pull, push;
} choir__channel;

/* key NULL: without. A client's channel begins with its hello in `out`. */
void choir__channel_init(choir__channel *channel, bool server, const choir__store_key *key);
void choir__channel_free(choir__channel *channel);

/* Goes on with what is in `in`. 1: a message, which holds until the next call; 0: more bytes
 * are needed; -1: it is over. */
int choir__channel_next(choir__channel *channel, const uint8_t **message, size_t *bytes);

/* Sends one; the channel is open. */
void choir__channel_put(choir__channel *channel, const uint8_t *message, size_t bytes);

/* The server will not talk: says why, if the client still waits for a hello, and is over. */
void choir__channel_refuse(choir__channel *channel, choir__refusal refusal);

#endif
