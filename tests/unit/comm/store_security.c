/* Access to a store: keys, unknown clients, clients that send nothing, and clients that send
 * too much. */
#include "folder_fixture.h"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <choir/store.h>

#include "base/base.h"
#include "launch/store/store.h"

static const char *key_file(const char *name, const char *content, size_t bytes, mode_t mode)
{
    const char *path = at("%s", name);
    unlink(path);
    spit(path, content, bytes);
    assert_int_equal(chmod(path, mode), 0);
    return path;
}

static const char good_key[] = "0123456789abcdef0123456789abcdef";
static const char bad_key[] = "0123456789abcdef0123456789abcdeF";

static choir_store_server *serve_keyed(const char *bind)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *server = NULL;
    opts.key_file = key_file("good", good_key, 32, 0600);
    opts.bind = bind;
    ok(choir_store_serve(opts, &server));
    return server;
}

static choir_status call(
    choir_store_server *server, const char *key, double timeout_s, choir_store **store)
{
    choir_store_opts opts = choir_store_defaults();
    opts.timeout_s = timeout_s;
    opts.key_file = key ? key_file("client", key, strlen(key), 0600) : NULL;
    return choir_store_connect("127.0.0.1", choir_store_port(server), opts, store);
}

static void assert_serves(choir_store_server *server, const char *key)
{
    choir_store *store = NULL;
    ok(call(server, key, 20, &store));
    ok(choir_store_set(store, "a", "b", 1));
    choir_store_free(store);
}

/* --- keys --- */

static choir_status read_key(const char *path)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *server = NULL;
    opts.key_file = path;
    choir_status status = choir_store_serve(opts, &server);
    choir_store_server_free(server);
    return status;
}

static void key_files(void **state)
{
    char *large = calloc(1, 100 * 1000), fifo[300];
    ok(read_key(key_file("k", good_key, 32, 0600)));
    ok(read_key(key_file("k", good_key, 32, 0400)));
    const mode_t open_modes[] = {0640, 0604, 0620, 0601, 0666};
    for (size_t i = 0; i < CHOIR_COUNT(open_modes); i++) {
        assert_fails(read_key(key_file("k", good_key, 32, open_modes[i])), CHOIR_ERR_ARGUMENT,
            "chmod 600");
    }
    assert_fails(
        read_key(key_file("k", good_key, 31, 0600)), CHOIR_ERR_ARGUMENT, "gives, got 31");
    assert_int_equal(read_key(key_file("k", "", 0, 0600)), CHOIR_ERR_ARGUMENT);
    assert_int_equal(read_key(key_file("k", large, 100 * 1000, 0600)), CHOIR_ERR_ARGUMENT);
    free(large);
    assert_int_equal(read_key(folder), CHOIR_ERR_ARGUMENT);
    assert_fails(read_key("/nowhere/key"), CHOIR_ERR_IO, "/nowhere/key");
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(read_key(fifo), CHOIR_ERR_ARGUMENT);
    unlink(fifo);
    if (geteuid() == 0) {
        const char *path = key_file("k", good_key, 32, 0600);
        assert_int_equal(chown(path, 65534, 65534), 0);
        assert_fails(read_key(path), CHOIR_ERR_ARGUMENT, "user id 65534");
        unlink(path);
    }
}

static void key_descriptor(void **state)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *server = NULL;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], good_key, 32), 32);
    close(ends[1]);
    opts.key_fd = ends[0];
    ok(choir_store_serve(opts, &server));
    assert_serves(server, good_key);
    choir_store_server_free(server);
    assert_int_equal(choir_store_serve(opts, &server), CHOIR_ERR_ARGUMENT); /* it is empty */
    opts.key_file = "both";
    assert_fails(choir_store_serve(opts, &server), CHOIR_ERR_ARGUMENT, "name one of them");
    close(ends[0]);
}

static void outside_needs_a_key(void **state)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *server = NULL;
    choir_store *store = NULL;
    const char *outside[] = {"0.0.0.0", "::", "192.0.2.1"};
    for (size_t i = 0; i < CHOIR_COUNT(outside); i++) {
        opts.bind = outside[i];
        assert_fails(choir_store_serve(opts, &server), CHOIR_ERR_ARGUMENT, "needs a key");
    }
    assert_fails(
        choir_store_connect("192.0.2.1", 29500, opts, &store), CHOIR_ERR_ARGUMENT, "job's key");
    server = serve_keyed("0.0.0.0");
    assert_serves(server, good_key);
    choir_store_server_free(server);
}

static void encrypted_values(void **state)
{
    choir_store_server *server = serve_keyed("127.0.0.1");
    choir_store *store = NULL;
    char *big = malloc(CHOIR_STORE_VALUE_MAX), *value = NULL;
    size_t bytes = 0;
    for (size_t i = 0; i < CHOIR_STORE_VALUE_MAX; i++)
        big[i] = (char)(i * 7 >> 3);
    ok(call(server, good_key, 20, &store));
    for (int i = 0; i < 3; i++) {
        ok(choir_store_set(store, "big", big, CHOIR_STORE_VALUE_MAX));
        ok(choir_store_get(store, "big", 0, &value, &bytes));
        assert_int_equal(bytes, CHOIR_STORE_VALUE_MAX);
        assert_memory_equal(value, big, bytes);
        free(value);
    }
    assert_int_equal(choir_store_get(store, "none", 0.05, &value, NULL), CHOIR_ERR_TIMEOUT);
    choir_store_free(store);
    free(big);
    choir_store_server_free(server);
}

static void wrong_keys(void **state)
{
    choir_store_server *server = serve_keyed("127.0.0.1"), *plain = NULL;
    choir_store *store = NULL;
    double start = choir__now();
    assert_fails(call(server, bad_key, 600, &store), CHOIR_ERR_MISMATCH, "another key");
    assert_fails(call(server, NULL, 600, &store), CHOIR_ERR_MISMATCH, "asks for the job's key");
    ok(choir_store_serve(choir_store_defaults(), &plain));
    assert_fails(call(plain, good_key, 600, &store), CHOIR_ERR_MISMATCH, "has no key");
    assert_true(choir__now() - start < HANGS_S); /* at once, not when the time is over */
    assert_int_equal(choir__store_failures(server).keys, 2);
    assert_serves(server, good_key);
    choir_store_server_free(server);
    choir_store_server_free(plain);
}

/* A client that fails repeatedly is refused without a check of its key, and is served again a
 * little later. */
static void many_wrong_keys(void **state)
{
    choir_store_server *server = serve_keyed("127.0.0.1");
    choir_store *store = NULL;
    int turned_away = 0;
    for (int i = 0; i < 20; i++)
        turned_away += call(server, bad_key, 0.05, &store) == CHOIR_ERR_TIMEOUT;
    assert_true(turned_away > 0);
    assert_true(choir__store_failures(server).keys < 20);
    assert_serves(server, good_key);
    choir_store_server_free(server);
}

/* --- strangers --- */

/* Another user calls a thousand times a second and sends garbage, until `go_on` is at its end.
 * (Without a pause, the calls of this test would find no free port.) */
static pid_t start_flood(int port, int go_on[2])
{
    char hello[80] = {0};
    assert_int_equal(pipe2(go_on, O_CLOEXEC | O_NONBLOCK), 0);
    pid_t pid = fork();
    if (pid)
        return pid;
    close(go_on[1]);
    if (setgid(65534) || setuid(65534))
        _exit(1);
    while (read(go_on[0], hello, 1) < 0) { /* EAGAIN: the test goes on */
        struct sockaddr_in a = {.sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
            send(fd, hello, sizeof hello, MSG_NOSIGNAL); /* fails when it is turned away */
        close(fd);
        poll(NULL, 0, 1);
    }
    _exit(0);
}

/* On loopback all users have one address; one who floods the server keeps no other out. */
static void flood_of_another_user(void **state)
{
    static const char *const binds[] = {"127.0.0.1", "::"};
    if (geteuid() != 0) {
        print_message("skipped: only root can be another user\n");
        skip();
    }
    for (size_t i = 0; i < CHOIR_COUNT(binds); i++) {
        choir_store_server *server = serve_keyed(binds[i]);
        choir_store *store = NULL;
        int go_on[2];
        pid_t pid = start_flood(choir_store_port(server), go_on);
        double end = choir__now() + HANGS_S;
        while (choir__store_failures(server).strangers < 8 && choir__now() < end)
            sched_yield();
        for (int k = 0; k < 20; k++) {
            if (call(server, good_key, 20, &store))
                fail_msg("call %d: %s", k, choir_error_message());
            choir_store_free(store);
        }
        assert_int_equal(choir__store_failures(server).keys, 0);
        close(go_on[1]);
        close(go_on[0]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        choir_store_server_free(server);
    }
}

static int raw_call(int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

/* Returns whether the other side closes the connection within `seconds`. */
static bool hangs_up(int fd, double seconds)
{
    char text[4096];
    double end = choir__now() + seconds;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (poll(&p, 1, 100) > 0 && recv(fd, text, sizeof text, 0) <= 0)
            return true;
        if (choir__now() > end)
            return false;
    }
}

/* Hundreds of connections that send nothing or half a greeting delay no client and are
 * closed. */
static void silent_and_half_open(void **state)
{
    enum { SILENT = 1100 };
    choir_store_server *server = serve_keyed("127.0.0.1");
    int fds[SILENT];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < SILENT; i++) {
        fds[i] = raw_call(choir_store_port(server));
        if (i % 2)
            assert_int_equal(
                send(fds[i], "CHOIRST\1\1\0\0\0\0\0\0\0abc", 8 + (size_t)i % 12, MSG_NOSIGNAL),
                8 + i % 12);
    }
    double start = choir__now();
    assert_serves(server, good_key);
    assert_true(choir__now() - start < HANGS_S); /* not one after the other */
    for (int i = 0; i < SILENT; i++) {
        assert_true(hangs_up(fds[i], HANGS_S));
        close(fds[i]);
    }
    assert_serves(server, good_key);
    choir_store_server_free(server);
}

static void garbage(void **state)
{
    choir_store_server *keyed = serve_keyed("127.0.0.1"), *plain = NULL;
    ok(choir_store_serve(choir_store_defaults(), &plain));
    choir_store_server *servers[] = {keyed, plain};
    char text[3000];
    unsigned seed = 5;
    for (int i = 0; i < 60; i++) {
        choir_store_server *server = servers[i % 2];
        int fd = raw_call(choir_store_port(server));
        size_t bytes = 0;
        if (i % 3) { /* after a hello that is fine; with or without a key */
            memset(text, 0, 80);
            memcpy(text, "CHOIRST\1", 8);
            text[8] = (char)(i % 2 == 0);
            bytes = 80;
        }
        for (; bytes < sizeof text; bytes++)
            text[bytes] = (char)(rand_r(&seed) >> 8);
        if (i == 59)
            memcpy(text + 80, "\x10\0\0\0\x63\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
        send(fd, text, sizeof text, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        assert_true(hangs_up(fd, 15));
        close(fd);
    }
    assert_serves(keyed, good_key);
    assert_serves(plain, NULL);
    choir_store_server_free(keyed);
    choir_store_server_free(plain);
}

/* A client asks for megabytes and reads none of them: only its own requests wait, and the
 * server does not buffer answers without limit. */
static void deaf_client(void **state)
{
    choir_store_server *server = NULL;
    choir_store *store = NULL;
    choir_store_opts opts = choir_store_defaults();
    char hello[80] = "CHOIRST\1";
    static const char get[] = "\x19\0\0\0\2\0\1\0\1\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0large";
    char *large = calloc(1, CHOIR_STORE_VALUE_MAX);
    ok(choir_store_serve(opts, &server));
    ok(choir_store_connect("127.0.0.1", choir_store_port(server), opts, &store));
    ok(choir_store_set(store, "large", large, CHOIR_STORE_VALUE_MAX));
    int fd = raw_call(choir_store_port(server));
    assert_int_equal(send(fd, hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
    for (int i = 0; i < 2000; i++) /* 2 GB of answers, if they were made */
        if (send(fd, get, sizeof get - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
    double start = choir__now();
    for (int i = 0; i < 20; i++)
        ok(choir_store_set(store, "small", "", 0));
    assert_true(choir__now() - start < HANGS_S);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    assert_true(usage.ru_maxrss < 1000 * 1000); /* in KiB */
    close(fd);
    choir_store_free(store);
    choir_store_server_free(server);
    free(large);
}

/* Connections that announce large frames and send half of each: all of them together hold no
 * more than the server's limit. The others are served. */
static void half_frames(void **state)
{
    enum { CALLS = 6, HALF = 1 << 20 };
    choir_store_server *server = NULL;
    choir_store *store = NULL;
    choir_store_opts opts = choir_store_defaults();
    char hello[80] = "CHOIRST\1", length[4] = {0, 0, 0x20, 0}; /* 2 MiB */
    char *half = calloc(1, HALF);
    int calls[CALLS], dropped = 0;
    double end = choir__now() + HANGS_S;
    opts.bytes_max = 4000;
    ok(choir_store_serve(opts, &server));
    for (int i = 0; i < CALLS; i++) {
        calls[i] = raw_call(choir_store_port(server));
        assert_int_equal(send(calls[i], hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
        send(calls[i], length, sizeof length, MSG_NOSIGNAL);
        for (int at = 0, n; at < HALF; at += n)
            if ((n = (int)send(calls[i], half, (size_t)(HALF - at), MSG_NOSIGNAL)) <= 0)
                break;
    }
    while (dropped < CALLS - 3 && choir__now() < end) {
        dropped = 0;
        for (int i = 0; i < CALLS; i++)
            dropped += hangs_up(calls[i], 0);
    }
    assert_true(dropped >= CALLS - 3);
    ok(choir_store_connect("127.0.0.1", choir_store_port(server), opts, &store));
    ok(choir_store_set(store, "small", "s", 1));
    for (int i = 0; i < CALLS; i++)
        close(calls[i]);
    choir_store_free(store);
    choir_store_server_free(server);
    free(half);
}

/* --- what a client may find in place of a store --- */

typedef struct other_server {
    int listener, port;
    const char *says;
    size_t bytes;
} other_server;

static void *answer_once(void *arg)
{
    other_server *o = arg;
    int fd = accept(o->listener, NULL, NULL);
    char text[4096];
    if (fd < 0)
        return NULL;
    if (recv(fd, text, sizeof text, 0) > 0)
        send(fd, o->says, o->bytes, MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    hangs_up(fd, 5);
    close(fd);
    return NULL;
}

static void listen_somewhere(other_server *o)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof a;
    o->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(o->listener, (struct sockaddr *)&a, length), 0);
    assert_int_equal(listen(o->listener, 8), 0);
    assert_int_equal(getsockname(o->listener, (struct sockaddr *)&a, &length), 0);
    o->port = ntohs(a.sin_port);
}

static void not_a_store(void **state)
{
    static char other_version[80] = "CHOIRST\x09";
    const other_server cases[] = {
        {.says = "HTTP/1.1 400 Bad Request\r\n\r\n", .bytes = 28},
        {.says = other_version, .bytes = sizeof other_version},
        {.says = "CHOIRST\1\0\x63", .bytes = 80},
    };
    const char *words[] = {"is not a store", "version 9", "makes no sense"};
    static char padded[80];
    memcpy(padded, cases[2].says, 10);
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        other_server o = cases[i];
        choir_store_opts opts = choir_store_defaults();
        choir_store *store = NULL;
        pthread_t thread;
        if (i == 2)
            o.says = padded;
        listen_somewhere(&o);
        pthread_create(&thread, NULL, answer_once, &o);
        opts.timeout_s = 20;
        assert_fails(choir_store_connect("127.0.0.1", o.port, opts, &store), CHOIR_ERR_MISMATCH,
            words[i]);
        pthread_join(thread, NULL);
        close(o.listener);
    }
}

/* A server whose process is stopped: its port accepts connections, but it does not answer. */
static void stopped_server(void **state)
{
    other_server o = {0};
    choir_store_opts opts = choir_store_defaults();
    choir_store *store = NULL;
    listen_somewhere(&o);
    opts.timeout_s = 0.5;
    double start = choir__now();
    assert_int_equal(choir_store_connect("127.0.0.1", o.port, opts, &store), CHOIR_ERR_TIMEOUT);
    assert_true(choir__now() - start < HANGS_S);
    close(o.listener);
}

/* --- another user of this machine --- */

/* Runs fn in a child process of an unprivileged user; returns its exit status. */
static int as_nobody(int (*fn)(void *), void *arg)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        if (setgid(65534) || setuid(65534))
            _exit(99);
        _exit(fn(arg));
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

typedef struct target {
    const char *host;
    int port;
} target;

static int try_to_call(void *arg)
{
    target *t = arg;
    choir_store_opts opts = choir_store_defaults();
    choir_store *store = NULL;
    opts.timeout_s = 3;
    choir_status status = choir_store_connect(t->host, t->port, opts, &store);
    if (!status)
        choir_store_free(store);
    return -(int)status;
}

/* Skips the client's own checks: sends a greeting and then a request directly to the server. */
static int try_raw(void *arg)
{
    target *t = arg;
    char hello[80] = "CHOIRST\1", request[20] = "\x10\0\0\0\x08"; /* BYE */
    char answer[400];
    ssize_t got = 0, n;
    int fd = raw_call(t->port);
    if (send(fd, hello, 80, MSG_NOSIGNAL) != 80)
        return 1;
    send(fd, request, 20, MSG_NOSIGNAL);
    while ((n = recv(fd, answer + got, sizeof answer - (size_t)got, 0)) > 0)
        got += n;
    close(fd);
    return got > 80 ? 1 : 0; /* a refusal at most */
}

static void another_user(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can be another user\n");
        skip();
    }
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *tcp = NULL, *local = NULL;
    char name[64];
    snprintf(name, sizeof name, "unix:choir-test-%d", (int)getpid());
    ok(choir_store_serve(opts, &tcp));
    opts.bind = name;
    ok(choir_store_serve(opts, &local));
    target targets[] = {{"127.0.0.1", choir_store_port(tcp)}, {name, 0}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(as_nobody(try_to_call, &targets[i]), -CHOIR_ERR_MISMATCH);
    assert_int_equal(as_nobody(try_raw, &targets[0]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(try_to_call(&targets[i]), 0);
    choir_store_server_free(tcp);
    choir_store_server_free(local);
}

static int squat(void *arg)
{
    int *ends = arg;
    choir_store_server *server = NULL;
    choir_store_opts opts = choir_store_defaults();
    char word;
    if (choir_store_serve(opts, &server))
        return 1;
    int port = choir_store_port(server);
    if (write(ends[1], &port, sizeof port) != sizeof port)
        return 1;
    return read(ends[2], &word, 1) != 0; /* until we are through */
}

/* Another user's process holds the port first: a client must not take it for the store. */
static void another_users_server(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can be another user\n");
        skip();
    }
    int up[2], down[2], port = 0;
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    int ends[] = {up[0], up[1], down[0]};
    pid_t pid = fork();
    if (pid == 0) {
        close(down[1]);
        _exit(as_nobody(squat, ends));
    }
    assert_int_equal(read(up[0], &port, sizeof port), sizeof port);
    target t = {"127.0.0.1", port};
    assert_int_equal(try_to_call(&t), -CHOIR_ERR_MISMATCH);
    close(down[1]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    for (int i = 0; i < 2; i++)
        close(up[i]);
    close(down[0]);
}

static int remove_keys(void **state)
{
    unlink(at("k"));
    unlink(at("good"));
    unlink(at("client"));
    return remove_folder(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_files),
        cmocka_unit_test(key_descriptor),
        cmocka_unit_test(outside_needs_a_key),
        cmocka_unit_test(encrypted_values),
        cmocka_unit_test(wrong_keys),
        cmocka_unit_test(many_wrong_keys),
        cmocka_unit_test(flood_of_another_user),
        cmocka_unit_test(silent_and_half_open),
        cmocka_unit_test(garbage),
        cmocka_unit_test(deaf_client),
        cmocka_unit_test(half_frames),
        cmocka_unit_test(not_a_store),
        cmocka_unit_test(stopped_server),
        cmocka_unit_test(another_user),
        cmocka_unit_test(another_users_server),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_keys);
}
