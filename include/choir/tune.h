/* Searches whose trials are a C function, several at once.
 *
 *     static choir_status train(choir_trial *trial, void *arg, double *values)
 *     {
 *         for (int64_t epoch = choir_trial_step(trial) + 1; epoch < EPOCHS; epoch++) {
 *             values[0] = train_one_epoch(arg, choir_trial_real(trial, "lr"));
 *             choir_check(choir_trial_report(trial, epoch, values[0]));
 *             if (choir_trial_should_stop(trial))
 *                 break;
 *         }
 *         return CHOIR_OK;
 *     }
 *
 *     choir_tune_opts opts = choir_tune_defaults();
 *     opts.parallel = 4;
 *     choir_check(choir_tune(study, train, NULL, opts));
 *
 * Trials run in threads, or each in a fork of the caller. A fork begins with a copy of the
 * caller's memory, and its changes there are lost: it returns results as values, reports and
 * attributes. If a fork crashes, the trial has failed. The rule of order (study.h) holds for
 * threads and forks: the study's trials are the same for every `parallel` up to its window.
 *
 * Threads: a study belongs to one call of choir_tune at a time. Collective: none. */
#ifndef CHOIR_TUNE_H
#define CHOIR_TUNE_H

#include <choir/study.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The function of a trial. It stores the trial's values (objectives) in values, which begin as
 * NaN; a trial that stops because of choir_trial_should_stop needs no values. Any status but
 * CHOIR_OK is a failure, whose reason is choir_error_message, or else choir_status_text. If a
 * scheduler resumes the trial, the function is called again for the same trial. */
typedef choir_status choir_trial_fn(choir_trial *trial, void *arg, double *values);

typedef struct choir_tune_opts {
    int parallel;     /* trials at once, up to 1024 and the study's window; default 1 */
    bool forks;       /* true: each trial in its own process; default false: threads */
    int retries;      /* retries of a failed trial; default 0 */
    int failures_max; /* failed trials in a row that end the search; default 10 */
    double timeout_s; /* with forks: seconds after which a trial fails; default 0: no limit */
} choir_tune_opts;

choir_tune_opts choir_tune_defaults(void);

/** Runs fn for each trial of a study until choir_study_ask returns no more. As with `choir
 * tune`, each trial gets the attributes "seconds" (in all its segments) and "step", and "why"
 * if it failed.
 *
 * Errors: argument (options that were not initialised by choir_tune_defaults(), a time limit
 * for threads), state (too many failures in a row, naming the last reason; a trial that the
 * caller, or fn, got from choir_study_ask has not ended; with forks: the process uses a GPU),
 * and as choir_study_ask and choir_study_tell. */
CHOIR_CHECKED choir_status choir_tune(
    choir_study *study, choir_trial_fn *fn, void *arg, choir_tune_opts opts);

/** Returns the slot in which choir_tune runs the trial, from 0 to parallel - 1, so that the
 * trial can choose a device of its own; -1: choir_tune does not run it now. */
int choir_trial_place(const choir_trial *trial);

#ifdef __cplusplus
}
#endif
#endif
