/* The lines below the table: see live.h. */
#include "cli/tune/live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/base.h"
#include "data/tokenizer/utf8.h"

/* --- columns --- */

static int columns_now(void)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    return known ? size.ws_col - 1 : 79; /* a full line would wrap on some terminals */
}

/* Prints as much of a line (bytes) as has room, and returns its columns. Letters from Hangul on
 * may take two. */
static int print_cut(const char *text, size_t bytes, int columns)
{
    int used = 0;
    const char *end = text + bytes;
    for (int n; text < end; text += n) {
        uint32_t code;
        n = choir__utf8_decode(text, end, &code);
        if (n <= 0)
            code = '?', n = 1;
        int width = code >= 0x1100 ? 2 : 1;
        if (used + width > columns)
            break;
        used += width;
        if (code == '?' || code < ' ' || code == 0x7f)
            putchar('?');
        else
            fwrite(text, 1, (size_t)n, stdout);
    }
    return used;
}

void choir__live_print(const choir__live *l, const char *text)
{
    size_t bytes = strcspn(text, "\n");
    if (l && l->on)
        print_cut(text, bytes, columns_now());
    else
        fwrite(text, 1, bytes, stdout);
    putchar('\n');
    fflush(stdout);
}

/* --- the lines --- */

void choir__live_begin(choir__live *l, const choir__search *search)
{
    const char *term = getenv("TERM");
    *l = (choir__live){.search = search, .began = choir__now()};
    l->on = !search->json && !search->quiet && isatty(STDOUT_FILENO) && term &&
            strcmp(term, "dumb") != 0;
}

bool choir__live_due(const choir__live *l)
{
    return l->on && choir__now() - l->at > CHOIR__LIVE_MS / 1e3;
}

/* A terminal that has become narrower has wrapped the lines. */
void choir__live_erase(choir__live *l)
{
    if (!l->drawn)
        return;
    int columns = columns_now() + 1, rows = 0;
    for (int i = 0; i < l->drawn; i++)
        rows += 1 + (l->width[i] > 0 ? (l->width[i] - 1) / columns : 0);
    printf("\033[%dA\r\033[J", rows);
    l->drawn = 0;
    l->at = 0; /* to be drawn again soon */
    fflush(stdout);
}

static void line(choir__live *l, const char *text)
{
    if (l->drawn == CHOIR__LIVE_LINES)
        return;
    l->width[l->drawn++] = print_cut(text, strlen(text), l->columns);
    putchar('\n');
}

/* Writes "2 h 05 min", "3 min 20 s" or "12 s". */
static void duration(double seconds, FILE *out)
{
    int64_t s = (int64_t)seconds;
    if (s >= 3600)
        fprintf(out, "%lld h %02d min", (long long)(s / 3600), (int)(s / 60 % 60));
    else if (s >= 60)
        fprintf(out, "%d min %02d s", (int)(s / 60), (int)(s % 60));
    else
        fprintf(out, "%d s", (int)s);
}

/* "63 of 200, 2 failed, 12 s left": the shortest lines that 40 columns have room for. */
static void count_line(choir__live *l, const choir__live_facts *f, FILE *out)
{
    double passed = choir__now() - l->began;
    fprintf(out, "%lld of %lld", (long long)f->ended, (long long)f->trials);
    if (f->failed)
        fprintf(out, ", %lld failed", (long long)f->failed);
    if (f->stopped)
        fprintf(out, ", %lld stopped", (long long)f->stopped);
    fprintf(out, ", ");
    if (f->can_predict && f->here > 1) {
        duration(passed / (double)f->here * (double)(f->trials - f->ended), out);
        fprintf(out, " left");
    } else {
        duration(passed, out);
    }
}

static void best_line(const choir__live *l, const choir__live_facts *f, FILE *out)
{
    const choir__trial_job *job = &l->search->job;
    fprintf(out, "best %lld:", (long long)choir_trial_number(f->best));
    for (int i = 0; i < job->metrics; i++)
        fprintf(out, "%s %s %.6g", i ? "," : "", job->metric[i], choir_trial_value(f->best, i));
    for (int i = 0; i < choir_space_count(l->search->space); i++) {
        const char *name = choir_space_name(l->search->space, i);
        double x = choir_trial_real(f->best, name);
        if (choir_trial_has(f->best, name) && isnan(x))
            fprintf(out, ", %s %s", name, choir_trial_text(f->best, name));
        else if (!isnan(x))
            fprintf(out, ", %s %.4g", name, x);
    }
}

static void rungs_line(const choir__live_facts *f, FILE *out)
{
    fprintf(out, "rungs");
    for (int i = 0; i < f->rungs; i++)
        fprintf(out, "%s %lld: %lld", i ? "," : "", (long long)f->rung[i].step,
            (long long)f->rung[i].ended);
}

static void running_line(const choir__live_trial *t, const char *unit, FILE *out)
{
    fprintf(out, "  trial %lld", (long long)t->number);
    if (t->step >= 0)
        fprintf(out, ", %s %lld: %.6g", unit, (long long)t->step, t->value);
}

/* The lines as one text, on the heap. */
static char *lines_of(choir__live *l, const choir__live_facts *f)
{
    enum { BESIDE = 5 }; /* lines that are not about running trials */
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    count_line(l, f, out);
    fputc('\n', out);
    if (f->best) {
        best_line(l, f, out);
        fputc('\n', out);
    }
    if (f->rungs) {
        rungs_line(f, out);
        fputc('\n', out);
    }
    int shown = (int)choir__min(f->running_count, CHOIR__LIVE_LINES - BESIDE);
    fprintf(out, "running %d\n", f->running_count);
    for (int i = 0; i < shown; i++) {
        running_line(&f->running[i], l->search->job.unit, out);
        fputc('\n', out);
    }
    if (shown < f->running_count)
        fprintf(out, "  and %d more\n", f->running_count - shown);
    fclose(out);
    return text;
}

void choir__live_draw(choir__live *l, const choir__live_facts *facts)
{
    if (!l->on)
        return;
    choir__live_erase(l);
    l->columns = columns_now();
    l->at = choir__now();
    char *text = lines_of(l, facts), *rest = text, *next;
    while ((next = strsep(&rest, "\n")) && rest)
        line(l, next);
    free(text);
    fflush(stdout);
}
