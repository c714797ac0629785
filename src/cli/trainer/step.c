/* One step of training, its loss over all ranks, and the trace of steps. */
#include "cli/trainer/inside.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/amp.h"
#include "cli/debug_nan.h"
#include "base/base.h"

enum { LONG_RUN = 8, WARM_UP = 3 }; /* steps: of the trace */

static choir_status step_body(choir_scope *step, void *arg)
{
    choir__trainer *t = arg;
    if (t->stays) /* the ranks may have changed since the step began */
        choir__cli_part_changed(&t->part);
    choir_status status = t->job->strategy->step(step, &t->part);
    if (status == CHOIR_OK && t->all)
        status = choir_env_share_losses(&t->part.dealt, t->part.losses, t->all);
    return status == CHOIR_OK ? choir__amp_step(&t->part) : status;
}

static choir_status gather_loss(choir__trainer *t, float *loss)
{
    choir_status status = CHOIR_OK;
    float *at = t->read;
    if (t->all) /* the step has exchanged them */
        return choir_env_mean(
            &(choir_env){.world = 1, .microbatches = t->job->microbatches}, t->all, loss);
    for (int64_t i = 0; i < t->part.loss_count && status == CHOIR_OK; i++) {
        int64_t count = choir_tensor_count(t->part.losses[i]);
        status = choir_read(t->part.losses[i], at, (size_t)count * sizeof *at);
        at += count;
    }
    if (status == CHOIR_OK)
        status = choir__cli_part_sync(&t->part);
    if (status != CHOIR_OK)
        return status;
    if (t->job->strategy->meet) /* waits for no other rank */
        return choir_env_mean(
            &(choir_env){.world = 1, .microbatches = t->part.micro_count}, t->read, loss);
    return choir__cli_part_mean(&t->part, t->read, loss);
}

static choir_status note_scale(choir__trainer *t)
{
    choir_scaler_state s;
    choir_status status = choir_scaler_get(t->part.scaler, &s);
    t->report.scale = (double)s.scale;
    t->report.skipped = s.skipped[0];
    return status;
}

choir_status choir__trainer_run_step(choir__trainer *t, float *loss, bool *ran)
{
    *ran = true;
    if (!t->elastic) {
        choir_status status = choir_step(t->part.run, step_body, t);
        return status == CHOIR_OK ? gather_loss(t, loss) : status;
    }
    uint64_t generation = t->part.env.generation;
    choir_status status = choir_elastic_step(t->elastic, step_body, t);
    if (t->stays && t->part.env.generation != generation)
        choir__trainer_note_change(t);
    *ran = t->now.step < (int64_t)choir_run_next(t->part.run);
    return status == CHOIR_OK && *ran ? gather_loss(t, loss) : status;
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
    t->now.epoch_loss += (double)t->now.last.loss;
    if (t->now.step % steps)
        return;
    t->now.epoch_mean = t->now.epoch_loss / (double)steps;
    t->now.epoch_loss = 0;
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
    choir__cli_notes(job->command, note);
    free(note);
}

choir_status choir__trainer_one_step(choir__trainer *t)
{
    choir__judge_set_rate(&t->now.judge, t->part.optim);
    double start = choir__now(), lr = (double)choir_optim_lr(t->part.optim);
    float loss = 0;
    bool ran;
    choir_status status = choir__trainer_run_step(t, &loss, &ran);
    if (t->job->debug_nan) {
        choir_run_forget(t->part.run); /* hooks read on the host, so no step may be recorded */
        choir_status found = choir__nan_found(&t->watch, t->now.step + 1);
        status = found == CHOIR_OK ? status : found;
    }
    double seconds = choir__now() - start;
    if (status != CHOIR_OK)
        return status;
    if (ran) {
        t->now.last = (choir__cli_step){++t->now.step, loss, seconds, lr, (double)NAN};
        t->now.after = true;
    }
    if (t->trace)
        trace_step(t, start, seconds);
    if (t->part.scaler && (status = note_scale(t)) != CHOIR_OK)
        return status;
    if (!isfinite(t->now.last.loss) && !t->part.scaler) /* else the scaler may give up */
        return choir__error(CHOIR_ERR_NONFINITE,
            "the loss is %g at step %lld; a lower --lr, a warm-up or --clip may help%s",
            fabs((double)t->now.last.loss), (long long)t->now.step,
            t->job->debug_nan ? "; what modules and their gradients gave was finite" : "");
    choir_tensor *norm = choir_optim_grad_norm(t->part.optim);
    if (ran && norm && (t->part.env.rank == 0 || t->elastic))
        t->now.last.grad_norm = choir_item(norm);
    choir__cli_report_note(&t->report, seconds);
    if (t->report.steps == 1 && t->part.env.rank == 0)
        say_slow_kernels(t->job);
    choir__cli_slow_note(&t->slow);
    choir__trainer_report_change(t);
    if (ran)
        note_epoch(t);
    choir__trainer_show_step(t);
    return CHOIR_OK;
}

/* --- the trace --- */

void choir__trainer_start_trace(choir__trainer *t, int64_t done)
{
    int64_t skip = t->job->steps - t->now.step + done > LONG_RUN ? WARM_UP : 0;
    if (!t->job->trace || done != skip)
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
    snprintf(path, sizeof path, rank ? "%s.%d" : "%s", t->job->trace, rank);
    choir_trace_stop(t->trace);
    choir_status status = choir_trace_write(t->trace, path, rank);
    if (rank == 0 && status == CHOIR_OK)
        choir__cli_report_profile(
            &t->report, t->trace, steps, choir_trace_matmul_rate(t->part.env.device));
    choir_trace_free(t->trace);
    t->trace = NULL;
    return status;
}
