/* Reads --audit, "every=K,recheck=N,dump", and checks that the job's strategy can do it:
 * rechecking needs another rank that can compute a micro-batch again. */
#include "job/job.h"

#include <stdlib.h>
#include <string.h>

#include "base/options.h"

/* Returns the keys as base/options.h reads them: a flag has a value. The caller frees it. */
static char *with_values(const char *text)
{
    char *all = choir__strdup(text), *rest = all, *key, *made = choir__strdup("audit");
    for (char sign = ':'; (key = strsep(&rest, ",")); sign = ',') {
        char *longer =
            choir__format("%s%c%s%s", made, sign, key, strchr(key, '=') ? "" : "=true");
        free(made);
        made = longer;
    }
    free(all);
    return made;
}

choir_status choir__job_audited(const choir__job_records *r, choir__job_audit *audit)
{
    *audit = (choir__job_audit){0};
    if (!r->audit)
        return CHOIR_OK;
    audit->every = 50;
    const choir__option known[] = {
        {"every", CHOIR__INT, &audit->every, 1, CHOIR__LINE_NO_LIMIT},
        {"recheck", CHOIR__INT, &audit->recheck, 1, CHOIR__LINE_NO_LIMIT},
        {"dump", CHOIR__FLAG, &audit->dump, 0, 1},
        {NULL},
    };
    char *text = with_values(r->audit);
    choir_status status = choir__options_parse(text, "--audit", known);
    free(text);
    return status;
}

/* Returns whether ranks along a dimension change places, or let those that share their
 * micro-batches change with them. */
static bool turns(const choir__job *j, const choir__dimension *d)
{
    const choir__job_strategy *s = d->strategy;
    bool alone = j->placement.composition.count == 1;
    choir__recovery recovery = alone ? choir__job_strategy_recovery(j) : s->recovery;
    return !s->meet && (s->turns_ranks ? s->turns_ranks(d->keys) : recovery == CHOIR__IN_PLACE);
}

/* Another rank can compute a micro-batch where each has the whole model, or gathers it, and
 * ranks may change places; or where other ranks have the same parts of one. */
static choir_status check_recheck(const choir__job *j)
{
    const choir__composition *c = &j->placement.composition;
    bool dealt = false, turned = true, own = false;
    for (int d = 0; d < c->count; d++) {
        const choir__job_strategy *s = c->dims[d].strategy;
        int ranks = choir__composition_ranks(c, d, j->placement.nproc);
        dealt |= choir__job_strategy_deals(s);
        turned &= turns(j, &c->dims[d]);
        own |=
            s->own_numbers && s->own_numbers(c->dims[d].keys, ranks, j->training.microbatches);
    }
    if (!dealt || !turned)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--audit: recheck needs ranks that can compute each other's micro-batches: expected "
            "--strategy ddp, or fsdp without shard_ranks and ignored, alone or on a mesh with tp "
            "and cp, got %s",
            j->placement.strategy_text);
    if (own)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--audit: recheck needs ranks that compute a micro-batch alone, and sums that do not "
            "depend on the ranks, got --strategy %s",
            j->placement.strategy_text);
    return CHOIR_OK;
}

choir_status choir__job_check_audit(choir__job *j)
{
    choir__job_audit audit;
    choir_status status = choir__job_audited(&j->records, &audit);
    if (status == CHOIR_OK && audit.every && choir__job_strategy_alone(&j->placement))
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "--audit with --strategy %s: its ranks step by themselves, and have no common state "
            "that could be hashed",
            j->placement.strategy->name);
    return status == CHOIR_OK && audit.recheck ? check_recheck(j) : status;
}

bool choir__job_deals_again(const choir__job *j)
{
    choir__job_audit audit;
    return j->ranks.max_restarts ||
           (choir__job_audited(&j->records, &audit) == CHOIR_OK && audit.recheck);
}
