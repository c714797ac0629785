/* choir audit: proves a run by running a span of it again, and finds where two runs part.
 *
 * The hashes of both runs are compared, step by step. At the
 * first one that differs the tensors themselves are compared, where both sides have them or can
 * be run once more. */
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/training.h>

#include "base/files/file.h"
#include "base/files/run_files.h"
#include "base/options.h"
#include "cli/audit/audit.h"
#include "job/bits.h"
#include "job/choices.h"
#include "job/job.h"
#include "launch/launchers.h"
#include "launch/process/process.h"
#include "line/command.h"

typedef choir__audit_request request;

extern const choir__line_command choir__cli_audit;

/* --- the span --- */

/* Reads "A:B", "A:", ":B" or "A". Returns false for another text. */
static bool read_span(request *r)
{
    r->from = 1;
    r->until = INT64_MAX;
    if (!r->steps)
        return true;
    char *text = choir__strdup(r->steps), *colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    bool good = (colon && !*text) || choir__parse_int(text, 1, INT64_MAX - 1, &r->from);
    if (!colon)
        r->until = r->from + 1;
    else if (colon[1])
        good = good && choir__parse_int(colon + 1, 1, INT64_MAX - 1, &r->until);
    free(text);
    return good && r->until > r->from;
}

/* --- the second run --- */

static void list_options(request *r)
{
    for (const choir__line_option *o = choir__cli_audit.options; o->name; o++) {
        char *text = o->passed_on ? choir__line_text(o, (const char *)r + o->at) : NULL;
        if (text)
            r->options[r->option_count++] = choir__line_word(o, text);
        free(text);
    }
}

/* --- a run without hashes --- */

/* Runs the last span between two checkpoints, or from the beginning, and compares weights. */
static choir_status audit_weights(request *r, const char *lacks, bool *equal)
{
    int count;
    int64_t *steps = choir__checkpoint_steps(r->run, &count);
    int64_t step = 0, from = 0;
    for (int i = 0; i < count; i++)
        if (steps[i] >= r->from && steps[i] < r->until) {
            from = i ? steps[i - 1] : 0;
            step = steps[i];
        }
    free(steps);
    if (from)
        r->start = choir__format("%s/step-%08lld", r->run, (long long)from);
    r->job = choir__format("%s/" CHOIR__JOB_FILE, r->run);
    if (step && access(r->job, R_OK) != 0)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s, and %s has no job.json, so choir train cannot run it again; choir audit diff "
            "compares two such runs",
            lacks, r->run);
    if (!step)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s (choir train --audit), and it has no checkpoint in the span whose weights could "
            "be compared",
            lacks);
    choir__parting p = choir__parting_none();
    char *folder = choir__audit_folder(r, "other"), *run = choir__format("%s/run", folder);
    choir__again again = choir__audit_again(r, folder, step, step);
    again.dump = true;
    choir_status status = choir__again_run(&again, choir__audit_any_line, NULL);
    p.step = step;
    p.kind = "weight";
    p.checkpoint = true;
    if (status == CHOIR_OK)
        p.found = choir__tensors_of_folders(r->run, run, &p);
    choir__audit_note(r,
        choir__format("%s: the weights of its checkpoint of step %lld were compared instead%s",
            lacks, (long long)step,
            from ? "; --steps chooses an earlier span between two checkpoints" : ""));
    char *what = choir__format("%s, step %lld", r->run, (long long)step);
    if (status == CHOIR_OK && !p.found)
        p = choir__parting_none();
    if (status == CHOIR_OK)
        choir__audit_report(r->json, what, r->note, "again", from, &p);
    *equal = !p.found;
    choir__parting_free(&p);
    free(what);
    free(run);
    free(folder);
    return status;
}

static void remove_folder(char *folder)
{
    char *list[] = {folder, NULL};
    FTS *tree = fts_open(list, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    for (FTSENT *e; tree && (e = fts_read(tree));)
        if (e->fts_info != FTS_D)
            (void)!remove(e->fts_accpath);
    if (tree)
        fts_close(tree);
}

/* --- choir audit RUN --- */

/* Notes the builds of the two sides if they differ. */
static void note_builds(request *r, const choir__chain *recorded, const char *folder)
{
    choir__chain again = {0};
    char *run = choir__format("%s/run", folder);
    if (choir__chain_read(run, &again) == CHOIR_OK) {
        const char *a = json_string_value(json_object_get(recorded->begin, "build")),
                   *b = json_string_value(json_object_get(again.begin, "build"));
        if (a && b && strcmp(a, b) != 0)
            choir__audit_note(r, choir__format("recorded by %s, run again by %s", a, b));
        choir__chain_free(&again);
    }
    free(run);
}

/* Error: state: the second run ended before all lines had come. */
static choir_status came_short(
    const request *r, const choir__audit_piece *piece, int64_t came, const char *folder)
{
    char *run = choir__format("%s/run", folder), *end = choir__audit_end(run);
    choir_status status = choir__error(CHOIR_ERR_STATE,
        "%s was run again, but only %lld of the %lld audited steps from %lld to %lld came: the "
        "second run %s",
        r->run, (long long)came, (long long)piece->count, (long long)piece->first,
        (long long)piece->last, end);
    free(end);
    free(run);
    return status;
}

/* Runs a piece again, and compares it. */
static choir_status audit_piece(
    request *r, const choir__chain *chain, const choir__audit_piece *piece, choir__parting *p)
{
    choir__audit_comparison c = {r, chain, p, 0};
    choir_status status = choir__audit_begin_piece(r, piece);
    if (status != CHOIR_OK)
        return status;
    r->begun = r->begun < 0 ? r->start_step : r->begun;
    char *folder = choir__audit_folder(r, "again");
    choir__again again = choir__audit_again(r, folder, piece->last, piece->every);
    status = choir__again_run(&again, choir__audit_compare_line, &c);
    if (status == CHOIR_OK && !p->found && c.compared < piece->count)
        status = came_short(r, piece, c.compared, folder);
    if (status == CHOIR_OK && p->found) {
        note_builds(r, chain, folder);
        choir__audit_values(r, chain, p);
    }
    choir__audit_end_piece(r);
    r->compared += c.compared;
    remove_folder(folder);
    free(folder);
    return status;
}

/* Says that the span has no audited step; the bounds in it are those that it includes. `end`:
 * why the chain has fewer steps than its run, may be NULL. */
static choir_status without_steps(const request *r, const choir__chain *chain, const char *end)
{
    char *span = r->until == INT64_MAX ? choir__format("no step")
                                       : choir__format("no step from %lld to %lld",
                                             (long long)r->from, (long long)(r->until - 1));
    choir_status status = choir__error(CHOIR_ERR_ARGUMENT,
        "%s: %s was audited; the audit has every %lld steps, up to step %lld%s%s", r->run, span,
        (long long)json_integer_value(json_object_get(chain->begin, "every")),
        (long long)choir__chain_last(chain), end ? "; " : "", end ? end : "");
    free(span);
    return status;
}

static choir_status audit_chain(request *r, const choir__chain *chain, bool *equal)
{
    int count;
    choir__audit_piece *pieces = choir__audit_pieces(chain, r->from, r->until, &count);
    choir__parting p = choir__parting_none();
    choir_status status = CHOIR_OK;
    char *end = choir__audit_cut(r->run, chain, r->until);
    choir__audit_note_begin(r, chain);
    if (!count)
        status = without_steps(r, chain, end);
    for (int i = 0; i < count && status == CHOIR_OK && !p.found; i++)
        status = audit_piece(r, chain, &pieces[i], &p);
    if (status == CHOIR_OK) {
        char *what = choir__format("%s, %lld audited step%s from %lld to %lld", r->run,
            (long long)r->compared, r->compared == 1 ? "" : "s", (long long)pieces[0].first,
            (long long)(p.found ? p.step : pieces[count - 1].last));
        choir__audit_note(r, end);
        end = NULL;
        choir__audit_report(r->json, what, r->note, "again", r->begun, &p);
        free(what);
    }
    free(end);
    *equal = !p.found;
    choir__parting_free(&p);
    free(pieces);
    return status;
}

static choir_status compare(request *r, const choir__chain *chain, bool *equal)
{
    if (chain->begin && choir__chain_last(chain))
        return audit_chain(r, chain, equal);
    char *lacks = choir__audit_lacks(r->run, chain);
    choir_status status = audit_weights(r, lacks, equal);
    free(lacks);
    return status;
}

static choir_status audit_run(request *r, bool *equal)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    choir__chain chain;
    const char *place = choir__variable("TMPDIR");
    choir_status status = choir__audit_find(r->run, false);
    if (status == CHOIR_OK)
        status = choir__chain_read(r->run, &chain);
    if (status != CHOIR_OK)
        return status;
    r->folder = choir__format("%s/choir-audit-XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(r->folder))
        status = choir__error(CHOIR_ERR_IO, "cannot make %s", r->folder);
    list_options(r);
    if (status == CHOIR_OK)
        status = choir__signals_take(numbers, CHOIR_COUNT(numbers));
    if (status == CHOIR_OK) {
        status = compare(r, &chain, equal);
        choir__signals_give_back();
    }
    if (r->signal)
        status = choir__error(CHOIR_ERR_INTERRUPTED, "interrupted");
    remove_folder(r->folder);
    free(r->folder);
    free(r->note);
    choir__audit_end_piece(r);
    for (int i = 0; i < r->option_count; i++)
        free(r->options[i]);
    choir__chain_free(&chain);
    return status;
}

/* --- the command --- */

static bool is_weights(const char *path)
{
    size_t n = strlen(path), m = strlen(".safetensors");
    return n > m && !strcmp(path + n - m, ".safetensors");
}

static int took(void *values, const choir__line_option *option, const char *text)
{
    request *r = values;
    (void)text;
    if (r->given_count < (int)CHOIR_COUNT(r->given))
        r->given[r->given_count++] = option;
    return CHOIR__EXIT_OK;
}

/* Refuses an option that belongs to another form of the command. */
static int check_form(const request *r, bool diff, bool with_file)
{
    for (int i = 0; i < r->given_count; i++) {
        const char *name = r->given[i]->name;
        bool of_file = !strcmp(name, "step") || !strcmp(name, "tolerance");
        bool fits = !strcmp(name, "json") || (diff ? with_file && of_file : !of_file);
        if (!fits)
            return choir__line_usage("audit", "--%s: expected with %s", name,
                of_file ? "diff RUN FILE.safetensors" : "one run, without diff");
    }
    return CHOIR__EXIT_OK;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    request r = {.step = -1, .begun = -1};
    bool equal = false;
    choir_status done;
    choir__line_operands operands;
    int status = choir__line_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    bool diff = !strcmp(operands.words[0], "diff");
    if (operands.count != (diff ? 3 : 1))
        return choir__line_usage("audit", diff ? "diff: expected two runs, or a run and a file"
                                               : "expected one run, or diff and two");
    if (diff && is_weights(operands.words[1]))
        return choir__line_usage(
            "audit", "diff: expected a run, and then a file, got %s first", operands.words[1]);
    status = check_form(&r, diff, diff && is_weights(operands.words[2]));
    if (status != CHOIR__EXIT_OK)
        return status;
    if (!read_span(&r))
        return choir__line_usage(
            "audit", "--steps %s: expected A:B, steps from A up to, but not, B", r.steps);
    r.run = operands.words[0];
    if (!diff)
        done = audit_run(&r, &equal);
    else if (is_weights(operands.words[2]))
        done = choir__audit_diff_file(
            operands.words[1], operands.words[2], r.step, r.tolerance, r.json, &equal);
    else
        done = choir__audit_diff(operands.words[1], operands.words[2], r.json, &equal);
    if (done == CHOIR_OK)
        done = choir__line_flush();
    if (done != CHOIR_OK)
        status = choir__line_fail();
    else
        status = equal ? CHOIR__EXIT_OK : CHOIR__EXIT_FAILED;
    return r.signal ? 128 + r.signal : status;
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"steps", CHOIR__STRING, AT(steps), .argument = "A:B",
        .help = "audit the steps from A up to, but not, B (default: all)"},
    {"against", CHOIR__STRING, AT(against), .argument = "BUILD",
        .help = "run it again by another build: its choir, or the folder that has it"},
    {"bits", CHOIR__STRING, AT(bits), .argument = "CLASS",
        .help = "run it again in another class of bits, as choir train --bits",
        .choices = choir__job_bits_names, .strict = true, .passed_on = true},
    {"strategy", CHOIR__STRING, AT(strategy), .argument = "NAME[:key=value,...]",
        .help = "run it again by another strategy",
        .choices = choir__job_strategy_names_and_auto, .passed_on = true},
    {"mesh", CHOIR__STRING, AT(mesh), .argument = "RxC",
        .help = "sizes of a composition of strategies", .passed_on = true},
    {"nproc", CHOIR__INT, AT(nproc), 1, CHOIR__MAX_DEVICES, .argument = "N",
        .help = "number of ranks to start", .passed_on = true},
    {"devices", CHOIR__STRING, AT(devices), .argument = "LIST",
        .help = "devices, such as cpu:0,cpu:1", .passed_on = true},
    {"threads", CHOIR__INT, AT(threads), 1, 4096, .argument = "N",
        .help = "cores per CPU device", .passed_on = true},
    {"backend", CHOIR__STRING, AT(backend), .argument = "NAME", .help = "how ranks communicate",
        .choices = choir__job_backend_names, .strict = true, .passed_on = true},
    {"step", CHOIR__INT, AT(step), 1, CHOIR__LINE_NO_LIMIT, .argument = "N",
        .help = "diff with a file: the step of the run's dump (default: the newest)"},
    {"tolerance", CHOIR__FLOAT, AT(tolerance), 0, 1e9, .preset = "1e-5", .argument = "X",
        .help = "diff with a file: the largest error, as a part of a tensor's largest number"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per line"},
    {NULL},
};

const choir__line_command choir__cli_audit = {
    .name = "audit",
    .summary = "prove a run by running it again; find where two runs part",
    .usage = "[OPTION...] RUN\n"
             "diff [--json] RUN1 RUN2\n"
             "diff [--step N] [--tolerance X] [--json] RUN FILE.safetensors",
    .about =
        "RUN is the folder of a training with --audit. Its audited steps are run again in a "
        "temporary folder and compared, from the beginning or, with --steps, from the newest "
        "checkpoint that is not behind the audited step before them, so that no step stays "
        "unseen: the result is equal, or the first step that differs, and in it the module and "
        "the kind (weight, "
        "gradient, state, batch, key, loss). Any number of ranks and any strategy that keeps "
        "the bits may run it. The first op that differs, the element and its values are named "
        "where both sides have them: in a run with --audit=dump, in a checkpoint of that step, "
        "or if the run itself can be run once more.\n\n"
        "diff compares two runs without running them: their options, data and builds, and "
        "their steps. With a file of another program it compares the tensors of a step that "
        "--audit=dump has kept, by their names, gradients by grad.NAME, and outputs of modules by "
        "output.PATH and output_grad.PATH.\n\n"
        "The exit status is 0 if nothing differs, 1 if something does or the audit failed, and "
        "2 for wrong usage.",
    .example = "  choir audit runs/first --steps 100:200 --strategy ddp --nproc 4",
    .options = options,
    .operand = "RUN",
    .least = 1,
    .most = 3,
    .run = run,
    .took = took,
};
