/* PyTorch's TCPStore, from the client's side.
 *
 * Numbers are in the machine's byte order; a text is its length in 8 bytes, then its bytes.
 *
 *     SET   key value                     no answer
 *     GET   key                           the value; the key must exist
 *     WAIT  count(8) key...               one byte, 0, once all keys exist
 *     DELETE_KEY  key                     a number in 8 bytes
 *
 * Since PyTorch 2.1 a client begins with VALIDATE and a magic number, and the operations up to
 * GETNUMKEYS count from 1 in place of 0. Neither server answers a VALIDATE, so the client
 * appends four GETNUMKEYS, one byte each:
 *
 *     00 | ce f7 85 3c | 07 07 07 07
 *
 * A newer server answers with four numbers. To an older one these nine bytes are a SET whose
 * key has 0x070707073c85f7ce bytes; it cannot have the memory, and disconnects the client,
 * which calls again and knows. */
#include "launch/store/torch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "launch/store/bytes.h"
#include "launch/store/net.h"

enum { OLD_SET = 0, OLD_GET = 2, OLD_WAIT = 5, NEWER = 1, GETNUMKEYS = 7, DELETE = 8 };
enum { MAGIC = 0x3C85F7CE, PROBES = 4, KEYS_MAX = 1 << 30 };

/* The agent serves before it starts ranks, so it is there, unless it has ended. */
static const double refused_s = 30, answer_s = 10;

/* --- bytes --- */

typedef enum moved { MOVED, LATE, GONE } moved;

static moved write_all(int fd, const uint8_t *data, size_t bytes, double deadline)
{
    for (size_t sent = 0; sent < bytes;) {
        ssize_t n = send(fd, data + sent, bytes - sent, MSG_NOSIGNAL);
        if (n > 0)
            sent += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            return GONE;
        else if (!choir__net_await(fd, POLLOUT, deadline))
            return LATE;
    }
    return MOVED;
}

static moved read_all(int fd, void *data, size_t bytes, double deadline)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = recv(fd, (uint8_t *)data + got, bytes - got, 0);
        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return GONE;
        else if (!choir__net_await(fd, POLLIN, deadline))
            return LATE;
    }
    return MOVED;
}

static void put_number(choir__bytes *b, uint64_t number)
{
    choir__bytes_put(b, &number, sizeof number);
}

static void put_text(choir__bytes *b, const char *text)
{
    put_number(b, strlen(text));
    choir__bytes_put(b, text, strlen(text));
}

static void put_op(choir__bytes *b, const choir__torch_store *store, int op)
{
    uint8_t byte = (uint8_t)(store->old ? op : op + NEWER);
    choir__bytes_put(b, &byte, 1);
}

static moved send_off(choir__torch_store *store, choir__bytes *request, double deadline)
{
    moved m =
        write_all(store->fd, choir__bytes_front(request), choir__bytes_left(request), deadline);
    choir__bytes_free(request);
    return m;
}

/* --- connecting --- */

/* Calls each address of the host once. Returns false, with the reason in `why`. */
static bool call(choir__torch_store *store, const char *host, int port, double deadline,
    char why[200], bool *hopeless)
{
    choir__address list[CHOIR__ADDRESSES_MAX];
    bool again;
    int count = choir__net_resolve(host, port, false, list, why, &again);
    *hopeless = !count && !again;
    for (int i = 0; i < count; i++) {
        store->fd = choir__net_connect(&list[i], deadline);
        if (store->fd >= 0)
            return true;
        snprintf(why, 200, "%s", choir__why(errno));
    }
    return false;
}

static choir_status reach(
    choir__torch_store *store, const char *host, int port, double deadline)
{
    struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    double soon = choir__now() + refused_s, until = deadline < soon ? deadline : soon;
    char why[200] = "?";
    bool hopeless = false;
    while (!call(store, host, port, until, why, &hopeless)) {
        if (hopeless)
            return choir__error(
                CHOIR_ERR_ARGUMENT, "cannot call torchrun's store at '%s': %s", host, why);
        if (choir__now() >= until)
            return choir__error(CHOIR_ERR_TIMEOUT,
                "torchrun's store at %s does not answer: %s; has its agent ended?",
                store->where, why);
        nanosleep(&pause, NULL);
    }
    return CHOIR_OK;
}

/* Greets as a newer client. GONE: the server is an older one, or no TCPStore. */
static moved greet(choir__torch_store *store, double deadline)
{
    uint32_t magic = MAGIC;
    uint8_t hello[1 + sizeof magic + PROBES] = {0};
    uint64_t keys[PROBES];
    memcpy(hello + 1, &magic, sizeof magic);
    memset(hello + 1 + sizeof magic, GETNUMKEYS, PROBES);
    moved m = write_all(store->fd, hello, sizeof hello, deadline);
    if (m == MOVED)
        m = read_all(store->fd, keys, sizeof keys, deadline);
    return m == MOVED && keys[0] > KEYS_MAX ? GONE : m;
}

/* Asks an older server, which expects no greeting, for the number of its keys. */
static moved greet_old(choir__torch_store *store, double deadline)
{
    uint8_t op = GETNUMKEYS - NEWER;
    uint64_t keys;
    moved m = write_all(store->fd, &op, 1, deadline);
    if (m == MOVED)
        m = read_all(store->fd, &keys, sizeof keys, deadline);
    return m == MOVED && keys > KEYS_MAX ? GONE : m; /* another program's text */
}

choir_status choir__torch_open(
    const char *host, int port, double deadline, choir__torch_store *store)
{
    *store = (choir__torch_store){.fd = -1};
    snprintf(
        store->where, sizeof store->where, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    choir_status status = reach(store, host, port, deadline);
    if (status != CHOIR_OK)
        return status;
    double soon = choir__now() + answer_s, until = deadline < soon ? deadline : soon;
    moved m = greet(store, until);
    if (m == GONE) {
        choir__torch_close(store);
        store->old = true;
        status = reach(store, host, port, deadline);
        if (status != CHOIR_OK)
            return status;
        m = greet_old(store, until);
    }
    if (m == MOVED)
        return CHOIR_OK;
    choir__torch_close(store);
    return choir__error(CHOIR_ERR_MISMATCH,
        "what answers at %s is not torchrun's store, though TORCHELASTIC_USE_AGENT_STORE is "
        "True: were MASTER_ADDR or MASTER_PORT changed?",
        store->where);
}

void choir__torch_close(choir__torch_store *store)
{
    if (store->fd >= 0)
        close(store->fd);
    store->fd = -1;
}

/* --- requests --- */

static choir_status explain(const choir__torch_store *store, moved m)
{
    if (m == LATE)
        return choir__error(
            CHOIR_ERR_TIMEOUT, "torchrun's store at %s did not answer in time", store->where);
    return choir__error(CHOIR_ERR_PEER_LOST,
        "torchrun's store at %s has gone: its agent has ended", store->where);
}

choir_status choir__torch_set(
    choir__torch_store *store, const char *key, const char *value, double deadline)
{
    choir__bytes request = {0};
    put_op(&request, store, OLD_SET);
    put_text(&request, key);
    put_text(&request, value);
    moved m = send_off(store, &request, deadline);
    return m == MOVED ? CHOIR_OK : explain(store, m);
}

choir_status choir__torch_delete(choir__torch_store *store, const char *key, double deadline)
{
    choir__bytes request = {0};
    uint8_t op = DELETE;
    uint64_t deleted;
    choir__bytes_put(&request, &op, 1);
    put_text(&request, key);
    moved m = send_off(store, &request, deadline);
    if (m == MOVED)
        m = read_all(store->fd, &deleted, sizeof deleted, deadline);
    return m == MOVED ? CHOIR_OK : explain(store, m);
}

choir_status choir__torch_get(
    choir__torch_store *store, const char *key, char *value, size_t room, double deadline)
{
    choir__bytes request = {0};
    uint8_t answer;
    uint64_t length = 0;
    put_op(&request, store, OLD_WAIT);
    put_number(&request, 1);
    put_text(&request, key);
    moved m = send_off(store, &request, deadline);
    if (m == MOVED)
        m = read_all(store->fd, &answer, sizeof answer, deadline);
    if (m == MOVED) {
        put_op(&request, store, OLD_GET);
        put_text(&request, key);
        m = send_off(store, &request, deadline);
    }
    if (m == MOVED)
        m = read_all(store->fd, &length, sizeof length, deadline);
    if (m == MOVED && length >= room)
        return choir__error(CHOIR_ERR_MISMATCH,
            "torchrun's store at %s has %llu bytes under '%s': expected fewer than %zu",
            store->where, (unsigned long long)length, key, room);
    if (m == MOVED)
        m = read_all(store->fd, value, length, deadline);
    if (m != MOVED)
        return explain(store, m);
    value[length] = '\0';
    return CHOIR_OK;
}
