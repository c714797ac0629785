/* One rank's training loop.
 *
 * A step is a function handed to choir_step, which records it and replays it; between steps the
 * host reads the micro-batches' losses, gathers the other ranks' losses, reports, evaluates and
 * saves.
 *
 * With --max-restarts the step runs within choir_elastic_step. Ranks whose objects outlive a
 * loss exchange their losses in the step (ddp; hogwild's ranks wait for no other), so that
 * every rank that has finished it has all of them. What comes between two steps may be cut
 * short by the loss of a rank; it is then repeated (`after`). Under the other strategies a loss
 * ends everything, and choir__train_rank sets it up again: the step before, and what came after
 * it, are repeated, but not shown. */
#include "job/trainer/trainer.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/engine.h"
#include "job/bits.h"
#include "job/document/document.h"
#include "job/trainer/find_lr.h"
#include "line/say.h"
#include "line/command.h"
#include "job/trainer/inside.h"
#include "launch/crew/crew.h"

/* Loads the state with which this process begins, unless choir_elastic_open brings it. */
static choir_status load(choir__trainer *t)
{
    const choir__job *j = t->job;
    bool rebuilt = j->ranks.max_restarts && choir__job_strategy_recovery(j) != CHOIR__IN_PLACE;
    bool again = rebuilt && t->part.env.generation > 1, copied = false;
    choir_status status = again ? choir__trainer_finds_copies(t, &copied) : CHOIR_OK;
    if (status != CHOIR_OK || copied)
        return status;
    if (again)
        return choir__trainer_go_back(t);
    status = choir__trainer_continue_own(t);
    bool reads = j->saves.resume && !t->joined;
    return status == CHOIR_OK && reads ? choir__trainer_resume(t, j->saves.resume) : status;
}

static choir_status build(choir__trainer *t)
{
    choir_status status = choir__job_rank_build(&t->part);
    t->read = choir__calloc(
        (size_t)choir__max(t->part.micro_count, t->job->training.microbatches) + 1,
        sizeof(float));
    t->measured = choir__calloc((size_t)t->part.micro_count + 1, sizeof *t->measured);
    t->now.judge = choir__eval_policy_new(t->job);
    t->now.last_eval = (double)NAN;
    t->now.last.loss = NAN;
    /* A rank that joins receives its state. A member whose first meeting has failed joins no
     * job that is further: it reads the checkpoint of --resume like the others. */
    t->joined = !t->part.env.generation && !t->begins_again && choir__crew_is_new();
    t->watch.backward = !t->part.scaler; /* a loss scale makes gradients overflow */
    if (status == CHOIR_OK && t->job->training.debug_nan)
        choir__nan_watch_net(&t->watch, t->part.net);
    return status == CHOIR_OK ? load(t) : status;
}

/* Opens the elastic training, which may bring copies of the state. */
static choir_status open_elastic(choir__trainer *t)
{
    const choir__job *j = t->job;
    t->stays = j->ranks.max_restarts && choir__job_strategy_recovery(j) == CHOIR__IN_PLACE;
    if (t->stays && !j->placement.strategy->meet)
        t->all = choir__calloc((size_t)j->training.microbatches, sizeof *t->all);
    choir_training parts = choir__trainer_parts(t);
    choir_elastic_opts opts = {.state = &t->now,
        .state_bytes = sizeof t->now,
        .no_copy = j->ranks.no_copy,
        .save_every = j->saves.dir ? j->saves.every : 0};
    choir_status status = choir_elastic_open(&t->part.env, &parts, opts, &t->elastic);
    if (status == CHOIR_OK && !j->ranks.max_restarts && !choir_elastic_keeps(t->elastic)) {
        choir_elastic_free(t->elastic); /* nothing is kept: a job like any other */
        t->elastic = NULL;
    }
    choir__trainer_note_generation(t); /* a rank that is new has come to its first one */
    if (t->stays)
        choir__trainer_take_part(t);
    return status;
}

/* Opens the part and builds it; a rank that is new returns when it takes part. */
static choir_status set_up(choir__trainer *t)
{
    const choir__job *j = t->job;
    choir_status status = choir__job_rank_open(&t->part, j, choir__job_agree);
    choir__trainer_note_generation(t); /* what fails from here on is this one's failure */
    if (status == CHOIR_OK)
        status = build(t);
    const bool together = t->part.env.generation > 0; /* where a rank joins, the others train */
    if (status == CHOIR_OK && (j->ranks.max_restarts || choir__job_may_be_kept(j)))
        status = open_elastic(t);
    if (status == CHOIR_OK)
        status = choir__trainer_take_edits(t);
    if (status == CHOIR_OK) /* copies bring the class in which the job has computed so far */
        status = choir__job_keep_bits(&t->part, t->now.bits);
    if (status == CHOIR_OK && j->saves.record) /* the record states the class */
        choir__trainer_record_job(t);
    snprintf(t->now.bits, sizeof t->now.bits, "%s", t->part.bits);
    if (status == CHOIR_OK)
        choir__trainer_note_forgotten(t);
    if (status == CHOIR_OK)
        status = choir__trainer_audit_open(t, together);
    return status;
}

/* Closes everything except the report, which continues if this process does. */
static void take_down(choir__trainer *t)
{
    bool saves = t->saved != NULL, saved = choir_checkpoint_close(t->saved) == CHOIR_OK;
    choir_elastic_free(t->elastic);
    choir_trace_free(t->trace);
    choir__trainer_recheck_close(t);
    (void)!choir_audit_close(t->audit);
    choir__job_rank_close(&t->part);
    free(t->read);
    free(t->measured);
    free(t->all);
    free(t->job_text);
    *t = (choir__trainer){.job = t->job,
        .spike = t->spike,
        .skipped_first = t->skipped_first,
        .again = t->again,
        .report = t->report,
        .record = t->record,
        .reports = t->reports,
        .begins_again = !t->joined,
        .lost_save = t->lost_save || (saves && !saved)};
}

/* --- the loop --- */

/* A save that was due or under way when a rank was lost is due again on every rank, also on new
 * ones, which knew nothing of it. */
static choir_status agree_on_save(choir__trainer *t)
{
    int32_t due = t->now.save_due || t->lost_save;
    choir_status status =
        choir_group_all_reduce(t->part.env.group, &due, 1, CHOIR_I32, CHOIR_MAX, NULL);
    t->now.save_due = due > 0;
    t->now.saved = due > 0 ? 0 : t->now.saved;
    t->lost_save = false;
    return status;
}

/* The work after a step, which is repeated if a rank is lost on the way. */
static choir_status after_step(choir__trainer *t)
{
    if (t->now.spikes.found) {
        choir_status back = choir__trainer_go_back_before_spike(t);
        t->now.after = back != CHOIR_OK || t->now.eval_due;
        return back;
    }
    choir_status status = t->prepared ? CHOIR_OK : choir__trainer_prepare_saves(t);
    if (status == CHOIR_OK && t->elastic && !t->prepared)
        status = agree_on_save(t);
    t->prepared = status == CHOIR_OK; /* the optimizer has its state */
    if (status == CHOIR_OK)
        status = choir__trainer_audit(t);
    if (status == CHOIR_OK)
        status = choir__trainer_between_steps(t);
    choir__trainer_report_saved(t);
    choir__trainer_show_asked();
    if (status == CHOIR_OK && !choir__trainer_is_done(t) && choir__trainer_stop_asked(t))
        return choir__trainer_stop(t, t->now.last.loss);
    if (status == CHOIR_OK && t->save_due)
        status = choir__trainer_save_as_asked(t);
    t->save_due = false;
    t->now.after = status != CHOIR_OK;
    return status;
}

/* Returns whether nothing asks for the training's end, while it waits for samples. */
static bool may_wait(void *arg)
{
    return !choir__trainer_signal(NULL) && !choir__trainer_is_time_over(arg, 0);
}

/* Waits for the step's samples; *ended: the stream has no more whole steps, or is not waited
 * for any longer. */
static choir_status wait_for_stream(choir__trainer *t, bool *ended)
{
    bool whole = true;
    const choir__job *j = t->job;
    choir_status status = j->data.stream
                              ? choir_stream_wait_while(j->data.stream, t->part.env.rank,
                                    t->now.step, may_wait, t, &whole)
                              : CHOIR_OK;
    *ended = !whole;
    if (status != CHOIR_OK || whole || !may_wait(t))
        return status;
    if (!t->now.step)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "standard input ended after %lld tokens, fewer than a step of %lld samples needs",
            (long long)choir_stream_tokens(j->data.stream), (long long)j->training.batch_size);
    if (t->part.env.rank == 0) {
        char *note =
            choir__format("standard input ended after %lld tokens: step %lld of %lld is "
                          "the last one",
                (long long)choir_stream_tokens(j->data.stream), (long long)t->now.step,
                (long long)j->training.steps);
        choir__job_tell_notes(j, note);
        free(note);
    }
    return CHOIR_OK;
}

/* Runs steps at rates that rise, instead of training. All ranks have the losses. */
static choir_status find_rate(choir__trainer *t)
{
    choir__rate_test test;
    choir__done_step s = {0};
    bool ran, more = true;
    choir_status status = CHOIR_OK;
    choir_optim_schedule(t->part.optim, choir_schedule_constant());
    choir__rate_test_begin(&test, t->job);
    while (more && status == CHOIR_OK) {
        choir_optim_set_lr(t->part.optim, (float)choir__rate_test_next(&test));
        status = choir__trainer_stop_asked(t)
                     ? choir__error(CHOIR_ERR_INTERRUPTED, "interrupted after step %lld",
                           (long long)t->now.step)
                     : choir__trainer_run_step(t, &s, &ran);
        t->now.step += status == CHOIR_OK;
        more = status == CHOIR_OK && choir__rate_test_note(&test, s.none, (double)s.loss);
    }
    if (status == CHOIR_OK && t->part.env.rank == 0)
        status = choir__rate_test_report(&test, t->job);
    choir__rate_test_free(&test);
    return status;
}

/* A spike before the first checkpoint leads back to the beginning. */
static choir_status save_beginning(choir__trainer *t)
{
    bool needed = t->spike.factor > 0 && !t->now.step && !t->now.after;
    return needed ? choir__trainer_save_now_and_then(t, 0) : CHOIR_OK;
}

static choir_status train(choir__trainer *t)
{
    choir_status status = choir__job_rank_sync(&t->part);
    bool ended = false;
    if (t->job->training.find_lr && status == CHOIR_OK)
        return find_rate(t);
    if (status == CHOIR_OK)
        status = save_beginning(t);
    for (int64_t done = 0; status == CHOIR_OK && (t->now.after || !choir__trainer_is_done(t));
         done++) {
        choir__trainer_start_trace(t, done);
        double began = choir__now();
        if (!t->now.after)
            status = wait_for_stream(t, &ended);
        t->stream_s = t->job->data.stream ? choir__now() - began : 0;
        if (ended || status != CHOIR_OK || (!t->now.after && !choir__trainer_may_begin(t)))
            break;
        if (!t->now.after)
            status = choir__trainer_one_step(t);
        if (status == CHOIR_OK &&
            t->now.after) /* the rank that sent the state has done that already */
            status = after_step(t);
    }
    if (status == CHOIR_OK && ended && choir__trainer_stop_asked(t))
        return choir__trainer_stop(t, t->now.last.loss);
    if (status == CHOIR_OK)
        status = choir__trainer_meet(t);
    if (status == CHOIR_OK && t->stopping)
        return choir__trainer_stop(t, t->now.last.loss);
    t->report.without = t->now.without;
    t->report.counted = t->now.with + t->now.without;
    if (status == CHOIR_OK && t->job->placement.strategy->meet)
        status = choir__trainer_mean_of_ranks(t);
    return status == CHOIR_OK ? choir__trainer_finish(t, t->now.last.loss) : status;
}

/* Tells how --resume edits its run. */
static void tell_edit(choir__trainer *t)
{
    const choir__job *j = t->job;
    const choir__line_option *skip = CHOIR__JOB_OPTION(data.skip);
    const char *before = j->saves.resumed ? choir__job_recorded(&j->saves, skip->name) : NULL;
    bool skips = j->data.skip && !(before && !strcmp(before, j->data.skip));
    if (j->saves.resumed && (j->saves.rewound || skips))
        choir__trainer_show_edit(t,
            j->saves.rewound ? CHOIR__JOB_OPTION(saves.rewind)->name : skip->name,
            j->saves.rewound ? j->saves.rewound_from : -1, (double)NAN);
}

static void start_report(choir__trainer *t)
{
    choir__job_shared *shared = t->job->ranks.shared;
    choir__job_rank_start(&t->part);
    choir__job_slow_begin(&t->slow);
    if (t->reports)
        return;
    t->reports = true;
    choir__job_report_begin(&t->report,
        t->job->records.silent ? &choir__recorder_silent
        : t->job->records.json ? &choir__recorder_json
                               : &choir__recorder_terminal,
        t->job, t->now.step);
    t->report.outlived = t->elastic != NULL;
    if (t->part.env.rank != 0 || (shared && atomic_exchange(&shared->started, 1)))
        return;
    choir__trainer_tell(t, CHOIR__TO_OUT,
        CHOIR__TOLD(begin, .step = t->now.step, .strategy = t->job->placement.strategy_text,
            .world = choir__job_strategy_workers(&t->job->placement),
            .parameters = choir_module_param_count(t->part.net), .start_s = (double)NAN,
            .run_s = (double)NAN));
    tell_edit(t);
}

/* Trains on after each change of the ranks, until rank 0 has done everything. */
static choir_status train_elastic(choir__trainer *t)
{
    choir_status status = CHOIR_OK;
    for (bool again = true; again && status == CHOIR_OK;) {
        status = train(t);
        if (status == CHOIR_OK)
            status = choir__job_report_written(&t->job->records);
        if (status == CHOIR_OK)
            status = choir_elastic_end(t->elastic, &again);
        else
            status = choir_elastic_recover(t->elastic, status);
        if (again && status == CHOIR_OK)
            choir__trainer_note_change(t);
    }
    return status;
}

static choir_status run(choir__trainer *t)
{
    choir_status status = set_up(t);
    if (status != CHOIR_OK)
        return status;
    if (!t->job->placement.rehearsal)
        choir__trainer_catch_signals(&t->job->records);
    choir__trainer_note_newest(t);
    start_report(t);
    return t->elastic ? train_elastic(t) : train(t);
}

/* Trains until the job ends, also through losses that it survives. */
static choir_status run_on(choir__trainer *t)
{
    const choir__job *job = t->job;
    choir_status status = run(t);
    bool rebuilds = choir__job_strategy_recovery(job) != CHOIR__IN_PLACE;
    while (job->ranks.max_restarts && (rebuilds || !t->reports) && choir__is_loss(status)) {
        (void)choir_error_message(); /* marks the error as read: it may be one of a set-up */
        take_down(t);
        status = run(t);
    }
    /* A supervisor knows more about a lost peer, and records it. */
    if (status == CHOIR_ERR_PEER_LOST && job->records.recorded)
        choir__run_log_spoil(t->record);
    else if (status != CHOIR_OK)
        choir__run_log_failure(t->record, t->now.step, status);
    if (status != CHOIR_OK && t->part.run)
        choir__trainer_tell_program(t, NULL, "");
    return status;
}

/* The trainer and its job are too large for a small stack. */
choir_status choir__train_rank(const choir__job *job, int *by)
{
    choir__job *own = choir__alloc(sizeof *own);
    choir__trainer *t = choir__calloc(1, sizeof *t);
    *own = *job;
    own->data.skips = NULL;
    t->job = own;
    t->again = -1;
    t->skipped_first = job->data.skip;
    if (!choir__spike_rule_of(&job->training, &t->spike))
        t->spike.factor = 0;
    choir_status status = run_on(t);
    choir_device *device = t->part.env.device;
    int64_t micro_count = t->part.micro_count;
    *by = t->by;
    take_down(t);
    choir__job_report_free(&t->report);
    choir__run_log_close(t->record);
    free(own->data.skips);
    free(own);
    free(t);
    if (status == CHOIR_ERR_MEMORY && device && !job->placement.rehearsal &&
        choir__job_strategy_is_whole(&job->placement) && job->training.chunks < 2)
        status = choir__explain_memory(job, device, micro_count);
    return status;
}
