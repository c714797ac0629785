/* How long a recorded step takes on a cluster: its queues, run on a clock of their own.
 *
 * A queue's entries execute in order; an event, a wait or a wait of the host takes no time.
 * Work on queues that share a core excludes each other: the work that is ready first runs
 * first. A collective begins when all of its members have reached it, and ends for all of them
 * at the same time; a send is on its way while its sender continues. Nothing depends on the
 * speed or the threads of the machine that replays: equal steps and clusters give equal
 * seconds.
 *
 * Kernels' times jitter, and devices differ. Every replay draws them from the cluster's
 * distributions and the table's, with the numbers of (seed, draw). A class of n ranks stands at
 * a meeting of n for its slowest member, whose delay is drawn as the largest of n: so the cost
 * of a replay depends on the classes and not on the ranks. */
#ifndef CHOIR_FORECAST_REPLAY_H
#define CHOIR_FORECAST_REPLAY_H

#include "forecast/cluster.h"
#include "forecast/costs.h"
#include "forecast/step.h"

/* When an entry ran in the undisturbed replay, in seconds from the step's beginning. */
typedef struct choir__entry_time {
    double start, end;
} choir__entry_time;

typedef struct choir__forecast {
    double seconds;   /* seconds of a step without jitter */
    double low, high; /* the 5th and the 95th of 100 steps; equal to seconds without jitter */
    double median;    /* median of the draws */
    double idle;      /* share of the devices' time without a kernel or a copy */
    double bytes[CHOIR__LEVELS]; /* sent per step, by the level of the message */
    double flops;                /* summed over ranks */
    double measured; /* share of the kernels' seconds that comes from a measured table */
    choir__entry_time **times; /* (programs, entries) if asked for; else NULL */
    int programs;
} choir__forecast;

typedef struct choir__replay_opts {
    int draws;     /* replays with jitter; 0: none, and low = high = seconds */
    uint64_t seed; /* for the draws */
    bool times;    /* stores the times of each entry, too */
} choir__replay_opts;

/* Replays a step. costs NULL: data sheets. Errors: argument (more ranks than devices, a step
 * whose entries wait for each other), and as choir__network_price. */
choir_status choir__replay(const choir__step *step, const choir__cluster *cluster,
    const choir__costs *costs, choir__replay_opts opts, choir__forecast *forecast);
void choir__forecast_free(choir__forecast *forecast);

/* chance.c: a number from (seed, draw, number), as if from a normal distribution: the largest
 * of n. n is at least 1. */
double choir__largest_of(uint64_t seed, uint64_t draw, uint64_t number, double n);

#endif
