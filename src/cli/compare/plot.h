/* Functions shared by the parts of a comparison's picture. Each writes to a gnuplot script. */
#ifndef CHOIR_CLI_COMPARE_PLOT_H
#define CHOIR_CLI_COMPARE_PLOT_H

#include <stdio.h>

#include "cli/compare/compare.h"

enum { CHOIR__PLOT_FONT = 15 };

/* Position of a plot's axes, in shares of the picture. */
typedef struct choir__panel {
    double x, y, width, height;
} choir__panel;

/* Writes the axes, fonts and grid of a panel. */
void choir__plot_panel(FILE *g, choir__panel p, const char *title);

/* Writes a text, quoted for gnuplot. */
void choir__plot_text(FILE *g, const char *text);

/* Stores a short label, such as "pipeline 1f1b" for "pipeline:schedule=1f1b". */
void choir__plot_label(const choir__compare_entry *e, char label[64]);

/* Writes the two lower rows of the picture. */
void choir__plot_time(const choir__compare *c, FILE *g);

#endif
