/* Pictures of a study: the interface between their parts.
 *
 *     plot.c         the kinds of pictures and where they are placed
 *     plot_data.c    a study's trials as numbers to be drawn
 *     plot_trials.c  trials in their order: the history, the rungs at which they stopped
 *     plot_params.c  parameters: against the value, side by side, their importance
 *     plot_points.c  trials of one or several searches in the plane of two parameters, or
 *                    of two metrics */
#ifndef CHOIR_CLI_TUNE_PLOT_H
#define CHOIR_CLI_TUNE_PLOT_H

#include <stdio.h>

#include "line/gnuplot.h"
#include "tune/space/space.h"
#include <choir/study.h>

typedef struct choir__plotted_trial {
    const choir_trial *trial;
    choir_trial_state state;
    double value; /* NaN: no value */
    double place; /* rank among the trials with values: 0 the best, 1 the worst */
    bool best;    /* the study's best trial, where it has one metric */
} choir__plotted_trial;

/* The part of an axis that shows the values. Few values far away are drawn at its end. */
typedef struct choir__plot_range {
    double low, high;
    bool log;
} choir__plot_range;

typedef struct choir__plotted {
    const choir_study *study;
    const choir_space *space;
    const char *name;
    const char *const *metrics; /* (objectives) */
    const char *metric;         /* metric that is drawn */
    const char *unit;           /* unit of steps */
    const char *evaluator;      /* evaluator of importance; NULL: ped-anova */
    int objective;
    bool most;                   /* more is better */
    choir__plotted_trial *trial; /* (count) */
    int64_t count;
    choir__plot_range range; /* range of the values */
    double share[CHOIR_SPACE_MAX];
    int *param; /* (param_count) the parameters to be drawn, the most important first */
    int param_count;
    bool has_values, has_reports, has_shares;
    bool ordered;      /* params have the user's order, not by importance */
    int width, height; /* size of the picture, in pixels */
} choir__plotted;

/* A picture: of one study, or of several side by side. */
typedef struct choir__tune_picture {
    choir__plotted *of; /* (count) */
    int count;
    const char *kind, *file;
} choir__tune_picture;

/* Chooses the metric to be drawn: the one of this name, or the first if it is NULL. Error:
 * argument. */
choir_status choir__plotted_choose(choir__plotted *p, const char *metric);
/* Reads the trials and parameters to be drawn; params: names separated by commas; NULL: all
 * parameters that vary, the most important first. Errors: argument (an unknown parameter),
 * state (no trial). */
choir_status choir__plotted_read(choir__plotted *p, const char *params);
void choir__plotted_free(choir__plotted *p);

/* Checks that the picture can be made, and draws it. Errors: argument (its kind, its file's
 * name, nothing to draw), I/O, state (no gnuplot). */
choir_status choir__tune_picture_check(const char *kind, const char *file);
choir_status choir__tune_picture_draw(const choir__tune_picture *picture);

/* choir tune plot. */
int choir__tune_plot(int argc, char **argv);

/* --- for the parts (plot_data.c) --- */

/* Returns the range that shows n values best; most: more is better. */
choir__plot_range choir__plot_range_of(const double *value, int64_t n, bool most);
/* Returns whether a trial is in this state. */
bool choir__plot_has_state(const choir__plotted *p, choir_trial_state state);
/* Writes a panel's axes and its title, at the left, `lines` above the axes. */
void choir__plot_panel(FILE *g, choir__panel panel, const char *title, double lines);
/* Writes "set yrange ..." (axis 'x' or 'y'). */
void choir__plot_axis(FILE *g, char axis, choir__plot_range range);
/* Returns the value, or the end of the range beyond which it lies. */
double choir__plot_inside(choir__plot_range range, double value);
/* Writes the end of a plot command: a ring around the point of the data in which the column is
 * 1, the best trial's. */
void choir__plot_ring(FILE *g, const char *data, int column);
/* Writes the name of the vertical axis, of at most `most` letters. */
void choir__plot_name_y(
    const choir__plotted *p, FILE *g, choir__panel panel, const char *name, int most);
/* Returns the title of a picture that shows only the first `shown` parameters, with the number
 * of omitted ones; the caller frees it. */
char *choir__plot_title(const choir__plotted *p, const char *title, int shown);
/* Writes the axis of a parameter: its range, and the names of choices, for which the axis has
 * room for `letters` in all. */
void choir__plot_param_axis(FILE *g, char axis, const choir__hyper *param, int letters);
/* Returns the position of a parameter's value on its axis; NaN: the trial does not have it. */
double choir__plot_param(const choir_trial *trial, const choir__hyper *param);

/* --- the kinds --- */

void choir__plot_history(const choir__plotted *p, FILE *g, choir__panel panel);
void choir__plot_rungs(const choir__plotted *p, FILE *g, choir__panel panel);
void choir__plot_slices(const choir__plotted *p, FILE *g, choir__panel panel);
/* Returns the number of rows of panels in the picture of slices. CHOIR__PLOT_SLICE_GAP: pixels
 * for texts between two rows. */
int choir__plot_slice_rows(const choir__plotted *p);
#define CHOIR__PLOT_SLICE_GAP 92
void choir__plot_parallel(const choir__plotted *p, FILE *g, choir__panel panel);
void choir__plot_importance(const choir__plotted *p, FILE *g, choir__panel panel);
/* Returns the width in pixels of the names beside the bars. */
double choir__plot_importance_side(const choir__plotted *p);
void choir__plot_front(const choir__plotted *p, FILE *g, choir__panel panel);
void choir__plot_points(const choir__plotted *p, FILE *g, choir__panel panel);

#endif
