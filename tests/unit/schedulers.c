/* Schedulers: the same table of trials however many run at once, how fast they stop and in
 * whatever order they end; the rungs of ASHA and Hyperband, copies of population-based
 * training, and errors. tests/interop compares the stopping rules with Optuna's.
 *
 * A trial here is a curve that falls to a level of its own. Each of its steps is taken when a
 * dice says so; one that is told to stop reports a few more steps, and one that goes on begins
 * from a checkpoint that is a few steps old. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tune/scheduler/scheduler.h"

enum { STEPS = 27 };

static choir_study *study_of(
    const char *scheduler, const char *sampler, int64_t window, int64_t trials)
{
    choir_space *space = choir_space_new();
    assert_int_equal(choir_space_add(space, "lr", "log(1e-4, 1)"), CHOIR_OK);
    assert_int_equal(choir_space_add(space, "width", "int(16, 64, step=16)"), CHOIR_OK);
    assert_int_equal(choir_space_add(space, "kind", "choice(a, b, c)"), CHOIR_OK);
    choir_study_opts opts = choir_study_defaults();
    opts.scheduler = scheduler;
    opts.sampler = sampler;
    opts.window = window;
    opts.trials = trials;
    opts.seed = 3;
    choir_study *study = NULL;
    if (choir_study_open(space, opts, &study) != CHOIR_OK)
        fail_msg("%s", choir_error_message());
    choir_space_free(space);
    return study;
}

static double curve(const choir_trial *t, int64_t step)
{
    double level = fabs(log10(choir_trial_real(t, "lr")) + 2) +
                   64 / choir_trial_real(t, "width") / 8 +
                   0.1 * (choir_trial_text(t, "kind")[0] - 'a');
    return level + 3 * exp(-(double)step / 6) + 0.3 * sin(7 * level + (double)step);
}

/* --- many at once --- */

typedef struct worker {
    choir_trial *trial;
    int64_t step;
    int late; /* steps after it was told to stop */
} worker;

static unsigned dice;
static int roll(int sides)
{
    dice = dice * 1103515245u + 12345u;
    return (int)(dice >> 16) % sides;
}

/* Asks for a trial; returns false at the study's end. */
static bool begin(worker *w, choir_study *study)
{
    choir_status status = choir_study_ask(study, &w->trial);
    if (status == CHOIR_ERR_END)
        return false;
    if (status != CHOIR_OK)
        fail_msg("%s", choir_error_message());
    int64_t step = choir_trial_step(w->trial);
    w->step = step < 0 ? 0 : step - roll(2) * roll((int)step + 1);
    w->late = roll(3);
    return true;
}

/* Takes a step; returns whether the segment has ended. */
static bool advance(worker *w, choir_study *study)
{
    bool stop = choir_trial_should_stop(w->trial);
    if (w->step < STEPS && (!stop || w->late-- > 0)) {
        w->step++;
        assert_int_equal(
            choir_trial_report(w->trial, w->step, curve(w->trial, w->step)), CHOIR_OK);
        return false;
    }
    double value = curve(w->trial, STEPS);
    choir_trial_state state = choir_trial_number(w->trial) % 11 == 4 ? CHOIR_TRIAL_FAIL
                              : w->step == STEPS && !stop            ? CHOIR_TRIAL_COMPLETE
                                                                     : CHOIR_TRIAL_PRUNED;
    assert_int_equal(choir_study_tell(study, w->trial, state, &value, 1), CHOIR_OK);
    return true;
}

static char *table_of(const choir_study *study)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    for (int64_t i = 0; i < choir_study_count(study); i++) {
        choir_trial *t = choir_study_trial(study, i);
        fprintf(out, "%s %s %s %d %.17g parent %lld steps %lld budget %lld\n",
            choir_trial_text(t, "lr"), choir_trial_text(t, "width"),
            choir_trial_text(t, "kind"), (int)choir_trial_result(t), choir_trial_value(t, 0),
            (long long)choir_trial_parent(t), (long long)choir_trial_step(t),
            (long long)choir_trial_budget(t));
    }
    fprintf(out, "best %lld\n", (long long)choir_trial_number(choir_study_best(study)));
    fclose(out);
    return text;
}

/* Runs a study to its end with so many workers, and adds up the steps. */
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
    return table_of(study);
}

static const char *const schedulers[] = {
    "none",
    "asha:min=1,max=27,eta=3",
    "hyperband:min=1,max=27,eta=3",
    "median:startup=3,warmup=2",
    "percentile:percent=40,interval=3",
    "patience:reports=3",
    "pbt:population=16,interval=5,max=27",
};

static void test_order(void **state)
{
    (void)state;
    static const char *const samplers[] = {"random", "tpe", "bohb", "cmaes:population=5"};
    for (size_t i = 0; choir__scheduler_name(i); i++) /* none is left out */
        assert_int_equal(strncmp(schedulers[i], choir__scheduler_name(i),
                             strlen(choir__scheduler_name(i))),
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
