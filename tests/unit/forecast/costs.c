/* Prices of kernels: by data sheets, and between the samples of a measured table. */
#include <math.h>
#include <string.h>

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
    (void)state;
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

static void test_table(void **state)
{
    choir__costs costs = {.row_count = 0};
    choir__device_model d;
    bool measured;
    double spread;
    (void)state;
    ok(choir__device_preset("cpu", &d));
    choir__costs_add(&costs, KERNEL_unary, CHOIR_F32, 0, 1e6, 1e-3, 0.02);
    choir__costs_add(&costs, KERNEL_unary, CHOIR_F32, 0, 1e4, 1e-5, 0.01);
    choir__costs_add(&costs, KERNEL_unary, CHOIR_F32, 0, 1e5, 4e-5, 0.01);
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
    choir__costs_add(
        &costs, KERNEL_matmul, CHOIR_F32, choir__cost_form(KERNEL_matmul, thin), 1e6, 3e-4, 0);
    choir__costs_add(&costs, KERNEL_matmul, CHOIR_F32, choir__cost_form(KERNEL_matmul, square),
        1e6, 1e-5, 0);
    choir__step_entry e = entry_of(KERNEL_matmul, CHOIR_F32, 1e6, 1e6);
    memcpy(e.as.kernel.dims, (int64_t[]){1, 3, 400, 400}, sizeof e.as.kernel.dims);
    near(choir__kernel_seconds(&d, &costs, &e, NULL, NULL), 3e-4);
    memcpy(e.as.kernel.dims, (int64_t[]){1, 300, 400, 400}, sizeof e.as.kernel.dims);
    near(choir__kernel_seconds(&d, &costs, &e, NULL, NULL), 1e-5);
    e = entry_of(KERNEL_adam, CHOIR_F32, 0, 1e6); /* not in the table */
    choir__kernel_seconds(&d, &costs, &e, &measured, NULL);
    assert_false(measured);
    choir__costs_free(&costs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_data_sheet),
        cmocka_unit_test(test_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
