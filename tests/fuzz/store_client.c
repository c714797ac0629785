/* Answers of a store, or of an impostor, to a client. Bits of the first byte choose the form:
 * 1: with a key, as messages with a two-byte length each, after a valid greeting; otherwise as
 * bytes on a socket, after a valid hello if 2 is set. */
#include "fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

#include "launch/store/channel.h"
#include "launch/store/store.h"

static const choir__store_key key = {{7}};

static void carry(choir__channel *from, choir__channel *to)
{
    choir__bytes_put(&to->in, choir__bytes_front(&from->out), choir__bytes_left(&from->out));
    choir__bytes_skip(&from->out, choir__bytes_left(&from->out));
}

static void encrypted(const uint8_t *data, size_t size)
{
    choir__channel client, server;
    choir__store_reply reply;
    const uint8_t *message;
    size_t bytes;
    choir__channel_init(&client, false, &key);
    choir__channel_init(&server, true, &key);
    for (int i = 0; i < 3; i++) {
        carry(&client, &server);
        choir__channel_next(&server, &message, &bytes);
        carry(&server, &client);
        choir__channel_next(&client, &message, &bytes);
    }
    while (size > 2) {
        bytes = choir__get16(data);
        bytes = bytes < size - 2 ? bytes : size - 2;
        choir__channel_put(&server, data + 2, bytes);
        carry(&server, &client);
        data += 2 + bytes;
        size -= 2 + bytes;
        if (choir__channel_next(&client, &message, &bytes) == 1)
            choir__store_reply_read(message, bytes, &reply);
    }
    choir__channel_free(&client);
    choir__channel_free(&server);
}

static void over_a_socket(bool greeted, const uint8_t *data, size_t size)
{
    static const uint8_t hello[CHOIR__HELLO_BYTES] = "CHOIRST\1";
    const char *keys[] = {"a", "b"};
    choir_store *store = NULL;
    char *value = NULL;
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends))
        return;
    if ((greeted && send(ends[1], hello, sizeof hello, MSG_NOSIGNAL) < 0) ||
        (size && send(ends[1], data, size, MSG_NOSIGNAL) < 0)) {
        /* as much as fits */
    }
    shutdown(ends[1], SHUT_WR);
    if (choir__store_over(ends[0], "fuzz", 1, NULL, &store) == CHOIR_OK) {
        choir_store_set(store, "a", "b", 1);
        if (!choir_store_get(store, "a", 0, &value, NULL))
            free(value);
        choir_store_add(store, "n", 1, NULL);
        value = NULL;
        choir_store_compare_set(store, "a", "b", "c", &value);
        free(value);
        choir_store_wait(store, keys, 2, 0);
        choir_store_delete(store, "a", NULL);
        choir_store_free(store);
    }
    close(ends[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (sodium_init() < 0 || !size)
        return 0;
    if (data[0] & 1)
        encrypted(data + 1, size - 1);
    else
        over_a_socket(data[0] & 2, data + 1, size - 1);
    return 0;
}
