/* The connections among agents (launch/raft/connections.h): calls that are not accepted do not
 * keep the thread awake, and two agents that call each other have one connection in the end. */
#include "check.h"
#include "launch/raft/connections.c"

#include <netinet/in.h>
#include <sys/resource.h>

/* The messages and losses that reached an agent. */
typedef struct heard {
    int messages, gone;
} heard;

static void came(void *arg, uint64_t from, const uint8_t *message, size_t bytes)
{
    ((heard *)arg)->messages++;
}

static void gone(void *arg, uint64_t id)
{
    ((heard *)arg)->gone++;
}

static choir__connections *agent(uint64_t id, heard *h)
{
    choir__connections *l;
    char address[CHOIR__CONNECTION_ADDRESS];
    choir__connections_user user = {came, gone, h};
    ok(choir__connections_open("127.0.0.1", 0, NULL, id, user, &l));
    snprintf(address, sizeof address, "127.0.0.1:%d", choir__connections_port(l));
    choir__connections_name(l, address);
    return l;
}

static int connect_to(const choir__connections *l)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)choir__connections_port(l)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* Returns how often poll returns in a fifth of a second in which nothing happens. */
static int wake_ups(choir__connections *l)
{
    int count = 0;
    for (double until = choir__now() + 0.2; choir__now() < until; count++)
        choir__connections_poll(l, 0.1, -1);
    return count;
}

/* Callers that never say hello take all places for strangers, and one more waits. */
static void many_strangers(void **state)
{
    heard h = {0};
    int fds[STRANGERS_MAX + 1];
    choir__connections *l = agent(1, &h);
    for (int i = 0; i <= STRANGERS_MAX; i++) {
        fds[i] = connect_to(l);
        choir__connections_poll(l, 0.1, -1);
    }
    assert_int_equal(count_strangers(l), STRANGERS_MAX);
    assert_in_range(wake_ups(l), 1, 20);
    for (int i = 0; i <= STRANGERS_MAX; i++)
        close(fds[i]);
    choir__connections_poll(
        l, 0, -1); /* they are gone, so that the last one comes in, and goes */
    choir__connections_poll(l, 0, -1);
    choir__connections_poll(l, 0, -1);
    assert_int_equal(count_strangers(l), 0);
    choir__connections_close(l);
}

/* There are no descriptors left. */
static void no_descriptors(void **state)
{
    heard h = {0};
    choir__connections *l = agent(1, &h);
    int fd = connect_to(l);
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)fd + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int count = wake_ups(l);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_in_range(count, 1, 20);
    assert_int_equal(count_strangers(l), 0);
    for (double until = choir__now() + HANGS_S; !count_strangers(l) && choir__now() < until;)
        choir__connections_poll(l, 0.1, -1);
    assert_int_equal(count_strangers(l), 1); /* it is heard later */
    close(fd);
    choir__connections_close(l);
}

static int count_open(const choir__connections *l)
{
    int count = 0;
    for (const connection *n = l->connections; n; n = n->next)
        count += is_open(n);
    return count;
}

/* Two agents call each other before either has heard of the other. */
static void both_call(void **state)
{
    heard h[2] = {{0}, {0}};
    choir__connections *a = agent(1, &h[0]), *b = agent(2, &h[1]);
    char at_a[CHOIR__CONNECTION_ADDRESS], at_b[CHOIR__CONNECTION_ADDRESS];
    snprintf(at_a, sizeof at_a, "%s", a->address);
    snprintf(at_b, sizeof at_b, "%s", b->address);
    choir__connections_keep(a, 2, at_b);
    choir__connections_keep(b, 1, at_a);
    for (int i = 0; i < 100; i++) {
        choir__connections_poll(a, 1e-3, -1);
        choir__connections_poll(b, 1e-3, -1);
    }
    assert_int_equal(count_open(a), 1);
    assert_int_equal(count_open(b), 1);
    assert_true(choir__connections_send(a, 2, NULL, "a message of a", 14));
    assert_true(choir__connections_send(b, 1, NULL, "a message of b", 14));
    for (int i = 0; i < 100 && (!h[0].messages || !h[1].messages); i++) {
        choir__connections_poll(a, 1e-3, -1);
        choir__connections_poll(b, 1e-3, -1);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(h[i].messages, 1);
        assert_int_equal(h[i].gone, 0);
    }
    choir__connections_close(a);
    for (int i = 0; i < 100 && !h[1].gone; i++)
        choir__connections_poll(b, 1e-3, -1);
    assert_int_equal(h[1].gone, 1);
    choir__connections_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_strangers),
        cmocka_unit_test(no_descriptors), cmocka_unit_test(both_call)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
