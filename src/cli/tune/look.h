/* choir tune show, best, importance, export: a stored study is looked at. */
#ifndef CHOIR_CLI_TUNE_LOOK_H
#define CHOIR_CLI_TUNE_LOOK_H

#include <choir/study.h>

/* Returns whether the command line begins with the name of a command that shows a study, or
 * with plot. */
bool choir__tune_looks(int argc, char **argv);
/* Checks the first word of a command line that has no option before it, and so is no search.
 * Error: argument, the word is nearly one of these names. */
choir_status choir__tune_check_word(const char *word);
/* Runs it. Returns an exit status. */
int choir__tune_look(int argc, char **argv);

/* Returns the URL of the storage that `where` names: a storage, its file, or a folder of --dir.
 * The caller frees it. */
char *choir__tune_url(const char *where);

/* Opens a stored study to look at it. where: as above; name: NULL for the only study there.
 * Errors: as choir_study_open. */
choir_status choir__tune_open(const char *where, const char *name, choir_study **study);

/* Prints all trials as CSV (export.c). */
struct choir__search;
void choir__tune_print_csv(const struct choir__search *s);

#endif
