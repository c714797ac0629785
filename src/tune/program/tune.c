/* choir_tune: its options, and the choice between threads and forks. */
#include <stdlib.h>

#include "tune/program/link.h"
#include "tune/program/tuning.h"
#include "tune/study.h"

enum { MOST_PARALLEL = 1024 };

choir_tune_opts choir_tune_defaults(void)
{
    return (choir_tune_opts){.parallel = 1, .failures_max = 10};
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
    choir__tuning t = {.study = study, .fn = fn, .arg = arg, .opts = opts};
    status = choir__tuning_check_held(&t);
    if (status != CHOIR_OK)
        return status;
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.changed, NULL);
    if (opts.forks)
        choir__tune_by_forks(&t);
    else
        choir__tune_by_threads(&t);
    pthread_mutex_destroy(&t.lock);
    pthread_cond_destroy(&t.changed);
    if (t.status != CHOIR_OK)
        choir__set_message(t.error);
    free(t.part);
    free(t.why);
    free(t.error);
    return t.status;
}
