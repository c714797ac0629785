/* How a training is stopped: by signals, time limits, the budget of a search, and how ranks
 * agree on it. */
#include "cli/trainer/inside.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/say.h"
#include "cli/self.h"

static volatile sig_atomic_t interrupted; /* the signal */

/* A second signal stops at once. A signal within one second counts as the first one again: a
 * signal to the whole process group reaches a rank directly and through the supervisor. */
static void on_signal(int signal)
{
    static double first;
    double now = choir__now();
    if (interrupted && now - first > 1)
        _exit(128 + signal);
    if (!interrupted)
        first = now;
    interrupted = signal;
}

void choir__trainer_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool choir__trainer_is_done(const choir__trainer *t)
{
    return t->now.step >= t->job->steps || t->now.ended;
}

bool choir__trainer_apart(const choir__trainer *t)
{
    return t->job->strategy->together && !t->job->strategy->together(&t->part);
}

choir_status choir__trainer_meet(choir__trainer *t)
{
    int32_t asked = interrupted;
    if (!t->job->strategy->meet || t->stopping)
        return CHOIR_OK;
    choir_status status =
        choir_group_all_reduce(t->part.env.group, &asked, 1, CHOIR_I32, CHOIR_MAX, NULL);
    if (status != CHOIR_OK)
        return status;
    t->stopping = asked;
    t->by = asked;
    return t->job->strategy->meet(&t->part);
}

/* Returns whether this is the step at which a trial of a search will be stopped: it saves its
 * state there, not a few steps later. */
static bool has_budget(const choir__trainer *t)
{
    const char *budget = t->job->save ? getenv("CHOIR_TRIAL_BUDGET") : NULL;
    const char *unit = getenv("CHOIR_TRIAL_UNIT");
    int64_t each = unit && !strcmp(unit, "epoch") ? t->job->epoch_steps : 1;
    return budget && t->now.step / each >= atoll(budget) &&
           (!t->job->eval_every || choir__trainer_is_due(t->now.step, t->job->eval_every));
}

/* Exchanges, after a step, whether any rank was interrupted or out of time (asked), and which
 * is the slowest. */
static choir_status compare_ranks(choir__trainer *t, int asked[2])
{
    int64_t words[2 + CHOIR__SLOW_WORDS] = {asked[0], asked[1]};
    choir__cli_slow_write(&t->slow, t->part.env.rank, words + 2);
    choir_status status = choir_group_all_reduce(
        t->part.env.group, words, 2 + CHOIR__SLOW_WORDS, CHOIR_I64, CHOIR_MAX, NULL);
    if (status != CHOIR_OK)
        return status;
    asked[0] = (int)words[0];
    asked[1] = (int)words[1];
    bool told = choir__cli_slow_judge(&t->slow, words + 2, t->job->slow_after);
    if (told && t->part.env.rank == 0)
        choir__cli_report_slow(&t->report, t->now.step, &t->slow, &t->part.env);
    return CHOIR_OK;
}

bool choir__trainer_stop_asked(choir__trainer *t)
{
    const choir__cli_strategy *s = t->job->strategy;
    double limit = choir__job_seconds(t->job->max_time);
    int asked[2] = {interrupted ? interrupted : t->by,
        limit > 0 && choir__cli_uptime() >= limit}; /* the signal; whether the time is over */
    if (!asked[0] && has_budget(t))
        asked[0] = SIGTERM;
    if (choir__trainer_apart(t))
        return false;
    if (t->part.env.world > 1 && (!s->meet || s->together))
        (void)!compare_ranks(t, asked);
    t->by = asked[0];
    if (asked[1] && !asked[0])
        choir__trainer_end_by(t, "max-time");
    return asked[0];
}

choir_status choir__trainer_stop(choir__trainer *t, float loss)
{
    choir_status status = choir__trainer_meet(t);
    if (status == CHOIR_OK)
        status = choir__trainer_save(t, loss, CHOIR_SAVE_NOW);
    if (status == CHOIR_OK)
        status = choir_group_barrier(
            t->part.env.group, NULL); /* no rank leaves while rank 0 still writes */
    if (status != CHOIR_OK)
        return status;
    return choir__error(CHOIR_ERR_INTERRUPTED, "interrupted after step %lld; %s%s",
        (long long)t->now.step, t->job->save ? "saved to " : "nothing is saved without --save",
        t->job->save ? t->job->save : "");
}
