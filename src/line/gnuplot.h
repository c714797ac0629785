/* Pictures drawn by gnuplot, which is run as a program: words and axes of a script, and its
 * run. */
#ifndef CHOIR_LINE_GNUPLOT_H
#define CHOIR_LINE_GNUPLOT_H

#include <math.h>
#include <stdio.h>

#include <choir/status.h>

enum { CHOIR__GNUPLOT_FONT = 15 }; /* points */

/* Position of a plot's axes, in shares of the picture. */
typedef struct choir__panel {
    double x, y, width, height;
} choir__panel;

/* Writes the beginning of a script: the picture's file, SVG or PNG by its name, its width and
 * height in pixels, its font in points, and the factor by which an SVG's font is larger. */
void choir__gnuplot_begin(
    FILE *g, const char *file, int width, int height, int font, double scale);

/* Writes the axes, fonts and grid of a panel. */
void choir__gnuplot_panel(FILE *g, choir__panel p, const char *title);

/* Writes a text of at most `most` letters, quoted for gnuplot. A longer one has "…" for its
 * middle, and a question mark stands for a byte that no picture may have. */
void choir__gnuplot_text(FILE *g, const char *text, int most);
/* Returns the width of a text in letters; wide ones, such as Chinese, count as two. */
int choir__gnuplot_letters(const char *text);
/* Returns the approximate width in pixels of `letters` letters in a font of `points` points. */
double choir__gnuplot_pixels(int letters, int points);
/* Returns the number of letters that fit into `pixels`, at most `most` and at least three. */
int choir__gnuplot_room(double pixels, int points, int most);

/* Writes the name of the panel's vertical axis, of at most `most` letters, upright, its middle
 * at x, a share of the picture's width. */
void choir__gnuplot_name_y(FILE *g, double x, const char *name, int most);

/* Runs gnuplot with the script that write writes to g. */
choir_status choir__gnuplot(void (*write)(const void *arg, FILE *g), const void *arg);

/* Checks that a picture can be made: gnuplot is installed, and the file can be written. option
 * is named in the message. */
choir_status choir__gnuplot_check(const char *option, const char *path);

/* Returns the place of a number on an axis: those beyond 1e300 are drawn at the edge, since the
 * distance of two of them is infinite. */
static inline double choir__axis_place(double value)
{
    return fmax(-1e300, fmin(1e300, value));
}

#endif
