/* The caching pool: size classes, reuse, the limit, readers in other queues, and statistics. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "device/device.h"
#include "tensor/tensor.h"

static choir_device *cpu0, *cpu1;

static int find_devices(void **state)
{
    setenv("CHOIR_CPU_DEVICES", "4", 1);
    cpu0 = choir_device_find("cpu:0");
    cpu1 = choir_device_find("cpu:1");
    return !cpu0 || !cpu1;
}

static choir_device_stats stats_of(choir_device *device)
{
    choir_device_stats stats;
    choir_device_get_stats(device, &stats);
    return stats;
}

static void test_size_classes(void **state)
{
    for (size_t bytes = 0; bytes < 3 << 20;
         bytes = bytes < 200 ? bytes + 1 : bytes * 9 / 8 + 13) {
        size_t before = stats_of(cpu0).bytes_now;
        choir__pool_block *block = choir__block_new(cpu0, bytes);
        assert_non_null(block);
        size_t taken = stats_of(cpu0).bytes_now - before;
        assert_true(taken >= bytes && taken >= 64);
        assert_true(bytes <= 64 || taken <= bytes + bytes / 4 + 16); /* 25 % over, at most */
        assert_int_equal((uintptr_t)choir__block_data(block) % 64, 0);
        memset(choir__block_data(block), 1, bytes);
        choir__block_free(block);
        assert_int_equal(stats_of(cpu0).bytes_now, before);
    }
    assert_null(choir__block_new(cpu0, SIZE_MAX));
    assert_null(choir__block_new(cpu0, SIZE_MAX / 2));
    choir__block_free(NULL);
}

/* Blocks, charges and the memory of a training are counted by their kind. */
static void test_kinds(void **state)
{
    choir_device_stats before = stats_of(cpu0);
    choir__pool_block *block = choir__block_new(cpu0, 4096);
    choir__block_holds(block, CHOIR__MEMORY_WEIGHTS);
    assert_int_equal(stats_of(cpu0).bytes_weights, before.bytes_weights + 4096);
    choir__block_holds(block, CHOIR__MEMORY_OPTIMIZER);
    assert_int_equal(stats_of(cpu0).bytes_weights, before.bytes_weights);
    assert_int_equal(stats_of(cpu0).bytes_optimizer, before.bytes_optimizer + 4096);
    assert_int_equal(stats_of(cpu0).bytes_now, before.bytes_now + 4096);
    choir__block_free(block);
    block = choir__block_new(cpu0, 4096); /* the same one, which holds something else now */
    assert_int_equal(stats_of(cpu0).bytes_optimizer, before.bytes_optimizer);
    choir__block_free(block);
    assert_true(choir__pool_charge(cpu0, 1000, CHOIR__MEMORY_GRADIENTS, NULL));
    assert_int_equal(stats_of(cpu0).bytes_gradients, before.bytes_gradients + 1000);
    assert_true(choir__pool_charge(cpu0, -1000, CHOIR__MEMORY_GRADIENTS, NULL));

    choir_scope *run = choir_scope_open(cpu0, 1);
    choir_module *net = choir_nn_linear(run, 1024, 64);
    choir_optim *opt = choir_adamw(run, net, choir_adamw_defaults());
    size_t parameters = 4 * (1024 * 64 + 64);
    for (int64_t step = 0; step < 2; step++) {
        choir_scope *s = choir_step_open(run, step);
        choir_tensor *y =
            choir_forward(net, choir_full(s, CHOIR_F32, choir_dims(8, 1024), 0.5));
        ok(choir_backward(choir_mean(choir_mul(y, y))));
        ok(choir_optim_step(opt));
        ok(choir_scope_close(s));
    }
    choir_device_stats now = stats_of(cpu0);
    size_t weights = now.bytes_weights - before.bytes_weights;
    assert_true(weights >= parameters && weights < parameters * 5 / 4 + 128);
    size_t moments = now.bytes_optimizer - before.bytes_optimizer;
    assert_true(moments >= 2 * parameters && moments < parameters * 5 / 2 + 256);
    assert_true(now.bytes_gradients - before.bytes_gradients >= parameters);
    ok(choir_scope_close(run));
    now = stats_of(cpu0);
    assert_int_equal(now.bytes_weights, before.bytes_weights);
    assert_int_equal(now.bytes_gradients, before.bytes_gradients);
    assert_int_equal(now.bytes_optimizer, before.bytes_optimizer);
}

static void test_reuse(void **state)
{
    choir__pool_block *a = choir__block_new(cpu0, 5000), *b = choir__block_new(cpu0, 5000);
    void *pa = choir__block_data(a), *pb = choir__block_data(b);
    assert_ptr_not_equal(pa, pb);
    choir__block_free(a);
    choir__block_free(b);
    size_t reserved = stats_of(cpu0).bytes_reserved;
    a = choir__block_new(cpu0, 4990); /* the same class; the last one freed comes first */
    b = choir__block_new(cpu0, 5000);
    assert_ptr_equal(choir__block_data(a), pb);
    assert_ptr_equal(choir__block_data(b), pa);
    assert_int_equal(stats_of(cpu0).bytes_reserved, reserved);
    choir__block_free(a);
    choir__block_free(b);
}

/* From 1 MiB on, a block is at most 6 % larger than the request. It also serves somewhat
 * smaller requests, which count by their own class. */
static void test_large(void **state)
{
    choir_device *fresh = choir_device_find("cpu:1");
    size_t asked = 9 << 20,
           now = stats_of(fresh).bytes_now; /* 64 KiB over a class of an octave */
    for (size_t bytes = 1 << 20; bytes < 200u << 20; bytes += bytes / 7 + 4096) {
        assert_true(choir__block_size(bytes) >= bytes);
        assert_true(choir__block_size(bytes) <= bytes + bytes / 16 + 1);
    }
    choir__pool_block *a = choir__block_new(fresh, asked);
    assert_int_equal(stats_of(fresh).bytes_now, now + asked);
    void *at = choir__block_data(a);
    size_t reserved = stats_of(fresh).bytes_reserved;
    choir__block_free(a);
    a = choir__block_new(fresh, asked - asked / 8);
    assert_ptr_equal(choir__block_data(a), at);
    assert_int_equal(stats_of(fresh).bytes_now, now + choir__block_size(asked - asked / 8));
    choir__pool_block *b =
        choir__block_new(fresh, asked / 2); /* for which the block is too large */
    assert_true(stats_of(fresh).bytes_reserved > reserved);
    choir__block_free(a);
    choir__block_free(b);
    assert_int_equal(stats_of(fresh).bytes_now, now);
}

static void test_peak(void **state)
{
    choir_device_reset_peak(cpu0);
    size_t now = stats_of(cpu0).bytes_now;
    assert_int_equal(stats_of(cpu0).bytes_peak, now);
    choir__block_free(choir__block_new(cpu0, 1 << 20));
    assert_int_equal(stats_of(cpu0).bytes_now, now);
    assert_int_equal(stats_of(cpu0).bytes_peak, now + (1 << 20));
    choir_device_reset_peak(cpu0);
    assert_int_equal(stats_of(cpu0).bytes_peak, now);
}

/* --- the cap --- */

static void test_cap(void **state)
{
    choir_device *fresh = choir_device_find("cpu:2"); /* with nothing cached */
    choir_scope *run = choir_scope_open(fresh, 1);
    size_t cap = stats_of(fresh).bytes_now + (3 << 20);
    choir_device_set_limit(fresh, cap);
    assert_int_equal(stats_of(fresh).bytes_limit, cap);
    choir_scope *step = choir_step_open(run, 0);
    choir_tensor *small = choir_zeros(step, CHOIR_F32, choir_dims(1 << 18));
    ok(choir_scope_status(step));
    choir_zeros(step, CHOIR_F32, choir_dims(3, 1 << 18));
    assert_int_equal(choir_scope_status(step), CHOIR_ERR_MEMORY);
    const char *message = choir_error_message();
    assert_non_null(strstr(message, choir_device_name(fresh)));
    assert_non_null(strstr(message, "3145728 bytes"));
    assert_non_null(strstr(message, "(3, 262144)"));
    choir_scope_clear(step);
    assert_true(choir_item(choir_sum(small)) == 0);
    ok(choir_scope_close(step));
    step = choir_step_open(run, 1); /* the cached blocks of other classes make room for it */
    choir_zeros(step, CHOIR_F32, choir_dims(10 << 16));
    ok(choir_scope_close(step));
    assert_true(stats_of(fresh).bytes_reserved <= cap);
    choir_device_set_limit(fresh, 0);
    ok(choir_scope_close(run));
}

static void slow(const void *args)
{
    usleep(50000);
}

static void test_cap_waits_for_readers(void **state)
{
    choir_device *fresh = choir_device_find("cpu:3");
    choir_scope *run = choir_scope_open(fresh, 1), *step = choir_step_open(run, 0);
    choir_tensor *x = choir_zeros(step, CHOIR_F32, choir_dims(1 << 18));
    choir__queue_issue(cpu1->queue, slow, NULL, 0);
    choir_to(x, cpu1);
    ok(choir_scope_close(step)); /* x goes once cpu:1 has read it */
    choir_device_set_limit(fresh, stats_of(fresh).bytes_now + (3 << 19));
    step = choir_step_open(run, 1);
    choir_zeros(step, CHOIR_F32, choir_dims(5 << 16));
    choir_status status = choir_scope_close(step);
    choir_device_set_limit(fresh, 0);
    choir_scope_close(run);
    ok(choir_device_sync(cpu1));
    ok(status);
}

/* Takes 4 MiB and, once they are free, 1 MiB. */
static choir_status large_then_small(choir_scope *step, void *device)
{
    for (size_t bytes = 4 << 20; bytes >= 1 << 20; bytes /= 4) {
        choir__pool_block *block = choir__block_new(device, bytes);
        if (!block)
            return CHOIR_ERR_MEMORY;
        choir__block_free(block);
    }
    return CHOIR_OK;
}

/* A recording keeps its blocks: where there is no room for another one, a larger one serves. */
static void test_cap_of_recordings(void **state)
{
    choir_device *fresh = choir_device_find("cpu:2");
    choir_scope *run = choir_scope_open(fresh, 1);
    choir_device_set_limit(fresh, stats_of(fresh).bytes_now + (9 << 19));
    choir_status status = CHOIR_OK;
    for (int i = 0; i < 3 && status == CHOIR_OK; i++)
        status = choir_step(run, large_then_small, fresh);
    choir_device_set_limit(fresh, 0);
    ok(status);
    ok(choir_scope_close(run));
}

/* --- readers in other queues --- */

static void test_readers_delay_reuse(void **state)
{
    choir__pool_block *a = choir__block_new(cpu0, 7777);
    void *p = choir__block_data(a);
    choir__queue_issue(cpu1->queue, slow, NULL, 0);
    choir__block_used_by(a, choir__queue_record(cpu1->queue));
    choir__block_free(a);
    choir__pool_block *b = choir__block_new(cpu0, 7777); /* cpu:1 is still reading a */
    assert_ptr_not_equal(choir__block_data(b), p);
    ok(choir_device_sync(cpu1));
    choir__pool_block *c = choir__block_new(cpu0, 7777);
    assert_ptr_equal(choir__block_data(c), p);
    choir__block_free(b);
    choir__block_free(c);
}

static void test_moves_between_devices(void **state)
{
    choir_scope *run = choir_scope_open(cpu0, 1);
    for (int i = 0; i < 300;
         i++) { /* a block reused too early would show another step's number */
        choir_scope *step = choir_step_open(run, (uint64_t)i);
        choir_tensor *x = choir_full(step, CHOIR_F32, choir_dims(3000), i);
        choir_tensor *there = choir_to(x, cpu1), *back = choir_to(choir_scale(there, 2), cpu0);
        choir_tensor *kept = i % 10 == 0 ? choir_keep(run, choir_mean(back)) : NULL;
        ok(choir_scope_close(step));
        if (kept)
            assert_true(choir_item(kept) == 2.0 * i);
    }
    ok(choir_scope_close(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_size_classes),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_peak),
        cmocka_unit_test(test_cap),
        cmocka_unit_test(test_cap_waits_for_readers),
        cmocka_unit_test(test_cap_of_recordings),
        cmocka_unit_test(test_readers_delay_reuse),
        cmocka_unit_test(test_moves_between_devices),
    };
    return cmocka_run_group_tests(tests, find_devices, NULL);
}
