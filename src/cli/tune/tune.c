/* choir tune: the options of a search, and its order: the request is read and checked, the
 * folder is claimed for this search, the study is opened, trials run, and a picture or a last
 * command with the best trial ends it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "base/secret.h"
#include "base/files/claim.h"
#include "line/command.h"
#include "line/say.h"
#include "cli/tune/plot.h"
#include "cli/tune/request.h"
#include "cli/tune/search.h"
#include "tune/scheduler/scheduler.h"
#include "tune/storage/backend.h"
#include "tune/trials/command.h"

typedef choir__tune_request request;

extern const choir__line_command choir__cli_tune;

static int took(void *values, const choir__line_option *o, const char *text)
{
    request *r = values;
    r->on_line |= (uint64_t)1 << (o - choir__cli_tune.options);
    if (o->repeated)
        choir__tune_give(r, o->name, text);
    return CHOIR__EXIT_OK;
}

/* Returns the URL of the storage: the one that is named, or else a file in the search's folder;
 * NULL: the search is in memory alone. */
static const char *storage_of(const request *r, char **file)
{
    *file = NULL;
#ifdef CHOIR_HAVE_SQLITE
    if (!r->storage && r->dir && !(r->free && choir__tune_pauses(r)))
        *file = choir__format("sqlite:%s/study.db", r->dir);
#endif
    const char *storage = r->storage ? r->storage : *file;
    return storage && !strcmp(storage, "memory") ? NULL : storage;
}

/* --- its folder --- */

static void tell(void *arg, const char *sentence)
{
    (void)arg;
    choir__line_notes("tune", sentence);
}

/* The trials end with this process. */
static void lost(void *arg, const char *sentence)
{
    (void)arg;
    choir__line_tell("tune", "%s", sentence);
    _exit(CHOIR__EXIT_FAILED);
}

/* Returns the place of a stored study as all its processes name it: a file's place has the path
 * of its folder, even before the first process makes the file. */
static char *place_of(const char *storage)
{
    char *shown = choir__backend_public(storage), *colon = strchr(shown, ':');
    char *path = colon ? colon + 1 : shown, *slash = strrchr(path, '/'), real[PATH_MAX];
    char *folder =
        slash ? choir__format("%.*s/", (int)(slash - path), path) : choir__strdup(".");
    if (realpath(folder, real)) {
        char *place = choir__format("%s/%s", real, slash ? slash + 1 : path);
        free(shown);
        shown = place;
    }
    free(folder);
    return shown;
}

/* Keeps other searches out of --dir, whose trials would have the same folders. Processes that
 * share a stored study share its trials' folders, too; own: the file of the study in --dir. */
static choir_status claim(const request *r, const char *own, choir__claim **made)
{
    choir__claim_opts opts = choir__claim_defaults();
    char *place = own ? choir__strdup("this folder") : place_of(r->storage ? r->storage : "");
    char *job = choir__format("study %s of %s", r->name ? r->name : "study", place);
    *made = NULL;
    opts.job = r->storage ? job : NULL;
    opts.shared = r->storage;
    opts.tell = tell;
    opts.lost = lost;
    choir_status status = r->dir ? choir__claim_take(r->dir, &opts, made) : CHOIR_OK;
    free(job);
    free(place);
    return status;
}

/* --- the search --- */

/* Draws the search that has ended, under the title that choir tune plot gives it: the place
 * where it is stored. */
static choir_status draw(const request *r, const choir__search *s)
{
    const char *place = r->dir ? r->dir : r->storage;
    char *shown = choir__hide_passwords(choir__strdup(place ? place : r->name));
    choir__plotted p = {.study = s->study,
        .space = s->space,
        .name = shown,
        .metrics = s->job.metric,
        .unit = r->unit};
    choir__tune_picture picture = {&p, 1, "all", r->plot};
    choir_status status = choir__plotted_choose(&p, NULL);
    if (status == CHOIR_OK)
        status = choir__plotted_read(&p, NULL);
    if (status == CHOIR_OK)
        status = choir__tune_picture_draw(&picture);
    choir__plotted_free(&p);
    free(shown);
    return status;
}

/* Says why nothing was done, and returns the exit status. */
static int refuse(choir_status status)
{
    choir__line_fail();
    return status == CHOIR_ERR_ARGUMENT || status == CHOIR_ERR_UNSUPPORTED ? CHOIR__EXIT_USAGE
                                                                           : CHOIR__EXIT_FAILED;
}

/* Splits the command of --test, if any. */
static choir_status read_test(const request *r, const choir_space *space, char ***words)
{
    *words = NULL;
    choir_status status = r->test ? choir__final_words(r->test, words) : CHOIR_OK;
    return status == CHOIR_OK && *words ? choir__command_check_names(*words, space) : status;
}

static int run_search(const request *r, const choir__tune_metrics *m, const choir_space *space,
    choir_study *study, char *const *test)
{
    const choir__scheduler_ops *scheduler = choir__scheduler_find(r->scheduler);
    choir__search s = {.study = study,
        .space = space,
        .job = {.command = r->command,
            .space = space,
            .metrics = m->count,
            .unit = r->unit,
            .dir = r->dir,
            .timeout_s = r->timeout_s,
            .memory_max = r->machine.memory_each,
            .files = choir__running_room(),
            .pauses = choir__tune_pauses(r),
            .copies = choir__tune_pauses(r) && scheduler->copies},
        .trials = r->trials,
        .shares = r->machine.shares,
        .parallel = choir__min(r->parallel, r->trials),
        .retries = r->retries,
        .failures_max = r->failures_max,
        .most = m->most[0],
        .json = r->json,
        .quiet = r->quiet,
        .pauses = choir__tune_pauses(r),
        .steps = scheduler && (scheduler->pauses || scheduler->stops)};
    for (int i = 0; i < m->count; i++)
        s.job.metric[i] = m->name[i];
    choir_status noted = choir__outcome_note_job(study, &s.job);
    if (noted != CHOIR_OK)
        return refuse(noted);
    int status = choir__search_run(&s);
    const choir_trial *best = choir_study_best(study);
    if (status == CHOIR__EXIT_OK && test && best)
        status = choir__final_run(&s, test, best);
    if (r->plot && best && draw(r, &s) != CHOIR_OK)
        return choir__line_fail();
    return status;
}

/* Writes the search down in its folder, which may move: own, the file of the study in --dir, is
 * not named. A search that cannot be written down needs its whole command line to continue. */
static void keep_file(const request *r, const char *own)
{
    request kept = *r;
    kept.storage = own ? NULL : r->storage;
    choir_status status =
        r->dir ? choir__tune_file_keep(choir__cli_tune.options, &kept) : CHOIR_OK;
    const char *why = status == CHOIR_OK ? NULL : choir_error_message();
    if (status == CHOIR_ERR_IO)
        choir__line_tell("tune", "note: the search has no study file: %s", why);
}

/* Runs the search that is asked for. */
static int search(request *r)
{
    choir_space *space = choir_space_new();
    choir_study *study = NULL;
    choir__tune_metrics metrics = {.count = 0};
    choir__claim *folder = NULL;
    char *file, **test = NULL;
    r->storage = storage_of(r, &file);
    choir_status made = choir__tune_space(r, space);
    if (made == CHOIR_OK)
        made = choir__tune_metrics_read(r, &metrics);
    if (made == CHOIR_OK)
        made = choir__tune_check(r, &metrics, space);
    if (made == CHOIR_OK)
        made = read_test(r, space, &test);
    if (made == CHOIR_OK)
        made = claim(r, file, &folder);
    if (made == CHOIR_OK)
        made = choir__tune_study(r, &metrics, space, &study);
    if (made == CHOIR_OK)
        keep_file(r, file);
    int status = made == CHOIR_OK ? run_search(r, &metrics, space, study, test) : refuse(made);
    choir_study_free(study);
    choir__claim_free(folder, false);
    choir_space_free(space);
    choir__tune_metrics_free(&metrics);
    choir__command_free(test);
    free(file);
    return status;
}

/* --- the command line --- */

static bool is_study_file(const char *word)
{
    size_t length = strlen(word);
    return length > 5 && !strcmp(word + length - 5, ".json");
}

/* Parses the command line. A study file among the options (not behind --) is taken out, so that
 * options may follow it; *path is its name. */
static int parse(
    const choir__line_command *command, request *r, int argc, char **argv, const char **path)
{
    choir__line_operands operands;
    int status = choir__line_parse(command, r, argc, argv, &operands);
    *path = NULL;
    if (status != CHOIR__EXIT_OK)
        return status;
    int at = argc - operands.count;
    if (operands.count && is_study_file(operands.words[0]) && strcmp(argv[at - 1], "--") != 0) {
        *path = argv[at];
        memmove(argv + at, argv + at + 1, (size_t)(argc - at) * sizeof *argv);
        choir__tune_request_free(r);
        *r = (request){.json = false};
        status = choir__line_parse(command, r, argc - 1, argv, &operands);
    }
    r->command = operands.count ? operands.words : NULL;
    return status;
}

/* Reads the study file at path or, without path and command, the one that the search of --dir
 * keeps there. Returns an exit status. */
static int read_file(const choir__line_command *command, request *r, const char *path)
{
    char *kept = r->dir ? choir__tune_file_of(r->dir) : NULL;
    if (!path && !r->command && kept && access(kept, F_OK) == 0)
        path = kept;
    int status = CHOIR__EXIT_OK;
    if (path && choir__tune_file_read(path, command->options, r) != CHOIR_OK) {
        choir__line_fail();
        status = CHOIR__EXIT_USAGE;
    }
    if (status == CHOIR__EXIT_OK && !r->command)
        status = path || !kept ? choir__line_usage("tune", "missing COMMAND")
                               : choir__line_usage("tune",
                                     "missing COMMAND, and no search has left %s", kept);
    free(kept);
    return status;
}

static int run(const choir__line_command *command, int argc, char **argv)
{
    static request r;
    const char *path;
    if (argc > 1 && !strcmp(argv[1], "plot"))
        return choir__tune_plot(argc, argv);
    if (choir__tune_looks(argc, argv))
        return choir__tune_look(argc, argv);
    int status = parse(command, &r, argc, argv, &path);
    bool word = !path && argc > 1 && *argv[1] != '-';
    if (status == CHOIR__EXIT_OK && word && choir__tune_check_word(argv[1]) != CHOIR_OK)
        status = choir__line_usage("tune", "%s", choir__message());
    if (status == CHOIR__EXIT_OK)
        status = read_file(command, &r, path);
    if (status == CHOIR__EXIT_OK && r.print_study) {
        choir_status printed = choir__tune_file_print(command->options, &r);
        status = printed == CHOIR_OK ? CHOIR__EXIT_OK : refuse(printed);
    } else if (status == CHOIR__EXIT_OK)
        status = choir__tune_machine_read(&r.machine, &r.parallel);
    if (status == CHOIR__EXIT_OK && !r.print_study)
        status = search(&r);
    choir__device_shares_free(r.machine.shares, r.machine.share_count);
    choir__tune_request_free(&r);
    return status;
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const char *directions(size_t i)
{
    static const char *const names[] = {"minimize", "maximize"};
    return i < CHOIR_COUNT(names) ? names[i] : NULL;
}

static const choir__line_option options[] = {
    {"space", CHOIR__STRING, AT(space), .argument = "NAME=DIST",
        .help =
            "a parameter, once for each: uniform(a,b), log(a,b), int(a,b[,step=k]), int(a,b,log), "
            "choice(x,y,...), normal(m,s), or one value; with 'if EXPRESSION' behind it, only "
            "where that is true",
        .repeated = true},
    {"require", CHOIR__STRING, AT(require), .argument = "EXPRESSION",
        .help =
            "a condition that all trials fulfil, such as 'width % heads == 0'; may be repeated",
        .repeated = true},
    {"enqueue", CHOIR__STRING, AT(enqueue), .argument = "NAME=VALUE,...",
        .help = "a trial with these parameters before all others; may be repeated",
        .repeated = true},
    {"metric", CHOIR__STRING, AT(metric), .preset = "eval_loss", .argument = "NAME[:max]",
        .help = "the number in the trials' JSON lines to optimise; with several, the best "
                "trials are those of the Pareto front",
        .repeated = true},
    {"direction", CHOIR__STRING, AT(direction), .preset = "minimize", .argument = "NAME",
        .help = "direction of metrics without :min or :max", .choices = directions},
    {"unit", CHOIR__STRING, AT(unit), .preset = "step", .argument = "NAME",
        .help = "the number in the JSON lines that counts a trial's progress, and the unit of "
                "schedulers' budgets; epoch for choir train --eval-epochs 1"},
    {"trials", CHOIR__INT, AT(trials), 1, 1e7, .preset = "100", .argument = "N",
        .elsewhere = "n_trials num_samples", .help = "number of trials"},
    {"parallel", CHOIR__INT, AT(parallel), 1, 1024, .argument = "W",
        .elsewhere = "n_jobs max_concurrent_trials",
        .help =
            "trials that run at once (default: as many as --devices has room for, otherwise 1)"},
    {"devices", CHOIR__STRING, AT(machine.devices), .argument = "LIST",
        .help = "divide these devices among the trials: cpu:0-7, cuda:0-3 or auto; a trial is "
                "bound to the cores, or sees the GPUs, that are its own"},
    {"devices-per-trial", CHOIR__INT, AT(machine.devices_each), 1, CHOIR__TUNE_DEVICES,
        .preset = "1", .argument = "K", .help = "number of --devices per trial"},
    {"memory-per-trial", CHOIR__BYTES, AT(machine.memory_each), 0, 0x1p62, .argument = "BYTES",
        .help = "a trial that takes more memory than this, such as 500M, has failed"},
    {"window", CHOIR__INT, AT(window), 1, 1e7, .argument = "W",
        .help =
            "suggest trial n from the results of trials 0 to n - W alone, so the same trials "
            "follow from a seed at any number of trials at once (default: --parallel)"},
    {"sampler", CHOIR__STRING, AT(sampler), .argument = "NAME",
        .help = "how parameters are suggested, with options: tpe:startup=20, grid:points=5 "
                "(default: tpe; for several metrics nsga2)",
        .choices = choir__tune_sampler_name},
    {"scheduler", CHOIR__STRING, AT(scheduler), .preset = "none", .argument = "NAME",
        .help = "a rule that stops trials early, or pauses them until they are known to be "
                "among the best: asha:min=100,max=2000, median:startup=5",
        .choices = choir__scheduler_name},
    {"free", CHOIR__FLAG, AT(free),
        .help = "decide from all results so far, so that no trial waits for the slowest; "
                "then the trials differ from run to run"},
    {"seed", CHOIR__INT, AT(seed), 0, CHOIR__LINE_NO_LIMIT, .preset = "0", .argument = "N",
        .help = "seed of all random numbers"},
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
            "and continue it (default: DIR/study.db of --dir; otherwise memory)"},
    {"study", CHOIR__STRING, AT(name), .argument = "NAME", .preset = "study",
        .elsewhere = "study_name", .help = "the study's name in the storage"},
    {"test", CHOIR__STRING, AT(test), .argument = "COMMAND",
        .help =
            "run this when the search has ended, with the values and the folder of the best "
            "trial, such as 'choir eval {dir}/checkpoint/latest DATA'"},
    {"plot", CHOIR__STRING, AT(plot), .argument = "FILE",
        .help =
            "draw the search when it ends, as choir tune plot does, to FILE.png or FILE.svg",
        .where = CHOIR__OF_LINE},
    {"print-study", CHOIR__FLAG, AT(print_study),
        .help = "print these options and the command as a study file, and do nothing else",
        .where = CHOIR__OF_LINE},
    {"quiet", CHOIR__FLAG, AT(quiet), .help = "print the best trial alone",
        .where = CHOIR__OF_LINE},
    {"json", CHOIR__FLAG, AT(json), .help = "print one JSON object per trial, and the best",
        .where = CHOIR__OF_LINE},
    {NULL},
};

const choir__line_command choir__cli_tune = {
    .name = "tune",
    .summary = "search for the best hyper-parameters of a command",
    .usage = "[OPTION]... -- COMMAND [ARGUMENT]...\n"
             "[OPTION]... STUDY.json\n"
             "[OPTION]... --dir DIR\n"
             "show|best|importance|export [OPTION]... [STUDY]\n"
             "plot [OPTION]... [STUDY]... FILE.png|.svg",
    .about =
        "Runs COMMAND once per trial, with {NAME} replaced by the trial's value of the parameter "
        "NAME, {trial} by its number and {dir} by its folder, and finds the parameters with the "
        "best metric. COMMAND prints lines of JSON, such as {\"step\":10,\"eval_loss\":1.5}; the "
        "last value of the metric counts. Parameters that are options of choir train need no "
        "placeholder. The same seed and window give the same trials and the same best one at "
        "any number of trials at once. A search with --storage that was interrupted continues when "
        "it is started again, and several machines that start it share its trials. STUDY.json "
        "holds the options and the command; options beside it replace its own. --dir alone "
        "continues the search of that folder, which has such a file. show prints "
        "a stored study's trials, best the best one with its command, importance how much "
        "each parameter decides, export all trials as CSV, and plot draws them.",
    .example_title = "the learning rate and width of a small language model",
    .example = "  choir tune --trials 20 --parallel 2 --space 'lr=log(1e-4,1e-1)' \\\n"
               "    --space 'width=int(32,128,step=32)' -- choir train --steps 50 --model \\\n"
               "    gpt2:layers=2,heads=4,width={width},context=32",
    .options = options,
    .operand = "COMMAND",
    .most = INT_MAX,
    .stops_at_operand = true,
    .took = took,
    .run = run,
};
