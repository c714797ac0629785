/* choir_tune: its options, and the choice between threads and forks. */
#include <stdlib.h>

#include "tune/program/link.h"
#include "tune/program/program.h"
#include "tune/study.h"
#include "tune/trial.h"
#include "tune/trials/ended.h"

enum { MOST_PARALLEL = 1024 };

choir_tune_opts choir_tune_defaults(void)
{
    return (choir_tune_opts){.parallel = 1, .failures_max = 10};
}

int choir_trial_place(const choir_trial *trial)
{
    return choir__lacks(trial, __func__, "trial") ? -1 : trial->place - 1;
}

static choir_status check(choir_tune_opts opts)
{
    if (opts.parallel < 1 || opts.parallel > MOST_PARALLEL || opts.failures_max < 1 ||
        opts.retries < 0 || opts.timeout_s < 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_tune: expected options that begin as choir_tune_defaults(), with 1 to %d "
            "trials at once",
            MOST_PARALLEL);
    if (opts.timeout_s > 0 && !opts.forks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "choir_tune: expected no time limit without forks, since no thread can be stopped");
    return opts.forks ? choir__tune_may_fork() : CHOIR_OK;
}

/* The error of too many failures. */
static choir_status gave_up(const choir__driver *d)
{
    char *why = choir__trial_why(d->failed);
    choir_status status = choir__error(CHOIR_ERR_STATE,
        "%lld trial%s in a row failed, which ends the search; the last one: %s",
        (long long)d->failures, d->failures == 1 ? "" : "s",
        why ? why : "a value is not a number");
    free(why);
    return status;
}

choir_status choir_tune(choir_study *study, choir_trial_fn *fn, void *arg, choir_tune_opts opts)
{
    if (choir__lacks(study, __func__, "study"))
        return CHOIR_ERR_ARGUMENT;
    if (!fn)
        return choir__missing(__func__, "fn");
    choir_status status = check(opts);
    if (status != CHOIR_OK)
        return status;
    if (study->forked)
        return choir__link_refuses(__func__);
    if (!study->space)
        return choir__error(CHOIR_ERR_STATE,
            "choir_tune: expected a study with a space, got one that was opened to be read");
    choir__program program = {.fn = fn, .arg = arg};
    choir__driver d = {.study = study,
        .ops = opts.forks ? &choir__fork_runner : &choir__thread_runner,
        .arg = &program,
        .parallel = opts.parallel,
        .retries = opts.retries,
        .failures_max = opts.failures_max,
        .timeout_s = opts.timeout_s,
        .wakes = -1};
    status = choir__driver_check_held(study);
    if (status != CHOIR_OK)
        return status;
    choir__driver_run(&d);
    return d.gave_up ? gave_up(&d) : d.status;
}
