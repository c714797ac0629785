/* Ranks that are lost or new (choir/elastic.h): what a rank does when it takes part again, and
 * rank 0 tells of each change. */
#include "job/trainer/inside.h"

#include <math.h>
#include <stdatomic.h>

#include "data/dataset.h"
#include "job/edit.h"

void choir__trainer_note_generation(const choir__trainer *t)
{
    uint64_t now = t->part.env.generation;
    if (!t->job->ranks.shared)
        return;
    uint64_t before = atomic_load(&t->job->ranks.shared->generation);
    while (before < now &&
           !atomic_compare_exchange_weak(&t->job->ranks.shared->generation, &before, now)) {
    }
}

void choir__trainer_fill_losses(choir__trainer *t)
{
    for (int64_t i = 0; i < choir__max(t->part.micro_count, t->job->training.microbatches); i++)
        t->read[i] = t->now.last.loss;
    for (int64_t w = 0; w < t->part.micro_count / t->part.each; w++)
        t->measured[w] = !isnan(t->now.last.loss);
}

choir_status choir__trainer_take_edits(choir__trainer *t)
{
    const choir__spikes *spikes = &t->now.spikes;
    if (!(t->spike.factor > 0))
        return CHOIR_OK;
    choir__skips s = {0};
    choir_status status = choir__skips_add(&s, t->skipped_first);
    for (int i = 0; i < spikes->edit_count; i++)
        choir__skips_add_range(&s, spikes->edits[i].first, spikes->edits[i].last);
    choir__job_set_skips(&t->job->data, &s);
    choir__skips_free(&s);
    if (status == CHOIR_OK)
        status = choir__loader_skip(t->part.loader, t->job->data.skip);
    if (status == CHOIR_OK && t->job_text)
        choir__trainer_record_job(t);
    return status;
}

void choir__trainer_take_part(choir__trainer *t)
{
    choir__job_rank_changed(&t->part);
    choir__trainer_fill_losses(t);
    if (choir__trainer_take_edits(t) !=
        CHOIR_OK) /* no list is refused that others have taken */
        (void)choir_error_message();
}

void choir__trainer_note_change(choir__trainer *t)
{
    choir__trainer_take_part(t);
    t->stopping = false; /* result of a meeting that may have failed; the next one asks again */
    choir__trainer_note_generation(t);
    if (t->saved && choir_checkpoint_wait(t->saved) != CHOIR_OK)
        t->now.save_due = true;
    choir__trainer_report_saved(t);
    (void)!choir_checkpoint_close(t->saved);
    t->saved = NULL;
    t->prepared = false;
    choir__trainer_note_newest(t); /* this process may have become rank 0 */
    choir__trainer_show_again(t);
}

void choir__trainer_report_change(choir__trainer *t)
{
    choir_membership m;
    if (!t->elastic || !choir_elastic_change(t->elastic, &m) || t->part.env.rank != 0)
        return;
    choir__trainer_show_change(t, &m);
}
