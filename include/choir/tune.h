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
 * Trials run in threads, or each in a process that is a fork of the caller. A fork begins with
 * a copy of the caller's memory, and its changes there are lost: results leave it as values,
 * reports and attributes. A fork that crashes is a trial that has failed. The rule of
 * order (study.h) holds for both: the study's trials are the same for every `parallel` up to
 * its window.
 *
 * Threads: a study belongs to one call of choir_tune at a time. Collective: none. */
#ifndef CHOIR_TUNE_H
#define CHOIR_TUNE_H

#include <choir/study.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The function of a trial stores the trial's values (objectives) in values, which begin as
 * NaN; a trial that stops by choir_trial_should_stop needs none. Another status than CHOIR_OK
 * is a failure, with choir_error_message, or else choir_status_text, as the reason. Where
 * trials go on, it is called again for the same trial. */
typedef choir_status choir_trial_fn(choir_trial *trial, void *arg, double *values);

typedef struct choir_tune_opts {
    int parallel; /* trials at once, up to 1024; default 1. The study's window is a limit, too
                   */
    bool forks;   /* each trial in a process of its own; default false: threads */
    int retries;  /* of a failed trial; default 0 */
    int failures_max; /* failed trials in a row that end the search; default 10 */
    double
        timeout_s; /* with forks: a trial that takes longer has failed; default 0: no limit */
} choir_tune_opts;

choir_tune_opts choir_tune_defaults(void);

/** Runs fn for each trial of a study until there are no more. Each trial gets the attributes
 * "seconds" (in all its parts) and "step", and "why" if it failed, as those of `choir tune` do.
 *
 * Errors: argument (options that do not begin as choir_tune_defaults(), a time limit of
 * threads), state (too many failures in a row, of which the message names the last reason; a
 * trial that the caller, or fn, has asked for has not ended; with forks: the process uses a
 * GPU), and those of choir_study_ask and choir_study_tell. */
CHOIR_CHECKED choir_status choir_tune(
    choir_study *study, choir_trial_fn *fn, void *arg, choir_tune_opts opts);

/** Returns the place at which choir_tune runs the trial, from 0 to parallel - 1, by which it
 * may choose its device; -1: it runs in none. */
int choir_trial_place(const choir_trial *trial);

#ifdef __cplusplus
}
#endif
#endif
