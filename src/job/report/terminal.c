/* Standard output for people: a sentence per event, and a progress line that is rewritten on a
 * terminal and thinned out elsewhere. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "job/report/report.h"
#include "job/trainer/metric.h"
#include "line/terminal.h"

/* Ends the progress line if one is open, so that the next text begins a new line. */
static void end_line(choir__job_report *r)
{
    if (r->line_open)
        printf("\n");
    r->line_open = false;
}

static const char *items_name(const choir__job_report *r)
{
    return r->job->model.info.items > 1 ? "tokens" : "samples";
}

/* "2.5", or "-" where no target counted. */
static const char *loss_text(double loss, char text[32])
{
    if (isnan(loss))
        return "-";
    snprintf(text, 32, "%.4f", loss);
    return text;
}

/* --- the progress line --- */

/* On a terminal, a line is rewritten until a twentieth of the job is done, in steps or in the
 * time of --max-time, and then stays; so do the lines that --log-every asks for. */
static bool stays(const choir__job_report *r, int64_t step)
{
    enum { LINES = 20 };
    int64_t steps = choir__max(r->job->training.steps - r->first, 1), done = step - r->first;
    int64_t each = choir__max(steps / LINES, 1);
    double limit = choir__job_seconds(r->job->training.max_time);
    bool by_time =
        limit > 0 && choir__now() - choir__max(r->stayed, r->started) > limit / LINES;
    return !r->terminal || r->job->records.log_every || by_time || done % each == 0;
}

/* Adds a field to the line if it fits, with those before it, in the terminal. */
__attribute__((format(printf, 3, 4))) static void add_field(
    char *line, size_t bytes, const char *format, ...)
{
    char field[64];
    va_list args;
    va_start(args, format);
    vsnprintf(field, sizeof field, format, args);
    va_end(args);
    size_t used = strlen(line), more = strlen(field) + (used ? 2 : 0);
    if (!used || used + more <= (size_t)choir__fold_columns(STDOUT_FILENO))
        snprintf(line + used, bytes - used, "%s%s", used ? "  " : "", field);
}

/* Returns the seconds that `left` steps will take, each as long as the median of the last ones
 * and as long as the time between two steps so far; -1: it is not known yet, since the first
 * step does more work than others. */
static double time_left(const choir__job_report *r, int64_t left)
{
    enum { LAST = 16 };
    double elapsed = choir__now() - r->first_end;
    int64_t later = r->steps - 1, n = choir__min(later, LAST);
    if (n < 1)
        return -1;
    double median = choir__job_report_median(r->step_s + r->steps - n, n);
    double between = choir__max(elapsed - (r->in_steps - r->step_s[0]), 0) / (double)later;
    return (median + between) * (double)left;
}

/* Writes a rate; one of few items per second has two digits, so none is zero. */
static const char *rate_text(double rate, char text[32])
{
    snprintf(text, 32, rate < 9.95 ? "%#.2g" : "%.0f", rate);
    return text;
}

static void progress(choir__job_report *r, const choir__told_step *s)
{
    char line[320] = "", rate[32];
    int64_t done = s->step - r->first, left = r->job->training.steps - s->step;
    bool last = left == 0, due = choir__now() - r->last_line > (r->terminal ? 0.1 : 2);
    bool stay = stays(r, s->step);
    due |= r->terminal && stay;
    if (r->job->records.log_every ? !choir__job_report_is_due(r, s->step)
                                  : !due && !last && done > 1)
        return;
    r->last_line = choir__now();
    r->stayed = stay ? r->last_line : r->stayed;
    double rest = time_left(r, left);
    add_field(line, sizeof line, "step %lld/%lld", (long long)s->step,
        (long long)r->job->training.steps);
    if (!s->loss_bits)
        add_field(line, sizeof line, "loss -");
    else
        add_field(line, sizeof line, "loss %.4f", s->loss);
    add_field(line, sizeof line, "lr %.3g", s->lr);
    add_field(line, sizeof line, "%s %s/s", rate_text(choir__job_report_rate_of_line(r), rate),
        items_name(r));
    if (rest >= 0)
        add_field(line, sizeof line, "%lld:%02d left", (long long)rest / 60,
            (int)((long long)rest % 60));
    printf("%s%.*s%s", r->terminal ? "\r\033[K" : "", choir__fold_columns(STDOUT_FILENO), line,
        stay ? "\n" : "");
    r->line_open = !stay;
    choir__job_report_flush(r);
}

/* --- sentences --- */

static void say_begin(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_begin *b = told;
    const choir__job *job = r->job;
    int workers = (int)b->world;
    bool alone = workers == 1 && choir__job_strategy_has_ranks(job->placement.strategy) &&
                 !choir__job_was_given(job, CHOIR__JOB_OPTION(placement.nproc)) &&
                 !job->ranks.launched;
    fprintf(out, "%s: %lld parameters, %s on %d %s%s%s, %lld micro-batch%s of %lld samples%s\n",
        job->model.info.config, (long long)b->parameters, b->strategy, workers,
        job->placement.strategy->spread == CHOIR__ALL_DEVICES ? "device" : "rank", /* no key */
        workers > 1 ? "s" : "", alone ? " (--nproc N starts more)" : "",
        (long long)job->training.microbatches, job->training.microbatches > 1 ? "es" : "",
        (long long)(job->training.batch_size / job->training.microbatches),
        job->optim.recompute ? ", recomputing" : "");
    if (job->placement.automatic) {
        char *choice = choir__job_auto_text(job);
        fprintf(out, "%s\n", choice);
        free(choice);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (job->placement.threads > cores)
        fprintf(out, "%lld threads per device take turns on %ld core%s\n",
            (long long)job->placement.threads, cores, cores > 1 ? "s" : "");
    if (job->optim.amp && strcmp(job->optim.amp, "off") != 0)
        fprintf(out, "mixed precision: %s\n", job->optim.amp);
}

/* "the run goes back from step 20 to step 10, and leaves out the batches 12:16" */
static void say_edit(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_edit *e = told;
    (void)r;
    if (e->rewound_from >= 0)
        fprintf(out, "the run goes back from step %lld to step %lld%s",
            (long long)e->rewound_from, (long long)e->step, e->skip_batches ? ", and " : "\n");
    if (e->skip_batches)
        fprintf(out, "%sleaves out the batches %s\n", e->rewound_from >= 0 ? "" : "the run ",
            e->skip_batches);
}

/* "rank 1 (pid 77) was killed by SIGKILL (Killed); rank 2 is new: 3 ranks continue from step
 * 17, after 0.06 s" */
static void say_membership(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_membership *m = told;
    fprintf(out, "choir %s: ", r->job->command);
    for (int i = 0; i < m->left_count; i++)
        fprintf(out, "%srank %lld (pid %lld) %s", i ? "; " : "", (long long)m->left[i].rank,
            (long long)m->left[i].pid, m->left[i].why);
    for (int i = 0; i < m->joined_count; i++)
        fprintf(out, "%srank %lld is new", i || m->left_count ? "; " : "",
            (long long)m->joined[i].rank);
    fprintf(out, ": %lld rank%s from step %lld, after %.2g s\n", (long long)m->world,
        m->world > 1 ? "s continue" : " continues", (long long)m->step, m->resumed_s);
}

/* "rank 3 on node 1 is slow: the others wait 0.12 s of 0.5 s per step for it" */
static void say_straggler(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_straggler *s = told;
    char node[32] = "";
    if (s->node >= 0)
        snprintf(node, sizeof node, " on node %lld", (long long)s->node);
    fprintf(out,
        "choir %s: rank %lld%s is slow: the others wait %.2g s of %.2g s per step for it\n",
        r->job->command, (long long)s->rank, node, s->cost_s, s->step_s);
}

static void say_eval(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_eval *e = told;
    char text[32];
    (void)r;
    fprintf(out, "validation after step %lld: loss %s", (long long)e->step,
        loss_text(e->loss, text));
    if (isfinite(e->accuracy))
        fprintf(out, ", accuracy %.2f %%", 100 * e->accuracy);
    if (isfinite(e->metric) && e->metric_name)
        fprintf(out, ", %s %.6g", e->metric_name, e->metric);
    fprintf(out, e->best ? ", the best so far\n" : "\n");
}

static void say_epoch(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_epoch *e = told;
    char text[32];
    fprintf(out, "epoch %lld/%lld: mean loss %s\n", (long long)e->epoch,
        (long long)r->job->training.epochs, loss_text(e->loss, text));
}

/* The sentence about a signal is the error with which the training ends. */
static void say_stop(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_stop *s = told;
    (void)r;
    if (s->by)
        fprintf(out, "training ends after step %lld, by --%s\n", (long long)s->step, s->by);
}

static void say_checkpoint(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_checkpoint *c = told;
    fprintf(out, "saved step %lld to %s\n", (long long)c->step, r->job->saves.dir);
}

/* Returns whether ranks call their devices alike, as ranks of a launcher may on one machine and
 * do on several. */
static bool names_repeat(const choir__told_summary *s)
{
    for (int i = 1; i < s->devices_count; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(s->devices[i].device, s->devices[k].device))
                return true;
    return false;
}

static void say_summary(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_summary *s = told;
    char text[32];
    fprintf(out, "%lld step%s: loss %s", (long long)s->steps, s->steps == 1 ? "" : "s",
        loss_text(s->final_loss, text));
    if (!r->job->training.no_eval)
        fprintf(out, ", validation %s", loss_text(s->eval_loss, text));
    if (isfinite(s->eval_accuracy))
        fprintf(out, " (accuracy %.2f %%)", 100 * s->eval_accuracy);
    char name[CHOIR__METRIC_NAME];
    choir__metric_name(&r->job->training, name);
    if (isfinite(s->eval_metric) && *name)
        fprintf(out, ", %s %.6g", name, s->eval_metric);
    if (s->skipped_steps > 0)
        fprintf(out, "; %lld steps skipped, loss scale %g", (long long)s->skipped_steps,
            s->loss_scale);
    bool slow = s->step_ms_median >= 1e4;
    const char *unit = slow ? "s" : "ms"; /* no keys */
    if (s->step_ms_median > 0)
        fprintf(out, "; %.4g %s per median step (%s %s/s)",
            slow ? s->step_ms_median / 1e3 : s->step_ms_median, unit,
            rate_text(s->items_per_s, text), items_name(r));
    fprintf(out, "\n");
    bool repeat = names_repeat(s);
    int each = choir__max(s->devices_count / choir__max(r->job->ranks.world, 1), 1);
    for (int i = 0; i < s->devices_count && !r->job->records.quiet; i++) {
        char rank[32] = "";
        if (repeat)
            snprintf(rank, sizeof rank, "rank %-2d ", i / each);
        fprintf(out, "  %s%-8s peak %8.1f MiB   busy %3.0f %%   communicated %8.1f MiB\n", rank,
            s->devices[i].device, (double)s->devices[i].peak_bytes / 1048576,
            100 * s->devices[i].busy, (double)s->devices[i].comm_bytes / 1048576);
    }
}

static void say_profile(const choir__job_report *r, const void *told, FILE *out)
{
    const choir__told_profile *p = told;
    fprintf(out, "Profile of %lld steps; a matrix product of 1024 runs at %.1f GFLOP/s.\n",
        (long long)p->steps, p->matmul_gflops);
    choir_trace_print(r->trace, out, p->matmul_gflops * 1e9);
}

/* WHOLE: the text is a table or a line of its own, which is not folded. QUIETLY: it is printed
 * with --quiet, too. */
enum { WHOLE = 1, QUIETLY = 2, ON_STDERR = 4 };

static const struct sentence {
    const choir__event_kind *kind;
    void (*say)(const choir__job_report *r, const void *told, FILE *out);
    unsigned how;
} sentences[] = {
    {&choir__kind_begin, say_begin, 0},
    {&choir__kind_edit, say_edit, 0},
    {&choir__kind_eval, say_eval, 0},
    {&choir__kind_epoch, say_epoch, WHOLE},
    {&choir__kind_checkpoint, say_checkpoint, 0},
    {&choir__kind_membership, say_membership, ON_STDERR},
    {&choir__kind_straggler, say_straggler, ON_STDERR},
    {&choir__kind_stop, say_stop, WHOLE},
    {&choir__kind_profile, say_profile, WHOLE},
    {&choir__kind_summary, say_summary, QUIETLY},
};

static void say(choir__job_report *r, const struct sentence *s, const void *told)
{
    choir__paragraph p;
    end_line(r);
    if (s->how & WHOLE) {
        s->say(r, told, stdout);
        return;
    }
    choir__paragraph_begin(&p);
    s->say(r, told, p.out);
    choir__paragraph_end(&p, s->how & ON_STDERR ? stderr : stdout);
}

void choir__job_report_say(choir__job_report *r, const choir__record_event *e)
{
    bool json = r->job->records.json, quiet = r->job->records.quiet;
    for (size_t i = 0; i < CHOIR_COUNT(sentences); i++) {
        const struct sentence *s = &sentences[i];
        if (s->kind == e->table &&
            (s->how & ON_STDERR || (!json && (!quiet || s->how & QUIETLY))))
            say(r, s, e->told);
    }
}

static choir_status event(choir__recorder *base, const choir__record_event *e)
{
    choir__job_report *r = (choir__job_report *)base;
    if (e->table != &choir__kind_step) {
        choir__job_report_say(r, e);
        choir__job_report_flush(r);
    } else if (!r->job->records.quiet) {
        progress(r, e->told);
    }
    return CHOIR_OK;
}

const choir__recorder_ops choir__recorder_terminal = {.name = "terminal", .event = event};
