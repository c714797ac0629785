/* Validation between two steps, and what follows from it.
 *
 * A validation is judged once: a rank that is lost later makes the others repeat what comes
 * behind, not the judgement. One that fails or is ended is not judged; the checkpoint of its
 * step says so (choir_train_state.eval_due), and a job that is resumed there begins with it. */
#include "job/trainer/inside.h"

#include <math.h>
#include <stdlib.h>

#include "job/trainer/eval_policy.h"
#include "job/report/run_log.h"
#include "comm/engine.h"

choir_status choir__trainer_evaluate(choir__trainer *t, int64_t batches, choir_score *score)
{
    choir_status status = choir_optim_swap(t->part.optim);
    choir_eval_opts opts = {
        .batch_size = t->job->training.batch_size / t->job->training.microbatches,
        .max_batches = batches,
        .workers = (int)t->job->data.workers,
        .group = choir__job_rank_evaluates(&t->part),
        .chunks = true,
        .between = choir__trainer_between_batches,
        .arg = t,
        .scored = t->job->training.metric ? choir__metric_scored : NULL};
    choir__metric_lines lines = {.job = t->job};
    opts.scored_arg = &lines;
    double began = choir__now();
    t->agreed = false;
    if (status == CHOIR_OK)
        status = choir_evaluate(t->part.run, t->part.evaluated, &t->job->model.info,
            t->job->data.validation, opts, score);
    t->now.metric = (double)NAN;
    if (status == CHOIR_OK && opts.scored) {
        status = choir__metric_take(&lines, opts.group,
            t->part.env.world > 1 ? t->part.env.group : NULL, &t->now.metric);
        t->agreed = true; /* all ranks know how the command ended */
    }
    choir__text_buffer_free(&lines.text);
    choir_status back = choir_optim_swap(t->part.optim);
    t->eval_s = choir__now() - began;
    return status == CHOIR_OK ? back : status;
}

choir_status choir__trainer_score(choir__trainer *t, choir_score *score)
{
    choir_status status = choir__trainer_evaluate(t, t->job->training.eval_batches, score);
    if (status != CHOIR_OK)
        return status;
    t->now.score = *score;
    t->now.scored = t->now.step;
    t->now.last_eval = score->loss;
    t->now.best_due |=
        choir__eval_policy_score(&t->now.judge, &t->job->training, score, t->now.metric, true);
    t->now.eval_due = false;
    return status;
}

choir_status choir__trainer_save_unvalidated(choir__trainer *t, choir_status why)
{
    bool alone = t->part.env.world == 1;
    if (!t->job->saves.dir || choir__is_loss(why) || !(alone || t->agreed))
        return why;
    char *message = choir__strdup(choir_error_message());
    bool saved = choir__trainer_save_whole(t, t->now.last.loss) == CHOIR_OK;
    char *all = saved ? choir__format("validation after step %lld: %s; the step is saved to %s",
                            (long long)t->now.step, message, t->job->saves.dir)
                      : choir__format("validation after step %lld: %s; nor was the step saved: "
                                      "%s",
                            (long long)t->now.step, message, choir_error_message());
    choir__set_message(all);
    free(message);
    free(all);
    return why;
}

choir_status choir__trainer_validate(choir__trainer *t)
{
    choir_score score;
    choir_status status = choir__trainer_score(t, &score);
    if (status == CHOIR_ERR_INTERRUPTED && t->agreed) {
        if (t->now.time_over && !t->by)
            choir__trainer_end_by(t, "max-time");
        return CHOIR_OK; /* what a signal asks for comes next */
    }
    if (status != CHOIR_OK)
        return choir__trainer_save_unvalidated(t, status);
    choir__trainer_show_eval(t, &score, true);
    status = choir__trainer_note_judged(t);
    if (choir__eval_policy_patience_is_over(&t->now.judge, &t->job->training) &&
        !choir__trainer_is_done(t))
        choir__trainer_end_by(t, "patience");
    return status;
}
