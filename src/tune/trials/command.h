/* Commands with placeholders: "./train --lr {lr}" becomes the command line of one trial.
 *
 * {NAME} stands for a parameter, {trial} for the trial's number, {dir} for its folder, and
 * {{NAME} for {NAME} itself; other braces have no meaning. An argument whose parameter the
 * trial lacks is left out, and so is an option of its own before it ("--momentum {momentum}").
 * `choir train` needs no placeholders: parameters that the command does not mention are
 * appended as --NAME VALUE, and --json unless it is there, and where trials are resumed, --save
 * and --resume. */
#ifndef CHOIR_TUNE_COMMAND_H
#define CHOIR_TUNE_COMMAND_H

#include <choir/study.h>

/* Checks a command (ended by NULL) against a space. Errors: argument (a placeholder without
 * parameter, a parameter without placeholder). */
choir_status choir__command_check(char *const *command, const choir_space *space);

/* Returns whether the command is choir train. */
bool choir__command_is_train(char *const *command);

/* Returns whether a parameter becomes an option of choir train, since the command does not
 * mention it. */
bool choir__command_appends(char *const *command, const char *name);

/* Checks the placeholders alone: the command may leave parameters out. */
choir_status choir__command_check_names(char *const *command, const choir_space *space);

/* Returns whether the command has the placeholder {dir}, and no parameter is called so. */
bool choir__command_uses_dir(char *const *command, const choir_space *space);

/* Checks that a command's trials can be paused and resumed by a scheduler, and report its
 * metric while they run. Error: argument. */
choir_status choir__command_check_pauses(
    char *const *command, const char *scheduler, const char *metric, const char *unit);

/* Returns the command line that repeats the trial, ended by NULL, which choir__command_free
 * frees. dir: its folder, or NULL. */
char **choir__command_of(
    char *const *command, const choir_space *space, const choir_trial *trial, const char *dir);
/* Returns the command line of the trial itself, whose results are lines of JSON. checkpoint:
 * where the trial keeps its state when it stops, or NULL. */
char **choir__command_of_trial(char *const *command, const choir_space *space,
    const choir_trial *trial, const char *dir, const char *checkpoint);
void choir__command_free(char **line);

/* Returns a command line as text that a shell reads back, which the caller frees. */
char *choir__command_text(char *const *line);

#endif
