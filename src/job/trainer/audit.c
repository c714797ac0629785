/* --audit: a line of hashes after each step that is due. It comes before the step is saved, so
 * that a job that is resumed from the checkpoint has it; a step that is repeated after a loss
 * keeps the line that is there. */
#include "job/trainer/inside.h"

#include <stdatomic.h>

#include "audit/audit.h"
#include "checkpoint/agree.h"
#include "job/report/run_log.h"

choir_status choir__trainer_audit_open(choir__trainer *t, bool together)
{
    choir__job_audit keys;
    choir_status status = choir__job_audited(&t->job->records, &keys);
    if (status != CHOIR_OK || !keys.every || t->job->training.find_lr)
        return status;
    choir_audit_opts opts = choir_audit_defaults();
    opts.every = keys.every;
    opts.dump = keys.dump;
    opts.resumed = t->now.step;
    opts.group = t->part.env.group;
    opts.loader = t->part.loader;
    opts.job = t->job_text;
    const char *folder = choir__run_log_folder(t->job);
    status = choir__audit_open(folder, t->part.net, t->part.optim, opts, &t->audit);
    if (status == CHOIR_OK) {
        t->recheck = keys.recheck;
        choir__audit_set_recheck(t->audit, keys.recheck);
        choir__audit_let_ride(t->audit);
    }
    return together ? choir__agree(opts.group, status) : status;
}

choir_status choir__trainer_audit(choir__trainer *t)
{
    if (!t->audit)
        return CHOIR_OK;
    const choir__audit_step step = {.step = t->now.step,
        .made = t->made,
        .has_loss = !t->now.last.none,
        .loss = t->now.last.loss,
        .losses = t->all ? t->all : t->read,
        .first = t->all ? 0 : t->part.micro_first,
        .count = t->all ? t->job->training.microbatches : t->part.micro_count};
    choir_status status = choir__audit_line(t->audit, &step);
    const choir__judgement *v = choir__audit_verdict(t->audit);
    bool whole = choir__job_strategy_recovery(t->job) == CHOIR__IN_PLACE; /* on each rank */
    if (status == CHOIR_OK && v->how == CHOIR__VOTE_AGREED && choir__audit_compared(t->audit))
        t->now.compared = t->now.step;
    if (status != CHOIR_ERR_IO)
        return status == CHOIR_OK && v->how != CHOIR__VOTE_AGREED
                   ? choir__trainer_blame(t, t->now.step, v, choir__audit_accused(t->audit),
                         whole && choir__audit_is_new(t->audit))
                   : status;
    if (t->part.env.rank == 0)
        choir__job_tell(t->job, "warning: %s; training continues without this audit",
            choir_error_message());
    if (t->job->records.unrecorded)
        atomic_store(t->job->records.unrecorded, 1);
    return CHOIR_OK;
}
