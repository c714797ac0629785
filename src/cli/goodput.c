/* choir goodput: where the time of a run went, from the records in its folder.
 *
 * A session is the life of a process that trained: it begins run_s before its "begin" event and
 * ends with its last record, or with the last of its rows that a later session has dropped. The
 * causes within a session are what the records say of them; the rest is "other". Between two
 * sessions nothing ran. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/files/file.h"
#include "base/files/run_files.h"
#include "base/text.h"
#include "cli/fleet.h"
#include "line/command.h"
#include "line/say.h"
#include "record/events.h"

typedef enum cause {
    TRAINING,
    DATA,
    SAVES,
    EVALS,
    RECOVERY,
    REPEATED,
    START,
    OTHER,
    STOPPED,
    CAUSES
} cause;

static const struct {
    const char *name, *key; /* for people; of JSON */
} causes[CAUSES] = {
    [TRAINING] = {"training", "training_s"},
    [DATA] = {"waiting for data", "waiting_s"},
    [SAVES] = {"checkpoints", "checkpoints_s"},
    [EVALS] = {"validation", "validation_s"},
    [RECOVERY] = {"recovery", "recovery_s"},
    [REPEATED] = {"repeated steps", "repeated_s"},
    [START] = {"start of processes", "starting_s"},
    [OTHER] = {"other", "other_s"},
    [STOPPED] = {"between processes", "stopped_s"},
};

typedef struct spent {
    double s[CAUSES];
    int64_t steps, repeated; /* rows; dropped rows */
    int64_t sessions;
    double from, until; /* the session's, in seconds since 1970; until < from: none yet */
    double elapsed;
    double recovering; /* time of recovery that is still in the time of a step */
} spent;

/* --- reading --- */

static double number(const json_t *line, const char *key)
{
    double x = json_number_value(json_object_get(line, key));
    return isfinite(x) && x > 0 ? x : 0;
}

static json_t *next_line(FILE *f, char **text, size_t *room)
{
    ssize_t n;
    while (f && (n = getline(text, room, f)) > 0) {
        json_t *line = json_loadb(*text, (size_t)n, 0, NULL);
        if (json_is_object(line))
            return line;
        json_decref(line); /* a line that is not finished, or no line of ours */
    }
    return NULL;
}

static void reach(spent *t, double time)
{
    t->until = fmax(t->until, time);
}

static void end_session(spent *t)
{
    if (t->until > t->from)
        t->elapsed += t->until - t->from;
}

static void note_row(spent *t, const json_t *row)
{
    double seconds = number(row, CHOIR__KEY(step, step_s)),
           waited = fmin(number(row, CHOIR__KEY(step, data_s)), seconds),
           recovering = fmin(t->recovering, seconds - waited);
    t->recovering -= recovering;
    t->steps++;
    t->s[DATA] += waited;
    t->s[TRAINING] += seconds - waited - recovering;
    reach(t, number(row, CHOIR__KEY(line, time)));
}

static void note_begin(spent *t, const json_t *event)
{
    double time = number(event, CHOIR__KEY(line, time)),
           ran = number(event, CHOIR__KEY(begin, run_s));
    if (t->sessions && !ran) /* a new rank 0, or the way back before a spike */
        return;
    end_session(t);
    if (t->sessions++ && t->until < time - ran)
        t->s[STOPPED] += time - ran - t->until;
    t->from = time - ran;
    t->until = time;
    t->recovering = 0;
    t->s[START] += number(event, CHOIR__KEY(begin, start_s));
}

static void note_event(spent *t, const json_t *event)
{
    const char *kind = json_string_value(json_object_get(event, CHOIR__KEY(line, event)));
    /* a change of ranks has it, and an edit by --on-spike */
    double recovered = number(event, CHOIR__KEY(membership, resumed_s));
    kind = kind ? kind : "";
    if (!strcmp(kind, choir__kind_begin.name)) {
        note_begin(t, event);
        return;
    }
    if (!strcmp(kind, choir__kind_repeat.name)) { /* written before the next begin */
        t->repeated += (int64_t)number(event, CHOIR__KEY(repeat, steps));
        t->s[REPEATED] += number(event, CHOIR__KEY(repeat, took_s));
        reach(t, number(event, CHOIR__KEY(repeat, until)));
        return;
    }
    t->s[SAVES] += number(event, CHOIR__KEY(checkpoint, save_s));
    t->s[EVALS] += number(event, CHOIR__KEY(eval, eval_s));
    t->s[RECOVERY] += recovered;
    if (!strcmp(kind, choir__kind_membership.name)) /* on-spike goes back between two steps */
        t->recovering += recovered;
    reach(t, number(event, CHOIR__KEY(line, time)));
}

/* Reads rows and events in the order of their times. */
static choir_status read_records(const char *run, spent *t)
{
    FILE *rows = choir__file_try_stream_in(run, CHOIR__METRICS_FILE),
         *events = choir__file_try_stream_in(run, CHOIR__EVENTS_FILE);
    char *text = NULL;
    size_t room = 0;
    if (!rows || !events) {
        if (rows)
            fclose(rows);
        if (events)
            fclose(events);
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: expected the folder of a run with its records, metrics.jsonl and events.jsonl",
            run);
    }
    json_t *row = next_line(rows, &text, &room), *event = next_line(events, &text, &room);
    while (row || event) {
        const char *time = CHOIR__KEY(line, time);
        if (event && (!row || number(event, time) <= number(row, time))) {
            note_event(t, event);
            json_decref(event);
            event = next_line(events, &text, &room);
        } else {
            note_row(t, row);
            json_decref(row);
            row = next_line(rows, &text, &room);
        }
    }
    end_session(t);
    free(text);
    fclose(rows);
    fclose(events);
    return t->steps || t->sessions
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT, "%s: its records have no step yet", run);
}

/* Adds the time that no record explains; it is 0 where clocks stepped back. */
static void settle(spent *t)
{
    double known = 0;
    for (int i = 0; i < OTHER; i++)
        known += t->s[i];
    t->s[OTHER] = fmax(t->elapsed - known, 0);
    t->elapsed = fmax(t->elapsed, known) + t->s[STOPPED];
}

/* --- printing --- */

static void say_time(double seconds, char text[32])
{
    if (seconds < 600)
        snprintf(text, 32, "%.2f s", seconds);
    else
        snprintf(text, 32, "%lld:%02d:%02d", (long long)(seconds / 3600),
            (int)fmod(seconds / 60, 60), (int)fmod(seconds, 60));
}

static void print_table(const char *run, const spent *t)
{
    char time[32];
    say_time(t->elapsed, time);
    printf("%s: %lld steps in %s, by %lld process%s\n", run, (long long)t->steps, time,
        (long long)t->sessions, t->sessions == 1 ? "" : "es one after another");
    for (int i = 0; i < CAUSES; i++) {
        say_time(t->s[i], time);
        printf("  %-22s %12s %6.1f %%", causes[i].name, time,
            t->elapsed > 0 ? 100 * t->s[i] / t->elapsed : 0);
        if (i == REPEATED && t->repeated)
            printf("   %lld steps", (long long)t->repeated);
        printf("\n");
    }
}

static void print_json(const spent *t)
{
    choir__text_buffer out = {0};
    choir__text_open(&out, NULL, '{');
    choir__text_value(&out, CHOIR__KEY(summary, steps), "%lld", (long long)t->steps);
    choir__text_value(&out, "repeated_steps", "%lld", (long long)t->repeated);
    choir__text_value(&out, "processes", "%lld", (long long)t->sessions);
    choir__text_buffer_number(&out, "elapsed_s", t->elapsed);
    for (int i = 0; i < CAUSES; i++)
        choir__text_buffer_number(&out, causes[i].key, t->s[i]);
    choir__text_buffer_number(
        &out, "goodput", t->elapsed > 0 ? t->s[TRAINING] / t->elapsed : (double)NAN);
    choir__text_finish(&out, stdout);
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    choir__fleet_request r = {0};
    spent t = {0};
    choir__line_operands operands;
    int parsed = choir__line_parse(command, &r, argc, argv, &operands);
    if (parsed != CHOIR__EXIT_OK)
        return parsed;
    if (!r.cluster == !operands.count)
        return choir__line_usage(command->name,
            "expected RUN, whose time is over, or --cluster FILE, whose time is to come");
    if (!r.cluster && (r.ranks || r.step_s > 0 || r.save_s > 0 || r.save_every_s > 0))
        return choir__line_usage(command->name,
            "expected --cluster FILE with --ranks, --step-s, --save-s and --save-every-s");
    if (r.cluster)
        return choir__cli_fleet(&r);
    if (read_records(operands.words[0], &t) != CHOIR_OK)
        return choir__line_fail();
    settle(&t);
    if (r.json)
        print_json(&t);
    else
        print_table(operands.words[0], &t);
    return CHOIR__EXIT_OK;
}

#define of_clusters                                                                            \
    {                                                                                          \
        {"cluster"}, "it describes a job on a cluster"                                         \
    }

static const choir__line_option options[] = {
    {"json", CHOIR__FLAG, CHOIR__LINE_AT(choir__fleet_request, json),
        .help = "print one JSON object"},
    {"cluster", CHOIR__STRING, CHOIR__LINE_AT(choir__fleet_request, cluster),
        .argument = "FILE", .group = "Forecasts",
        .help = "without a run: forecast which share of its time a training on this cluster (a "
                "JSON file) keeps despite failures"},
    {"ranks", CHOIR__INT, CHOIR__LINE_AT(choir__fleet_request, ranks), 1, 1e8, .argument = "N",
        .help = "ranks of the job (default: one per device)"},
    {"step-s", CHOIR__FLOAT, CHOIR__LINE_AT(choir__fleet_request, step_s), 0, 1e6,
        .argument = "SECONDS", .help = "time of a step, which in-process recovery repeats"},
    {"save-s", CHOIR__FLOAT, CHOIR__LINE_AT(choir__fleet_request, save_s), 0, 1e6,
        .argument = "SECONDS",
        .help = "time that training waits for a save (default: failures.save_s of the file)"},
    {"save-every-s", CHOIR__FLOAT, CHOIR__LINE_AT(choir__fleet_request, save_every_s), 1e-3,
        1e9, .argument = "SECONDS", .help = "time between saves (default: the best one)"},
    {NULL},
};

const choir__line_command choir__cli_goodput = {
    .name = "goodput",
    .summary = "show where the time of a run went",
    .usage = "RUN [--json]\n--cluster FILE [OPTION...]",
    .about =
        "Prints the time of a run by cause: training, waiting for data, checkpoints, validation, "
        "recovery after losses of ranks and before spikes, steps that were done twice, the start "
        "of processes, and the time between them. RUN is a folder of --save or --run.\n"
        "\n"
        "With --cluster, forecasts the time of a job on a cluster that fails at the rates of its "
        "file: the mean time to failure, the best time between saves, the share of training with "
        "restarts and with in-process recovery, spare nodes, and the price.",
    .example = "  choir goodput runs/1\n"
               "  choir goodput --cluster hall.json --save-s 30",
    .options = options,
    .operand = "RUN",
    .least = 0,
    .most = 1,
    .run = run,
};
