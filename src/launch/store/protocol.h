/* The protocol between a store and its clients, version 1. Numbers are little-endian.
 *
 * Greeting (channel.c). The client speaks first:
 *
 *     hello   "CHOIRST" version(1) mode(1) refusal(1) zero(6) public(32) nonce(32)     80 bytes
 *
 * mode is 1 with a key; without, it is 0, and public and nonce are zero. The server answers
 * with a hello of its own, whose refusal is 0 or the reason why it rejects the client
 * (choir__refusal). Without a key the channel is open now. With one, public is a fresh X25519
 * key and nonce is random, and
 *
 *     client  proof(32) header(24)
 *     server  refusal(1) proof(32) header(24)
 *
 * follow. Both sides compute
 *
 *     secret = BLAKE2b-256, keyed with the job's key, of
 *              "choir store 1" | X25519(own, theirs) | client's hello | server's hello
 *
 * and derive from it, by crypto_kdf, four keys: one per proof, and one per direction. A proof
 * is the keyed BLAKE2b-256 of the header: only a holder of the job's key can make it, and it is
 * valid for this greeting alone. The ephemeral keys keep recorded traffic secret even if the
 * job's key leaks later. The client proves itself first, so a stranger learns nothing from a
 * server. header starts a crypto_secretstream_xchacha20poly1305 in the sender's direction:
 * frames can be neither read, changed, dropped, repeated nor swapped.
 *
 * Frames.  length(4), then that number of bytes: the payload, or with a key the encrypted
 * payload (17 bytes more). Payloads are 16 bytes to CHOIR__STORE_FRAME_MAX.
 *
 *     request  op(1) zero(1) count(2) seq(4) number(8), then count fields: length(4) bytes
 *     reply    status(1) flag(1) zero(2) seq(4) number(8), then the value
 *
 *     op           number              fields                  reply
 *     SET                              key, value
 *     GET          milliseconds        key                     value
 *     WAIT         milliseconds        keys
 *     ADD          amount              key                     number: the sum
 *     COMPARE_SET                      key, desired            flag: it was set
 *                  or                  key, desired, expected  and the value
 *     DELETE                           key                     flag: it existed
 *     WILL                             key, value
 *     BYE
 *
 * Each request gets one reply with its seq. GET and WAIT are answered when the keys exist or
 * the time is over. A request that arrives while such a request waits ends the waiting one with
 * TIMEOUT. When a connection ends without BYE, the server carries out the client's wills. */
#ifndef CHOIR_LAUNCH_STORE_PROTOCOL_H
#define CHOIR_LAUNCH_STORE_PROTOCOL_H

#include <choir/store.h>
#include "base/base.h"

enum {
    CHOIR__STORE_VERSION = 1,
    CHOIR__STORE_HEAD = 16, /* bytes before the fields of a request, or the value of a reply */
    CHOIR__STORE_KEY_MAX = 255,
    CHOIR__STORE_FRAME_MAX = 2 * CHOIR_STORE_VALUE_MAX + 4096,
    CHOIR__STORE_WAIT_MAX = 4096, /* keys of one WAIT */
};

typedef enum choir__store_op {
    CHOIR__STORE_SET = 1,
    CHOIR__STORE_GET,
    CHOIR__STORE_WAIT,
    CHOIR__STORE_ADD,
    CHOIR__STORE_COMPARE_SET,
    CHOIR__STORE_DELETE,
    CHOIR__STORE_WILL,
    CHOIR__STORE_BYE,
} choir__store_op;

typedef enum choir__store_answer {
    CHOIR__STORE_DONE,
    CHOIR__STORE_TIMEOUT,
    CHOIR__STORE_FULL,       /* a limit of the server; number: 0 keys, 1 bytes, 2 wills */
    CHOIR__STORE_NOT_NUMBER, /* ADD to text; the value holds that text */
    CHOIR__STORE_OVERFLOW,   /* ADD beyond 64 bits */
    CHOIR__STORE_ABSENT,     /* COMPARE_SET: the key is missing, and a value was expected */
    CHOIR__STORE_BAD,        /* an invalid request; the server disconnects */
} choir__store_answer;

typedef struct choir__store_field {
    const uint8_t *data;
    uint32_t bytes;
} choir__store_field;

/* A request; points into the payload from which it was read. */
typedef struct choir__store_request {
    uint8_t op;
    uint16_t count;
    uint32_t seq;
    int64_t number;
    const uint8_t *fields, *end;
} choir__store_request;

typedef struct choir__store_reply {
    uint8_t status, flag;
    uint32_t seq;
    int64_t number;
    const uint8_t *value;
    size_t bytes;
} choir__store_reply;

/* Returns false if the bytes are not a request. True means: every field is present, the first
 * is a key where the operation has one, and all lengths are within bounds. */
bool choir__store_request_read(
    const uint8_t *payload, size_t bytes, choir__store_request *request);

/* Returns the next field of a request; *at starts as request->fields. */
choir__store_field choir__store_next_field(const uint8_t **at);

bool choir__store_reply_read(const uint8_t *payload, size_t bytes, choir__store_reply *reply);

static inline void choir__put16(uint8_t *at, uint16_t v)
{
    at[0] = (uint8_t)v;
    at[1] = (uint8_t)(v >> 8);
}

static inline void choir__put32(uint8_t *at, uint32_t v)
{
    choir__put16(at, (uint16_t)v);
    choir__put16(at + 2, (uint16_t)(v >> 16));
}

static inline void choir__put64(uint8_t *at, uint64_t v)
{
    choir__put32(at, (uint32_t)v);
    choir__put32(at + 4, (uint32_t)(v >> 32));
}

static inline uint16_t choir__get16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static inline uint32_t choir__get32(const uint8_t *at)
{
    return choir__get16(at) | (uint32_t)choir__get16(at + 2) << 16;
}

static inline uint64_t choir__get64(const uint8_t *at)
{
    return choir__get32(at) | (uint64_t)choir__get32(at + 4) << 32;
}

#endif
