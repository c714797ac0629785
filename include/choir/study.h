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
 * Schedulers end trials early that are not promising, or let them wait until it is known which
 * are the best. They cut a trial into segments: the trial runs up to a budget, a step that it
 * reports, and is then told to stop. It may be asked for again later, with a larger budget:
 *
 *     for (int64_t step = choir_trial_step(t) + 1; ; step++) {
 *         choir_check(choir_trial_report(t, step, train_one_epoch(model)));
 *         if (step == EPOCHS || choir_trial_should_stop(t))
 *             break;
 *     }
 *     choir_check(choir_study_tell(study, t, CHOIR_TRIAL_PRUNED, NULL, 0));
 *
 * The rule of order: segment n, which trial it belongs to, its parameters and its budget,
 * follows from the seed and the results of the segments 0 ... n - window alone; without a
 * scheduler, each trial is one segment. So a study with the same space, seed and window has the
 * same trials, and the same best one, however many of them run at once (up to `window`), and in
 * whatever order they end. A sampler sees the parameters, but not the results, of the
 * window - 1 trials before.
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
    CHOIR_TRIAL_PRUNED, /* stopped early; a scheduler may let it go on */
    CHOIR_TRIAL_FAIL,
} choir_trial_state;

enum { CHOIR_STUDY_OBJECTIVES = 8 };

typedef struct choir_study_opts {
    /* The name of a sampler, and its options: "random", "grid:points=5", "qmc", "tpe:rule=5",
     * "gp:startup=10", "cmaes:sigma=0.2", "bohb:top=0.15", "nsga2:population=50". */
    const char *sampler;
    /* "none", "asha:min=1,max=100,eta=4", "hyperband:min=1,max=81,eta=3", "median:startup=5",
     * "percentile:percent=25", "patience:reports=10", "pbt:population=20,interval=1,max=100":
     * the name of a scheduler, and its options. Budgets are steps as trials report them. */
    const char *scheduler;
    /* "minimize" or "maximize"; with several objectives separated by commas */
    const char *direction;
    uint64_t seed;
    int64_t window; /* segments that may run at once; default 1 */
    int64_t trials; /* how many in all; 0: no limit */
    bool free;      /* each segment follows from all results that are there: not the same trials
                       each time, but no trial waits for the slowest of the window */
    /* Where the study is kept: "sqlite:FILE" or "FILE.db", "postgresql://...", "journal:FILE";
     * NULL: in memory. */
    const char *storage;
    const char *name; /* of the study in the storage, UTF-8; NULL: "study" */
} choir_study_opts;

choir_study_opts choir_study_defaults(void);

/** Opens a study.
 *
 * A stored study of this name goes on: trials that have ended stay, and trials whose process
 * has died are given again, with their numbers and parameters. The same holds for segments.
 * Processes, also of several machines, that open one study share its trials. Space NULL: the
 * stored study is looked at, and no trial can be asked for; name NULL is the only study of the
 * storage then.
 *
 * Errors: argument (an empty space, an unknown sampler, scheduler or option; the stored study
 * has another space, direction, sampler, seed or window), I/O, format (no storage, or of a
 * newer version), unsupported (this build lacks the storage; a scheduler that lets trials wait,
 * for several objectives or a stored study that is free). */
CHOIR_CHECKED choir_status choir_study_open(
    const choir_space *space, choir_study_opts opts, choir_study **study);
/** Frees a study and its trials; NULL is allowed. */
void choir_study_free(choir_study *study);

/** Returns whether choir_study_ask has something else to say than that trials have to end
 * first, since the next segment follows from them. */
bool choir_study_ready(const choir_study *study);

/** Stores the next trial, which the study owns: a new one, or one that goes on. Errors: state
 * (see choir_study_ready), end (there are `trials`, or a grid has no more points, and nothing
 * goes on), argument (no suggestion fulfils the space's conditions), I/O (the storage). */
CHOIR_CHECKED choir_status choir_study_ask(choir_study *study, choir_trial **trial);

/** Adds a trial with given parameters behind those that are given already, before all that are
 * suggested: "lr=0.1,optimizer=sgd". Those that are not given are suggested. Does nothing if
 * the study has been given these parameters before, or has a trial with these and no others,
 * like Optuna's enqueue_trial with skip_if_exists; so a study that goes on may be given them
 * again. Errors: argument (a value outside of its distribution, a parameter twice), end (the
 * study has no room for another trial). */
CHOIR_CHECKED choir_status choir_study_enqueue(choir_study *study, const char *parameters);

/** Ends a trial, or its segment. values: (count) one per objective, where the state is
 * COMPLETE. NaN becomes FAIL. A trial that was stopped is PRUNED; at the scheduler's
 * largest budget it becomes COMPLETE, with its report there as its value. When the call
 * returns, the trial is on the disk of a stored study. Errors: argument (another number of
 * values), state (the trial has ended), I/O (the storage). */
CHOIR_CHECKED choir_status choir_study_tell(choir_study *study, choir_trial *trial,
    choir_trial_state state, const double *values, int count);

/** Records a value on the way, such as an epoch's validation loss; a step's later value
 * replaces an earlier one. Steps of earlier segments stay as they are, so a trial that has no
 * checkpoint may begin again. Errors: argument (a step below 0, or larger than the storage can
 * hold: PostgreSQL's tables end at 2^31 - 1), state (the trial has ended). */
CHOIR_CHECKED choir_status choir_trial_report(choir_trial *trial, int64_t step, double value);

/** Returns whether the trial is to stop: it has reached its budget, or is not promising. */
bool choir_trial_should_stop(const choir_trial *trial);
/** Returns the step at which the trial's segment ends, or 0: at the trial's own end. */
int64_t choir_trial_budget(const choir_trial *trial);
/** Returns the step from which this segment goes on, the last one of the segment before; -1:
 * the trial is new. */
int64_t choir_trial_step(const choir_trial *trial);
/** Returns the last step that was reported, up to the budget; -1: none. */
int64_t choir_trial_last_step(const choir_trial *trial);
/** Returns the number of reports of a trial, and stores the first `room` of them, by step, in
 * steps (room) and values (room), which may be NULL. */
int64_t choir_trial_reports(
    const choir_trial *trial, int64_t *steps, double *values, int64_t room);
/** Returns the number of the trial whose checkpoint this one begins with (pbt), or -1. */
int64_t choir_trial_parent(const choir_trial *trial);

/** Stores JSON about a trial, which has not ended, or about a study, under a key in UTF-8;
 * Optuna calls them user attributes. Errors: argument (no JSON, or no UTF-8), state (the trial
 * has ended). */
CHOIR_CHECKED choir_status choir_trial_set_attribute(
    choir_trial *trial, const char *key, const char *json);
CHOIR_CHECKED choir_status choir_study_set_attribute(
    choir_study *study, const char *key, const char *json);
/** Returns the JSON under a key, until it is set again, or NULL. */
const char *choir_trial_attribute(const choir_trial *trial, const char *key);
const char *choir_study_attribute(const choir_study *study, const char *key);

/** Returns the space, which belongs to the study. */
const choir_space *choir_study_space(const choir_study *study);
/** Returns whether this process runs the trial, or has run it; false: it is of another process
 * of a stored study, perhaps an earlier one. */
bool choir_trial_is_ours(const choir_trial *trial);

/** Returns the number of trials that the study has given. */
int64_t choir_study_count(const choir_study *study);
/** Returns trial `number`, or NULL. */
choir_trial *choir_study_trial(const choir_study *study, int64_t number);
/** Returns the complete trial with the best first value, of several the first. If none is
 * complete: the best of the pruned ones that came furthest. NULL: none has a value. */
choir_trial *choir_study_best(const choir_study *study);
/** Returns how many complete trials no other one dominates: none is better in one objective
 * without being worse in another. Stores the first `room` of them, by number, in trials (room),
 * which may be NULL. */
int64_t choir_study_pareto(const choir_study *study, choir_trial **trials, int64_t room);

/** Computes how much each parameter decides whether a trial is among the best tenth, by
 * PED-ANOVA as Optuna 5 does. shares: (parameters of the space) sum 1; 0 where no complete
 * trial has the parameter. Errors: argument, state (no complete trial has a finite value). */
CHOIR_CHECKED choir_status choir_study_importance(
    const choir_study *study, int objective, double *shares);
/** Like choir_study_importance, by an evaluator: "ped-anova", or "fanova": how much of the
 * value's variance over the whole space each parameter explains alone, by a random forest, as
 * Optuna's FanovaImportanceEvaluator; parameters that a complete trial lacks have 0. Errors:
 * argument, state. */
CHOIR_CHECKED choir_status choir_study_importance_by(
    const choir_study *study, const char *evaluator, int objective, double *shares);

/** Returns the number of objectives. */
int choir_study_objectives(const choir_study *study);
/** Returns whether more is better in an objective. */
bool choir_study_maximizes(const choir_study *study, int objective);

int64_t choir_trial_number(const choir_trial *trial);
choir_trial_state choir_trial_result(const choir_trial *trial);
/** Returns the value of an objective, of a trial that was stopped, also
 * one that goes on, its last report then; NaN: there is none. */
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
