/* Recordings, and choir_step, which records and replays a whole step: the same bits as the step
 * run eagerly, whatever happens around it. */
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "unit/tensor/small_step.h"
#include "device/device.h"
#include "tensor/scope.h"

static int eight_devices(void **state)
{
    return setenv("CHOIR_CPU_DEVICES", "8", 1);
}

/* --- recordings of queues --- */

struct log {
    int count;
    int entry[256];
};

struct note {
    struct log *log;
    int number, sleep_us;
};

static void take_note(const void *args)
{
    const struct note *n = args;
    usleep((useconds_t)n->sleep_us);
    n->log->entry[n->log->count++] = n->number;
}

static void note(choir__queue *q, struct log *log, int number, int sleep_us)
{
    struct note n = {log, number, sleep_us};
    choir__queue_issue(q, take_note, &n, sizeof n);
}

static struct {
    choir__queue *queue;
    struct log *log;
    int next;
} host;

static choir_status issue_from_host(void *arg)
{
    note(host.queue, host.log, host.next++, 0); /* not recorded: decided again each time */
    return CHOIR_OK;
}

static choir_status refuse(void *arg)
{
    return *(bool *)arg ? choir__error(CHOIR_ERR_STATE, "refused") : CHOIR_OK;
}

static void test_recording(void **state)
{
    static struct log log;
    choir__queue *a = choir__queue_new((choir__queue_opts){.name = "a"});
    choir__queue *b = choir__queue_new((choir__queue_opts){.name = "b", .worker_only = true});
    bool refusing = false;
    host.queue = a;
    host.log = &log;
    host.next = 100;
    choir__event before = choir__queue_record(a);
    choir__recording *r = choir__recording_open();
    assert_true(choir__recording_active());
    choir__queue_wait_event(b, before);
    note(a, &log, 0, 1000);
    choir__queue_wait_event(b, choir__queue_record(a));
    note(b, &log, 1, 0);
    choir__queue_wait_event(a, choir__queue_record(b));
    ok(choir__host_call(issue_from_host, NULL));
    ok(choir__host_call(refuse, &refusing));
    note(a, &log, 2, 0);
    choir__recording_close(r);
    assert_false(choir__recording_active());
    note(a, &log, 3, 0); /* not recorded */
    ok(choir__queue_wait(a));
    for (int i = 0; i < 10; i++)
        ok(choir__recording_replay(r));
    ok(choir__queue_wait(a));
    assert_int_equal(log.count, 5 + 40);
    for (int i = 0; i < 10; i++) {
        const int *e = &log.entry[5 + 4 * i];
        assert_true(e[0] == 0 && e[1] == 1 && e[2] == 101 + i && e[3] == 2);
    }
    refusing = true;
    assert_int_equal(choir__recording_replay(r), CHOIR_ERR_STATE);
    choir__queue_free(a);
    choir__queue_free(b);
    choir__recording_free(r);
    choir__recording_free(NULL);
}

/* --- a training step --- */

static void test_replay_is_eager(void **state)
{
    struct job a, b;
    float wa[8 * WIDTH], wb[8 * WIDTH];
    double losses[STEPS], norms[STEPS];
    open_job(&a);
    for (int i = 0; i < STEPS; i++) {
        ok(eager(&a, (uint64_t)i));
        losses[i] = choir_item(a.loss);
        norms[i] = choir_item(choir_optim_grad_norm(a.opt));
    }
    weights_of(&a, wa);
    ok(choir_scope_close(a.run));
    open_job(&b);
    for (int i = 0; i < STEPS; i++) {
        ok(choir_step(b.run, train, &b));
        assert_true(losses[i] == choir_item(b.loss));
        assert_true(norms[i] == choir_item(choir_optim_grad_norm(b.opt)));
    }
    assert_int_equal(b.calls, 3);
    assert_int_equal(choir_optim_steps(b.opt), STEPS);
    weights_of(&b, wb);
    assert_memory_equal(wa, wb, sizeof wa);
    ok(choir_scope_close(b.run));
}

static void test_other_function(void **state)
{
    struct job j;
    open_job(&j);
    for (int i = 0; i < 30; i++) {
        ok(choir_step(j.run, i / 5 % 2 ? other : train, &j));
        assert_true(choir_item(j.loss) == choir_item(j.loss));
    }
    assert_int_equal(choir_optim_steps(j.opt), 15);
    ok(choir_scope_close(j.run));
}

static void test_changing_functions_does_not_grow(void **state)
{
    choir_device_stats stats[2];
    struct job j;
    open_job(&j);
    for (int i = 0; i < 400; i++) {
        ok(choir_step(j.run, i / 4 % 2 ? other : train, &j));
        if (i == 100)
            choir_device_get_stats(choir_device_find("cpu:0"), &stats[0]);
    }
    choir_device_get_stats(choir_device_find("cpu:0"), &stats[1]);
    ok(choir_scope_close(j.run));
    /* the run's memory grows by at most one block per call that is not replayed */
    assert_true(stats[1].bytes_reserved - stats[0].bytes_reserved < 300 * 128);
}

static void test_error_inside(void **state)
{
    for (int at = 0; at < 3; at++) {
        struct job j;
        open_job(&j);
        for (int i = 0; i < at; i++)
            ok(choir_step(j.run, train, &j));
        j.fail = CHOIR_ERR_FORMAT;
        assert_int_equal(choir_step(j.run, train, &j), CHOIR_ERR_FORMAT);
        assert_string_equal(choir_error_message(), "asked to fail");
        assert_false(choir__recording_active());
        j.fail = CHOIR_OK;
        for (int i = 0; i < 6; i++)
            ok(choir_step(j.run, train, &j));
        assert_true(choir_item(j.loss) > 0);
        ok(choir_scope_close(j.run));
    }
}

static void test_closed_after_recording(void **state)
{
    choir_device *device = choir_device_find("cpu:0");
    choir_device_stats before, after;
    choir_device_get_stats(device, &before);
    for (int round = 0; round < 5; round++) {
        struct job j;
        open_job(&j);
        for (int i = 0; i < 3 + round; i++)
            ok(choir_step(j.run, train, &j));
        ok(choir_scope_close(j.run));
    }
    choir_device_get_stats(device, &after);
    assert_int_equal(before.bytes_now, after.bytes_now);
}

static void test_execution_error_in_replay(void **state)
{
    struct job j;
    int64_t bad[BATCH] = {0, 1, 99, 0, 0, 0};
    open_job(&j);
    for (int i = 0; i < 4; i++)
        ok(choir_step(j.run, train, &j));
    ok(choir_write(j.y, bad, sizeof bad));
    /* nothing waits for the device, which may run the step at any time */
    choir_status status = choir_step(j.run, train, &j);
    assert_true(status == CHOIR_OK || status == CHOIR_ERR_RANGE);
    assert_int_equal(choir_device_sync(choir_scope_device(j.run)), CHOIR_ERR_RANGE);
    status = choir_step(j.run, train, &j);
    choir_scope_clear(j.run);
    choir_scope_close(j.run);
    assert_int_equal(status, CHOIR_ERR_RANGE);
}

/* --- what a list of kernel calls cannot hold --- */

static choir_status draw(choir_scope *step, void *arg)
{
    struct job *j = arg;
    j->loss = choir_keep(j->run, choir_rand(step, CHOIR_SCALAR, "noise", 0, 1));
    return choir_scope_status(step);
}

static void test_random_tensors(void **state)
{
    struct job a, b;
    choir_status status = CHOIR_OK;
    open_job(&a);
    open_job(&b);
    for (int i = 0; i < 6 && status == CHOIR_OK; i++) {
        choir_scope *s = choir_step_open(a.run, (uint64_t)i);
        draw(s, &a);
        choir_scope_close(s);
        status = choir_step(b.run, draw, &b); /* an error would do */
        assert_true(status != CHOIR_OK || choir_item(a.loss) == choir_item(b.loss));
    }
    choir_scope_close(a.run);
    choir_scope_close(b.run);
}

static choir_status look(choir_scope *step, void *arg)
{
    struct job *j = arg;
    double loss = choir_item(choir_sum(choir_in(step, j->x)));
    return loss == loss ? CHOIR_OK : choir_scope_status(step);
}

static void test_reading_inside(void **state)
{
    struct job j;
    open_job(&j);
    choir_status status = CHOIR_OK;
    for (int i = 0; i < 3 && status == CHOIR_OK; i++)
        status = choir_step(j.run, look, &j);
    choir_scope_close(j.run);
    assert_int_not_equal(status, CHOIR_OK); /* a replay would write to a stack that is gone */
}

static choir_status two_devices(choir_scope *step, void *arg)
{
    struct job *j = arg;
    choir_device *other_device = choir_device_find("cpu:1");
    choir_tensor *there = choir_scale(choir_to(choir_in(step, j->x), other_device), 2);
    j->loss = choir_keep(j->run, choir_to(choir_sum(there), j->run->device));
    return choir_scope_status(step);
}

static void test_two_devices(void **state)
{
    struct job j;
    choir_device *other_device = choir_device_find("cpu:1");
    float v[BATCH * WIDTH];
    choir_status status = CHOIR_OK;
    open_job(&j);
    for (int i = 0; i < 3 && status == CHOIR_OK; i++)
        status = choir_step(j.run, two_devices, &j);
    choir_scope *mine = choir_scope_open(other_device, 1); /* reuses the step's memory */
    choir_tensor *t[8];
    for (int i = 0; i < 8; i++)
        t[i] = choir_full(mine, CHOIR_F32, choir_dims(BATCH, WIDTH), 5);
    ok(choir_device_sync(other_device));
    for (int i = 0; i < 3 && status == CHOIR_OK; i++)
        status = choir_step(j.run, two_devices, &j);
    choir_device_sync(j.run->device);
    bool untouched = true;
    for (int i = 0; i < 8; i++) {
        ok(choir_read(t[i], v, sizeof v));
        for (int e = 0; e < BATCH * WIDTH; e++)
            untouched &= v[e] == 5;
    }
    choir_scope_close(mine);
    choir_scope_close(j.run);
    assert_true(untouched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recording),
        cmocka_unit_test(test_replay_is_eager),
        cmocka_unit_test(test_other_function),
        cmocka_unit_test(test_changing_functions_does_not_grow),
        cmocka_unit_test(test_error_inside),
        cmocka_unit_test(test_closed_after_recording),
        cmocka_unit_test(test_execution_error_in_replay),
        cmocka_unit_test(test_random_tensors),
        cmocka_unit_test(test_reading_inside),
        cmocka_unit_test(test_two_devices),
    };
    return cmocka_run_group_tests(tests, eight_devices, NULL);
}
