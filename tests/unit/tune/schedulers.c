/* Schedulers: the same table of trials however many run at once, how fast they stop and in
 * whatever order they end; the rungs of ASHA and Hyperband, copies of population-based
 * training, and errors. tests/interop compares the stopping rules with Optuna's.
 *
 * A trial here is a curve that falls to a level of its own. Each of its steps is taken when a
 * dice says so; one that is stopped reports a few more steps, and one that goes on begins
 * from a checkpoint that is a few steps old. */
#include "study_fixture.h"
#include "tune/scheduler/scheduler.h"
#include "unit/curve.h"

static choir_study *study_of(
    const char *scheduler, const char *sampler, int64_t window, int64_t trials)
{
    choir_space *space = curve_space();
    choir_study_opts opts = choir_study_defaults();
    opts.scheduler = scheduler;
    opts.sampler = sampler;
    opts.window = window;
    opts.trials = trials;
    opts.seed = 3;
    choir_study *study = open_study(space, opts);
    choir_space_free(space);
    return study;
}

/* --- many at once --- */

typedef struct worker {
    choir_trial *trial;
    int64_t step;
    int late; /* steps after it was stopped */
} worker;

/* Asks for a trial; returns false at the study's end. */
static bool begin(worker *w, choir_study *study)
{
    choir_status status = choir_study_ask(study, &w->trial);
    if (status == CHOIR_ERR_END)
        return false;
    ok(status);
    int64_t step = choir_trial_step(w->trial);
    w->step = step < 0 ? 0 : step - roll(2) * roll((int)step + 1);
    w->late = roll(3);
    return true;
}

/* Takes a step; returns whether the segment has ended. */
static bool advance(worker *w, choir_study *study)
{
    bool stop = choir_trial_should_stop(w->trial);
    if (w->step < CURVE_STEPS && (!stop || w->late-- > 0)) {
        w->step++;
        ok(choir_trial_report(w->trial, w->step, curve_at(w->trial, w->step)));
        return false;
    }
    double value = curve_at(w->trial, CURVE_STEPS);
    choir_trial_state state = curve_end(w->trial, w->step, stop);
    ok(choir_study_tell(study, w->trial, state, &value, 1));
    return true;
}

/* Runs a study to its end with this number of workers, and adds up the steps. */
static char *run(choir_study *study, int workers, int64_t *steps)
{
    worker w[16];
    int busy = 0;
    bool over = false;
    for (;;) {
        while (!over && busy < workers && choir_study_ready(study)) {
            over = !begin(&w[busy], study);
            busy += !over;
        }
        if (!busy)
            break;
        int which = roll(busy);
        *steps += 1;
        if (advance(&w[which], study))
            w[which] = w[--busy];
    }
    assert_true(over);
    return curve_table(study);
}

static const char *const schedulers[] = {
    "none",
    "asha:min=1,max=27,eta=3",
    "hyperband:min=1,max=27,eta=3",
    "median:startup=3,warmup=2",
    "percentile:percent=40,interval=3",
    "patience:reports=3",
    "pbt:population=32,interval=5,max=27",
};

static void test_order(void **state)
{
    static const char *const samplers[] = {"random", "tpe", "bohb", "cmaes:population=5"};
    for (size_t i = 0; choir__scheduler_name(i); i++) /* none is left out */
        assert_int_equal(
            strncmp(schedulers[i], choir__scheduler_name(i), strlen(choir__scheduler_name(i))),
            0);
    for (size_t k = 0; k < CHOIR_COUNT(schedulers); k++)
        for (size_t s = 0; s < CHOIR_COUNT(samplers); s++) {
            char *first = NULL;
            static const int workers[] = {1, 4, 16, 16};
            for (size_t i = 0; i < CHOIR_COUNT(workers); i++) {
                int64_t steps = 0;
                dice = (unsigned)i + 1;
                choir_study *study = study_of(schedulers[k], samplers[s], 16, 60);
                char *table = run(study, workers[i], &steps);
                choir_study_free(study);
                if (first)
                    assert_string_equal(table, first);
                if (first)
                    free(table);
                else
                    first = table;
            }
            free(first);
        }
}

/* --- each scheduler --- */

/* Asks for the next trial, which runs to `step` with a constant loss and stops there. */
static choir_trial *go(choir_study *study, int64_t step, double loss)
{
    choir_trial *t = NULL;
    ok(choir_study_ask(study, &t));
    int64_t from = choir_trial_step(t);
    for (int64_t i = from < 0 ? 1 : from + 1; i <= step; i++) {
        assert_false(choir_trial_should_stop(t));
        ok(choir_trial_report(t, i, loss));
    }
    ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    return t;
}

/* A trial goes on as soon as it is among the best third of its rung; a new one begins where
 * there is none. */
static void test_asha(void **state)
{
    choir_study *study = study_of("asha:min=2,max=18,eta=3", "random", 1, 9);
    static const struct {
        int64_t trial, budget;
        double loss;
    } expected[] = {{0, 2, 5}, {1, 2, 3}, {2, 2, 4}, {1, 6, 2}, {3, 2, 1}, {3, 6, 1}, {4, 2, 9},
        {5, 2, 8}, {6, 2, 7}, {7, 2, 6}, {8, 2, 0}, {8, 6, 0}, {8, 18, 0.5}};
    for (size_t i = 0; i < CHOIR_COUNT(expected); i++) {
        choir_trial *t = go(study, expected[i].budget, expected[i].loss);
        assert_int_equal(choir_trial_number(t), expected[i].trial);
        assert_int_equal(choir_trial_budget(t), expected[i].budget);
    }
    choir_trial *t;
    assert_int_equal(choir_study_ask(study, &t), CHOIR_ERR_END);
    t = choir_study_trial(study, 8);
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_COMPLETE);
    assert_true(choir_trial_value(t, 0) == 0.5);
    assert_ptr_equal(choir_study_best(study), t);
    assert_int_equal(choir_trial_result(choir_study_trial(study, 1)), CHOIR_TRIAL_PRUNED);
    choir_study_free(study);
}

/* The brackets of the paper's table for max = 81, eta = 3. */
static void test_hyperband(void **state)
{
    static const int64_t counts[5][5] = {
        {81, 27, 9, 3, 1}, {34, 11, 3, 1}, {15, 5, 1}, {8, 2}, {5}};
    choir_study *study = study_of("hyperband:min=1,max=81,eta=3", "random", 1, 143);
    int64_t budget = 1;
    for (int bracket = 0; bracket < 5; bracket++, budget *= 3)
        for (int64_t rung = 0, b = budget; rung < 5 - bracket; rung++, b *= 3)
            for (int64_t i = 0; i < counts[bracket][rung]; i++) {
                choir_trial *t = NULL;
                ok(choir_study_ask(study, &t));
                assert_int_equal(choir_trial_budget(t), b);
                ok(choir_trial_report(t, b, (double)choir_trial_number(t)));
                ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
                if (rung) /* the first of the bracket are the best */
                    assert_int_equal(
                        choir_trial_number(t) - (choir_study_count(study) - counts[bracket][0]),
                        i);
            }
    choir_trial *t;
    assert_int_equal(choir_study_ask(study, &t), CHOIR_ERR_END);
    choir_study_free(study);
}

/* The worst members begin again as copies of the best ones, at their step. */
static void test_pbt(void **state)
{
    choir_study *study = study_of("pbt:population=8,interval=10,max=30", "random", 1, 100);
    for (int i = 0; i < 8; i++)
        assert_int_equal(choir_trial_budget(go(study, 10, i)), 10);
    for (int i = 0; i < 8; i++) {
        choir_trial *t = go(study, 20, i);
        assert_int_equal(choir_trial_number(t), i < 6 ? i : i + 2);
        assert_int_equal(choir_trial_step(t), 10);
        assert_int_equal(choir_trial_budget(t), 20);
        const choir_trial *parent = choir_study_trial(study, choir_trial_parent(t));
        assert_true(i < 6 ? !parent : choir_trial_number(parent) < 2);
        if (i < 6)
            continue;
        double ratio = choir_trial_real(t, "lr") / choir_trial_real(parent, "lr");
        assert_true(fabs(ratio - 1) > 1e-9); /* 0.8, 1.2, or drawn again */
    }
    for (int i = 0; i < 8; i++)
        assert_int_equal(choir_trial_budget(go(study, 30, i)), 30);
    choir_trial *t;
    assert_int_equal(choir_study_ask(study, &t), CHOIR_ERR_END);
    choir_study_free(study);
}

/* A copy that was made in this generation, and is ahead, is none that others begin with. */
static void test_pbt_generations(void **state)
{
    static const double values[] = {9, 8, 1, 2};
    choir_study *study =
        study_of("pbt:population=4,interval=10,max=20,quantile=0.5", "random", 1, 100);
    for (int i = 0; i < 4; i++)
        go(study, 10, values[i]);
    for (int i = 0; i < 4; i++) {
        choir_trial *t = go(study, 20, -5);
        int64_t parent = choir_trial_parent(t);
        assert_int_equal(choir_trial_step(t), 10);
        assert_true(i < 2 ? parent == 2 || parent == 3 : parent == -1);
    }
    choir_study_free(study);
}

/* Copies are new trials, but none of a grid, which has as many points as there are members. */
static void test_pbt_grid(void **state)
{
    choir_space *space = choir_space_new();
    ok(choir_space_add(space, "x", "choice(1,2,3,4,5,6,7,8)"));
    choir_study_opts opts = choir_study_defaults();
    opts.scheduler = "pbt:population=10,interval=10,max=30";
    opts.sampler = "grid";
    opts.trials = 11;
    choir_study *study = NULL;
    ok(choir_study_open(space, opts, &study));
    for (int i = 0; i < 8; i++)
        assert_int_equal(choir_trial_parent(go(study, 10, i)), -1);
    for (int i = 0; i < 8; i++) {
        choir_trial *t = go(study, 20, i);
        assert_true((choir_trial_parent(t) >= 0) == (i >= 6));
    }
    choir_trial *t;
    int parts = 0;
    for (; choir_study_ask(study, &t) == CHOIR_OK; parts++) { /* room for one more copy */
        ok(choir_trial_report(t, 30, parts));
        ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    }
    assert_int_equal(parts, 8);
    assert_int_equal(choir_study_count(study), 11);
    choir_study_free(study);
    choir_space_free(space);
}

/* A trial that was stopped is judged by its reports until then; later ones are there when it
 * goes on. Reports from before its checkpoint change nothing. */
static void test_reports(void **state)
{
    choir_study *study = study_of("asha:min=2,max=4,eta=2", "random", 1, 2);
    choir_trial *t;
    double value = -1;
    ok(choir_study_ask(study, &t));
    for (int64_t step = 1; step <= 3; step++) {
        ok(choir_trial_report(t, step, (double)-step));
        assert_true(choir_trial_should_stop(t) == (step >= 2));
    }
    ok(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &value, 1));
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_PRUNED);
    assert_true(choir_trial_value(t, 0) == -2);
    go(study, 2, 0);
    choir_trial *again;
    ok(choir_study_ask(study, &again));
    assert_ptr_equal(again, t);
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_RUNNING);
    assert_int_equal(choir_trial_step(t), 2);
    ok(choir_trial_report(t, 1, 77));
    assert_false(choir_trial_should_stop(t));
    ok(choir_trial_report(t, 4, -4));
    assert_true(choir_trial_should_stop(t));
    ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_COMPLETE);
    assert_true(choir_trial_value(t, 0) == -4);
    choir_study_free(study);
}

/* A trial that has reached its next budget already stops at once; one that goes on counts as
 * the best by its value from before. */
static void test_reached(void **state)
{
    choir_study *study = study_of("asha:min=25,max=100,eta=2", "random", 1, 2);
    choir_trial *t, *again;
    ok(choir_study_ask(study, &t));
    ok(choir_trial_report(t, 100, -1));
    assert_true(choir_trial_should_stop(t));
    ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    go(study, 25, 0);
    ok(choir_study_ask(study, &again));
    assert_ptr_equal(again, t);
    assert_true(choir_trial_should_stop(t));
    assert_ptr_equal(choir_study_best(study), t);
    assert_true(choir_trial_value(t, 0) == -1);
    ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
    choir_study_free(study);
}

/* A trial that completes after several parts, of which nothing was looked at between, is one
 * result for samplers, not several. */
static void test_results_once(void **state)
{
    static const char *const samplers[] = {"bohb", "cmaes:population=5", "tpe:startup=3"};
    for (size_t i = 0; i < CHOIR_COUNT(samplers); i++) {
        choir_study *study = study_of("hyperband:min=1,max=81,eta=3", samplers[i], 1, 300);
        choir_trial *t;
        while (choir_study_ask(study, &t) == CHOIR_OK) {
            int64_t step = choir_trial_budget(t);
            ok(choir_trial_report(t, step, curve_at(t, step)));
            ok(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
        }
        assert_int_equal(choir_study_count(study), 300);
        choir_study_free(study);
    }
}

/* Without the rule of order no trial waits for the  slowest. */
static void test_without_order(void **state)
{
    choir_space *space = choir_space_new();
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    choir_study_opts opts = choir_study_defaults();
    opts.scheduler = "asha:min=1,max=3,eta=3";
    opts.window = 2;
    opts.trials = 6;
    opts.free = true;
    choir_study *study = NULL;
    ok(choir_study_open(space, opts, &study));
    choir_trial *slow, *t;
    ok(choir_study_ask(study, &slow));
    for (int i = 1; i < 4; i++)
        assert_int_equal(choir_trial_number(go(study, 1, i)), i);
    t = go(study, 3, 0);
    assert_int_equal(choir_trial_number(t), 1); /* the best of three */
    assert_int_equal(choir_trial_result(t), CHOIR_TRIAL_COMPLETE);
    ok(choir_study_tell(study, slow, CHOIR_TRIAL_FAIL, NULL, 0));
    choir_study_free(study);
    choir_space_free(space);
}

static void test_errors(void **state)
{
    static const struct {
        const char *scheduler, *direction, *message;
        int64_t window;
    } wrong[] = {
        {"ashaa", "minimize", "unknown scheduler 'ashaa'", 1},
        {"asha:min=5,max=4", "minimize", "expected min <= max, got 5 > 4", 1},
        {"asha:eta=1", "minimize", "eta", 1},
        {"hyperband:steps=3", "minimize", "steps", 1},
        {"median:percent=3", "minimize", "percent", 1},
        {"percentile:percent=101", "minimize", "percent", 1},
        {"pbt:population=4", "minimize", "half of the population 4, got 3", 3},
        {"asha", "minimize,maximize", "scheduler asha: expected one direction, got 2", 1},
    };
    choir_space *space = choir_space_new();
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    for (size_t i = 0; i < CHOIR_COUNT(wrong); i++) {
        choir_study_opts opts = choir_study_defaults();
        opts.sampler = "random";
        opts.scheduler = wrong[i].scheduler;
        opts.direction = wrong[i].direction;
        opts.window = wrong[i].window;
        choir_study *study = NULL;
        assert_true(choir_study_open(space, opts, &study) != CHOIR_OK);
        if (!strstr(choir_error_message(), wrong[i].message))
            fail_msg("%s: %s", wrong[i].scheduler, choir_error_message());
    }
    choir_space_free(space);
}

/* Prints the reports of trials, one after the other, up to where they are stopped, for
 * tests/interop/tune/pruners.py. Some steps have no value, or one that is no number. */
static void print_curves(const char *scheduler, const char *direction)
{
    choir_space *space = choir_space_new();
    ok(choir_space_add(space, "x", "uniform(0, 1)"));
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = "random";
    opts.scheduler = scheduler;
    opts.direction = direction;
    choir_study *study = open_study(space, opts);
    dice = 11;
    for (int n = 0; n < 60; n++) {
        choir_trial *t;
        ok(choir_study_ask(study, &t));
        double level = roll(100) / 25.0, value = 0;
        for (int64_t step = 0; step < CURVE_STEPS && !choir_trial_should_stop(t); step++) {
            if (roll(5) == 0)
                continue;
            bool none = isnan(value) ? roll(5) > 0 : roll(12) == 0; /* often several in a row */
            value = none ? (double)NAN : level + 3 * exp(-(double)step / 6) + roll(100) / 100.0;
            ok(choir_trial_report(t, step, value));
            printf("%lld %.17g ", (long long)step, value);
        }
        bool stopped = choir_trial_should_stop(t);
        ok(choir_study_tell(
            study, t, stopped ? CHOIR_TRIAL_PRUNED : CHOIR_TRIAL_COMPLETE, &level, 1));
        printf("%s %.17g\n", stopped ? "stopped" : "complete", level);
    }
    choir_study_free(study);
    choir_space_free(space);
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        print_curves(argv[1], argv[2]);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_asha),
        cmocka_unit_test(test_hyperband),
        cmocka_unit_test(test_pbt),
        cmocka_unit_test(test_pbt_generations),
        cmocka_unit_test(test_pbt_grid),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_reached),
        cmocka_unit_test(test_results_once),
        cmocka_unit_test(test_without_order),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
