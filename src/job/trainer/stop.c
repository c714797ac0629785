/* How a training is stopped, and asked to save: by signals, time limits, the budget of a
 * search, and how ranks agree on it.
 *
 * Ranks that step together compare their requests after each step, and between the
 * batches of a validation. Ranks that step apart do so where they meet. If that is far, those
 * that share memory go through a gate: each notes there the step that it begins, and a rank
 * that was interrupted some seconds ago closes it. None begins a step later than the furthest
 * one that was noted, so all stop after the same step, without a message. */
#include "job/trainer/inside.h"

#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "checkpoint/agree.h"
#include "launch/launchers.h"
#include "record/recorder.h"
#include "line/say.h"
#include "line/command.h"

static const double meeting_s = 3; /* seconds that a signal waits for the next meeting */
static const int64_t closed = INT64_C(1) << 62;

bool choir__trainer_is_done(const choir__trainer *t)
{
    return t->now.step >= t->job->training.steps || t->now.ended;
}

bool choir__trainer_apart(const choir__trainer *t)
{
    return t->job->placement.strategy->together &&
           !t->job->placement.strategy->together(&t->part);
}

/* A job that is continued counts to its next meeting from here, where a job of all steps in one
 * go would not have met. */
static void note_early_meeting(const choir__trainer *t)
{
    const choir__job *j = t->job;
    char *own = choir__composition_numbers(
        &j->placement.composition, j->placement.nproc, j->training.microbatches);
    if (*own && j->saves.dir && t->part.env.rank == 0)
        choir__job_tell(j,
            "note: the workers met after step %lld, before a meeting was due: a job that continues "
            "from here has other numbers than a job of all steps in one go",
            (long long)t->now.step);
    free(own);
}

choir_status choir__trainer_meet(choir__trainer *t)
{
    const bool early = choir__trainer_apart(t);
    int32_t asked = choir__trainer_signal(NULL);
    if (!t->job->placement.strategy->meet || t->stopping)
        return CHOIR_OK;
    choir_status status =
        choir_group_all_reduce(t->part.env.group, &asked, 1, CHOIR_I32, CHOIR_MAX, NULL);
    if (status != CHOIR_OK)
        return status;
    t->stopping = asked;
    t->by = asked;
    status = t->job->placement.strategy->meet(&t->part);
    if (status == CHOIR_OK && early)
        note_early_meeting(t);
    return status;
}

bool choir__trainer_may_begin(const choir__trainer *t)
{
    _Atomic int64_t *gate = t->job->ranks.gate;
    double since;
    if (!gate || !choir__trainer_apart(t))
        return true;
    if (choir__trainer_signal(&since) && choir__now() - since > meeting_s)
        atomic_fetch_or(gate, closed);
    int64_t next = t->now.step + 1, furthest = atomic_load(gate);
    while (!(furthest & closed) && furthest < next &&
           !atomic_compare_exchange_weak(gate, &furthest, next))
        ;
    return !(furthest & closed) || next <= (furthest & ~closed);
}

/* Returns whether this is the step at which a trial of a search will be stopped: it saves its
 * state there, not a few steps later. */
static bool has_budget(const choir__trainer *t)
{
    const char *budget = t->job->saves.dir ? getenv("CHOIR_TRIAL_BUDGET") : NULL;
    const char *unit = getenv("CHOIR_TRIAL_UNIT");
    int64_t each =
        unit && !strcmp(unit, "epoch") ? t->job->training.epoch_steps : 1; /* no key */
    return budget && t->now.step / each >= atoll(budget) &&
           (!t->job->training.eval_every ||
               choir__trainer_is_due(t->now.step, t->job->training.eval_every));
}

bool choir__trainer_is_time_over(const choir__trainer *t, double more_s)
{
    double limit = choir__job_seconds(t->job->training.max_time);
    return limit > 0 && choir__line_uptime() >= limit + more_s;
}

enum { SIGNAL, TIME_OVER, SAVE, WORDS }; /* requests to a rank */

static void show_straggler(choir__trainer *t)
{
    const choir_group *group = t->part.env.group;
    const choir__job_slow *s = &t->slow;
    bool many = choir_group_nodes(group) > 1;
    choir__trainer_tell(t, CHOIR__TO_BOTH,
        CHOIR__TOLD(straggler, .step = t->now.step, .rank = s->rank, .cost_s = s->cost_s,
            .step_s = s->step_s, .node = many ? choir_group_node(group, s->rank) : -1));
}

/* Exchanges, after a step, the ranks' requests, and finds the slowest rank. */
static choir_status compare_ranks(choir__trainer *t, int64_t asked[WORDS])
{
    int64_t words[WORDS + CHOIR__SLOW_WORDS];
    memcpy(words, asked, WORDS * sizeof *words);
    choir__job_slow_write(&t->slow, t->part.env.rank, words + WORDS);
    choir_status status = choir_group_all_reduce(
        t->part.env.group, words, WORDS + CHOIR__SLOW_WORDS, CHOIR_I64, CHOIR_MAX, NULL);
    if (status != CHOIR_OK)
        return status;
    memcpy(asked, words, WORDS * sizeof *words);
    bool told = choir__job_slow_judge(&t->slow, words + WORDS, t->job->ranks.slow_after);
    if (told && t->part.env.rank == 0)
        show_straggler(t);
    return CHOIR_OK;
}

bool choir__trainer_stop_asked(choir__trainer *t)
{
    const choir__job_strategy *s = t->job->placement.strategy;
    if (choir__trainer_apart(t))
        return false;
    int signal = choir__trainer_signal(NULL);
    int64_t asked[WORDS] = {signal ? signal : t->by, choir__trainer_is_time_over(t, 0),
        choir__trainer_save_asked(t)};
    if (!asked[SIGNAL] && has_budget(t))
        asked[SIGNAL] = SIGTERM;
    if (t->part.env.world > 1 && (!s->meet || s->together))
        (void)!compare_ranks(t, asked);
    t->by = (int)asked[SIGNAL];
    t->save_due = asked[SAVE] && !asked[SIGNAL];
    if (asked[TIME_OVER] && !asked[SIGNAL])
        choir__trainer_end_by(t, "max-time");
    return asked[SIGNAL];
}

choir_status choir__trainer_between_batches(void *trainer, choir_status mine)
{
    choir__trainer *t = trainer;
    if (mine == CHOIR_ERR_MEMORY && t->elastic)
        return mine; /* this rank alone is lost: the others learn that by its end */
    choir__trainer_show_asked();
    int64_t words[WORDS + 1] = {choir__trainer_signal(NULL),
        choir__trainer_is_time_over(t, t->overtime_s), choir__trainer_save_asked(t),
        mine != CHOIR_OK};
    choir_status status = CHOIR_OK;
    if (t->part.env.world > 1)
        status = choir_group_all_reduce(
            t->part.env.group, words, WORDS + 1, CHOIR_I64, CHOIR_MAX, NULL);
    t->lost_save |= status != CHOIR_OK && words[SAVE];
    if (status != CHOIR_OK)
        return status;
    t->agreed = true;
    if (words[WORDS])
        return choir__agree(t->part.env.group, mine);
    if (words[SIGNAL])
        t->by = (int)words[SIGNAL];
    else if (words[TIME_OVER])
        t->now.time_over = true;
    if (words[SIGNAL] || words[TIME_OVER])
        return choir__error(CHOIR_ERR_INTERRUPTED, "the validation was ended");
    t->agreed = false;
    return words[SAVE] ? choir__trainer_save_as_asked(t) : CHOIR_OK;
}

/* Tells what stops the training before it saves, which may take long. */
static void show_signal(choir__trainer *t, double left)
{
    char name[32];
    bool signal = t->by && !has_budget(t);
    if (signal)
        snprintf(name, sizeof name, "SIG%s", sigabbrev_np(t->by));
    choir__trainer_show_stop(t, NULL, signal ? name : NULL, left);
}

/* Returns the seconds that are left to a job that a signal ends; INFINITY: no limit. */
static double grace_left(const choir__trainer *t)
{
    double since, grace = choir__job_seconds(t->job->saves.grace);
    bool here = choir__trainer_signal(&since) != 0; /* false: another rank got the signal */
    if (!t->by || has_budget(t))
        return (double)INFINITY;
    if (grace > 0)
        return grace - (here ? choir__now() - since : 0);
    grace = choir__launcher_grace(choir__wall_time());
    return grace < 0 ? (double)INFINITY : grace;
}

/* Stores whether the step can be saved in the time that is left, as rank 0 has it. A save of
 * the step that is under way is finished. */
static choir_status fits(const choir__trainer *t, double left, bool *fit)
{
    int32_t yes = !t->job->saves.dir || t->now.saved == t->now.step || t->save_took <= left;
    choir_status status = choir_group_broadcast(t->part.env.group, &yes, 1, CHOIR_I32, 0, NULL);
    *fit = yes > 0;
    return status;
}

/* The job ends with the checkpoint that it has. */
static choir_status leave_unsaved(const choir__trainer *t, double left)
{
    char newest[48] = "there is no other";
    if (t->newest)
        snprintf(newest, sizeof newest, "the newest is of step %lld", (long long)t->newest);
    return choir__error(CHOIR_ERR_INTERRUPTED,
        "interrupted after step %lld, which is not saved: a checkpoint takes about %.3g s, and "
        "%.3g s are left; %s",
        (long long)t->now.step, t->save_took, fmax(left, 0), newest);
}

choir_status choir__trainer_stop(choir__trainer *t, float loss)
{
    if (!t->now.step)
        return choir__error(CHOIR_ERR_INTERRUPTED, "interrupted before the first step");
    bool fit = true;
    double left = grace_left(t);
    show_signal(t, left);
    choir_status status = choir__trainer_meet(t);
    if (status == CHOIR_OK)
        status = fits(t, left, &fit);
    if (status == CHOIR_OK && !fit)
        return leave_unsaved(t, left);
    /* A job that continues from the last step has only its validation left. */
    t->now.last_eval_due |= choir__trainer_is_done(t) && !t->job->training.no_eval;
    if (status == CHOIR_OK)
        status = choir__trainer_save_whole(t, loss);
    if (status == CHOIR_OK)
        status = choir_group_barrier(
            t->part.env.group, NULL); /* no rank leaves while rank 0 still writes */
    if (status != CHOIR_OK)
        return status;
    return choir__error(CHOIR_ERR_INTERRUPTED, "interrupted after step %lld; %s%s",
        (long long)t->now.step,
        t->job->saves.dir ? "saved to " : "nothing is saved without --save",
        t->job->saves.dir ? t->job->saves.dir : "");
}
