/* The store's calls, from one process or many threads. store_security.c tests security. */
#include <signal.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <choir/store.h>

#include "check.h"
#include "base/base.h"

static choir_store_server *serve(choir_store_opts opts)
{
    choir_store_server *server = NULL;
    ok(choir_store_serve(opts, &server));
    return server;
}

static choir_store *call(choir_store_server *server)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store *store = NULL;
    opts.timeout_s = 20;
    ok(choir_store_connect("127.0.0.1", choir_store_port(server), opts, &store));
    return store;
}

static void assert_value(choir_store *store, const char *key, const char *want)
{
    char *value = NULL;
    size_t bytes = 0;
    ok(choir_store_get(store, key, 0, &value, &bytes));
    assert_int_equal(bytes, strlen(want));
    assert_string_equal(value, want);
    free(value);
}

static void set(choir_store *store, const char *key, const char *value)
{
    ok(choir_store_set(store, key, value, strlen(value)));
}

/* --- each call --- */

static void operations(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    choir_store *a = call(server), *b = call(server);
    int64_t sum = 0;
    bool existed = false;
    char *value = NULL;

    set(a, "x", "one");
    assert_value(b, "x", "one");
    set(b, "x", "");
    assert_value(a, "x", "");
    ok(choir_store_set(a, "zeros", "a\0b\0", 4));
    size_t bytes = 0;
    ok(choir_store_get(b, "zeros", -1, &value, &bytes));
    assert_int_equal(bytes, 4);
    assert_memory_equal(value, "a\0b\0\0", 5);
    free(value);

    ok(choir_store_add(a, "n", 5, &sum));
    assert_int_equal(sum, 5);
    ok(choir_store_add(b, "n", -7, &sum));
    assert_int_equal(sum, -2);
    assert_value(a, "n", "-2");
    set(a, "n", "9223372036854775806");
    ok(choir_store_add(a, "n", 1, &sum));
    assert_fails(choir_store_add(a, "n", 1, &sum), CHOIR_ERR_ARGUMENT, "64 bits");
    set(a, "n", "seven");
    assert_fails(choir_store_add(a, "n", 1, &sum), CHOIR_ERR_ARGUMENT, "'seven'");

    ok(choir_store_compare_set(a, "c", "x", "y", &value));
    assert_null(value);
    ok(choir_store_compare_set(a, "c", NULL, "1", &value));
    assert_string_equal(value, "1");
    free(value);
    ok(choir_store_compare_set(b, "c", NULL, "2", &value));
    assert_string_equal(value, "1");
    free(value);
    ok(choir_store_compare_set(b, "c", "1", "2", &value));
    assert_string_equal(value, "2");
    free(value);
    ok(choir_store_compare_set(b, "c", "2", "3", NULL));
    assert_value(a, "c", "3");

    ok(choir_store_delete(a, "c", &existed));
    assert_true(existed);
    ok(choir_store_delete(b, "c", &existed));
    assert_false(existed);
    assert_fails(choir_store_get(a, "c", 0, &value, NULL), CHOIR_ERR_TIMEOUT, "'c'");

    choir_store_free(a);
    choir_store_free(b);
    choir_store_server_free(server);
    choir_store_free(NULL);
    choir_store_server_free(NULL);
}

static void wrong_arguments(void **state)
{
    choir_store_server *server = serve(choir_store_defaults()), *none = NULL;
    choir_store *store = call(server), *never = NULL;
    choir_store_opts opts = choir_store_defaults();
    char *big = calloc(1, CHOIR_STORE_VALUE_MAX + 1), *value = NULL;
    char key[257];
    memset(key, 'k', sizeof key);
    key[256] = '\0';

    assert_int_equal(choir_store_set(store, "", "", 0), CHOIR_ERR_ARGUMENT);
    assert_fails(choir_store_set(store, key, "", 0), CHOIR_ERR_ARGUMENT, "1 to 255");
    key[255] = '\0';
    set(store, key, "longest key");
    assert_value(store, key, "longest key");
    assert_fails(choir_store_set(store, "big", big, CHOIR_STORE_VALUE_MAX + 1),
        CHOIR_ERR_ARGUMENT, "1048577");
    ok(choir_store_set(store, "big", big, CHOIR_STORE_VALUE_MAX));
    size_t bytes = 0;
    ok(choir_store_get(store, "big", 0, &value, &bytes));
    assert_int_equal(bytes, CHOIR_STORE_VALUE_MAX);
    assert_memory_equal(value, big, bytes);
    free(value);
    memset(big, 'a', CHOIR_STORE_VALUE_MAX);
    ok(choir_store_set(store, "big", big, CHOIR_STORE_VALUE_MAX));
    char *other = strdup(big);
    other[5] = 'b';
    ok(choir_store_compare_set(store, "big", big, other, &value));
    assert_string_equal(value, other);
    free(value);
    free(other);
    free(big);

    assert_int_equal(choir_store_connect("", 1, opts, &never), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_store_connect("127.0.0.1", 0, opts, &never), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_store_connect("127.0.0.1", 65536, opts, &never), CHOIR_ERR_ARGUMENT);
    opts.port = 70000;
    assert_int_equal(choir_store_serve(opts, &none), CHOIR_ERR_ARGUMENT);
    opts = choir_store_defaults();
    opts.clients_max = 0;
    assert_int_equal(choir_store_serve(opts, &none), CHOIR_ERR_ARGUMENT);
    opts = choir_store_defaults();
    opts.bind = "no.such.host.invalid";
    assert_fails(choir_store_serve(opts, &none), CHOIR_ERR_ARGUMENT, "no.such.host.invalid");
    choir_store_free(store);
    choir_store_server_free(server);
}

/* --- waiting --- */

typedef struct late {
    choir_store *store;
    const char *key, *value;
    double after_s;
} late;

static void *set_later(void *arg)
{
    late *l = arg;
    usleep((useconds_t)(l->after_s * 1e6));
    choir_store_set(l->store, l->key, l->value, strlen(l->value));
    return NULL;
}

static void waits(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    choir_store *a = call(server), *b = call(server);
    pthread_t thread;
    char *value = NULL;
    late l = {b, "soon", "now", 0.1};

    pthread_create(&thread, NULL, set_later, &l);
    ok(choir_store_get(a, "soon", 10, &value, NULL));
    assert_string_equal(value, "now");
    free(value);
    pthread_join(thread, NULL);

    double start = choir__now();
    assert_int_equal(choir_store_get(a, "never", 0.2, &value, NULL), CHOIR_ERR_TIMEOUT);
    assert_true(choir__now() - start >= 0.19 && choir__now() - start < HANGS_S);
    assert_says("'never' was not set within 0.2 s");
    set(a, "after", "a time-out all goes on");
    assert_value(a, "after", "a time-out all goes on");

    l = (late){b, "third", "3", 0.1};
    set(b, "first", "1");
    set(b, "second", "2");
    pthread_create(&thread, NULL, set_later, &l);
    const char *keys[] = {"first", "third", "second"};
    ok(choir_store_wait(a, keys, 3, 10));
    pthread_join(thread, NULL);
    const char *missing[] = {"first", "fourth"};
    assert_int_equal(choir_store_wait(a, missing, 2, 0.1), CHOIR_ERR_TIMEOUT);
    assert_int_equal(choir_store_wait(a, missing, 2, 0), CHOIR_ERR_TIMEOUT);
    ok(choir_store_wait(a, missing, 1, 0));
    ok(choir_store_wait(a, missing, 0, 0));
    choir_store_free(a);
    choir_store_free(b);
    choir_store_server_free(server);
}

/* More keys than one request takes. */
static void waits_for_many(void **state)
{
    enum { KEYS = 5000 };
    choir_store_server *server = serve(choir_store_defaults());
    choir_store *a = call(server), *b = call(server);
    const char *keys[KEYS];
    for (int i = 0; i < KEYS; i++) {
        keys[i] = choir__format("rank/%d", i);
        if (i != 4500)
            set(b, keys[i], "here");
    }
    assert_int_equal(choir_store_wait(a, keys, KEYS, 0.1), CHOIR_ERR_TIMEOUT);
    late l = {b, keys[4500], "here", 0.05};
    pthread_t thread;
    pthread_create(&thread, NULL, set_later, &l);
    ok(choir_store_wait(a, keys, KEYS, 10));
    pthread_join(thread, NULL);
    for (int i = 0; i < KEYS; i++)
        free((char *)keys[i]);
    choir_store_free(a);
    choir_store_free(b);
    choir_store_server_free(server);
}

/* --- caps --- */

static void caps(void **state)
{
    choir_store_opts opts = choir_store_defaults();
    opts.keys_max = 3;
    opts.bytes_max = 4000;
    opts.clients_max = 2;
    choir_store_server *server = serve(opts);
    choir_store *a = call(server), *b = call(server), *c = NULL;
    char text[2001] = "";
    memset(text, 't', 2000);

    set(a, "1", "a");
    set(a, "2", "b");
    set(a, "3", "c");
    assert_fails(choir_store_set(b, "4", "d", 1), CHOIR_ERR_MEMORY, "as many keys");
    assert_int_equal(choir_store_add(b, "4", 1, NULL), CHOIR_ERR_MEMORY);
    set(a, "3", "what is there may change");
    choir_store_delete(b, "2", NULL);
    set(b, "4", "d");

    set(a, "1", text);
    assert_fails(choir_store_set(a, "3", text, 2000), CHOIR_ERR_MEMORY, "as many bytes");
    assert_value(b, "3", "what is there may change");
    set(a, "1", "");
    for (int i = 0; i < 100; i++) /* replaced values free their memory */
        set(a, "3", text);
    assert_int_equal(choir_store_will(a, "1", text, 2000), CHOIR_ERR_MEMORY);

    opts.timeout_s = 5;
    assert_fails(choir_store_connect("127.0.0.1", choir_store_port(server), opts, &c),
        CHOIR_ERR_STATE, "as many clients");
    choir_store_free(b);
    c = call(server); /* there is room again */
    assert_value(c, "4", "d");
    set(c, "3", "");
    for (int i = 0; i < 7; i++) { /* about 350 bytes each */
        char key[16];
        snprintf(key, sizeof key, "will%d", i);
        ok(choir_store_will(c, key, "w", 1));
    }
    choir_store_free(a);
    choir_store_free(c);
    choir_store_server_free(server);

    opts = choir_store_defaults();
    server = serve(opts);
    a = call(server);
    for (int i = 0; i < 17; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        assert_int_equal(
            choir_store_will(a, key, "w", 1), i < 16 ? CHOIR_OK : CHOIR_ERR_MEMORY);
    }
    assert_says("last wills");
    choir_store_free(a);
    choir_store_server_free(server);
}

/* --- threads --- */

enum { THREADS = 6, ROUNDS = 300 };

typedef struct racer {
    choir_store *store;
    int wins, errors;
} racer;

/* Each thread adds 1 to one counter by compare-and-set, and 1 to another by add. */
static void *race(void *arg)
{
    racer *r = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char *old = NULL, *now = NULL, next[24];
        int64_t sum;
        do {
            free(old);
            r->errors += choir_store_get(r->store, "cas", 5, &old, NULL) != CHOIR_OK;
            snprintf(next, sizeof next, "%d/%p", atoi(old) + 1, (void *)r);
            free(now);
            r->errors += choir_store_compare_set(r->store, "cas", old, next, &now) != CHOIR_OK;
        } while (strcmp(now, next) != 0);
        free(old);
        free(now);
        r->errors += choir_store_add(r->store, "sum", 1, &sum) != CHOIR_OK;
    }
    return NULL;
}

static void races(void **state)
{
    for (int shared = 0; shared < 2; shared++) {
        choir_store_server *server = serve(choir_store_defaults());
        choir_store *store = call(server);
        pthread_t threads[THREADS];
        racer racers[THREADS];
        char *value = NULL, want[16];
        set(store, "cas", "0/");
        for (int i = 0; i < THREADS; i++) {
            racers[i] = (racer){.store = shared ? store : call(server)};
            pthread_create(&threads[i], NULL, race, &racers[i]);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(racers[i].errors, 0);
            if (!shared)
                choir_store_free(racers[i].store);
        }
        snprintf(want, sizeof want, "%d", THREADS * ROUNDS);
        assert_value(store, "sum", want);
        ok(choir_store_get(store, "cas", 0, &value, NULL));
        assert_int_equal(atoi(value), THREADS * ROUNDS);
        free(value);
        choir_store_free(store);
        choir_store_server_free(server);
    }
}

/* A barrier of 64 clients in one process: each sets its key and waits for all. */
static void *meet(void *arg)
{
    racer *r = arg;
    const char *keys[64];
    char mine[16];
    for (int i = 0; i < 64; i++)
        keys[i] = choir__format("r%d", i);
    snprintf(mine, sizeof mine, "r%d", r->wins);
    r->errors += choir_store_set(r->store, mine, "", 0) != CHOIR_OK;
    r->errors += choir_store_wait(r->store, keys, 64, 20) != CHOIR_OK;
    for (int i = 0; i < 64; i++)
        free((char *)keys[i]);
    return NULL;
}

static void sixty_four(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    pthread_t threads[64];
    racer racers[64];
    for (int i = 0; i < 64; i++) {
        racers[i] = (racer){.store = call(server), .wins = i};
        pthread_create(&threads[i], NULL, meet, &racers[i]);
    }
    for (int i = 0; i < 64; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].errors, 0);
        choir_store_free(racers[i].store);
    }
    choir_store_server_free(server);
}

/* --- ends --- */

static int in_child(choir_store_server *server, void (*fn)(choir_store *))
{
    pid_t pid = fork();
    if (pid == 0) {
        choir_store_opts opts = choir_store_defaults();
        choir_store *store = NULL;
        opts.timeout_s = 20;
        if (choir_store_connect("127.0.0.1", choir_store_port(server), opts, &store))
            _exit(1);
        fn(store);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

static void die_with_will(choir_store *store)
{
    choir_store_will(store, "will", "first", 5);
    choir_store_will(store, "other will", "gone", 4);
    choir_store_will(store, "will", "gone", 4);
    kill(getpid(), SIGKILL);
}

static void leave_with_will(choir_store *store)
{
    choir_store_will(store, "no will", "gone", 4);
    choir_store_free(store);
}

static void wills(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    choir_store *store = call(server);
    const char *keys[] = {"will", "other will"};
    char *value = NULL;
    assert_int_equal(in_child(server, leave_with_will), 0);
    assert_true(WIFSIGNALED(in_child(server, die_with_will)));
    ok(choir_store_wait(store, keys, 2, 10));
    assert_value(store, "will", "gone");
    assert_int_equal(choir_store_get(store, "no will", 0.1, &value, NULL), CHOIR_ERR_TIMEOUT);
    choir_store_free(store);
    choir_store_server_free(server);
}

static void *free_later(void *server)
{
    usleep(100 * 1000);
    choir_store_server_free(server);
    return NULL;
}

static void server_goes(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    choir_store *store = call(server);
    choir_store_opts opts = choir_store_defaults();
    pthread_t thread;
    char *value = NULL;
    int port = choir_store_port(server);
    pthread_create(&thread, NULL, free_later, server);
    assert_fails(
        choir_store_get(store, "never", 10, &value, NULL), CHOIR_ERR_PEER_LOST, "has gone");
    assert_int_equal(choir_store_set(store, "x", "", 0), CHOIR_ERR_PEER_LOST);
    pthread_join(thread, NULL);
    choir_store_free(store);
    opts.timeout_s = 0.2;
    assert_fails(choir_store_connect("127.0.0.1", port, opts, &store), CHOIR_ERR_TIMEOUT,
        "no store answered at 127.0.0.1:");
    assert_says("refused (within 0.2 s)");
    opts.port = port; /* free at once */
    server = serve(opts);
    choir_store_server_free(server);
}

/* A client may come before its server. */
static void *serve_later(void *arg)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *server = NULL;
    usleep(200 * 1000);
    opts.port = *(int *)arg;
    return choir_store_serve(opts, &server) ? NULL : server;
}

static void comes_early(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    int port = choir_store_port(server);
    pthread_t thread;
    void *later = NULL;
    choir_store *store = NULL;
    choir_store_opts opts = choir_store_defaults();
    choir_store_server_free(server);
    pthread_create(&thread, NULL, serve_later, &port);
    opts.timeout_s = 20;
    ok(choir_store_connect("127.0.0.1", port, opts, &store));
    pthread_join(thread, &later);
    choir_store_free(store);
    choir_store_server_free(later);
}

static void port_in_use(void **state)
{
    choir_store_server *server = serve(choir_store_defaults()), *second = NULL;
    choir_store_opts opts = choir_store_defaults();
    char pid[32];
    opts.port = choir_store_port(server);
    assert_int_equal(choir_store_serve(opts, &second), CHOIR_ERR_IO);
    snprintf(pid, sizeof pid, "in use by pid %d (", (int)getpid());
    assert_says(pid);
    choir_store_server_free(server);
}

static void unix_socket(void **state)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *second = NULL;
    choir_store *store = NULL;
    char name[64];
    snprintf(name, sizeof name, "unix:choir-test-%d", (int)getpid());
    opts.bind = name;
    choir_store_server *server = serve(opts);
    assert_int_equal(choir_store_port(server), 0);
    assert_fails(choir_store_serve(opts, &second), CHOIR_ERR_IO, "in use");
    ok(choir_store_connect(name, 0, opts, &store));
    set(store, "a", "b");
    assert_value(store, "a", "b");
    choir_store_free(store);
    choir_store_server_free(server);
    opts.timeout_s = 0.1;
    assert_int_equal(choir_store_connect(name, 0, opts, &store), CHOIR_ERR_TIMEOUT);
    assert_int_equal(choir_store_connect("unix:", 0, opts, &store), CHOIR_ERR_ARGUMENT);
}

static void ipv6(void **state)
{
    choir_store_opts opts = choir_store_defaults();
    choir_store_server *server = NULL;
    choir_store *store = NULL;
    opts.bind = "::1";
    if (choir_store_serve(opts, &server))
        skip();
    ok(choir_store_connect("::1", choir_store_port(server), opts, &store));
    set(store, "a", "b");
    choir_store_free(store);
    choir_store_server_free(server);
}

/* A forked child has neither the port nor the connection, and may free both objects. */
static void forks(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    choir_store *store = call(server);
    int port = choir_store_port(server), ready[2], status = 0;
    char word = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool fine = choir_store_set(store, "a", "b", 1) == CHOIR_ERR_STATE;
        choir_store_free(store);
        choir_store_server_free(server);
        fine = write(ready[1], "r", 1) == 1 && fine;
        sleep(1);
        _exit(!fine);
    }
    assert_int_equal(read(ready[0], &word, 1), 1);
    set(store, "mine", "still");
    choir_store_free(store);
    choir_store_server_free(server);
    choir_store_opts opts = choir_store_defaults();
    opts.port = port;
    server = serve(opts); /* while the child lives */
    choir_store_server_free(server);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
}

/* Forks while threads talk to the server must neither hang nor disturb. */
static void forks_under_way(void **state)
{
    choir_store_server *server = serve(choir_store_defaults());
    racer racers[2] = {{.store = call(server)}, {.store = call(server)}};
    pthread_t threads[2];
    set(racers[0].store, "cas", "0");
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, race, &racers[i]);
    for (int i = 0; i < 20; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(racers[i].errors, 0);
        choir_store_free(racers[i].store);
    }
    choir_store_server_free(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(waits),
        cmocka_unit_test(waits_for_many),
        cmocka_unit_test(caps),
        cmocka_unit_test(races),
        cmocka_unit_test(sixty_four),
        cmocka_unit_test(wills),
        cmocka_unit_test(server_goes),
        cmocka_unit_test(comes_early),
        cmocka_unit_test(port_in_use),
        cmocka_unit_test(unix_socket),
        cmocka_unit_test(ipv6),
        cmocka_unit_test(forks),
        cmocka_unit_test(forks_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
