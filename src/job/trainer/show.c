/* Rank 0 shows and records each step once, also if the ranks change. */
#include "job/trainer/inside.h"

#include <stdatomic.h>
#include <stdio.h>

#include "job/report/record.h"

choir__cli_record *choir__trainer_record(choir__trainer *t)
{
    choir__job_shared *shared = t->job->placement.shared;
    int64_t shown = shared ? atomic_load(&shared->stepped) : 0;
    if (t->part.env.rank != 0)
        return NULL;
    if (!t->record)
        t->record = choir__cli_record_open(t->job, shown ? shown : t->report.first,
            shown || t->job->saves.resume || choir__job_is_started_again(t->job));
    return t->record;
}

bool choir__trainer_is_news(const choir__trainer *t, choir__line_kind kind, int64_t step)
{
    const choir__job_shared *shared = t->job->placement.shared;
    return t->part.env.rank == 0 && (!shared || step > atomic_load(&shared->news[kind]));
}

void choir__trainer_note_shown(const choir__trainer *t, choir__line_kind kind, int64_t step)
{
    if (t->job->placement.shared)
        atomic_store(&t->job->placement.shared->news[kind], step);
    if (t->report.outlived)
        fflush(stdout);
}

/* The record of a step is noted when it is whole: a new rank 0 drops all that follows it. */
static void record_step(choir__trainer *t)
{
    choir__job_shared *shared = t->job->placement.shared;
    if (t->part.env.rank != 0 ||
        (shared && t->now.last.number <= atomic_load(&shared->stepped)))
        return;
    choir__cli_record_step(choir__trainer_record(t), &t->now.last, &t->part, t->report.scale);
    if (shared)
        atomic_store(&shared->stepped, t->now.last.number);
}

void choir__trainer_show_step(choir__trainer *t)
{
    int64_t step = t->now.last.number, steps = choir__job_epoch_steps(t->job);
    if (choir__trainer_is_news(t, CHOIR__LINE_STEP, step)) {
        choir__cli_report_step(&t->report, &t->now.last);
        choir__trainer_note_shown(t, CHOIR__LINE_STEP, step);
    }
    record_step(t);
    if (t->job->training.epochs && step && step == t->now.step && step % steps == 0 &&
        choir__trainer_is_news(t, CHOIR__LINE_EPOCH, step)) {
        choir__cli_report_epoch(&t->report, step / steps, step, t->now.epoch_mean);
        choir__trainer_note_shown(t, CHOIR__LINE_EPOCH, step);
    }
}

void choir__trainer_show_eval(choir__trainer *t, const choir_score *score, bool shown)
{
    if (!choir__trainer_is_news(t, CHOIR__LINE_EVAL, t->now.step))
        return;
    if (shown)
        choir__cli_report_eval(&t->report, t->now.step, score, t->now.best_due);
    choir__trainer_note_shown(t, CHOIR__LINE_EVAL, t->now.step);
    choir__cli_record_eval(choir__trainer_record(t), t->now.step, score, t->now.best_due);
}

void choir__trainer_end_by(choir__trainer *t, const char *option)
{
    t->now.ended = true;
    snprintf(t->now.ended_by, sizeof t->now.ended_by, "%s", option);
    if (!choir__trainer_is_news(t, CHOIR__LINE_END, t->now.step))
        return;
    choir__cli_report_end(&t->report, t->now.step, option);
    choir__trainer_note_shown(t, CHOIR__LINE_END, t->now.step);
}
