/* choir top: the activity of this user's Choir processes.
 *
 * Every process that uses a device or a group publishes its figures on a board that others can
 * read (base/board/board.h). top needs no help from the processes, so it also shows those that
 * hang or are stopped. A round reads all boards; the use of a device follows from two rounds.
 * On a terminal, rounds are shown in place; elsewhere there is only one. Other machines tell
 * about their processes through a command of the user's (machines.h). */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "line/command.h"
#include "cli/machines.h"
#include "line/terminal.h"

static const double first_look_s = 0.25; /* from the first look to the one that is shown */
static const double far_s = 15;          /* for the first news of other machines */

typedef struct top {
    bool once, json, dump;
    double interval_s;
    const char *hosts, *through; /* --hosts and --through; hosts NULL: this machine alone */
    int *pids, pid_count;        /* only these; none: all */
    choir__ranks_view view;
} top;

/* --- the table --- */

/* The terminal: longer lines are cut, and further rows are left out. */
typedef struct screen {
    bool live;
    int columns, rows; /* 0: no limit */
    int row;
} screen;

/* The columns left of the collective, which keeps at least 18 of a terminal of 40: the fewer
 * there are, the fewer figures of a device are shown. */
typedef enum layout { NARROW, MEDIUM, WIDE } layout;

static layout layout_of(const screen *s)
{
    return !s->columns || s->columns >= 96 ? WIDE : s->columns >= 60 ? MEDIUM : NARROW;
}

static void put(screen *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(screen *s, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (s->rows && ++s->row >= s->rows)
        return;
    printf(
        "%.*s%s\n", s->columns ? s->columns : (int)sizeof line, line, s->live ? "\033[K" : "");
}

static const char *bytes_text(uint64_t bytes, char text[16])
{
    if (bytes < 1024 * 1024)
        snprintf(text, 16, "%.0fK", (double)bytes / 1024);
    else if (bytes < (uint64_t)10240 * 1024 * 1024)
        snprintf(text, 16, "%.0fM", (double)bytes / 1048576);
    else
        snprintf(text, 16, "%.1fG", (double)bytes / 1073741824);
    return text;
}

static void put_head(screen *s)
{
    static const char *const heads[] = {
        [NARROW] = "rank     pid busy  collective",
        [MEDIUM] = " rank      pid  device       now  busy  collective",
        [WIDE] = " rank      pid  device       now    peak   limit  busy     queue  collective",
    };
    put(s, "%s", heads[layout_of(s)]);
}

static void put_device(screen *s, const char *rank, int pid, const choir__seen_device *d,
    double busy, const char *at)
{
    char now[16], peak[16], limit[16];
    double percent = 100 * busy;
    switch (layout_of(s)) {
    case NARROW: put(s, "%4s %7.0d %3.0f%%  %s", rank, pid, percent, at); return;
    case MEDIUM:
        put(s, "%5s %8.0d  %-8s %7s %4.0f%%  %s", rank, pid, d->name, bytes_text(d->now, now),
            percent, at);
        return;
    default:
        put(s, "%5s %8.0d  %-8s %7s %7s %7s %4.0f%% %9" PRIu64 "  %s", rank, pid, d->name,
            bytes_text(d->now, now), bytes_text(d->peak, peak),
            d->limit ? bytes_text(d->limit, limit) : "-", percent, d->queued, at);
    }
}

static void put_process(screen *s, const choir__seen *seen, const choir__seen *before)
{
    static const int gaps[] = {[MEDIUM] = 14, [WIDE] = 40};
    char rank[16] = "-", at[400];
    layout l = layout_of(s);
    if (seen->who.rank >= 0)
        snprintf(rank, sizeof rank, "%d", seen->who.rank);
    choir__snapshot_doing(seen, at, sizeof at);
    if (!seen->device_count && l == NARROW)
        put(s, "%4s %7d    -  %s", rank, seen->pid, at);
    else if (!seen->device_count)
        put(s, "%5s %8d  %-8s%*s  %s", rank, seen->pid, "-", gaps[l], "", at);
    for (int i = 0; i < seen->device_count; i++)
        put_device(s, i ? "" : rank, i ? 0 : seen->pid, &seen->devices[i],
            choir__seen_busy(seen, before, i), i ? "" : at);
}

/* Prints the line above the ranks of a job. */
static void put_job(screen *s, const choir__ranks_view *v, int first)
{
    const choir__snapshot *l = &v->now;
    const choir__seen *seen = l->seen[first];
    char age[24], here[32] = "", since[32] = "", where[80] = "";
    int count = 1, machines = choir__view_machines(v, first);
    if (machines > 1)
        snprintf(where, sizeof where, " on %d machines", machines);
    else if (v->machines)
        snprintf(where, sizeof where, " on %s", seen->who.host);
    while (first + count < l->count && l->seen[first + count]->who.job == seen->who.job)
        count++;
    if (seen->who.job && count != seen->who.world)
        snprintf(here, sizeof here, ", %d %s", count, machines > 1 ? "seen" : "here");
    if (seen->who.generation > 1)
        snprintf(since, sizeof since, ", generation %d", seen->who.generation);
    const char *what = *seen->command ? seen->command : seen->who.program;
    choir__duration_text(seen->at - seen->who.started, age);
    if (seen->who.job)
        put(s, "job %08" PRIx64 ", %d rank%s%s%s%s, up %s: %s", seen->who.job >> 32,
            seen->who.world, seen->who.world == 1 ? "" : "s", where, here, since, age, what);
    else
        put(s, "no job%s, up %s: %s", where, age, what);
}

/* Names the rank of a job for which the others wait. */
static void put_slow(screen *s, const choir__ranks_view *v, int from)
{
    choir__slow_rank slow = choir__snapshot_slow(&v->now, from, &v->before);
    char cost[48] = "";
    if (slow.rank < 0)
        return;
    if (slow.per_step > 0)
        snprintf(cost, sizeof cost, ", %.2g s per step", slow.per_step);
    put(s, "rank %d is slow: the others wait for it %.0f %% of the time%s", slow.rank,
        100 * slow.share, cost);
}

static void put_troubles(screen *s, const choir__machines *machines)
{
    char text[CHOIR__TROUBLE_TEXT];
    for (int i = 0; machines && choir__machines_trouble(machines, i, text); i++)
        if (*text)
            put(s, "%s", text);
}

static void print_table(screen *s, const choir__ranks_view *v)
{
    const choir__snapshot *l = &v->now;
    bool on_many = false;
    if (!l->count)
        put(s, "No process of yours uses Choir now.");
    else
        put_head(s);
    for (int i = 0; i < l->count; i++) {
        const choir__seen *seen = l->seen[i];
        bool begins = !i || !seen->who.job || seen->who.job != l->seen[i - 1]->who.job;
        if (begins) {
            put_job(s, v, i);
            put_slow(s, v, i);
            on_many = choir__view_machines(v, i) > 1;
        }
        if (on_many && (begins || strcmp(seen->who.host, l->seen[i - 1]->who.host) != 0))
            put(s, "on %s:", seen->who.host);
        put_process(s, seen, choir__snapshot_earlier(&v->before, seen));
    }
    put_troubles(s, v->machines);
}

/* --- rounds --- */

static volatile sig_atomic_t told_to_stop;

static void stop(int number)
{
    (void)number;
    told_to_stop = 1;
}

/* Waits, and returns true if the user ends the program. */
static bool pause_for(double seconds, bool keys)
{
    struct pollfd input = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
    char key = 0;
    if (poll(&input, 1, (int)(seconds * 1e3)) > 0 && read(STDIN_FILENO, &key, 1) <= 0)
        return true;
    return told_to_stop || key == 'q' || key == 'Q';
}

/* Looks a first time, waits for other machines, and looks again if the use of devices is shown.
 */
static void look_twice(top *t, bool again)
{
    choir__ranks_view *v = &t->view;
    choir__view_look(v, t->pids, t->pid_count);
    if (v->machines)
        choir__machines_wait(v->machines, &v->here[0], far_s);
    else if (again && v->now.count)
        pause_for(first_look_s, false);
    if (again || v->machines)
        choir__view_look(v, t->pids, t->pid_count);
}

static void one_round(top *t)
{
    screen s = {0};
    const choir__snapshot *now = &t->view.now;
    look_twice(t, true);
    for (int i = 0; i < now->count && t->json; i++)
        choir__seen_json(
            now->seen[i], choir__snapshot_earlier(&t->view.before, now->seen[i]), stdout);
    if (!t->json)
        print_table(&s, &t->view);
}

static void refresh(top *t)
{
    struct termios old, silent;
    struct sigaction ours = {.sa_handler = stop};
    bool keys = tcgetattr(STDIN_FILENO, &old) == 0;
    sigaction(SIGINT, &ours, NULL);
    sigaction(SIGTERM, &ours, NULL);
    sigaction(SIGHUP, &ours, NULL);
    if (keys) {
        silent = old;
        silent.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        tcsetattr(STDIN_FILENO, TCSANOW, &silent);
    }
    choir__view_look(&t->view, t->pids, t->pid_count);
    bool enough = pause_for(first_look_s, keys);
    printf("\033[?1049h\033[?25l"); /* the other screen, without a cursor */
    while (!enough) {
        screen s = {.live = true};
        choir__view_look(&t->view, t->pids, t->pid_count);
        choir__terminal_size(STDOUT_FILENO, &s.columns, &s.rows);
        printf("\033[H");
        print_table(&s, &t->view);
        printf("\033[J");
        fflush(stdout);
        enough = pause_for(t->interval_s, keys);
    }
    printf("\033[?25h\033[?1049l");
    fflush(stdout);
    if (keys)
        tcsetattr(STDIN_FILENO, TCSANOW, &old);
}

static void dump(top *t)
{
    const choir__snapshot *now = &t->view.now;
    look_twice(t, false);
    for (int i = 0; i < now->count; i++)
        if (t->json)
            choir__seen_calls_json(now->seen[i], stdout);
        else
            choir__seen_print(now->seen[i], stdout);
    if (!now->count && !t->json)
        printf("No process of yours uses Choir now.\n");
}

/* Prints why machines are not seen, where the table does not; returns an exit status. */
static int report_troubles(const top *t, bool in_table)
{
    char text[CHOIR__TROUBLE_TEXT];
    int status = CHOIR__EXIT_OK;
    for (int i = 0; t->view.machines && choir__machines_trouble(t->view.machines, i, text); i++)
        if (*text) {
            status = CHOIR__EXIT_FAILED;
            if (!in_table)
                fprintf(stderr, "choir top: %s\n", text);
        }
    return status;
}

/* --- the command --- */

static int read_pids(top *t, const choir__line_operands *operands)
{
    t->pids = choir__calloc((size_t)operands->count + 1, sizeof *t->pids);
    for (int i = 0; i < operands->count; i++) {
        int64_t pid;
        if (!choir__parse_int(operands->words[i], 1, INT32_MAX, &pid))
            return choir__line_usage(
                "top", "expected the number of a process, got '%s'", operands->words[i]);
        t->pids[t->pid_count++] = (int)pid;
    }
    return CHOIR__EXIT_OK;
}

/* Returns whether the figures of all named processes can be read. */
static bool all_there(const top *t)
{
    for (int i = 0; i < t->pid_count; i++) {
        choir__seen *seen = choir__flight_read(t->pids[i]);
        if (!seen) {
            choir__error(CHOIR_ERR_ARGUMENT,
                "process %d shows nothing: it is gone, another user's, or does not use Choir",
                t->pids[i]);
            return false;
        }
        choir__seen_free(seen);
    }
    return true;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    top t = {0};
    choir__line_operands operands;
    int status = choir__line_parse(command, &t, argc, argv, &operands);
    if (status == CHOIR__EXIT_OK)
        status = read_pids(&t, &operands);
    if (status == CHOIR__EXIT_OK && !all_there(&t))
        status = choir__line_fail();
    if (status == CHOIR__EXIT_OK && t.hosts &&
        choir__machines_open(t.hosts, t.through, t.interval_s, &t.view.machines) != CHOIR_OK)
        status = choir__line_fail();
    bool once = t.once || t.json || !isatty(STDOUT_FILENO);
    if (status == CHOIR__EXIT_OK && t.dump)
        dump(&t);
    else if (status == CHOIR__EXIT_OK && once)
        one_round(&t);
    else if (status == CHOIR__EXIT_OK)
        refresh(&t);
    if (status == CHOIR__EXIT_OK && (t.dump || once))
        status = report_troubles(&t, !t.dump && !t.json);
    choir__view_free(&t.view);
    free(t.pids);
    return status;
}

#define AT(member) CHOIR__LINE_AT(top, member)

static const choir__line_option options[] = {
    {"once", CHOIR__FLAG, AT(once), .help = "print one table and exit"},
    {"interval", CHOIR__FLOAT, AT(interval_s), 0.05, 3600, .preset = "1", .argument = "S",
        .help = "seconds between two refreshes"},
    {"hosts", CHOIR__STRING, AT(hosts), .argument = "NAME,...",
        .help =
            "also show your processes on these machines; all: on all machines of the jobs that "
            "run here"},
    {"through", CHOIR__STRING, AT(through), .preset = CHOIR__MACHINES_THROUGH,
        .argument = "COMMAND", .help = "command that runs a command on machine {}"},
    {"dump", CHOIR__FLAG, AT(dump),
        .help = "print the last collectives of every group, with their times"},
    {"json", CHOIR__FLAG, AT(json),
        .help = "print JSON once: one process (with --dump: one collective) per line"},
    {NULL},
};

const choir__line_command choir__cli_top = {
    .name = "top",
    .summary = "show live processes: memory, utilisation, collectives",
    .usage = "[OPTION]... [PID]...",
    .about =
        "Shows what your processes that use Choir (or those named) are doing: by job and rank, "
        "the memory of each device, how busy it was since the last look, the tasks in its queue, "
        "and the collective that the rank is in. It also works on processes that hang or are "
        "stopped. On a terminal the table is refreshed until you press q.",
    .example = "  choir top\n  choir top --dump 4711\n  choir top --hosts all",
    .options = options,
    .most = INT_MAX,
    .run = run,
};
