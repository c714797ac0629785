/* Rank 0 shows and records each step once, also if the ranks change, and tells each change of
 * the ranks. */
#include "cli/trainer/inside.h"

#include <stdatomic.h>

#include "cli/record.h"

choir__cli_record *choir__trainer_record(choir__trainer *t)
{
    choir__job_shared *shared = t->job->shared;
    int64_t shown = shared ? atomic_load(&shared->stepped) : 0;
    if (t->part.env.rank != 0)
        return NULL;
    if (!t->record)
        t->record = choir__cli_record_open(t->job, shown ? shown : t->report.first,
            shown || t->job->resume || choir__job_is_started_again(t->job));
    return t->record;
}

void choir__trainer_show_step(choir__trainer *t)
{
    choir__job_shared *shared = t->job->shared;
    if (t->part.env.rank != 0 ||
        (shared && t->now.last.number <= atomic_load(&shared->stepped)))
        return;
    choir__cli_report_step(&t->report, &t->now.last);
    choir__cli_record_step(choir__trainer_record(t), &t->now.last, &t->part, t->report.scale);
    if (shared)
        atomic_store(&shared->stepped, t->now.last.number);
}

void choir__trainer_show_eval(choir__trainer *t, const choir_score *score)
{
    choir__job_shared *shared = t->job->shared;
    if (t->part.env.rank != 0 || (shared && t->now.step <= atomic_load(&shared->evaluated)))
        return;
    choir__cli_report_eval(&t->report, t->now.step, score, t->now.best_due);
    choir__cli_record_eval(choir__trainer_record(t), t->now.step, score, t->now.best_due);
    if (shared)
        atomic_store(&shared->evaluated, t->now.step);
}

void choir__trainer_end_by(choir__trainer *t, const char *option)
{
    t->now.ended = true;
    snprintf(t->now.ended_by, sizeof t->now.ended_by, "%s", option);
    if (t->part.env.rank == 0)
        choir__cli_report_end(&t->report, t->now.step, option);
}

/* --- ranks that are lost or new: choir/elastic.h --- */

void choir__trainer_note_generation(const choir__trainer *t)
{
    uint64_t now = t->part.env.generation;
    if (!t->job->shared)
        return;
    uint64_t before = atomic_load(&t->job->shared->generation);
    while (before < now &&
           !atomic_compare_exchange_weak(&t->job->shared->generation, &before, now)) {
    }
}

void choir__trainer_fill_losses(choir__trainer *t)
{
    for (int64_t i = 0; i < choir__max(t->part.micro_count, t->job->microbatches); i++)
        t->read[i] = t->now.last.loss;
}

void choir__trainer_take_part(choir__trainer *t)
{
    choir__cli_part_changed(&t->part);
    choir__trainer_fill_losses(t);
}

void choir__trainer_note_change(choir__trainer *t)
{
    choir__trainer_take_part(t);
    t->stopping = false; /* of a meeting that may have failed: the next one asks again */
    choir__trainer_note_generation(t);
    if (t->saved && choir_checkpoint_close(t->saved) != CHOIR_OK)
        t->now.save_due = true;
    t->saved = NULL;
    t->prepared = false;
    choir__trainer_show_step(t);
}

void choir__trainer_report_change(choir__trainer *t)
{
    choir_membership m;
    if (!t->elastic || !choir_elastic_change(t->elastic, &m) || t->part.env.rank != 0)
        return;
    choir__cli_report_membership(&t->report, &m);
    choir__cli_record_membership(choir__trainer_record(t), &m);
}
