/* Studies: searches for the best hyper-parameters, trial by trial.
 *
 *     choir_study_opts opts = choir_study_defaults();
 *     opts.sampler = "tpe";
 *     choir_check(choir_study_open(space, opts, &study));
 *     for (int i = 0; i < 100; i++) {
 *         choir_trial *t;
 *         choir_check(choir_study_ask(study, &t));
 *         double loss = train(choir_trial_real(t, "lr"), choir_trial_int(t, "width"));
 *         choir_check(choir_study_tell(study, t, CHOIR_TRIAL_COMPLETE, &loss, 1));
 *     }
 *     printf("best: %g\n", choir_trial_value(choir_study_best(study), 0));
 *
 * Schedulers stop trials that are not promising, or pause trials until the best ones are known.
 * They cut a trial into segments: the trial runs up to a budget, which is a step that it
 * reports, and then choir_trial_should_stop returns true. A later choir_study_ask may return
 * the trial again, with a larger budget:
 *
 *     for (int64_t step = choir_trial_step(t) + 1; ; step++) {
 *         choir_check(choir_trial_report(t, step, train_one_epoch(model)));
 *         if (step == EPOCHS || choir_trial_should_stop(t))
 *             break;
 *     }
 *     choir_check(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
 *
 * The rule of order: segment n (its trial, parameters and budget) depends only on the seed and
 * the results of segments 0 ... n - window; without a scheduler, each trial is one segment. So
 * a study with the same space, seed and window has the same trials, and the same best trial,
 * whatever the number of trials that run at once (up to `window`) and the order in which they
 * end. Of the window - 1 trials before, a sampler sees the parameters but not the results.
 *
 * Threads: any; the calls of a study take turns. A trial belongs to the thread that asked for
 * it until choir_study_tell. Collective: none. */
#ifndef CHOIR_STUDY_H
#define CHOIR_STUDY_H

#include <choir/space.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct choir_study choir_study;
typedef struct choir_trial choir_trial;

typedef enum choir_trial_state {
    CHOIR_TRIAL_RUNNING,
    CHOIR_TRIAL_COMPLETE,
    CHOIR_TRIAL_PRUNED, /* stopped early; a scheduler may resume it */
    CHOIR_TRIAL_FAIL,
} choir_trial_state;

enum { CHOIR_STUDY_OBJECTIVES = 8 };

typedef struct choir_study_opts {
    /* Name of a sampler, with options: "random", "grid:points=5", "qmc", "tpe:rule=5",
     * "gp:startup=10", "cmaes:sigma=0.2", "bohb:top=0.15", "nsga2:population=50". */
    const char *sampler;
    /* Name of a scheduler, with options: "none", "asha:min=1,max=100,eta=4",
     * "hyperband:min=1,max=81,eta=3", "median:startup=5", "percentile:percent=25",
     * "patience:reports=10", "pbt:population=20,interval=1,max=100". Budgets are in the steps
     * that trials report. */
    const char *scheduler;
    /* "minimize" or "maximize", one per objective, separated by commas */
    const char *direction;
    uint64_t seed;
    int64_t window; /* segments that may run at once; default 1 */
    int64_t trials; /* number of trials in all; 0: no limit */
    /* true: each segment follows from all results so far. Trials then differ from run to run,
     * but no trial waits for the slowest in the window */
    bool free;
    /* Place where the study is stored: "sqlite:FILE" or "FILE.db", "postgresql://...",
     * "journal:FILE"; NULL: in memory. */
    const char *storage;
    const char *name; /* name of the study in the storage, UTF-8; NULL: "study" */
} choir_study_opts;

choir_study_opts choir_study_defaults(void);

/** Opens a study.
 *
 * If the storage has a study of this name, it continues: ended trials (or segments) stay, and
 * choir_study_ask returns trials whose process has died once more, with their numbers and
 * parameters. Processes that open the same study share its trials, also across machines. With
 * space NULL, the stored study can be read, but choir_study_ask returns no trials; name NULL is
 * then the only study of the storage.
 *
 * Errors: argument (an empty space, an unknown sampler, scheduler or option; the stored study
 * has another space, direction, sampler, seed or window), I/O, format (not a storage, or from a
 * newer version), unsupported (this build lacks the storage; a scheduler that pauses trials,
 * with several objectives or with a stored study that is free). */
CHOIR_CHECKED choir_status choir_study_open(
    const choir_space *space, choir_study_opts opts, choir_study **study);
/** Frees a study and its trials; NULL is allowed. */
void choir_study_free(choir_study *study);

/** Returns false if the next segment depends on trials that still run, so that choir_study_ask
 * would fail with error state. */
bool choir_study_ready(const choir_study *study);

/** Stores the next trial, which the study owns: a new trial or a resumed one. Errors: state
 * (see choir_study_ready), end (the study has opts.trials trials, or a grid has no more points,
 * and no trial can be resumed), argument (no suggestion fulfils the space's conditions), I/O
 * (the storage). */
CHOIR_CHECKED choir_status choir_study_ask(choir_study *study, choir_trial **trial);

/** Queues a trial with given parameters, such as "lr=0.1,optimizer=sgd"; other parameters are
 * suggested. Queued trials run in order, before all suggested trials. Does nothing if these
 * parameters were queued before, or a trial has exactly these, like Optuna's enqueue_trial with
 * skip_if_exists; so a program may queue them again when it continues a study. Errors: argument
 * (a value outside of its distribution, a parameter twice), end (the study has no room for
 * another trial). */
CHOIR_CHECKED choir_status choir_study_enqueue(choir_study *study, const char *parameters);

/** Ends a trial, or its segment. values (count): one per objective, for state COMPLETE; a NaN
 * makes it FAIL. Pass PRUNED for a trial that was stopped; at the scheduler's largest budget it
 * becomes COMPLETE, with its last report as the value. When the call returns, a stored study
 * has the trial on disk. Errors: argument (another number of values), state (the trial has
 * ended), I/O (the storage). */
CHOIR_CHECKED choir_status choir_study_tell(choir_study *study, choir_trial *trial,
    choir_trial_state state, const double *values, int count);

/** Records an intermediate value, such as an epoch's validation loss; a later report of the
 * same step replaces the earlier one. Steps of earlier segments keep their values, so a trial
 * without a checkpoint may start from the beginning. Errors: argument (a step below 0, or
 * larger than the storage can hold: PostgreSQL's tables end at 2^31 - 1), state (the trial has
 * ended). */
CHOIR_CHECKED choir_status choir_trial_report(choir_trial *trial, int64_t step, double value);

/** Returns whether the trial should stop: it has reached its budget, or is not promising. */
bool choir_trial_should_stop(const choir_trial *trial);
/** Returns the step at which the trial's segment ends; 0: the segment ends with the trial. */
int64_t choir_trial_budget(const choir_trial *trial);
/** Returns the step after which this segment continues, the last step of the segment before;
 * -1: the trial is new. */
int64_t choir_trial_step(const choir_trial *trial);
/** Returns the last reported step, up to the budget; -1: no report. */
int64_t choir_trial_last_step(const choir_trial *trial);
/** Returns the number of reports of a trial, and stores the first `room` of them, by step, in
 * steps (room) and values (room), which may be NULL. */
int64_t choir_trial_reports(
    const choir_trial *trial, int64_t *steps, double *values, int64_t room);
/** Returns the number of the trial whose checkpoint this trial starts from (pbt), or -1. */
int64_t choir_trial_parent(const choir_trial *trial);

/** Store JSON about a running trial, or about a study, under a key in UTF-8 (Optuna's user
 * attributes). Errors: argument (no JSON, or no UTF-8), state (the trial has ended). */
CHOIR_CHECKED choir_status choir_trial_set_attribute(
    choir_trial *trial, const char *key, const char *json);
CHOIR_CHECKED choir_status choir_study_set_attribute(
    choir_study *study, const char *key, const char *json);
/** Return the JSON under a key, or NULL; the text is valid until the key is set again. */
const char *choir_trial_attribute(const choir_trial *trial, const char *key);
const char *choir_study_attribute(const choir_study *study, const char *key);

/** Returns the space, which belongs to the study. */
const choir_space *choir_study_space(const choir_study *study);
/** Returns whether this process runs the trial or has run it; false: another process of a
 * stored study, perhaps an earlier one. */
bool choir_trial_is_ours(const choir_trial *trial);

/** Returns the number of trials that choir_study_ask has returned so far. */
int64_t choir_study_count(const choir_study *study);
/** Returns trial `number`, or NULL. */
choir_trial *choir_study_trial(const choir_study *study, int64_t number);
/** Returns the complete trial with the best first value; among equals, the first. If no trial
 * is complete, returns the best of the pruned trials that came furthest. NULL: no trial has a
 * value. */
choir_trial *choir_study_best(const choir_study *study);
/** Returns the number of complete trials on the Pareto front: no other trial is better in one
 * objective and at least as good in all others. Stores the first `room` of them, by number, in
 * trials (room), which may be NULL. */
int64_t choir_study_pareto(const choir_study *study, choir_trial **trials, int64_t room);

/** Computes each parameter's importance: its influence on whether a trial is among the best
 * tenth, by PED-ANOVA as in Optuna 5. shares (number of parameters of the space): sum 1; 0 for
 * parameters that no complete trial has. Errors: argument, state (no complete trial has a
 * finite value). */
CHOIR_CHECKED choir_status choir_study_importance(
    const choir_study *study, int objective, double *shares);
/** Like choir_study_importance, with an evaluator: "ped-anova" or "fanova". fanova fits a
 * random forest and computes the share of the value's variance over the whole space that each
 * parameter explains alone, as Optuna's FanovaImportanceEvaluator; a parameter that some
 * complete trial lacks gets 0. Errors: argument, state. */
CHOIR_CHECKED choir_status choir_study_importance_by(
    const choir_study *study, const char *evaluator, int objective, double *shares);

/** Returns the number of objectives. */
int choir_study_objectives(const choir_study *study);
/** Returns whether larger values are better in an objective. */
bool choir_study_maximizes(const choir_study *study, int objective);

int64_t choir_trial_number(const choir_trial *trial);
choir_trial_state choir_trial_result(const choir_trial *trial);
/** Returns the trial's value for an objective. For a stopped or paused trial: its last reported
 * value. NaN if it has no value. */
double choir_trial_value(const choir_trial *trial, int objective);

/** Returns whether the trial has a parameter of this name with a value. */
bool choir_trial_has(const choir_trial *trial, const char *name);
/** Returns a parameter as a real number: NaN if the trial does not have it, or its value is a
 * word. */
double choir_trial_real(const choir_trial *trial, const char *name);
/** Returns a parameter as a whole number, rounded towards zero; 0 if choir_trial_real would
 * return NaN. */
int64_t choir_trial_int(const choir_trial *trial, const char *name);
/** Returns a parameter as text, such as "0.001" or "adamw"; NULL if the trial does not have it.
 * The text belongs to the trial. Numbers are written so that they are read back exactly. */
const char *choir_trial_text(const choir_trial *trial, const char *name);

#ifdef __cplusplus
}
#endif
#endif
