/* One step of training, its loss over all ranks, and the trace of steps. */
#include "job/trainer/inside.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "job/model/amp.h"
#include "job/trainer/debug_nan.h"
#include "base/base.h"

enum { LONG_RUN = 8, WARM_UP = 3 }; /* steps of the trace */

/* Forward and backward of one turn's micro-batches, and the optimizer's step. */
static choir_status run_turn(choir__trainer *t, choir_scope *step, int64_t turn)
{
    choir_status status = choir__job_rank_turn(&t->part, turn);
    if (status == CHOIR_OK)
        status = choir__trainer_rechecks(t) ? choir__trainer_recheck(t, step)
                                            : t->job->placement.strategy->step(step, &t->part);
    if (status == CHOIR_OK && t->all)
        status = choir_env_share_losses(&t->part.dealt, t->part.losses, t->all);
    return status == CHOIR_OK ? choir__amp_step(&t->part) : status;
}

static choir_status step_body(choir_scope *step, void *arg)
{
    choir__trainer *t = arg;
    choir_status status = CHOIR_OK;
    if (t->stays) /* the ranks may have changed since the step began */
        choir__job_rank_changed(&t->part);
    int64_t turns = choir__job_rank_turns(&t->part);
    for (int64_t i = 0; i < turns && status == CHOIR_OK; i++)
        status = run_turn(t, step, i);
    return status;
}

/* Stores whether a target of a turn counts; where ranks step together, all find the same. */
static choir_status has_loss(const choir__trainer *t, int64_t turn, bool *has)
{
    double counted = 1;
    choir_status status = CHOIR_OK;
    if (t->part.counted && t->part.counted[turn])
        status = choir_read(t->part.counted[turn], &counted, sizeof counted);
    *has = counted > 0;
    return status;
}

static int64_t workers_here(const choir__trainer *t)
{
    return t->part.micro_count / t->part.each;
}

/* Reads the losses of a turn that had a target. Each tensor has the loss of one micro-batch; in
 * a step of one turn it may have the losses of several. */
static choir_status read_turn(choir__trainer *t, int64_t turn)
{
    const choir__job_rank *p = &t->part;
    bool has;
    int64_t first = p->loss_count * turn / p->turns,
            end = p->loss_count * (turn + 1) / p->turns;
    int64_t each = workers_here(t) / p->turns; /* all of them in one turn, or one */
    float *at = t->read + first;
    choir_status status = has_loss(t, turn, &has);
    t->lacking += has ? 0 : each;
    for (int64_t w = turn * each; w < (turn + 1) * each; w++)
        t->measured[w] |= has;
    for (int64_t i = first; i < end && has && status == CHOIR_OK; i++) {
        int64_t count = choir_tensor_count(p->losses[i]);
        status = choir_read(p->losses[i], at, (size_t)count * sizeof *at);
        at += count;
    }
    return status;
}

/* The losses of a step without a target are left where they are: those that the host has read
 * stay the last ones that were measured. */
static choir_status gather_loss(choir__trainer *t, float *loss, bool *none)
{
    bool has;
    choir_status status = has_loss(t, 0, &has);
    *none = !has;
    t->lacking = 0;
    if (status == CHOIR_OK && has && t->all) /* the step has exchanged them */
        return choir_env_mean(
            &(choir_env){.world = 1, .microbatches = t->job->training.microbatches}, t->all,
            loss);
    for (int64_t turn = 0; turn < t->part.turns && status == CHOIR_OK; turn++)
        status = read_turn(t, turn);
    if (status == CHOIR_OK)
        status = choir__job_rank_sync(&t->part);
    if (status != CHOIR_OK || !has)
        return status;
    if (t->job->placement.strategy->meet) /* the first worker's; waits for no other rank */
        return choir_env_mean(
            &(choir_env){.world = 1, .microbatches = t->part.each}, t->read, loss);
    return choir__job_rank_mean(&t->part, t->read, loss);
}

choir_status choir__trainer_note_scale(choir__trainer *t)
{
    choir_scaler_state s;
    choir_status status = choir_scaler_get(t->part.scaler, &s);
    t->report.scale = (double)s.scale;
    t->report.skipped = s.skipped[0];
    return status;
}

choir_status choir__trainer_run_step(choir__trainer *t, choir__done_step *s, bool *ran)
{
    *ran = true;
    if (choir__trainer_rechecks(t))
        choir_run_forget(t->part.run); /* the host compares, so the step is not recorded */
    if (!t->elastic) {
        choir_status status = choir_step(t->part.run, step_body, t);
        return status == CHOIR_OK ? gather_loss(t, &s->loss, &s->none) : status;
    }
    uint64_t generation = t->part.env.generation;
    choir_status status = choir_elastic_step(t->elastic, step_body, t);
    if (t->stays && t->part.env.generation != generation)
        choir__trainer_note_change(t);
    *ran = t->now.step < (int64_t)choir_run_next(t->part.run);
    return status == CHOIR_OK && *ran ? gather_loss(t, &s->loss, &s->none) : status;
}

static void trace_step(choir__trainer *t, double start, double seconds)
{
    char name[32];
    snprintf(name, sizeof name, "step %lld", (long long)t->now.step);
    choir_trace_span(t->trace, name, start, start + seconds);
}

/* Adds the step to its epoch. */
static void note_epoch(choir__trainer *t)
{
    int64_t steps = choir__job_epoch_steps(t->job);
    const choir__done_step *s = &t->now.last;
    t->now.epoch_loss += s->none ? 0 : (double)s->loss;
    t->now.epoch_without += s->none;
    t->now.without += t->lacking;
    t->now.with += workers_here(t) - t->lacking;
    if (t->now.step % steps)
        return;
    t->now.epoch_mean = t->now.epoch_loss / (double)(steps - t->now.epoch_without);
    t->now.epoch_loss = 0;
    t->now.epoch_without = 0;
}

choir_status choir__trainer_mean_of_ranks(choir__trainer *t)
{
    enum { WITH_LOSS, WITHOUT, COUNTED, WORKERS };
    int64_t sums[] = {[WITHOUT] = t->now.without,
        [COUNTED] = t->now.with + t->now.without,
        [WORKERS] = workers_here(t)};
    for (int64_t m = 0; m < t->part.micro_count; m++) {
        bool measured = t->measured[m / t->part.each];
        sums[WITH_LOSS] += measured && m % t->part.each == 0;
        t->read[m] = measured ? t->read[m] : 0;
    }
    choir_status status = choir_group_all_reduce(
        t->part.env.group, sums, CHOIR_COUNT(sums), CHOIR_I64, CHOIR_SUM, NULL);
    if (status == CHOIR_OK)
        status = choir_env_mean(&t->part.env, t->read, &t->now.last.loss);
    if (sums[WITH_LOSS] < sums[WORKERS]) /* a mean over all workers keeps its bits */
        t->now.last.loss *= (float)sums[WORKERS] / (float)sums[WITH_LOSS]; /* NaN: no losses */
    t->report.without = sums[WITHOUT];
    t->report.counted = sums[COUNTED];
    return status;
}

/* Names kernels of the first step that have no fast form for the job's dtypes. */
static void say_slow_kernels(const choir__job *job)
{
    char list[256];
    if (!choir_slow_kernels(list, sizeof list))
        return;
    char *note = choir__format(
        "this processor has no fast kernel for %s: the slow reference computes; choir info "
        "--kernels lists the others",
        list);
    choir__job_tell_notes(job, note);
    free(note);
}

/* Looks whether the step is a spike. A loss scaler decides itself about a step that is not
 * finite. */
static void judge_spike(choir__trainer *t, bool measured)
{
    const choir__done_step *s = &t->now.last;
    float norm = measured ? (float)s->grad_norm : 0;
    if (!s->none && !(t->part.scaler && !(isfinite(s->loss) && isfinite(norm))))
        choir__spike_note(&t->now.spikes, &t->spike, s->loss, norm);
}

choir_status choir__trainer_one_step(choir__trainer *t)
{
    choir__eval_policy_set_rate(&t->now.judge, t->part.optim);
    double start = choir__now(), waited = choir_loader_waited(t->part.loader);
    choir__done_step s = {.loss = t->now.last.loss,
        .lr = (double)choir_optim_lr(t->part.optim),
        .grad_norm = (double)NAN};
    bool ran;
    choir_status status = choir__trainer_run_step(t, &s, &ran);
    if (t->job->training.debug_nan) {
        choir_run_forget(t->part.run); /* hooks read on the host, so no step may be recorded */
        choir_status found = choir__nan_found(&t->watch, t->now.step + 1);
        status = found == CHOIR_OK ? status : found;
    }
    s.seconds = choir__now() - start + t->stream_s;
    s.data_s = choir_loader_waited(t->part.loader) - waited + t->stream_s;
    t->stream_s = 0;
    if (status != CHOIR_OK)
        return status;
    t->made = ran;
    if (ran) {
        s.number = ++t->now.step;
        t->now.last = s;
        t->now.after = true;
    }
    if (t->trace)
        trace_step(t, start, s.seconds);
    if (t->part.scaler && (status = choir__trainer_note_scale(t)) != CHOIR_OK)
        return status;
    if (ran && !s.none && !isfinite(s.loss) && !(t->spike.factor > 0) &&
        !t->part.scaler) /* a loss scaler decides about such steps itself */
        return choir__error(CHOIR_ERR_NONFINITE,
            "the loss is %g at step %lld; a lower --lr, a warm-up or --clip may help%s",
            fabs((double)t->now.last.loss), (long long)t->now.step,
            t->job->training.debug_nan ? "; what modules and their gradients gave was finite"
                                       : "");
    choir_tensor *norm = choir_optim_grad_norm(t->part.optim);
    if (ran && norm && (t->part.env.rank == 0 || t->elastic || t->spike.factor > 0))
        t->now.last.grad_norm = choir_item(norm);
    if (ran && t->spike.factor > 0)
        judge_spike(t, norm != NULL);
    choir__job_report_note(&t->report, s.seconds);
    if (t->report.steps == 1 && t->part.env.rank == 0)
        say_slow_kernels(t->job);
    choir__job_slow_note(&t->slow);
    choir__trainer_report_change(t);
    if (ran)
        note_epoch(t);
    choir__trainer_show_step(t);
    return CHOIR_OK;
}

/* --- the trace --- */

void choir__trainer_start_trace(choir__trainer *t, int64_t done)
{
    int64_t skip = t->job->training.steps - t->now.step + done > LONG_RUN ? WARM_UP : 0;
    if (!t->job->records.trace || done != skip)
        return;
    t->traced_before = done;
    t->trace = choir_trace_new(0);
    for (int i = 0; i < t->part.device_count; i++)
        choir_trace_device(t->trace, t->part.devices[i]);
    choir_trace_group(t->trace, t->part.env.group);
}

choir_status choir__trainer_end_trace(choir__trainer *t, int64_t steps)
{
    char path[PATH_MAX];
    if (!t->trace)
        return CHOIR_OK;
    int rank = t->part.env.rank;
    snprintf(path, sizeof path, rank ? "%s.%d" : "%s", t->job->records.trace, rank);
    choir_trace_stop(t->trace);
    choir_status status = choir_trace_write(t->trace, path, rank);
    if (rank == 0 && status == CHOIR_OK)
        choir__trainer_show_profile(t, steps, choir_trace_matmul_rate(t->part.env.device));
    choir_trace_free(t->trace);
    t->trace = NULL;
    return status;
}
