/* The command: one file a subcommand, a registry in main.c. */
#ifndef CHOIR_CLI_H
#define CHOIR_CLI_H

#include "cli/say.h"
#include "cli/self.h"

int choir__cli_train(int argc, char **argv);
int choir__cli_compare(int argc, char **argv);
int choir__cli_eval(int argc, char **argv);
int choir__cli_generate(int argc, char **argv);
int choir__cli_checkpoint(int argc, char **argv);
int choir__cli_run(int argc, char **argv);
int choir__cli_bench(int argc, char **argv);
int choir__cli_top(int argc, char **argv);
int choir__cli_info(int argc, char **argv);

/* Refuses the option that getopt_long just did not know. */
int choir__cli_unknown(const char *command, char **argv);

#endif
