/* Order between devices, one of which is slow: no device overwrites values that another has yet
 * to read, within a step, in its replay, or from one replay to the next. */
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "tensor/launch.h"

enum { N = 3000, REPLAYS = 6, SLOW_US = 20000 };

static choir_device *home, *there;

static int devices(void **state)
{
    setenv("CHOIR_CPU_DEVICES", "3", 1);
    home = choir_device_find("cpu:0");
    there = choir_device_find("cpu:1");
    return home && there ? 0 : -1;
}

static void doze(const void *args)
{
    usleep(SLOW_US);
}

/* Later tasks of this device come late. */
static void slow_down(choir_device *device)
{
    choir__queue_issue(device->queue, doze, NULL, 0);
}

struct job {
    choir_scope *run;
    choir_tensor *sum; /* (N) of the run, on the slow device */
    int calls;
    bool recorded;
};

static struct job open_job(bool recorded)
{
    struct job j = {.run = choir_scope_open(home, 1), .recorded = recorded};
    j.sum = choir_to(choir_zeros(j.run, CHOIR_F32, choir_dims(N)), there);
    return j;
}

/* x arrives on the slow device and is added to the sum. */
static void add_there(struct job *j, choir_tensor *x)
{
    slow_down(there);
    choir__launch_add(j->sum, j->sum, choir_to(x, there));
}

static void call(struct job *j, choir_step_fn *fn)
{
    if (j->recorded) {
        ok(choir_step(j->run, fn, j));
        return;
    }
    choir_scope *s = choir_step_open(j->run, 0);
    ok(fn(s, j));
    ok(choir_scope_close(s));
}

/* After `calls` calls every element of the sum is `calls` times `each`. */
static void assert_sum(struct job *j, float each)
{
    float v[N];
    ok(choir_read(j->sum, v, sizeof v));
    for (int i = 0; i < N; i++)
        if (v[i] != each * REPLAYS)
            fail_msg("element %d: %g, not %g", i, (double)v[i], (double)(each * REPLAYS));
    ok(choir_scope_close(j->run));
}

/* The second tensor gets the first one's memory after that was read, which is the case when the
 * step is recorded. */
static choir_status reuse(choir_scope *step, void *arg)
{
    struct job *j = arg;
    choir_scope *s = choir_micro_open(step, 0);
    add_there(j, choir_full(s, CHOIR_F32, choir_dims(N), 1));
    ok(choir_scope_close(s));
    if (j->recorded)
        choir_device_sync(there);
    s = choir_micro_open(step, 1);
    choir_full(s, CHOIR_F32, choir_dims(N), 100);
    return choir_scope_close(s);
}

/* The tensor that is read last resides in the memory that the next call writes first, long
 * before that call writes the tensor to be read. */
static choir_status late(choir_scope *step, void *arg)
{
    struct job *j = arg;
    for (int i = 0; i < 2; i++) {
        choir_scope *s = choir_micro_open(step, i);
        choir_tensor *x = choir_full(s, CHOIR_F32, choir_dims(N), i ? 1 : 100);
        if (i)
            add_there(j, x);
        else
            for (int k = 0; k < 2; k++) /* longer than the other device takes to read */
                slow_down(home);
        ok(choir_scope_close(s));
    }
    return choir_scope_status(step);
}

static void memory_that_another_reads(void **state)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        struct job j = open_job(recorded);
        for (int i = 0; i < REPLAYS; i++)
            call(&j, reuse);
        assert_sum(&j, 1);
        j = open_job(recorded);
        for (int i = 0; i < REPLAYS; i++)
            call(&j, late);
        assert_sum(&j, 1);
    }
}

/* From its third call on, which is recorded, the step also uses a device that it had not
 * used. */
static choir_status one_more(choir_scope *step, void *arg)
{
    struct job *j = arg;
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(N), 1);
    if (j->calls++ >= 2)
        x = choir_scale(choir_to(x, choir_device_find("cpu:2")), 1);
    add_there(j, x);
    return choir_scope_status(step);
}

static void a_device_that_is_new(void **state)
{
    struct job j = open_job(true);
    for (int i = 0; i < REPLAYS; i++) {
        call(&j, one_more);
        choir_scope *run =
            choir_scope_open(choir_device_find("cpu:2"), 2); /* reuses free memory */
        choir_tensor *x = choir_full(run, CHOIR_F32, choir_dims(N), 7);
        ok(choir_device_sync(choir_device_find("cpu:2")));
        ok(choir_device_sync(there));
        float v[N];
        ok(choir_read(x, v, sizeof v));
        for (int k = 0; k < N; k++)
            assert_true(v[k] == 7);
        ok(choir_scope_close(run));
    }
    assert_int_equal(j.calls, 6); /* three, and three once the device was known */
    assert_sum(&j, 1);
}

/* --- what changes in place --- */

struct net {
    choir_module *fc, *norm;
    choir_optim *opt;
    choir_tensor *written; /* of the run */
    choir_tensor *seen[3]; /* weight, running mean, written, as the slow device saw them */
};

static choir_status change(choir_scope *step, void *arg)
{
    struct net *n = arg;
    choir_tensor *weight = choir_module_find(n->fc, "weight");
    choir_tensor *mean = choir_module_find(n->norm, "running_mean");
    choir_tensor *of[3] = {weight, mean, n->written};
    choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(4, 3), 2);
    ok(choir_backward(choir_sum(choir_forward(n->fc, x))));
    slow_down(there);
    bool grad = choir_set_grad(step, false);
    for (int i = 0; i < 3; i++)
        n->seen[i] = choir_keep(weight->scope, choir_to(choir_in(step, of[i]), there));
    choir_set_grad(step, grad);
    ok(choir_optim_step(n->opt));
    choir_forward(n->norm, x);
    float four = 4;
    return choir_write(n->written, &four, sizeof four);
}

static void values_that_change_in_place(void **state)
{
    for (int recorded = 0; recorded < 2; recorded++) {
        choir_scope *run = choir_scope_open(home, 3);
        struct net n = {.fc = choir_nn_linear(run, 3, 1), .norm = choir_nn_batch_norm(run, 3)};
        n.written = choir_zeros(run, CHOIR_F32, choir_dims(1));
        n.opt = choir_sgd(run, n.fc, (choir_sgd_opts){.lr = 1});
        float was[3], seen[3];
        for (int i = 0; i < REPLAYS; i++) {
            float zero = 0, mean;
            ok(choir_write(n.written, &zero, sizeof zero));
            ok(choir_read(choir_module_find(n.fc, "weight"), was, sizeof was));
            ok(choir_read(choir_module_find(n.norm, "running_mean"), seen, sizeof seen));
            mean = seen[0];
            if (recorded) {
                ok(choir_step(run, change, &n));
            } else {
                choir_scope *s = choir_step_open(run, 0);
                ok(change(s, &n));
                ok(choir_scope_close(s));
            }
            ok(choir_device_sync(home)); /* it has changed by now, or waits */
            ok(choir_read(n.seen[0], seen, sizeof seen));
            assert_memory_equal(seen, was, sizeof was);
            ok(choir_read(n.seen[1], seen, sizeof seen));
            assert_true(seen[0] == mean);
            assert_true(choir_item(n.seen[2]) == 0);
            assert_true(choir_item(n.written) == 4);
        }
        ok(choir_scope_close(run));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_another_reads),
        cmocka_unit_test(a_device_that_is_new),
        cmocka_unit_test(values_that_change_in_place),
    };
    return cmocka_run_group_tests(tests, devices, NULL);
}
