/* Checkpoints. A step is saved before it is validated, so that no validation
 * can cost it; what becomes of the validation, and the mark of the best, are added afterwards.
 */
#include "job/trainer/inside.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/items.h"
#include "job/document/document.h"
#include "job/model/amp.h"
#include "job/trainer/eval_policy.h"
#include "job/report/run_log.h"
#include "parallel/elastic/elastic.h"

choir_group *choir__trainer_savers(const choir__trainer *t)
{
    return choir__job_strategy_alone(&t->job->placement) ? NULL : t->part.env.group;
}

/* Returns whether this rank writes a part of the checkpoints. */
static bool saves_here(const choir__trainer *t)
{
    return t->job->saves.dir &&
           !(choir__job_strategy_alone(&t->job->placement) && t->part.env.rank != 0);
}

/* Adds what became of the validation to the checkpoint, which is whole without it: a job that
 * continues from there validates again. Where a step is saved again after a loss, this waits
 * for the end of that save, which has the folder's lock. */
static void add_judged(choir__trainer *t)
{
    const choir__job *j = t->job;
    if (!t->judged.step || t->judged.step != t->newest || t->rewritten || t->part.env.rank != 0)
        return;
    if (choir__checkpoint_amend(j->saves.dir, &t->judged, t->judged_best, j->saves.keep) !=
        CHOIR_OK)
        choir__job_tell(j, "warning: %s; training continues", choir_error_message());
    t->judged.step = 0;
}

void choir__trainer_report_saved(choir__trainer *t)
{
    int64_t step;
    if (t->part.env.rank != 0)
        return;
    if (t->saved && choir_checkpoint_saved(t->saved, &step)) {
        t->save_took = choir__now() - t->save_began;
        t->newest = step;
        t->rewritten = false;
        choir__trainer_note_lost(t, false);
        choir__trainer_show_saved(t, step);
    }
    add_judged(t);
}

void choir__trainer_note_newest(choir__trainer *t)
{
    choir_train_state s;
    const char *save = t->job->saves.dir;
    char *why = choir__strdup(choir_error_message()); /* an error from before stays */
    if (t->part.env.rank == 0 && save && choir_training_read(save, &s) == CHOIR_OK)
        t->newest = s.step;
    (void)choir_error_message(); /* marks the error as read: there may be no checkpoint yet */
    choir__set_message(why);
    free(why);
    choir__trainer_note_lost(t, false);
}

choir_training choir__trainer_parts(const choir__trainer *t)
{
    return (choir_training){.module = t->part.net,
        .recut = t->part.job->saves.recut,
        .optim = t->part.optim,
        .scaler = t->part.scaler,
        .loader = t->part.loader,
        .info = &t->job->model.info,
        .tokenizer = t->job->model.tokenizer,
        .classes = &t->job->model.classes,
        .beside = t->job->model.beside,
        .job = t->job_text};
}

void choir__trainer_record_job(choir__trainer *t)
{
    free(t->job_text);
    t->job_text = choir__job_record_text(t->job);
    t->job_hash = choir__rng_key(0, t->job_text);
}

/* A job's record stays in memory during the whole training. Collective. */
static choir_status check_record(const choir__trainer *t)
{
    bool same = !t->job_text || choir__rng_key(0, t->job_text) == t->job_hash;
    return choir__agree(choir__trainer_savers(t),
        same ? CHOIR_OK
             : choir__error(CHOIR_ERR_STATE,
                   "%s: rank %d: the record of the job changed in this machine's memory",
                   t->job->saves.dir, t->part.env.rank));
}

/* A save must have the numbers that the audit has hashed. */
static void know(
    void *arg, const choir__item *item, const choir__box_region *region, choir__proof *proof)
{
    const choir__trainer *t = arg;
    if (t->audit)
        choir__audit_prove(t->audit, item, region, proof);
}

static choir_status open_checkpoint(choir__trainer *t)
{
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = choir__trainer_savers(t);
    opts.async = true;
    opts.keep = choir__max(t->job->saves.keep, choir__spike_keep(t->job));
    if (t->saved)
        return CHOIR_OK;
    choir_status status = choir_checkpoint_open(t->job->saves.dir, opts, &t->saved);
    if (status == CHOIR_OK)
        choir__saver_proves(t->saved->saver, know, t);
    return status;
}

choir_status choir__trainer_prepare_saves(choir__trainer *t)
{
    const choir__job *j = t->job;
    if (!j->saves.dir || !(j->saves.every || j->training.eval_every) ||
        (choir__job_strategy_alone(&j->placement) && t->part.env.rank != 0))
        return CHOIR_OK;
    choir_training parts = choir__trainer_parts(t);
    choir_status status = open_checkpoint(t);
    return status == CHOIR_OK ? choir_checkpoint_prepare(t->saved, parts.module, parts.optim)
                              : status;
}

/* With --save-warn a checkpoint that cannot be written is a warning on every rank. */
static choir_status forgive(const choir__trainer *t, choir_status status)
{
    if (status != CHOIR_ERR_IO || !t->job->saves.warn)
        return status;
    if (t->part.env.rank == 0)
        choir__job_tell(t->job, "warning: %s; training continues", choir_error_message());
    return CHOIR_OK;
}

/* Returns what the checkpoint of the present step has beside tensors. */
static choir_train_state state_of(const choir__trainer *t, float loss)
{
    const choir__job *j = t->job;
    choir_train_state s = choir_train_state_none();
    s.step = t->now.step;
    s.loss = (double)loss;
    s.eval_loss = t->now.last_eval;
    s.eval_due = (t->now.eval_due ? CHOIR_EVAL_REGULAR : 0) |
                 (t->now.last_eval_due ? CHOIR_EVAL_LAST : 0);
    s.epoch_loss = t->now.epoch_loss;
    s.epoch_without = t->now.epoch_without;
    s.world = choir__job_strategy_workers(&j->placement);
    choir__eval_policy_to_state(&t->now.judge, &j->training, &s);
    snprintf(s.optimizer, sizeof s.optimizer, "%s", j->optim.optimizer);
    snprintf(s.strategy, sizeof s.strategy, "%s", j->placement.strategy_text);
    snprintf(s.amp, sizeof s.amp, "%s", choir__amp_find(j->optim.amp)->name);
    return s;
}

/* Adds the time since *began to that of saves. */
static void note_time(choir__trainer *t, double *began)
{
    double now = choir__now();
    t->save_s += now - *began;
    *began = now;
}

/* The record of a job with --on-spike has the window of its last steps. */
static choir_status save_parts(
    choir__trainer *t, choir_training *parts, const choir_train_state *s, unsigned flags)
{
    char *record = t->spike.factor > 0 && t->job_text
                       ? choir__spike_record(&t->now.spikes, t->job_text)
                       : NULL;
    if (record)
        parts->job = record;
    choir_status status = choir_training_save(t->saved, parts, s, flags);
    free(record);
    return status;
}

/* Saves, with the flags of choir_training_save. Unless specified otherwise, training continues
 * during the write, and an error is reported when the next checkpoint is saved. */
static choir_status save(choir__trainer *t, float loss, unsigned flags)
{
    t->now.saved = t->now.step;
    if (!saves_here(t))
        return CHOIR_OK;
    const choir__job_told *told = t->job->records.told;
    if (told && atomic_load(&told->stop) == CHOIR__STOP_LOST)
        return choir__error(CHOIR_ERR_STATE,
            "--save %s: another job has taken the folder over, so this one ends without saving",
            t->job->saves.dir);
    choir_training parts = choir__trainer_parts(t);
    choir_train_state s = state_of(t, loss);
    double began = choir__now();
    choir_status status = open_checkpoint(t);
    if (status == CHOIR_OK)
        status =
            forgive(t, choir_checkpoint_wait(t->saved)); /* status of the checkpoint before */
    note_time(t, &began);
    choir__trainer_report_saved(t);
    t->save_began = choir__now();
    choir__trainer_note_lost(t, true);
    if (status == CHOIR_OK)
        status = check_record(t);
    if (status == CHOIR_OK)
        status = save_parts(t, &parts, &s, flags);
    t->rewritten = status == CHOIR_OK && t->newest == t->now.step;
    note_time(t, &began);
    choir__trainer_report_saved(t);
    if (status == CHOIR_ERR_STATE) /* memory has changed, and so have the copies of it */
        choir__elastic_withdraw(t->elastic);
    if (status != CHOIR_OK)
        t->now.saved = 0;
    return status;
}

choir_status choir__trainer_save_now_and_then(choir__trainer *t, unsigned flags)
{
    return forgive(t, save(t, t->now.last.loss, flags));
}

choir_status choir__trainer_save_as_asked(choir__trainer *t)
{
    choir_status status =
        t->now.saved == t->now.step ? CHOIR_OK : choir__trainer_save_now_and_then(t, 0);
    t->lost_save |= status != CHOIR_OK;
    return status;
}

choir_status choir__trainer_save_whole(choir__trainer *t, float loss)
{
    bool whole = t->now.saved == t->now.step &&
                 (!t->saved || choir_checkpoint_wait(t->saved) == CHOIR_OK);
    choir__trainer_report_saved(t);
    return whole ? CHOIR_OK : save(t, loss, CHOIR_SAVE_NOW);
}

choir_status choir__trainer_keep_best(choir__trainer *t)
{
    choir_status status = t->elastic && t->saved ? choir_checkpoint_wait(t->saved) : CHOIR_OK;
    if (status != CHOIR_OK) /* the next wait is silent about it: the job's end saves again */
        t->now.saved = 0;
    return forgive(t, status);
}

choir_status choir__trainer_note_judged(choir__trainer *t)
{
    if (t->now.saved != t->now.step || !saves_here(t))
        return CHOIR_OK;
    t->judged = state_of(t, t->now.last.loss);
    t->judged_best = t->now.best_due;
    choir_status status = t->judged_best ? choir__trainer_keep_best(t) : CHOIR_OK;
    t->now.best_due = status != CHOIR_OK;
    choir__trainer_report_saved(t);
    return status;
}
