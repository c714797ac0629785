/* One rank's training loop.
 *
 * A step is a function handed to choir_step, which records it and replays it; between steps the
 * host reads the micro-batches' losses, gathers those of the other ranks, reports, evaluates
 * and saves. */
#include "cli/trainer.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/amp.h"
#include "cli/part.h"

enum { SAMPLE_TOKENS = 300, LONG_RUN = 8, WARM_UP = 3 };

typedef struct trainer {
    const choir__job *job;
    choir__cli_part part; /* devices, model, data, for the strategy */
    float *read;          /* losses of this rank's micro-batches, on the host */
    int64_t step;         /* done */
    double best, last_eval;
    choir__cli_report report;
    choir_checkpoint *saved; /* NULL: nothing was saved yet */
    bool stopping;           /* one of the ranks that met was asked to stop */
    bool eval_due, save_due; /* since the ranks met last */
    choir_trace *trace;      /* NULL without --trace */
    int64_t traced_before;   /* steps of this process before the trace began */
} trainer;

static volatile sig_atomic_t interrupted;

/* A second signal stops at once. A signal within one second counts as the first one again: a
 * signal to the whole process group reaches a rank directly and through the supervisor. */
static void on_signal(int signal)
{
    static double first;
    double now = choir__now();
    (void)signal;
    if (interrupted && now - first > 1)
        _exit(130);
    if (!interrupted)
        first = now;
    interrupted = 1;
}

/* Called when the first step is due. Until then nothing is lost if a signal ends the process,
 * and a rank that waits for others must not outlive it. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* --- a step --- */

static choir_status step_body(choir_scope *step, void *arg)
{
    trainer *t = arg;
    choir_status status = t->job->strategy->step(step, &t->part);
    return status == CHOIR_OK ? choir__amp_step(&t->part) : status;
}

static choir_status gather_loss(trainer *t, float *loss)
{
    choir_status status = CHOIR_OK;
    float *at = t->read;
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

static choir_status note_scale(trainer *t)
{
    choir_scaler_state s;
    choir_status status = choir_scaler_get(t->part.scaler, &s);
    t->report.scale = (double)s.scale;
    t->report.skipped = s.skipped[0];
    return status;
}

static choir_status one_step(trainer *t, float *loss)
{
    double start = choir__now(), lr = (double)choir_optim_lr(t->part.optim);
    choir_status status = choir_step(t->part.run, step_body, t);
    if (status == CHOIR_OK)
        status = gather_loss(t, loss);
    double seconds = choir__now() - start;
    if (status != CHOIR_OK)
        return status;
    t->step++;
    if (t->trace) {
        char name[32];
        snprintf(name, sizeof name, "step %lld", (long long)t->step);
        choir_trace_span(t->trace, name, start, start + seconds);
    }
    if (t->part.scaler && (status = note_scale(t)) != CHOIR_OK)
        return status;
    if (!isfinite(*loss) && !t->part.scaler) /* else the scaler decides when to give up */
        return choir__error(CHOIR_ERR_NONFINITE,
            "the loss is %g at step %lld; a lower --lr, a warm-up or --clip may help",
            fabs((double)*loss), (long long)t->step);
    if (t->part.env.rank == 0) {
        choir_tensor *norm = choir_optim_grad_norm(t->part.optim);
        choir__cli_report_step(
            &t->report, &(choir__cli_step){.number = t->step,
                            .loss = *loss,
                            .seconds = seconds,
                            .lr = lr,
                            .grad_norm = norm ? choir_item(norm) : (double)NAN});
    }
    return CHOIR_OK;
}

/* --- the trace --- */

/* Leaves out the first steps of a long run, which make objects that later steps reuse. */
static void start_trace(trainer *t, int64_t done)
{
    int64_t skip = t->job->steps - t->step + done > LONG_RUN ? WARM_UP : 0;
    if (!t->job->trace || done != skip)
        return;
    t->traced_before = done;
    t->trace = choir_trace_new(0);
    for (int i = 0; i < t->part.device_count; i++)
        choir_trace_device(t->trace, t->part.devices[i]);
    choir_trace_group(t->trace, t->part.env.group);
}

/* Writes it before validation, which is not training. */
static choir_status end_trace(trainer *t, int64_t steps)
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

/* --- validation and checkpoints --- */

static choir_status evaluate(trainer *t, int64_t batches, choir_score *score)
{
    choir_eval_opts opts = {.batch_size = t->job->batch_size / t->job->microbatches,
        .max_batches = batches,
        .workers = (int)t->job->workers,
        .group = t->part.dealt.group};
    return choir_evaluate(
        t->part.run, t->part.evaluated, &t->job->info, t->job->validation, opts, score);
}

/* Ranks that step by themselves have their own optimizers; only the first rank's is saved. */
static choir_group *savers(const trainer *t)
{
    return t->job->strategy->meet ? NULL : t->part.env.group;
}

static void report_saved(trainer *t)
{
    int64_t step;
    if (t->saved && t->part.env.rank == 0 && choir_checkpoint_saved(t->saved, &step))
        choir__cli_report_saved(&t->report, step, t->job->save);
}

static choir_training parts_of(const trainer *t)
{
    return (choir_training){.module = t->part.net,
        .optim = t->part.optim,
        .scaler = t->part.scaler,
        .loader = t->part.loader,
        .info = &t->job->info,
        .tokenizer = t->job->tokenizer,
        .classes = &t->job->classes,
        .job = t->job->record};
}

static choir_status open_checkpoint(trainer *t)
{
    choir_checkpoint_opts opts = choir_checkpoint_defaults();
    opts.group = savers(t);
    opts.async = true;
    return t->saved ? CHOIR_OK : choir_checkpoint_open(t->job->save, opts, &t->saved);
}

/* Prepares memory for saves during training, which begin later. */
static choir_status prepare_saves(trainer *t)
{
    const choir__job *j = t->job;
    if (!j->save || !(j->save_every || j->eval_every) ||
        (j->strategy->meet && t->part.env.rank != 0))
        return CHOIR_OK;
    choir_training parts = parts_of(t);
    choir_status status = open_checkpoint(t);
    return status == CHOIR_OK ? choir_checkpoint_prepare(t->saved, parts.module, parts.optim)
                              : status;
}

/* Saves, with the flags of choir_training_save. Unless specified otherwise, training continues
 * during the write, and an error is reported when the next checkpoint is saved. */
static choir_status save(trainer *t, float loss, unsigned flags)
{
    const choir__job *j = t->job;
    if (!j->save || (j->strategy->meet && t->part.env.rank != 0))
        return CHOIR_OK;
    choir_training parts = parts_of(t);
    choir_train_state s = {.step = t->step,
        .loss = (double)loss,
        .eval_loss = t->last_eval,
        .best_loss = t->best,
        .world = choir__cli_strategy_workers(j)};
    snprintf(s.optimizer, sizeof s.optimizer, "%s", j->optimizer);
    snprintf(s.strategy, sizeof s.strategy, "%s", j->strategy_text);
    snprintf(s.amp, sizeof s.amp, "%s", choir__amp_find(j->amp)->name);
    choir_status status = open_checkpoint(t);
    if (status == CHOIR_OK)
        status = choir_checkpoint_wait(t->saved);
    report_saved(t);
    if (status == CHOIR_OK)
        status = choir_training_save(t->saved, &parts, &s, flags);
    report_saved(t);
    return status;
}

/* Makes ranks that step by themselves wait for each other. If one of them was asked to stop,
 * all stop. Does nothing for ranks that step together. */
static choir_status meet(trainer *t)
{
    int32_t asked = interrupted;
    if (!t->job->strategy->meet || t->stopping)
        return CHOIR_OK;
    choir_status status =
        choir_group_all_reduce(t->part.env.group, &asked, 1, CHOIR_I32, CHOIR_MAX, NULL);
    t->stopping = asked;
    return status == CHOIR_OK ? t->job->strategy->meet(&t->part) : status;
}

static bool is_due(int64_t step, int64_t every)
{
    return every && step % every == 0;
}

/* Returns true between the points at which the strategy synchronises the ranks on its own
 * schedule. The weights of a rank are then not the job's model. */
static bool apart(const trainer *t)
{
    return t->job->strategy->together && !t->job->strategy->together(&t->part);
}

/* Runs validation and saves a checkpoint if they are due. */
static choir_status between_steps(trainer *t, float loss)
{
    const choir__job *j = t->job;
    bool last = t->step == j->steps, best = false;
    choir_status status = CHOIR_OK;
    t->eval_due |= is_due(t->step, j->eval_every);
    t->save_due |= is_due(t->step, j->save_every);
    if (last || apart(t) || !(t->eval_due || t->save_due))
        return CHOIR_OK;
    status = meet(t);
    if (status != CHOIR_OK || t->stopping)
        return status;
    if (t->eval_due) {
        choir_score score;
        status = evaluate(t, j->eval_batches, &score);
        t->last_eval = score.loss;
        best = !(score.loss >= t->best);
        t->best = best ? score.loss : t->best;
        if (status == CHOIR_OK && t->part.env.rank == 0)
            choir__cli_report_eval(&t->report, t->step, &score, best);
    }
    if (status == CHOIR_OK && (t->save_due || best))
        status = save(t, loss, best ? CHOIR_SAVE_BEST : 0);
    t->eval_due = t->save_due = false;
    return status;
}

static choir_status resume(trainer *t)
{
    choir_training parts = parts_of(t);
    choir_train_state s;
    choir_status status = choir_training_resume(t->job->resume, &parts, t->part.env.group, &s);
    if (status != CHOIR_OK)
        return status;
    t->step = s.step;
    t->best = s.best_loss;
    t->last_eval = s.eval_loss;
    if (status == CHOIR_OK && t->job->strategy->resumed)
        status = t->job->strategy->resumed(&t->part);
    return status;
}

/* --- the whole job --- */

static choir_status build(trainer *t)
{
    choir_status status = choir__cli_part_build(&t->part);
    t->read = choir__calloc((size_t)t->part.micro_count + 1, sizeof(float));
    t->best = t->last_eval = (double)NAN;
    return status == CHOIR_OK && t->job->resume ? resume(t) : status;
}

static choir_status sample(trainer *t)
{
    if (t->job->info.task != CHOIR_LANGUAGE || t->job->info.masked || !t->job->tokenizer ||
        t->job->json || t->job->quiet || t->part.env.rank != 0)
        return CHOIR_OK;
    printf("\nWhat it writes:\n");
    if (choir_module_collective(t->part.evaluated) || /* all ranks would have to */
        (t->part.env.world > 1 && !choir__cli_strategy_is_whole(t->job))) {
        printf(
            "  no rank has the whole model here: choir generate tells, from what --save kept\n");
        return CHOIR_OK;
    }
    choir_status status = choir__generate(t->part.run, t->part.evaluated, &t->job->info,
        t->job->tokenizer, NULL, 0, SAMPLE_TOKENS, 0.8, 40);
    printf("\n");
    return status;
}

static choir_status finish(trainer *t, float loss)
{
    choir_score score = {.loss = (double)NAN, .accuracy = (double)NAN};
    char sha[65];
    int device_count;
    choir__device_figures *figures;
    choir_status status = choir__cli_part_figures(&t->part, &figures, &device_count);
    if (status == CHOIR_OK)
        status = end_trace(t, t->report.steps - t->traced_before);
    choir_run_forget(t->part.run); /* its memory is more than validation needs */
    if (status == CHOIR_OK && !t->job->no_eval)
        status = evaluate(t, 0, &score);
    bool best = status == CHOIR_OK && !t->job->no_eval && !(score.loss >= t->best);
    t->last_eval = t->job->no_eval ? t->last_eval : score.loss;
    t->best = best ? score.loss : t->best;
    if (status == CHOIR_OK)
        status = save(t, loss, CHOIR_SAVE_NOW | (best ? CHOIR_SAVE_BEST : 0));
    if (status == CHOIR_OK && (savers(t) || t->part.env.rank == 0))
        status = choir_weights_sha256(t->part.net, savers(t), sha);
    if (status == CHOIR_OK && t->part.env.rank == 0)
        choir__cli_report_summary(&t->report, choir_module_param_count(t->part.net), loss,
            &score, sha, figures, device_count);
    free(figures);
    return status == CHOIR_OK ? sample(t) : status;
}

/* Returns whether any rank was interrupted. All ranks stop after the same step, so that the
 * saved state is complete. */
static bool stop_asked(trainer *t)
{
    const choir__cli_strategy *s = t->job->strategy;
    int32_t asked = interrupted || t->stopping;
    if (apart(t))
        return false;
    if (t->part.env.world > 1 && (!s->meet || s->together))
        (void)!choir_group_all_reduce(t->part.env.group, &asked, 1, CHOIR_I32, CHOIR_MAX, NULL);
    return asked;
}

static choir_status stop(trainer *t, float loss)
{
    choir_status status = meet(t);
    if (status == CHOIR_OK)
        status = save(t, loss, CHOIR_SAVE_NOW);
    if (status == CHOIR_OK)
        status = choir_group_barrier(
            t->part.env.group, NULL); /* no rank leaves while rank 0 still writes */
    if (status != CHOIR_OK)
        return status;
    return choir__error(CHOIR_ERR_INTERRUPTED, "interrupted after step %lld; %s%s",
        (long long)t->step, t->job->save ? "saved to " : "nothing is saved without --save",
        t->job->save ? t->job->save : "");
}

static choir_status train(trainer *t)
{
    choir_status status = choir__cli_part_sync(&t->part);
    float loss = 0;
    choir__cli_part_start(&t->part);
    if (t->part.env.rank == 0)
        choir__cli_report_start(
            &t->report, t->job, t->step, choir_module_param_count(t->part.net));
    for (int64_t done = 0; status == CHOIR_OK && t->step < t->job->steps; done++) {
        start_trace(t, done);
        status = one_step(t, &loss);
        if (status == CHOIR_OK && !done) /* now the optimizer has its state */
            status = prepare_saves(t);
        if (status == CHOIR_OK)
            status = between_steps(t, loss);
        report_saved(t);
        if (status == CHOIR_OK && t->step < t->job->steps && stop_asked(t))
            return stop(t, loss);
    }
    if (status == CHOIR_OK)
        status = meet(t);
    if (status == CHOIR_OK && t->stopping)
        return stop(t, loss);
    if (status == CHOIR_OK && t->job->strategy->meet) /* of all ranks' last steps */
        status = choir_env_mean(&t->part.env, t->read, &loss);
    return status == CHOIR_OK ? finish(t, loss) : status;
}

choir_status choir__train_rank(const choir__job *job)
{
    trainer t = {.job = job};
    choir_status status = choir__cli_part_open(&t.part, job, choir__job_agree);
    if (status == CHOIR_OK)
        status = build(&t);
    if (status == CHOIR_OK) {
        catch_signals();
        status = train(&t);
    }
    choir_device *device = t.part.env.device;
    int64_t micro_count = t.part.micro_count;
    (void)!choir_checkpoint_close(t.saved);
    choir_trace_free(t.trace);
    choir__cli_report_free(&t.report);
    choir__cli_part_close(&t.part);
    free(t.read);
    if (status == CHOIR_ERR_MEMORY && device && choir__cli_strategy_is_whole(job))
        status = choir__explain_memory(job, device, micro_count);
    return status;
}
