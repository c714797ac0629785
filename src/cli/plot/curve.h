/* Curves of runs: a metric of a run folder against steps, time or items. */
#ifndef CHOIR_CLI_CURVE_H
#define CHOIR_CLI_CURVE_H

#include "base/base.h"
#include "line/gnuplot.h"

typedef struct choir__points {
    double *x, *y; /* (count), finite, x ascends */
    int64_t count;
} choir__points;

typedef struct choir__curve {
    const char *run;      /* path */
    const char *name;     /* name of the run in the picture */
    bool stopped;         /* a trial that its search has stopped early */
    choir__points all;    /* points as recorded; a copy of eval if steps have no such metric */
    choir__points smooth; /* without noise; empty unless that was asked for */
    choir__points eval;   /* the same metric of evaluations */
} choir__curve;

typedef enum choir__plot_axis { CHOIR__STEPS, CHOIR__SECONDS, CHOIR__ITEMS } choir__plot_axis;

typedef struct choir__plot {
    choir__curve *curves; /* (count) */
    int count;
    const char *metric; /* "loss" */
    choir__plot_axis axis;
    bool logarithmic; /* the metric's axis */
    double smooth;    /* weight of the past in [0, 1); 0: none */
    const char *file; /* NULL: the terminal */
} choir__plot;

/* Reads a run's curve. Errors: io (no run folder), argument (it has no such metric). */
choir_status choir__curve_read(choir__plot *plot, const char *run, choir__curve *curve);
void choir__curve_free(choir__curve *curve);

/* Returns the points to draw: the smooth ones, if there are some. */
const choir__points *choir__curve_drawn(const choir__curve *curve);

/* Leaves out points of a curve that more than `most` would be, but keeps the lowest and the
 * highest of each piece. The caller frees both arrays. */
choir__points choir__points_thin(const choir__points *points, int64_t most);

/* Returns the words at an axis: "steps", "seconds" or "minutes", with the factor for x. */
const char *choir__axis_words(const choir__plot *plot, double *factor);

/* Returns distances between the marks of an axis from low to high, about `count` of them: 1, 2
 * or 5 times a power of ten. */
double choir__axis_step(double low, double high, int count);

/* Writes the words of a mark. Marks that are `step` apart have different words, which are as
 * near as a tenth of it. */
enum { CHOIR__AXIS_TEXT = 32 };
void choir__axis_text(char *text, double value, double step);

/* Draws into plot->file. */
choir_status choir__plot_picture(const choir__plot *plot);

/* Draws in the terminal, at most `columns` wide. */
void choir__plot_braille(const choir__plot *plot, int columns, bool colours);

#endif
