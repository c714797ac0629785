/* Validation and checkpoints between two steps. */
#include "cli/trainer/inside.h"

#include <stdio.h>

#include "cli/amp.h"
#include "cli/judge.h"
#include "cli/record.h"
#include "cli/say.h"

choir_group *choir__trainer_savers(const choir__trainer *t)
{
    return t->job->strategy->meet ? NULL : t->part.env.group;
}

void choir__trainer_report_saved(choir__trainer *t)
{
    int64_t step;
    if (!t->saved || t->part.env.rank != 0 || !choir_checkpoint_saved(t->saved, &step))
        return;
    choir__cli_report_saved(&t->report, step, t->job->save);
    choir__cli_record_saved(choir__trainer_record(t), step);
}

choir_training choir__trainer_parts(const choir__trainer *t)
{
    return (choir_training){.module = t->part.net,
        .optim = t->part.optim,
        .scaler = t->part.scaler,
        .loader = t->part.loader,
        .info = &t->job->info,
        .tokenizer = t->job->tokenizer,
        .classes = &t->job->classes,
        .beside = t->job->beside,
        .job = t->job->record};
}

choir_status choir__trainer_evaluate(choir__trainer *t, int64_t batches, choir_score *score)
{
    choir_status status = choir_optim_swap(t->part.optim);
    choir_eval_opts opts = {.batch_size = t->job->batch_size / t->job->microbatches,
        .max_batches = batches,
        .workers = (int)t->job->workers,
        .group = t->part.dealt.group};
    if (status == CHOIR_OK)
        status = choir_evaluate(
            t->part.run, t->part.evaluated, &t->job->info, t->job->validation, opts, score);
    choir_status back = choir_optim_swap(t->part.optim);
    return status == CHOIR_OK ? back : status;
}

static choir_status open_checkpoint(choir__trainer *t)
{
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = choir__trainer_savers(t);
    opts.async = true;
    opts.keep = t->job->save_keep;
    return t->saved ? CHOIR_OK : choir_checkpoint_open(t->job->save, opts, &t->saved);
}

choir_status choir__trainer_prepare_saves(choir__trainer *t)
{
    const choir__job *j = t->job;
    if (!j->save || !(j->save_every || j->eval_every) ||
        (j->strategy->meet && t->part.env.rank != 0))
        return CHOIR_OK;
    choir_training parts = choir__trainer_parts(t);
    choir_status status = open_checkpoint(t);
    return status == CHOIR_OK ? choir_checkpoint_prepare(t->saved, parts.module, parts.optim)
                              : status;
}

/* With --save-warn a checkpoint that cannot be written is a warning on every rank. */
static choir_status forgive(const choir__trainer *t, choir_status status)
{
    if (status != CHOIR_ERR_IO || !t->job->save_warn)
        return status;
    if (t->part.env.rank == 0)
        choir__cli_tell(
            t->job->command, "warning: %s; training goes on", choir_error_message());
    return CHOIR_OK;
}

choir_status choir__trainer_save(choir__trainer *t, float loss, unsigned flags)
{
    const choir__job *j = t->job;
    if (!j->save || (j->strategy->meet && t->part.env.rank != 0))
        return CHOIR_OK;
    choir_training parts = choir__trainer_parts(t);
    choir_train_state s = choir_train_state_none();
    s.step = t->now.step;
    s.loss = (double)loss;
    s.eval_loss = t->now.last_eval;
    s.epoch_loss = t->now.epoch_loss;
    s.epoch_without = t->now.epoch_without;
    s.world = choir__cli_strategy_workers(j);
    choir__judge_to_state(&t->now.judge, j, &s);
    snprintf(s.optimizer, sizeof s.optimizer, "%s", j->optimizer);
    snprintf(s.strategy, sizeof s.strategy, "%s", j->strategy_text);
    snprintf(s.amp, sizeof s.amp, "%s", choir__amp_find(j->amp)->name);
    choir_status status = open_checkpoint(t);
    if (status == CHOIR_OK)
        status = forgive(t, choir_checkpoint_wait(t->saved)); /* of the checkpoint before */
    choir__trainer_report_saved(t);
    if (status == CHOIR_OK)
        status = choir_training_save(t->saved, &parts, &s, flags);
    choir__trainer_report_saved(t);
    return status;
}

bool choir__trainer_is_due(int64_t step, int64_t every)
{
    return every && step % every == 0;
}

choir_status choir__trainer_score(choir__trainer *t, choir_score *score)
{
    choir_status status = choir__trainer_evaluate(t, t->job->eval_batches, score);
    if (status != CHOIR_OK)
        return status;
    t->now.score = *score;
    t->now.scored = t->now.step;
    t->now.last_eval = score->loss;
    t->now.best_due |= choir__judge_score(&t->now.judge, t->job, score, true);
    t->now.eval_due = false;
    return status;
}

static choir_status validate(choir__trainer *t)
{
    choir_score score;
    choir_status status = choir__trainer_score(t, &score);
    if (status != CHOIR_OK)
        return status;
    choir__trainer_show_eval(t, &score);
    if (choir__judge_is_tired(&t->now.judge, t->job) && !choir__trainer_is_done(t))
        choir__trainer_end_by(t, "patience");
    return status;
}

static choir_status save_due(choir__trainer *t)
{
    return forgive(
        t, choir__trainer_save(t, t->now.last.loss, t->now.best_due ? CHOIR_SAVE_BEST : 0));
}

choir_status choir__trainer_between_steps(choir__trainer *t)
{
    const choir__job *j = t->job;
    bool last = choir__trainer_is_done(t);
    choir_status status = CHOIR_OK;
    t->now.eval_due |= choir__trainer_is_due(t->now.step, j->eval_every);
    t->now.save_due |= choir__trainer_is_due(t->now.step, j->save_every);
    if (last && t->now.eval_due &&
        choir__judge_decides(j)) /* a resumed run needs the decision */
        return validate(t);
    if (last || choir__trainer_apart(t) ||
        !(t->now.eval_due || t->now.save_due || t->now.best_due))
        return CHOIR_OK;
    status = choir__trainer_meet(t);
    if (status != CHOIR_OK || t->stopping)
        return status;
    if (t->now.eval_due)
        status = validate(t);
    if (status == CHOIR_OK && t->now.ended)
        return status; /* the last checkpoint is this one */
    if (status == CHOIR_OK && (t->now.save_due || t->now.best_due))
        status = save_due(t);
    if (status == CHOIR_OK)
        t->now.eval_due = t->now.save_due = t->now.best_due = false;
    return status;
}
