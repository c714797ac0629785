/* Internals of `choir compare`: the compared strategies, the runs of each, and the results.
 *
 *     compare.c     the command, and the order of the runs
 *     options.c     its options, and the strategies that it compares
 *     run.c         one run: `choir train --json` in a process of its own
 *     figures.c     medians, spreads, speed-ups, comparison of bits, advice
 *     table.c       the table and the JSON
 *     plot*.c       the picture, through gnuplot */
#ifndef CHOIR_CLI_COMPARE_H
#define CHOIR_CLI_COMPARE_H

#include <jansson.h>
#include <stdio.h>

#include "base/base.h"
#include "job/job.h"
#include "line/gnuplot.h"

/* --- a run's devices over time, seen from outside: run.c --- */

/* Memory and kernel time of a run's devices, sampled at intervals. */
typedef struct choir__compare_watch {
    char device[CHOIR__MAX_DEVICES][16];
    int device_count, count;
    double *at;      /* (count) choir__now() */
    double *bytes;   /* (count, CHOIR__MAX_DEVICES) live bytes */
    double *busy_s;  /* (count, CHOIR__MAX_DEVICES) busy seconds so far */
    double interval; /* seconds between two samples */
    double step_s;   /* median seconds of a step */
} choir__compare_watch;

void choir__watch_free(choir__compare_watch *watch); /* NULL is fine */

/* Returns the share of the time in [from, to) in which device i was busy. */
double choir__watch_busy(const choir__compare_watch *watch, int i, double from, double to);

/* --- run.c --- */

typedef struct choir__outcome {
    json_t *summary; /* last line of `choir train`; NULL: the run did not reach it */
    json_t *plan;    /* line of `choir plan`; NULL: it has none */
    uint32_t *bits;  /* (steps) bits of the losses */
    int64_t steps;
    bool crashed;    /* killed by a signal */
    int status;      /* exit status */
    char error[600]; /* error message, without "choir: " */
} choir__outcome;

/* --- the plan --- */

enum { CHOIR__MAX_SPLITS = 16 };

/* A strategy in the comparison. */
typedef struct choir__compare_entry {
    char text[320]; /* as --strategy takes it */
    char mesh[64];  /* as --mesh takes it; "": no composition */
    choir__composition composition;
    const choir__job_strategy *strategy; /* strategy of the composition */
    int run_count;
    choir__outcome *runs; /* (untimed + repeats) */
    bool failed;
    char error[600]; /* error of the first run that failed */
    /* over all runs; filled in by choir__compare_figures */
    double items_per_s, step_ms, spread, speed_up, efficiency, final_loss;
    double peak_bytes,
        moved_bytes; /* peak_bytes: largest device; moved_bytes: all devices, per step */
    int world;
    double foreseen_items_per_s, foreseen_step_ms; /* choir plan's; NaN: unknown */
    bool same_bits;
    double *split[CHOIR__MAX_SPLITS]; /* (repeats) items/s at splits[i], or NULL */
    int split_runs[CHOIR__MAX_SPLITS];
    choir__compare_watch *watch; /* or NULL */
} choir__compare_entry;

typedef struct choir__compare {
    choir__job job; /* shared by all runs */
    char **args;    /* (arg_count) options passed on to train */
    int arg_count;
    const char *strategies, *splits_text, *plot; /* as given, or NULL */
    const char *mesh; /* mesh of compositions; NULL: from the devices */
    bool chosen;      /* the user named the strategies */
    int64_t repeats;
    /* Rates leave out the first steps. If job.steps are too few for that, each strategy first
     * runs once with job.steps, for the result (untimed 1), and then `repeats` times with more.
     */
    int64_t timed_steps;
    int untimed;
    char devices[CHOIR__MAX_DEVICES * 16]; /* as --devices takes it */
    choir__compare_entry *entries;         /* (count) the first is single */
    int count;
    int64_t splits[CHOIR__MAX_SPLITS]; /* (split_count) samples per micro-batch */
    int split_count;
    int interrupted; /* signal that interrupted the comparison; 0: none */
} choir__compare;

/* --- options.c --- */

/* The options, and the function that stores options to be passed on to the runs. */
extern const choir__line_option choir__compare_options[];
int choir__compare_took(void *compare, const choir__line_option *option, const char *text);

/* Checks the options and plans the runs. Returns CHOIR__EXIT_OK, or the status to exit with. */
int choir__compare_prepare(choir__compare *c);
void choir__compare_free(choir__compare *c);

/* Trains in a separate process. Fills in watch unless it is NULL. The caller frees the outcome.
 * A run that fails is an outcome, not an error. Errors: I/O; interrupted. */
choir_status choir__compare_run(choir__compare *c, const choir__compare_entry *entry,
    int64_t microbatches, int64_t steps, choir__compare_watch *watch, choir__outcome *outcome);

/* Asks `choir plan`, in a separate process, for the entry's foreseen_ figures.
 * Errors: I/O; interrupted. */
choir_status choir__compare_foresee(choir__compare *c, choir__compare_entry *entry);

/* --- figures.c --- */

void choir__outcome_free(choir__outcome *outcome);

/* Returns a number from the summary, or NaN if the summary lacks it. */
double choir__outcome_number(const choir__outcome *outcome, const char *key);

double choir__median(const double *values, int count);
/* Returns half the distance between the quartiles, or between the extremes if there are fewer
 * than five values. */
double choir__run_spread(const double *values, int count);

/* Fills in each entry's members that summarise all runs. */
void choir__compare_figures(choir__compare *c);

/* Returns the fastest entry that `want` accepts (NULL: accepts all), or NULL. */
choir__compare_entry *choir__compare_best(
    const choir__compare *c, bool (*want)(const choir__compare_entry *entry));
/* Returns the fastest entry of a family, or NULL. */
choir__compare_entry *choir__compare_best_of(
    const choir__compare *c, choir__strategy_family family);

static inline bool choir__compare_is(
    const choir__compare_entry *entry, choir__strategy_family family)
{
    return entry->strategy->family == family;
}

/* Writes one or two sentences on which strategy to choose. */
void choir__compare_advice(const choir__compare *c, char *text, size_t room);

/* Stores a short label, such as "pipeline 1f1b" for "pipeline:schedule=1f1b". */
void choir__compare_label(const choir__compare_entry *entry, char label[64]);

/* Returns "tokens" or "samples". */
const char *choir__compare_items(const choir__compare *c);

/* --- table.c, plot.c --- */

void choir__compare_table(const choir__compare *c);
void choir__compare_json(const choir__compare *c);

choir_status choir__compare_plot(const choir__compare *c);

/* The picture of a comparison: what its parts tell each other. */

enum { CHOIR__COMPARE_WIDTH = 1440 }; /* pixels */

/* Returns a distance of 1, 2 or 5 times a power of ten that gives about four ticks. */
double choir__compare_tick(double range);
/* Writes the two lower rows of the picture. */
void choir__plot_time(const choir__compare *c, FILE *g);

#endif
