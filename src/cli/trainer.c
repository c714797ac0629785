/* One rank's training loop.
 *
 * A step is a function handed to choir_step, which records it and replays it; between steps the
 * host reads the micro-batches' losses, gathers those of the other ranks, reports, evaluates
 * and saves.
 *
 * With --max-restarts the step runs within choir_elastic_step. Ranks whose objects outlive a
 * loss (ddp) exchange their losses in the step, so that every rank that has finished it has all
 * of them. What comes between two steps may be cut short by the loss of a rank; it is then
 * repeated (`after`). Under the other strategies a loss ends everything, and choir__train_rank
 * sets it up again: the step before, and what came after it, are repeated, but not shown. */
#include "cli/trainer.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/say.h"
#include "cli/amp.h"
#include "cli/debug_nan.h"
#include "cli/find_lr.h"
#include "cli/judge.h"
#include "cli/part.h"
#include "cli/record.h"
#include "cli/slow.h"
#include "cli/self.h"

enum { SAMPLE_TOKENS = 300, LONG_RUN = 8, WARM_UP = 3 };

/* How far the training is, as far as its objects do not say. With --max-restarts all ranks have
 * the furthest one's after each change of the ranks. */
typedef struct progress {
    int64_t step;         /* done */
    choir__cli_step last; /* that step, as it is reported */
    double last_eval;
    choir__judge judge;
    double epoch_loss;       /* the sum of the losses of the epoch's steps */
    bool ended;              /* before the last step, by --patience or --max-time */
    bool after;              /* the work after that step is not done yet */
    bool eval_due, save_due; /* since the ranks met last */
    bool best_due;           /* the last validation was the best: it is to be saved */
} progress;

typedef struct trainer {
    const choir__job *job;
    choir__cli_part part; /* devices, model, data, for the strategy */
    progress now;
    float *read;            /* losses of this rank's micro-batches, on the host */
    bool joined;            /* this process was started while the others trained */
    bool begins_again;      /* a rank was lost, so that this process sets itself up again */
    bool reports;           /* the report has begun */
    bool lost_save;         /* a save was under way then */
    choir_elastic *elastic; /* NULL: a lost rank ends the job */
    /* (microbatches) losses of the whole job, if this process's objects outlive a loss; else
     * NULL */
    float *all;
    choir__cli_report report;
    choir__cli_record *record; /* rank 0's, once there is something to record; else NULL */
    choir__cli_slow slow;      /* the rank for which the others wait */
    choir_checkpoint *saved;   /* NULL: nothing was saved yet */
    bool prepared;             /* for saves during training */
    bool stopping;             /* one of the ranks that met was asked to stop */
    int by;                 /* the signal that did it, also where ranks do not meet; 0: none */
    choir__nan_watch watch; /* of --debug-nan */
    choir_trace *trace;     /* NULL without --trace */
    int64_t traced_before;  /* steps of this process before the trace began */
} trainer;

/* Returns whether no further step follows. */
static bool is_done(const trainer *t)
{
    return t->now.step >= t->job->steps || t->now.ended;
}

static volatile sig_atomic_t interrupted; /* the signal */

/* A second signal stops at once. A signal within one second counts as the first one again: a
 * signal to the whole process group reaches a rank directly and through the supervisor. */
static void on_signal(int signal)
{
    static double first;
    double now = choir__now();
    if (interrupted && now - first > 1)
        _exit(128 + signal);
    if (!interrupted)
        first = now;
    interrupted = signal;
}

/* Called when the first step is due. Until then nothing is lost if a signal ends the process,
 * and a rank that waits for others must not outlive it. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

/* --- ranks that are lost or new: choir/elastic.h --- */

/* Returns the job's record, or NULL. A process that becomes rank 0 goes on with it. */
static choir__cli_record *record_of(trainer *t)
{
    choir__job_shared *shared = t->job->shared;
    int64_t shown = shared ? atomic_load(&shared->stepped) : 0;
    if (t->part.env.rank != 0)
        return NULL;
    if (!t->record)
        t->record = choir__cli_record_open(t->job, shown ? shown : t->report.first,
            shown || t->job->resume || choir__job_is_started_again(t->job));
    return t->record;
}

/* Shows and records the last step, unless a rank 0 that was lost later has. */
static void show_step(trainer *t)
{
    choir__job_shared *shared = t->job->shared;
    if (t->part.env.rank != 0 ||
        (shared && t->now.last.number <= atomic_load(&shared->stepped)))
        return;
    choir__cli_report_step(&t->report, &t->now.last);
    choir__cli_record_step(record_of(t), &t->now.last, &t->part, t->report.scale);
    if (shared)
        atomic_store(&shared->stepped, t->now.last.number);
}

static void show_eval(trainer *t, const choir_score *score)
{
    choir__job_shared *shared = t->job->shared;
    if (t->part.env.rank != 0 || (shared && t->now.step <= atomic_load(&shared->evaluated)))
        return;
    choir__cli_report_eval(&t->report, t->now.step, score, t->now.best_due);
    choir__cli_record_eval(record_of(t), t->now.step, score, t->now.best_due);
    if (shared)
        atomic_store(&shared->evaluated, t->now.step);
}

/* Says that training ends before its last step. */
static void show_end(trainer *t, const char *option)
{
    if (t->part.env.rank == 0)
        choir__cli_report_end(&t->report, t->now.step, option);
}

/* Notes the newest generation that any rank has come to; one that is behind does not lower it.
 */
static void note_generation(const trainer *t)
{
    uint64_t now = t->part.env.generation;
    if (!t->job->shared)
        return;
    uint64_t before = atomic_load(&t->job->shared->generation);
    while (before < now &&
           !atomic_compare_exchange_weak(&t->job->shared->generation, &before, now)) {
    }
}

/* Goes on with other ranks. A save that was under way may have lost a part. */
static void note_change(trainer *t)
{
    choir__cli_part_changed(&t->part);
    note_generation(t);
    if (t->saved && choir_checkpoint_close(t->saved) != CHOIR_OK)
        t->now.save_due = true;
    t->saved = NULL;
    t->prepared = false;
    show_step(t);
}

static void report_change(trainer *t)
{
    choir_membership m;
    if (!t->elastic || !choir_elastic_change(t->elastic, &m) || t->part.env.rank != 0)
        return;
    choir__cli_report_membership(&t->report, &m);
    choir__cli_record_membership(record_of(t), &m);
}

/* --- a step --- */

static choir_status step_body(choir_scope *step, void *arg)
{
    trainer *t = arg;
    if (t->all) /* the ranks may have changed since the step began */
        choir__cli_part_changed(&t->part);
    choir_status status = t->job->strategy->step(step, &t->part);
    if (status == CHOIR_OK && t->all)
        status = choir_env_share_losses(&t->part.dealt, t->part.losses, t->all);
    return status == CHOIR_OK ? choir__amp_step(&t->part) : status;
}

static choir_status gather_loss(trainer *t, float *loss)
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

static choir_status note_scale(trainer *t)
{
    choir_scaler_state s;
    choir_status status = choir_scaler_get(t->part.scaler, &s);
    t->report.scale = (double)s.scale;
    t->report.skipped = s.skipped[0];
    return status;
}

/* Runs the step, and stores the mean of its losses. *ran: false if other ranks had finished the
 * step, so that this one has received it. */
static choir_status run_step(trainer *t, float *loss, bool *ran)
{
    *ran = true;
    if (!t->elastic) {
        choir_status status = choir_step(t->part.run, step_body, t);
        return status == CHOIR_OK ? gather_loss(t, loss) : status;
    }
    uint64_t generation = t->part.env.generation;
    choir_status status = choir_elastic_step(t->elastic, step_body, t);
    if (t->all && t->part.env.generation != generation)
        note_change(t);
    *ran = t->now.step < (int64_t)choir_run_next(t->part.run);
    return status == CHOIR_OK && *ran ? gather_loss(t, loss) : status;
}

static void trace_step(trainer *t, double start, double seconds)
{
    char name[32];
    snprintf(name, sizeof name, "step %lld", (long long)t->now.step);
    choir_trace_span(t->trace, name, start, start + seconds);
}

/* Adds the step to its epoch, and reports an epoch that is complete. */
static void note_epoch(trainer *t)
{
    int64_t steps = choir__job_epoch_steps(t->job);
    t->now.epoch_loss += (double)t->now.last.loss;
    if (t->now.step % steps)
        return;
    if (t->job->epochs && t->part.env.rank == 0)
        choir__cli_report_epoch(
            &t->report, t->now.step / steps, t->now.step, t->now.epoch_loss / (double)steps);
    t->now.epoch_loss = 0;
}

static choir_status one_step(trainer *t)
{
    choir__judge_set_rate(&t->now.judge, t->part.optim);
    double start = choir__now(), lr = (double)choir_optim_lr(t->part.optim);
    float loss = 0;
    bool ran;
    choir_status status = run_step(t, &loss, &ran);
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
    choir__cli_slow_note(&t->slow);
    report_change(t);
    show_step(t);
    if (ran)
        note_epoch(t);
    return CHOIR_OK;
}

/* --- the trace --- */

/* Leaves out the first steps of a long run, which make objects that later steps reuse. */
static void start_trace(trainer *t, int64_t done)
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

/* Evaluates the averages of the weights where the job has any. */
static choir_status evaluate(trainer *t, int64_t batches, choir_score *score)
{
    choir_status status = choir_optim_swap(t->part.optim);
    choir_eval_opts opts = {.batch_size = t->job->batch_size / t->job->microbatches,
        .max_batches = batches,
        .workers = (int)t->job->workers,
        .group = t->part.dealt.group};
    if (status == CHOIR_OK)
        status = choir_evaluate(
            t->part.run, t->part.evaluated, &t->job->info, t->job->validation, opts, score);
    choir_status back = choir_optim_swap(t->part.optim);
    return status == CHOIR_OK ? back : status;
}

/* Ranks that step by themselves have their own optimizers; only the first rank's is saved. */
static choir_group *savers(const trainer *t)
{
    return t->job->strategy->meet ? NULL : t->part.env.group;
}

static void report_saved(trainer *t)
{
    int64_t step;
    if (!t->saved || t->part.env.rank != 0 || !choir_checkpoint_saved(t->saved, &step))
        return;
    choir__cli_report_saved(&t->report, step, t->job->save);
    choir__cli_record_saved(record_of(t), step);
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
    opts.keep = t->job->save_keep;
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
    choir_train_state s = choir_train_state_none();
    s.step = t->now.step;
    s.loss = (double)loss;
    s.eval_loss = t->now.last_eval;
    s.epoch_loss = t->now.epoch_loss;
    s.world = choir__cli_strategy_workers(j);
    choir__judge_to_state(&t->now.judge, j, &s);
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
    t->by = asked;
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

static choir_status validate(trainer *t)
{
    choir_score score;
    choir_status status = evaluate(t, t->job->eval_batches, &score);
    if (status != CHOIR_OK)
        return status;
    t->now.last_eval = score.loss;
    t->now.best_due |= choir__judge_score(&t->now.judge, t->job, &score, true);
    show_eval(t, &score);
    t->now.eval_due = false;
    if (choir__judge_is_tired(&t->now.judge, t->job) && !is_done(t)) {
        t->now.ended = true;
        show_end(t, "patience");
    }
    return status;
}

/* Saves a checkpoint that is due. With --save-warn a failure is a warning on every rank. */
static choir_status save_due(trainer *t)
{
    choir_status status = save(t, t->now.last.loss, t->now.best_due ? CHOIR_SAVE_BEST : 0);
    if (status != CHOIR_ERR_IO || !t->job->save_warn)
        return status;
    if (t->part.env.rank == 0)
        fprintf(stderr, "choir %s: warning: %s; training goes on\n", t->job->command,
            choir_error_message());
    return CHOIR_OK;
}

/* Runs validation and saves a checkpoint if they are due. */
static choir_status between_steps(trainer *t)
{
    const choir__job *j = t->job;
    bool last = is_done(t);
    choir_status status = CHOIR_OK;
    t->now.eval_due |= is_due(t->now.step, j->eval_every);
    t->now.save_due |= is_due(t->now.step, j->save_every);
    if (last && t->now.eval_due &&
        choir__judge_decides(j)) /* a resumed run needs the decision */
        return validate(t);
    if (last || apart(t) || !(t->now.eval_due || t->now.save_due || t->now.best_due))
        return CHOIR_OK;
    status = meet(t);
    if (status != CHOIR_OK || t->stopping)
        return status;
    if (t->now.eval_due)
        status = validate(t);
    if (status == CHOIR_OK && (t->now.save_due || t->now.best_due))
        status = save_due(t);
    if (status == CHOIR_OK)
        t->now.eval_due = t->now.save_due = t->now.best_due = false;
    return status;
}

static choir_status resume(trainer *t, const char *from)
{
    choir_training parts = parts_of(t);
    choir_train_state s;
    choir_status status = choir_training_resume(from, &parts, t->part.env.group, &s);
    if (status != CHOIR_OK)
        return status;
    t->now.step = s.step;
    choir__judge_from_state(&t->now.judge, t->job, &s);
    t->now.epoch_loss = s.epoch_loss;
    t->now.last.number = s.step;
    t->now.last.loss = (float)s.loss;
    t->now.ended = choir__judge_is_tired(&t->now.judge, t->job);
    t->now.last_eval = s.eval_loss;
    if (status == CHOIR_OK && t->job->strategy->resumed)
        status = t->job->strategy->resumed(&t->part);
    return status;
}

/* Goes on from the job's last checkpoint, after a loss without copies: by --no-copy, or because
 * there was no memory for them. */
static choir_status go_back(trainer *t)
{
    const choir__job *j = t->job;
    uint64_t newest = choir__job_checkpoint(j);
    if (newest && newest != j->shared->old_checkpoint)
        return resume(t, j->save);
    if (j->resume)
        return resume(t, j->resume);
    if (!atomic_load(&j->shared->stepped))
        return CHOIR_OK;
    long long stepped = (long long)atomic_load(&j->shared->stepped);
    if (!j->save)
        return choir__error(CHOIR_ERR_STATE,
            "a rank was lost after step %lld, and there is nothing to go on from: no copies of "
            "the ranks' state could be kept, and without --save there is no checkpoint",
            stepped);
    return choir__error(CHOIR_ERR_STATE,
        "a rank was lost after step %lld, and %s has no checkpoint of this job yet: without "
        "copies no other state is kept to go on from",
        stepped, j->save);
}

/* --- the whole job --- */

/* Ranks that an agent has started again continue their own checkpoint, which rank 0 looks for.
 */
static choir_status continue_own(trainer *t)
{
    const choir__job *j = t->job;
    char path[PATH_MAX];
    if (!j->save || j->resume || !choir__job_is_started_again(j))
        return CHOIR_OK;
    int32_t there = t->part.env.rank == 0 && choir_training_find(j->save, path) == CHOIR_OK;
    choir_status status =
        choir_group_broadcast(t->part.env.group, &there, 1, CHOIR_I32, 0, NULL);
    return status == CHOIR_OK && there ? resume(t, j->save) : status;
}

static choir_status build(trainer *t)
{
    choir_status status = choir__cli_part_build(&t->part);
    t->read = choir__calloc(
        (size_t)choir__max(t->part.micro_count, t->job->microbatches) + 1, sizeof(float));
    t->now.judge = choir__judge_new(t->job);
    t->now.last_eval = (double)NAN;
    t->joined = !t->part.env.generation && !t->begins_again; /* it receives its state */
    bool rebuilt =
        t->job->max_restarts && choir__cli_strategy_recovery(t->job) != CHOIR__IN_PLACE;
    if (status == CHOIR_OK && rebuilt && t->part.env.generation > 1 && !choir_elastic_kept())
        return go_back(t);
    if (status == CHOIR_OK)
        status = continue_own(t);
    t->watch.backward = !t->part.scaler; /* a loss scale makes gradients overflow */
    if (status == CHOIR_OK && t->job->debug_nan)
        choir__nan_watch_net(&t->watch, t->part.net);
    bool reads = t->job->resume && !t->joined && !choir_elastic_kept();
    return status == CHOIR_OK && reads ? resume(t, t->job->resume) : status;
}

/* A sample that is shown while it is written, and kept for the record. */
static ssize_t keep_and_show(void *kept, const char *bytes, size_t count)
{
    fwrite(bytes, 1, count, stdout);
    fflush(stdout);
    return (ssize_t)fwrite(bytes, 1, count, kept);
}

static choir_status write_sample(trainer *t, bool shown)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *kept = open_memstream(&text, &bytes);
    FILE *out = kept && shown
                    ? fopencookie(kept, "w", (cookie_io_functions_t){.write = keep_and_show})
                    : kept;
    choir_status status = out ? choir__generate(t->part.run, t->part.evaluated, &t->job->info,
                                    t->job->tokenizer, NULL, 0, SAMPLE_TOKENS, 0.8, 40, out)
                              : CHOIR_OK;
    if (out && out != kept)
        fclose(out);
    if (kept)
        fclose(kept);
    if (shown)
        printf("\n");
    if (text)
        choir__cli_record_sample(t->record, t->now.step, text);
    free(text);
    return status;
}

static choir_status sample(trainer *t)
{
    bool shown = !t->job->json && !t->job->quiet;
    if (t->job->info.task != CHOIR_LANGUAGE || t->job->info.masked || !t->job->tokenizer ||
        (!shown && !t->job->logs) || t->part.env.rank != 0)
        return CHOIR_OK;
    bool apart_here =
        choir_module_collective(t->part.evaluated) || /* all ranks would have to */
        (t->part.env.world > 1 && !choir__cli_strategy_is_whole(t->job));
    if (shown)
        printf("\nWhat it writes:\n");
    if (shown && apart_here)
        printf(
            "  no rank has the whole model here: choir generate tells, from what --save kept\n");
    return apart_here ? CHOIR_OK : write_sample(t, shown);
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
    if (status == CHOIR_OK && !t->job->no_eval)
        t->now.best_due |= choir__judge_score(&t->now.judge, t->job, &score, false);
    bool best = t->now.best_due;
    t->now.last_eval = t->job->no_eval ? t->now.last_eval : score.loss;
    if (status == CHOIR_OK && !t->job->no_eval)
        choir__cli_record_eval(record_of(t), t->now.step, &score, best);
    if (status == CHOIR_OK)
        status = save(t, loss, CHOIR_SAVE_NOW | (best ? CHOIR_SAVE_BEST : 0));
    bool swapped = status == CHOIR_OK; /* to the weights that the checkpoint has */
    if (swapped)
        status = choir_optim_swap(t->part.optim);
    if (status == CHOIR_OK && (savers(t) || t->part.env.rank == 0))
        status = choir_weights_sha256(t->part.net, savers(t), sha);
    report_change(t);
    t->report.last = t->now.step;
    if (status == CHOIR_OK && t->part.env.rank == 0) {
        choir__cli_report_summary(&t->report, choir_module_param_count(t->part.net), loss,
            &score, sha, figures, device_count);
        choir__cli_record_end(record_of(t), t->now.step, loss, sha);
    }
    free(figures);
    if (status == CHOIR_OK)
        status = sample(t);
    choir_status back = swapped ? choir_optim_swap(t->part.optim) : CHOIR_OK;
    return status == CHOIR_OK ? back : status;
}

/* Returns whether this is the step at which a trial of a search will be stopped: it saves its
 * state there, not a few steps later. */
static bool has_budget(const trainer *t)
{
    const char *budget = t->job->save ? getenv("CHOIR_TRIAL_BUDGET") : NULL;
    const char *unit = getenv("CHOIR_TRIAL_UNIT");
    int64_t each = unit && !strcmp(unit, "epoch") ? t->job->epoch_steps : 1;
    return budget && t->now.step / each >= atoll(budget) &&
           (!t->job->eval_every || is_due(t->now.step, t->job->eval_every));
}

/* Exchanges, after a step, whether any rank was interrupted or out of time (asked), and which
 * is the slowest. */
static choir_status compare_ranks(trainer *t, int asked[2])
{
    int64_t words[2 + CHOIR__SLOW_WORDS] = {asked[0], asked[1]};
    choir__cli_slow_write(&t->slow, t->part.env.rank, words + 2);
    choir_status status = choir_group_all_reduce(
        t->part.env.group, words, 2 + CHOIR__SLOW_WORDS, CHOIR_I64, CHOIR_MAX, NULL);
    if (status != CHOIR_OK)
        return status;
    asked[0] = (int)words[0];
    asked[1] = (int)words[1];
    bool told = choir__cli_slow_judge(&t->slow, words + 2, t->job->slow_after);
    if (told && t->part.env.rank == 0)
        choir__cli_report_slow(&t->report, t->now.step, &t->slow, &t->part.env);
    return CHOIR_OK;
}

/* Returns whether any rank was interrupted. All ranks stop after the same step, so that the
 * saved state is complete. */
static bool stop_asked(trainer *t)
{
    const choir__cli_strategy *s = t->job->strategy;
    double limit = choir__job_seconds(t->job->max_time);
    int asked[2] = {interrupted ? interrupted : t->by,
        limit > 0 && choir__cli_uptime() >= limit}; /* the signal; whether the time is over */
    if (!asked[0] && has_budget(t))
        asked[0] = SIGTERM;
    if (apart(t))
        return false;
    if (t->part.env.world > 1 && (!s->meet || s->together))
        (void)!compare_ranks(t, asked);
    t->by = asked[0];
    if (asked[1] && !asked[0]) {
        t->now.ended = true;
        show_end(t, "max-time");
    }
    return asked[0];
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
        (long long)t->now.step, t->job->save ? "saved to " : "nothing is saved without --save",
        t->job->save ? t->job->save : "");
}

/* A save that was under way when a rank was lost is due again on every rank, also on new ones,
 * which knew nothing of it. */
static choir_status agree_on_save(trainer *t)
{
    int32_t due = t->now.save_due || t->lost_save;
    choir_status status =
        choir_group_all_reduce(t->part.env.group, &due, 1, CHOIR_I32, CHOIR_MAX, NULL);
    t->now.save_due = due > 0;
    t->lost_save = false;
    return status;
}

/* The work after a step, which is repeated if a rank is lost on the way. */
static choir_status after_step(trainer *t)
{
    choir_status status = t->prepared ? CHOIR_OK : prepare_saves(t);
    if (status == CHOIR_OK && t->elastic && !t->prepared)
        status = agree_on_save(t);
    t->prepared = status == CHOIR_OK; /* the optimizer has its state */
    if (status == CHOIR_OK)
        status = between_steps(t);
    report_saved(t);
    if (status == CHOIR_OK && !is_done(t) && stop_asked(t))
        return stop(t, t->now.last.loss);
    t->now.after = status != CHOIR_OK;
    return status;
}

/* Waits for the step's samples; *ended: the stream has no more whole steps. */
static choir_status wait_for_stream(trainer *t, bool *ended)
{
    bool whole = true;
    const choir__job *j = t->job;
    choir_status status =
        j->stream ? choir_stream_wait(j->stream, t->part.env.rank, t->now.step, &whole)
                  : CHOIR_OK;
    *ended = !whole;
    if (status != CHOIR_OK || whole)
        return status;
    if (!t->now.step)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "standard input ended after %lld tokens, fewer than a step of %lld samples needs",
            (long long)choir_stream_tokens(j->stream), (long long)j->batch_size);
    if (t->part.env.rank == 0) {
        char *note =
            choir__format("standard input ended after %lld tokens: step %lld of %lld is "
                          "the last one",
                (long long)choir_stream_tokens(j->stream), (long long)t->now.step,
                (long long)j->steps);
        choir__cli_notes(j->command, note);
        free(note);
    }
    return CHOIR_OK;
}

/* Runs steps at rates that rise, instead of training. All ranks have the losses. */
static choir_status find_rate(trainer *t)
{
    choir__rate_test test;
    float loss;
    bool ran, more = true;
    choir_status status = CHOIR_OK;
    choir_optim_schedule(t->part.optim, choir_schedule_constant());
    choir__rate_test_begin(&test, t->job);
    while (more && status == CHOIR_OK) {
        choir_optim_set_lr(t->part.optim, (float)choir__rate_test_next(&test));
        status = stop_asked(t) ? choir__error(CHOIR_ERR_INTERRUPTED,
                                     "interrupted after step %lld", (long long)t->now.step)
                               : run_step(t, &loss, &ran);
        t->now.step += status == CHOIR_OK;
        more = status == CHOIR_OK && choir__rate_test_note(&test, (double)loss);
    }
    if (status == CHOIR_OK && t->part.env.rank == 0)
        status = choir__rate_test_report(&test, t->job);
    choir__rate_test_free(&test);
    return status;
}

static choir_status train(trainer *t)
{
    choir_status status = choir__cli_part_sync(&t->part);
    bool ended = false;
    if (t->job->find_lr && status == CHOIR_OK)
        return find_rate(t);
    for (int64_t done = 0; status == CHOIR_OK && (t->now.after || !is_done(t)); done++) {
        start_trace(t, done);
        if (!t->now.after)
            status = wait_for_stream(t, &ended);
        if (ended || status != CHOIR_OK)
            break;
        if (!t->now.after)
            status = one_step(t);
        if (status == CHOIR_OK)
            status = after_step(t);
    }
    if (status == CHOIR_OK)
        status = meet(t);
    if (status == CHOIR_OK && t->stopping)
        return stop(t, t->now.last.loss);
    if (status == CHOIR_OK && t->job->strategy->meet) /* of all ranks' last steps */
        status = choir_env_mean(&t->part.env, t->read, &t->now.last.loss);
    return status == CHOIR_OK ? finish(t, t->now.last.loss) : status;
}

static void start_report(trainer *t)
{
    choir__job_shared *shared = t->job->shared;
    choir__cli_part_start(&t->part);
    choir__cli_slow_begin(&t->slow);
    if (t->reports)
        return;
    t->reports = true;
    choir__cli_report_begin(&t->report, t->job, t->now.step);
    t->report.outlived = t->elastic != NULL;
    if (t->part.env.rank == 0 && (!shared || !atomic_exchange(&shared->started, 1)))
        choir__cli_report_start(&t->report, choir_module_param_count(t->part.net));
}

/* Trains on after each change of the ranks, until rank 0 has done everything. */
static choir_status train_elastic(trainer *t)
{
    choir_status status = CHOIR_OK;
    for (bool again = true; again && status == CHOIR_OK;) {
        status = train(t);
        if (status == CHOIR_OK)
            status = choir__cli_flush();
        if (status == CHOIR_OK)
            status = choir_elastic_end(t->elastic, &again);
        else
            status = choir_elastic_recover(t->elastic, status);
        if (again && status == CHOIR_OK)
            note_change(t);
    }
    return status;
}

/* Opens the part and builds it; a rank that is new returns when it takes part. */
static choir_status set_up(trainer *t)
{
    const choir__job *j = t->job;
    choir_status status = choir__cli_part_open(&t->part, j, choir__job_agree);
    note_generation(t); /* what fails from here on is this one's failure */
    if (status == CHOIR_OK)
        status = build(t);
    if (status != CHOIR_OK || !(j->max_restarts || choir__job_may_be_kept(j)))
        return status;
    if (j->max_restarts && choir__cli_strategy_recovery(j) == CHOIR__IN_PLACE)
        t->all = choir__calloc((size_t)j->microbatches, sizeof *t->all);
    choir_training parts = parts_of(t);
    choir_elastic_opts opts = {
        .state = &t->now, .state_bytes = sizeof t->now, .no_copy = j->no_copy};
    status = choir_elastic_open(&t->part.env, &parts, opts, &t->elastic);
    if (status == CHOIR_OK && !j->max_restarts && !choir_elastic_keeps(t->elastic)) {
        choir_elastic_free(t->elastic); /* nothing is kept: a job like any other */
        t->elastic = NULL;
    }
    note_generation(t); /* a rank that is new has come to its first one */
    if (t->all)
        choir__cli_part_changed(&t->part);
    return status;
}

/* Closes everything but the report, which goes on if this process does. */
static void take_down(trainer *t)
{
    bool saves = t->saved != NULL, saved = choir_checkpoint_close(t->saved) == CHOIR_OK;
    choir_elastic_free(t->elastic);
    choir_trace_free(t->trace);
    choir__cli_part_close(&t->part);
    free(t->read);
    free(t->all);
    *t = (trainer){.job = t->job,
        .report = t->report,
        .record = t->record,
        .reports = t->reports,
        .begins_again = !t->joined,
        .lost_save = saves && !saved};
}

static choir_status run(trainer *t)
{
    choir_status status = set_up(t);
    if (status != CHOIR_OK)
        return status;
    catch_signals();
    start_report(t);
    return t->elastic ? train_elastic(t) : train(t);
}

choir_status choir__train_rank(const choir__job *job, int *by)
{
    trainer t = {.job = job};
    choir_status status = run(&t);
    bool rebuilds = choir__cli_strategy_recovery(job) != CHOIR__IN_PLACE;
    while (job->max_restarts && (rebuilds || !t.reports) &&
           (status == CHOIR_ERR_PEER_LOST || status == CHOIR_ERR_TIMEOUT)) {
        take_down(&t);
        status = run(&t);
    }
    /* A supervisor knows more about a lost peer, and records it. */
    if (status != CHOIR_OK && (status != CHOIR_ERR_PEER_LOST || !job->recorded))
        choir__cli_record_failure(t.record, t.now.step, status);
    choir_device *device = t.part.env.device;
    int64_t micro_count = t.part.micro_count;
    *by = t.by;
    take_down(&t);
    choir__cli_report_free(&t.report);
    choir__cli_record_close(t.record);
    if (status == CHOIR_ERR_MEMORY && device && choir__cli_strategy_is_whole(job))
        status = choir__explain_memory(job, device, micro_count);
    return status;
}
