/* Curves of choir tune's trials: --dir has their runs' folders beside the study:
 *
 *     search/study.db
 *            6/checkpoint/metrics.jsonl -> "trial 6, the best"
 *            7/checkpoint/metrics.jsonl -> "trial 7", and grey if it was stopped */
#include "cli/plot/trials.h"

#include <stdlib.h>
#include <string.h>

#include "cli/tune/search.h"

/* The study of the folder that was looked at last. */
typedef struct known {
    char *folder; /* NULL: none yet */
    choir_study *study;
    int64_t best; /* -1: no trial has a value, or there are several metrics */
} known;

/* Returns the place of a trial's number in the path of its run, ".../NUMBER/checkpoint", as
 * choir tune has it, or NULL. */
static const char *trial_in(const char *path)
{
    const char *end = strrchr(path, '/'), *at = end;
    if (!end || strcmp(end, "/checkpoint") != 0)
        return NULL;
    while (at > path && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at < end && (at == path || at[-1] == '/') ? at : NULL;
}

static void forget(known *k)
{
    choir_study_free(k->study);
    free(k->folder);
    *k = (known){0};
}

/* Looks at the study of a folder. The curves are also drawn without a study, or with one that
 * cannot be read. */
static void look_at(known *k, const char *path, size_t length)
{
    char *folder = length ? choir__format("%.*s", (int)length, path) : choir__strdup(".");
    if (k->folder && !strcmp(k->folder, folder)) {
        free(folder);
        return;
    }
    forget(k);
    k->folder = folder;
    struct stat file;
    if (!choir__tune_in_file(folder, &file) ||
        choir__tune_open(folder, NULL, &k->study) != CHOIR_OK)
        return;
    const choir_trial *best = choir_study_best(k->study);
    k->best = best ? choir_trial_number(best) : -1;
}

void choir__plot_name_trials(choir__plot *plot, char **names)
{
    known k = {0};
    for (int i = 0; i < plot->count; i++) {
        choir__curve *c = &plot->curves[i];
        const char *at = trial_in(c->run);
        if (!at)
            continue;
        look_at(&k, c->run, (size_t)(at - c->run));
        const int64_t number = strtoll(at, NULL, 10);
        const choir_trial *trial = k.study && number < choir_study_count(k.study)
                                       ? choir_study_trial(k.study, number)
                                       : NULL;
        c->stopped = trial && choir_trial_result(trial) == CHOIR_TRIAL_PRUNED;
        c->name = names[i] = choir__format("trial %.*s%s", (int)strcspn(at, "/"), at,
            trial && number == k.best ? ", the best" : "");
    }
    forget(&k);
}
