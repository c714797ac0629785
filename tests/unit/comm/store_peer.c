/* Tells whose process is at the other end of a connection: choir__net_peer, which asks the
 * kernel, and the kernel's list of connections. */
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "launch/store/net.h"

static int listener, port;
static choir__address here;

static void listen_at(const char *host)
{
    choir__address list[CHOIR__ADDRESSES_MAX], self;
    char why[200];
    bool again;
    if (!choir__net_resolve(host, 0, true, list, why, &again) ||
        (listener = choir__net_listen(&list[0])) < 0)
        skip();
    assert_true(choir__net_self(listener, &self));
    port = choir__net_port(&self);
    assert_int_equal(choir__net_resolve(host, port, false, list, why, &again), 1);
    here = list[0];
}

static int accept_one(void)
{
    choir__address from;
    assert_true(choir__net_await(listener, POLLIN, choir__now() + 20));
    int fd = choir__net_accept(listener, &from);
    assert_true(fd >= 0);
    return fd;
}

static choir__whose by_list(int fd)
{
    choir__address self, peer = {.length = sizeof peer.at};
    assert_true(choir__net_self(fd, &self));
    if (getpeername(fd, (struct sockaddr *)&peer.at, &peer.length))
        return CHOIR__NOBODYS;
    return choir__net_peer_by_list(&self, &peer);
}

static void assert_is(int fd, choir__whose want)
{
    assert_int_equal(choir__net_peer(fd), want);
    assert_int_equal(by_list(fd), want);
}

static void ours(const char *host)
{
    listen_at(host);
    int client = choir__net_connect(&here, choir__now() + 20);
    assert_true(client >= 0);
    assert_is(client, CHOIR__NOBODYS); /* not accepted yet */
    int server = accept_one();
    assert_is(client, CHOIR__OURS);
    assert_is(server, CHOIR__OURS);
    close(client);
    assert_is(server, CHOIR__NOBODYS);
    close(server);
    close(listener);
}

static void of_ours(void **state)
{
    ours("127.0.0.1");
}

static void of_ours_ipv6(void **state)
{
    ours("::1");
}

/* Another user's, and still another's when it has closed it: root's number is what a closed
 * socket shows. */
static void of_another_user(void **state)
{
    if (geteuid() != 0) {
        print_message("skipped: only root can be another user\n");
        skip();
    }
    int ends[2];
    char word;
    assert_int_equal(pipe(ends), 0);
    listen_at("127.0.0.1");
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[1]);
        if (setgid(65534) || setuid(65534))
            _exit(1);
        int fd = choir__net_connect(&here, choir__now() + 20);
        _exit(read(ends[0], &word, 1) || fd < 0);
    }
    int fd = accept_one();
    assert_is(fd, CHOIR__NOT_OURS);
    close(ends[1]);
    close(ends[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_is(fd, CHOIR__NOBODYS);
    close(fd);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_ours),
        cmocka_unit_test(of_ours_ipv6),
        cmocka_unit_test(of_another_user),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
