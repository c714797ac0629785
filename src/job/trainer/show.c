/* Rank 0 tells each event once, also if the ranks change: the trainer states it here, and the
 * output and the records write it (record/events.def). */
#include "job/trainer/inside.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/nan.h"
#include "job/report/run_log.h"
#include "line/command.h"

/* Returns the job's record, or NULL. A process that becomes rank 0 continues it. */
static choir__run_log *record_of(choir__trainer *t)
{
    choir__job_shared *shared = t->job->ranks.shared;
    int64_t shown = shared ? atomic_load(&shared->stepped) : t->again > 0 ? t->again : 0;
    if (t->part.env.rank != 0)
        return NULL;
    if (!t->record)
        t->record = choir__run_log_open(t->job,
            (choir__run_log_start){.step = shown ? shown : t->report.first,
                .goes_on = shown || t->job->saves.resume || choir__job_is_started_again(t->job),
                .evaluates_again = !shown && t->now.evaluates_again},
            t->part.net ? choir_module_param_count(t->part.net) : -1,
            shown ? (double)NAN : choir__line_uptime() - (choir__now() - t->report.started));
    return t->record;
}

void choir__trainer_tell(
    choir__trainer *t, unsigned where, const choir__event_kind *kind, const void *told)
{
    if (where & CHOIR__TO_OUT) {
        choir__job_report_tell(&t->report, kind, told);
        fflush(stdout);
    }
    if (where & CHOIR__TO_LOGS)
        choir__run_log_tell(record_of(t), kind, told);
}

/* Waits until standard output takes a line that is due at once. A pipe that is not read
 * may take none for long, and a rank that is killed meanwhile must not have noted the line. */
static void wait_for_room(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    while (__fpending(stdout) && poll(&out, 1, -1) < 0 && errno == EINTR)
        ;
}

/* Rank 0 tells an event of a step, unless a line shows that step or a later one, also by a rank
 * 0 that was lost later; where: where it is due. Where ranks may be lost, the line is noted
 * first and then written: a rank that is killed at the sight of a line has noted it. */
static void tell_news(choir__trainer *t, choir__shown_kind line, int64_t step, unsigned where,
    const choir__event_kind *kind, const void *told)
{
    choir__job_shared *shared = t->job->ranks.shared;
    if (t->part.env.rank != 0 || (shared && step <= atomic_load(&shared->news[line])))
        return;
    if (where & CHOIR__TO_OUT)
        choir__job_report_tell(&t->report, kind, told);
    if (shared && (where & CHOIR__TO_OUT))
        wait_for_room();
    if (shared)
        atomic_store(&shared->news[line], step);
    if (t->report.outlived)
        fflush(stdout);
    choir__trainer_tell(t, where & CHOIR__TO_LOGS, kind, told);
}

/* The record of a step is noted when it is whole: a new rank 0 drops all that follows it. */
static void record_step(choir__trainer *t, const choir__told_step *told)
{
    choir__job_shared *shared = t->job->ranks.shared;
    if (t->part.env.rank != 0 || (shared && told->step <= atomic_load(&shared->stepped)))
        return;
    choir__run_log_step(record_of(t), told, &t->part);
    if (shared)
        atomic_store(&shared->stepped, told->step);
}

void choir__trainer_show_step(choir__trainer *t)
{
    const choir__done_step *s = &t->now.last;
    int64_t steps = choir__job_epoch_steps(t->job);
    double items = choir__job_report_items(&t->report);
    char text[16];
    float loss = s->loss;
    uint32_t bits;
    choir__one_nan(&loss, CHOIR_F32, 1);
    memcpy(&bits, &loss, sizeof bits);
    snprintf(text, sizeof text, "0x%08x", bits);
    const choir__told_step told = {.step = s->number,
        .loss = s->none ? (double)NAN : (double)s->loss,
        .loss_bits = s->none ? NULL : text,
        .items_per_s =
            s->seconds > 0 ? items / s->seconds : 0, /* files get the step's figure */
        .grad_norm = s->grad_norm,
        .lr = s->lr,
        .loss_scale = t->report.scale,
        .step_s = s->seconds,
        .data_s = s->data_s,
        .items = items * (double)s->number};
    tell_news(t, CHOIR__SHOWN_STEP, s->number, CHOIR__TO_OUT, &choir__kind_step, &told);
    record_step(t, &told);
    if (t->job->training.epochs && s->number && s->number == t->now.step &&
        s->number % steps == 0)
        tell_news(t, CHOIR__SHOWN_EPOCH, s->number, CHOIR__TO_BOTH,
            CHOIR__TOLD(epoch, .epoch = s->number / steps, .step = s->number,
                .loss = t->now.epoch_mean));
}

void choir__trainer_show_eval(choir__trainer *t, const choir_score *score, bool shown)
{
    const choir__job *j = t->job;
    int64_t step = t->now.step;
    choir__told_eval told = {.step = step,
        .epoch = j->training.eval_epochs ? step / j->training.epoch_steps : -1,
        .loss = score->loss,
        .accuracy = score->accuracy,
        .metric = t->now.metric,
        .best = t->now.best_due,
        .eval_s = t->eval_s};
    choir__metric_name(&j->training, t->now.metric_name);
    told.metric_name = *t->now.metric_name ? t->now.metric_name : NULL;
    if (shown)
        t->now.eval = told;
    tell_news(t, CHOIR__SHOWN_EVAL, step, shown ? CHOIR__TO_BOTH : CHOIR__TO_LOGS,
        &choir__kind_eval, &told);
}

void choir__trainer_skip_lines(const choir__trainer *t)
{
    choir__job_shared *shared = t->job->ranks.shared;
    if (!shared)
        return;
    _Atomic int64_t *const lines[] = {
        &shared->stepped, &shared->news[CHOIR__SHOWN_STEP], &shared->news[CHOIR__SHOWN_EPOCH]};
    for (size_t i = 0; i < CHOIR_COUNT(lines); i++)
        for (int64_t was = atomic_load(lines[i]);
             was < t->now.step && !atomic_compare_exchange_weak(lines[i], &was, t->now.step);)
            continue;
}

void choir__trainer_show_again(choir__trainer *t)
{
    const choir__progress *now = &t->now;
    choir__trainer_show_step(t);
    if (now->eval.step && now->eval.step == now->step) {
        choir__told_eval told = now->eval; /* another rank's: its pointer is not ours */
        told.metric_name = *now->metric_name ? now->metric_name : NULL;
        tell_news(t, CHOIR__SHOWN_EVAL, now->step, CHOIR__TO_BOTH, &choir__kind_eval, &told);
    }
    if (now->ended_at && now->ended_at == now->step)
        choir__trainer_show_stop(t, now->ended_by, NULL, (double)INFINITY);
}

void choir__trainer_show_saved(choir__trainer *t, int64_t step)
{
    char *path = choir__format("%s/step-%08lld", t->job->saves.dir, (long long)step);
    tell_news(t, CHOIR__SHOWN_SAVED, step, CHOIR__TO_BOTH,
        CHOIR__TOLD(checkpoint, .step = step, .path = path, .save_s = t->save_s));
    t->save_s = 0;
    free(path);
}

void choir__trainer_show_edit(
    choir__trainer *t, const char *option, int64_t from, double seconds)
{
    choir__trainer_tell(t, CHOIR__TO_BOTH,
        CHOIR__TOLD(edit, .step = t->now.step, .rewound_from = from,
            .skip_batches = t->job->data.skip, .by = option, .resumed_s = seconds));
}

void choir__trainer_show_stop(
    choir__trainer *t, const char *option, const char *signal, double left)
{
    tell_news(t, CHOIR__SHOWN_STOP, t->now.step, CHOIR__TO_BOTH,
        CHOIR__TOLD(stop, .step = t->now.step, .by = option, .signal = signal,
            .grace_s = isinf(left) ? (double)NAN : left));
}

void choir__trainer_end_by(choir__trainer *t, const char *option)
{
    t->now.ended = true;
    t->now.ended_at = t->now.step;
    snprintf(t->now.ended_by, sizeof t->now.ended_by, "%s", option);
    choir__trainer_show_stop(t, option, NULL, (double)INFINITY);
}

void choir__trainer_show_change(choir__trainer *t, const choir_membership *m)
{
    char host[65] = "?";
    gethostname(host, sizeof host - 1);
    choir__told_leaver *left = choir__calloc((size_t)m->left_count + 1, sizeof *left);
    choir__told_joiner *joined = choir__calloc((size_t)m->joined_count + 1, sizeof *joined);
    for (int i = 0; i < m->left_count; i++)
        left[i] = (choir__told_leaver){.rank = m->left[i].rank,
            .host = host,
            .pid = m->left[i].pid,
            .why = m->left[i].why};
    for (int i = 0; i < m->joined_count; i++)
        joined[i] = (choir__told_joiner){.rank = m->joined[i], .host = host};
    choir__trainer_tell(t, CHOIR__TO_BOTH,
        CHOIR__TOLD(membership, .generation = (int64_t)m->generation, .step = m->step,
            .world = m->world, .nodes = -1, .restarts = -1, .left = left,
            .left_count = m->left_count, .joined = joined, .joined_count = m->joined_count,
            .detected_s = m->detected_s, .resumed_s = m->resumed_s));
    free(left);
    free(joined);
}

void choir__trainer_tell_program(
    const choir__trainer *t, const choir_score *score, const char *sha256)
{
    choir__job_told *told = t->job->records.told;
    if (!told || (t->part.env.rank != 0 && !t->job->ranks.launched))
        return;
    told->steps = t->now.step;
    told->loss = (double)t->now.last.loss;
    if (!score)
        return;
    told->eval_loss = score->loss;
    told->eval_accuracy = score->accuracy;
    snprintf(told->weights_sha256, sizeof told->weights_sha256, "%s", sha256);
    snprintf(told->ended_by, sizeof told->ended_by, "%s", t->now.ended_by);
}

void choir__trainer_show_profile(choir__trainer *t, int64_t steps, double matmul_rate)
{
    int count;
    const choir_trace_line *line = choir_trace_profile(t->trace, &count);
    choir__told_kernel *kernels = choir__calloc((size_t)count + 1, sizeof *kernels);
    for (int i = 0; i < count; i++)
        kernels[i] = (choir__told_kernel){.name = line[i].name,
            .size = line[i].shape,
            .calls = line[i].calls,
            .ms = line[i].seconds * 1e3,
            .gflop = line[i].flops * 1e-9};
    t->report.trace = t->trace;
    choir__trainer_tell(t, CHOIR__TO_OUT,
        CHOIR__TOLD(profile, .steps = steps, .matmul_gflops = matmul_rate * 1e-9,
            .kernels = kernels, .kernels_count = count));
    t->report.trace = NULL;
    free(kernels);
}

void choir__trainer_show_end(choir__trainer *t, float loss, const choir_score *score,
    const char *sha256, const choir__device_figures *figures, int count)
{
    const choir__job *j = t->job;
    const choir__job_report *r = &t->report;
    bool scaled = !isnan(r->scale);
    double median = choir__job_report_median_step(r);
    choir__told_device *devices = choir__calloc((size_t)count + 1, sizeof *devices);
    int64_t resident = 0;
    for (int i = 0; i < count; i++) {
        resident += figures[i].resident_bytes;
        devices[i] = (choir__told_device){.device = figures[i].device,
            .peak_bytes = (int64_t)figures[i].peak_bytes,
            .busy = figures[i].busy,
            .comm_bytes = (int64_t)figures[i].comm_bytes};
    }
    choir__trainer_tell(t, CHOIR__TO_BOTH,
        CHOIR__TOLD(end, .step = t->now.step, .loss = (double)loss, .weights_sha256 = sha256,
            .by = *t->now.ended_by ? t->now.ended_by : NULL));
    choir__trainer_tell(t, CHOIR__TO_OUT,
        CHOIR__TOLD(summary, .model = j->model.info.config,
            .strategy = j->placement.strategy_text,
            .world = choir__job_strategy_workers(&j->placement),
            .microbatches = j->training.microbatches,
            .slices = choir__max(j->training.slices, 1),
            .chunks = choir__max(j->training.chunks, 1), .steps = t->now.step,
            .parameters = choir_module_param_count(t->part.net),
            .epochs = j->training.eval_epochs ? t->now.step / j->training.epoch_steps : -1,
            .recompute = j->optim.recompute, .amp = j->optim.amp ? j->optim.amp : "off",
            .bits = t->part.bits, .loss_scale = r->scale,
            .skipped_steps = scaled ? r->skipped : -1,
            .steps_without_target = choir_model_ignores(&j->model.info) ? r->without : -1,
            .final_loss = (double)loss, .eval_loss = score->loss,
            .eval_accuracy = score->accuracy,
            .eval_metric = t->job->training.no_eval ? (double)NAN : t->now.metric,
            .step_ms_median = median * 1e3,
            .items_per_s = median > 0 ? choir__job_report_items(r) / median : 0,
            .first_step_s = r->first_step_s, .weights_sha256 = sha256,
            .resident_bytes = resident, .devices = devices, .devices_count = count));
    free(devices);
    if (r->without)
        choir__job_tell(j,
            "note: %lld of %lld steps had no target, and so no loss; a larger --batch-size or "
            "context gives more of them one",
            (long long)r->without, (long long)r->counted);
}
