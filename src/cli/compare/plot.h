/* The picture of a comparison: what its parts tell each other. */
#ifndef CHOIR_CLI_COMPARE_PLOT_H
#define CHOIR_CLI_COMPARE_PLOT_H

#include <stdio.h>

#include "cli/compare/compare.h"
#include "line/gnuplot.h"

/* Writes the two lower rows of the picture. */
void choir__plot_time(const choir__compare *c, FILE *g);

#endif
