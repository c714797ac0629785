/* choir audit: proves a run by running a span of it again, and finds where two runs part.
 *
 * The hashes of the run's audit are compared with those of the second run, step by step. At the
 * first one that differs the tensors themselves are compared, where both sides have them or can
 * be run once more. */
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <choir/training.h>

#include "audit/dump.h"
#include "base/options.h"
#include "cli/audit/audit.h"
#include "job/bits.h"
#include "job/choices.h"
#include "job/job.h"
#include "launch/launchers.h"
#include "line/command.h"

typedef struct request {
    const char *steps, *against, *bits, *strategy, *mesh, *devices, *backend;
    int64_t nproc, threads, step;
    double tolerance;
    bool json;
    /* of the span: */
    int64_t from, until; /* steps [from, until) */
    const char *run;
    char *folder;     /* temporary */
    char *options[8]; /* of choir train, by which the second run is another one */
    int option_count;
} request;

/* --- the span --- */

/* Reads "A:B", "A:", ":B" or "A". Returns false if it is none of these. */
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

/* Returns the first or the last audited step of the span; 0: none. */
static int64_t audited(const request *r, const choir__chain *chain, bool last)
{
    int64_t found = 0;
    for (size_t i = 0; i < json_array_size(chain->lines); i++) {
        const json_t *step = json_object_get(json_array_get(chain->lines, i), "step");
        int64_t number = step ? json_integer_value(step) : 0;
        if (number >= r->from && number < r->until && (last || !found))
            found = number;
    }
    return found;
}

/* Stores the step of the nearest state before a step. Error: argument. */
static choir_status find_start(
    const request *r, const choir__chain *chain, int64_t before, int64_t *from)
{
    int count;
    int64_t *steps = choir__checkpoint_steps(r->run, &count);
    int64_t begin = json_integer_value(json_object_get(chain->begin, "begin")), first = -1;
    *from = begin == 0 ? 0 : -1;
    for (int i = 0; i < count; i++) {
        if (steps[i] < before)
            *from = steps[i];
        else if (first < 0)
            first = steps[i];
    }
    free(steps);
    if (*from >= 0)
        return CHOIR_OK;
    char hint[64] = "it has no other checkpoint";
    if (first >= 0)
        snprintf(hint, sizeof hint, "--steps %lld: can be audited", (long long)first + 1);
    return choir__error(CHOIR_ERR_ARGUMENT,
        "%s: step %lld cannot be run again: the run went on from step %lld, whose checkpoint is "
        "gone; %s",
        r->run, (long long)before, (long long)begin, hint);
}

/* --- the second run --- */

static void add_option(request *r, const char *name, const char *text)
{
    if (text)
        r->options[r->option_count++] = choir__format("--%s=%s", name, text);
}

static void add_number(request *r, const char *name, int64_t number)
{
    if (number)
        r->options[r->option_count++] = choir__format("--%s=%lld", name, (long long)number);
}

static void list_options(request *r)
{
    add_option(r, "strategy", r->strategy);
    add_option(r, "mesh", r->mesh);
    add_option(r, "devices", r->devices);
    add_option(r, "backend", r->backend);
    add_option(r, "bits", r->bits);
    add_number(r, "nproc", r->nproc);
    add_number(r, "threads", r->threads);
}

/* A comparison of a chain with the lines of a second run. */
typedef struct comparison {
    const request *request;
    const choir__chain *chain;
    choir__parting *parting;
    int64_t compared;
} comparison;

static bool compare_line(void *arg, const json_t *line)
{
    comparison *c = arg;
    int64_t step = json_integer_value(json_object_get(line, "step"));
    const json_t *own = choir__chain_at(c->chain, step);
    if (!own || step < c->request->from || step >= c->request->until)
        return true;
    c->compared++;
    choir__lines_compare(
        own, line, json_object_get(c->chain->begin, "modules"), c->parting);
    return !c->parting->found;
}

static choir__again again_of(
    const request *r, const char *folder, int64_t from, int64_t until, int64_t every)
{
    return (choir__again){.run = r->run,
        .build = r->against,
        .options = (const char *const *)r->options,
        .option_count = r->option_count,
        .from = from,
        .until = until,
        .every = every,
        .folder = folder};
}

static char *make_folder(const request *r, const char *name)
{
    char *folder = choir__format("%s/%s", r->folder, name);
    if (mkdir(folder, 0777) != 0)
        (void)!access(folder, W_OK); /* the second run says what is wrong */
    return folder;
}

/* --- values at a parting --- */

static void no_values(choir__parting *p, const char *why)
{
    free(p->note);
    p->note = choir__strdup(why);
}

static bool any_line(void *arg, const json_t *line)
{
    (void)arg, (void)line;
    return true;
}

/* Runs the job itself once more, up to the step at which the runs part, to have its tensors.
 * Returns whether it gave the recorded line again. */
static bool run_own(const request *r, const choir__chain *chain, int64_t from,
    const choir__parting *p, const char *folder)
{
    request plain = {.run = r->run, .from = p->step, .until = p->step + 1};
    choir__parting none = choir__parting_none();
    comparison c = {&plain, chain, &none, 0};
    choir__again own = again_of(&plain, folder, from, p->step, p->step);
    own.dump = true;
    choir_status status = choir__again_run(&own, compare_line, &c);
    bool same = status == CHOIR_OK && c.compared == 1 && !none.found;
    if (status != CHOIR_OK)
        (void)choir_error_message(); /* marks the error as read: it can no longer be asked */
    choir__parting_free(&none);
    return same;
}

/* Compares the tensors of the step that two folders have. */
static bool compare_folders(const char *a, const char *b, choir__parting *p)
{
    choir__stored x, y;
    bool dump, found = false;
    if (!choir__tensors_open(&x, a, p->step, &dump))
        return false;
    if (choir__tensors_open(&y, b, p->step, &dump)) {
        found = choir__tensors_compare(&x, &y, p);
        choir__stored_close(&y);
    }
    choir__stored_close(&x);
    return found;
}

/* Names the element and the values at a parting, if both sides have them, or can be asked. */
static choir_status find_values(
    const request *r, const choir__chain *chain, int64_t from, choir__parting *p)
{
    bool tensors = !strcmp(p->kind, "weight") || !strcmp(p->kind, "state") ||
                   !strcmp(p->kind, "gradient");
    if (!p->found || !tensors || p->read) {
        no_values(p, p->read ? "what a step reads is not kept: no values are known"
                             : "it has no tensors whose values could be compared");
        return CHOIR_OK;
    }
    char *other = make_folder(r, "other"), *own = make_folder(r, "own");
    char *other_run = choir__format("%s/run", other), *own_run = choir__format("%s/run", own);
    choir__again again = again_of(r, other, from, p->step, p->step);
    again.dump = true;
    choir_status status = choir__again_run(&again, any_line, NULL);
    bool varied = r->option_count || r->against;
    if (status == CHOIR_OK && !compare_folders(r->run, other_run, p) &&
        !(varied && run_own(r, chain, from, p, own) && compare_folders(own_run, other_run, p)))
        no_values(p, "the recorded side can no longer be asked: it kept no tensors of this step, "
                     "and its own job gives other hashes now");
    free(other);
    free(own);
    free(other_run);
    free(own_run);
    return status;
}

/* --- a run without hashes --- */

/* Runs the last span between two checkpoints, or from the beginning, and compares weights. */
static choir_status audit_weights(request *r, bool *equal)
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
    if (!step)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s has no audit data (choir train --audit), and no checkpoint in the span whose "
            "weights could be compared",
            r->run);
    choir__parting p = choir__parting_none();
    char *folder = make_folder(r, "other"), *run = choir__format("%s/run", folder);
    choir__again again = again_of(r, folder, from, step, step);
    again.dump = true;
    choir_status status = choir__again_run(&again, any_line, NULL);
    p.step = step;
    p.kind = "weight";
    if (status == CHOIR_OK)
        p.found = compare_folders(r->run, run, &p);
    char *note = choir__format(
        "%s has no audit data: the weights of its checkpoint of step %lld were compared instead",
        r->run, (long long)step);
    char *what = choir__format("%s, step %lld", r->run, (long long)step);
    if (status == CHOIR_OK && !p.found)
        p = choir__parting_none();
    if (status == CHOIR_OK)
        choir__audit_report(r->json, what, note, "again", &p);
    *equal = !p.found;
    choir__parting_free(&p);
    free(what);
    free(note);
    free(run);
    free(folder);
    return status;
}

/* --- choir audit RUN --- */

static choir_status audit_chain(request *r, const choir__chain *chain, bool *equal)
{
    int64_t first = audited(r, chain, false), last = audited(r, chain, true), from = 0;
    int64_t every = json_integer_value(json_object_get(chain->begin, "every"));
    if (!first || every < 1)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "%s: no step of the span was audited; the audit has every %lld steps, up to step "
            "%lld",
            r->run, (long long)every, (long long)choir__chain_last(chain));
    choir_status status = find_start(r, chain, first, &from);
    if (status != CHOIR_OK)
        return status;
    choir__parting p = choir__parting_none();
    comparison c = {r, chain, &p, 0};
    char *folder = make_folder(r, "again");
    choir__again again = again_of(r, folder, from, last, every);
    status = choir__again_run(&again, compare_line, &c);
    if (status == CHOIR_OK && !c.compared)
        status = choir__error(CHOIR_ERR_STATE,
            "%s was run again, but not up to step %lld, the first that was audited", r->run,
            (long long)first);
    if (status == CHOIR_OK && p.found)
        status = find_values(r, chain, from, &p);
    char *what = choir__format("%s, %lld audited step%s from %lld to %lld", r->run,
        (long long)c.compared, c.compared == 1 ? "" : "s", (long long)first,
        (long long)(p.found ? p.step : last));
    if (status == CHOIR_OK)
        choir__audit_report(r->json, what, NULL, "again", &p);
    *equal = !p.found;
    choir__parting_free(&p);
    free(what);
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

static choir_status audit_run(request *r, bool *equal)
{
    choir__chain chain;
    const char *place = choir__variable("TMPDIR");
    choir_status status = choir__chain_read(r->run, &chain);
    if (status != CHOIR_OK)
        return status;
    r->folder = choir__format("%s/choir-audit-XXXXXX", place ? place : "/tmp");
    if (!mkdtemp(r->folder))
        status = choir__error(CHOIR_ERR_IO, "cannot make %s", r->folder);
    list_options(r);
    if (status == CHOIR_OK)
        status = chain.begin ? audit_chain(r, &chain, equal) : audit_weights(r, equal);
    remove_folder(r->folder);
    free(r->folder);
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

static int run(const choir__cli_command *command, int argc, char **argv)
{
    request r = {.step = -1};
    bool equal = false;
    choir_status done;
    choir__cli_operands operands;
    int status = choir__cli_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    bool diff = !strcmp(operands.words[0], "diff");
    if (operands.count != (diff ? 3 : 1))
        return choir__cli_usage("audit", diff ? "diff: expected two runs, or a run and a file"
                                              : "expected one run, or diff and two");
    if (!read_span(&r))
        return choir__cli_usage(
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
        done = choir__cli_flush();
    return done != CHOIR_OK ? choir__cli_fail() : equal ? CHOIR__EXIT_OK : CHOIR__EXIT_FAILED;
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const choir__cli_option options[] = {
    {"steps", CHOIR__STRING, AT(steps), .argument = "A:B",
        .help = "audit the steps from A up to, but not, B (default: all)"},
    {"against", CHOIR__STRING, AT(against), .argument = "BUILD",
        .help = "run it again by another build: the path of its choir"},
    {"bits", CHOIR__STRING, AT(bits), .argument = "CLASS",
        .help = "run it again in another class of bits, as choir train --bits",
        .choices = choir__cli_bits_names, .strict = true},
    {"strategy", CHOIR__STRING, AT(strategy), .argument = "NAME[:key=value,...]",
        .help = "run it again by another strategy", .choices = choir__cli_job_strategy_names},
    {"mesh", CHOIR__STRING, AT(mesh), .argument = "RxC",
        .help = "sizes of a composition of strategies"},
    {"nproc", CHOIR__INT, AT(nproc), 1, CHOIR__MAX_DEVICES, .argument = "N",
        .help = "number of ranks to start"},
    {"devices", CHOIR__STRING, AT(devices), .argument = "LIST",
        .help = "devices, such as cpu:0,cpu:1"},
    {"threads", CHOIR__INT, AT(threads), 1, 4096, .argument = "N",
        .help = "cores per CPU device"},
    {"backend", CHOIR__STRING, AT(backend), .argument = "NAME",
        .help = "how ranks communicate", .choices = choir__cli_backend_names, .strict = true},
    {"step", CHOIR__INT, AT(step), 1, CHOIR__CLI_NO_LIMIT, .argument = "N",
        .help = "diff with a file: the step of the run's dump (default: the newest)"},
    {"tolerance", CHOIR__FLOAT, AT(tolerance), 0, 1e9, .preset = "1e-5", .argument = "X",
        .help = "diff with a file: the largest error, as a part of a tensor's largest number"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per line"},
    {NULL},
};

const choir__cli_command choir__cli_audit = {
    .name = "audit",
    .summary = "prove a run by running it again; find where two runs part",
    .usage = "[OPTION...] RUN\n"
             "diff [--json] RUN1 RUN2\n"
             "diff [--step N] [--tolerance X] [--json] RUN FILE.safetensors",
    .about =
        "RUN is the folder of a training with --audit. Its audited steps are run again, from the "
        "nearest checkpoint before them, in a temporary folder, and compared: the result is "
        "equal, or the first step that differs, and in it the module and the kind (weight, "
        "gradient, state, batch, key, loss). Any number of ranks and any strategy that keeps the "
        "bits may run it. An element and its values are named where both sides have them: in a "
        "run with --audit=dump, in a checkpoint of that step, or if the run itself can be run "
        "once more.\n\n"
        "diff compares two runs without running them: their options, data and builds, and their "
        "steps. With a file of another program it compares the tensors of a step that "
        "--audit=dump has kept, by their names, and gradients by grad.NAME.\n\n"
        "The exit status is 0 if nothing differs, 1 if something does or the audit failed, and 2 "
        "for wrong usage.",
    .example = "  choir audit runs/first --steps 100:200 --strategy ddp --nproc 4",
    .options = options,
    .operand = "RUN",
    .least = 1,
    .most = 3,
    .run = run,
};
