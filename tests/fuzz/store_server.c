/* Input of a client to a store. Bits of the first byte choose the form: 1: with a key; 2: the
 * greeting is valid and the input follows it, with a key as messages with a two-byte length
 * each, properly encrypted. A second client waits for a key and has a will. */
#include "fuzz.h"

#include "launch/store/session.h"

static const choir__store_key key = {{7}};

/* Takes what the session says, as the socket would. */
static bool step(choir__session *s)
{
    bool more = choir__session_go(s);
    choir__bytes_skip(&s->channel.out, choir__bytes_left(&s->channel.out));
    return more;
}

static bool run(choir__session *s)
{
    while (step(s))
        if (choir__bytes_left(&s->channel.in) < 4 || s->channel.stage != CHOIR__STAGE_OPEN ||
            choir__bytes_left(&s->channel.in) <
                4 + choir__get32(choir__bytes_front(&s->channel.in)))
            return true;
    return false;
}

static void carry(choir__channel *from, choir__channel *to)
{
    choir__bytes_put(&to->in, choir__bytes_front(&from->out), choir__bytes_left(&from->out));
    choir__bytes_skip(&from->out, choir__bytes_left(&from->out));
}

static void greet(choir__session *s, choir__channel *client)
{
    const uint8_t *message;
    size_t bytes;
    choir__channel_init(client, false, s->channel.keyed ? &key : NULL);
    for (int i = 0; i < 3; i++) {
        carry(client, &s->channel);
        choir__session_go(s);
        carry(&s->channel, client);
        choir__channel_next(client, &message, &bytes);
    }
}

/* A plain client with a will for "k" that waits for "w". */
static void open_second(choir__session *s, choir__hub *hub)
{
    static const uint8_t words[] =
        "\x1a\0\0\0\7\0\2\0\1\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0k\1\0\0\0v"
        "\x15\0\0\0\2\0\1\0\2\0\0\0\x10\x27\0\0\0\0\0\0\1\0\0\0w";
    choir__channel client;
    choir__session_init(s, hub, NULL);
    greet(s, &client);
    choir__bytes_put(&s->channel.in, words, sizeof words - 1);
    run(s);
    choir__channel_free(&client);
}

static void feed(choir__session *s, choir__channel *client, const uint8_t *data, size_t size)
{
    if (!s->channel.keyed || !client) { /* in two pieces */
        choir__bytes_put(&s->channel.in, data, size / 2);
        if (run(s)) {
            choir__bytes_put(&s->channel.in, data + size / 2, size - size / 2);
            run(s);
        }
        return;
    }
    while (size > 2) {
        size_t bytes = choir__get16(data);
        bytes = bytes < size - 2 ? bytes : size - 2;
        choir__channel_put(client, data + 2, bytes);
        carry(client, &s->channel);
        if (!run(s))
            break;
        data += 2 + bytes;
        size -= 2 + bytes;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    choir__hub hub;
    choir__session first, second;
    choir__channel client;
    if (sodium_init() < 0 || !size)
        return 0;
    bool keyed = data[0] & 1, greeted = data[0] & 2;
    choir__hub_init(&hub, 8, 10000);
    open_second(&second, &hub);
    choir__session_init(&first, &hub, keyed ? &key : NULL);
    if (greeted)
        greet(&first, &client);
    feed(&first, greeted ? &client : NULL, data + 1, size - 1);
    choir__hub_expire(&hub, choir__now() + 5);
    choir__session_end(&first);
    choir__session_end(&second);
    if (greeted)
        choir__channel_free(&client);
    if (hub.parked || hub.woken)
        abort();
    for (size_t i = 0; i < hub.table.heads_count; i++)
        while (hub.table.heads[i]) {
            choir__store_entry *e = hub.table.heads[i];
            choir__table_delete(&hub.table, (choir__store_field){e->key, e->key_bytes});
        }
    if (hub.table.bytes || hub.table.keys) /* all that was charged has been given back */
        abort();
    choir__hub_free(&hub);
    return 0;
}
