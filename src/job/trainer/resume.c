/* The state from which a training continues: the checkpoint of --resume, or after a loss the
 * ranks' copies in memory, if they are not behind this job's own checkpoint. Without either the
 * training begins again, or ends with a sentence if steps would be lost. */
#include "job/trainer/trainer.h"
#include "job/trainer/inside.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/multiplier.h"
#include "job/document/document.h"
#include "job/trainer/eval_policy.h"

bool choir__trainer_has_saved(const choir__job *j)
{
    uint64_t newest = j->ranks.shared ? choir__job_checkpoint(&j->saves) : 0;
    return newest && newest != j->ranks.shared->old_checkpoint;
}

/* Returns whether the checkpoint belongs to the job that --resume continues, not to this one.
 */
static bool is_resumed(const choir__job *j, const char *from)
{
    return from == j->saves.resume && !(from == j->saves.dir && choir__trainer_has_saved(j));
}

/* The newest checkpoint of the job's own folder need not be saved again. */
static choir_status note_saved(choir__trainer *t, const char *from)
{
    char found[PATH_MAX], newest[PATH_MAX];
    const char *dir = t->job->saves.dir;
    int32_t own = t->part.env.rank == 0 && dir &&
                  choir_training_find(from, found) == CHOIR_OK &&
                  choir_training_find(dir, newest) == CHOIR_OK && !strcmp(found, newest);
    choir_status status = choir_group_broadcast(t->part.env.group, &own, 1, CHOIR_I32, 0, NULL);
    t->now.saved = own > 0 ? t->now.step : 0;
    return status;
}

/* Ranks that are started again on other machines may have settled another class of bits than
 * the one in which this job has computed so far: see choir__job_keep_bits. */
static choir_status recall_bits(choir__trainer *t, const char *from)
{
    char *text = NULL;
    if (t->part.env.rank == 0 && choir_training_job(from, &text) == CHOIR_OK && text) {
        json_t *record = choir__job_read_record(text);
        const char *bits = choir__job_of_record(t->job->command, record).optim.bits;
        if (bits && choir__multiplier_named(bits) != CHOIR__MULTIPLIERS)
            snprintf(t->now.bits, sizeof t->now.bits, "%s", bits);
        json_decref(record);
    }
    free(text);
    return choir_group_broadcast(
        t->part.env.group, t->now.bits, sizeof t->now.bits, CHOIR_U8, 0, NULL);
}

/* Each rank reads the window of --on-spike. */
static choir_status recall_window(choir__trainer *t, const char *from)
{
    char *record = NULL;
    choir_status status = choir_training_job(from, &record);
    if (status == CHOIR_OK)
        choir__spike_recall(&t->now.spikes, record);
    free(record);
    return status;
}

choir_status choir__trainer_resume(choir__trainer *t, const char *from)
{
    choir_training parts = choir__trainer_parts(t);
    choir_train_state s;
    choir_status status = choir_training_resume(from, &parts, t->part.env.group, &s);
    if (status != CHOIR_OK)
        return status;
    t->now.compared = t->now.step ? choir__min(t->now.compared, s.step) : s.step;
    t->now.step = s.step;
    choir__eval_policy_from_state(&t->now.judge, t->job, &s, is_resumed(t->job, from));
    t->now.epoch_loss = s.epoch_loss;
    t->now.epoch_without = s.epoch_without;
    t->now.last.number = s.step;
    t->now.last.loss = (float)s.loss;
    choir__trainer_skip_lines(t);
    choir__trainer_fill_losses(t);
    t->now.ended = choir__eval_policy_patience_is_over(&t->now.judge, &t->job->training);
    if (t->now.ended && s.step < t->job->training.steps)
        snprintf(t->now.ended_by, sizeof t->now.ended_by, "patience");
    t->now.eval_due =
        (s.eval_due & CHOIR_EVAL_REGULAR) && t->job->training.eval_every && !t->now.ended;
    t->now.after = t->now.eval_due;
    if (t->job->training.eval_batches && !(s.eval_due & CHOIR_EVAL_REGULAR) &&
        choir__trainer_is_due(s.step, t->job->training.eval_every))
        t->now.scored = s.step; /* the whole split at the end gets no second line */
    t->now.evaluates_again =
        t->now.eval_due || ((s.eval_due & CHOIR_EVAL_LAST) && choir__trainer_is_done(t) &&
                               t->now.scored != s.step);
    t->now.last_eval = s.eval_loss;
    if (t->spike.factor > 0)
        status = recall_window(t, from);
    if (status != CHOIR_OK)
        return status;
    status = note_saved(t, from);
    if (status == CHOIR_OK && !is_resumed(t->job, from))
        status = recall_bits(t, from);
    if (status == CHOIR_OK && t->job->placement.strategy->resumed)
        status = t->job->placement.strategy->resumed(&t->part);
    return status;
}

/* While copies are taken they are at most one step behind a checkpoint, and continuing from
 * them is quicker. Those further behind are of a time before the ranks had no memory for
 * copies. They are better than a checkpoint that lacks a part of the state. */
choir_status choir__trainer_finds_copies(const choir__trainer *t, bool *found)
{
    const choir__job *j = t->job;
    choir_train_state s;
    int64_t step = choir_elastic_kept_step();
    int32_t are = step >= 0;
    if (are && !choir__job_strategy_forgets(&j->placement) && choir__trainer_has_saved(j) &&
        choir_training_read(j->saves.dir, &s) == CHOIR_OK && s.step > step + 1)
        are = 0;
    choir_status status = choir_group_broadcast(t->part.env.group, &are, 1, CHOIR_I32, 0, NULL);
    *found = are > 0;
    return status;
}

choir_status choir__trainer_go_back(choir__trainer *t)
{
    const choir__job *j = t->job;
    const char *forgotten = choir__job_strategy_forgets(&j->placement);
    if (choir__trainer_has_saved(j) && forgotten)
        return choir__error(CHOIR_ERR_STATE,
            "a rank was lost, and no copies of the ranks' state could be kept; strategy %s: %s, "
            "so the weights would differ from an undisturbed job. If that will do, "
            "continue with --resume %s",
            j->placement.strategy->name, forgotten, j->saves.dir);
    if (choir__trainer_has_saved(j))
        return choir__trainer_resume(t, j->saves.dir);
    if (j->saves.resume)
        return choir__trainer_resume(t, j->saves.resume);
    if (!atomic_load(&j->ranks.shared->stepped))
        return CHOIR_OK;
    long long stepped = (long long)atomic_load(&j->ranks.shared->stepped);
    if (!j->saves.dir)
        return choir__error(CHOIR_ERR_STATE,
            "a rank was lost after step %lld, and there is nothing to continue from: no copies of "
            "the ranks' state could be kept, and without --save there is no checkpoint",
            stepped);
    return choir__error(CHOIR_ERR_STATE,
        "a rank was lost after step %lld, and %s has no checkpoint of this job yet: without "
        "copies no other state is kept to continue from",
        stepped, j->saves.dir);
}

choir_status choir__trainer_continue_own(choir__trainer *t)
{
    const choir__job *j = t->job;
    char path[PATH_MAX];
    if (!j->saves.dir || j->saves.resume || !choir__job_is_started_again(j))
        return CHOIR_OK;
    int32_t there =
        t->part.env.rank == 0 && choir_training_find(j->saves.dir, path) == CHOIR_OK;
    choir_status status =
        choir_group_broadcast(t->part.env.group, &there, 1, CHOIR_I32, 0, NULL);
    if (status != CHOIR_OK || !there)
        return status;
    t->now.forgot = choir__job_strategy_forgets(&j->placement) != NULL;
    return choir__trainer_resume(t, j->saves.dir);
}

void choir__trainer_note_forgotten(choir__trainer *t)
{
    if (t->now.forgot && t->part.env.rank == 0)
        choir__job_tell(t->job,
            "note: the ranks continue from %s; strategy %s: %s; the numbers from here on may be "
            "different from an uninterrupted run",
            t->job->saves.dir, t->job->placement.strategy->name,
            choir__job_strategy_forgets(&t->job->placement));
    t->now.forgot = false;
}
