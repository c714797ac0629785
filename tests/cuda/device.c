/* The CUDA device through its interface: transfers of values, figures, errors and their
 * messages, recorded steps as graphs. The tests run on a GPU or on the soft one
 * (tests/softgpu); only the soft one can be made to fail. */
#include <dlfcn.h>
#include <stdlib.h>

#include <choir/choir.h>

#include "check.h"
#include "device/far.h"
#include "softgpu/fail.h"
#include "tensor/tensor.h"

static choir_device *first, *second, *host;

static int devices(void **state)
{
    setenv("CHOIR_CUDA_DEVICES", "4", 1);
    first = choir_device_find("cuda:0");
    second = choir_device_find("cuda:1");
    host = choir_device_find("cpu:0");
    if (!first)
        print_message("%s\n", choir_error_message());
    return first && second && host ? 0 : -1;
}

/* Returns the soft GPU's function of that name; on a real GPU the test is skipped. */
static void *soft(const char *name)
{
    void *fn = dlsym(RTLD_DEFAULT, name);
    if (!fn) { /* plug-ins are loaded for themselves */
        void *library = dlopen("libsoftgpu.so", RTLD_NOW | RTLD_NOLOAD);
        fn = library ? dlsym(library, name) : NULL;
    }
    if (!fn)
        skip();
    return fn;
}

static void fail_next(softgpu_call call, int n)
{
    void (*fn)(softgpu_call, int);
    *(void **)&fn = soft("softgpu_fail_next");
    fn(call, n);
}

static void heal(choir_device *device)
{
    void (*fn)(void);
    *(void **)&fn = soft("softgpu_heal");
    fn();
    choir__queue_clear(device->queue);
}

/* --- values --- */

/* Values travel over host, GPU, another device on it and a CPU, and change layout and type on
 * the way. */
static void values_travel(void **state)
{
    enum { N = 5, M = 7 };
    float x[N * M], y[N * M];
    for (int i = 0; i < N * M; i++)
        x[i] = (float)i - 11.5f;
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *t = choir_from(run, CHOIR_F32, choir_dims(N, M), x);
    t = choir_to(choir_transpose(choir_to(t, second), 0, 1), host);
    t = choir_to(choir_transpose(choir_to(choir_cast(t, CHOIR_F64), first), 0, 1), second);
    ok(choir_read(choir_cast(t, CHOIR_F32), y, sizeof y));
    assert_memory_equal(x, y, sizeof x);
    assert_true(choir_item(choir_sum(choir_to(t, first))) == 192.5);
    ok(choir_scope_close(run));
}

/* More than one pinned piece, from memory that goes as soon as choir_write returns. */
static void large_values_travel(void **state)
{
    enum { N = 3 << 20 };
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    for (int i = 0; i < N; i++)
        x[i] = (float)(i % 1001);
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *t = choir_from(run, CHOIR_F32, choir_dims(N), x);
    memset(x, 0, N * sizeof *x);
    ok(choir_read(t, y, N * sizeof *y));
    for (int i = 0; i < N; i++)
        assert_true(y[i] == (float)(i % 1001));
    ok(choir_scope_close(run));
    free(x);
    free(y);
}

static void memory_is_far(void **state)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *t = choir_from(run, CHOIR_F32, choir_dims(4), x);
    ok(choir_device_sync(first));
    const choir__far *far = choir__far_of(choir__data(t));
    assert_ptr_equal(far, first->far);
    assert_null(choir__far_of(x));
    ok(far->get(y, choir__data(t), sizeof y));
    assert_memory_equal(x, y, sizeof x);
    ok(choir_scope_close(run));
}

static void figures(void **state)
{
    choir_device_stats before, after;
    choir_device_get_stats(first, &before);
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *x = choir_randn(run, choir_dims(64, 64), "x");
    ok(choir_device_sync(first));
    (void)choir_item(choir_sum(choir_matmul(x, x)));
    choir_device_get_stats(first, &after);
    assert_true(after.bytes_now >= before.bytes_now + 2 * 64 * 64 * 4);
    assert_true(after.bytes_peak >= after.bytes_now && after.busy_s > before.busy_s);
    assert_true(after.tasks > before.tasks && after.queue_depth == 0);
    ok(choir_scope_close(run));
}

/* --- what goes wrong --- */

static void mixing_devices(void **state)
{
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *x = choir_zeros(run, CHOIR_F32, choir_dims(4, 4));
    choir_matmul(x, choir_to(x, host));
    assert_fails(choir_scope_status(run), CHOIR_ERR_DEVICE,
        "operand 0 is on cuda:0, operand 1 on cpu:0; choir_to moves one");
    choir_scope_close(run);
}

static void out_of_memory(void **state)
{
    choir_scope *run = choir_scope_open(first, 1);
    choir_zeros(run, CHOIR_F32, choir_dims(1 << 20, 1 << 20));
    assert_fails(choir_scope_status(run), CHOIR_ERR_MEMORY,
        "out of memory on cuda:0 for f32 (1048576, 1048576), 4398046511104 bytes");
    assert_says("GiB this process has");
    choir_scope_close(run);
    run = choir_scope_open(first, 1); /* the next run has enough memory */
    assert_true(choir_item(choir_sum(choir_full(run, CHOIR_F32, choir_dims(3), 2))) == 6);
    ok(choir_scope_close(run));
}

static void an_id_out_of_range(void **state)
{
    int64_t ids[3] = {0, 9, 1};
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *table = choir_zeros(run, CHOIR_F32, choir_dims(5, 4));
    choir_embedding(table, choir_from(run, CHOIR_I64, choir_dims(3), ids));
    assert_int_not_equal(choir_device_sync(first), CHOIR_OK);
    assert_says("cuda:0: ");
    assert_says("id 9");
    assert_says("[0, 5)");
    choir__queue_clear(first->queue);
    choir_scope_close(run);
}

static void ignore(void *arg, choir__queue_task *fn, const void *args, double start, double end)
{
}

/* While an observer is set, the queue waits for each task; the wait's error is reported as
 * well. */
static void a_fault_is_told_to_who_watches(void **state)
{
    choir__queue_observe(first->queue, ignore, NULL);
    an_id_out_of_range(state);
    choir__queue_observe(first->queue, NULL, NULL);
}

/* A CPU device that waits for a value that the broken stream never made does not continue, and
 * the stream's figures stay sensible. */
static void assert_broken_for(choir_device *other)
{
    choir_device_stats stats;
    choir__event made = choir__queue_record(first->queue);
    while (!choir__event_done(made))
        ;
    choir__queue_wait_event(other->queue, made);
    assert_fails(
        choir_device_sync(other), CHOIR_ERR_DEVICE, "cuda:0: softmax 12x5 failed on GPU 0: ");
    choir__queue_clear(other->queue);
    choir_device_get_stats(first, &stats);
    assert_true(stats.queue_depth < 1000 && stats.tasks < 1 << 30);
}

/* The GPU runs all its tasks to the end; the first fault is reported. */
static void kernels_that_fail_are_named(void **state)
{
    soft("softgpu_heal");
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *x = choir_zeros(run, CHOIR_F32, choir_dims(12, 5));
    ok(choir_device_sync(first));
    fail_next(SOFTGPU_FAIL_KERNEL, 2);
    choir_softmax(choir_relu(x));
    choir_relu(x);
    assert_broken_for(host);
    assert_fails(
        choir_device_sync(first), CHOIR_ERR_DEVICE, "cuda:0: softmax 12x5 failed on GPU 0: ");
    heal(first);
    fail_next(SOFTGPU_FAIL_LAUNCH, 1); /* refused at once */
    choir_relu(x);
    assert_fails(choir_device_sync(first), CHOIR_ERR_DEVICE, "cuda:0: unary of 60: ");
    heal(first);
    choir_scope_close(run);
}

/* Libraries try calls that fail, and CUDA keeps the error for its next reader. */
static void errors_of_libraries_blame_no_task(void **state)
{
    soft("softgpu_heal");
    choir_scope *run = choir_scope_open(first, 1);
    choir_tensor *x = choir_full(run, CHOIR_F32, choir_dims(4, 4), 1);
    ok(choir_device_sync(first));
    fail_next(SOFTGPU_FAIL_STRAY, 1);
    choir_tensor *y = choir_relu(choir_matmul(x, x));
    assert_true(choir_item(choir_sum(y)) == 64);
    fail_next(SOFTGPU_FAIL_STRAY, 1); /* a launch's own error is found beside it */
    choir_matmul(x, x);
    fail_next(SOFTGPU_FAIL_LAUNCH, 1);
    choir_relu(x);
    assert_fails(choir_device_sync(first), CHOIR_ERR_DEVICE, "cuda:0: unary of 16: ");
    heal(first);
    choir_scope_close(run);
}

/* Waits spin, unless this machine's ranks outnumber the cores. */
static void waits_sleep_in_a_crowd(void **state)
{
    unsigned (*events)(void);
    *(void **)&events = soft("softgpu_blocking_events");
    assert_int_equal(events(), 0);
    assert_non_null(choir_device_find("cuda:2"));
    assert_int_equal(events(), 0);
    setenv("LOCAL_WORLD_SIZE", "1000000", 1);
    assert_non_null(choir_device_find("cuda:3"));
    assert_int_not_equal(events(), 0);
    unsetenv("LOCAL_WORLD_SIZE");
    choir_scope *run = choir_scope_open(choir_device_find("cuda:3"), 1);
    assert_true(choir_item(choir_sum(choir_full(run, CHOIR_F32, choir_dims(3), 2))) == 6);
    ok(choir_scope_close(run));
}

/* Only memory that CUDA has not got back can be shown. */
static bool is_there(const char *at)
{
    choir__far_handle handle;
    size_t offset;
    bool there = first->far->show(at, &handle, &offset) == CHOIR_OK;
    if (there)
        first->far->hide(at);
    return there;
}

/* Memory that another process may have open stays, also when its pool has given it back. */
static void shown_memory_stays(void **state)
{
    const choir__far *far = first->far;
    choir__far_handle handle;
    size_t offset;
    choir__pool_block *block = choir__block_new(first, 3 << 20);
    char *at = choir__block_data(block);
    ok(far->show(at, &handle, &offset));
    ok(far->show(at + 5, &handle, &offset));
    assert_int_equal(offset, 5);
    choir__block_free(block);
    choir__pool_trim(first);
    assert_true(is_there(at));
    far->hide(at);
    assert_true(is_there(at));
    far->hide(at + 5);
    assert_false(is_there(at));
    block = choir__block_new(first, 3 << 20); /* hidden before it is given back */
    at = choir__block_data(block);
    ok(far->show(at, &handle, &offset));
    far->hide(at);
    assert_true(is_there(at));
    choir__block_free(block);
    choir__pool_trim(first);
    assert_false(is_there(at));
}

static void a_process_with_gpus_does_not_fork(void **state)
{
    assert_fails(choir_spawn(2, NULL, NULL), CHOIR_ERR_STATE, "spawn ranks first");
}

/* --- recorded steps --- */

struct job {
    choir_module *net, *rest; /* rest: on the second device; NULL: there is none */
    choir_optim *optim;
    choir_tensor *x, *loss;
};

static choir_status train(choir_scope *step, void *arg)
{
    struct job *j = arg;
    choir_tensor *y = choir_forward(j->net, choir_in(step, j->x));
    if (j->rest)
        y = choir_to(choir_forward(j->rest, choir_to(y, second)), first);
    j->loss = choir_keep(j->x->scope, choir_mean(choir_square(y)));
    choir_status status = choir_backward(choir_mean(choir_square(y)));
    return status == CHOIR_OK ? choir_optim_step(j->optim) : status;
}

static choir_module *network(choir_scope *run, int in)
{
    return choir_nn_sequential(run, choir_nn_linear(run, in, 16), choir_nn_relu(run),
        choir_nn_dropout(run, 0.2f), choir_nn_linear(run, 16, 3));
}

/* Returns the loss after `steps` steps of a network, or of two in sequence on two devices.
 * fails: the call that fails at the first capture; turn: which of these calls. */
static double loss_of(bool two, int steps, bool recorded, int fails, int turn)
{
    choir_scope *run = choir_scope_open(first, 3);
    struct job j = {.x = choir_randn(run, choir_dims(8, 6), "x")};
    j.net = network(run, 6);
    j.rest = two ? network(run, 3) : NULL;
    if (two)
        ok(choir_module_to(j.rest, second));
    choir_adamw_opts opts = choir_adamw_defaults();
    opts.lr = 0.05f;
    j.optim = choir_adamw(run, two ? choir_nn_sequential(run, j.net, j.rest) : j.net, opts);
    for (int i = 0; i < steps; i++) {
        if (i == 3 && fails >= 0)
            fail_next((softgpu_call)fails, turn);
        choir_scope *step = recorded ? NULL : choir_step_open(run, (uint64_t)i);
        ok(recorded ? choir_step(run, train, &j) : train(step, &j));
        ok(recorded ? CHOIR_OK : choir_scope_close(step));
    }
    double loss = choir_item(j.loss);
    ok(choir_scope_close(run));
    return loss;
}

static double loss_after(int steps, bool recorded, int fails)
{
    return loss_of(false, steps, recorded, fails, 1);
}

static void replays_have_the_same_bits(void **state)
{
    assert_true(loss_after(8, true, -1) == loss_after(8, false, -1));
    assert_true(loss_of(true, 8, true, -1, 1) == loss_of(true, 8, false, -1, 1));
}

static void what_is_not_captured_is_issued(void **state)
{
    soft("softgpu_heal"); /* else it is skipped */
    double loss = loss_after(8, false, -1);
    assert_true(loss_after(8, true, SOFTGPU_FAIL_CAPTURE) == loss);
    assert_true(loss_after(8, true, SOFTGPU_FAIL_GRAPH) == loss);
    assert_true(loss_after(8, true, SOFTGPU_FAIL_PRODUCT) == loss);
    loss = loss_of(true, 8, false, -1, 1);
    for (int turn = 1; turn <= 12; turn++) /* some are a stream's that joins the capture */
        assert_true(loss_of(true, 8, true, SOFTGPU_FAIL_WAIT, turn) == loss);
    fail_next(SOFTGPU_FAIL_WAIT, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(values_travel),
        cmocka_unit_test(large_values_travel), cmocka_unit_test(memory_is_far),
        cmocka_unit_test(figures), cmocka_unit_test(mixing_devices),
        cmocka_unit_test(out_of_memory), cmocka_unit_test(an_id_out_of_range),
        cmocka_unit_test(a_process_with_gpus_does_not_fork),
        cmocka_unit_test(replays_have_the_same_bits),
        cmocka_unit_test(what_is_not_captured_is_issued),
        cmocka_unit_test(a_fault_is_told_to_who_watches),
        cmocka_unit_test(errors_of_libraries_blame_no_task),
        cmocka_unit_test(waits_sleep_in_a_crowd), cmocka_unit_test(shown_memory_stays),
        cmocka_unit_test(kernels_that_fail_are_named)};
    return cmocka_run_group_tests(tests, devices, NULL);
}
