/* choir tune show, best, importance, export: prints the trials of a stored study, its best
 * trial with the command that repeats it, its parameters' importance, or all trials as CSV
 * with a header whose names differ. The study may be one that is being written, or one of
 * Optuna's. */

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base.h"
#include "base/number.h"
#include "base/text.h"
#include "base/files/file.h"
#include "base/named.h"
#include "line/command.h"
#include "line/printed.h"
#include "cli/tune/request.h"
#include "cli/tune/search.h"
#include "tune/importance/importance.h"

/* --- the columns of choir tune export --- */

/* A column. Where two have one name, the later kind's word stands before it, as in params_lr,
 * which Optuna's tables have. */
typedef struct column {
    const char *name;
    enum { FIXED, VALUES, UNIT, PARAMS } kind;
} column;

static const char *const words[] = {NULL, "values", "unit", "params"};

static void add(column *columns, int *count, const char *name, int kind)
{
    columns[(*count)++] = (column){name, (unsigned)kind};
}

/* Stores the columns in their order, and returns their number. */
static int columns_of(const choir__search *s, column *columns)
{
    int count = 0;
    add(columns, &count, "number", FIXED);
    add(columns, &count, "state", FIXED);
    for (int i = 0; i < s->job.metrics; i++)
        add(columns, &count, s->job.metric[i], VALUES);
    for (int i = 0; i < choir_space_count(s->space); i++)
        add(columns, &count, choir_space_name(s->space, i), PARAMS);
    add(columns, &count, s->job.unit, UNIT);
    add(columns, &count, "seconds", FIXED);
    add(columns, &count, "why", FIXED);
    return count;
}

/* Returns whether another column has this name; first: one that does not give way to this one.
 */
static bool is_taken(
    const column *columns, int count, const column *own, const char *name, bool first)
{
    for (const column *c = columns; c < columns + count; c++)
        if (c != own && (!first || c->kind <= own->kind) && !strcmp(c->name, name))
            return true;
    return false;
}

/* Returns a column's name in the header, which the caller frees. */
static char *header_of(const column *columns, int count, const column *own)
{
    char *name = choir__strdup(own->name);
    for (bool first = true; own->kind && is_taken(columns, count, own, name, first);
         first = false) {
        char *longer = choir__format("%s_%s", words[own->kind], name);
        free(name);
        name = longer;
    }
    return name;
}

/* --- rows --- */

static void print_row(const choir__search *s, const choir_trial *t)
{
    char number[CHOIR__NUMBER_TEXT];
    choir__trial_outcome o = choir__outcome_of(t);
    printf("%lld,%s", (long long)choir_trial_number(t),
        choir__search_state(choir_trial_result(t)));
    for (int i = 0; i < s->job.metrics; i++) {
        choir__number_text(o.value[i], number);
        printf(",%s", isnan(o.value[i]) ? "" : number);
    }
    for (int i = 0; i < choir_space_count(s->space); i++) {
        const char *text = choir_trial_text(t, choir_space_name(s->space, i));
        putchar(',');
        choir__print_cell(stdout, text ? text : "");
    }
    putchar(',');
    if (o.step >= 0)
        printf("%lld", (long long)o.step);
    printf(",%.3f,", o.seconds);
    choir__print_cell(stdout, o.why ? o.why : "");
    putchar('\n');
    free(o.why);
}

static void print_csv(const choir__search *s)
{
    enum { OTHERS = 5 };
    size_t room = (size_t)(s->job.metrics + choir_space_count(s->space) + OTHERS);
    column *columns = choir__calloc(room, sizeof *columns);
    int count = columns_of(s, columns);
    for (int i = 0; i < count; i++) {
        char *name = header_of(columns, count, &columns[i]);
        if (i)
            putchar(',');
        choir__print_cell(stdout, name);
        free(name);
    }
    putchar('\n');
    for (int64_t i = 0; i < choir_study_count(s->study); i++)
        print_row(s, choir_study_trial(s->study, i));
    free(columns);
}

typedef struct request {
    const char *storage, *dir, *name, *evaluator;
    bool json;
} request;

static const char *const actions[] = {"show", "best", "importance", "export", "plot"};
static const choir__name_table table = CHOIR__NAME_TABLE(actions);

bool choir__tune_looks(int argc, char **argv)
{
    return argc > 1 && choir__find_named(&table, argv[1]) >= 0;
}

choir_status choir__tune_check_word(const char *word)
{
    int best = INT_MAX;
    for (size_t i = 0; i < CHOIR_COUNT(actions); i++)
        if (choir__is_nearer(actions[i], word, &best))
            return choir__unknown_name(&table, "action", word);
    return CHOIR_OK;
}

char *choir__tune_file_of(const char *dir)
{
    return choir__format("%s/study.json", dir);
}

/* Returns the URL of a folder's study: --storage's, if the folder's study.json has one.
 */
static char *url_of_folder(const char *dir)
{
    struct stat about;
    char *path = choir__tune_file_of(dir), *url = NULL;
    json_t *root = choir__file_json(path, 0, NULL);
    const char *storage = json_string_value(json_object_get(root, "storage"));
    if (storage && (stat(storage, &about) != 0 || !S_ISDIR(about.st_mode)))
        url = choir__tune_url(storage);
    json_decref(root);
    free(path);
    return url ? url : choir__format("sqlite:%s/study.db", dir);
}

/* A folder of choir tune --dir holds study.db, or names its storage; a plain file is SQLite's
 * or a journal. */
char *choir__tune_url(const char *text)
{
    struct stat about;
    if (stat(text, &about) != 0)
        return choir__strdup(text);
    if (S_ISDIR(about.st_mode))
        return url_of_folder(text);
    char head[16] = "";
    FILE *file = choir__file_try_stream(text);
    if (file && fread(head, 1, sizeof head - 1, file) > 0 && head[0] == '{') {
        fclose(file);
        return choir__format("journal:%s", text);
    }
    if (file)
        fclose(file);
    return choir__format("sqlite:%s", text);
}

/* --- printing --- */

static void print_trials(const choir__search *s)
{
    choir__search_print_head(s, NULL);
    for (int64_t i = 0; i < choir_study_count(s->study); i++) {
        choir__trial_outcome o = choir__outcome_of(choir_study_trial(s->study, i));
        choir__search_print_trial(s, &o, NULL);
        free(o.why);
    }
}

/* Returns whether a complete trial has the parameter. */
static bool is_used(const choir__search *s, int param)
{
    for (int64_t i = 0; i < choir_study_count(s->study); i++) {
        const choir_trial *t = choir_study_trial(s->study, i);
        if (choir_trial_result(t) == CHOIR_TRIAL_COMPLETE &&
            choir_trial_has(t, choir_space_name(s->space, param)))
            return true;
    }
    return false;
}

/* How much each parameter decides, as the evaluator defines it. */
static choir_status print_importance(const choir__search *s, const char *evaluator)
{
    double share[CHOIR_SPACE_MAX];
    choir__text_buffer t = {0};
    choir_status status = choir_study_importance_by(s->study, evaluator, 0, share);
    if (status != CHOIR_OK)
        return status;
    choir__text_open(&t, NULL, '{');
    choir__text_string(&t, "event", "importance");
    choir__text_open(&t, "shares", '{');
    for (int i = 0; i < choir_space_count(s->space); i++) {
        if (!is_used(s, i))
            continue;
        const char *name = choir_space_name(s->space, i);
        if (s->json) {
            choir__text_buffer_number(&t, name, share[i]);
        } else {
            printf("%6.3f  ", share[i]);
            choir__print_word(stdout, name, 0);
            printf("\n");
        }
    }
    choir__text_buffer_put(&t, "}}");
    if (s->json)
        choir__text_print(&t, stdout);
    choir__text_buffer_free(&t);
    return CHOIR_OK;
}

static int look(const choir__search *s, const char *verb, const char *evaluator)
{
    const choir_trial *best = choir_study_best(s->study);
    bool exports = !strcmp(verb, "export");
    if (!strcmp(verb, "show") || (exports && s->json))
        print_trials(s);
    else if (exports)
        print_csv(s);
    if (!strcmp(verb, "importance") && print_importance(s, evaluator) != CHOIR_OK)
        return choir__line_fail();
    if (best && (!strcmp(verb, "show") || !strcmp(verb, "best")))
        choir__search_print_best(s, best, NULL);
    if (choir__line_flush() != CHOIR_OK)
        return choir__line_fail();
    if (strcmp(verb, "best") != 0 || best)
        return CHOIR__EXIT_OK;
    fprintf(stderr, "choir tune: no trial has a value\n");
    return CHOIR__EXIT_FAILED;
}

#define AT(member) CHOIR__LINE_AT(request, member)

static const choir__line_option options[] = {
    {"storage", CHOIR__STRING, AT(storage), .argument = "URL",
        .help = "the storage, as the search's own option names it, in place of STUDY"},
    {"dir", CHOIR__STRING, AT(dir), .argument = "DIR", .help = "the search's folder, likewise"},
    {"study", CHOIR__STRING, AT(name), .argument = "NAME",
        .help = "the study's name (default: the only one of the storage)"},
    {"evaluator", CHOIR__STRING, AT(evaluator), .argument = "NAME", .strict = true,
        .help =
            "how importance is computed (default ped-anova); by fanova it is a share of the "
            "variance over the whole space",
        .choices = choir__importance_name},
    {"json", CHOIR__FLAG, AT(json), .help = "print JSON, as the search does"},
    {NULL},
};

static const choir__line_command command = {
    .name = "tune",
    .usage = "show|best|importance|export [OPTION]... [STUDY]",
    .about =
        "Prints the trials of a stored study (show), its best trial with the command that "
        "repeats it (best), how much each parameter decides whether a trial is among the best "
        "tenth (importance), or all trials as CSV or, with --json, as JSON (export). STUDY is a "
        "storage, as sqlite:FILE, postgresql://... or journal:FILE, its file, or a folder of "
        "--dir. Optuna's studies can be looked at, too.",
    .example = "  choir tune best runs",
    .options = options,
    .operand = "STUDY",
    .most = 1,
};

choir_status choir__tune_open(const char *where, const char *name, choir_study **study)
{
    choir_study_opts opts = choir_study_defaults();
    char *url = choir__tune_url(where);
    opts.storage = url;
    opts.name = name;
    choir_status status = choir_study_open(NULL, opts, study);
    free(url);
    return status;
}

bool choir__tune_in_file(const char *where, struct stat *file)
{
    if (stat(where, file) == 0 && S_ISREG(file->st_mode))
        return true;
    char *url = choir__tune_url(where), *inner = strchr(url, ':');
    bool is = inner && stat(inner + 1, file) == 0 && S_ISREG(file->st_mode);
    free(url);
    return is;
}

int choir__tune_where(
    const char *storage, const char *dir, const char *study, const char **where)
{
    const int given = (storage != NULL) + (dir != NULL) + (study != NULL);
    *where = storage ? storage : dir ? dir : study;
    if (given > 1)
        return choir__line_usage(
            "tune", "expected one of STUDY, --storage and --dir, got %d", given);
    if (!given)
        return choir__line_usage("tune", "missing STUDY, --storage URL or --dir DIR");
    struct stat about;
    if (dir && (stat(dir, &about) != 0 || !S_ISDIR(about.st_mode)))
        return choir__line_usage("tune", "--dir %s: there is no such folder", dir);
    if (study && !strpbrk(study, ":.") && access(study, F_OK) != 0) /* no address or file */
        return choir__line_usage("tune", "%s: there is no such study or folder", study);
    return CHOIR__EXIT_OK;
}

int choir__tune_look(int argc, char **argv)
{
    static request r;
    choir__line_operands operands;
    const char *verb = argv[1];
    argv[1] = argv[0];
    int status = choir__line_parse(&command, &r, argc - 1, argv + 1, &operands);
    if (status != CHOIR__EXIT_OK)
        return status;
    if (r.evaluator && strcmp(verb, "importance") != 0)
        return choir__line_usage("tune",
            "--evaluator %s: expected it behind 'importance', got '%s'", r.evaluator, verb);
    choir_study *study = NULL;
    const char *where, *word = operands.count ? operands.words[0] : NULL;
    status = choir__tune_where(r.storage, r.dir, word, &where);
    if (status != CHOIR__EXIT_OK)
        return status;
    if (choir__tune_open(where, r.name, &study) != CHOIR_OK)
        return choir__line_fail();
    choir__search s = {.study = study, .space = choir_study_space(study), .json = r.json};
    choir__outcome_job(study, &s.job);
    s.pauses = s.job.pauses;
    s.steps = choir__outcome_stops(study);
    status = look(&s, verb, r.evaluator ? r.evaluator : "ped-anova");
    choir__outcome_free_job(&s.job);
    choir_study_free(study);
    return status;
}
