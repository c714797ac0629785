/* A rank that the others have found wrong is named with its machine. Then:
 *
 *     known, others are right    it ends, and to the others it is lost (--max-restarts)
 *     known, others are not      all end, and begin again from the last good checkpoint
 *     not known (a tie)          all end, and nothing starts them again
 *
 * Jobs whose ranks are not replaced stop. */
#include "job/trainer/inside.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checkpoint/agree.h"
#include "checkpoint/checkpoint.h"
#include "comm/engine.h"
#include "launch/keeper.h"
#include "parallel/elastic/elastic.h"

enum { HOST_TEXT = 64 };

/* Returns "rank 1 on a" or "rank 0 on a and rank 2 on b"; the caller frees it. Collective. */
static choir_status names_of(choir_group *group, const choir__judgement *v, char **names)
{
    int world = group ? choir_group_world(group) : 1;
    char mine[HOST_TEXT] = "", *all = choir__calloc((size_t)world, HOST_TEXT);
    gethostname(mine, sizeof mine - 1);
    memcpy(all, mine, sizeof mine);
    choir_status status =
        group ? choir_group_all_gather(group, mine, all, sizeof mine, CHOIR_U8, NULL)
              : CHOIR_OK;
    *names = choir__judgement_ranks(v, status == CHOIR_OK ? all : NULL, HOST_TEXT);
    free(all);
    return status;
}

/* Finds the newest checkpoint that is known to be good: the newest one, or the newest one of a
 * step after which the ranks have agreed. path: PATH_MAX bytes. */
static bool find_good(const choir__trainer *t, bool newest_good, char *path)
{
    const char *dir = t->job->saves.dir;
    char *why = choir__strdup(choir_error_message());
    bool found =
        dir && (newest_good ? choir_training_find(dir, path)
                            : choir__checkpoint_before(dir, t->now.compared, path)) == CHOIR_OK;
    (void)choir_error_message(); /* marks the error as read: there may be no checkpoint yet */
    choir__set_message(why);
    free(why);
    return found;
}

/* The named ranks end; the others wait until they are gone. */
static choir_status part(
    const choir__trainer *t, const choir__judgement *v, const char *sentence)
{
    if (choir__judgement_names(v, t->part.env.rank))
        return choir__error(CHOIR_ERR_STATE, "%s", sentence);
    if (choir_group_barrier(t->part.env.group, NULL) != CHOIR_OK)
        return CHOIR_ERR_PEER_LOST;
    return choir__error(CHOIR_ERR_INTERNAL, "%s; it takes part all the same", sentence);
}

/* Makes the good checkpoint the newest: the job continues from it after any start. If none is
 * known to be good, those that may have wrong numbers are put aside. Collective. Error: io,
 * also where the folder does not allow it. */
static choir_status keep_good(const choir__trainer *t, const char *good)
{
    choir_train_state s;
    const char *dir = t->job->saves.dir;
    choir_status status = CHOIR_OK;
    if (t->part.env.rank == 0 && dir && !good) {
        status = choir__checkpoint_put_aside(dir, t->now.compared);
    } else if (t->part.env.rank == 0 && dir) {
        status = choir_training_read(good, &s);
        if (status == CHOIR_OK)
            status = choir__checkpoint_go_back(dir, s.step);
    }
    choir_status agreed = choir__agree(t->part.env.group, status);
    return choir__is_loss(agreed) ? status : agreed;
}

/* Returns what a user finds in the folder, for the end of a sentence; the caller frees it.
 * good: the good checkpoint, or NULL. renamed: the result of keep_good. */
static char *state_of_saves(
    const choir__trainer *t, const char *good, bool newest_good, choir_status renamed)
{
    if (good && renamed == CHOIR_OK)
        return choir__format("its last good state is %s", good);
    if (good)
        return choir__format(
            "its last good state is %s, which --resume must name: %s", good, choir__message());
    if (newest_good || !t->job->saves.dir)
        return choir__strdup("it has saved nothing");
    if (renamed == CHOIR_OK)
        return choir__strdup(
            "no checkpoint is known to be good: later ones are suspect-step-N now");
    return choir__format("no checkpoint behind step %lld is known to be good, and %s: do not "
                         "continue from it",
        (long long)t->now.compared, choir__message());
}

/* Under agents, the named ranks end first: the first failure is charged to its machine. */
static void let_end(const choir__trainer *t, const choir__judgement *v)
{
    if (choir__keeper_is_there() && !choir__judgement_names(v, t->part.env.rank) &&
        v->count < t->part.env.world)
        (void)!choir_group_barrier(t->part.env.group, NULL);
}

/* All ranks end. With --max-restarts new ones start at a good checkpoint, if a wrong rank is
 * known and such a checkpoint is kept. Agents start them again in any case, but for a verdict
 * that names no wrong rank, or a folder that stays as it is. */
static choir_status stop(
    choir__trainer *t, const choir__judgement *v, const char *sentence, bool newest_good)
{
    char path[PATH_MAX];
    bool decided = v->how == CHOIR__VOTE_DECIDED;
    if (t->saved)
        (void)!choir_checkpoint_wait(t->saved);
    if (!newest_good)
        choir__elastic_withdraw(t->elastic);
    const char *good = find_good(t, newest_good, path) ? path : NULL;
    choir_status renamed = newest_good ? CHOIR_OK : keep_good(t, good);
    char *state = state_of_saves(t, good, newest_good, renamed);
    choir__elastic_end_all(!decided || renamed != CHOIR_OK ? CHOIR__END_FOR_GOOD
                           : good                          ? CHOIR__END_AGAIN
                                                           : CHOIR__END_HERE);
    if (decided)
        let_end(t, v);
    choir_status status =
        choir__error(CHOIR_ERR_STATE, "%s; the training stops, and %s", sentence, state);
    free(state);
    return status;
}

choir_status choir__trainer_blame(choir__trainer *t, int64_t step, const choir__judgement *v,
    const char *what, bool others_good)
{
    char *names;
    choir_status status = names_of(t->part.env.group, v, &names);
    const bool decided = v->how == CHOIR__VOTE_DECIDED;
    char *sentence =
        decided ? choir__format("%s computed wrong in step %lld: %s differs there", names,
                      (long long)step, what)
                : choir__format("%s differs in step %lld, and no third computation decides who "
                                "is wrong: %s",
                      what, (long long)step, *names ? names : "all ranks");
    if (status == CHOIR_OK)
        status =
            t->job->ranks.max_restarts && decided && others_good && v->count < t->part.env.world
                ? part(t, v, sentence)
                : stop(t, v, sentence, others_good);
    free(sentence);
    free(names);
    return status;
}
