/* Who runs a queue, and who sleeps: waiters take over from a worker, chains of queues are run
 * by the thread that waits for their end, and a worker without work sleeps.
 *
 * A worker that leaves tasks to waiters for an hour shows that waiters alone finish a test. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"
#include "device/queue.h"

enum { HOUR_US = 2000000000 };

static choir__queue *new_queue(const char *name, int patience_us)
{
    return choir__queue_new((choir__queue_opts){.name = name, .patience_us = patience_us});
}

/* A task that says that it runs, and goes on when it may. */
typedef struct gate {
    atomic_bool entered, open;
    pthread_t ran_by;
} gate;

static void pass(const void *args)
{
    gate *g = *(gate *const *)args;
    g->ran_by = pthread_self();
    atomic_store(&g->entered, true);
    while (!atomic_load(&g->open))
        usleep(100);
}

static void issue_gate(choir__queue *q, gate *g)
{
    choir__queue_issue(q, pass, &g, sizeof g);
}

static void await(const atomic_bool *word)
{
    while (!atomic_load(word))
        usleep(100);
}

static void *wait_for_event(void *arg)
{
    choir__event *event = arg;
    ok(choir__event_wait(*event));
    return NULL;
}

/* One thread waits for the first task and runs it. Another one sleeps meanwhile, and waits for
 * the second: the first thread wakes it when it leaves. */
static void runner_leaves_tasks_to_a_sleeper(void **state)
{
    for (int i = 0; i < 20; i++) {
        choir__queue *q = new_queue("left", HOUR_US);
        gate first = {0}, second = {.open = true};
        pthread_t thread;
        issue_gate(q, &first);
        choir__event event = choir__queue_record(q);
        issue_gate(q, &second);
        pthread_create(&thread, NULL, wait_for_event, &event);
        await(&first.entered);
        pthread_t other;
        choir__event end = choir__queue_record(q);
        pthread_create(&other, NULL, wait_for_event, &end);
        usleep(i % 4 * 1000); /* asleep, or not yet */
        atomic_store(&first.open, true);
        pthread_join(thread, NULL);
        pthread_join(other, NULL);
        assert_true(
            pthread_equal(second.ran_by, other) || pthread_equal(second.ran_by, thread));
        choir__queue_free(q);
    }
}

/* As in a step of data parallelism: the group's collective waits for the device's kernel, the
 * device's optimizer for the collective. Whoever waits for one of them runs both. */
static void waiter_runs_a_chain(void **state)
{
    for (int i = 0; i < 4; i++) {
        choir__queue *device = new_queue("device", HOUR_US),
                     *group = new_queue("group", HOUR_US);
        gate kernel = {.open = true}, collective = {.open = true}, optimizer = {.open = true},
             loss = {.open = true};
        issue_gate(device, &kernel);
        choir__queue_wait_event(group, choir__queue_record(device));
        issue_gate(group, &collective);
        choir__queue_wait_event(device, choir__queue_record(group));
        issue_gate(device, &optimizer);
        choir__queue_wait_event(group, choir__queue_record(device));
        issue_gate(group, &loss);
        ok(choir__queue_wait(i % 2 ? device : group));
        ok(choir__queue_wait(i % 2 ? group : device));
        assert_true(pthread_equal(kernel.ran_by, pthread_self()));
        assert_true(pthread_equal(loss.ran_by, pthread_self()));
        assert_true(i % 2 || choir__queue_get_stats(group).wakes == 0);
        choir__queue_free(group);
        choir__queue_free(device);
    }
}

/* As above, on a device that its worker alone may run: the host that waits for the device runs
 * the group's queue, whose worker would leave it alone for an hour. */
static void waiter_runs_what_a_worker_waits_for(void **state)
{
    for (int i = 0; i < 20; i++) {
        choir__queue *device = choir__queue_new(
                         (choir__queue_opts){.name = "device", .worker_only = true}),
                     *group = new_queue("group", HOUR_US);
        gate kernel = {.open = i % 2}, collective = {.open = true}, optimizer = {.open = true};
        issue_gate(device, &kernel);
        choir__queue_wait_event(group, choir__queue_record(device));
        issue_gate(group, &collective);
        choir__queue_wait_event(device, choir__queue_record(group));
        issue_gate(device, &optimizer);
        pthread_t thread;
        choir__event end = choir__queue_record(device);
        pthread_create(&thread, NULL, wait_for_event, &end);
        usleep(i % 4 * 500); /* the host is asleep, or not yet */
        atomic_store(&kernel.open, true);
        pthread_join(thread, NULL);
        assert_false(pthread_equal(optimizer.ran_by, thread));
        choir__queue_free(device);
        choir__queue_free(group);
    }
}

/* No thread waits for a device that waits for a group. Its worker makes the group's hurry. The
 * kernel ends after the host has issued all, since a device that is idle before would leave the
 * group to the host for as long as the group does. */
static void blocked_worker_hurries_the_other(void **state)
{
    unsigned wakes = 0; /* a worker that has not fallen asleep yet needs none */
    for (int k = 0; k < 20 && !wakes; k++) {
        choir__queue *device = new_queue("device", 1), *group = new_queue("group", HOUR_US);
        gate kernel = {0}, collective = {.open = true}, optimizer = {.open = true};
        issue_gate(device, &kernel);
        choir__queue_wait_event(group, choir__queue_record(device));
        issue_gate(group, &collective);
        choir__queue_wait_event(device, choir__queue_record(group));
        issue_gate(device, &optimizer);
        atomic_store(&kernel.open, true);
        await(&optimizer.entered);
        wakes = choir__queue_get_stats(group).wakes;
        choir__queue_free(device);
        choir__queue_free(group);
    }
    assert_true(wakes > 0);
}

/* A worker has begun with a queue whose next task waits for another queue. It gives the queue
 * back, and does not run the other one: a waiter may. */
static void blocked_worker_gives_back(void **state)
{
    for (int i = 0; i < 20; i++) {
        choir__queue *device = new_queue("device", HOUR_US), *group = new_queue("group", 1);
        gate begun = {.open = true}, kernel = {.open = true}, end = {.open = true};
        issue_gate(group, &begun);
        issue_gate(device, &kernel);
        choir__queue_wait_event(group, choir__queue_record(device));
        issue_gate(group, &end);
        await(&begun.entered); /* by the worker */
        usleep(i % 4 * 500);
        ok(choir__queue_wait(group));
        assert_false(pthread_equal(kernel.ran_by, begun.ran_by));
        choir__queue_free(group);
        choir__queue_free(device);
    }
}

/* Without waiters, workers run queues that wait for each other. */
static void workers_run_a_chain(void **state)
{
    choir__queue *a = new_queue("a", 1), *b = new_queue("b", 1);
    gate all[40];
    for (int i = 0; i < 40; i++) {
        all[i] = (gate){.open = true};
        issue_gate(i % 2 ? a : b, &all[i]);
        choir__queue_wait_event(i % 2 ? b : a, choir__queue_record(i % 2 ? a : b));
    }
    await(&all[39].entered);
    for (int i = 0; i < 40; i++)
        assert_false(pthread_equal(all[i].ran_by, pthread_self()));
    choir__queue_free(a);
    choir__queue_free(b);
}

static void take_a_while(const void *args)
{
    usleep(*(const unsigned *)args);
}

/* A host that waits at once leaves nothing to the worker, which sleeps all the time, although
 * the tasks take longer than its patience. A host that the machine stops for that long between
 * issue and wait has another try. */
static void worker_sleeps_while_a_host_waits(void **state)
{
    enum { TRIES = 5, STEPS = 6, PATIENCE_US = 20000 };
    unsigned while_us = 3 * PATIENCE_US, wakes = 1;
    for (int k = 0; k < TRIES && wakes; k++) {
        choir__queue *q = new_queue("hosted", PATIENCE_US);
        for (int i = 0; i < STEPS; i++) {
            choir__queue_issue(q, take_a_while, &while_us, sizeof while_us);
            choir__queue_issue(q, take_a_while, &while_us, sizeof while_us);
            ok(choir__queue_wait(q));
        }
        choir__queue_stats s = choir__queue_get_stats(q);
        wakes = s.wakes + s.idle_wakes;
        choir__queue_free(q);
    }
    assert_int_equal(wakes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runner_leaves_tasks_to_a_sleeper),
        cmocka_unit_test(waiter_runs_a_chain),
        cmocka_unit_test(waiter_runs_what_a_worker_waits_for),
        cmocka_unit_test(blocked_worker_hurries_the_other),
        cmocka_unit_test(blocked_worker_gives_back),
        cmocka_unit_test(workers_run_a_chain),
        cmocka_unit_test(worker_sleeps_while_a_host_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
