/* choir tune show, best, export: a stored study is looked at. */
#ifndef CHOIR_CLI_TUNE_LOOK_H
#define CHOIR_CLI_TUNE_LOOK_H

#include <stdbool.h>

/* Returns whether the command line begins with show, best or export. */
bool choir__tune_looks(int argc, char **argv);
/* Runs it. Returns an exit status. */
int choir__tune_look(int argc, char **argv);

#endif
