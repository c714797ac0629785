/* The cut of the work that a key of a strategy declares, beside the cut into micro-batches: the
 * number W of workers that train by themselves (diloco, local-sgd), or the number G of groups
 * of micro-batches that share statistics (ddp:sync_bn).
 *
 * Unless specified it follows from the number of ranks with which the job began. A checkpoint
 * records it, and a resumed job keeps it: then the number of ranks changes no bit.
 *
 * The number of slices of weights, T, is an option of its own, since every strategy has it
 * (--slices): unless specified it is the number of ranks that share each weight.
 *
 * Workers share the micro-batches equally. A number of ranks that does not divide the
 * micro-batches is older than that: each rank is then one worker, unless W is declared. */
#include <stdlib.h>
#include <string.h>

#include "job/job.h"

/* Returns the cut that the composition's keys declare; its name is NULL if they declare none,
 * or if there are several strategies. */
static choir__declared_cut cut_of(const choir__composition *c)
{
    const choir__dimension *d = &c->dims[0];
    return c->count == 1 && d->strategy->cut ? d->strategy->cut(d->keys)
                                             : (choir__declared_cut){.name = NULL};
}

int64_t choir__composition_workers(const choir__composition *c)
{
    choir__declared_cut cut = cut_of(c);
    return cut.name && cut.of_ranks ? *cut.number : 0;
}

void choir__composition_settle(
    choir__composition *c, const choir__composition *before, int ranks, int64_t microbatches)
{
    choir__dimension *d = &c->dims[0];
    choir__declared_cut cut = cut_of(c),
                        old = before ? cut_of(before) : (choir__declared_cut){.name = NULL};
    if (!cut.name || d->settled)
        return;
    if (!*cut.number && old.name && !strcmp(old.name, cut.name))
        *cut.number = *old.number;
    d->declares |= *cut.number > 0;
    if (!*cut.number)
        *cut.number = cut.of_ranks                                ? ranks
                      : microbatches && microbatches % ranks == 0 ? microbatches / ranks
                                                                  : 0;
    d->settled = *cut.number > 0;
}

int choir__job_strategy_slicers(const choir__job_placement *p)
{
    return choir__composition_slicers(&p->composition, p->nproc);
}

choir_status choir__job_strategy_settle_slices(choir__job *j)
{
    int ranks = choir__job_strategy_slicers(&j->placement);
    if (!j->training.slices)
        j->training.slices = ranks;
    if (j->training.slices % ranks == 0)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--slices %lld: %d ranks share each weight and do not divide the slices: choose --slices "
        "%lld, or ranks that do",
        (long long)j->training.slices, ranks,
        (long long)((j->training.slices / ranks + 1) * ranks));
}

int64_t choir__job_strategy_workers_shared(const choir__job *j)
{
    int64_t workers = choir__composition_workers(&j->placement.composition);
    return workers && j->training.microbatches % workers == 0 ? workers : 0;
}

int64_t choir__job_strategy_units(const choir__job *j)
{
    int64_t workers = choir__job_strategy_workers_shared(j);
    return workers ? workers : j->training.microbatches;
}

choir_status choir__job_strategy_check_workers(const choir__job *j, int ranks)
{
    const choir__composition *c = &j->placement.composition;
    int64_t workers = choir__composition_workers(c);
    if (!workers || !c->dims[0].declares)
        return CHOIR_OK;
    if (workers < ranks)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "strategy %s: workers=%lld %s fewer than %d ranks; each rank needs one",
            c->dims[0].strategy->name, (long long)workers, workers > 1 ? "are" : "is", ranks);
    return choir__job_strategy_workers_shared(j)
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "strategy %s: workers=%lld do not divide %lld micro-batches; each worker "
                     "needs as many as the others",
                     c->dims[0].strategy->name, (long long)workers,
                     (long long)j->training.microbatches);
}

choir_status choir__job_strategy_check_recut(
    const choir__job *j, const choir__composition *before)
{
    choir__declared_cut is = cut_of(&j->placement.composition), was = cut_of(before);
    if (!is.name || !was.name || strcmp(is.name, was.name) != 0 || !*was.number ||
        *is.number == *was.number || j->saves.recut)
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s was trained with %s:%s=%lld: it cannot continue with %s=%lld, unless --recut allows "
        "that the numbers change",
        j->saves.resume, before->dims[0].strategy->name, was.name, (long long)*was.number,
        is.name, (long long)*is.number);
}

char *choir__job_strategy_whole_text(const choir__job *j)
{
    const char *text = j->placement.strategy_text;
    choir__declared_cut cut = cut_of(&j->placement.composition);
    bool unshared = cut.name && cut.of_ranks && !choir__job_strategy_workers_shared(j);
    if (!cut.name || !*cut.number || unshared)
        return NULL;
    char *key = choir__format("%s=", cut.name);
    char *whole = strstr(text, key)
                      ? NULL
                      : choir__format("%s%c%s%lld", text, strchr(text, ':') ? ',' : ':', key,
                            (long long)*cut.number);
    free(key);
    return whole;
}
