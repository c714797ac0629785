/* The client of PyTorch's TCPStore beside servers that speak as those of PyTorch 1.13 and of
 * PyTorch 2.1 and later do, and beside some that are none. */
#include <arpa/inet.h>
#include <pthread.h>
#include <unistd.h>

#include <choir/choir.h>
#include "check.h"
#include "base/base.h"
#include "launch/store/torch.h"

typedef enum manner { NEWER, OLDER, WEB, SILENT, DIES } manner;

/* A store of one key. WAIT is answered at once if the key exists; otherwise the connection
 * stays open, or DIES closes it. */
typedef struct server {
    manner kind;
    int listener, port;
    pthread_t thread;
    char key[100], value[100];
} server;

static bool get(int fd, void *data, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(fd, (char *)data + got, bytes - got);
        if (n <= 0)
            return false;
        got += (size_t)n;
    }
    return true;
}

static bool get_text(int fd, char text[100])
{
    uint64_t length;
    memset(text, 0, 100);
    return get(fd, &length, sizeof length) && length < 100 && get(fd, text, length);
}

static void put(int fd, const void *data, size_t bytes)
{
    assert_int_equal(write(fd, data, bytes), bytes);
}

/* Handles one request; false: the connection is over. */
static bool serve(server *s, int fd)
{
    uint8_t op, zero = 0;
    uint32_t magic;
    uint64_t number = 0;
    char key[100];
    if (!get(fd, &op, 1))
        return false;
    if (op == (s->kind == OLDER ? 6 : 7)) {
        put(fd, &number, sizeof number);
        return true;
    }
    if (op == 8) {
        number = get_text(fd, key) && !strcmp(key, s->key);
        *s->key = number ? '\0' : *s->key;
        put(fd, &number, sizeof number);
        return true;
    }
    if (s->kind != OLDER && op == 0)
        return get(fd, &magic, sizeof magic) && magic == 0x3C85F7CE;
    switch (op - (s->kind != OLDER)) {
    case 0: return get_text(fd, s->key) && get_text(fd, s->value);
    case 2:
        number = strlen(s->value);
        if (!get_text(fd, key) || strcmp(key, s->key) != 0)
            return false;
        put(fd, &number, sizeof number);
        put(fd, s->value, number);
        return true;
    case 5:
        if (!get(fd, &number, sizeof number) || number != 1 || !get_text(fd, key))
            return false;
        if (strcmp(key, s->key) != 0)
            return s->kind != DIES;
        put(fd, &zero, 1);
        return true;
    default: return false;
    }
}

static void *run(void *arg)
{
    server *s = arg;
    for (int fd; (fd = accept(s->listener, NULL, NULL)) >= 0; close(fd)) {
        if (s->kind == WEB)
            put(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
        while (s->kind == SILENT && read(fd, &(char){0}, 1) > 0) {
        }
        while (s->kind != WEB && serve(s, fd)) {
        }
    }
    return NULL;
}

static void start(server *s, manner kind)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof a;
    *s = (server){.kind = kind, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(s->listener, (struct sockaddr *)&a, length), 0);
    assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &length), 0);
    s->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
}

static void stop(server *s)
{
    shutdown(s->listener, SHUT_RDWR); /* ends accept() */
    pthread_join(s->thread, NULL);
    close(s->listener);
}

static void both_protocols(void **state)
{
    for (manner k = NEWER; k <= OLDER; k++) {
        server s;
        choir__torch_store store;
        char value[16], tiny[3];
        double until = choir__now() + HANGS_S;
        start(&s, k);
        ok(choir__torch_open("127.0.0.1", s.port, until, &store));
        assert_int_equal(store.old, k == OLDER);
        ok(choir__torch_set(&store, "choir/a", "1234", until));
        ok(choir__torch_get(&store, "choir/a", value, sizeof value, until));
        assert_string_equal(value, "1234");
        assert_int_equal(
            choir__torch_get(&store, "choir/a", tiny, sizeof tiny, until), CHOIR_ERR_MISMATCH);
        choir__torch_close(&store);
        ok(choir__torch_open("localhost", s.port, until, &store));
        ok(choir__torch_delete(&store, "choir/a", until));
        assert_string_equal(s.key, "");
        assert_int_equal(
            choir__torch_get(&store, "choir/a", value, sizeof value, choir__now() + 0.05),
            CHOIR_ERR_TIMEOUT);
        choir__torch_close(&store);
        stop(&s);
    }
}

static void no_stores(void **state)
{
    server s;
    choir__torch_store store;
    char value[16];
    start(&s, WEB);
    assert_fails(choir__torch_open("127.0.0.1", s.port, choir__now() + 20, &store),
        CHOIR_ERR_MISMATCH, "is not torchrun's store");
    stop(&s);
    start(&s, SILENT);
    assert_fails(choir__torch_open("127.0.0.1", s.port, choir__now() + 0.05, &store),
        CHOIR_ERR_MISMATCH, "is not torchrun's store");
    stop(&s);
    assert_fails(choir__torch_open("127.0.0.1", s.port, choir__now() + 0.05, &store),
        CHOIR_ERR_TIMEOUT, "does not answer: Connection refused");
    start(&s, DIES);
    ok(choir__torch_open("127.0.0.1", s.port, choir__now() + 20, &store));
    assert_fails(choir__torch_get(&store, "choir/b", value, sizeof value, choir__now() + 20),
        CHOIR_ERR_PEER_LOST, "has gone: its agent has ended");
    choir__torch_close(&store);
    stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_protocols),
        cmocka_unit_test(no_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
