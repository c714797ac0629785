/* The door of a server: there is room for one more, unless all are known; the oldest stranger
 * goes first; and no stranger stays for longer than the limit. */

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "record/http/http.h"

enum { PLACES = 8, STAYING = 6 };

typedef struct visit {
    int server, client;
    choir__guest *guest;
} visit;

static visit come(choir__door *door)
{
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    return (visit){ends[0], ends[1], choir__door_enter(door, ends[0])};
}

static void go(choir__door *door, const visit *v)
{
    choir__door_leave(door, v->guest);
    close(v->server);
    close(v->client);
}

/* Returns whether the connection ends within `ms`. */
static bool is_ended(const visit *v, int ms)
{
    char byte;
    struct pollfd end = {.fd = v->client, .events = POLLIN};
    return poll(&end, 1, ms) == 1 && read(v->client, &byte, 1) == 0;
}

static void oldest_goes(void **state)
{
    choir__door *door = choir__door_open(PLACES, 100);
    visit v[STAYING], more[2];
    for (int i = 0; i < STAYING; i++) {
        assert_true(choir__door_make_room(door));
        v[i] = come(door);
    }
    for (int i = 0; i < STAYING; i++)
        assert_false(is_ended(&v[i], 0));
    choir__door_answered(door, v[0].guest, true);  /* it has the key */
    choir__door_answered(door, v[1].guest, false); /* its time begins again */
    for (int i = 0; i < 2; i++) {
        assert_true(choir__door_make_room(door));
        more[i] = come(door);
        assert_non_null(more[i].guest);
        for (int k = 0; k < STAYING; k++)
            assert_int_equal(is_ended(&v[k], 0), k >= 2 && k < 3 + i);
    }
    /* Two are closed and have not left yet: no place is free. */
    assert_true(choir__door_make_room(door));
    visit none = come(door);
    assert_null(none.guest);
    go(door, &none);
    for (int i = 0; i < STAYING; i++)
        go(door, &v[i]);
    for (int i = 0; i < 2; i++)
        go(door, &more[i]);
    choir__door_close(door);
}

static void known_guests_stay(void **state)
{
    choir__door *door = choir__door_open(PLACES, 100);
    visit v[STAYING];
    for (int i = 0; i < STAYING; i++) {
        v[i] = come(door);
        choir__door_answered(door, v[i].guest, true);
    }
    assert_false(choir__door_make_room(door));
    for (int i = 0; i < STAYING; i++) {
        assert_false(is_ended(&v[i], 0));
        go(door, &v[i]);
    }
    assert_true(choir__door_make_room(door));
    choir__door_close(door);
}

static void time_is_limited(void **state)
{
    choir__door *door = choir__door_open(PLACES, 0.1);
    visit known = come(door);
    choir__door_answered(door, known.guest, true);
    visit slow = come(door);
    assert_true(is_ended(&slow, 10000));
    assert_false(is_ended(&known, 0));
    go(door, &slow);
    go(door, &known);
    choir__door_close(door);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oldest_goes),
        cmocka_unit_test(known_guests_stay),
        cmocka_unit_test(time_is_limited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
