/* Queues: order, events, back-pressure, sticky failures, quiesce and fork; and many threads at
 * once, for ThreadSanitizer. tensor/step.c tests recordings. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "device/queue.h"

static choir__queue *new_queue(const char *name, bool worker_only)
{
    return choir__queue_new((choir__queue_opts){.name = name, .worker_only = worker_only});
}

/* A log of numbers that tasks write; queues in order make it a sequence. */
struct log {
    _Atomic int count;
    int entry[4096];
};

struct note {
    struct log *log;
    int number;
    int sleep_us;
};

static void take_note(const void *args)
{
    const struct note *n = args;
    if (n->sleep_us)
        usleep((useconds_t)n->sleep_us);
    n->log->entry[atomic_fetch_add(&n->log->count, 1)] = n->number;
}

static void note(choir__queue *q, struct log *log, int number, int sleep_us)
{
    struct note n = {log, number, sleep_us};
    choir__queue_issue(q, take_note, &n, sizeof n);
}

static void nothing(const void *args)
{
}

static void fail_task(const void *args)
{
    choir__queue_fail(CHOIR_ERR_RANGE, "entry %d is bad", *(const int *)args);
}

static void assert_sequence(const struct log *log, int count)
{
    assert_int_equal(log->count, count);
    for (int i = 0; i < count; i++)
        assert_int_equal(log->entry[i], i);
}

/* --- order and events --- */

static void test_order(void **state)
{
    static struct log log;
    for (int worker_only = 0; worker_only < 2; worker_only++) {
        choir__queue *q = new_queue("order", worker_only);
        log.count = 0;
        for (int i = 0; i < 4000; i++) {
            note(q, &log, i, 0);
            choir__queue_issue(q, nothing, NULL, 0);
        }
        ok(choir__queue_wait(q));
        assert_sequence(&log, 4000);
        choir__queue_stats stats = choir__queue_get_stats(q);
        assert_int_equal(stats.issued, 8000);
        assert_int_equal(stats.finished, 8000);
        choir__queue_free(q);
    }
}

/* After a wait, the queue's busy time includes all tasks before the wait. */
static void test_busy_when_waited_for(void **state)
{
    static struct log log;
    for (int worker_only = 0; worker_only < 2; worker_only++) {
        choir__queue *q = new_queue("busy", worker_only);
        log.count = 0;
        for (int i = 1; i <= 1000; i++) {
            note(q, &log, i, 20);
            ok(choir__queue_wait(q));
            assert_true(choir__queue_get_stats(q).busy_s >= i * 19e-6);
        }
        choir__queue_free(q);
    }
}

static void test_events_order_queues(void **state)
{
    static struct log log;
    choir__queue *q[3] = {new_queue("a", false), new_queue("b", false), new_queue("c", true)};
    log.count = 0;
    for (int i = 0; i < 300; i++) { /* each task waits for the one before, in another queue */
        note(q[i % 3], &log, i, i % 50 == 0 ? 2000 : 0);
        choir__event event = choir__queue_record(q[i % 3]);
        ok(choir__queue_wait_event(q[(i + 1) % 3], event));
    }
    for (int i = 0; i < 3; i++)
        ok(choir__queue_wait(q[i]));
    assert_sequence(&log, 300);
    for (int i = 0; i < 3; i++)
        choir__queue_free(q[i]);
}

/* Overwrites memory that was freed just before. */
static void use_freed_memory(void)
{
    for (size_t n = 64; n <= 4096; n += 16) {
        void *volatile p = malloc(n);
        memset(p, 0x5a, n);
        free(p);
    }
}

/* A queue is freed while another queue's wait for its last task has not run yet. */
static void test_awaited_queue_goes_first(void **state)
{
    static struct log log;
    choir__queue *first = new_queue("first", false), *second = new_queue("second", false);
    log.count = 0;
    for (int i = 0; i < 2; i++) { /* the other time the wait is skipped */
        note(second, &log, 2 * i + 1, 50000);
        note(first, &log, 2 * i, 5000);
        choir__queue_wait_event(second, choir__queue_record(first));
        choir__queue_free(first);
        use_freed_memory();
        assert_int_equal(choir__queue_wait(second), i ? CHOIR_ERR_RANGE : CHOIR_OK);
        first = new_queue("first", false);
        int number = 7;
        choir__queue_issue(second, fail_task, &number, sizeof number);
    }
    choir__queue_free(first);
    choir__queue_free(second);
}

static void test_event_is_a_place(void **state)
{
    static struct log log;
    choir__queue *q = new_queue("place", false);
    log.count = 0;
    note(q, &log, 0, 0);
    choir__event event = choir__queue_record(q);
    note(q, &log, 1, 0);
    ok(choir__event_wait(event));
    assert_true(choir__event_done(event));
    assert_true(log.count >= 1);
    ok(choir__queue_wait_event(q, event)); /* its own: nothing to do */
    ok(choir__queue_wait(q));
    assert_sequence(&log, 2);
    choir__queue_free(q);
}

static void test_event_nobody_recorded(void **state)
{
    choir__queue *q = new_queue("never", false);
    choir__event never = {0};
    assert_int_equal(choir__queue_wait_event(q, never), CHOIR_ERR_STATE);
    assert_fails(choir__event_wait(never), CHOIR_ERR_STATE, "a recorded event");
    ok(choir__queue_wait(q));
    choir__queue_free(q);
}

static void note_thread(const void *args)
{
    pthread_t *const *where = args;
    **where = pthread_self();
}

static void test_who_runs(void **state)
{
    choir__queue *q = new_queue("who", false), *w = new_queue("worker", true);
    pthread_t ran, *where = &ran;
    bool host = false;
    for (int i = 0; i < 200 && !host; i++) { /* the worker may come first if we are held up */
        choir__queue_issue(q, note_thread, &where, sizeof where);
        ok(choir__queue_wait(q));
        host = pthread_equal(ran, pthread_self());
    }
    assert_true(host);
    choir__queue_issue(q, note_thread, &where, sizeof where);
    choir__event event = choir__queue_record(q);
    for (int i = 0; i < 10000 && !choir__event_done(event); i++)
        usleep(1000);
    assert_true(choir__event_done(event)); /* no thread waited: the worker did it */
    assert_false(pthread_equal(ran, pthread_self()));
    for (int i = 0; i < 20; i++) {
        choir__queue_issue(w, note_thread, &where, sizeof where);
        ok(choir__queue_wait(w));
        assert_false(pthread_equal(ran, pthread_self()));
    }
    choir__queue_free(q);
    choir__queue_free(w);
}

/* --- the ring --- */

enum { ISSUERS = 4, EACH = 40000 };

struct load {
    int issuer, number;
    int bytes; /* of fill */
    unsigned char fill[CHOIR__TASK_MAX - 12];
};

static int next_number[ISSUERS];
static atomic_int corrupt;

static void check_load(const void *args)
{
    const struct load *l = args;
    bool good = (uintptr_t)args % 16 == 0 && next_number[l->issuer]++ == l->number;
    for (int i = 0; i < l->bytes; i++)
        good &= l->fill[i] == (unsigned char)(l->number + i);
    if (!good)
        atomic_fetch_add(&corrupt, 1);
}

struct issuer {
    pthread_t thread;
    choir__queue *queue;
    int index;
};

static void *issue_loads(void *arg)
{
    struct issuer *s = arg;
    struct load l = {.issuer = s->index};
    uint32_t z = 77 + (uint32_t)s->index;
    for (l.number = 0; l.number < EACH; l.number++) {
        z = z * 1664525 + 1013904223;
        l.bytes = (z >> 16) % 50 ? (int)(z >> 20) % 100 : (int)sizeof l.fill;
        for (int i = 0; i < l.bytes; i++)
            l.fill[i] = (unsigned char)(l.number + i);
        choir__queue_issue(s->queue, check_load, &l, 12 + (size_t)l.bytes);
        if (z >> 20 == 5)
            choir__queue_wait(s->queue);
    }
    return NULL;
}

static void test_ring_under_pressure(void **state)
{
    for (int worker_only = 0; worker_only < 2; worker_only++) {
        struct issuer s[ISSUERS];
        choir__queue *q = new_queue("ring", worker_only);
        memset(next_number, 0, sizeof next_number);
        corrupt = 0;
        for (int i = 0; i < ISSUERS; i++) {
            s[i] = (struct issuer){.queue = q, .index = i};
            pthread_create(&s[i].thread, NULL, issue_loads, &s[i]);
        }
        for (int i = 0; i < ISSUERS; i++)
            pthread_join(s[i].thread, NULL);
        ok(choir__queue_wait(q));
        assert_int_equal(corrupt, 0);
        for (int i = 0; i < ISSUERS; i++)
            assert_int_equal(next_number[i], EACH);
        choir__queue_free(q);
    }
}

/* --- watching --- */

static _Atomic int watched, without_arg;

static void watch(void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
    watched += end >= start;
    without_arg += !arg;
}

static _Atomic bool enough;
static struct log unread;

static void *issue_until_enough(void *arg)
{
    struct note n = {.log = &unread, .sleep_us = 20};
    while (!enough) {
        unread.count = 0;
        for (int i = 0; i < 4; i++)
            choir__queue_issue(arg, take_note, &n, sizeof n);
        choir__queue_wait(arg);
    }
    return NULL;
}

/* Watchers are set and removed while other threads issue tasks: a watcher is never called
 * without its argument. */
static void test_watching_a_busy_queue(void **state)
{
    choir__queue *q = new_queue("watched", true);
    pthread_t thread;
    enough = false;
    pthread_create(&thread, NULL, issue_until_enough, q);
    for (int i = 0; i < 300; i++) {
        choir__queue_observe(q, watch, q);
        usleep(200);
        choir__queue_observe(q, NULL, NULL);
    }
    enough = true;
    pthread_join(thread, NULL);
    ok(choir__queue_wait(q));
    assert_true(watched > 0);
    assert_int_equal(without_arg, 0);
    choir__queue_free(q);
}

/* --- failure --- */

static void test_failure_sticks(void **state)
{
    static struct log log;
    choir__queue *q = new_queue("fails", false);
    int which = 3, later = 4;
    log.count = 0;
    note(q, &log, 0, 0);
    choir__queue_issue(q, fail_task, &which, sizeof which);
    choir__queue_issue(q, fail_task, &later, sizeof later);
    note(q, &log, 99, 0); /* dropped */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(choir__queue_wait(q), CHOIR_ERR_RANGE);
        assert_string_equal(choir_error_message(), "entry 3 is bad");
    }
    choir__event event = choir__queue_record(q);
    assert_int_equal(choir__event_wait(event), CHOIR_ERR_RANGE);
    choir__queue_clear(q);
    note(q, &log, 1, 0);
    ok(choir__queue_wait(q));
    assert_sequence(&log, 2);
    choir__queue_free(q);
}

static void test_failure_reaches_waiting_queues(void **state)
{
    static struct log log;
    choir__queue *a = new_queue("first", false), *b = new_queue("second", false);
    int which = 7;
    log.count = 0;
    choir__queue_issue(a, fail_task, &which, sizeof which);
    ok(choir__queue_wait_event(b, choir__queue_record(a)));
    note(b, &log, 99, 0);
    assert_int_equal(choir__queue_wait(b), CHOIR_ERR_RANGE);
    assert_string_equal(choir_error_message(), "entry 7 is bad");
    assert_int_equal(log.count, 0);
    choir__queue_clear(
        b); /* a still has it: an event that is done already carries it over, too */
    ok(choir__queue_wait_event(b, choir__queue_record(a)));
    assert_int_equal(choir__queue_wait(b), CHOIR_ERR_RANGE);
    choir__queue_clear(a);
    choir__queue_clear(b);
    ok(choir__queue_wait_event(b, choir__queue_record(a)));
    ok(choir__queue_wait(b));
    choir__queue_free(a);
    choir__queue_free(b);
}

/* After a wait for a queue, its owner frees the memory that other queues read. A queue that has
 * failed still waits for them. */
static void test_failed_queue_still_waits(void **state)
{
    static struct log log;
    choir__queue *reader = new_queue("reads", true), *q = new_queue("fails", false);
    int which = 8;
    log.count = 0;
    for (int before = 0; before < 2; before++) {
        if (before)
            choir__queue_issue(q, fail_task, &which, sizeof which);
        note(reader, &log, before, 20000);
        ok(choir__queue_wait_event(q, choir__queue_record(reader)));
        if (!before)
            choir__queue_break(q, CHOIR_ERR_RANGE, "entry 8 is bad");
        note(q, &log, 99, 0); /* dropped */
        assert_int_equal(choir__queue_wait(q), CHOIR_ERR_RANGE);
        assert_string_equal(choir_error_message(), "entry 8 is bad");
        assert_int_equal(log.count, before + 1);
        choir__queue_clear(q);
    }
    choir__queue_free(q);
    choir__queue_free(reader);
}

/* --- quiesce and fork --- */

static void test_quiesce_and_fork(void **state)
{
    static struct log log;
    choir__queue *q = new_queue("forks", false), *w = new_queue("forks, worker", true);
    log.count = 0;
    for (int round = 0; round < 5; round++) {
        note(q, &log, 4 * round, 500);
        choir__queue_wait_event(w, choir__queue_record(q));
        note(w, &log, 4 * round + 1, 0);
        choir__queues_quiesce();
        assert_int_equal(log.count, 4 * round + 2); /* drained */
        pid_t child = fork();
        note(q, &log, 4 * round + 2, 0);
        choir__queue_wait_event(w, choir__queue_record(q));
        note(w, &log, 4 * round + 3, 0);
        choir_status status = choir__queue_wait(w);
        if (child == 0)
            _exit(status == CHOIR_OK && log.count == 4 * round + 4 ? 0 : 1);
        ok(status);
        int ended;
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_true(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
    }
    assert_sequence(&log, 20);
    choir__queue_free(q);
    choir__queue_free(w);
}

/* --- many threads --- */

enum { QUEUES = 4, THREADS = 6, ROUNDS = 1500 };

static struct {
    choir__queue *queue[QUEUES];
    int64_t sum[QUEUES]; /* written by tasks of that queue alone */
    atomic_int wrong;
} stress;

static void add_one(const void *args)
{
    stress.sum[*(const int *)args]++;
}

static void *stress_thread(void *arg)
{
    uint32_t z = 999 + *(uint32_t *)arg;
    for (int i = 0; i < ROUNDS; i++) {
        z = z * 1664525 + 1013904223;
        int a = (int)(z >> 8) % QUEUES, b = (int)(z >> 16) % QUEUES;
        choir__queue_issue(stress.queue[a], add_one, &a, sizeof a);
        choir__event event = choir__queue_record(stress.queue[a]);
        choir__queue_wait_event(stress.queue[b], event);
        choir__queue_issue(stress.queue[b], add_one, &b, sizeof b);
        choir_status status = CHOIR_OK;
        if (z >> 28 == 0)
            status = choir__queue_wait(stress.queue[b]);
        else if (z >> 28 == 1)
            status = choir__event_wait(event);
        if (status != CHOIR_OK || (z >> 28 < 2 && !choir__event_done(event)))
            atomic_fetch_add(&stress.wrong, 1);
        if (z >> 24 == 77)
            usleep(1500); /* lets the workers step in */
    }
    return NULL;
}

static void test_stress(void **state)
{
    pthread_t thread[THREADS];
    uint32_t index[THREADS];
    uint64_t finished = 0, issued = 0;
    for (int i = 0; i < QUEUES; i++)
        stress.queue[i] = new_queue("stress", i == QUEUES - 1);
    for (int i = 0; i < THREADS; i++) {
        index[i] = (uint32_t)i;
        pthread_create(&thread[i], NULL, stress_thread, &index[i]);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    int64_t total = 0;
    for (int i = 0; i < QUEUES; i++) {
        ok(choir__queue_wait(stress.queue[i]));
        issued += choir__queue_get_stats(stress.queue[i]).issued;
        finished += choir__queue_get_stats(stress.queue[i]).finished;
    }
    for (int i = 0; i < QUEUES; i++) {
        total += stress.sum[i];
        choir__queue_free(stress.queue[i]);
    }
    assert_int_equal(stress.wrong, 0);
    assert_int_equal(issued, finished);
    assert_int_equal(total, 2 * THREADS * ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_busy_when_waited_for),
        cmocka_unit_test(test_events_order_queues),
        cmocka_unit_test(test_awaited_queue_goes_first),
        cmocka_unit_test(test_event_is_a_place),
        cmocka_unit_test(test_event_nobody_recorded),
        cmocka_unit_test(test_who_runs),
        cmocka_unit_test(test_ring_under_pressure),
        cmocka_unit_test(test_watching_a_busy_queue),
        cmocka_unit_test(test_failure_sticks),
        cmocka_unit_test(test_failure_reaches_waiting_queues),
        cmocka_unit_test(test_failed_queue_still_waits),
        cmocka_unit_test(test_quiesce_and_fork),
        cmocka_unit_test(test_stress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
