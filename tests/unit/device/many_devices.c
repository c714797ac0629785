/* One run over several devices: where results and gradients reside, whose memory and random
 * numbers they use, and the errors of each device. */
#include <stdlib.h>

#include "scopes_fixture.h"
#include "tensor/op.h"

enum { ROWS = 4, COLS = 64, N = ROWS * COLS };

static choir_device *device(int index)
{
    static const char *const names[] = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
    return choir_device_find(names[index]);
}

static size_t bytes_on(choir_device *d)
{
    choir_device_stats stats;
    choir_device_get_stats(d, &stats);
    return stats.bytes_now;
}

/* --- results that the forward pass is done with --- */

struct gradients {
    float x[N], w[COLS * COLS];
};

/* Runs a chain of ops on device d in a step of cpu:0; backward recomputes some of its
 * results. */
static struct gradients chain(choir_device *d, bool done)
{
    struct gradients g;
    choir_scope *micro = choir_micro_open(step, 0);
    choir_tensor *x = choir_require_grad(choir_randn(micro, choir_dims(ROWS, COLS), "x"));
    choir_tensor *w = choir_require_grad(choir_randn(micro, choir_dims(COLS, COLS), "w"));
    choir_tensor *x1 = choir_to(x, d), *w1 = choir_to(w, d), *h[4];
    h[0] = choir_linear(x1, w1, NULL);
    h[1] = choir_gelu(h[0]);
    h[2] = choir_rms_norm(h[1], NULL, 1e-5f);
    h[3] = choir_linear(h[2], w1, NULL);
    choir_tensor *y = choir_add(h[3], x1);
    size_t before = bytes_on(d);
    for (int i = 1; i < 4 && done; i++) {
        choir__done_with(h[i]);
        assert_null(h[i]->storage);
        assert_ptr_equal(choir_tensor_device(h[i]), d);
    }
    if (done) /* to the pool that it is from */
        assert_int_equal(bytes_on(d), before - 3 * N * sizeof(float));
    size_t here = bytes_on(device(0));
    choir_check(choir_backward(choir_sum(choir_tanh(y))));
    if (d != device(0)) /* the two gradients alone */
        assert_int_equal(bytes_on(device(0)), here + (N + COLS * COLS) * sizeof(float));
    choir_check(choir_read(choir_grad(x), g.x, sizeof g.x));
    choir_check(choir_read(choir_grad(w), g.w, sizeof g.w));
    choir_check(choir_scope_close(micro));
    return g;
}

static void done_with_elsewhere(void **state)
{
    struct gradients here = chain(device(0), false), with = chain(device(2), true),
                     without = chain(device(2), false);
    assert_memory_equal(&here, &with, sizeof here);
    assert_memory_equal(&here, &without, sizeof here);
}

/* --- random numbers --- */

/* Dropout of ones on d, in the given step of a run on cpu:0, forward and backward. */
static void drop(choir_scope *s, choir_device *d, float y[N], float g[N])
{
    choir_tensor *x = choir_require_grad(choir_full(s, CHOIR_F32, choir_dims(N), 1));
    choir_tensor *z = choir_dropout(choir_to(x, d), 0.5f, "drop");
    choir_check(choir_read(z, y, N * sizeof *y));
    choir_check(choir_backward(choir_sum(z)));
    choir_check(choir_read(choir_grad(x), g, N * sizeof *g));
}

static void one_mask_on_all_devices(void **state)
{
    static float y[4][3][N], g[4][3][N];
    for (int d = 0; d < 4; d++) {
        choir_scope *r = choir_scope_open(device(0), 7);
        for (int i = 0; i < 3; i++) {
            choir_scope *s = choir_step_open(r, (uint64_t)i);
            drop(s, device(d), y[d][i], g[d][i]);
            choir_check(choir_scope_close(s));
        }
        choir_check(choir_scope_close(r));
        assert_memory_equal(y[d], g[d], sizeof y[d]);
        assert_memory_equal(y[d], y[0], sizeof y[d]);
    }
    assert_memory_not_equal(y[0][0], y[0][1], sizeof y[0][0]);
    assert_memory_not_equal(y[0][1], y[0][2], sizeof y[0][1]);
}

/* --- errors --- */

static choir_scope *failing(choir_scope *r)
{
    static const int64_t ids[] = {0, 9};
    choir_scope *s = choir_step_open(r, 0);
    choir_tensor *table = choir_to(choir_full(s, CHOIR_F32, choir_dims(3, 2), 1), device(1));
    choir_embedding(table, choir_to(choir_from(s, CHOIR_I64, choir_dims(2), ids), device(1)));
    choir_device_sync(device(1));
    return s;
}

/* A kernel that fails on another device fails the run; after that the device works again. */
static void failures_elsewhere(void **state)
{
    choir_scope *r = choir_scope_open(device(0), 7), *s = failing(r);
    assert_fails(choir_scope_close(s), CHOIR_ERR_RANGE, "9");
    choir_scope_clear(r);
    chain(device(1), false);
    s = failing(r);
    choir_scope_close(s);
    assert_int_equal(choir_scope_close(r), CHOIR_ERR_RANGE);
    chain(device(1), false);
}

/* Batch norm updates its statistics in place, so they must be on x's device. */
static void statistics_elsewhere(void **state)
{
    choir_tensor *x = choir_to(choir_randn(step, choir_dims(8, 3), "x"), device(1));
    choir_tensor *mean = choir_zeros(step, CHOIR_F32, choir_dims(3)),
                 *var = choir_full(step, CHOIR_F32, choir_dims(3), 1);
    choir_tensor *y = choir_batch_norm(x, NULL, NULL, mean, var, true, 0.1f, 1e-5f);
    assert_true(y->poisoned);
    assert_fails(choir_scope_status(step), CHOIR_ERR_DEVICE, "cpu:1");
    assert_says("cpu:0");
    choir_scope_clear(step);
}

/* --- bytes that were moved --- */

static choir_status there_and_back(choir_scope *s, void *arg)
{
    choir_tensor *x = choir_full(s, CHOIR_F32, choir_dims(N), 1);
    choir_tensor *y = choir_to(choir_to(x, arg), s->device);
    choir_to(y, s->device); /* is there */
    return choir_scope_status(s);
}

static uint64_t moved(choir_device *d)
{
    choir_device_stats stats;
    choir_device_get_stats(d, &stats);
    return stats.bytes_moved;
}

/* Both devices of a copy count it, also in replayed steps. */
static void bytes_moved(void **state)
{
    choir_device *d[3] = {device(0), device(1), device(2)};
    uint64_t before[3] = {moved(d[0]), moved(d[1]), moved(d[2])};
    choir_scope *r = choir_scope_open(d[0], 7);
    choir__scope_uses(r, d[1]);
    for (int i = 0; i < 5; i++)
        choir_check(choir_step(r, there_and_back, d[1]));
    choir_check(choir_scope_close(r));
    assert_int_equal(moved(d[0]) - before[0], 5 * 2 * N * sizeof(float));
    assert_int_equal(moved(d[1]) - before[1], 5 * 2 * N * sizeof(float));
    assert_int_equal(moved(d[2]), before[2]);
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "4", 1); /* however few the cores */
    const struct CMUnitTest tests[] = {
        IN_SCOPES(done_with_elsewhere),
        IN_SCOPES(one_mask_on_all_devices),
        IN_SCOPES(failures_elsewhere),
        IN_SCOPES(statistics_elsewhere),
        IN_SCOPES(bytes_moved),
    };
    return cmocka_run_group_tests_name("many devices", tests, NULL, NULL);
}
