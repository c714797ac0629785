/* The command: one file a subcommand, a registry in main.c. */
#ifndef CHOIR_CLI_H
#define CHOIR_CLI_H

#include <stdbool.h>
#include <stdint.h>

enum { CHOIR__EXIT_OK = 0, CHOIR__EXIT_FAILED = 1, CHOIR__EXIT_USAGE = 2 };

int choir__cli_train(int argc, char **argv);
int choir__cli_eval(int argc, char **argv);
int choir__cli_generate(int argc, char **argv);
int choir__cli_bench(int argc, char **argv);
int choir__cli_info(int argc, char **argv);

/* Prints "choir: ..." from choir_error_message() and returns CHOIR__EXIT_FAILED. */
int choir__cli_fail(void);

/* Prints "choir COMMAND: ..." and where help is; returns CHOIR__EXIT_USAGE. */
int choir__cli_usage(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Seconds since this process started, exec and dynamic linking included. */
double choir__cli_uptime(void);

/* The text that comes with Choir, or NULL with the error noted. */
const char *choir__cli_own_text(void);

#endif
