/* Prices of kernels: by data sheets, and between the samples of a measured table. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "base/base.h"
#include "device/kernels.h"
#include "forecast/costs.h"

enum {
#define X(name) KERNEL_##name,
    CHOIR__KERNEL_LIST(X)
#undef X
};

static choir__step_entry entry_of(int id, choir_dtype dtype, double flops, double bytes)
{
    choir__step_entry e = {.kind = CHOIR__ENTRY_KERNEL};
    e.as.kernel.id = id;
    e.as.kernel.dtype = dtype;
    e.as.kernel.flops = flops;
    e.as.kernel.bytes = bytes;
    return e;
}

static void near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * expected))
        fail_msg("expected %g, got %g", expected, got);
}

static void test_data_sheet(void **state)
{
    choir__device_model d;
    bool measured = true;
    ok(choir__device_preset("H100", &d));
    choir__step_entry e = entry_of(KERNEL_matmul, CHOIR_BF16, 1e13, 1e6);
    near(choir__kernel_seconds(&d, NULL, &e, &measured, NULL), 1e13 / (989.4e12 * 0.69));
    assert_false(measured);
    e = entry_of(KERNEL_matmul, CHOIR_F32, 1e13, 1e6); /* as TF32 */
    near(choir__kernel_seconds(&d, NULL, &e, NULL, NULL), 1e13 / (494.7e12 * 0.69));
    e = entry_of(KERNEL_attention, CHOIR_BF16, 1e13, 1e6);
    near(choir__kernel_seconds(&d, NULL, &e, NULL, NULL), 1e13 / (989.4e12 * 0.5));
    e = entry_of(KERNEL_unary, CHOIR_BF16, 0, 1e9);
    near(choir__kernel_seconds(&d, NULL, &e, NULL, NULL), 1e9 / (3350e9 * 0.9));
    e = entry_of(KERNEL_unary, CHOIR_BF16, 0, 10);
    near(choir__kernel_seconds(&d, NULL, &e, NULL, NULL), 3e-6);
}

static void add(choir__costs *costs, int kernel, double size, const int64_t *dims,
    double seconds, double spread)
{
    choir__cost_call call = {kernel, CHOIR_F32, size, size, {0}};
    if (dims)
        memcpy(call.dims, dims, sizeof call.dims);
    choir__costs_append(costs, &call, seconds, spread);
    choir__costs_sort(costs);
}

static void test_table(void **state)
{
    choir__costs costs = {.row_count = 0};
    choir__device_model d;
    bool measured;
    double spread;
    ok(choir__device_preset("cpu", &d));
    add(&costs, KERNEL_unary, 1e6, NULL, 1e-3, 0.02);
    add(&costs, KERNEL_unary, 1e4, NULL, 1e-5, 0.02);
    add(&costs, KERNEL_unary, 1e5, NULL, 4e-5, 0.02);
    const struct {
        double bytes, seconds;
    } rows[] = {{1, 1e-5}, {1e4, 1e-5}, {31622.7766016838, 2e-5}, {1e5, 4e-5}, {1e6, 1e-3},
        {5e6, 5e-3}};
    for (size_t i = 0; i < CHOIR_COUNT(rows); i++) {
        choir__step_entry e = entry_of(KERNEL_unary, CHOIR_F32, 0, rows[i].bytes);
        near(choir__kernel_seconds(&d, &costs, &e, &measured, &spread), rows[i].seconds);
        assert_true(measured && spread == 0.02);
    }
    /* Products: by FLOPs, in the row of the nearest form. */
    const int64_t thin[] = {1, 2, 1000, 1000}, square[] = {1, 512, 512, 512};
    add(&costs, KERNEL_matmul, 1e6, thin, 3e-4, 0);
    add(&costs, KERNEL_matmul, 1e6, square, 1e-5, 0);
    choir__step_entry e = entry_of(KERNEL_matmul, CHOIR_F32, 1e6, 1e6);
    memcpy(e.as.kernel.dims, (int64_t[]){1, 3, 400, 400}, sizeof e.as.kernel.dims);
    near(choir__kernel_seconds(&d, &costs, &e, NULL, NULL), 3e-4);
    memcpy(e.as.kernel.dims, (int64_t[]){1, 300, 400, 400}, sizeof e.as.kernel.dims);
    near(choir__kernel_seconds(&d, &costs, &e, NULL, NULL), 1e-5);
    e = entry_of(KERNEL_adam, CHOIR_F32, 0, 1e6); /* not in the table */
    choir__kernel_seconds(&d, &costs, &e, &measured, NULL);
    assert_false(measured);
    /* An equal call counts before its neighbours, and each task takes the queue's own time. */
    const int64_t dims[] = {1, 300, 400, 400};
    add(&costs, KERNEL_matmul, 1e6, dims, 7e-5, 0.1);
    e = entry_of(KERNEL_matmul, CHOIR_F32, 1e6, 1e6);
    memcpy(e.as.kernel.dims, dims, sizeof dims);
    costs.task_s = 1e-6;
    near(choir__kernel_seconds(&d, &costs, &e, NULL, &spread), 7.1e-5);
    assert_true(spread == 0.1);
    choir__costs_free(&costs);
}

/* A table that is written reads back the same; another machine's is refused. */
static void test_file(void **state)
{
    char path[] = "/tmp/costs.XXXXXX";
    choir__costs costs = {.key = "cpu: this machine", .task_s = 1e-7, .step_s = 2e-3}, again;
    close(mkstemp(path));
    add(&costs, KERNEL_matmul, 1e6, (int64_t[]){1, 64, 64, 122}, 1.0 / 3, 0.5);
    add(&costs, KERNEL_unary, 1e6, NULL, 1e-3, 0.02);
    costs.alpha_s = 1e-6, costs.beta_bytes_s = 3e9;
    ok(choir__costs_write(path, &costs));
    ok(choir__costs_read(path, costs.key, &again));
    assert_int_equal(again.row_count, 2);
    assert_true(again.task_s == 1e-7 && again.step_s == 2e-3 && again.beta_bytes_s == 3e9);
    assert_true(again.rows[0].samples[0].seconds == 1.0 / 3);
    assert_true(again.rows[0].samples[0].call.dims[3] == 122);
    assert_int_equal(again.rows[1].kernel, KERNEL_unary);
    choir__costs_free(&again);
    assert_fails(choir__costs_read(path, "cpu: that machine", &again), CHOIR_ERR_ARGUMENT,
        "was measured on another machine or build: it has 'cpu: this machine', expected 'cpu: "
        "that machine'");
    FILE *f = fopen(path, "w");
    fputs("{\"key\": \"k\", \"kernels\": [{\"name\": \"matmull\"}]}", f);
    fclose(f);
    assert_fails(choir__costs_read(path, "k", &again), CHOIR_ERR_ARGUMENT,
        "unknown kernel 'matmull' (did you mean 'matmul'?)");
    unlink(path);
    assert_fails(choir__costs_read(path, NULL, &again), CHOIR_ERR_IO, path);
    choir__costs_free(&costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_sheet),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
