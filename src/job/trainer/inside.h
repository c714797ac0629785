/* The inside of the trainer: one rank's training, as the files of this folder share it.
 *
 *     trainer.c    sets up, loops, takes down
 *     step.c       one step, its loss, its trace
 *     between.c    the work between two steps
 *     saves.c      checkpoints
 *     validate.c   validation between steps
 *     ranks.c      ranks that are lost or new
 *     resume.c     continues from a checkpoint
 *     spiked.c     goes back before a spike
 *     show.c       output and records of rank 0
 *     signals.c    signals, and the loss where one ends the job at once
 *     stop.c       requests of signals, time limits and budgets, on which ranks agree
 *     audit.c      hashes of steps
 *     recheck.c    steps that are computed again on other ranks
 *     blame.c      ranks that are wrong
 *     finish.c     the end */
#ifndef CHOIR_JOB_TRAINER_INSIDE_H
#define CHOIR_JOB_TRAINER_INSIDE_H

#include "audit/audit.h"
#include "job/trainer/debug_nan.h"
#include "job/trainer/eval_policy.h"
#include "job/trainer/metric.h"
#include "job/job_rank.h"
#include "job/report/run_log.h"
#include "job/report/report.h"
#include "job/trainer/slow.h"
#include "job/trainer/spike.h"

/* The progress of the training that its objects do not store. With --max-restarts, after each
 * change of the ranks all of them have the progress of the rank that is furthest. */
typedef struct choir__progress {
    int64_t step;          /* steps done */
    choir__done_step last; /* report of that step */
    double last_eval;
    choir__eval_policy judge;
    double epoch_loss;     /* sum of the losses of the epoch's steps */
    double epoch_mean;     /* mean loss of the last complete epoch; NaN: no step had a loss */
    int64_t epoch_without; /* number of the epoch's steps without a loss */
    int64_t with, without; /* steps with and without a loss since the start */
    choir_score score;     /* score of the last validation */
    double metric;         /* number of --metric; NaN: none */
    int64_t scored;        /* step of that validation; 0: none yet */
    char metric_name[CHOIR__METRIC_NAME]; /* name of --metric; `eval` points here */
    choir__told_eval eval;   /* last validation that has a line; step 0: none yet */
    int64_t ended_at;        /* step of the line that says that training ended; 0: none yet */
    int64_t saved;           /* step of the last save, done or under way; 0: none */
    bool time_over;          /* --max-time has ended a validation; no other follows */
    bool ended;              /* training ended before the last step */
    char ended_by[16];       /* "patience" or "max-time"; "": neither */
    bool after;              /* the work after the last step is not done yet */
    bool eval_due, save_due; /* due since the ranks last met */
    bool last_eval_due;      /* the validation at the end */
    bool evaluates_again;    /* a validation was due in the checkpoint that was read */
    bool best_due;           /* the last validation was the best and must be saved */
    bool forgot; /* progress was read from the job's checkpoint, which lacks a part of the state
                  */
    char bits[16]; /* class of bits in which the job computes */
    /* the last step after which ranks have had equal hashes, or that was read from a checkpoint
     * before any; 0: none */
    int64_t compared;
    choir__spikes spikes;
} choir__progress;

typedef struct choir__trainer {
    choir__job *job;           /* this process's copy of the job: --on-spike edits it */
    choir__spike_rule spike;   /* factor 0: none */
    const char *skipped_first; /* batches that the job left out when it began */
    choir__job_rank part;      /* devices, model, data, as the strategy sees them */
    choir__progress now;
    float *read;            /* losses of this rank's micro-batches, on the host */
    bool *measured;         /* whether each of this rank's workers has had a loss */
    int64_t lacking;        /* number of this rank's workers whose last step had no target */
    bool joined;            /* this process was started while the others trained */
    bool begins_again;      /* a rank was lost, and this process sets itself up again */
    bool reports;           /* the report has begun */
    bool lost_save;         /* a save was due or under way when a rank was lost */
    choir_elastic *elastic; /* NULL: a lost rank ends the job */
    bool stays;             /* this process's objects outlive the loss of a rank */
    /* (microbatches) losses of the whole job, if `stays` and ranks step together; else NULL */
    float *all;
    choir__job_report report;
    choir__run_log *record; /* rank 0: the record, from its first entry on; else NULL */
    int64_t again; /* step from which the record continues after a spike; -1: no spike yet */
    choir__job_slow slow;    /* finds the rank for which the others wait */
    choir_checkpoint *saved; /* NULL: nothing was saved yet */
    bool prepared;           /* for saves during training */
    int64_t newest;          /* rank 0: the step of the newest checkpoint; 0: none */
    bool rewritten;          /* rank 0: the newest checkpoint is being replaced */
    /* rank 0: what became of the validation behind the save of that step, until the checkpoint
     * is written and can receive it; step 0: nothing is due */
    choir_train_state judged;
    bool judged_best;
    double stream_s; /* seconds for which the step waited for a stream before it began */
    double save_began,
        save_took;     /* time of the begin of a save; seconds of the last whole save */
    double save_s;     /* seconds of saves since the last checkpoint was reported */
    double eval_s;     /* seconds of the last validation */
    double overtime_s; /* seconds that a validation may exceed --max-time */
    char *job_text;    /* the job's record, with its class of bits; NULL: not saved */
    uint64_t job_hash; /* hash of that text when it was made */
    bool agreed;       /* all ranks know of the error that has ended a validation */
    bool save_due;     /* a signal has asked for a checkpoint */
    bool stopping;     /* a rank was asked to stop, and all ranks know it */
    int by; /* signal that stops the training, also where ranks do not meet; 0: none */
    choir_audit *audit;     /* NULL without --audit */
    int64_t recheck;        /* steps between two that are computed again; 0: none is */
    choir_group *turned[2]; /* the ranks, turned by one and two; NULL: not made */
    choir_group *turned_of; /* the group whose ranks `turned` has */
    uint64_t turned_at;     /* generation of turned_of when `turned` was made */
    bool made;              /* this process has made the last step itself */
    choir__nan_watch watch; /* for --debug-nan */
    choir_trace *trace;     /* NULL without --trace */
    int64_t traced_before;  /* steps of this process before the trace began */
} choir__trainer;

/* --- step.c --- */

/* Runs the step, and stores the mean of its losses in *s, unless it has none. *ran becomes
 * false if other ranks had finished the step, so that this rank received its result. */
choir_status choir__trainer_run_step(choir__trainer *t, choir__done_step *s, bool *ran);
/* Reads the loss scale, and how many steps it has skipped, for the report. */
choir_status choir__trainer_note_scale(choir__trainer *t);

/* Computes, where ranks step by themselves, the mean of their last losses, and the number of
 * their steps without a target. Collective. */
choir_status choir__trainer_mean_of_ranks(choir__trainer *t);

/* Runs, reports and records one step. */
choir_status choir__trainer_one_step(choir__trainer *t);

/* Begins the trace when `done` steps of this process have been run. It leaves out the first
 * steps of a long run, which make objects that later steps reuse. */
void choir__trainer_start_trace(choir__trainer *t, int64_t done);

/* Writes the trace, before a validation, which is not part of it. steps: number of traced
 * steps. */
choir_status choir__trainer_end_trace(choir__trainer *t, int64_t steps);

/* --- show.c --- */

/* Tells an event (CHOIR__TOLD) to standard output, the logs, or both (CHOIR__TO_OUT, ...). */
void choir__trainer_tell(
    choir__trainer *t, unsigned where, const choir__event_kind *kind, const void *told);

/* Shows and records the last step, and the epoch that ends with it, unless an earlier rank 0
 * has done so. */
void choir__trainer_show_step(choir__trainer *t);

/* Shows a validation, if `shown`, and records it, unless an earlier rank 0 has done so. */
void choir__trainer_show_eval(choir__trainer *t, const choir_score *score, bool shown);

/* Notes that an earlier job has shown the lines of the steps up to the present one. */
void choir__trainer_skip_lines(const choir__trainer *t);

/* Shows the lines of the last step that a lost rank 0 may not have written. */
void choir__trainer_show_again(choir__trainer *t);

/* Shows and records a checkpoint, unless an earlier rank 0 has done so. */
void choir__trainer_show_saved(choir__trainer *t, int64_t step);

/* Tells, on rank 0, that the option edits the run. from: the step from which it goes back; -1:
 * it does not. seconds: how long it took to go back; NAN: not known. */
void choir__trainer_show_edit(
    choir__trainer *t, const char *option, int64_t from, double seconds);

/* Tells that the training does no further step. option, signal: the one that stops it; NULL:
 * not by one. left: seconds until the job is killed; INFINITY: no limit. */
void choir__trainer_show_stop(
    choir__trainer *t, const char *option, const char *signal, double left);

/* Ends the training before its last step, and says so. */
void choir__trainer_end_by(choir__trainer *t, const char *option);

/* Shows and records that ranks have left or joined. */
void choir__trainer_show_change(choir__trainer *t, const choir_membership *m);

/* Shows how the time was spent. steps: number of traced steps. */
void choir__trainer_show_profile(choir__trainer *t, int64_t steps, double matmul_rate);

/* Shows the summary, and records the end. loss: the last step's. */
void choir__trainer_show_end(choir__trainer *t, float loss, const choir_score *score,
    const char *sha256, const choir__device_figures *figures, int count);

/* States the result if a program has started the job. score NULL: the training has not ended.
 */
void choir__trainer_tell_program(
    const choir__trainer *t, const choir_score *score, const char *sha256);

/* --- validate.c --- */

/* Computes the score of the model, with the averages of the weights if the job has averages;
 * batches: limit, 0: all. CHOIR_ERR_INTERRUPTED: a signal (t->by) or the end of --max-time
 * (t->now.time_over) has ended it, on all ranks. */
choir_status choir__trainer_evaluate(choir__trainer *t, int64_t batches, choir_score *score);

/* Computes the score of an evaluation of --eval-every, and notes the decisions that follow. */
choir_status choir__trainer_score(choir__trainer *t, choir_score *score);

/* Runs an evaluation of --eval-every. If it fails, the step is saved. */
choir_status choir__trainer_validate(choir__trainer *t);

/* Saves the step whose validation has failed, unless ranks were lost, and says so in the
 * error's message. Returns the error. */
choir_status choir__trainer_save_unvalidated(choir__trainer *t, choir_status why);

/* --- between.c --- */

/* Returns whether work at an interval of `every` steps is due after this step. */
static inline bool choir__trainer_is_due(int64_t step, int64_t every)
{
    return every && step % every == 0;
}

/* Saves a checkpoint and runs validation if they are due. The checkpoint comes first, so that a
 * validation that fails, or that a signal ends, loses nothing. */
choir_status choir__trainer_between_steps(choir__trainer *t);

/* --- saves.c --- */

/* Returns the ranks that save together. If ranks never have a state in common, only the first
 * one saves, and the group is NULL. */
choir_group *choir__trainer_savers(const choir__trainer *t);

/* Reports a checkpoint that has been written completely, and adds the result of the validation
 * that followed it. */
void choir__trainer_report_saved(choir__trainer *t);

/* Finds the newest checkpoint, which stays if the job ends at once; for a process that is rank
 * 0 or may have become rank 0. */
void choir__trainer_note_newest(choir__trainer *t);

/* Notes the result of this step's validation, for the checkpoint that was saved before it. */
choir_status choir__trainer_note_judged(choir__trainer *t);

/* Waits until the best step's save is whole, if the job survives the loss of a rank: the copies
 * in memory would remember that it was the best, and half of its checkpoint would be gone. */
choir_status choir__trainer_keep_best(choir__trainer *t);

/* Returns what a checkpoint of the job saves and loads. */
choir_training choir__trainer_parts(const choir__trainer *t);

/* Makes the job's record, which checkpoints have. */
void choir__trainer_record_job(choir__trainer *t);

/* Prepares memory for saves during training, which begin later. */
choir_status choir__trainer_prepare_saves(choir__trainer *t);

/* Saves a checkpoint that is due during training. With --save-warn, a checkpoint that cannot be
 * written is a warning. */
choir_status choir__trainer_save_now_and_then(choir__trainer *t, unsigned flags);

/* Saves because a signal has asked for it, unless this step is saved already. If a rank is lost
 * meanwhile, the save is due again. */
choir_status choir__trainer_save_as_asked(choir__trainer *t);

/* Makes sure that the current step is saved, and waits until it is on disk. */
choir_status choir__trainer_save_whole(choir__trainer *t, float loss);

/* --- ranks.c --- */

/* Notes this rank's generation, if it is the newest so far. */
void choir__trainer_note_generation(const choir__trainer *t);

/* Adapts to a change of the ranks. A save that was under way may have lost a part. */
void choir__trainer_note_change(choir__trainer *t);

/* Sets the losses of this rank's micro-batches to the last step's loss, as if they had run it.
 */
void choir__trainer_fill_losses(choir__trainer *t);

/* Takes this process's part of a new group. Until its first step there, its micro-batches have
 * the loss of the step before. */
void choir__trainer_take_part(choir__trainer *t);

/* Makes this process leave out the batches that others have decided on. */
choir_status choir__trainer_take_edits(choir__trainer *t);

/* Reports a change of the ranks since the last call. */
void choir__trainer_report_change(choir__trainer *t);

/* --- resume.c --- */

/* Loads a checkpoint: weights, optimizer, place in the data, and progress. */
choir_status choir__trainer_resume(choir__trainer *t, const char *from);

/* Stores in *found, after a change of the ranks, whether copies of their state exist to
 * continue from, and the job's last checkpoint is not well ahead of them. Collective. */
choir_status choir__trainer_finds_copies(const choir__trainer *t, bool *found);

/* Continues from the job's last checkpoint, after a loss without copies (--no-copy, or no
 * memory for them). */
choir_status choir__trainer_go_back(choir__trainer *t);

/* Ranks that an agent has started again continue their own checkpoint, which rank 0 looks for.
 */
choir_status choir__trainer_continue_own(choir__trainer *t);

/* Says that ranks continue their own checkpoint, if it lacks a part of the state and no copies
 * were newer. */
void choir__trainer_note_forgotten(choir__trainer *t);

/* --- audit.c --- */

/* Begins the audit, if the job has one. together: all ranks begin it, and agree on the status.
 */
choir_status choir__trainer_audit_open(choir__trainer *t, bool together);
/* Writes the line of the last step, if it is due, and compares what ranks have hashed. */
choir_status choir__trainer_audit(choir__trainer *t);

/* --- recheck.c --- */

/* Returns whether the next step is computed again on other ranks. */
bool choir__trainer_rechecks(const choir__trainer *t);
/* Runs the forward and backward of such a step, and leaves the gradients to the optimizer.
 * Errors: as choir__trainer_blame. Collective. */
choir_status choir__trainer_recheck(choir__trainer *t, choir_scope *step);
void choir__trainer_recheck_close(choir__trainer *t);

/* --- blame.c --- */

/* Acts on a verdict that is not CHOIR__VOTE_AGREED. If the job can do without the wrong
 * ranks, their error ends them, and the others get a lost peer's; else all get one that
 * stops the job. what: the thing that differs. others_good: the other ranks have the
 * state of an undisturbed job. Collective. */
choir_status choir__trainer_blame(choir__trainer *t, int64_t step, const choir__judgement *v,
    const char *what, bool others_good);

/* --- spiked.c --- */

/* Goes back before the spike that the last step is, and leaves batches out from there on. If a
 * rank is lost meanwhile, it is done again. Error: state (there is no checkpoint to go back
 * to), errors of a reader. Collective. */
choir_status choir__trainer_go_back_before_spike(choir__trainer *t);

/* --- signals.c --- */

/* Lets signals stop the training after a step. Called when the first step is due: until then
 * nothing is lost if a signal ends the process, and a rank that waits for others must not
 * outlive it. */
void choir__trainer_catch_signals(const choir__job_records *records);

/* Returns the first signal that was to stop this process, or SIGTERM if its program has asked
 * for that; 0: none. *since: when; may be NULL. */
int choir__trainer_signal(double *since);

/* Returns whether a signal has asked for a checkpoint since the last call. */
bool choir__trainer_save_asked(const choir__trainer *t);

/* Prints this process's last collectives if a signal has asked for them. */
void choir__trainer_show_asked(void);

/* Notes how many steps would be lost if a signal ended the job now; saving: this step's
 * checkpoint is under way. */
void choir__trainer_note_lost(const choir__trainer *t, bool saving);

/* --- stop.c --- */

/* Returns whether no further step follows. */
bool choir__trainer_is_done(const choir__trainer *t);

/* Returns true between the points at which the strategy synchronises the ranks on its own
 * schedule. The weights of a rank are then not the job's model. */
bool choir__trainer_apart(const choir__trainer *t);

/* Makes ranks that step by themselves wait for each other. If one of them was asked to stop,
 * all stop. Does nothing for ranks that step together. */
choir_status choir__trainer_meet(choir__trainer *t);

/* Returns whether this rank may begin the next step. If the next meeting of ranks that step
 * apart is far, they would wait long: after some seconds they stop after the step of the
 * furthest rank. */
bool choir__trainer_may_begin(const choir__trainer *t);

/* Returns whether --max-time plus more_s seconds are over. */
bool choir__trainer_is_time_over(const choir__trainer *t, double more_s);

/* Returns whether any rank was interrupted. All ranks stop after the same step, so that the
 * saved state is complete. Notes in t->save_due whether a rank was asked to save. */
bool choir__trainer_stop_asked(choir__trainer *t);

/* The trainer's choir_eval_opts.between: decides between two batches whether a validation
 * continues. */
choir_status choir__trainer_between_batches(void *trainer, choir_status mine);

/* Saves after a signal, and returns the error that ends the training. */
choir_status choir__trainer_stop(choir__trainer *t, float loss);

/* --- finish.c --- */

/* Saves, validates, and reports the end of the training. loss: the last step's. */
choir_status choir__trainer_finish(choir__trainer *t, float loss);

#endif
