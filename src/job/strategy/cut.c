/* The cut of the work for workers that train by themselves (diloco, local-sgd).
 *
 * A key of the strategy declares their number W; unless specified it is the number of ranks
 * with which the job began. If W divides the micro-batches, ranks share the workers, and the
 * number of ranks changes no bit; a checkpoint records W. A number of ranks that does not
 * divide the micro-batches is older than that: each rank is then one worker, as long as nobody
 * declares W. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"

/* Returns the dimension that has workers, or NULL: these strategies are in no composition. */
static choir__dimension *with_workers(const choir__composition *c)
{
    const choir__dimension *d = &c->dims[0];
    return c->count == 1 && d->strategy->workers ? (choir__dimension *)(uintptr_t)d : NULL;
}

int64_t choir__composition_workers(const choir__composition *c)
{
    const choir__dimension *d = with_workers(c);
    return d ? *d->strategy->workers(d->keys) : 0;
}

void choir__composition_settle(
    choir__composition *c, const choir__composition *before, int ranks)
{
    choir__dimension *d = with_workers(c);
    if (!d)
        return;
    int64_t *workers = d->strategy->workers(d->keys);
    if (!*workers && before)
        *workers = choir__composition_workers(before);
    d->declares = *workers > 0;
    if (!*workers)
        *workers = ranks;
}

int64_t choir__cli_strategy_workers_shared(const choir__job *j)
{
    int64_t workers = choir__composition_workers(&j->placement.composition);
    return workers && j->training.microbatches % workers == 0 ? workers : 0;
}

int64_t choir__cli_strategy_units(const choir__job *j)
{
    int64_t workers = choir__cli_strategy_workers_shared(j);
    return workers ? workers : j->training.microbatches;
}

choir_status choir__cli_strategy_check_workers(const choir__job *j, int ranks)
{
    const choir__composition *c = &j->placement.composition;
    int64_t workers = choir__composition_workers(c);
    if (!workers || !c->dims[0].declares)
        return CHOIR_OK;
    if (workers < ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "strategy %s: workers=%lld %s fewer than %d ranks; each rank needs one",
            c->dims[0].strategy->name, (long long)workers, workers > 1 ? "are" : "is", ranks);
    return choir__cli_strategy_workers_shared(j)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "strategy %s: workers=%lld do not divide %lld micro-batches; each worker "
                     "needs as many as the others",
                     c->dims[0].strategy->name, (long long)workers,
                     (long long)j->training.microbatches);
}

choir_status choir__cli_strategy_check_recut(
    const choir__job *j, const choir__composition *before)
{
    const choir__composition *c = &j->placement.composition;
    int64_t is = choir__composition_workers(c), was = choir__composition_workers(before);
    if (!is || !was || is == was || j->saves.recut)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s was trained with %s:workers=%lld: it cannot go on with workers=%lld, unless --recut "
        "allows that the numbers change",
        j->saves.resume, before->dims[0].strategy->name, (long long)was, (long long)is);
}

char *choir__cli_strategy_whole_text(const choir__job *j)
{
    const char *text = j->placement.strategy_text;
    int64_t workers = choir__cli_strategy_workers_shared(j);
    if (!workers || strstr(text, "workers="))
        return NULL;
    return choir__format(
        "%s%cworkers=%lld", text, strchr(text, ':') ? ',' : ':', (long long)workers);
}
