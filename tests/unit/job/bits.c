/* The class of bits that a job takes, without any devices: on processors and GPUs, named by the
 * command line or by a checkpoint's record; and the class of the process without jobs. */
#include <stdlib.h>

#include <choir/device.h>

#include "check.h"
#include "device/cpu/multiplier.h"
#include "job/bits.h"

static choir__job job_on(const char *device, const char *bits)
{
    choir__job job = choir__job_new("train");
    snprintf(job.placement.device_names[0], sizeof job.placement.device_names[0], "%s", device);
    job.optim.bits = bits;
    return job;
}

static void assert_class(const char *device, const char *bits, const char *class)
{
    choir__job job = job_on(device, bits);
    choir__job_rank part = {.job = &job, .bits = ""};
    ok(choir__job_take_bits(&part, false));
    assert_string_equal(part.bits, class);
    assert_int_equal(part.holds_bits, strcmp(class, "cuda") != 0);
    choir__job_drop_bits(&part);
}

/* A checkpoint's class of bits binds only devices of its own kind. */
static void kinds_of_devices(void **state)
{
    assert_class("cpu:0", "chain", "chain");
    assert_class("cuda:0", "auto", "cuda");
    assert_class("cuda:0", "chain", "cuda");
    assert_class("cuda:0", "onednn", "cuda");
    assert_class("cpu:0", "cuda", choir_cpu_bits());
}

static void the_class_ends_with_the_job(void **state)
{
    const char *usual = choir_cpu_bits();
    ok(choir__multiplier_take(CHOIR__BY_AMX));
    ok(choir__multiplier_take(CHOIR__BY_AMX));
    assert_fails(choir__multiplier_take(CHOIR__BY_CHAIN), CHOIR_ERR_STATE, "got chain");
    choir__multiplier_drop();
    assert_string_equal(choir_cpu_bits(), "amx");
    choir__multiplier_drop();
    assert_string_equal(choir_cpu_bits(), usual);
    assert_false(choir__multiplier_is_taken());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_devices),
        cmocka_unit_test(the_class_ends_with_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
