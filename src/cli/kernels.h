/* choir info --kernels: how this processor computes each op, for each dtype and pass. */
#ifndef CHOIR_CLI_KERNELS_H
#define CHOIR_CLI_KERNELS_H

#include <stdbool.h>

/* Runs each op once for each dtype, and prints a table, or one JSON object per line; returns an
 * exit status. */
int choir__cli_print_kernels(bool json);

#endif
