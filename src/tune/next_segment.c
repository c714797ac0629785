/* The rule of order: which segment is next, and which results it may follow from.
 *
 * Segment n is decided when the segments 0 ... n - window have ended. The scheduler and the
 * sampler then know the results of these alone, whatever else has ended: a trial's `known`
 * members are their view of it. So nothing that they decide depends on how many trials run at
 * once, or on which ends first.
 *
 * Where the scheduler has nothing to do for segment n, since all trials that could be resumed
 * wait for results that n may not know, the segment is empty and ends at once: segment n + 1
 * may know more. In a free study there is no n: results are known at once. */
#include <stdlib.h>
#include <string.h>

#include "tune/study.h"
#include "tune/trial.h"

choir__history choir__study_history(const choir_study *s)
{
    return (choir__history){.space = s->space,
        .trial = s->trial,
        .count = s->count,
        .most = s->trials,
        .news = s->news,
        .news_count = s->news_count,
        .objectives = s->objectives,
        .sign = s->sign};
}

/* --- results --- */

/* Makes the result of segment n known. */
static void learn(choir_study *s, int64_t n)
{
    const choir__trial_segment *g = &s->segment[n];
    if (g->trial < 0)
        return;
    choir_trial *t = s->trial[g->trial];
    t->known = g->state;
    t->known_reports = g->reports;
    t->known_since = n;
    t->known_news = s->news_count;
    CHOIR__GROW(s->news, s->news_count);
    s->news[s->news_count++] = g->trial;
    choir__history h = choir__study_history(s);
    if (s->scheduler->ops->take)
        s->scheduler->ops->take(s->scheduler, &h, g);
}

/* Learns what the next segment may know. */
static void learn_allowed(choir_study *s)
{
    int64_t last = s->segment_count - s->window;
    while (!s->free && s->known <= last && s->known < s->ended)
        learn(s, s->known++);
}

static int64_t append(choir_study *s, choir__trial_segment segment)
{
    CHOIR__GROW(s->segment, s->segment_count);
    s->segment[s->segment_count] = segment;
    return s->segment_count++;
}

static void count_ended(choir_study *s)
{
    while (s->ended < s->segment_count && s->segment[s->ended].ended)
        s->ended++;
}

/* --- the next turn --- */

static bool may_decide(const choir_study *s)
{
    return s->free ? s->runs < s->window : s->segment_count - s->ended < s->window;
}

static bool more_trials(const choir_study *s, const choir__history *h)
{
    if (s->trials && s->count >= s->trials)
        return false;
    return s->queue || !s->sampler->ops->has_more || s->sampler->ops->has_more(s->sampler, h);
}

bool choir__study_has_more(const choir_study *s)
{
    choir__history h = choir__study_history(s);
    return more_trials(s, &h);
}

choir__prospect choir__study_look_ahead(choir_study *s)
{
    while (!s->has_turn) {
        learn_allowed(s);
        if (!may_decide(s))
            return CHOIR__PROSPECT_WAIT;
        choir__history h = choir__study_history(s);
        s->scheduler->ops->next(s->scheduler, &h, more_trials(s, &h), &s->turn);
        s->has_turn = s->turn.kind != CHOIR__TURN_NOTHING;
        if (s->has_turn)
            break;
        bool all_known = s->free ? !s->runs : s->known >= s->work_count;
        if (all_known || !s->scheduler->ops->pauses)
            return s->runs ? CHOIR__PROSPECT_WAIT : CHOIR__PROSPECT_END;
        if (s->free)
            return CHOIR__PROSPECT_WAIT;
        append(s, (choir__trial_segment){.trial = -1, .ended = true});
        count_ended(s);
    }
    return CHOIR__PROSPECT_TURN;
}

/* --- segments --- */

static void insert(choir_trial *t, int64_t step, double value)
{
    int64_t at = t->report_count;
    while (at > t->before && t->reports[at - 1].step >= step)
        at--;
    if (at < t->report_count && t->reports[at].step == step) {
        t->reports[at].value = value;
        return;
    }
    size_t n = (size_t)t->report_count++;
    t->reports = choir__realloc(t->reports, (n + 1) * sizeof *t->reports);
    memmove(t->reports + at + 1, t->reports + at, (n - (size_t)at) * sizeof *t->reports);
    t->reports[at] = (choir__report){step, value};
}

static bool is_to_stop(const choir_study *s, const choir_trial *t)
{
    const choir__trial_segment *g = &s->segment[t->segment];
    const choir__scheduler_ops *ops = s->scheduler->ops;
    if (t->report_count && t->reports[t->report_count - 1].step >= g->budget)
        return true;
    if (!ops->stops || t->report_count == t->before)
        return false;
    choir__history h = choir__study_history(s);
    return ops->stops(s->scheduler, &h, t, s->free ? INT64_MAX : t->segment - s->window);
}

/* Keeps a report, and returns whether it counts now. A report after the trial was stopped is
 * kept for its next segment, because the number of such reports depends on how fast the trial
 * stops. Steps of earlier segments are ignored. */
bool choir__study_report(choir_study *s, choir_trial *t, int64_t step, double value)
{
    if (step <= t->began || (t->before && step <= t->reports[t->before - 1].step))
        return false;
    if (t->stop) {
        CHOIR__GROW(t->later, t->later_count);
        t->later[t->later_count++] = (choir__report){step, value};
        return false;
    }
    insert(t, step, value);
    t->stop = is_to_stop(s, t);
    return true;
}

void choir__study_restart_segment(choir_study *s, choir_trial *t)
{
    t->report_count = t->before;
    t->stop = is_to_stop(s, t); /* the reason to stop may be known already */
    choir__report *later = t->later;
    int64_t count = t->later_count;
    t->later = NULL;
    t->later_count = 0;
    for (int64_t i = 0; i < count; i++)
        choir__study_report(s, t, later[i].step, later[i].value);
    free(later);
}

void choir__study_begin_segment(choir_study *s, choir_trial *t)
{
    t->segment = append(s, (choir__trial_segment){.trial = t->number,
                               .budget = s->turn.budget,
                               .last = s->turn.last,
                               .began = choir__now()});
    t->parts++;
    t->retaken = false;
    s->work_count = s->segment_count;
    s->has_turn = false;
    s->runs++;
    t->state = CHOIR_TRIAL_RUNNING;
    t->before = t->report_count;
    choir__study_restart_segment(s, t);
}

void choir__study_end_segment(choir_study *s, choir_trial *t)
{
    choir__trial_segment *g = &s->segment[t->segment];
    g->ended = true;
    g->state = t->state;
    g->reports = t->report_count;
    g->seconds = choir__now() - g->began;
    s->runs--;
    count_ended(s);
    if (s->free)
        learn(s, t->segment);
}
