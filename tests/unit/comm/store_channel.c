/* The greeting and the encryption between two ends in memory: the connection must end if an
 * attacker on the wire changes, repeats or drops bytes, and the bytes must not be readable. */

#include "check.h"
#include "launch/store/channel.h"

typedef struct pair {
    choir__channel client, server;
    choir__store_key keys[2];
    size_t sent[2]; /* bytes on the wire so far, from the client, from the server */
    long flip;      /* the byte of the wire to change, both directions counted together; -1 */
    choir__bytes record[2];
} pair;

static const char secret_text[] = "the quick brown fox jumps over the lazy dog";

static choir__store_key key_of(const char *text)
{
    choir__store_key key;
    choir__store_key_of(text, strlen(text), &key);
    return key;
}

static void open_pair(pair *p, const char *client_key, const char *server_key, long flip)
{
    memset(p, 0, sizeof *p);
    p->flip = flip;
    p->keys[0] = key_of(client_key ? client_key : "");
    p->keys[1] = key_of(server_key ? server_key : "");
    choir__channel_init(&p->client, false, client_key ? &p->keys[0] : NULL);
    choir__channel_init(&p->server, true, server_key ? &p->keys[1] : NULL);
}

static void close_pair(pair *p)
{
    choir__channel_free(&p->client);
    choir__channel_free(&p->server);
    for (int i = 0; i < 2; i++)
        choir__bytes_free(&p->record[i]);
}

/* Moves the bytes in `out` to the other side. Returns whether there were any. */
static bool carry(pair *p, choir__channel *from, choir__channel *to)
{
    size_t n = choir__bytes_left(&from->out);
    int side = from == &p->server;
    const uint8_t *front = choir__bytes_front(&from->out);
    choir__bytes_put(&p->record[side], front, n);
    for (size_t i = 0; i < n; i++) {
        uint8_t byte = front[i];
        if (p->flip == (long)(p->sent[0] + p->sent[1]))
            byte ^= 0x10;
        choir__bytes_put(&to->in, &byte, 1);
        p->sent[side]++;
    }
    choir__bytes_skip(&from->out, n);
    return n > 0;
}

/* Lets both sides exchange messages until neither has more to send. Returns the number of
 * messages that arrived. */
static int settle(pair *p, const uint8_t **last, size_t *last_bytes)
{
    int messages = 0;
    const uint8_t *message;
    size_t bytes;
    bool busy = true;
    while (busy) {
        busy = carry(p, &p->client, &p->server);
        while (choir__channel_next(&p->server, &message, &bytes) == 1) {
            messages++;
            if (last) {
                *last = message;
                *last_bytes = bytes;
            }
        }
        busy |= carry(p, &p->server, &p->client);
        while (choir__channel_next(&p->client, &message, &bytes) == 1)
            messages++;
    }
    return messages;
}

static bool is_open(const pair *p)
{
    return p->client.stage == CHOIR__STAGE_OPEN && p->server.stage == CHOIR__STAGE_OPEN;
}

static bool holds(const choir__bytes *b, const void *what, size_t bytes)
{
    return b->to && memmem(b->data, b->to, what, bytes);
}

static void greets(void **state)
{
    for (int keyed = 0; keyed < 2; keyed++) {
        pair p;
        const uint8_t *last = NULL;
        size_t bytes = 0;
        open_pair(&p, keyed ? "k" : NULL, keyed ? "k" : NULL, -1);
        assert_int_equal(settle(&p, NULL, NULL), 0);
        assert_true(is_open(&p));
        choir__channel_put(&p.client, (const uint8_t *)secret_text, sizeof secret_text);
        choir__channel_put(&p.server, (const uint8_t *)secret_text, sizeof secret_text);
        assert_int_equal(settle(&p, &last, &bytes), 2);
        assert_int_equal(bytes, sizeof secret_text);
        assert_string_equal(last, secret_text);
        for (int side = 0; side < 2; side++)
            assert_int_equal(holds(&p.record[side], "brown fox", 9), !keyed);
        close_pair(&p);
    }
}

static void refuses(void **state)
{
    struct {
        const char *client, *server;
        choir__refusal why;
    } cases[] = {{"a", "b", CHOIR__REFUSAL_WRONG_KEY}, {NULL, "b", CHOIR__REFUSAL_KEY_NEEDED},
        {"a", NULL, CHOIR__REFUSAL_NO_KEY}};
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        pair p;
        open_pair(&p, cases[i].client, cases[i].server, -1);
        settle(&p, NULL, NULL);
        assert_int_equal(p.client.stage, CHOIR__STAGE_OVER);
        assert_int_equal(p.server.stage, CHOIR__STAGE_OVER);
        assert_int_equal(p.client.refusal, cases[i].why);
        assert_int_equal(p.server.refusal, cases[i].why);
        close_pair(&p);
    }
}

/* A client without the key receives nothing from the server that was made with the key. */
static void server_is_silent(void **state)
{
    pair p;
    open_pair(&p, "a", "b", -1);
    settle(&p, NULL, NULL);
    assert_int_equal(p.sent[1], CHOIR__HELLO_BYTES + 1); /* hello, "wrong key" */
    close_pair(&p);
}

/* If any byte is changed on the wire, the two sides never both accept the connection, and a
 * changed message never arrives. */
static void changed_bytes(void **state)
{
    pair p;
    open_pair(&p, "k", "k", -1);
    settle(&p, NULL, NULL);
    choir__channel_put(&p.client, (const uint8_t *)secret_text, sizeof secret_text);
    settle(&p, NULL, NULL);
    long total = (long)(p.sent[0] + p.sent[1]),
         greeting = total - 4 - 17 - (long)sizeof secret_text;
    close_pair(&p);
    for (long flip = 0; flip < total; flip++) {
        open_pair(&p, "k", "k", flip);
        settle(&p, NULL, NULL);
        if (is_open(&p))
            choir__channel_put(&p.client, (const uint8_t *)secret_text, sizeof secret_text);
        else
            assert_true(flip < greeting);
        /* the server's last proof: the server is open then, and the client is not */
        const uint8_t *last = NULL;
        size_t bytes = 0;
        assert_int_equal(settle(&p, &last, &bytes), 0);
        assert_false(is_open(&p) && flip < greeting);
        close_pair(&p);
    }
}

/* Bytes that a client once sent are refused in a second connection. */
static void replay(void **state)
{
    pair p, again;
    open_pair(&p, "k", "k", -1);
    settle(&p, NULL, NULL);
    choir__channel_put(&p.client, (const uint8_t *)secret_text, sizeof secret_text);
    assert_int_equal(settle(&p, NULL, NULL), 1);
    open_pair(&again, "k", "k", -1);
    const uint8_t *message;
    size_t bytes;
    choir__bytes_put(&again.server.in, p.record[0].data, p.record[0].to);
    assert_int_equal(choir__channel_next(&again.server, &message, &bytes), -1);
    assert_int_equal(again.server.refusal, CHOIR__REFUSAL_WRONG_KEY);
    close_pair(&again);
    close_pair(&p);
}

/* An impostor that sends the client's own proof back. */
static void reflection(void **state)
{
    choir__channel client, mirror;
    choir__store_key key = key_of("k"), other = key_of("other");
    const uint8_t *message;
    size_t bytes;
    uint8_t word = 0;
    choir__channel_init(&client, false, &key);
    choir__channel_init(&mirror, true, &other);
    choir__bytes_put(&mirror.in, choir__bytes_front(&client.out), CHOIR__HELLO_BYTES);
    choir__bytes_skip(&client.out, CHOIR__HELLO_BYTES);
    assert_int_equal(choir__channel_next(&mirror, &message, &bytes), 0);
    choir__bytes_put(&client.in, choir__bytes_front(&mirror.out), CHOIR__HELLO_BYTES);
    assert_int_equal(choir__channel_next(&client, &message, &bytes), 0);
    choir__bytes_put(&client.in, &word, 1);
    choir__bytes_put(
        &client.in, choir__bytes_front(&client.out), choir__bytes_left(&client.out));
    assert_int_equal(choir__channel_next(&client, &message, &bytes), -1);
    assert_int_equal(client.refusal, CHOIR__REFUSAL_IMPOSTOR);
    choir__channel_free(&client);
    choir__channel_free(&mirror);
}

/* A public key that makes the common secret zero, whatever ours is. */
static void weak_public_key(void **state)
{
    choir__channel server;
    choir__store_key key = key_of("k");
    const uint8_t *message;
    size_t bytes;
    uint8_t hello[CHOIR__HELLO_BYTES] = "CHOIRST\1\1"; /* public: all zero */
    choir__channel_init(&server, true, &key);
    choir__bytes_put(&server.in, hello, sizeof hello);
    assert_int_equal(choir__channel_next(&server, &message, &bytes), -1);
    choir__channel_free(&server);
}

/* Frames repeated, dropped and swapped on the wire. */
static void frames_out_of_order(void **state)
{
    for (int how = 0; how < 3; how++) {
        pair p;
        choir__bytes frames[2] = {{0}, {0}};
        const uint8_t *message;
        size_t bytes;
        open_pair(&p, "k", "k", -1);
        settle(&p, NULL, NULL);
        for (int i = 0; i < 2; i++) {
            choir__bytes *out = &p.client.out;
            choir__channel_put(&p.client, (const uint8_t *)secret_text, sizeof secret_text);
            choir__bytes_put(&frames[i], choir__bytes_front(out), choir__bytes_left(out));
            choir__bytes_skip(out, choir__bytes_left(out));
        }
        if (how == 0) { /* repeated */
            choir__bytes_put(&p.server.in, frames[0].data, frames[0].to);
            assert_int_equal(choir__channel_next(&p.server, &message, &bytes), 1);
            choir__bytes_put(&p.server.in, frames[0].data, frames[0].to);
        } else { /* the first dropped; swapped */
            choir__bytes_put(&p.server.in, frames[1].data, frames[1].to);
            choir__bytes_put(&p.server.in, frames[how == 1].data, frames[how == 1].to);
        }
        assert_int_equal(choir__channel_next(&p.server, &message, &bytes), -1);
        assert_int_equal(p.server.refusal, CHOIR__REFUSAL_GARBLED);
        choir__bytes_free(&frames[0]);
        choir__bytes_free(&frames[1]);
        close_pair(&p);
    }
}

/* A length above the limit ends the connection before memory is allocated for it. */
static void lengths(void **state)
{
    const uint32_t wrong[] = {0, 1, 15, CHOIR__STORE_FRAME_MAX + 1, 0x7fffffff, 0xffffffff};
    for (size_t i = 0; i < CHOIR_COUNT(wrong); i++) {
        pair p;
        const uint8_t *message;
        size_t bytes;
        uint8_t length[4];
        open_pair(&p, NULL, NULL, -1);
        settle(&p, NULL, NULL);
        choir__put32(length, wrong[i]);
        choir__bytes_put(&p.server.in, length, 4);
        assert_int_equal(choir__channel_next(&p.server, &message, &bytes), -1);
        assert_true(p.server.in.room < 1 << 20 && !p.server.message_room);
        close_pair(&p);
    }
}

static int start(void **state)
{
    return sodium_init() < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greets),
        cmocka_unit_test(refuses),
        cmocka_unit_test(server_is_silent),
        cmocka_unit_test(changed_bytes),
        cmocka_unit_test(replay),
        cmocka_unit_test(reflection),
        cmocka_unit_test(weak_public_key),
        cmocka_unit_test(frames_out_of_order),
        cmocka_unit_test(lengths),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
