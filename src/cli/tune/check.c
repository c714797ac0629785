/* Checks of a search before any trial runs, in the order in which people can mend them: the
 * window, the command's placeholders, parameters that choir train has no option for, folders of
 * trials that are paused and resumed, the picture, the search's folder. */
#include "cli/tune/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "line/command.h"
#include "cli/tune/plot.h"
#include "tune/scheduler/scheduler.h"
#include "tune/trials/command.h"

typedef choir__tune_request request;

extern const choir__cli_command choir__cli_train;

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
    choir__cli_taken taken[CHOIR__CLI_MOST_OPTIONS];
    int options = choir__cli_options(&choir__cli_train, taken);
    for (int i = 0; i < choir_space_count(space); i++) {
        const char *name = choir_space_name(space, i);
        const char *near = choir__cli_nearest(taken, options, name); /* itself, if it is one */
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
