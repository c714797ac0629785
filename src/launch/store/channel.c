/* The greeting and the frames of a connection (protocol.h), without a socket. With a key, both
 * sides derive four keys from an exchange of public keys, the job's key and both hellos, prove
 * that they have them, and encrypt what follows. Secrets are wiped as soon as they have served.
 */
#include "launch/store/channel.h"

enum { MODE_AT = 8, REFUSAL_AT = 9, PUBLIC_AT = 16, NONCE_AT = 48, OVERHEAD = 17 };
enum { PROOF_BYTES = 32, HEADER_BYTES = 24 };
enum { CLIENT, SERVER }; /* indices of hellos, proofs and directions */

static const char magic[] = "CHOIRST"; /* 7 bytes without the zero */

static int over(choir__channel *c, choir__refusal refusal)
{
    c->stage = CHOIR__STAGE_OVER;
    c->refusal = refusal;
    return -1;
}

static void write_hello(choir__channel *c, choir__refusal refusal)
{
    uint8_t *h = c->hellos[c->server];
    memset(h, 0, CHOIR__HELLO_BYTES);
    memcpy(h, magic, 7);
    h[7] = CHOIR__STORE_VERSION;
    h[MODE_AT] = c->keyed;
    h[REFUSAL_AT] = (uint8_t)refusal;
    if (c->keyed && !refusal) {
        randombytes_buf(c->secret, sizeof c->secret);
        crypto_scalarmult_base(h + PUBLIC_AT, c->secret);
        randombytes_buf(h + NONCE_AT, 32);
    }
    choir__bytes_put(&c->out, h, CHOIR__HELLO_BYTES);
}

void choir__channel_init(choir__channel *channel, bool server, const choir__store_key *key)
{
    memset(channel, 0, sizeof *channel);
    channel->server = server;
    channel->keyed = key;
    channel->key = key;
    if (!server)
        write_hello(channel, CHOIR__REFUSAL_NONE);
}

void choir__channel_free(choir__channel *channel)
{
    choir__bytes_free(&channel->in);
    choir__bytes_free(&channel->out);
    if (channel->message)
        sodium_memzero(channel->message, channel->message_room);
    free(channel->message);
    sodium_memzero(channel, sizeof *channel);
}

void choir__channel_refuse(choir__channel *channel, choir__refusal refusal)
{
    if (channel->stage == CHOIR__STAGE_HELLO)
        write_hello(channel, refusal);
    over(channel, refusal);
}

/* Derives the four keys of this greeting. False: the peer's public key is one of the few that
 * hide nothing. */
static bool agree(choir__channel *c)
{
    static const uint8_t label[] = "choir store 1";
    crypto_generichash_state hash;
    uint8_t shared[32], master[32];
    bool fine = crypto_scalarmult(shared, c->secret, c->hellos[!c->server] + PUBLIC_AT) == 0;
    crypto_generichash_init(&hash, c->key->bytes, sizeof c->key->bytes, sizeof master);
    crypto_generichash_update(&hash, label, sizeof label - 1);
    crypto_generichash_update(&hash, shared, sizeof shared);
    crypto_generichash_update(&hash, c->hellos[CLIENT], CHOIR__HELLO_BYTES);
    crypto_generichash_update(&hash, c->hellos[SERVER], CHOIR__HELLO_BYTES);
    crypto_generichash_final(&hash, master, sizeof master);
    for (unsigned i = 0; i < 4; i++)
        crypto_kdf_derive_from_key(c->keys[i], sizeof c->keys[i], i + 1, "choirsto", master);
    sodium_memzero(&hash, sizeof hash);
    sodium_memzero(shared, sizeof shared);
    sodium_memzero(master, sizeof master);
    sodium_memzero(c->secret, sizeof c->secret);
    return fine;
}

/* Computes the proof of `whose`, which authenticates the header as well. */
static void proof_of(choir__channel *c, int whose, const uint8_t *header, uint8_t *proof)
{
    crypto_generichash(
        proof, PROOF_BYTES, header, HEADER_BYTES, c->keys[whose], sizeof c->keys[whose]);
}

static void prove(choir__channel *c)
{
    uint8_t header[HEADER_BYTES], proof[PROOF_BYTES];
    crypto_secretstream_xchacha20poly1305_init_push(&c->push, header, c->keys[2 + c->server]);
    proof_of(c, c->server, header, proof);
    choir__bytes_put(&c->out, proof, sizeof proof);
    choir__bytes_put(&c->out, header, sizeof header);
}

/* at: the other side's proof and header. */
static bool proven(choir__channel *c, const uint8_t *at)
{
    uint8_t proof[PROOF_BYTES];
    proof_of(c, !c->server, at + PROOF_BYTES, proof);
    return sodium_memcmp(at, proof, PROOF_BYTES) == 0 &&
           crypto_secretstream_xchacha20poly1305_init_pull(
               &c->pull, at + PROOF_BYTES, c->keys[2 + !c->server]) == 0;
}

static void forget_keys(choir__channel *c)
{
    sodium_memzero(c->keys, sizeof c->keys);
    c->key = NULL;
}

/* The server handles the client's hello. */
static int welcome(choir__channel *c, const uint8_t *hello)
{
    choir__refusal why = CHOIR__REFUSAL_NONE;
    if (hello[MODE_AT] != c->keyed)
        why = c->keyed ? CHOIR__REFUSAL_KEY_NEEDED : CHOIR__REFUSAL_NO_KEY;
    if (why) {
        choir__channel_refuse(c, why);
        return -1;
    }
    write_hello(c, CHOIR__REFUSAL_NONE);
    c->stage = c->keyed ? CHOIR__STAGE_PROOF : CHOIR__STAGE_OPEN;
    return c->keyed && !agree(c) ? over(c, CHOIR__REFUSAL_GARBLED) : 0;
}

/* The client handles the server's hello. */
static int introduce(choir__channel *c, const uint8_t *hello)
{
    if (hello[REFUSAL_AT])
        return over(c, hello[REFUSAL_AT] <= CHOIR__REFUSAL_USER
                           ? (choir__refusal)hello[REFUSAL_AT]
                           : CHOIR__REFUSAL_GARBLED);
    if (hello[MODE_AT] != c->keyed)
        return over(c, c->keyed ? CHOIR__REFUSAL_NO_KEY : CHOIR__REFUSAL_KEY_NEEDED);
    c->stage = c->keyed ? CHOIR__STAGE_PROOF : CHOIR__STAGE_OPEN;
    if (!c->keyed)
        return 0;
    if (!agree(c))
        return over(c, CHOIR__REFUSAL_GARBLED);
    prove(c);
    return 0;
}

/* Returns 0 if the stage has changed or more bytes are needed. */
static int next_hello(choir__channel *c)
{
    uint8_t *hello = c->hellos[!c->server];
    size_t there = choir__bytes_left(&c->in);
    const uint8_t *at = choir__bytes_front(&c->in);
    if (there && memcmp(at, magic, there < 7 ? there : 7) != 0)
        return over(c, CHOIR__REFUSAL_NOT_STORE);
    if (there < 8)
        return 0;
    c->peer_version = at[7];
    if (at[7] != CHOIR__STORE_VERSION) {
        if (c->server)
            choir__channel_refuse(c, CHOIR__REFUSAL_VERSION);
        return over(c, CHOIR__REFUSAL_VERSION);
    }
    if (there < CHOIR__HELLO_BYTES)
        return 0;
    memcpy(hello, at, CHOIR__HELLO_BYTES);
    choir__bytes_skip(&c->in, CHOIR__HELLO_BYTES);
    return c->server ? welcome(c, hello) : introduce(c, hello);
}

static int next_proof(choir__channel *c)
{
    size_t lead = c->server ? 0 : 1, want = lead + PROOF_BYTES + HEADER_BYTES;
    size_t there = choir__bytes_left(&c->in);
    const uint8_t *at = choir__bytes_front(&c->in);
    if (!c->server && there && at[0])
        return over(
            c, at[0] <= CHOIR__REFUSAL_USER ? (choir__refusal)at[0] : CHOIR__REFUSAL_GARBLED);
    if (there < want)
        return 0;
    bool fine = proven(c, at + lead);
    choir__bytes_skip(&c->in, want);
    if (c->server) {
        uint8_t word = fine ? CHOIR__REFUSAL_NONE : CHOIR__REFUSAL_WRONG_KEY;
        choir__bytes_put(&c->out, &word, 1);
        if (fine)
            prove(c);
    }
    forget_keys(c);
    if (!fine)
        return over(c, c->server ? CHOIR__REFUSAL_WRONG_KEY : CHOIR__REFUSAL_IMPOSTOR);
    c->stage = CHOIR__STAGE_OPEN;
    return 0;
}

static int next_frame(choir__channel *c, const uint8_t **message, size_t *bytes)
{
    size_t extra = c->keyed ? OVERHEAD : 0;
    if (choir__bytes_left(&c->in) < 4)
        return 0;
    size_t length = choir__get32(choir__bytes_front(&c->in));
    if (length < CHOIR__STORE_HEAD + extra || length > CHOIR__STORE_FRAME_MAX + extra)
        return over(c, CHOIR__REFUSAL_GARBLED);
    if (choir__bytes_left(&c->in) < 4 + length)
        return 0;
    if (c->message_room < length || c->message_room > 64 * 1024) { /* rarely large */
        free(c->message);
        c->message_room = length;
        c->message = choir__alloc(length);
    }
    const uint8_t *at = choir__bytes_front(&c->in) + 4;
    if (!c->keyed)
        memcpy(c->message, at, length);
    else if (crypto_secretstream_xchacha20poly1305_pull(
                 &c->pull, c->message, NULL, NULL, at, length, NULL, 0) != 0)
        return over(c, CHOIR__REFUSAL_GARBLED);
    choir__bytes_skip(&c->in, 4 + length);
    *message = c->message;
    *bytes = length - extra;
    return 1;
}

int choir__channel_next(choir__channel *channel, const uint8_t **message, size_t *bytes)
{
    for (;;) {
        choir__channel_stage before = channel->stage;
        int got = -1;
        switch (before) {
        case CHOIR__STAGE_HELLO: got = next_hello(channel); break;
        case CHOIR__STAGE_PROOF: got = next_proof(channel); break;
        case CHOIR__STAGE_OPEN: return next_frame(channel, message, bytes);
        case CHOIR__STAGE_OVER: break;
        }
        if (got < 0 || channel->stage == before)
            return got;
    }
}

void choir__channel_put(choir__channel *channel, const uint8_t *message, size_t bytes)
{
    size_t length = bytes + (channel->keyed ? OVERHEAD : 0);
    uint8_t *at = choir__bytes_grow(&channel->out, 4 + length);
    choir__put32(at, (uint32_t)length);
    if (channel->keyed)
        crypto_secretstream_xchacha20poly1305_push(
            &channel->push, at + 4, NULL, message, bytes, NULL, 0, 0);
    else
        memcpy(at + 4, message, bytes);
    channel->out.to += 4 + length;
}
