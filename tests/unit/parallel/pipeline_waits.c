/* A stage of a pipeline waits for the operands of its own micro-batch, and not for
 * micro-batches that the stage before it began since. */
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "device/device.h"
#include "tensor/scope.h"

enum { MICROS = 4, ROWS = 2, STEPS = 4 };

/* The step makes all data before its micro-batches begin, on the first stage's device. */
typedef struct job {
    choir_device *devices[2];
    choir_tensor *x[MICROS], *y[MICROS], *losses[MICROS]; /* (ROWS, 4), (ROWS, 3) */
    bool held;                                            /* the step under test */
} job;

static atomic_bool ended; /* micro-batch 0 has gone through the last stage */
static atomic_bool held, too_late;

static void note_end(const void *args)
{
    atomic_store(&ended, true);
}

/* Holds the first stage until micro-batch 0 has ended, or for half a minute. */
static void hold(const void *args)
{
    for (int i = 0; i < 30000 && !atomic_load(&ended); i++)
        usleep(1000);
    atomic_store(&too_late, !atomic_load(&ended));
    atomic_store(&held, true);
}

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    int64_t m = micro->micro;
    choir_tensor *x = choir_in(micro, j->x[m]);
    if (m == 1 && j->held) /* its first op is the first stage's next task */
        choir__queue_issue(j->devices[0]->queue, hold, NULL, 0);
    choir_tensor *loss = choir_mse_loss(choir_forward(net, x), j->y[m]);
    if (m == 0 && j->held)
        choir__queue_issue(j->devices[1]->queue, note_end, NULL, 0);
    return loss;
}

static void one_step(job *j, choir_module *pipe, choir_optim *optim, choir_scope *run, int step)
{
    choir_scope *s = choir_step_open(run, (uint64_t)step);
    for (int m = 0; m < MICROS; m++) {
        j->x[m] = choir_randn(s, choir_dims(ROWS, 4), "x");
        j->y[m] = choir_randn(s, choir_dims(ROWS, 3), "y");
    }
    j->held = step == STEPS - 1;
    choir_check(choir_pipeline_step(pipe, s, MICROS, micro_batch, j, j->losses));
    choir_check(choir_optim_step(optim));
    choir_check(choir_scope_close(s));
}

/* The last stage reads targets from the first stage's device. */
static void targets_of_the_step(void **state)
{
    const char *schedules[] = {"gpipe", "1f1b", "zero-bubble"};
    for (int i = 0; i < 3; i++) {
        job j = {.devices = {choir_device_find("cpu:0"), choir_device_find("cpu:1")}};
        choir_scope *run = choir_scope_open(j.devices[0], 1);
        choir_module *net = choir_nn_sequential(
            run, choir_nn_linear(run, 4, 8), choir_nn_relu(run), choir_nn_linear(run, 8, 3));
        choir_pipeline_opts opts = choir_pipeline_defaults();
        opts.devices = j.devices;
        opts.device_count = 2;
        opts.schedule = schedules[i];
        choir_module *pipe = choir_pipeline(run, net, opts);
        choir_optim *optim = choir_sgd(run, pipe, choir_sgd_defaults());
        atomic_store(&ended, false);
        atomic_store(&held, false);
        for (int step = 0; step < STEPS; step++)
            one_step(&j, pipe, optim, run, step);
        choir_check(choir_scope_close(run));
        assert_true(atomic_load(&held));
        if (atomic_load(&too_late))
            fail_msg("%s: the last stage waited for micro-batch 1 of the first", schedules[i]);
    }
}

/* --- a tensor made on another device --- */

/* Three layers in three stages. Between the second and the third the micro-batch makes a mask:
 * on the device of its scope, which is the first stage's, and while the second one is under
 * way. */
typedef struct masked {
    choir_device *devices[3];
    choir_module *layers[3];
    choir_tensor *x, *y; /* (ROWS, 4), (ROWS, 3) */
    choir_tensor *losses[MICROS];
} masked;

static void take_time(const void *args)
{
    usleep(20000);
}

static choir_tensor *with_a_mask(choir_scope *micro, choir_module *net, void *arg)
{
    masked *j = arg;
    choir_tensor *h = choir_in(micro, j->x);
    h = choir_forward(j->layers[1], choir_forward(j->layers[0], h));
    choir__queue_issue(j->devices[0]->queue, take_time, NULL, 0);
    choir_tensor *mask = choir_full(micro, CHOIR_F32, choir_dims(ROWS, 8), 2.0);
    return choir_mse_loss(choir_forward(j->layers[2], choir_mul(h, mask)), j->y);
}

/* All micro-batches have the same data, so their losses are equal. */
static void a_mask_from_another_device(void **state)
{
    masked j = {.devices = {choir_device_find("cpu:0"), choir_device_find("cpu:1"),
                    choir_device_find("cpu:2")}};
    choir_scope *run = choir_scope_open(j.devices[0], 1);
    for (int i = 0; i < 3; i++)
        j.layers[i] = choir_nn_linear(run, i ? 8 : 4, i < 2 ? 8 : 3);
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = j.devices;
    opts.device_count = 3;
    opts.schedule = "gpipe";
    opts.cuts = "1,2";
    choir_module *pipe = choir_pipeline(
        run, choir_nn_sequential(run, j.layers[0], j.layers[1], j.layers[2]), opts);
    choir_optim *optim = choir_sgd(run, pipe, choir_sgd_defaults());
    for (int step = 0; step < STEPS; step++) {
        choir_scope *s = choir_step_open(run, (uint64_t)step);
        j.x = choir_randn(s, choir_dims(ROWS, 4), "x");
        j.y = choir_randn(s, choir_dims(ROWS, 3), "y");
        choir_check(choir_pipeline_step(pipe, s, MICROS, with_a_mask, &j, j.losses));
        for (int m = 1; m < MICROS; m++)
            assert_float_equal(choir_item(j.losses[m]), choir_item(j.losses[0]), 0);
        choir_check(choir_optim_step(optim));
        choir_check(choir_scope_close(s));
    }
    choir_check(choir_scope_close(run));
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "3", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_of_the_step),
        cmocka_unit_test(a_mask_from_another_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
