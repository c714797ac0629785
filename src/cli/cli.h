/* The command: one file a subcommand, a registry in main.c. */
#ifndef CHOIR_CLI_H
#define CHOIR_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include <choir/status.h>

enum { CHOIR__EXIT_OK = 0, CHOIR__EXIT_FAILED = 1, CHOIR__EXIT_USAGE = 2 };

int choir__cli_train(int argc, char **argv);
int choir__cli_compare(int argc, char **argv);
int choir__cli_eval(int argc, char **argv);
int choir__cli_generate(int argc, char **argv);
int choir__cli_checkpoint(int argc, char **argv);
int choir__cli_run(int argc, char **argv);
int choir__cli_bench(int argc, char **argv);
int choir__cli_top(int argc, char **argv);
int choir__cli_info(int argc, char **argv);

/* Prints "choir: ..." from choir_error_message() and returns CHOIR__EXIT_FAILED. */
int choir__cli_fail(void);

/* Prints "choir COMMAND: ...; where help is", one line; returns CHOIR__EXIT_USAGE. */
int choir__cli_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The same of the option that getopt_long just did not know. */
int choir__cli_unknown(const char *command, char **argv);

/* Prints "choir COMMAND: note: ..." for every line of notes. */
void choir__cli_notes(const char *command, const char *notes);

/* Writes out what is buffered of standard output; an error if any of it was lost. */
choir_status choir__cli_flush(void);

/* Seconds since this process started, exec and dynamic linking included. */
double choir__cli_uptime(void);

/* The text that comes with Choir, or NULL with the error noted. */
const char *choir__cli_own_text(void);

#endif
