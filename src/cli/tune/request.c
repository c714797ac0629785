/* From a request, by options or by a study file, to the space, the metrics with their
 * directions, and the study. Options that may be given several times are kept in a list. */
#include "cli/tune/request.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/named.h"
#include "base/usable.h"
#include "base/utf8.h"
#include "cli/tune/plot.h"
#include "job/devices.h"
#include "line/command.h"
#include "tune/scheduler/scheduler.h"
#include "tune/trials/command.h"

/* --- options that may be given several times --- */

void choir__tune_give(choir__tune_request *r, const char *option, const char *text)
{
    size_t n = (size_t)r->given_count++;
    CHOIR__GROW(r->given, n);
    r->given[n] = (choir__tune_given){option, choir__strdup(text)};
}

const char *choir__tune_given_next(const choir__tune_request *r, const char *option, int *from)
{
    while (*from < r->given_count) {
        const choir__tune_given *given = &r->given[(*from)++];
        if (!strcmp(given->option, option))
            return given->text;
    }
    return NULL;
}

void choir__tune_request_free(choir__tune_request *r)
{
    for (int i = 0; i < r->given_count; i++)
        free(r->given[i].text);
    free(r->given);
    choir__command_free(r->own_command);
    json_decref(r->file);
}

/* --- metrics --- */

/* Refuses "loss:mxa", whose end is nearly a direction. */
static choir_status check_end(const char *text)
{
    static const char *const directions[] = {"min", "max", "minimize", "maximize"};
    const char *end = strrchr(text, ':'), *near = NULL;
    int best = INT_MAX;
    for (size_t i = 0; end && i < CHOIR_COUNT(directions); i++)
        if (choir__is_nearer(directions[i], end + 1, &best))
            near = directions[i];
    return near ? choir__error(CHOIR_ERR_ARGUMENT,
                      "--metric %s: unknown direction '%s' (did you mean '%s'?): choose min or "
                      "max, or write '%s:min' if the metric has that name",
                      text, end + 1, near, text)
                : CHOIR_OK;
}

/* "accuracy:max" or "accuracy", in the direction that is the default. */
static choir_status add_metric(const char *text, bool most, choir__tune_metrics *m)
{
    static const char *const ends[] = {":min", ":minimize", ":max", ":maximize"};
    size_t length = strlen(text);
    if (!choir__is_utf8(text, length))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--metric: expected a key of JSON, which is UTF-8, got '%s'", text);
    if (m->count == CHOIR_STUDY_OBJECTIVES)
        return choir__error(CHOIR_ERR_ARGUMENT, "--metric: expected at most %d of them",
            CHOIR_STUDY_OBJECTIVES);
    for (size_t i = 0; i < CHOIR_COUNT(ends); i++) {
        size_t end = strlen(ends[i]);
        if (strlen(text) < end || strcmp(text + strlen(text) - end, ends[i]) != 0)
            continue;
        length = strlen(text) - end;
        most = i >= 2;
    }
    if (length == strlen(text) && check_end(text) != CHOIR_OK)
        return CHOIR_ERR_ARGUMENT;
    char *name = choir__format("%.*s", (int)length, text);
    for (int i = 0; i < m->count; i++)
        if (!strcmp(m->name[i], name)) {
            free(name);
            return choir__error(
                CHOIR_ERR_ARGUMENT, "--metric %s: the metric is there twice", text);
        }
    m->name[m->count] = name;
    m->most[m->count++] = most;
    return *name ? CHOIR_OK
                 : choir__error(CHOIR_ERR_ARGUMENT,
                       "--metric: expected NAME or NAME:max, got '%s'", text);
}

static const char *const direction_names[] = {"minimize", "maximize"};
static const choir__name_table direction_table = CHOIR__NAME_TABLE(direction_names);

choir_status choir__tune_metrics_read(const choir__tune_request *r, choir__tune_metrics *m)
{
    bool most = !strcmp(r->direction, "maximize");
    const char *text = choir__tune_given_next(r, "metric", &(int){0});
    *m = (choir__tune_metrics){.count = 0};
    if (!choir__is_utf8(r->unit, strlen(r->unit)))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--unit: expected a key of JSON, which is UTF-8, got '%s'", r->unit);
    if (!most && strcmp(r->direction, "minimize") != 0)
        return choir__unknown_name(&direction_table, "direction", r->direction);
    if (!text)
        return add_metric(r->metric, most, m);
    choir_status status = CHOIR_OK;
    for (int i = 0; status == CHOIR_OK && (text = choir__tune_given_next(r, "metric", &i));)
        status = add_metric(text, most, m);
    return status;
}

void choir__tune_metrics_free(choir__tune_metrics *m)
{
    for (int i = 0; i < m->count; i++)
        free(m->name[i]);
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

choir_status choir__tune_space(const choir__tune_request *r, choir_space *space)
{
    choir_status status = CHOIR_OK;
    const char *text;
    for (int i = 0; status == CHOIR_OK && (text = choir__tune_given_next(r, "space", &i));)
        status = add_space(space, text);
    for (int i = 0; status == CHOIR_OK && (text = choir__tune_given_next(r, "require", &i));)
        status = choir_space_require(space, text);
    if (status == CHOIR_OK && !choir_space_count(space))
        status = choir__error(
            CHOIR_ERR_ARGUMENT, "missing --space NAME=DISTRIBUTION, such as lr=log(1e-5,0.1)");
    return status;
}

/* "minimize,maximize", on the heap. */
static char *directions_of(const choir__tune_metrics *m)
{
    char *text = choir__strdup("");
    for (int i = 0; i < m->count; i++) {
        char *longer =
            choir__format("%s%s%s", text, i ? "," : "", m->most[i] ? "maximize" : "minimize");
        free(text);
        text = longer;
    }
    return text;
}

/* Returns the window of the study that is stored; 0: none is. */
static int64_t stored_window(const choir__tune_request *r)
{
    choir_study_opts opts = choir_study_defaults();
    choir_study *study = NULL;
    opts.storage = r->storage;
    opts.name = r->name;
    const char *text = NULL;
    if (r->storage && choir_study_open(NULL, opts, &study) == CHOIR_OK)
        text = choir_study_attribute(study, "choir:window");
    int64_t window = text ? strtoll(text, NULL, 10) : 0;
    choir_study_free(study);
    return window;
}

/* A continued study keeps its window, whatever --parallel is now. */
static choir_status choose_window(const choir__tune_request *r, int64_t *window)
{
    int64_t stored = r->window ? 0 : stored_window(r);
    *window = r->window ? r->window : stored ? stored : r->parallel;
    return *window >= r->parallel
               ? CHOIR_OK
               : choir__error(CHOIR_ERR_ARGUMENT,
                     "--parallel %lld: expected at most the window of the study '%s', %lld",
                     (long long)r->parallel, r->name ? r->name : "study", (long long)stored);
}

choir_status choir__tune_study(const choir__tune_request *r, const choir__tune_metrics *m,
    const choir_space *space, choir_study **study)
{
    choir_study_opts opts = choir_study_defaults();
    char *directions = directions_of(m);
    opts.sampler = r->sampler ? r->sampler : m->count > 1 ? "nsga2" : "tpe";
    opts.scheduler = r->scheduler;
    opts.free = r->free;
    opts.direction = directions;
    opts.seed = (uint64_t)r->seed;
    opts.trials = r->trials;
    opts.storage = r->storage;
    opts.name = r->name;
    choir_status status = choose_window(r, &opts.window);
    if (status == CHOIR_OK)
        status = choir_study_open(space, opts, study);
    free(directions);
    const char *text;
    for (int i = 0; status == CHOIR_OK && (text = choir__tune_given_next(r, "enqueue", &i));)
        status = choir_study_enqueue(*study, text);
    if (status == CHOIR_ERR_END)
        status = choir__error(CHOIR_ERR_ARGUMENT,
            "--enqueue: %s (--trials counts all of the study)", choir__message());
    return status;
}

/* --- the machine ---
 *
 * How many trials run at once: as many as asked for, or as there is room for by the devices and
 * the memory of a trial. The devices are then divided into shares. */

/* Returns the requested number of trials at once, or as many as devices and memory allow. */
static int choose_parallel(const choir__tune_machine *m, int devices, int64_t *parallel)
{
    int64_t room = devices ? devices / m->devices_each : INT64_MAX, beside = INT64_MAX;
    if (!room)
        return choir__line_usage("tune",
            "--devices-per-trial %lld: expected at most the %d devices of --devices",
            (long long)m->devices_each, devices);
    if (*parallel > room)
        return choir__line_usage("tune",
            "--parallel %lld: expected at most %lld, for which the %d devices of --devices are "
            "enough",
            (long long)*parallel, (long long)room, devices);
    if (m->memory_each)
        beside = (int64_t)(choir__usable_memory("") / (double)m->memory_each);
    if (!beside || *parallel > beside)
        return choir__line_usage("tune",
            "--memory-per-trial: the memory of this machine is enough for %lld trials at once",
            (long long)beside);
    if (!*parallel)
        *parallel = devices ? choir__min(room, beside) : 1;
    return CHOIR__EXIT_OK;
}

int choir__tune_machine_read(choir__tune_machine *m, int64_t *parallel)
{
    static char names[CHOIR__TUNE_DEVICES][CHOIR__JOB_DEVICE_NAME];
    _Static_assert((int)CHOIR__JOB_DEVICE_NAME == (int)CHOIR__DEVICE_NAME, "both hold names");
    int count = 0, status = CHOIR__EXIT_OK;
    choir_status read = CHOIR_OK;
    if (m->devices_each > 1 && !m->devices)
        return choir__line_usage("tune",
            "--devices-per-trial %lld: expected --devices LIST beside it, of which each trial has "
            "that many",
            (long long)m->devices_each);
    if (m->devices)
        read = choir__job_devices_read(m->devices, names, CHOIR_COUNT(names), &count);
    if (read != CHOIR_OK)
        return choir__line_refuse("tune", read == CHOIR_ERR_ARGUMENT);
    for (int i = 1; i < count && status == CHOIR__EXIT_OK; i++)
        for (int k = 0; k < i; k++)
            if (!strcmp(names[i], names[k]))
                return choir__line_usage(
                    "tune", "--devices %s: %s is named twice", m->devices, names[i]);
    if (status == CHOIR__EXIT_OK)
        status = choose_parallel(m, count, parallel);
    if (status != CHOIR__EXIT_OK || !count)
        return status;
    m->share_count = count / (int)m->devices_each;
    m->shares = choir__device_shares_new(names, count, (int)m->devices_each);
    return CHOIR__EXIT_OK;
}

/* Checks of a search before any trial runs, in the order in which people can mend them: the
 * window, the command's placeholders, parameters that choir train has no option for, folders of
 * trials that are paused and resumed, the picture, the search's folder. */

typedef choir__tune_request request;

extern const choir__line_command choir__cli_train;

bool choir__tune_pauses(const request *r)
{
    const choir__scheduler_ops *scheduler = choir__scheduler_find(r->scheduler);
    return scheduler && scheduler->pauses;
}

/* Returns whether the storage has trials of the study, so that it continues. */
static bool has_trials(const request *r)
{
    choir_study_opts opts = choir_study_defaults();
    opts.storage = r->storage;
    opts.name = r->name;
    choir_study *study = NULL;
    bool has = r->storage && choir_study_open(NULL, opts, &study) == CHOIR_OK &&
               choir_study_count(study) > 0;
    choir_study_free(study);
    return has;
}

/* Trials that stop keep their checkpoints in folders of this search. */
static choir_status check_pauses(const request *r, const char *metric)
{
    if (!r->dir)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--scheduler %s: expected --dir DIR, where trials that stop keep their checkpoints",
            r->scheduler);
    char *first = choir__format("%s/0", r->dir);
    bool used = access(first, F_OK) == 0;
    free(first);
    if (used && !has_trials(r))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--dir %s: expected a folder without trials of another search, since their "
            "checkpoints would be used",
            r->dir);
    return choir__command_check_pauses(r->command, r->scheduler, metric, r->unit);
}

static choir_status check_folder(const request *r, const choir_space *space)
{
    if (!r->dir && choir__command_uses_dir(r->command, space))
        return choir__error(CHOIR_ERR_ARGUMENT,
            "the command has {dir}: expected --dir DIR, in which each trial has a folder");
    if (r->dir && mkdir(r->dir, 0777) && errno != EEXIST)
        return choir__error(CHOIR_ERR_IO, "--dir %s: %s", r->dir, choir__why(errno));
    return CHOIR_OK;
}

/* Parameters without a placeholder are options of choir train. */
static choir_status check_options(char *const *command, const choir_space *space)
{
    choir__line_taken taken[CHOIR__LINE_MOST_OPTIONS];
    int options = choir__line_options(&choir__cli_train, taken);
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i);
        const char *near = choir__line_nearest(taken, options, name); /* itself, if it is one */
        bool known = near && !strcmp(near, name);
        if (!known && choir__command_appends(command, name))
            return choir__error(CHOIR_ERR_ARGUMENT,
                "parameter %s: choir train has no option --%s, and the command no {%s}%s%s%s",
                name, name, name, near ? "; did you mean '" : "", near ? near : "",
                near ? "'?" : "");
    }
    return CHOIR_OK;
}

choir_status choir__tune_check(
    const request *r, const choir__tune_metrics *m, const choir_space *space)
{
    if (r->window && r->window < r->parallel)
        return choir__error(CHOIR_ERR_ARGUMENT,
            "--window %lld: expected at least --parallel %lld, since trial n follows from trial "
            "n - window",
            (long long)r->window, (long long)r->parallel);
    choir_status status = choir__command_check(r->command, space);
    if (status == CHOIR_OK)
        status = check_options(r->command, space);
    if (status == CHOIR_OK && choir__tune_pauses(r))
        status = check_pauses(r, m->name[0]);
    if (status == CHOIR_OK && r->plot)
        status = choir__tune_picture_check("all", r->plot);
    return status == CHOIR_OK ? check_folder(r, space) : status;
}
