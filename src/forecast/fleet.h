/* Goodput: the share of a training's time that failures of a cluster leave, and how often to
 * save.
 *
 * Failures come at random, at a rate in proportion to the devices and nodes of the job. Each
 * one ends a segment of work. Either all processes start again and repeat what came after the
 * last checkpoint, or, with in-process recovery, the other ranks continue from copies in memory
 * and repeat the current step. A node that failed is away until it is repaired; the job waits
 * while more nodes are away than stand by.
 *
 *     |-- interval --|save|-- interval --|save|-- part --X restart |-- part again ...
 *
 * With failures at rate 1/M, saves of C seconds and restarts of R, an interval of T seconds
 * takes M exp(R/M) (exp((T+C)/M) - 1) on average (Daly, 2006), so the useful share is T over
 * that. The best T solves exp((T+C)/M) (1 - T/M) = 1, for which Young's sqrt(2 C M) (1974) and
 * Daly's series are approximations. */
#ifndef CHOIR_FORECAST_FLEET_H
#define CHOIR_FORECAST_FLEET_H

#include "forecast/cluster.h"

typedef struct choir__fleet {
    double failures_per_day; /* all nodes and devices of the job; 0: it never fails */
    double mttf_s;           /* mean time to failure; infinity */
    double interval_s;       /* the best time between two checkpoints; infinity: never */
    double young_s, daly_s;  /* their approximations, for comparison */
    double goodput_restart;  /* useful share of the time: all processes start again */
    double goodput_recovery; /* with in-process recovery; 0: the cluster has none */
    double available;        /* share of the time in which enough nodes are there */
    int64_t spares_wanted;   /* nodes that stand by for a share of 0.999 */
} choir__fleet;

/* The work whose time is asked for. */
typedef struct choir__fleet_job {
    int64_t ranks;     /* one per device */
    double step_s;     /* per step; in-process recovery repeats one */
    double save_s;     /* a checkpoint keeps the job from training so long */
    double interval_s; /* between checkpoints; 0: the best one */
} choir__fleet_job;

/* Errors: argument (more ranks than devices). */
choir_status choir__fleet_forecast(
    const choir__cluster *cluster, const choir__fleet_job *job, choir__fleet *fleet);

#endif
