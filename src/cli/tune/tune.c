/* choir tune: options of a hyper-parameter search. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/command.h"
#include "cli/tune/look.h"
#include "cli/tune/search.h"
#include "tune/scheduler/scheduler.h"
#include "tune/trials/command.h"

enum { MOST_TEXTS = 1024 };

typedef struct request {
    const char *space, *require, *enqueue; /* the last of each; all are in the lists below */
    const char *metric, *direction, *sampler, *scheduler, *dir, *storage, *name;
    int64_t trials, parallel, window, retries, failures_max, seed;
    double timeout_s;
    bool json, quiet, free;
    /* --space, --require and --enqueue in their order */
    struct {
        char option;
        const char *text;
    } given[MOST_TEXTS];
    int given_count;
} request;

static int took(void *values, const choir__cli_option *o, const char *text)
{
    request *r = values;
    bool repeated =
        !strcmp(o->name, "space") || !strcmp(o->name, "require") || !strcmp(o->name, "enqueue");
    if (!repeated)
        return CHOIR__EXIT_OK;
    if (r->given_count == MOST_TEXTS)
        return choir__cli_usage(
            "tune", "--%s: expected at most %d of them", o->name, MOST_TEXTS);
    r->given[r->given_count].option = o->name[0];
    r->given[r->given_count++].text = text;
    return CHOIR__EXIT_OK;
}

/* --- the study --- */

/* "lr=log(1e-5, 0.1)". */
static choir_status add_space(choir_space *space, const char *text)
{
    size_t length = strcspn(text, "=");
    if (!text[length])
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--space: expected NAME=DISTRIBUTION, got '%s'", text);
    char *name = choir__format("%.*s", (int)length, text);
    choir_status status = choir_space_add(space, name, text + length + 1);
    free(name);
    return status;
}

static choir_status fill_space(const request *r, choir_space *space)
{
    choir_status status = CHOIR_OK;
    for (int i = 0; i < r->given_count && status == CHOIR_OK; i++)
        if (r->given[i].option == 's')
            status = add_space(space, r->given[i].text);
    for (int i = 0; i < r->given_count && status == CHOIR_OK; i++)
        if (r->given[i].option == 'r')
            status = choir_space_require(space, r->given[i].text);
    if (status == CHOIR_OK && !choir_space_count(space))
        status = choir__error(
            CHOIR_ERR_ARGUMENT, "missing --space NAME=DISTRIBUTION, such as lr=log(1e-5,0.1)");
    return status;
}

static choir_status open_study(const request *r, const choir_space *space, choir_study **study)
{
    choir_study_opts opts = choir_study_defaults();
    opts.sampler = r->sampler;
    opts.scheduler = r->scheduler;
    opts.free = r->free;
    opts.direction = r->direction;
    opts.seed = (uint64_t)r->seed;
    opts.window = r->window ? r->window : r->parallel;
    opts.trials = r->trials;
    opts.storage = r->storage;
    opts.name = r->name;
    choir_status status = choir_study_open(space, opts, study);
    for (int i = 0; i < r->given_count && status == CHOIR_OK; i++)
        if (r->given[i].option == 'e')
            status = choir_study_enqueue(*study, r->given[i].text);
    return status;
}

static bool pauses(const request *r)
{
    const choir__scheduler_ops *scheduler = choir__scheduler_find(r->scheduler);
    return scheduler && scheduler->pauses;
}

/* Trials that stop keep their checkpoints in folders of this search. */
static choir_status check_pauses(const request *r, char *const *command)
{
    if (!r->dir)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--scheduler %s: expected --dir DIR, where trials that stop keep their checkpoints",
            r->scheduler);
    char *first = choir__format("%s/0", r->dir);
    bool used = access(first, F_OK) == 0;
    free(first);
    if (used)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--dir %s: expected a folder without trials of another search, since their "
            "checkpoints would be used",
            r->dir);
    return choir__command_check_pauses(command, r->scheduler, r->metric);
}

static choir_status check(const request *r, char *const *command, const choir_space *space)
{
    if (strchr(r->direction, ','))
        return choir__error(
            CHOIR_ERR_ARGUMENT, "--direction: expected one direction, got '%s'", r->direction);
    if (r->window && r->window < r->parallel)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--window %lld: expected at least --parallel %lld, since trial n follows from trial "
            "n - window",
            (long long)r->window, (long long)r->parallel);
    choir_status status = choir__command_check(command, space);
    if (status == CHOIR_OK && pauses(r))
        status = check_pauses(r, command);
    if (status == CHOIR_OK && r->dir && mkdir(r->dir, 0777) && errno != EEXIST)
        status = choir__error(CHOIR_ERR_IO, "--dir %s: %s", r->dir, choir__why(errno));
    return status;
}

/* A search with a folder is kept there, unless specified. */
static const char *storage_of(const request *r, char **file)
{
    *file = NULL;
#ifdef CHOIR_HAVE_SQLITE
    if (!r->storage && r->dir && !pauses(r))
        *file = choir__format("sqlite:%s/study.db", r->dir);
#endif
    const char *storage = r->storage ? r->storage : *file;
    return storage && !strcmp(storage, "memory") ? NULL : storage;
}

static int run(const choir__cli_command *command, int argc, char **argv)
{
    static request r;
    choir__cli_operands operands;
    if (choir__tune_looks(argc, argv))
        return choir__tune_look(argc, argv);
    int status = choir__cli_parse(command, &r, argc, argv, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    choir_space *space = choir_space_new();
    choir_study *study = NULL;
    char *file;
    r.storage = storage_of(&r, &file);
    choir_status made = fill_space(&r, space);
    if (made == CHOIR_OK)
        made = check(&r, operands.words, space);
    if (made == CHOIR_OK)
        made = open_study(&r, space, &study);
    choir__trial_job job = {.command = operands.words,
        .space = space,
        .metric = r.metric,
        .dir = r.dir,
        .timeout_s = r.timeout_s,
        .files = choir__running_room(),
        .pauses = pauses(&r),
        .copies = pauses(&r) && choir__scheduler_find(r.scheduler)->copies};
    if (made == CHOIR_OK)
        made = choir__outcome_note_job(study, &job);
    if (made == CHOIR_OK) {
        choir__search search = {.study = study,
            .space = space,
            .job = job,
            .trials = r.trials,
            .parallel = choir__min(r.parallel, r.trials),
            .retries = r.retries,
            .failures_max = r.failures_max,
            .most = !strcmp(r.direction, "maximize"),
            .json = r.json,
            .quiet = r.quiet,
            .stored = r.storage,
            .pauses = job.pauses};
        status = choir__search_run(&search);
    } else {
        choir__cli_fail();
        status = made == CHOIR_ERR_ARGUMENT || made == CHOIR_ERR_UNSUPPORTED
                     ? CHOIR__EXIT_USAGE
                     : CHOIR__EXIT_FAILED;
    }
    choir_study_free(study);
    choir_space_free(space);
    free(file);
    return status;
}

#define AT(member) CHOIR__CLI_AT(request, member)

static const char *directions(size_t i)
{
    static const char *const names[] = {"minimize", "maximize"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

static const choir__cli_option options[] = {
    {"space", CHOIR__STRING, AT(space), .argument = "NAME=DIST",
        .help =
            "a parameter, once for each: uniform(a,b), log(a,b), int(a,b[,step=k][,log]), "
            "choice(x,y,...), normal(m,s), or one value; with 'if EXPRESSION' behind it, only "
            "where that is true"},
    {"require", CHOIR__STRING, AT(require), .argument = "EXPRESSION",
        .help = "what all trials fulfil, as 'width % heads == 0'; may be given several times"},
    {"enqueue", CHOIR__STRING, AT(enqueue), .argument = "NAME=VALUE,...",
        .help = "a trial with these parameters before all others; may be given several times"},
    {"metric", CHOIR__STRING, AT(metric), .preset = "eval_loss", .argument = "NAME",
        .help = "the number in the trials' JSON lines that is searched for"},
    {"direction", CHOIR__STRING, AT(direction), .preset = "minimize", .argument = "NAME",
        .help = "whether the metric is better when it is less or more", .choices = directions},
    {"trials", CHOIR__INT, AT(trials), 1, 1e7, .preset = "100", .argument = "N",
        .help = "how many trials"},
    {"parallel", CHOIR__INT, AT(parallel), 1, 1024, .preset = "1", .argument = "W",
        .help = "trials that run at once"},
    {"window", CHOIR__INT, AT(window), 1, 1e7, .argument = "W",
        .help =
            "suggest trial n from the results of trials 0 to n - W alone, so the same trials "
            "follow from a seed however many run at once (default: --parallel)"},
    {"sampler", CHOIR__STRING, AT(sampler), .preset = "tpe", .argument = "NAME",
        .help = "how parameters are suggested, with options as tpe:startup=20 or grid:points=5",
        .choices = choir__sampler_name},
    {"scheduler", CHOIR__STRING, AT(scheduler), .preset = "none", .argument = "NAME",
        .help = "which trials stop early, or wait at a step until it is known that they are "
                "among the best, as asha:min=100,max=2000 or median:startup=5",
        .choices = choir__scheduler_name},
    {"free", CHOIR__FLAG, AT(free),
        .help =
            "decide from all results that are there, so that no trial waits for the slowest; "
            "then the trials differ from run to run"},
    {"seed", CHOIR__INT, AT(seed), 0, CHOIR__CLI_NO_LIMIT, .preset = "0", .argument = "N",
        .help = "everything random"},
    {"retries", CHOIR__INT, AT(retries), 0, 1000, .preset = "0", .argument = "N",
        .help = "run a failed trial again, up to N times"},
    {"max-failures", CHOIR__INT, AT(failures_max), 1, 1e7, .preset = "10", .argument = "N",
        .help = "stop after N failed trials in a row"},
    {"trial-timeout", CHOIR__FLOAT, AT(timeout_s), 0, 1e9, .argument = "S",
        .help = "a trial that takes longer has failed"},
    {"dir", CHOIR__STRING, AT(dir), .argument = "DIR",
        .help = "give each trial a folder, DIR/NUMBER, with its output; {dir} in the command"},
    {"storage", CHOIR__STRING, AT(storage), .argument = "URL",
        .help =
            "keep the study in sqlite:FILE, postgresql://... or journal:FILE, as Optuna does, "
            "and go on with it (default: DIR/study.db of --dir; else memory)"},
    {"study", CHOIR__STRING, AT(name), .argument = "NAME", .preset = "study",
        .help = "the study's name in the storage"},
    {"quiet", CHOIR__FLAG, AT(quiet), .help = "print the best trial alone"},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per trial, and the best"},
    {NULL},
};

const choir__cli_command choir__cli_tune = {
    .name = "tune",
    .summary = "search for the best hyper-parameters of a command",
    .usage = "[OPTION]... -- COMMAND [ARGUMENT]...\n"
             "show|best|export [OPTION]... STUDY",
    .about =
        "Runs COMMAND once per trial, with {NAME} replaced by the trial's value of the parameter "
        "NAME, {trial} by its number and {dir} by its folder, and finds the parameters with the "
        "best metric. COMMAND prints lines of JSON, such as {\"step\":10,\"eval_loss\":1.5}; the "
        "last value of the metric counts. Parameters that are options of choir train need no "
        "placeholder. The same seed and window give the same trials and the same best one at "
        "any number of trials at once. A search with --storage that was interrupted goes on when "
        "it is started again, and several machines that start it share its trials. show prints "
        "a stored study's trials, best the best one with its command, export all as CSV.",
    .example_title = "the learning rate and width of a small language model",
    .example = "  choir tune --trials 20 --parallel 2 --space 'lr=log(1e-4,1e-1)' \\\n"
               "    --space 'width=int(32,128,step=32)' -- choir train --steps 50 --model \\\n"
               "    gpt2:layers=2,heads=4,width={width},context=32",
    .options = options,
    .operand = "COMMAND",
    .least = 1,
    .most = INT_MAX,
    .stops_at_operand = true,
    .took = took,
    .run = run,
};
