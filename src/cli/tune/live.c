/* Lines below the table of a search, which are rewritten in place: the terminal's size is asked
 * each time, and text is cut or folded by the columns of its letters. They are erased before a
 * line of the table is printed, and drawn again soon. */
#include "cli/tune/live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/utf8.h"
#include "line/terminal.h"

enum { REASON_COLUMN = 7, REASON_LINES = 6 }; /* column of the trial's state */

/* --- columns --- */

static void measure(int *columns, int *rows)
{
    *columns = 80, *rows = 24;
    choir__terminal_size(STDOUT_FILENO, columns, rows);
    *columns -= 1; /* a full line would wrap on some terminals */
}

static int columns_now(void)
{
    int columns, rows;
    measure(&columns, &rows);
    return columns;
}

/* Returns the bytes of the first letter, and its columns. '?' stands for what no terminal
 * should get. */
static int letter_at(const char *text, const char *end, bool *good, int *columns)
{
    uint32_t code;
    int n = choir__letter(text, end, &code, columns);
    *good = code >= ' ' && choir__utf8_is_clean(text, n);
    return n;
}

/* Prints as much of a line (bytes) as has room, and returns its columns. */
static int print_cut(const char *text, size_t bytes, int columns)
{
    int used = 0, width;
    bool good;
    const char *end = text + bytes;
    for (int n; text < end; text += n) {
        n = letter_at(text, end, &good, &width);
        if (used + width > columns)
            break;
        used += width;
        if (good)
            fwrite(text, 1, (size_t)n, stdout);
        else
            putchar('?');
    }
    return used;
}

/* Returns the bytes of a text that one line has room for: up to a blank, if any. */
static size_t bytes_of_line(const char *text, size_t bytes, int columns)
{
    const char *at = text, *end = text + bytes, *blank = NULL;
    int used = 0, width;
    bool good;
    for (int n; at < end; at += n) {
        n = letter_at(at, end, &good, &width);
        if (*at == ' ')
            blank = at;
        if ((used += width) > columns)
            return (size_t)((blank && blank > text ? blank : at) - text);
    }
    return bytes;
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

void choir__live_print_reason(const char *text)
{
    size_t left = strcspn(text, "\n");
    int columns = columns_now(), indent = columns > 4 * REASON_COLUMN ? REASON_COLUMN : 0;
    columns = choir__max(columns - indent, 2);
    for (int i = 1; left > 0; i++) {
        bool last = i == REASON_LINES;
        size_t bytes = bytes_of_line(text, left, columns);
        bool cut = last && bytes < left;
        if (cut)
            bytes = bytes_of_line(text, left, columns - 1);
        printf("%*s", indent, "");
        print_cut(text, bytes, columns);
        puts(cut ? "…" : "");
        if (last)
            break;
        text += bytes, left -= bytes;
        while (left > 0 && *text == ' ')
            text++, left--;
    }
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
    if (l->drawn == l->most)
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

/* Writes the running trials, in the lines that are left. */
static void running_lines(const choir__live *l, const choir__live_facts *f, int left, FILE *out)
{
    bool all = f->running_count <= left;
    int shown = all ? f->running_count : choir__max(left - 1, 0);
    fprintf(out, "running %d\n", f->running_count);
    for (int i = 0; i < shown; i++) {
        running_line(&f->running[i], l->search->job.unit, out);
        fputc('\n', out);
    }
    if (!all)
        fprintf(out, "  and %d more\n", f->running_count - shown);
}

/* Returns the lines as one text, on the heap. */
static char *lines_of(choir__live *l, const choir__live_facts *f)
{
    char *text = NULL;
    size_t bytes;
    int used = 2; /* with "running" */
    FILE *out = open_memstream(&text, &bytes);
    count_line(l, f, out);
    fputc('\n', out);
    if (f->best) {
        best_line(l, f, out);
        fputc('\n', out);
        used++;
    }
    if (f->rungs) {
        rungs_line(f, out);
        fputc('\n', out);
        used++;
    }
    running_lines(l, f, l->most - used, out);
    fclose(out);
    return text;
}

void choir__live_draw(choir__live *l, const choir__live_facts *facts)
{
    if (!l->on)
        return;
    choir__live_erase(l);
    int rows;
    measure(&l->columns, &rows);
    l->most = choir__min(rows - 1, (int)CHOIR__LIVE_LINES); /* the cursor has the last row */
    l->at = choir__now();
    char *text = lines_of(l, facts), *rest = text, *next;
    while ((next = strsep(&rest, "\n")) && rest)
        line(l, next);
    free(text);
    fflush(stdout);
}
