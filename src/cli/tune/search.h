/* choir tune: the search itself, from the study's first trial to its last. */
#ifndef CHOIR_CLI_TUNE_SEARCH_H
#define CHOIR_CLI_TUNE_SEARCH_H

#include <choir/study.h>
#include <sys/stat.h>

#include "tune/trials/running.h"

typedef struct choir__search {
    choir_study *study;
    const choir_space *space;
    choir__trial_job job;
    int64_t trials, parallel, retries, failures_max;
    choir__device_share *shares; /* (parallel or more) NULL: trials are not bound to devices */
    bool most;                   /* more is better */
    bool json, quiet;
    bool pauses; /* trials are paused and resumed: each part is printed */
    bool steps;  /* trials may stop early: the table has the step at which each one ended */
} choir__search;

/* Runs the search, printing each trial when it and all before it have ended, and the best one
 * last. Where trials are paused and resumed, each part of a trial is printed, in the order in
 * which they begin. Returns an exit status. */
int choir__search_run(const choir__search *s);

/* --- with the best trial --- */

/* Splits a command line into words, ended by NULL, which choir__command_free frees. Error:
 * argument. */
choir_status choir__final_words(const char *text, char ***words);
/* Runs the words of a command with the values of a trial. Returns an exit status. */
int choir__final_run(const choir__search *s, char *const *words, const choir_trial *best);

/* --- printing (print.c) --- */

/* A trial that has ended, with what the process that ran it has noted (outcome.c). */
typedef struct choir__trial_outcome {
    const choir_trial *trial;
    choir_trial_state state;
    double value[CHOIR_STUDY_OBJECTIVES]; /* (metrics) */
    char *why;                            /* reason of the failure; NULL: not failed */
    int64_t step;                         /* step of the last report; -1: no report */
    double seconds;
} choir__trial_outcome;

/* Reads what choir__trial_note_end has noted; `why` is on the heap. */
choir__trial_outcome choir__outcome_of(const choir_trial *trial);
/* Notes the search's command, metrics, unit and folder as attributes of the study. Error:
 * argument (the study has another metric or unit). */
choir_status choir__outcome_note_job(choir_study *study, const choir__trial_job *job);
/* Reads these attributes, for choir__outcome_free_job. Returns false if the study lacks them.
 */
bool choir__outcome_job(const choir_study *study, choir__trial_job *job);
void choir__outcome_free_job(choir__trial_job *job);
/* Returns whether trials of a stored study may stop early, or have stopped. */
bool choir__outcome_stops(const choir_study *study);

/* Returns the state's name, "COMPLETE". */
const char *choir__search_state(choir_trial_state state);

/* live: where the lines are cut (live.h), or NULL. */
typedef struct choir__live choir__live;
void choir__search_print_head(const choir__search *s, const choir__live *live);
void choir__search_print_trial(
    const choir__search *s, const choir__trial_outcome *o, const choir__live *live);
/* Prints the best trial; of several metrics, all trials that no other one dominates. */
void choir__search_print_best(
    const choir__search *s, const choir_trial *best, const double *values);

/* choir tune show, best, importance, export: a stored study is looked at. */

/* Returns whether the command line begins with the name of a command that shows a study, or
 * with plot. */
bool choir__tune_looks(int argc, char **argv);
/* Checks the first word of a command line that has no option before it, and so is no search.
 * Error: argument, the word is nearly one of these names. */
choir_status choir__tune_check_word(const char *word);
/* Runs a command that shows a study. Returns an exit status. */
int choir__tune_look(int argc, char **argv);

/* Returns the URL of the storage that `where` names: a storage, its file, or a folder of --dir.
 * The caller frees it. */
char *choir__tune_url(const char *where);

/* Returns whether `where` is the file of a storage, or a folder of --dir whose study is in a
 * file, and stores what that file is. */
bool choir__tune_in_file(const char *where, struct stat *file);

/* Finds what names a stored study: exactly one of --storage, --dir and STUDY, the others NULL.
 * Returns the exit status, after a sentence if it is not CHOIR__EXIT_OK. */
int choir__tune_where(
    const char *storage, const char *dir, const char *study, const char **where);

/* Opens a stored study to look at it. where: as above; name: NULL for the only study there.
 * Errors: as choir_study_open. */
choir_status choir__tune_open(const char *where, const char *name, choir_study **study);

#endif
