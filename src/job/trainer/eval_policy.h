/* The decisions that follow from evaluations: which checkpoint is the best, whether training
 * has stopped to improve, and the rate of --schedule plateau. */
#ifndef CHOIR_JOB_TRAINER_JUDGE_H
#define CHOIR_JOB_TRAINER_JUDGE_H

#include <choir/evaluate.h>
#include "job/job.h"

/* The state of the judge, equal on all ranks; checkpoints contain it. */
typedef struct choir__eval_policy {
    double best;    /* measure of the best checkpoint; NaN: none yet */
    double regular; /* best measure of the evaluations of --eval-every */
    int64_t stale;  /* regular evaluations since the best one */
    double base_lr; /* base rate of --schedule plateau; NaN: the job's */
    choir_plateau plateau;
} choir__eval_policy;

/* Checks --best, --patience and --schedule plateau. Error: argument. */
choir_status choir__eval_policy_check(choir__job *job);
/* After the data is open: refuses a metric that the model's task lacks. */
choir_status choir__eval_policy_check_task(const choir__job *job);

choir__eval_policy choir__eval_policy_new(const choir__job *job);
void choir__eval_policy_to_state(const choir__eval_policy *judge,
    const choir__job_training *training, choir_train_state *state);
/* resumed: the state comes from the job that --resume continues, which may have had another
 * measure and another rate. */
void choir__eval_policy_from_state(choir__eval_policy *judge, const choir__job *job,
    const choir_train_state *state, bool resumed);
/* Returns the measure that a text of --best names, in full: "loss:min" for NULL. The caller
 * frees it. */
char *choir__eval_policy_measure(const char *best);

/* Returns whether later steps depend on evaluations, so that none may be left out. */
bool choir__eval_policy_decides(const choir__job *job);
/* Notes an evaluation's score; own: its number of --metric; regular: one of --eval-every.
 * Returns whether it is the best. */
bool choir__eval_policy_score(choir__eval_policy *judge, const choir__job_training *training,
    const choir_score *score, double own, bool regular);
/* Returns whether --patience has run out. */
bool choir__eval_policy_patience_is_over(
    const choir__eval_policy *judge, const choir__job_training *training);
/* Gives the optimizer the rate of --schedule plateau; does nothing with other schedules. */
void choir__eval_policy_set_rate(const choir__eval_policy *judge, choir_optim *optim);

#endif
