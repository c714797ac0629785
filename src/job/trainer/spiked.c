/* --on-spike at work. A spike (spike.c) takes all ranks back to a checkpoint, as --rewind
 * would, and K batches out of the data, as --skip-batches would: the steps up to N before the
 * spike are done once more, and training continues with later batches.
 * The list is a part of the job from then on: its checkpoints, its run folder and its new ranks
 * have it. */
#include "job/trainer/inside.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "job/edit.h"

/* Finds, on rank 0, the checkpoint to go back to, which all ranks read. path: PATH_MAX bytes.
 */
static choir_status find(const choir__trainer *t, int64_t target, char *path)
{
    const choir__job *j = t->job;
    choir_train_state s;
    choir_status status = choir__checkpoint_before(j->saves.dir, target, path);
    if (status != CHOIR_OK && j->saves.resume &&
        choir_training_read(j->saves.resume, &s) == CHOIR_OK && s.step <= target)
        status = choir_training_find(j->saves.resume, path);
    return status;
}

static choir_status find_together(const choir__trainer *t, int64_t target, char *path)
{
    memset(path, 0, PATH_MAX);
    choir_status status = t->part.env.rank == 0 ? find(t, target, path) : CHOIR_OK;
    if (status != CHOIR_OK)
        (void)choir_error_message(); /* the sentence about the spike says it */
    *path = status == CHOIR_OK ? *path : '\0';
    return choir_group_broadcast(t->part.env.group, path, PATH_MAX, CHOIR_U8, 0, NULL);
}

/* The batches of the steps behind `target`, as the job's list is so far. */
static choir__skips_range batches_behind(const choir__trainer *t, int64_t target)
{
    choir__skips s = choir__job_skips(&t->job->data);
    choir__skips_range r = {
        choir__skips_batch(&s, target + 1), choir__skips_batch(&s, target + t->spike.skip)};
    choir__skips_free(&s);
    return r;
}

/* Rank 0 takes back the records of later steps. began: when the way back did. */
static void tell_again(choir__trainer *t, int64_t from, double began)
{
    choir__job_shared *shared = t->job->ranks.shared;
    if (t->part.env.rank != 0)
        return;
    if (shared) {
        atomic_store(&shared->stepped, t->now.step);
        for (int i = 0; i < CHOIR__SHOWN_KINDS; i++)
            atomic_store(
                &shared->news[i], choir__min(t->now.step, atomic_load(&shared->news[i])));
    }
    choir__run_log_close(t->record);
    t->record = NULL;
    t->again = t->now.step;
    choir__trainer_show_edit(
        t, CHOIR__JOB_OPTION(training.on_spike)->name, from, choir__now() - began);
}

/* Forgets work that was due and scores of later steps. */
static void forget(choir__progress *now)
{
    now->save_due = now->best_due = now->last_eval_due = false;
    now->scored = now->scored > now->step ? 0 : now->scored;
    now->ended = now->time_over = false;
    *now->ended_by = '\0';
}

/* Makes the checkpoint the newest of the folder, unless that is another run's. */
static choir_status move_folder(choir__trainer *t, const char *path)
{
    choir_train_state s;
    const char *dir = t->job->saves.dir;
    if (t->part.env.rank != 0 || strncmp(path, dir, strlen(dir)) != 0)
        return CHOIR_OK;
    choir_status status = choir_training_read(path, &s);
    t->newest = status == CHOIR_OK ? s.step : t->newest;
    return status == CHOIR_OK ? choir__checkpoint_go_back(dir, s.step) : status;
}

static choir_status load(choir__trainer *t, const char *path)
{
    choir_run_forget(t->part.run);
    choir_status status = choir__agree(t->part.env.group, move_folder(t, path));
    if (status == CHOIR_OK)
        status = choir__trainer_resume(t, path);
    if (status == CHOIR_OK && t->elastic)
        choir_elastic_moved(t->elastic);
    return status;
}

/* The lines of steps that are gone are dropped, and later ones are of the edited job. */
static choir_status begin_audit_again(choir__trainer *t)
{
    choir_status status = choir_audit_close(t->audit);
    t->audit = NULL;
    return status == CHOIR_OK ? choir__trainer_audit_open(t, true) : status;
}

/* Error: state: the run cannot go back, or going back has not helped. */
static choir_status give_up(
    const choir__spikes *spikes, int64_t step, choir__skips_range batches, bool has_checkpoint)
{
    if (has_checkpoint && spikes->same == CHOIR__SPIKE_SAME)
        return choir__error(CHOIR_ERR_STATE,
            "step %lld is a spike: %s; the run has gone back to step %lld %d times in a row, and "
            "left out other batches each time, so they are not to blame: choose a lower --lr, a "
            "longer warm-up or --clip",
            (long long)step, spikes->what, (long long)spikes->back_to, spikes->same);
    return choir__error(CHOIR_ERR_STATE,
        "step %lld is a spike: %s; %s: --skip-batches %lld:%lld leaves the batches out",
        (long long)step, spikes->what,
        has_checkpoint ? "the run has gone back too often"
                       : "no checkpoint to go back to is kept",
        (long long)batches.first, (long long)batches.last + 1);
}

choir_status choir__trainer_go_back_before_spike(choir__trainer *t)
{
    char path[PATH_MAX];
    choir__spikes *spikes = &t->now.spikes;
    int64_t from = t->now.step, target = choir__max(from - t->spike.rewind, 0);
    choir__skips_range batches = batches_behind(t, target);
    double began = choir__now();
    choir_status status = choir__job_rank_sync(&t->part);
    if (status == CHOIR_OK && t->saved) /* the save under way may be the one to go back to */
        status = choir_checkpoint_wait(t->saved);
    choir__trainer_report_saved(t);
    if (status == CHOIR_OK)
        status = find_together(t, target, path);
    if (status != CHOIR_OK)
        return status;
    if (!*path || spikes->edit_count == CHOIR__SPIKE_EDITS || spikes->same == CHOIR__SPIKE_SAME)
        return give_up(spikes, from, batches, *path);
    status = load(t, path);
    if (status != CHOIR_OK)
        return status;
    if (t->part.env.rank == 0)
        choir__job_tell(t->job,
            "step %lld is a spike: %s; the run goes back to step %lld and leaves out batches %lld "
            "to %lld",
            (long long)from, spikes->what, (long long)t->now.step, (long long)batches.first,
            (long long)batches.last);
    bool same = spikes->back_to == t->now.step && from <= spikes->from + t->spike.window;
    spikes->same = same ? spikes->same + 1 : 1;
    spikes->back_to = t->now.step;
    spikes->from = from;
    forget(&t->now);
    spikes->edits[spikes->edit_count++] = batches;
    spikes->found = false;
    status = choir__trainer_take_edits(t);
    if (status == CHOIR_OK && t->audit)
        status = begin_audit_again(t);
    if (status == CHOIR_OK)
        tell_again(t, from, began);
    return status;
}
