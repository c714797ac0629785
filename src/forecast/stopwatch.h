/* Calibration: the times of kernels as a device runs them.
 *
 *     choir__stopwatch *o = choir__stopwatch_new();
 *     choir__stopwatch_watch(o, device, 9);    ... the program works with the device ...
 *     choir__stopwatch_end(o, &costs);         the table
 *
 * The queue tells the watch of each task when it has run. Calls of equal size are one sample
 * of the table, whose seconds are the lower quartile of theirs: other processes make a call
 * longer and never shorter. What the queue takes between two tasks is measured as well, since
 * replays add it to each. */
#ifndef CHOIR_FORECAST_STOPWATCH_H
#define CHOIR_FORECAST_STOPWATCH_H

#include "device/device.h"
#include "forecast/costs.h"

typedef struct choir__stopwatch choir__stopwatch;

choir__stopwatch *choir__stopwatch_new(void);
/* Begins to watch a device, which no trace watches, and whose program will end with `steps`
 * recorded steps. */
void choir__stopwatch_watch(choir__stopwatch *watch, choir_device *device, int64_t steps);
/* Waits for the device and stops watching it. */
void choir__stopwatch_stop(choir__stopwatch *watch);
/* Stops and frees it. Adds the samples to costs;
 * NULL: drops it. */
void choir__stopwatch_end(choir__stopwatch *watch, choir__costs *costs);

#endif
