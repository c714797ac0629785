/* Dry devices: a user's own loop holds as many bytes as on a CPU device, step by
 * step; values cannot be read unless the program stands in for them; no memory is taken. */
#include <stdlib.h>
#include <sys/resource.h>

#include <choir/choir.h>

#include "check.h"

static choir_device *device_named(const char *name)
{
    choir_device *device = choir_device_find(name);
    assert_non_null(device);
    return device;
}

static choir_device_stats stats_of(choir_device *device)
{
    choir_device_stats stats;
    choir_device_get_stats(device, &stats);
    return stats;
}

/* --- a user's loop --- */

enum { STEPS = 5, WIDTH = 48, ROWS = 12 };

typedef struct user {
    choir_module *net;
    choir_optim *opt;
} user;

static choir_status step_body(choir_scope *step, void *arg)
{
    user *u = arg;
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(ROWS, WIDTH));
    choir_tensor *y = choir_forward(u->net, x);
    choir_status status = choir_backward(choir_mean(choir_mul(y, y)));
    return status == CHOIR_OK ? choir_optim_step(u->opt) : status;
}

/* Trains a small net by recorded steps, and notes bytes and peak after each. */
static void train_on(choir_device *device, size_t now[STEPS + 1], size_t peak[STEPS + 1])
{
    choir_device_reset_peak(device);
    choir_scope *run = choir_scope_open(device, 42);
    user u = {.net = choir_nn_sequential(run, choir_nn_linear(run, WIDTH, 2 * WIDTH),
                  choir_nn_relu(run), choir_nn_linear(run, 2 * WIDTH, 7))};
    u.opt = choir_adamw(run, u.net, choir_adamw_defaults());
    choir_optim_clip(u.opt, 1);
    for (int s = 0; s < STEPS; s++) {
        ok(choir_step(run, step_body, &u));
        now[s] = stats_of(device).bytes_now;
        peak[s] = stats_of(device).bytes_peak;
    }
    ok(choir_scope_close(run));
    now[STEPS] = stats_of(device).bytes_now;
    peak[STEPS] = stats_of(device).bytes_peak;
}

static void test_a_loop_holds_the_bytes_of_a_cpu(void **state)
{
    size_t now[2][STEPS + 1], peak[2][STEPS + 1];
    train_on(device_named("cpu:0"), now[0], peak[0]);
    train_on(device_named("dry:7"), now[1], peak[1]);
    for (int s = 0; s <= STEPS; s++) {
        assert_int_equal(now[0][s], now[1][s]);
        assert_int_equal(peak[0][s], peak[1][s]);
    }
    assert_true(peak[1][0] > 2 * WIDTH * WIDTH * sizeof(float));
    assert_int_equal(now[1][STEPS], 0);
}

/* --- gradients of several micro-batches --- */

/* Returns the most bytes of gradients that one step of M micro-batches holds. */
static size_t gradients_of(int m)
{
    enum { LAYERS = 96, SIDE = 512 }; /* a layer has 1 MiB, a bucket 25 MiB */
    choir_dry_counts counts;
    choir_device *dry = device_named("dry:2");
    ok(choir_dry_restart(dry));
    choir_scope *run = choir_scope_open(dry, 42);
    choir_module *layers[LAYERS];
    for (int i = 0; i < LAYERS; i++)
        layers[i] = choir_nn_linear(run, SIDE, SIDE);
    choir_module *net = choir_nn_sequential_n(run, layers, LAYERS);
    choir_optim *opt = choir_sgd(run, net, choir_sgd_defaults());
    choir_scope *step = choir_step_open(run, 0);
    for (int i = 0; i < m; i++) {
        choir_scope *micro = choir_micro_open(step, i);
        choir_tensor *x = choir_zeros(micro, CHOIR_F32, choir_dims(1, SIDE));
        ok(choir_backward(choir_mean(choir_forward(net, x))));
        ok(choir_scope_close(micro));
    }
    ok(choir_optim_step(opt));
    ok(choir_scope_close(step));
    ok(choir_dry_count(dry, &counts));
    ok(choir_scope_close(run));
    return counts.peak_gradients >> 20;
}

/* A micro-batch whose sibling waits is added bucket by bucket, so M of them take log2 M buffers
 * and a few buckets. */
static void test_micro_batches_hold_few_gradients(void **state)
{
    const size_t level = gradients_of(1), few = 2 * 27; /* buckets, with the pool's rounding */
    assert_in_range(level, 96, 104);
    assert_in_range(gradients_of(2), level, level + few);
    assert_in_range(gradients_of(4), 2 * level, 2 * level + few);
    assert_in_range(gradients_of(7), 3 * level, 3 * level + few); /* sums of 4, 2 and 1 */
    assert_in_range(gradients_of(8), 3 * level, 3 * level + few);
}

/* --- counts --- */

static void test_counts_are_those_of_the_textbook(void **state)
{
    choir_dry_counts counts;
    choir_device *dry = device_named("dry:1");
    choir_scope *run = choir_scope_open(dry, 1);
    choir_tensor *a = choir_zeros(run, CHOIR_F32, choir_dims(10, 20)),
                 *b = choir_zeros(run, CHOIR_F32, choir_dims(20, 30));
    ok(choir_dry_restart(dry));
    choir_tensor *c = choir_matmul(a, b);
    ok(choir_scope_status(run));
    ok(choir_dry_count(dry, &counts));
    assert_int_equal(choir_tensor_count(c), 300);
    assert_true(counts.flops == 2.0 * 10 * 20 * 30);
    assert_true(counts.traffic == 4.0 * (200 + 600 + 300));
    assert_int_equal(counts.launches, 1);
    assert_int_equal(counts.bytes_peak, stats_of(dry).bytes_peak);
    assert_int_equal(counts.bytes_peak, counts.peak_weights + counts.peak_gradients +
                                            counts.peak_optimizer + counts.peak_other);
    ok(choir_scope_close(run));
    assert_int_equal(stats_of(dry).bytes_now, 0);
}

/* --- parts --- */

typedef struct held {
    size_t sum, weight, moments, inside, between; /* bytes of all parts, and of some */
} held;

static void note_part(const choir_dry_part *part, void *arg)
{
    held *h = arg;
    const char *name = part->name ? part->name : "";
    h->sum += part->bytes;
    if (!strcmp(name, "0.weight"))
        *(!strcmp(part->kind, "parameters") ? &h->weight : &h->moments) += part->bytes;
    if (!strcmp(part->kind, "activations"))
        *(!strcmp(name, "0") || !strcmp(name, "1") || !strcmp(name, "2") ? &h->inside
                                                                         : &h->between) +=
            part->bytes;
}

/* The peak's parts have names: a parameter's, with its optimizer's state, and the module's that
 * made a result, also of gradients. */
static void test_the_peak_has_parts(void **state)
{
    enum { MANY = 4000 };
    held h = {0};
    choir_dry_counts counts;
    choir_device *dry = device_named("dry:3");
    choir_scope *run = choir_scope_open(dry, 42);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 64, 128), choir_nn_relu(run), choir_nn_linear(run, 128, 16));
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    for (int s = 0; s < 3; s++) {
        choir_scope *step = choir_step_open(run, s);
        choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(MANY, 64));
        ok(choir_backward(choir_mean(choir_forward(net, x))));
        ok(choir_optim_step(opt));
        ok(choir_scope_close(step));
    }
    ok(choir_dry_count(dry, &counts));
    ok(choir_dry_parts(dry, note_part, &h));
    assert_int_equal(h.sum, counts.bytes_peak);
    assert_int_equal(h.weight, 64 * 128 * sizeof(float));
    assert_int_equal(h.moments, 2 * h.weight);
    assert_int_equal(counts.peak_other,
        counts.peak_activations + counts.peak_workspace + counts.peak_messages);
    assert_int_equal(h.inside + h.between, counts.peak_activations);
    assert_true(h.inside > MANY * 2 * 128 * sizeof(float)); /* a layer's result and gradient */
    assert_true(h.between >= MANY * 64 * sizeof(float) && h.between < h.inside); /* the batch */
    ok(choir_scope_close(run));
    assert_fails(choir_dry_parts(dry, NULL, NULL), CHOIR_ERR_ARGUMENT, "function");
}

/* --- values --- */

static void test_values_are_stand_ins_or_errors(void **state)
{
    float values[3];
    choir_device *dry = device_named("dry:2");
    choir_scope *run = choir_scope_open(dry, 1);
    choir_tensor *t = choir_full(run, CHOIR_F32, choir_dims(3), 5),
                 *one = choir_full(run, CHOIR_BF16, CHOIR_SCALAR, 5);
    assert_fails(choir_read(t, values, sizeof values), CHOIR_ERR_STATE,
        "choir_read: dry:2 computes no values");
    ok(choir_write(t, values, sizeof values));
    ok(choir_dry_stand_in(dry, 2.5));
    ok(choir_read(t, values, sizeof values));
    for (int i = 0; i < 3; i++)
        assert_true(values[i] == 2.5f);
    assert_true(choir_item(one) == 2.5);
    ok(choir_scope_close(run));
}

static void test_other_devices_are_refused(void **state)
{
    choir_dry_counts counts;
    choir_device *cpu = device_named("cpu:0");
    assert_false(choir_device_is_dry(cpu));
    assert_true(choir_device_is_dry(device_named("dry:0")));
    assert_fails(
        choir_dry_stand_in(cpu, 1), CHOIR_ERR_ARGUMENT, "expected a dry device, got cpu:0");
    assert_fails(choir_dry_count(cpu, &counts), CHOIR_ERR_ARGUMENT, "got cpu:0");
    assert_fails(choir_dry_count(device_named("dry:0"), NULL), CHOIR_ERR_ARGUMENT, "counts");
    assert_fails(choir_dry_restart(NULL), CHOIR_ERR_ARGUMENT, "device");
    assert_null(choir_device_find("dry:-1"));
    assert_says("no device 'dry:-1'");
}

/* A tensor of a tebibyte in a process that may not have a hundredth of it. */
static void test_memory_is_not_taken(void **state)
{
    struct rlimit before, small;
    choir_device *dry = device_named("dry:3");
    choir_scope *run = choir_scope_open(dry, 1);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    small = before;
/* Sanitizers take terabytes of addresses themselves. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    small.rlim_cur = (rlim_t)4 << 30;
#endif
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    choir_tensor *t = choir_zeros(run, CHOIR_F32, choir_dims((int64_t)1 << 20, 1 << 18));
    choir_status status = choir_scope_status(run);
    (void)!setrlimit(RLIMIT_AS, &before);
    ok(status);
    assert_int_equal(choir_tensor_count(t), (int64_t)1 << 38);
    assert_true(stats_of(dry).bytes_now >= (size_t)1 << 40);
    ok(choir_scope_close(run));
}

/* The limit holds as on other devices. */
static void test_the_limit_holds(void **state)
{
    choir_device *dry = device_named("dry:4");
    choir_device_set_limit(dry, 1 << 20);
    choir_scope *run = choir_scope_open(dry, 1);
    choir_zeros(run, CHOIR_F32, choir_dims(1 << 20));
    assert_fails(choir_scope_status(run), CHOIR_ERR_MEMORY, "dry:4");
    (void)!choir_scope_close(run);
    choir_device_set_limit(dry, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_loop_holds_the_bytes_of_a_cpu),
        cmocka_unit_test(test_micro_batches_hold_few_gradients),
        cmocka_unit_test(test_counts_are_those_of_the_textbook),
        cmocka_unit_test(test_the_peak_has_parts),
        cmocka_unit_test(test_values_are_stand_ins_or_errors),
        cmocka_unit_test(test_other_devices_are_refused),
        cmocka_unit_test(test_memory_is_not_taken),
        cmocka_unit_test(test_the_limit_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
