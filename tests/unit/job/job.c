/* A rank's place in the job: addresses as people write them, and the environment. */
#include "check.h"
#include "launch/process/job.h"

#include <stdlib.h>

static void test_addresses(void **state)
{
    static const struct good {
        const char *text, *host;
        int port;
    } good[] = {{"node7:29400", "node7", 29400}, {"node7", "node7", 7},
        {"1.2.3.4:1", "1.2.3.4", 1}, {"[::1]:65535", "::1", 65535},
        {"[fe80::1]", "fe80::1", 7}};
    static const char *const bad[] = {"", ":1", "a:", "a:0", "a:65536", "a:x", "a:1 ", "::1",
        "[::1", "[]:1", "[::1]x", "[::1]:"};
    char host[CHOIR__HOST_TEXT];
    for (size_t i = 0; i < CHOIR_COUNT(good); i++) {
        int port = 7;
        ok(choir__host_port(good[i].text, host, &port));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < CHOIR_COUNT(bad); i++) {
        int port = 7;
        assert_int_equal(choir__host_port(bad[i], host, &port), CHOIR_ERR_ARGUMENT);
    }
    char *giant = choir__calloc(1, 1000);
    int port = 7;
    memset(giant, 'a', 999);
    assert_int_equal(choir__host_port(giant, host, &port), CHOIR_ERR_ARGUMENT);
    free(giant);
}

static void test_methods(void **state)
{
    choir__job_place place = {.master = "before"};
    choir__job_place_master(&place, "tcp://[::1]:99");
    assert_string_equal(place.master, "::1");
    assert_int_equal(place.master_port, 99);
    choir__job_place_master(&place, "tcp://host"); /* without a port there is no MASTER_PORT */
    assert_string_equal(place.master, "");
    choir__job_place_master(&place, "file:///tmp/x");
    assert_string_equal(place.master, "");
    choir__job_place_master(&place, NULL);
    assert_string_equal(place.master, "");
}

static void test_environment(void **state)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE"};
    static const int wanted[] = {5, 8, 1, 4, 1, 2, 5, 8};
    choir__job_place place = {5, 8, 1, 4, 1, 2, "", 0};
    unsetenv("MASTER_ADDR");
    choir__job_place_export(&place);
    for (size_t i = 0; i < CHOIR_COUNT(names); i++)
        assert_int_equal(atoi(getenv(names[i])), wanted[i]);
    assert_null(getenv("MASTER_ADDR"));
    strcpy(place.master, "node0");
    place.master_port = 29500;
    choir__job_place_export(&place);
    assert_string_equal(getenv("MASTER_ADDR"), "node0");
    assert_string_equal(getenv("MASTER_PORT"), "29500");
}

static void test_secrets(void **state)
{
    char a[CHOIR__JOB_TEXT], b[CHOIR__JOB_TEXT];
    int port = 0;
    ok(choir__job_random(a));
    ok(choir__job_random(b));
    assert_int_equal(strspn(a, "0123456789abcdef"), CHOIR__JOB_TEXT - 1);
    assert_string_not_equal(a, b);
    ok(choir__job_free_port(&port));
    assert_in_range(port, 1, 65535);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_secrets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
