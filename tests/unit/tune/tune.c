/* choir_tune: the same trials by threads and by forks, on 1 to 16 workers, and trials that
 * fail, crash, hang, or are tried again. */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <choir/choir.h>

#include "check.h"
#include "base/base.h"

static choir_study *open_stored(const char *sampler, const char *scheduler, int64_t window,
    int64_t trials, const char *storage)
{
    choir_study *study;
    choir_space *space = choir_space_new();
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = sampler;
    opts.scheduler = scheduler;
    opts.window = window;
    opts.trials = trials;
    opts.seed = 5;
    opts.storage = storage;
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    ok(choir_space_add(space, "n", "int(1, 8)"));
    ok(choir_study_open(space, opts, &study));
    choir_space_free(space);
    return study;
}

static choir_study *open_study(
    const char *sampler, const char *scheduler, int64_t window, int64_t trials)
{
    return open_stored(sampler, scheduler, window, trials, NULL);
}

/* The trials with all that must not depend on the workers, on the heap. */
static char *table_of(const choir_study *study)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int64_t i = 0; i < choir_study_count(study); i++) {
        const choir_trial *t = choir_study_trial(study, i);
        fprintf(out, "%lld %d %s %s %a %lld\n", (long long)i, choir_trial_result(t),
            choir_trial_text(t, "x"), choir_trial_text(t, "n"), choir_trial_value(t, 0),
            (long long)choir_trial_last_step(t));
    }
    fclose(out);
    return text;
}

/* A curve that falls to a bowl. It takes different times, and begins again when it goes on. */
static choir_status curve(choir_trial *trial, void *arg, double *values)
{
    double x = choir_trial_real(trial, "x") - 0.3;
    int64_t n = choir_trial_int(trial, "n");
    for (int64_t step = 1; step <= 9; step++) {
        for (int64_t i = choir_trial_number(trial) * 7919 % 50; i > 0; i--)
            sched_yield();
        values[0] = x * x + (double)((n - 4) * (n - 4)) + 1 / (double)step;
        choir_status status = choir_trial_report(trial, step, values[0]);
        if (status != CHOIR_OK || choir_trial_should_stop(trial))
            return status;
    }
    return CHOIR_OK;
}

static char *run(const char *sampler, const char *scheduler, bool forks, int parallel)
{
    choir_study *study = open_study(sampler, scheduler, 16, 24);
    choir_tune_opts opts = choir_tune_defaults();
    opts.forks = forks;
    opts.parallel = parallel;
    ok(choir_tune(study, curve, NULL, opts));
    char *table = table_of(study);
    choir_study_free(study);
    return table;
}

static void test_same_trials(void **state)
{
    static const char *const kinds[][2] = {{"tpe:startup=4", "none"},
        {"random", "asha:min=1,max=9,eta=3"}, {"tpe", "median:startup=3"}};
    for (size_t k = 0; k < CHOIR_COUNT(kinds); k++) {
        char *one = run(kinds[k][0], kinds[k][1], false, 1);
        for (int parallel = 1; parallel <= 16; parallel *= 4)
            for (int forks = 0; forks < 2; forks++) {
                char *other = run(kinds[k][0], kinds[k][1], forks, parallel);
                assert_string_equal(one, other);
                free(other);
            }
        assert_non_null(strstr(one, "\n23 "));
        assert_true(k != 1 || strstr(one, " 2 ")); /* some were stopped */
        free(one);
    }
}

/* A stored study, which a second call goes on with, has the trials of one in memory. */
static void test_stored(void **state)
{
    for (int forks = 0; forks < 2; forks++) {
        char path[] = "/tmp/choir-tune-XXXXXX", *one = run("tpe:startup=4", "none", false, 1);
        close(mkstemp(path));
        unlink(path);
        char *storage = choir__format("journal:%s", path);
        choir_tune_opts opts = choir_tune_defaults();
        opts.forks = forks;
        opts.parallel = 4;
        for (int64_t trials = 10; trials <= 24; trials += 14) {
            choir_study *study = open_stored("tpe:startup=4", "none", 16, trials, storage);
            ok(choir_tune(study, curve, NULL, opts));
            assert_int_equal(choir_study_count(study), trials);
            char *table = table_of(study);
            assert_true(trials < 24 || !strcmp(table, one));
            free(table);
            choir_study_free(study);
        }
        unlink(path);
        free(storage);
        free(one);
    }
}

/* --- trials that fail --- */

static choir_status break_down(choir_trial *trial, void *arg, double *values)
{
    values[0] = 1;
    switch (choir_trial_number(trial)) {
    case 0: return choir_trial_report(trial, -1, 0); /* its message is the reason */
    case 1: return CHOIR_ERR_MEMORY;
    case 2: values[0] = (double)NAN; return CHOIR_OK;
    case 4:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        return CHOIR_OK; /* cmocka handles it */
    case 5: abort();
    case 6: _exit(3);
    case 7: _exit(0);
    default: return CHOIR_OK;
    }
}

static const char *why(const choir_study *study, int64_t number)
{
    const char *json = choir_trial_attribute(choir_study_trial(study, number), "why");
    return json ? json : "";
}

static void check_failures(bool forks)
{
    choir_study *study = open_study("random", "none", 4, forks ? 9 : 4);
    choir_tune_opts opts = choir_tune_defaults();
    opts.forks = forks;
    opts.parallel = 3;
    ok(choir_tune(study, break_down, NULL, opts));
    assert_non_null(strstr(why(study, 0), "expected a step of 0 or more, got -1"));
    assert_string_equal(why(study, 1), "\"out of memory\"");
    assert_string_equal(why(study, 3), "");
    for (int64_t i = 0; i < choir_study_count(study); i++)
        assert_int_equal(choir_trial_result(choir_study_trial(study, i)),
            i == 3 || i == 8 ? CHOIR_TRIAL_COMPLETE : CHOIR_TRIAL_FAIL);
    if (forks) {
        assert_non_null(strstr(why(study, 5), "killed by SIGABRT"));
        assert_non_null(strstr(why(study, 6), "exited with status 3"));
        assert_non_null(strstr(why(study, 7), "exited with status 0"));
    }
    choir_study_free(study);
}

static void test_failures(void **state)
{
    check_failures(false);
    check_failures(true);
}

/* Each trial's first attempts fail; a file says which attempt it is, also to forks. */
static choir_status try_again(choir_trial *trial, void *arg, double *values)
{
    char path[256];
    values[0] = 2;
    for (int attempt = 0; attempt < 2; attempt++) {
        snprintf(path, sizeof path, "%s/%lld.%d", (const char *)arg,
            (long long)choir_trial_number(trial), attempt);
        if (access(path, F_OK) == 0)
            continue;
        fclose(fopen(path, "w"));
        return CHOIR_ERR_INTERNAL;
    }
    return CHOIR_OK;
}

/* Trials are tried again, too, if the study has no more while they run. */
static void test_retries(void **state)
{
    for (int i = 0; i < 4; i++) {
        char folder[] = "/tmp/choir-tune-XXXXXX";
        assert_non_null(mkdtemp(folder));
        choir_study *study = open_study("random", "none", 5, 4);
        choir_tune_opts opts = choir_tune_defaults();
        opts.forks = i & 1;
        opts.parallel = i & 2 ? 2 : 5;
        opts.retries = 2;
        assert_int_equal(choir_tune(study, try_again, folder, opts), CHOIR_OK);
        for (int64_t n = 0; n < 4; n++)
            assert_int_equal(
                choir_trial_result(choir_study_trial(study, n)), CHOIR_TRIAL_COMPLETE);
        choir_study_free(study);
        char *command = choir__format("rm -r '%s'", folder);
        assert_int_equal(system(command), 0);
        free(command);
    }
}

static choir_status never(choir_trial *trial, void *arg, double *values)
{
    return CHOIR_ERR_NONFINITE;
}

static void test_too_many_failures(void **state)
{
    for (int forks = 0; forks < 2; forks++) {
        choir_study *study = open_study("random", "none", 4, 100);
        choir_tune_opts opts = choir_tune_defaults();
        opts.forks = forks;
        opts.parallel = 4;
        opts.failures_max = 5;
        assert_int_equal(choir_tune(study, never, NULL, opts), CHOIR_ERR_STATE);
        assert_string_equal(choir_error_message(),
            "5 trials in a row failed, which ends the search; the last one: a value is not "
            "finite");
        assert_true(choir_study_count(study) <= 5 + 4);
        choir_study_free(study);
    }
}

/* They end the search, too, if the study has no more trials while they run. */
static void test_last_failures(void **state)
{
    for (int i = 0; i < 4; i++) {
        choir_study *study = open_study("random", "none", 5, 4);
        choir_tune_opts opts = choir_tune_defaults();
        opts.forks = i & 1;
        opts.parallel = i & 2 ? 1 : 5;
        opts.failures_max = 4;
        assert_int_equal(choir_tune(study, never, NULL, opts), CHOIR_ERR_STATE);
        assert_non_null(strstr(choir_error_message(), "4 trials in a row failed"));
        choir_study_free(study);
    }
}

/* --- forks --- */

static choir_status hang(choir_trial *trial, void *arg, double *values)
{
    values[0] = 0;
    while (choir_trial_number(trial) == 1)
        pause();
    return CHOIR_OK;
}

static void test_time_limit(void **state)
{
    choir_study *study = open_study("random", "none", 2, 3);
    choir_tune_opts opts = choir_tune_defaults();
    opts.forks = true;
    opts.parallel = 2;
    opts.timeout_s = 4; /* the others end in time on a busy machine */
    ok(choir_tune(study, hang, NULL, opts));
    assert_string_equal(why(study, 1), "\"took longer than 4 s\"");
    assert_int_equal(choir_trial_result(choir_study_trial(study, 2)), CHOIR_TRIAL_COMPLETE);
    choir_study_free(study);
}

/* A fork changes its own trial alone; a long attribute comes in many pieces. */
static choir_status meddle(choir_trial *trial, void *arg, double *values)
{
    choir_study *study = arg;
    choir_trial *other;
    enum { BYTES = 300000 };
    char *json = choir__alloc(BYTES + 3);
    memset(json, 'a', BYTES + 2);
    json[0] = json[BYTES + 1] = '"';
    json[BYTES + 2] = '\0';
    choir_status status = choir_trial_set_attribute(trial, "long", json);
    free(json);
    values[0] = choir_trial_place(trial);
    if (choir_study_ask(study, &other) != CHOIR_ERR_STATE ||
        choir_study_tell(study, trial, CHOIR_TRIAL_FAIL, NULL, 0) != CHOIR_ERR_STATE ||
        choir_study_enqueue(study, "x=0.5") != CHOIR_ERR_STATE ||
        choir_study_set_attribute(study, "a", "1") != CHOIR_ERR_STATE)
        return CHOIR_ERR_INTERNAL;
    return status;
}

static void test_forks_share_nothing(void **state)
{
    choir_study *study = open_study("random", "none", 2, 6);
    choir_tune_opts opts = choir_tune_defaults();
    opts.forks = true;
    opts.parallel = 2;
    ok(choir_tune(study, meddle, study, opts));
    assert_int_equal(choir_study_count(study), 6);
    for (int64_t i = 0; i < 6; i++) {
        const choir_trial *t = choir_study_trial(study, i);
        assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_COMPLETE);
        assert_true(choir_trial_value(t, 0) == 0 || choir_trial_value(t, 0) == 1);
        assert_int_equal(strlen(choir_trial_attribute(t, "long")), 300002);
    }
    choir_study_free(study);
}

/* --- trials of the caller's own --- */

/* Asks for a trial of its own, which it never tells. */
static choir_status grab(choir_trial *trial, void *arg, double *values)
{
    choir_trial *own;
    values[0] = 0;
    return choir_study_ask(arg, &own);
}

static void check_held(choir_study *study, choir_tune_opts opts, const char *trial)
{
    alarm(60); /* an error, not a wait */
    assert_int_equal(choir_tune(study, curve, NULL, opts), CHOIR_ERR_STATE);
    alarm(0);
    assert_says(trial);
}

static void test_held_trials(void **state)
{
    for (int forks = 0; forks < 2; forks++)
        for (int64_t window = 1; window <= 4; window += 3) {
            choir_study *study = open_study("random", "none", window, 6);
            choir_tune_opts opts = choir_tune_defaults();
            choir_trial *own;
            double value = 0;
            opts.forks = forks;
            opts.parallel = 2;
            ok(choir_study_ask(study, &own));
            check_held(study, opts, "got trial 0, which was asked for and has not ended");
            assert_int_equal(choir_study_count(study), 1); /* no other one has begun */
            ok(choir_study_tell(study, own, CHOIR_TRIAL_COMPLETE, &value, 1));
            ok(choir_tune(study, curve, NULL, opts));
            assert_int_equal(choir_study_count(study), 6);
            choir_study_free(study);
        }
}

static void test_held_by_function(void **state)
{
    choir_study *study = open_study("random", "none", 2, 6);
    alarm(60);
    assert_int_equal(choir_tune(study, grab, study, choir_tune_defaults()), CHOIR_ERR_STATE);
    alarm(0);
    assert_says("got trial 1, which was asked for");
    choir_study_free(study);
}

/* --- options --- */

static void test_options(void **state)
{
    choir_study *study = open_study("random", "none", 1, 1);
    choir_tune_opts opts = {0};
    assert_int_equal(choir_tune(study, curve, NULL, opts), CHOIR_ERR_ARGUMENT);
    opts = choir_tune_defaults();
    opts.timeout_s = 1;
    assert_fails(choir_tune(study, curve, NULL, opts), CHOIR_ERR_ARGUMENT,
        "no time limit without forks");
    assert_int_equal(choir_study_count(study), 0);
    choir_study_free(study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_trials),
        cmocka_unit_test(test_stored),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_retries),
        cmocka_unit_test(test_too_many_failures),
        cmocka_unit_test(test_last_failures),
        cmocka_unit_test(test_time_limit),
        cmocka_unit_test(test_forks_share_nothing),
        cmocka_unit_test(test_held_trials),
        cmocka_unit_test(test_held_by_function),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
