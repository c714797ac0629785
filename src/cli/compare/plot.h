/* What the parts of a comparison's picture share: each writes to a script for gnuplot. */
#ifndef CHOIR_CLI_COMPARE_PLOT_H
#define CHOIR_CLI_COMPARE_PLOT_H

#include <stdio.h>

#include "cli/compare/compare.h"

enum { CHOIR__PLOT_FONT = 15 };

/* Where a plot is inside its axes, in shares of the picture. */
typedef struct choir__panel {
    double x, y, width, height;
} choir__panel;

/* Axes, fonts and grid as all panels have them. */
void choir__plot_panel(FILE *g, choir__panel p, const char *title);

/* A text as gnuplot quotes it. */
void choir__plot_text(FILE *g, const char *text);

/* "pipeline 1f1b" of "pipeline:schedule=1f1b". */
void choir__plot_label(const choir__compare_entry *e, char label[64]);

/* The two lower rows. */
void choir__plot_time(const choir__compare *c, FILE *g);

#endif
