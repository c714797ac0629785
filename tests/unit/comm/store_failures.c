/* Failed greetings are counted by IPv4 address, and by IPv6 network: a host has as many
 * addresses of its /64 as it likes. */
#include "check.h"
#include "launch/store/server.h"

#include <arpa/inet.h>
#include <stdio.h>

static uint64_t from(const char *text)
{
    choir__address a = {.length = sizeof a.at};
    struct sockaddr_in *four = (struct sockaddr_in *)&a.at;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a.at;
    bool is_six = strchr(text, ':') != NULL;
    a.at.ss_family = is_six ? AF_INET6 : AF_INET;
    assert_int_equal(inet_pton(a.at.ss_family, text,
                         is_six ? (void *)&six->sin6_addr : (void *)&four->sin_addr),
        1);
    return choir__failures_from(&a);
}

static void networks(void **state)
{
    assert_true(from("2001:db8:1:2::1") == from("2001:db8:1:2:ffff:1:2:3"));
    assert_true(from("2001:db8:1:2::1") != from("2001:db8:1:3::1"));
    assert_true(from("10.0.0.1") != from("10.0.0.2"));
    assert_true(from("::ffff:10.0.0.1") == from("10.0.0.1"));
}

/* Eight hosts of one network, a failure each, are too many; another network is still heard. */
static void many(void **state)
{
    static choir__failures f;
    char text[64];
    for (int i = 0; i < CHOIR__FAILURES_MAX; i++) {
        assert_false(choir__failures_many(&f, from("2001:db8:1:2::1"), 100));
        snprintf(text, sizeof text, "2001:db8:1:2:%x::%x", i * 77, i);
        choir__failures_note(&f, from(text), true, 100);
    }
    assert_true(choir__failures_many(&f, from("2001:db8:1:2::1"), 100));
    assert_false(choir__failures_many(&f, from("2001:db8:1:2::1"), 100 + choir__failures_s));
    assert_false(choir__failures_many(&f, from("2001:db8:1:3::1"), 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(networks), cmocka_unit_test(many)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
