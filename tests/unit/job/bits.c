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

static void assert_refused(const char *device, const char *bits, const char *why)
{
    choir__job job = job_on(device, bits);
    for (int i = 0; choir__job_options[i].name; i++) /* as if the command line gave it */
        if (!strcmp(choir__job_options[i].name, "bits"))
            job.given[i / 64] |= UINT64_C(1) << i % 64;
    choir__job_rank part = {.job = &job, .bits = ""};
    assert_fails(choir__job_take_bits(&part, false), CHOIR_ERR_ARGUMENT, why);
    assert_false(part.holds_bits);
}

/* A checkpoint's class of bits binds only devices of its own kind. */
static void kinds_of_devices(void **state)
{
    (void)state;
    assert_class("cpu:0", "chain", "chain");
    assert_class("cuda:0", "auto", "cuda");
    assert_class("cuda:0", "chain", "cuda");
    assert_class("cuda:0", "onednn", "cuda");
    assert_class("cpu:0", "cuda", choir_cpu_bits());
    assert_refused("cuda:0", "chain", "--bits chain: GPUs compute in the class cuda");
    assert_refused("cpu:0", "cuda", "--bits cuda: expected GPUs, got processors");
}

static void the_class_ends_with_the_job(void **state)
{
    (void)state;
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
