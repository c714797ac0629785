/* The agent's watcher (launch/agent/watcher.h) over a ledger in this process: a ledger keeps
 * its newest entries alone, and an agent that has missed some goes on from the newest. */
#include "check.h"
#include "launch/agent/watcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEPT = 4, HEAD = 100 };

static atomic_int reads;

static void nap(double seconds)
{
    struct timespec t = {.tv_nsec = (long)(1e9 * seconds)};
    nanosleep(&t, NULL);
}

/* Entry n has n restarts. */
static char *entry(int64_t n)
{
    choir__agent_state m = {.round = 1, .run_id = "x", .restarts = (int)n};
    return choir__agent_state_text(&m);
}

static choir_status read_entry(choir__ledger *l, int64_t n, double wait_s, char **text)
{
    atomic_fetch_add(&reads, 1);
    if (n > HEAD - KEPT && n <= HEAD) {
        *text = entry(n);
        return CHOIR_OK;
    }
    if (n > HEAD)
        nap(wait_s);
    return choir__error(CHOIR_ERR_TIMEOUT, "there is no entry %lld", (long long)n);
}

static choir_status newest(choir__ledger *l, int64_t *n)
{
    *n = HEAD;
    return CHOIR_OK;
}

static choir_status beat(choir__ledger *l)
{
    return CHOIR_OK;
}

static double quiet_s(choir__ledger *l, const char *id)
{
    return 0;
}

static int64_t place(choir__follower *f)
{
    pthread_mutex_lock(&f->lock);
    int64_t at = f->at;
    pthread_mutex_unlock(&f->lock);
    return at;
}

/* Entries of a job whose second generation has ended when this agent comes back. */
static choir_status read_change(choir__ledger *l, int64_t n, double wait_s, char **text)
{
    choir__agent_state m = {.round = 1,
        .run_id = "x",
        .phase = n == 1 ? CHOIR__GATHERING : CHOIR__RUNNING,
        .generation = n == 1 ? 2 : (int)n + 1};
    *text = choir__agent_state_text(&m);
    return CHOIR_OK;
}

/* The times of a change begin when this agent has seen it, not when the machine has started;
 * also where it has missed the gathering as a whole. */
static void times_of_changes(void **state)
{
    static const choir__ledger_ops ops = {.read = read_change};
    choir__ledger ledger = {.ops = &ops};
    choir__follower f;
    ok(choir__follower_open(&f));
    for (int n = 1; n <= 3; n++)
        ok(choir__follower_next(&f, &ledger, 0));
    int events = 0;
    for (const char *at = f.events; (at = strstr(at, "\"resumed_s\":")); events++) {
        at += strlen("\"resumed_s\":");
        assert_in_range((int64_t)strtod(at, NULL), 0, 60);
        assert_true(strtod(at, NULL) >= 0);
    }
    assert_int_equal(events, 2);
    choir__follower_close(&f);
}

/* This agent has read the first entry; meanwhile a hundred were written. */
static void missed_entries(void **state)
{
    static const choir__ledger_ops ops = {
        .read = read_entry, .newest = newest, .beat = beat, .quiet_s = quiet_s};
    choir__ledger ledger = {.ops = &ops};
    choir__follower f;
    ok(choir__follower_open(&f));
    f.at = 1;
    f.now = (choir__agent_state){.phase = CHOIR__RUNNING};
    choir__watcher w = {
        .follower = &f, .ledger = &ledger, .id = "me", .patience = {.timeout_s = 60}};
    ok(choir__watcher_start(&w));
    for (double until = choir__now() + HANGS_S; place(&f) < HEAD && choir__now() < until;)
        nap(0.01);
    assert_int_equal(place(&f), HEAD);
    assert_int_equal(f.now.restarts, HEAD);
    int before = atomic_load(&reads);
    nap(0.2); /* it waits for the next entry */
    assert_in_range(atomic_load(&reads) - before, 0, 3);
    choir__watcher_stop(&w);
    assert_false(atomic_load(&w.ended));
    choir__follower_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missed_entries), cmocka_unit_test(times_of_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
