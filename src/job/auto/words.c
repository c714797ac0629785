/* The words of --strategy auto: the strategy of the options before its choice, and the line
 * after it. */
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "base/usable.h"
#include "job/auto/auto.h"

choir_status choir__job_auto_begin(choir__job *j)
{
    int ranks = j->ranks.launched ? j->ranks.world : j->placement.nproc;
    if (strncmp(j->placement.strategy_text, "auto", 4) ||
        (j->placement.strategy_text[4] && j->placement.strategy_text[4] != ':'))
        return CHOIR_OK;
    if (j->placement.strategy_text[4])
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--strategy %s: auto has no keys", j->placement.strategy_text);
    if (j->placement.mesh)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--mesh %s: missing --strategy with a name per size, as in --strategy ddp+pipeline",
            j->placement.mesh);
    j->placement.automatic = true;
    j->placement.undecided = !j->ranks.launched && ranks != 1 &&
                             !(ranks && j->ranks.max_restarts); /* some may be spares */
    j->placement.asked_ranks = ranks > 1 ? ranks : 0;
    j->placement.strategy_text =
        ranks > 1 ? choir__job_strategy_dividing(CHOIR__MICRO_BATCHES, 0)->name
                  : choir__job_strategies[0]->name;
    return CHOIR_OK;
}

char *choir__job_auto_text(const choir__job *j)
{
    const choir__job_placement *p = &j->placement;
    const char *kind = strncmp(p->device_names[0], "cpu", 3) ? "GPU" : "core";
    int64_t used = p->nproc * (*kind == 'c' ? p->threads : 1);
    if (*kind == 'c') /* more threads take turns */
        used = choir__min(used, choir__max(choir__usable_cores(""), p->nproc));
    return choir__format("--strategy auto: %s%s%s on %lld %s%s%s%s; --strategy single "
                         "--microbatches %lld has the same bits",
        p->strategy_text, p->mesh ? " --mesh " : "", p->mesh ? p->mesh : "", (long long)used,
        kind, used > 1 ? "s" : "", p->choice ? ": " : "", p->choice ? p->choice->words : "",
        (long long)j->training.microbatches);
}
