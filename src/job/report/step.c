/* The line of a step: JSON for programs; for people a progress line that is rewritten on a
 * terminal and thinned out elsewhere. Its rate is the mean since the line before. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "line/fold.h"
#include "job/report/inside.h"
#include "line/self.h"

/* Returns the rate of the line that is being printed; the next line's begins here. */
static double rate_of_line(choir__cli_report *r)
{
    double rate =
        r->line_s > 0 ? choir__report_items(r) * (double)r->line_steps / r->line_s : 0;
    r->line_steps = 0;
    r->line_s = 0;
    return rate;
}

static void print_loss(const choir__cli_step *s)
{
    uint32_t bits;
    memcpy(&bits, &s->loss, sizeof bits);
    choir__report_number("loss", s->none ? (double)NAN : (double)s->loss);
    if (s->none)
        printf(",\"loss_bits\":null");
    else
        printf(",\"loss_bits\":\"0x%08x\"", bits);
}

/* On a terminal, a line is rewritten until a twentieth of the job is done, in steps or in the
 * time of --max-time, and then stays; so do the lines that --log-every asks for. */
static bool stays(const choir__cli_report *r, int64_t step)
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
static double time_left(const choir__cli_report *r, int64_t left)
{
    enum { LAST = 16 };
    double elapsed = choir__now() - r->first_end;
    int64_t later = r->steps - 1, n = choir__min(later, LAST);
    if (n < 1)
        return -1;
    double median = choir__report_median(r->step_s + r->steps - n, n);
    double between = choir__max(elapsed - (r->in_steps - r->step_s[0]), 0) / (double)later;
    return (median + between) * (double)left;
}

static void progress(choir__cli_report *r, const choir__cli_step *s)
{
    char line[320] = "";
    int64_t done = s->number - r->first, left = r->job->training.steps - s->number;
    bool last = left == 0, due = choir__now() - r->last_line > (r->terminal ? 0.1 : 2);
    bool stay = stays(r, s->number);
    due |= r->terminal && stay;
    if (r->job->records.log_every ? s->number % r->job->records.log_every && !last
                                  : !due && !last && done > 1)
        return;
    r->last_line = choir__now();
    r->stayed = stay ? r->last_line : r->stayed;
    double rest = time_left(r, left);
    add_field(line, sizeof line, "step %lld/%lld", (long long)s->number,
        (long long)r->job->training.steps);
    if (s->none)
        add_field(line, sizeof line, "loss -");
    else
        add_field(line, sizeof line, "loss %.4f", (double)s->loss);
    add_field(line, sizeof line, "lr %.3g", s->lr);
    add_field(line, sizeof line, "%.0f %s/s", rate_of_line(r), choir__report_items_name(r));
    if (rest >= 0)
        add_field(line, sizeof line, "%lld:%02d left", (long long)rest / 60,
            (int)((long long)rest % 60));
    printf("%s%.*s%s", r->terminal ? "\r\033[K" : "", choir__fold_columns(STDOUT_FILENO), line,
        stay ? "\n" : "");
    r->line_open = !stay;
    choir__report_flush(r);
}

void choir__cli_report_note(choir__cli_report *r, double seconds)
{
    if (!r->steps)
        r->first_step_s = choir__cli_uptime();
    if (!(r->steps & (r->steps - 1))) /* 0 or a power of two: full */
        r->step_s = choir__realloc(r->step_s, (size_t)(2 * r->steps + 1) * sizeof *r->step_s);
    r->step_s[r->steps++] = seconds;
    r->in_steps += seconds;
    if (r->steps == 1)
        r->first_end = choir__now();
}

void choir__cli_report_step(choir__cli_report *r, const choir__cli_step *s)
{
    r->last = s->number;
    r->line_steps++;
    r->line_s += s->seconds;
    if (r->job->records.quiet && !r->job->records.json)
        return;
    if (!r->job->records.json) {
        progress(r, s);
        return;
    }
    if (r->job->records.log_every && s->number % r->job->records.log_every &&
        s->number != r->job->training.steps)
        return;
    printf("{\"event\":\"step\",\"step\":%lld", (long long)s->number);
    print_loss(s);
    printf(",\"items_per_s\":%.6g", rate_of_line(r));
    choir__report_number("grad_norm", s->grad_norm);
    printf(",\"lr\":%.7g", s->lr); /* as many digits as a float has */
    if (!isnan(r->scale))
        choir__report_number("loss_scale", r->scale);
    printf("}\n");
    if (r->terminal || s->seconds > 0.05)
        choir__report_flush(r);
}
