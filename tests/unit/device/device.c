/* Devices: the registry, eight devices on any number of cores, threads, and statistics that
 * other threads read. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "device/device.h"

static int eight_devices(void **state)
{
    return setenv("CHOIR_CPU_DEVICES", "8", 1);
}

static void test_registry(void **state)
{
    assert_int_equal(choir_device_count("cpu"), 8);
    assert_int_equal(choir_device_count("abacus"), 0);
    choir_device *d = choir_device_find("cpu:7");
    assert_non_null(d);
    assert_string_equal(choir_device_name(d), "cpu:7");
    assert_ptr_equal(choir_device_find("cpu:7"), d);
    assert_ptr_equal(choir_device_find("cpu"), choir_device_find("cpu:0"));
    static const char *const wrong[] = {"cpu:8", "cpu:-1", "cpu:", "cpu:x", "cpu:1x",
        "abacus:0", "", "cp:0", "cpu0", "cpu:99999999999999999999", "cpu:4294967296"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_null(choir_device_find(wrong[i]));
        assert_true(*choir_error_message());
    }
    choir_device_find("cpu:8");
    assert_says("cpu:8");
    assert_says("cpu:7");
    const char *isa = choir_cpu_isa();
    assert_true(!strcmp(isa, "baseline") || !strcmp(isa, "avx2") || !strcmp(isa, "avx512"));
}

/* --- work --- */

/* Trains for a few steps; returns the bits of a weight. */
static float work_on(choir_device *device, int steps, atomic_int *failed)
{
    float w[32 * 16] = {0};
    choir_scope *run = choir_scope_open(device, 3);
    choir_module *net = choir_nn_sequential(run, choir_nn_linear(run, 16, 32),
        choir_nn_tanh(run), choir_nn_dropout(run, 0.1f), choir_nn_linear(run, 32, 4));
    choir_optim *opt = choir_adam(run, net, choir_adam_defaults());
    for (int i = 0; i < steps; i++) {
        choir_scope *s = choir_step_open(run, (uint64_t)i);
        choir_tensor *x = choir_randn(s, choir_dims(8, 16), "x");
        choir_tensor *loss = choir_mean(choir_square(choir_forward(net, x)));
        *failed += choir_backward(loss) != CHOIR_OK || choir_optim_step(opt) != CHOIR_OK;
        if (i % 16 == 0)
            *failed += !(choir_item(loss) >= 0);
        *failed += choir_scope_close(s) != CHOIR_OK;
    }
    *failed += choir_read(choir_module_find(net, "0.weight"), w, sizeof w) != CHOIR_OK;
    *failed += choir_scope_close(run) != CHOIR_OK;
    return w[5];
}

struct worker {
    pthread_t thread;
    int index;
    float result;
    atomic_int failed;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    char name[16];
    snprintf(name, sizeof name, "cpu:%d", w->index);
    w->result = work_on(choir_device_find(name), 150, &w->failed);
    return NULL;
}

static void test_eight_at_once(void **state)
{
    static struct worker w[8];
    for (int i = 0; i < 8; i++) {
        w[i].index = i;
        pthread_create(&w[i].thread, NULL, work, &w[i]);
    }
    for (int i = 0; i < 8; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].failed, 0);
        assert_memory_equal(&w[i].result, &w[0].result, sizeof(float));
    }
    for (int i = 0; i < 8; i++) {
        char name[16];
        choir_device_stats stats;
        snprintf(name, sizeof name, "cpu:%d", i);
        choir_device_get_stats(choir_device_find(name), &stats);
        assert_true(stats.tasks > 1000 && stats.busy_s > 0 && stats.busy_s <= stats.age_s);
        assert_int_equal(stats.queue_depth, 0);
        assert_int_equal(stats.bytes_now, 0);
        assert_true(stats.bytes_reserved >= stats.bytes_peak);
    }
}

static void test_across_devices(void **state)
{
    choir_scope *run = choir_scope_open(choir_device_find("cpu:1"), 3);
    choir_scope *step = choir_step_open(run, 0);
    choir_tensor *x = choir_require_grad(choir_full(step, CHOIR_F32, choir_dims(100), 2)),
                 *y = x;
    char name[16];
    float g[100];
    for (int i = 2; i < 8; i++) { /* around, adding on each */
        snprintf(name, sizeof name, "cpu:%d", i);
        y = choir_to(y, choir_device_find(name));
        assert_ptr_equal(choir_tensor_device(y), choir_device_find(name));
        y = choir_affine(y, 2, 1);
    }
    choir_tensor *loss = choir_sum(choir_to(y, choir_tensor_device(x)));
    assert_true(choir_item(loss) == 100 * (64 * 2 + 63));
    ok(choir_backward(loss));
    ok(choir_read(choir_grad(x), g, sizeof g));
    assert_true(g[0] == 64 && g[99] == 64);
    choir_add(x, choir_to(x, choir_device_find("cpu:2")));
    assert_fails(choir_scope_status(step), CHOIR_ERR_DEVICE, "cpu:2");
    assert_int_equal(choir_scope_close(step), CHOIR_ERR_DEVICE);
    ok(choir_scope_close(run));
}

/* Dropout on another device than the run's draws the numbers of the step that issued it. */
static void test_dropout_elsewhere(void **state)
{
    choir_device *here = choir_device_find("cpu:0"), *there = choir_device_find("cpu:3");
    float a[64], b[64];
    for (int late = 0; late < 2; late++) {
        choir_scope *run = choir_scope_open(here, 3), *step = choir_step_open(run, 0);
        choir_tensor *x = choir_to(choir_full(step, CHOIR_F32, choir_dims(64), 1), there);
        ok(choir_device_sync(there));
        choir_tensor *y = choir_keep(run, choir_dropout(x, 0.5f, "d"));
        if (!late)
            ok(choir_read(y, a, sizeof a));
        ok(choir_scope_close(step));
        choir_scope_close(choir_step_open(run, 1)); /* cpu:0 is a step further on */
        ok(choir_device_sync(here));
        if (late)
            ok(choir_read(y, b, sizeof b));
        ok(choir_scope_close(run));
    }
    assert_memory_equal(a, b, sizeof a);
}

/* --- threads --- */

static void matmul_on(choir_device *device, float c[70 * 90])
{
    choir_scope *run = choir_scope_open(device, 4), *step = choir_step_open(run, 0);
    choir_tensor *a = choir_randn(step, choir_dims(70, 80), "a");
    choir_tensor *b = choir_randn(step, choir_dims(80, 90), "b");
    ok(choir_read(choir_matmul(a, b), c, 70 * 90 * sizeof(float)));
    ok(choir_scope_close(step));
    ok(choir_scope_close(run));
}

static void test_threads(void **state)
{
    static float one[70 * 90], two[70 * 90];
    choir_device *d = choir_device_find("cpu:6"), *fresh = choir_device_find("cpu:5");
    matmul_on(d, one);
    assert_fails(choir_device_set_threads(d, 2), CHOIR_ERR_STATE, "cpu:6");
    assert_int_equal(choir_device_set_threads(fresh, 0), CHOIR_ERR_ARGUMENT);
    assert_int_equal(choir_device_set_threads(fresh, 1 << 20), CHOIR_ERR_ARGUMENT);
    ok(choir_device_set_threads(fresh, 2));
    matmul_on(fresh, two);
    for (int i = 0; i < 70 * 90; i++)
        assert_true(two[i] - one[i] < 1e-4f && one[i] - two[i] < 1e-4f);
    assert_int_equal(choir_device_set_threads(fresh, 1), CHOIR_ERR_STATE);
}

/* --- figures --- */

static atomic_bool stop;

static void nothing(const void *args)
{
}

static void *issue_for_long(void *arg)
{
    for (int i = 0; i < 300000; i++) {
        choir__queue_issue(arg, nothing, NULL, 0);
        if (i % 8 == 0)
            choir__queue_wait(arg);
    }
    atomic_store(&stop, true);
    return NULL;
}

static void test_queue_figures(void **state)
{
    choir__queue *q = choir__queue_new((choir__queue_opts){.name = "figures"});
    pthread_t other;
    bool ordered = true;
    stop = false;
    pthread_create(&other, NULL, issue_for_long, q);
    while (!atomic_load(&stop)) {
        choir__queue_stats stats = choir__queue_get_stats(q);
        ordered &= stats.issued >= stats.finished;
    }
    pthread_join(other, NULL);
    choir__queue_free(q);
    assert_true(ordered);
}

static void *train_for_long(void *arg)
{
    struct worker *w = arg;
    w->result = work_on(choir_device_find("cpu:4"), 600, &w->failed);
    atomic_store(&stop, true);
    return NULL;
}

static void test_figures_from_another_thread(void **state)
{
    static struct worker w;
    choir_device *d = choir_device_find("cpu:4");
    choir_device_stats stats, last = {0};
    bool good = true;
    stop = false;
    pthread_create(&w.thread, NULL, train_for_long, &w);
    while (!atomic_load(&stop)) {
        choir_device_get_stats(d, &stats);
        good &= stats.tasks >= last.tasks;
        good &= stats.bytes_reserved >= stats.bytes_now;
        last = stats;
        choir_device_reset_peak(d);
    }
    pthread_join(w.thread, NULL);
    assert_int_equal(w.failed, 0);
    assert_true(good);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_across_devices),
        cmocka_unit_test(test_dropout_elsewhere),
        cmocka_unit_test(test_eight_at_once),
        cmocka_unit_test(test_queue_figures),
        cmocka_unit_test(test_figures_from_another_thread),
    };
    return cmocka_run_group_tests(tests, eight_devices, NULL);
}
