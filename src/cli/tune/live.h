/* choir tune on a terminal: some lines below the table that show how the search stands. They
 * are rewritten in place; no mode of the terminal is changed, so nothing has to be restored,
 * however the search ends. */
#ifndef CHOIR_CLI_TUNE_LIVE_H
#define CHOIR_CLI_TUNE_LIVE_H

#include <choir/study.h>

#include "cli/tune/search.h"

enum { CHOIR__LIVE_LINES = 16, CHOIR__LIVE_RUNGS = 12, CHOIR__LIVE_MS = 200 };

/* A trial that runs, and its last report. */
typedef struct choir__live_trial {
    int64_t number, step; /* step -1: none yet */
    double value;
} choir__live_trial;

/* A step, and the number of segments of trials that ended there. */
typedef struct choir__live_rung {
    int64_t step, ended;
} choir__live_rung;

/* How the search stands. */
typedef struct choir__live_facts {
    const choir_trial *best;          /* or NULL */
    const choir__live_trial *running; /* (running_count) */
    int running_count;
    choir__live_rung rung[CHOIR__LIVE_RUNGS]; /* (rungs) by step */
    int rungs;
    int64_t ended, stopped, failed; /* numbers of trials */
    int64_t here;                   /* number of trials that ended since this process began */
    int64_t trials;                 /* number of trials of the search */
    bool can_predict; /* trials are never resumed, so the remaining time can be estimated */
} choir__live_facts;

struct choir__live {
    const choir__search *search;
    bool on;           /* standard output is a terminal for people */
    int columns, most; /* most: lines, fewer than the terminal has rows */
    int drawn;         /* lines on the terminal; line i has width[i] columns */
    int width[CHOIR__LIVE_LINES];
    double began, at; /* times of choir__now: of the beginning, of the last drawing */
};

void choir__live_begin(choir__live *l, const choir__search *search);
/* Returns whether it is time to draw again. */
bool choir__live_due(const choir__live *l);
void choir__live_draw(choir__live *l, const choir__live_facts *facts);
/* Removes the lines, before others are printed. */
void choir__live_erase(choir__live *l);
/* Prints a line (the text up to its '\n'), on a terminal as much as it has columns for; l may
 * be NULL. */
void choir__live_print(const choir__live *l, const char *text);
/* Prints why a trial failed in lines of its own: on a terminal its table's line has no room for
 * that. */
void choir__live_print_reason(const char *text);

#endif
