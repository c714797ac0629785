/* Pipelines: every schedule, over any number of devices, gives the bits of one device, loss
 * after loss and weight after weight, recorded or not; cuts by hand; the messages for wrong
 * inputs and failures. */
#include "base/base.h"
#include "device/device.h"
#include "job_fixture.h"
#include "nn/module.h"
#include "tensor/scope.h"

enum { STEPS = 7, BATCH = 24, MOST = 8 };

typedef struct job {
    const char *model, *schedule, *cuts; /* schedule NULL: one device without a pipeline */
    int devices;
    int64_t microbatches;
    bool recorded, saves; /* saves: brings all home after each step, as to save it */
    bool dry;             /* the devices compute nothing and take no memory */
    double cap_mb;        /* MiB of DDP buckets around the pipeline; 0: no DDP */
    choir_model_info info;
    choir_scope *run;
    choir_module *net, *pipe;
    choir_group *group;
    choir_optim *optim;
    choir_loader *loader;
    choir_tensor *losses[32];
} job;

typedef struct outcome {
    uint32_t loss_bits[STEPS][32];
    uint64_t weights, states;
} outcome;

static int64_t micros_issued;

static choir_tensor *micro_batch(choir_scope *micro, choir_module *net, void *arg)
{
    job *j = arg;
    micros_issued++;
    return loss_of_next(j->loader, micro, net, &j->info);
}

static choir_status body(choir_scope *step, void *arg)
{
    job *j = arg;
    choir_module *pipe = j->schedule ? j->pipe : NULL;
    micro_batches all = {0, j->microbatches, micro_batch, j->net, j, j->losses, pipe};
    return train_micro_batches(step, all, j->optim);
}

static choir_device *device_of(const job *j, int number)
{
    char name[16];
    snprintf(name, sizeof name, "dry:%d", number);
    return j->dry ? choir_device_find(name) : cpu_device(number);
}

/* Puts DDP around the pipeline, of one rank. */
static void wrap(job *j)
{
    choir_group_opts alone = choir_group_defaults();
    choir_ddp_opts opts = choir_ddp_defaults();
    alone.backend = "dry";
    alone.rank = 0;
    alone.world = 1;
    opts.bucket_cap_mb = opts.first_bucket_mb = j->cap_mb;
    opts.microbatches = j->microbatches;
    choir_check(choir_group_init(NULL, alone, &j->group));
    j->pipe = choir_ddp(j->run, j->pipe, j->group, opts);
}

static void open_job(job *j)
{
    j->run = choir_scope_open(device_of(j, 0), 11);
    j->net = j->pipe = build_model(j->run, j->model, &j->info);
    choir_device *devices[MOST];
    for (int d = 0; d < j->devices; d++)
        devices[d] = device_of(j, d);
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = devices;
    opts.device_count = j->devices;
    opts.schedule = j->schedule;
    opts.cuts = j->cuts;
    if (j->schedule)
        j->pipe = choir_pipeline(j->run, j->net, opts);
    if (j->cap_mb > 0)
        wrap(j);
    j->optim = clipped_adamw(j->run, j->pipe);
}

static choir_status one_step(job *j, int number)
{
    return run_step(j->run, j->recorded, number, body, j);
}

static choir_dataset *open_loader(job *j)
{
    choir_dataset *data = random_data(&j->info, 200, 5);
    j->loader = rank_loader(j->run, data, BATCH, j->microbatches, 0, j->microbatches);
    return data;
}

static outcome train(job j)
{
    outcome out = {.states = CHOIR__HASH_SEED};
    open_job(&j);
    choir_dataset *data = open_loader(&j);
    choir_check(choir_scope_status(j.run));
    for (int step = 0; step < STEPS; step++) {
        choir_check(one_step(&j, step));
        for (int64_t m = 0; m < j.microbatches; m++)
            out.loss_bits[step][m] = item_bits(j.losses[m]);
        if (j.saves && j.schedule)
            choir_check(choir_pipeline_gather(j.pipe, -1));
        if (j.saves)
            choir_optim_visit(j.optim, hash_tensor, &out.states);
    }
    out.weights = hash_of_module(j.net);
    choir_check(choir_scope_close(j.run));
    choir_dataset_free(data);
    return out;
}

static void assert_same(const outcome *want, const outcome *got, const job *j)
{
    if (!memcmp(want, got, sizeof *want))
        return;
    for (int s = 0; s < STEPS; s++)
        for (int m = 0; m < 32; m++)
            if (want->loss_bits[s][m] != got->loss_bits[s][m])
                fail_msg(
                    "%s, %s on %d devices, %lld micro-batches%s: loss %d of step %d differs",
                    j->model, j->schedule, j->devices, (long long)j->microbatches,
                    j->recorded ? ", recorded" : "", m, s);
    fail_msg("%s, %s on %d devices, %lld micro-batches%s: weights differ", j->model,
        j->schedule, j->devices, (long long)j->microbatches, j->recorded ? ", recorded" : "");
}

static const char *const schedules[] = {
    "sequential", "gpipe", "1f1b", "interleaved", "zero-bubble"};

static void check_model(const char *model, int most, int64_t microbatches)
{
    outcome want = train((job){.model = model, .microbatches = microbatches});
    for (int devices = 1; devices <= most; devices = devices < 4 ? devices + 1 : 2 * devices)
        for (size_t s = 0; s < 5; s++) {
            job j = {.model = model,
                .schedule = schedules[s],
                .devices = devices,
                .microbatches = microbatches,
                .recorded = (s + (size_t)devices) % 2};
            if (s == 3 && devices * 2 > most)
                continue;
            outcome got = train(j);
            assert_same(&want, &got, &j);
        }
}

static void test_toy(void **state)
{
    check_model("toy", 2, 4);
    check_model("toy", 2, 3);
}

static void test_mlp(void **state)
{
    check_model("mlp", 3, 6);
}

static void test_gpt2(void **state)
{
    check_model("gpt2:layers=2,heads=2,width=16,context=8,vocab=40,dropout=0.1", 8, 4);
}

static void test_lstm(void **state)
{
    check_model("lstm:layers=2,hidden=16,context=8,vocab=40", 3, 3);
}

static void test_resnet(void **state)
{
    check_model("resnet18:image=32,width=8,classes=4", 2, 3);
}

/* Even on one device, two steps are run to measure, two to create objects on first use, and one
 * to record. No other step issues its ops one by one. */
static void test_one_stage_is_recorded(void **state)
{
    micros_issued = 0;
    train((job){
        .model = "toy", .schedule = "1f1b", .devices = 1, .microbatches = 3, .recorded = true});
    assert_int_equal(micros_issued, 5 * 3);
}

/* The optimizer's state returns home with the parameters, and goes back to the stages. */
static void test_saving(void **state)
{
    const char *models[] = {"toy", "mlp"};
    for (int i = 0; i < 2; i++) {
        job j = {.model = models[i], .microbatches = 3, .saves = true}, pipe = j;
        outcome want = train(j);
        pipe.schedule = "1f1b";
        pipe.devices = 2;
        outcome got = train(pipe);
        assert_same(&want, &got, &pipe);
    }
}

/* --- cuts by hand, and what goes wrong --- */

static void test_cuts_by_hand(void **state)
{
    job j = {.model = "mlp", .microbatches = 2}, cut = j;
    outcome want = train(j);
    cut.schedule = "1f1b";
    cut.devices = 2;
    const char *cuts[] = {"1", "3", "2+0", "0+1"};
    for (size_t i = 0; i < CHOIR_COUNT(cuts); i++) {
        cut.cuts = cuts[i];
        outcome got = train(cut);
        assert_same(&want, &got, &cut);
    }
}

/* Trains until a step fails, and returns the message. */
static const char *failure(job j)
{
    static char text[1024];
    open_job(&j);
    choir_dataset *data = open_loader(&j);
    choir_status status = choir_scope_status(j.run);
    for (int step = 0; step < STEPS && status == CHOIR_OK; step++)
        status = one_step(&j, step);
    snprintf(text, sizeof text, "%s", status == CHOIR_OK ? "" : choir_error_message());
    choir_scope_close(j.run);
    choir_dataset_free(data);
    return text;
}

static void test_what_cannot_be_cut(void **state)
{
    const struct {
        job j;
        const char *told;
    } cases[] = {
        {{.model = "toy", .schedule = "1f1b", .devices = 3, .microbatches = 3},
            "3 stages for a model of 2 layers"},
        {{.model = "mlp", .schedule = "1f1b", .devices = 2, .microbatches = 2, .cuts = "fc9"},
            "stage 1 is to begin at unknown module 'fc9': choose one of 0, 1, 2, 3, 4, or"},
        {{.model = "mlp", .schedule = "1f1b", .devices = 2, .microbatches = 2, .cuts = "2+x"},
            "stage 1: expected the path of a module, maybe with '+' and a number of ops, or the"},
        {{.model = "mlp", .schedule = "1f1b", .devices = 3, .microbatches = 3, .cuts = "1,1"},
            "stage 2 is to begin at '1', op 1, where stage 1 begins at op 1"},
        {{.model = "mlp", .schedule = "1f1b", .devices = 2, .microbatches = 2, .cuts = "1,2"},
            "expected 1 cuts for 2 stages, got 2, '1,2'"},
        {{.model = "mlp", .schedule = "2f2b", .devices = 2, .microbatches = 2}, "2f2b"},
        {{.model = "toy", .schedule = "gpipe", .devices = 2, .microbatches = 2, .cuts = "3"},
            "has no parameters"},
    };
    for (size_t i = 0; i < CHOIR_COUNT(cases); i++) {
        const char *told = failure(cases[i].j);
        if (!strstr(told, cases[i].told))
            fail_msg("told '%s', not '%s'", told, cases[i].told);
    }
}

/* Stages of equal time would exceed the second device's memory, so the cuts give it less. If no
 * cut fits, an error names the stage that lacks most. */
static void test_cuts_within_limits(void **state)
{
    job j = {.model = "mlp:hidden=64", .schedule = "gpipe", .devices = 2, .microbatches = 4};
    job alone = j;
    alone.schedule = NULL;
    outcome want = train(alone);
    choir_device *second = choir_device_find("cpu:1");
    choir_device_reset_peak(second);
    choir_device_set_limit(second, 64 << 10);
    outcome got = train(j);
    choir_device_stats stats;
    choir_device_get_stats(second, &stats);
    assert_true(stats.bytes_peak <= 64 << 10);
    assert_same(&want, &got, &j);
    choir_device_set_limit(second, 100);
    const char *told = failure(j);
    choir_device_set_limit(second, 0);
    if (!strstr(
            told, "no cuts fit the limits of 2 devices: at best, stage 1 on cpu:1, which ") ||
        !strstr(told, " MiB are missing"))
        fail_msg("told '%s'", told);
}

/* --- models larger than a device --- */

/* The limit holds for blocks that a pool keeps from the run before, too. */
static void limit_devices(size_t bytes)
{
    for (int d = 0; d < MOST; d++) {
        choir__pool_trim(cpu_device(d));
        choir_device_set_limit(cpu_device(d), bytes);
    }
}

/* Returns the largest peak of the job's devices. */
static int64_t peak_of(const job *j)
{
    choir_device_stats stats;
    int64_t peak = 0;
    for (int d = 0; d < (j->schedule ? j->devices : 1); d++) {
        choir_device_get_stats(device_of(j, d), &stats);
        peak = choir__max(peak, (int64_t)stats.bytes_peak);
    }
    return peak;
}

static void reset_peaks(const job *j)
{
    for (int d = 0; d < MOST; d++)
        choir_device_reset_peak(device_of(j, d));
}

/* Compares the most that a device held, from the first step on, with the most that is expected
 * of one. */
static void check_peak(job j)
{
    int64_t expected = 0;
    reset_peaks(&j);
    open_job(&j);
    choir_dataset *data = open_loader(&j);
    for (int step = 0; step < STEPS; step++)
        choir_check(one_step(&j, step));
    for (int s = 0; s < choir_pipeline_stages(j.pipe); s++)
        expected = choir__max(expected, choir_pipeline_bytes(j.pipe, s));
    double ratio = (double)peak_of(&j) / (double)expected;
    choir_check(choir_scope_close(j.run));
    choir_group_free(j.group);
    choir_dataset_free(data);
    if (ratio > 1.1 || ratio < 0.6)
        fail_msg("%s, %s on %d devices: the peak is %.2f of the %lld bytes expected", j.model,
            j.schedule, j.devices, ratio, (long long)expected);
}

static void test_expected_bytes(void **state)
{
    static const char *const named[] = {"sequential", "gpipe", "1f1b", "zero-bubble"};
    for (size_t s = 0; s < CHOIR_COUNT(named); s++)
        for (int devices = 2; devices <= 4; devices += 2) {
            check_peak((job){.model = "gpt2:layers=8,heads=4,width=64,context=32,vocab=500",
                .schedule = named[s],
                .devices = devices,
                .microbatches = 4});
            check_peak((job){.model = "mlp:in=64,hidden=256,classes=10,layers=9",
                .schedule = named[s],
                .devices = devices,
                .microbatches = 6});
        }
}

/* A gradient has memory until its sum is added, with the others of its bucket: a weight may be
 * larger than a bucket's cap, and the cap of DDP's buckets than a stage. */
static void test_expected_bytes_of_large_buckets(void **state)
{
    check_peak((job){.model = "mlp:in=64,hidden=8000,classes=10,layers=3",
        .schedule = "gpipe",
        .devices = 2,
        .microbatches = 2,
        .dry = true});
    check_peak((job){.model = "mlp:in=64,hidden=2000,classes=10,layers=9",
        .schedule = "gpipe",
        .devices = 2,
        .microbatches = 2,
        .dry = true,
        .cap_mb = 1000});
}

/* Cuts by hand are taken as they are. A stage that then lacks memory is named, with the plan's
 * number beside the limit. */
static void test_lacking_memory(void **state)
{
    job j = {.model = "mlp:in=64,hidden=64,classes=10,layers=9",
        .schedule = "gpipe",
        .devices = 2,
        .microbatches = 6,
        .cuts = "12"};
    reset_peaks(&j);
    train(j);
    limit_devices((size_t)peak_of(&j) * 95 / 100);
    const char *told = failure(j);
    limit_devices(0);
    if (!strstr(told, "pipeline: stage 0 on cpu:0, micro-batch ") ||
        !strstr(told, "out of memory on cpu:0") ||
        !strstr(told, "; the plan expects that the stage needs 0."))
        fail_msg("told '%s'", told);
}

/* A tied table, which is nearly all of this model, is on both stages, and its gradient on one.
 * The cuts are by hand, so that each device has its stage from the first step on. */
static void test_expected_bytes_of_a_tied_table(void **state)
{
    job j = {.model = "gpt2:layers=2,heads=2,width=64,context=1,vocab=3000",
        .schedule = "1f1b",
        .devices = 2,
        .microbatches = 4,
        .cuts = "transformer.h.1"};
    reset_peaks(&j);
    open_job(&j);
    choir_dataset *data = open_loader(&j);
    for (int step = 0; step < STEPS; step++)
        choir_check(one_step(&j, step));
    for (int s = 0; s < 2; s++) {
        choir_device_stats stats;
        choir_device_get_stats(cpu_device(s), &stats);
        double ratio = (double)stats.bytes_peak / (double)choir_pipeline_bytes(j.pipe, s);
        if (ratio > 1.1)
            fail_msg("stage %d held %.2f of the %lld bytes expected", s, ratio,
                (long long)choir_pipeline_bytes(j.pipe, s));
    }
    choir_check(choir_scope_close(j.run));
    choir_dataset_free(data);
}

/* A model that does not fit in one device trains on two and on four, with the same bits, with
 * cuts by hand and without. */
static void test_larger_than_a_device(void **state)
{
    static const struct {
        int devices;
        const char *cuts;
    } all[] = {{2, "transformer.h.4"}, {2, NULL},
        {4, "transformer.h.2,transformer.h.4,transformer.h.6"}, {4, NULL}};
    job alone = {
        .model = "gpt2:layers=8,heads=4,width=64,context=32,vocab=500", .microbatches = 4};
    reset_peaks(&alone);
    outcome want = train(alone);
    size_t limit = (size_t)peak_of(&alone) * 8 / 10;
    limit_devices(limit);
    if (!strstr(failure(alone), "out of memory"))
        fail_msg("one device is enough");
    for (size_t i = 0; i < CHOIR_COUNT(all); i++) {
        job j = alone;
        j.schedule = "1f1b";
        j.devices = all[i].devices;
        j.cuts = all[i].cuts;
        limit_devices(limit);
        outcome got = train(j);
        assert_same(&want, &got, &j);
    }
    limit_devices(0);
}

/* The limits have no room for the parameters and gradients of a stage, which is said before the
 * first step. */
static void test_too_large(void **state)
{
    job j = {.model = "mlp:in=64,hidden=256,classes=10,layers=9",
        .schedule = "1f1b",
        .devices = 2,
        .microbatches = 2,
        .cuts = "2+0"};
    choir_device_set_limit(cpu_device(1), 1 << 20);
    const char *told = failure(j);
    choir_device_set_limit(cpu_device(1), 0);
    if (!strstr(told,
            "stage 1 is too large for cpu:1: its parameters and gradients have 4.0 MiB, "
            "and the device's limit is 1.0 MiB: 3.0 MiB are missing"))
        fail_msg("told '%s'", told);
}

static void test_a_device_twice(void **state)
{
    choir_device *devices[] = {choir_device_find("cpu:0"), choir_device_find("cpu:0")};
    choir_scope *run = choir_scope_open(devices[0], 1);
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = devices;
    opts.device_count = 2;
    choir_pipeline(run, choir_nn_linear(run, 2, 2), opts);
    assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT, "device cpu:0 is named twice");
    choir_scope_close(run);
}

static void test_another_module(void **state)
{
    choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 1);
    choir_module *net = choir_nn_linear(run, 2, 2);
    assert_int_equal(choir_pipeline_stages(net), 0);
    assert_null(choir_pipeline_costs(net));
    assert_null(choir_pipeline_plan_of(net));
    choir_scope_close(run);
}

/* A strategy within another one is reported when it is made, whichever is the outer one. */
static void test_a_strategy_within(void **state)
{
    for (int outer = 0; outer < 2; outer++) {
        choir_scope *run = choir_scope_open(choir_device_find("cpu:0"), 1);
        choir_data_parallel_opts opts = choir_data_parallel_defaults();
        opts.device_count = 2;
        choir_module *net = choir_nn_linear(run, 2, 2);
        if (outer)
            net = choir_data_parallel(run, net, opts);
        net = choir_pipeline(run, net, choir_pipeline_defaults());
        if (!outer)
            choir_data_parallel(run, net, opts);
        assert_fails(choir_scope_status(run), CHOIR_ERR_ARGUMENT,
            outer ? "pipeline: the module contains a data_parallel" : "contains a pipeline");
        choir_scope_close(run);
    }
}

/* A micro-batch whose second stage fails on request: the error names stage, device and
 * micro-batch. Training continues as if that step had not been: the gradients of its other
 * micro-batches are dropped. */
static int64_t failing = -1;

static choir_tensor *fails_in_the_middle(choir_scope *micro, choir_module *net, void *arg)
{
    choir_tensor *x = choir_randn(micro, choir_dims(4, 6), "x");
    choir_tensor *y = choir_forward(net, x);
    if (micro->micro == failing)
        y = choir_add(y, choir_zeros(micro, CHOIR_F32, choir_dims(5, 5)));
    return choir_mean(choir_square(y));
}

static void a_step(choir_module *pipe, choir_optim *optim, int step)
{
    char told[64];
    choir_tensor *losses[4];
    choir_scope *s = choir_step_open(
        choir_tensor_scope(choir_module_find(pipe, "0.weight")), (uint64_t)step);
    choir_status status = choir_pipeline_step(pipe, s, 4, fails_in_the_middle, NULL, losses);
    assert_int_equal(status, failing < 0 ? CHOIR_OK : CHOIR_ERR_SHAPE);
    snprintf(
        told, sizeof told, "pipeline: stage 1 on cpu:1, micro-batch %d: add", (int)failing);
    if (!choir_pipeline_costs(pipe)) /* there are no stages yet */
        strcpy(told, "add: ");
    if (failing >= 0)
        assert_says(told);
    else
        choir_check(choir_optim_step(optim));
    choir_scope_close(s);
}

/* Returns a hash of the weights after six steps, of which step `at` fails in that micro-batch,
 * or is left out. */
static uint64_t train_past_failure(const char *schedule, int at, int64_t micro)
{
    choir_device *devices[] = {choir_device_find("cpu:0"), choir_device_find("cpu:1")};
    choir_scope *run = choir_scope_open(devices[0], 1);
    choir_module *net = choir_nn_sequential(
        run, choir_nn_linear(run, 6, 8), choir_nn_relu(run), choir_nn_linear(run, 8, 3));
    choir_pipeline_opts opts = choir_pipeline_defaults();
    opts.devices = devices;
    opts.device_count = 2;
    opts.schedule = schedule;
    choir_module *pipe = choir_pipeline(run, net, opts);
    choir_optim *optim = choir_sgd(run, pipe, choir_sgd_defaults());
    for (int step = 0; step < 6; step++) {
        failing = step == at ? micro : -1;
        if (step != at || micro >= 0)
            a_step(pipe, optim, step);
    }
    failing = -1;
    ok(choir_scope_status(run));
    uint64_t weights = hash_of_module(net);
    ok(choir_scope_close(run));
    return weights;
}

static size_t bytes_of(const char *device)
{
    choir_device_stats stats;
    choir_device_get_stats(choir_device_find(device), &stats);
    return stats.bytes_now;
}

static void test_a_failing_stage(void **state)
{
    static const char *const names[] = {"gpipe", "1f1b", "zero-bubble"};
    size_t before[2] = {bytes_of("cpu:0"), bytes_of("cpu:1")};
    for (int s = 0; s < 3; s++)
        for (int at = s ? 3 : 0; at < 4; at++) { /* measured steps are the same under all */
            uint64_t want = train_past_failure(names[s], at, -1);
            for (int64_t micro = 0; micro < 4; micro++)
                if (train_past_failure(names[s], at, micro) != want)
                    fail_msg("%s: other weights after micro-batch %d of step %d failed",
                        names[s], (int)micro, at);
        }
    assert_int_equal(bytes_of("cpu:0"), before[0]); /* also of weights' gradients put off */
    assert_int_equal(bytes_of("cpu:1"), before[1]);
}

int main(void)
{
    setenv("CHOIR_CPU_DEVICES", "8", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_toy),
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_lstm),
        cmocka_unit_test(test_resnet),
        cmocka_unit_test(test_one_stage_is_recorded),
        cmocka_unit_test(test_saving),
        cmocka_unit_test(test_cuts_by_hand),
        cmocka_unit_test(test_what_cannot_be_cut),
        cmocka_unit_test(test_cuts_within_limits),
        cmocka_unit_test(test_expected_bytes),
        cmocka_unit_test(test_expected_bytes_of_large_buckets),
        cmocka_unit_test(test_lacking_memory),
        cmocka_unit_test(test_expected_bytes_of_a_tied_table),
        cmocka_unit_test(test_larger_than_a_device),
        cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_a_device_twice),
        cmocka_unit_test(test_another_module),
        cmocka_unit_test(test_a_strategy_within),
        cmocka_unit_test(test_a_failing_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
