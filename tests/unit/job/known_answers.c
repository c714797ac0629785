/* choir check finds a core that computes wrong: the device's table gets a kernel that flips the
 * lowest bit of one number of its result, always or now and then. */
#include <stdlib.h>

#include <choir/device.h>

#include "check.h"
#include "cli/check/cores.h"
#include "device/device.h"

static const choir__kernels *real;
static int calls, period; /* each period-th call is wrong */

static bool is_wrong(void)
{
    return ++calls % period == 0;
}

static void wrong_matmul(const choir__k_matmul *k)
{
    real->matmul(k);
    if (k->dtype == CHOIR_F32 && is_wrong())
        ((uint32_t *)k->c)[0] ^= 1;
}

static void wrong_softmax(const choir__k_softmax *k)
{
    real->softmax(k);
    if (k->dtype == CHOIR_F32 && is_wrong())
        ((uint32_t *)k->y)[k->cols - 1] ^= 1;
}

/* Checks a core with this table for some seconds, at least once. */
static choir__core check_with(const choir__kernels *table, int each, double seconds)
{
    choir__core core = {.why = "it has not begun"};
    choir_device *device = choir_device_find("cpu:0");
    assert_non_null(device);
    period = each;
    device->kernels = table;
    choir__check_core(device, seconds, &core);
    device->kernels = real;
    assert_string_equal(core.why, "");
    assert_true(core.rounds > 0 && core.round_s > 0);
    return core;
}

static void sound_core(void **state)
{
    choir__core core = check_with(real, 1, 0);
    assert_int_equal(core.wrong, 0);
}

static void wrong_op_is_named(void **state)
{
    char name[CHOIR__ANSWER_NAME];
    choir__kernels table = *real;
    table.matmul = wrong_matmul;
    choir__core core = check_with(&table, 1, 0);
    assert_true(core.wrong > 0);
    assert_string_equal(choir__answer_name(core.answer, name), "matmul, f32");
    assert_string_equal(choir__check_classes[core.class], "chain");
    assert_true(core.got != core.known);
    table = *real;
    table.softmax = wrong_softmax;
    core = check_with(&table, 1, 0);
    assert_true(core.wrong > 0);
    assert_string_equal(choir__answer_name(core.answer, name), "softmax, f32");
    assert_int_equal(check_with(real, 1, 0).wrong, 0);
}

/* One call of 50, in some round. */
static void rare_fault(void **state)
{
    choir__kernels table = *real;
    table.matmul = wrong_matmul;
    choir__core core = {0};
    for (int i = 0; i < 100 && !core.wrong; i++) {
        core = check_with(&table, 50, 0);
        assert_true(core.wrong < core.rounds * choir__answers());
    }
    assert_true(core.wrong > 0);
}

/* All classes have constants, one for each answer, and no two answers are equal by mistake. */
static void constants(void **state)
{
    uint64_t hash;
    char name[CHOIR__ANSWER_NAME];
    assert_true(choir__answers() > 100 && choir__answers() <= CHOIR__ANSWERS_MOST);
    for (int c = 0; choir__check_classes[c]; c++)
        for (int a = 0; a < choir__answers(); a++)
            assert_true(choir__answer_known(choir__check_classes[c], a, &hash));
    assert_false(choir__answer_known("chain", choir__answers(), &hash));
    assert_false(choir__answer_known("onednn", 0, &hash));
    assert_string_equal(choir__answer_name(5, name), "matmul, batched, bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constants),
        cmocka_unit_test(sound_core),
        cmocka_unit_test(wrong_op_is_named),
        cmocka_unit_test(rare_fault),
    };
    real = choir_device_find("cpu:0")->kernels;
    return cmocka_run_group_tests_name("known_answers", tests, NULL, NULL);
}
