/* Messages that all commands print in one form: failures, wrong usage, notes. On a terminal
 * that is narrower than they are, they are folded (line/terminal.h). The value that a command
 * returns is the exit status of the process. */
#ifndef CHOIR_LINE_SAY_H
#define CHOIR_LINE_SAY_H

#include <stdbool.h>
#include <stdio.h>
#include <choir/status.h>

enum { CHOIR__EXIT_OK = 0, CHOIR__EXIT_FAILED = 1, CHOIR__EXIT_USAGE = 2 };

/* Stores the name of the command that runs, of static storage: with it all messages below begin
 * that are not given another one. Lines that begin with "choir: " alone are the library's. */
void choir__line_running(const char *command);

/* Prints "choir COMMAND: ..." from choir_error_message() and returns CHOIR__EXIT_FAILED. */
int choir__line_fail(void);

/* Prints one line, "choir COMMAND: ...". */
void choir__line_tell(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints one line, "choir COMMAND: ...; see 'choir COMMAND --help'", and returns
 * CHOIR__EXIT_USAGE. */
int choir__line_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints choir_error_message() like one of them: wrong usage, if `usage`, or a failure. */
int choir__line_refuse(const char *command, bool usage);

/* Prints "choir COMMAND: note: ..." for every line of notes; empty: the command that
 * runs. */
void choir__line_notes(const char *command, const char *notes);

/* Flushes standard output. Errors: I/O if any of the output was lost. */
choir_status choir__line_flush(void);

#endif
