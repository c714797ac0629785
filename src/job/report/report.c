/* The output of a training besides its steps (step.c): how it begins, events, the
 * summary, the profile; lines of JSON for programs, sentences for people. */
#include "job/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "line/fold.h"
#include "job/report/inside.h"
#include "line/self.h"
#include "job/trainer/slow.h"

double choir__report_items(const choir__cli_report *r)
{
    return (double)(r->job->training.batch_size * r->job->model.info.items);
}

const char *choir__report_items_name(const choir__cli_report *r)
{
    return r->job->model.info.items > 1 ? "tokens" : "samples";
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double choir__report_median(const double *values, int64_t n)
{
    if (n < 1)
        return 0;
    double *sorted = choir__alloc((size_t)n * sizeof *sorted);
    memcpy(sorted, values, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    double median = sorted[n / 2];
    free(sorted);
    return median;
}

void choir__report_flush(const choir__cli_report *r)
{
    if (!r->outlived)
        fflush(stdout);
}

static double median_step(const choir__cli_report *r)
{
    int64_t skip = r->steps > 2 * CHOIR__CLI_WARM_UP ? CHOIR__CLI_WARM_UP : 0;
    return choir__report_median(r->step_s + skip, r->steps - skip);
}

/* Ends the progress line if one is open, so that the next text begins a new line. */
static void end_line(choir__cli_report *r)
{
    if (r->line_open)
        printf("\n");
    r->line_open = false;
}

void choir__cli_report_begin(choir__cli_report *r, const choir__job *job, int64_t first_step)
{
    *r = (choir__cli_report){.job = job,
        .first = first_step,
        .last = first_step,
        .started = choir__now(),
        .terminal = isatty(STDOUT_FILENO),
        .scale = (double)NAN};
}

void choir__cli_report_start(choir__cli_report *r, int64_t parameters)
{
    const choir__job *job = r->job;
    if (job->records.json || job->records.quiet)
        return;
    int workers = choir__cli_strategy_workers(job);
    bool alone = workers == 1 && choir__cli_strategy_has_ranks(job->placement.strategy) &&
                 !choir__job_was_given(job, "nproc") && !job->placement.launched;
    choir__paragraph p;
    choir__paragraph_begin(&p);
    fprintf(p.out,
        "%s: %lld parameters, %s on %d %s%s%s, %lld micro-batch%s of %lld samples%s\n",
        job->model.info.config, (long long)parameters, job->placement.strategy_text, workers,
        job->placement.strategy->spread == CHOIR__ALL_DEVICES ? "device" : "rank",
        workers > 1 ? "s" : "", alone ? " (--nproc N starts more)" : "",
        (long long)job->training.microbatches, job->training.microbatches > 1 ? "es" : "",
        (long long)(job->training.batch_size / job->training.microbatches),
        job->optim.recompute ? ", recomputing" : "");
    if (job->placement.automatic) {
        char *choice = choir__job_auto_text(job);
        fprintf(p.out, "%s\n", choice);
        free(choice);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (job->placement.threads > cores)
        fprintf(p.out, "%lld threads per device take turns on %ld core%s\n",
            (long long)job->placement.threads, cores, cores > 1 ? "s" : "");
    if (job->optim.amp && strcmp(job->optim.amp, "off") != 0)
        fprintf(p.out, "mixed precision: %s\n", job->optim.amp);
    choir__paragraph_end(&p, stdout);
}

void choir__report_number(const char *key, double value)
{
    if (isfinite(value))
        printf(",\"%s\":%.9g", key, value);
    else
        printf(",\"%s\":null", key);
}

/* "2.5", or "-" where no target counted. */
static const char *loss_text(double loss, char text[32])
{
    if (isnan(loss))
        return "-";
    snprintf(text, 32, "%.4f", loss);
    return text;
}

/* "rank 1 (pid 77) was killed by SIGKILL (Killed); rank 2 is new: 3 ranks go on from step 17,
 * after 0.06 s" */
static void say_membership(const choir__cli_report *r, const choir_membership *m)
{
    choir__paragraph p;
    choir__paragraph_begin(&p);
    fprintf(p.out, "choir %s: ", r->job->command);
    for (int i = 0; i < m->left_count; i++)
        fprintf(p.out, "%srank %d (pid %d) %s", i ? "; " : "", m->left[i].rank, m->left[i].pid,
            m->left[i].why);
    for (int i = 0; i < m->joined_count; i++)
        fprintf(p.out, "%srank %d is new", i || m->left_count ? "; " : "", m->joined[i]);
    fprintf(p.out, ": %d rank%s on from step %lld, after %.2g s\n", m->world,
        m->world > 1 ? "s go" : " goes", (long long)m->step, m->resumed_s);
    choir__paragraph_end(&p, stderr);
}

void choir__cli_report_membership(choir__cli_report *r, const choir_membership *m)
{
    char host[65] = "?";
    end_line(r);
    say_membership(r, m);
    if (!r->job->records.json)
        return;
    gethostname(host, sizeof host - 1);
    printf(
        "{\"event\":\"membership\",\"generation\":%llu,\"step\":%lld,\"world\":%d,\"left\":[",
        (unsigned long long)m->generation, (long long)m->step, m->world);
    for (int i = 0; i < m->left_count; i++) {
        printf("%s{\"rank\":%d,", i ? "," : "", m->left[i].rank);
        choir__cli_print_string("host", host);
        printf(",");
        choir__cli_print_string("why", m->left[i].why);
        printf("}");
    }
    printf("],\"joined\":[");
    for (int i = 0; i < m->joined_count; i++) {
        printf("%s{\"rank\":%d,", i ? "," : "", m->joined[i]);
        choir__cli_print_string("host", host);
        printf("}");
    }
    printf("],\"detected_s\":%.6g,\"resumed_s\":%.6g}\n", m->detected_s, m->resumed_s);
    fflush(stdout);
}

/* "rank 3 on node 1 is slow: the others wait 0.12 s of 0.5 s per step for it" */
void choir__cli_report_slow(
    choir__cli_report *r, int64_t step, const choir__cli_slow *slow, const choir_env *env)
{
    char node[32] = "";
    if (choir_group_nodes(env->group) > 1)
        snprintf(node, sizeof node, " on node %d", choir_group_node(env->group, slow->rank));
    end_line(r);
    choir__cli_tell(r->job->command,
        "rank %d%s is slow: the others wait %.2g s of %.2g s per step for it", slow->rank, node,
        slow->cost_s, slow->step_s);
    if (!r->job->records.json)
        return;
    printf(
        "{\"event\":\"straggler\",\"step\":%lld,\"rank\":%d,\"cost_s\":%.6g,\"step_s\":%.6g}\n",
        (long long)step, slow->rank, slow->cost_s, slow->step_s);
    fflush(stdout);
}

void choir__cli_report_eval(
    choir__cli_report *r, int64_t step, const choir_score *score, bool best)
{
    if (r->job->records.json) {
        printf("{\"event\":\"eval\",\"step\":%lld", (long long)step);
        if (r->job->training.eval_epochs)
            printf(",\"epoch\":%lld", (long long)(step / r->job->training.epoch_steps));
        choir__report_number("loss", score->loss);
        choir__report_number("accuracy", score->accuracy);
        printf("}\n");
    } else if (!r->job->records.quiet) {
        char text[32];
        choir__paragraph p;
        end_line(r);
        choir__paragraph_begin(&p);
        fprintf(p.out, "validation after step %lld: loss %s", (long long)step,
            loss_text(score->loss, text));
        if (isfinite(score->accuracy))
            fprintf(p.out, ", accuracy %.2f %%", 100 * score->accuracy);
        fprintf(p.out, best ? ", the best so far\n" : "\n");
        choir__paragraph_end(&p, stdout);
    }
    choir__report_flush(r);
}

void choir__cli_report_epoch(choir__cli_report *r, int64_t epoch, int64_t step, double loss)
{
    if (r->job->records.json) {
        printf("{\"event\":\"epoch\",\"epoch\":%lld,\"step\":%lld", (long long)epoch,
            (long long)step);
        choir__report_number("loss", loss);
        printf("}\n");
    } else if (!r->job->records.quiet) {
        char text[32];
        end_line(r);
        printf("epoch %lld/%lld: mean loss %s\n", (long long)epoch,
            (long long)r->job->training.epochs, loss_text(loss, text));
    }
    choir__report_flush(r);
}

void choir__cli_report_end(choir__cli_report *r, int64_t step, const char *option)
{
    if (r->job->records.json) {
        printf("{\"event\":\"end\",\"step\":%lld,\"by\":\"%s\"}\n", (long long)step, option);
    } else if (!r->job->records.quiet) {
        end_line(r);
        printf("training ends after step %lld, by --%s\n", (long long)step, option);
    }
    choir__report_flush(r);
}

void choir__cli_report_saved(choir__cli_report *r, int64_t step, const char *dir)
{
    if (r->job->records.json || r->job->records.quiet)
        return;
    choir__paragraph p;
    end_line(r);
    choir__paragraph_begin(&p);
    fprintf(p.out, "saved step %lld to %s\n", (long long)step, dir);
    choir__paragraph_end(&p, stdout);
}

static void summary_json(choir__cli_report *r, int64_t parameters, float loss,
    const choir_score *score, const char *sha256, const choir__device_figures *devices,
    int device_count)
{
    double median = median_step(r);
    printf("{\"event\":\"summary\",");
    choir__cli_print_string("model", r->job->model.info.config);
    printf(",");
    choir__cli_print_string("strategy", r->job->placement.strategy_text);
    printf(",\"world\":%d,\"microbatches\":%lld,\"steps\":%lld,\"parameters\":%lld",
        choir__cli_strategy_workers(r->job), (long long)r->job->training.microbatches,
        (long long)r->last, (long long)parameters);
    if (r->job->training.eval_epochs)
        printf(",\"epochs\":%lld", (long long)(r->last / r->job->training.epoch_steps));
    printf(",\"recompute\":%s,", r->job->optim.recompute ? "true" : "false");
    printf("\"amp\":\"%s\"", r->job->optim.amp ? r->job->optim.amp : "off");
    if (!isnan(r->scale)) {
        choir__report_number("loss_scale", r->scale);
        printf(",\"skipped_steps\":%lld", (long long)r->skipped);
    }
    if (choir_model_ignores(&r->job->model.info))
        printf(",\"steps_without_target\":%lld", (long long)r->without);
    choir__report_number("final_loss", (double)loss);
    choir__report_number("eval_loss", score->loss);
    choir__report_number("eval_accuracy", score->accuracy);
    choir__report_number("step_ms_median", median * 1e3);
    choir__report_number("items_per_s", median > 0 ? choir__report_items(r) / median : 0);
    choir__report_number("first_step_s", r->first_step_s);
    printf(",\"weights_sha256\":\"%s\",\"devices\":[", sha256);
    for (int i = 0; i < device_count; i++)
        printf("%s{\"device\":\"%s\",\"peak_bytes\":%llu,\"busy\":%.3f,\"comm_bytes\":%llu}",
            i ? "," : "", devices[i].device, (unsigned long long)devices[i].peak_bytes,
            devices[i].busy, (unsigned long long)devices[i].comm_bytes);
    printf("]}\n");
}

void choir__cli_report_summary(choir__cli_report *r, int64_t parameters, float loss,
    const choir_score *score, const char *sha256, const choir__device_figures *devices,
    int device_count)
{
    double median = median_step(r);
    end_line(r);
    if (r->job->records.json) {
        summary_json(r, parameters, loss, score, sha256, devices, device_count);
    } else {
        char text[32];
        choir__paragraph p;
        choir__paragraph_begin(&p);
        fprintf(
            p.out, "%lld steps: loss %s", (long long)r->last, loss_text((double)loss, text));
        if (!r->job->training.no_eval)
            fprintf(p.out, ", validation %s", loss_text(score->loss, text));
        if (isfinite(score->accuracy))
            fprintf(p.out, " (accuracy %.2f %%)", 100 * score->accuracy);
        if (r->skipped)
            fprintf(
                p.out, "; %lld steps skipped, loss scale %g", (long long)r->skipped, r->scale);
        if (median > 0)
            fprintf(p.out, "; %.4g ms a step, %.0f %s/s", median * 1e3,
                choir__report_items(r) / median, choir__report_items_name(r));
        fprintf(p.out, "\n");
        for (int i = 0; i < device_count && !r->job->records.quiet; i++)
            fprintf(p.out, "  %-8s peak %8.1f MiB   busy %3.0f %%   communicated %8.1f MiB\n",
                devices[i].device, (double)devices[i].peak_bytes / 1048576,
                100 * devices[i].busy, (double)devices[i].comm_bytes / 1048576);
        choir__paragraph_end(&p, stdout);
    }
    fflush(stdout);
    if (r->without)
        choir__cli_tell(r->job->command,
            "note: %lld of %lld steps had no target, and so no loss; a larger --batch-size or "
            "context gives more of them one",
            (long long)r->without, (long long)r->counted);
}

static void profile_json(choir_trace *trace, int64_t steps, double matmul_rate)
{
    int count;
    const choir_trace_line *line = choir_trace_profile(trace, &count);
    printf("{\"event\":\"profile\",\"steps\":%lld,\"matmul_gflops\":%.6g,\"kernels\":[",
        (long long)steps, matmul_rate * 1e-9);
    for (int i = 0; i < count; i++)
        printf("%s{\"name\":\"%s\",\"size\":\"%s\",\"calls\":%lld,\"ms\":%.6g,\"gflop\":%.6g}",
            i ? "," : "", line[i].name, line[i].shape, (long long)line[i].calls,
            line[i].seconds * 1e3, line[i].flops * 1e-9);
    printf("]}\n");
}

void choir__cli_report_profile(
    choir__cli_report *r, choir_trace *trace, int64_t steps, double matmul_rate)
{
    end_line(r);
    if (r->job->records.json) {
        profile_json(trace, steps, matmul_rate);
    } else if (!r->job->records.quiet) {
        printf("Profile of %lld steps; a matrix product of 1024 runs at %.1f GFLOP/s.\n",
            (long long)steps, matmul_rate * 1e-9);
        choir_trace_print(trace, stdout, matmul_rate);
    }
    fflush(stdout);
}

void choir__cli_report_free(choir__cli_report *r)
{
    end_line(r);
    free(r->step_s);
}
