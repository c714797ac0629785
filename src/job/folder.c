/* The folders of a job, --save's and --run's: it makes them, refuses other runs' folders, and
 * owns them while it lives (base/files/claim.h).
 *
 * The claim belongs to the supervisor, or to rank 0's process. Where agents of `choir run`
 * start ranks again, it is the job's by its name, and lives with the agent: no other job slips
 * in between a generation that fails and the next. An interruption gives the folders back as
 * success does, because the job may be started on another machine at once. Ranks that agents
 * stop as nodes change cannot tell that from the end of the job: the next generation claims
 * the folders again. */
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/claim.h"
#include "base/files/folders.h"
#include "base/files/run_files.h"
#include "checkpoint/checkpoint.h"
#include "job/job.h"
#include "line/say.h"
#include "launch/launchers.h"
#include "record/recorder.h"

/* --- other runs --- */

/* Refuses a folder of --save that holds another run: a run is resumed, never overwritten. What
 * ranks find that an agent has started again is their own. */
static choir_status check_save_folder(const choir__job *j)
{
    char old[PATH_MAX];
    if (j->ranks.rank > 0 || choir__job_is_started_again(j) ||
        choir_training_find(j->saves.dir, old) != CHOIR_OK)
        return CHOIR_OK;
    if (choir__job_goes_on_in_place(&j->saves))
        return CHOIR_OK;
    return choir__error(CHOIR_ERR_ARGUMENT,
        "--save %s holds a run already: continue it by --resume %s, or choose another folder",
        j->saves.dir, j->saves.dir);
}

/* Refuses a folder of records, the place of an option, that holds another run's records. */
static choir_status check_run_folder(const choir__job *j, const char *option, const char *path)
{
    if (j->ranks.rank > 0 || j->saves.resume || choir__job_is_started_again(j))
        return CHOIR_OK;
    return choir__folder_has(path, CHOIR__METRICS_FILE)
               ? choir__error(CHOIR_ERR_ARGUMENT,
                     "%s%s holds the records of another run: choose another folder", option,
                     path)
               : CHOIR_OK;
}

/* A log may be such a folder, too. */
static choir_status check_logged_folders(const choir__job *j)
{
    char *all = choir__strdup(j->records.logs ? j->records.logs : ""), *rest = all, *dest;
    choir_status status = CHOIR_OK;
    while (status == CHOIR_OK && (dest = strsep(&rest, "\n")) && *dest) {
        const choir__recorder_ops *ops;
        const char *place;
        if (choir__recorder_find(dest, &ops, &place) == CHOIR_OK && ops == &choir__recorder_run)
            status = check_run_folder(j, "--log run:", place);
    }
    free(all);
    return status;
}

choir_status choir__job_check_folders(const choir__job *j)
{
    choir_status status = j->saves.dir ? check_save_folder(j) : CHOIR_OK;
    if (status == CHOIR_OK && j->records.run)
        status = check_run_folder(j, "--run ", j->records.run);
    return status == CHOIR_OK ? check_logged_folders(j) : status;
}

/* --- making and claiming --- */

/* Makes a folder before the first step, so that one that cannot be written is reported before
 * training and not after it. */
static choir_status make(const char *option, const char *path)
{
    int why = choir__folders_make(path);
    return why ? choir__error(
                     CHOIR_ERR_IO, "%s %s: cannot write there: %s", option, path, strerror(why))
               : CHOIR_OK;
}

static void tell(void *arg, const char *sentence)
{
    const choir__job *j = arg;
    choir__job_tell_notes(j, sentence);
}

/* The ranks end with this process. A program's process stays. */
static void lost(void *arg, const char *sentence)
{
    const choir__job *j = arg;
    if (j->records.told) {
        atomic_store(&j->records.told->stop, CHOIR__STOP_LOST);
        return;
    }
    choir__line_tell(j->command, "%s", sentence);
    _exit(CHOIR__EXIT_FAILED);
}

static bool has_agent(void)
{
    return choir__variable("CHOIR_AGENT") != NULL;
}

static int number_of(const char *variable, int otherwise)
{
    int number = otherwise;
    return choir__variable_number(variable, &number) == CHOIR_OK ? number : otherwise;
}

/* Returns whether agents may start the ranks of a job again that has not ended well. */
static bool may_start_again(void)
{
    return has_agent() && (number_of("GROUP_WORLD_SIZE", 1) > 1 ||
                              number_of("TORCHELASTIC_RESTART_COUNT", 0) <
                                  number_of("TORCHELASTIC_MAX_RESTARTS", 0));
}

static choir_status claim(choir__job *j, const char *path, choir__claim **made)
{
    choir__claim_opts opts = choir__claim_defaults();
    opts.tell = tell;
    opts.lost = lost;
    opts.arg = j;
    if (has_agent()) {
        opts.pid = number_of("CHOIR_AGENT", 0);
        opts.job = choir__variable("TORCHELASTIC_RUN_ID");
        opts.elsewhere = number_of("GROUP_WORLD_SIZE", 1) > 1;
    }
    return choir__claim_take(path, &opts, made);
}

static bool is_same_folder(const char *a, const char *b)
{
    struct stat first, second;
    return a && b && stat(a, &first) == 0 && stat(b, &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

/* Refuses to continue from a step that another process has continued from in the meantime. */
static choir_status check_step(const choir__job_saves *saves)
{
    choir_train_state s;
    if (!choir__job_goes_on_in_place(saves))
        return CHOIR_OK;
    choir_status status = choir_training_read(saves->resume, &s);
    if (status != CHOIR_OK || s.step == saves->resumed_step)
        return status;
    return choir__error(CHOIR_ERR_STATE,
        "%s was at step %lld, and another job has brought it to step %lld in the meantime: start "
        "this command again",
        saves->resume, (long long)saves->resumed_step, (long long)s.step);
}

choir_status choir__job_take_folders(choir__job *j)
{
    choir_status status = j->saves.dir ? make("--save", j->saves.dir) : CHOIR_OK;
    if (status != CHOIR_OK || j->ranks.rank > 0 || j->training.find_lr)
        return status;
    if (j->saves.dir)
        status = claim(j, j->saves.dir, &j->saves.claims[0]);
    /* A folder of records that cannot be made costs the records, not the training. */
    if (status == CHOIR_OK && j->records.run && !choir__folders_make(j->records.run) &&
        !is_same_folder(j->saves.dir, j->records.run))
        status = claim(j, j->records.run, &j->saves.claims[1]);
    if (status == CHOIR_OK)
        status = choir__job_check_folders(j); /* again: now no other job can interfere */
    if (status == CHOIR_OK)
        status = check_step(&j->saves);
    return status == CHOIR_OK && j->saves.rewound && choir__job_goes_on_in_place(&j->saves)
               ? choir__checkpoint_go_back(j->saves.dir, j->saves.resumed_step)
               : status;
}

void choir__job_leave_folders(choir__job_saves *s, bool ended)
{
    for (size_t i = 0; i < CHOIR_COUNT(s->claims); i++) {
        choir__claim_free(s->claims[i], !ended && may_start_again());
        s->claims[i] = NULL;
    }
}

/* --- the newest checkpoint --- */

uint64_t choir__job_checkpoint(const choir__job_saves *s)
{
    char found[PATH_MAX];
    struct stat folder;
    if (!s->dir || choir_training_find(s->dir, found) != CHOIR_OK || stat(found, &folder) < 0)
        return 0;
    uint64_t made =
        (uint64_t)folder.st_mtim.tv_sec * 1000000000u + (uint64_t)folder.st_mtim.tv_nsec;
    return (uint64_t)folder.st_ino * 31 + made; /* each save makes a folder of its own */
}
